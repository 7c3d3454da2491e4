package quorum

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"weir/internal/kraft"
	"weir/internal/peer"
)

// health is what requests to other nodes have shown, for the log and for the
// decision that this node does not belong to their cluster. Transport.mu guards it.
type health struct {
	errs    map[string]string // by node or address: why the last request failed
	foreign map[string]string // by node or address: the id of its cluster
	heard   bool              // a node of this cluster has answered
	since   time.Time         // nothing was heard, or no leader known, since
	told    time.Time
	wrong   chan error // gets one error when this node belongs elsewhere
}

func (h *health) init(now time.Time) {
	h.errs, h.foreign, h.since, h.wrong = map[string]string{}, map[string]string{}, now, make(chan error, 1)
}

func (k linkKey) String() string {
	if k.node == kraft.None {
		return k.address
	}
	return fmt.Sprintf("node %d", k.node)
}

// sayEvery is how often the log is told that there is no leader, sayAfter when first.
const (
	sayEvery = 5 * time.Second
	sayAfter = 2 * time.Second
)

// heard notes that a node of this cluster has answered.
func (t *Transport) heard(k linkKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.health.heard = true
	delete(t.health.errs, k.String())
	if t.log.Leader().ID != kraft.None {
		if !t.health.told.IsZero() {
			t.o.Logger.Info("the metadata quorum has a leader again", "leader", t.log.Leader().ID)
		}
		t.health.told, t.health.since = time.Time{}, t.o.Clock.Now()
	}
}

// failed notes that no answer came. While no leader is known, the log says so
// every few seconds, with what was tried.
func (t *Transport) failed(k linkKey, err error) {
	if t.life.Err() != nil {
		return
	}
	t.o.Logger.Debug("no answer from the metadata quorum", "node", k.String(), "err", err)
	t.mu.Lock()
	defer t.mu.Unlock()
	h, now := &t.health, t.o.Clock.Now()
	h.errs[k.String()] = err.Error()
	if t.log.Leader().ID != kraft.None {
		h.since = now
		return
	}
	if now.Sub(h.since) < sayAfter || now.Sub(h.told) < sayEvery {
		return
	}
	h.told = now
	t.o.Logger.Warn("waiting for a leader of the metadata quorum", "for", now.Sub(h.since).Round(time.Second), "tried", tried(h.errs))
}

func tried(errs map[string]string) string {
	var out []string
	for _, who := range slices.Sorted(maps.Keys(errs)) {
		if strings.HasPrefix(errs[who], who) {
			out = append(out, errs[who])
		} else {
			out = append(out, who+": "+errs[who])
		}
	}
	return strings.Join(out, "; ")
}

// foreign notes that a node belongs to another cluster. When nobody of this
// node's cluster has ever answered and all the others that it may ask belong
// elsewhere, then it is this one that does not belong: it gives up.
func (t *Transport) foreign(ctx context.Context, k linkKey, c *peer.Client) {
	id, err := clusterOf(ctx, c)
	if err != nil {
		t.failed(k, fmt.Errorf("it belongs to another cluster than %s, and does not say to which: %w", t.o.ClusterID, err))
		return
	}
	t.failed(k, fmt.Errorf("it belongs to cluster %s, this node to cluster %s", id, t.o.ClusterID))
	t.mu.Lock()
	defer t.mu.Unlock()
	h := &t.health
	h.foreign[k.String()] = id
	others := len(t.o.Bootstrap)
	if others == 0 {
		others = len(slices.DeleteFunc(slices.Clone(t.o.Static), func(id int32) bool { return id == t.o.NodeID }))
	}
	if h.heard || len(h.foreign) < others {
		return
	}
	select {
	case h.wrong <- fmt.Errorf("wrong cluster: this node belongs to cluster %s (meta.properties), %s to cluster %s", t.o.ClusterID, k, id):
	default:
	}
}

// Wrong gets an error when this node turns out to belong to another cluster than
// those it is to work with.
func (t *Transport) Wrong() <-chan error { return t.health.wrong }
