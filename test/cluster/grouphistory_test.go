package cluster

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"weir/internal/group"
	"weir/test/testnode"
)

const offsetsTopic = "__consumer_offsets"

// history is what a reader of __consumer_offsets has seen: the order in which it was all written down.
type history struct {
	mu          sync.Mutex
	next        map[int32]int64 // by partition: the offset to read next
	offsets     map[place]int64
	generations map[string]int32
	records     int
	errs        []error
}

// watchGroups reads the topic until it is stopped.
func watchGroups(ctx context.Context, addrs ...string) (h *history, stop func(), err error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.ConsumeTopics(offsetsTopic), kgo.FetchMaxWait(100*time.Millisecond), kgo.RetryBackoffFn(quickly), kgo.MetadataMinAge(memberHeartbeat))
	if err != nil {
		return nil, nil, err
	}
	h = &history{next: map[int32]int64{}, offsets: map[place]int64{}, generations: map[string]int32{}}
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			fetches := cl.PollFetches(ctx)
			h.mu.Lock()
			for _, r := range fetches.Records() {
				if err := h.take(r); err != nil {
					h.errs = append(h.errs, fmt.Errorf("%s-%d, offset %d: %w", r.Topic, r.Partition, r.Offset, err))
				}
			}
			h.mu.Unlock()
		}
	})
	return h, func() {
		cancel()
		done.Wait()
		cl.Close()
	}, nil
}

// take looks at one record: nothing goes back, and nothing is taken away.
func (h *history) take(r *kgo.Record) error {
	if r.Offset < h.next[r.Partition] {
		return fmt.Errorf("read again, after offset %d", h.next[r.Partition]-1)
	}
	h.next[r.Partition] = r.Offset + 1
	h.records++
	rec, err := group.ParseRecord(-1, r.Key, r.Value)
	switch {
	case err != nil:
		return err
	case rec.Offset != nil:
		k := rec.Offset.Key
		at := place{k.Group, k.Topic, k.Partition}
		if rec.Offset.Value == nil {
			return fmt.Errorf("%v was removed", at)
		}
		if o := rec.Offset.Value.Offset; o < h.offsets[at] {
			return fmt.Errorf("%v: offset %d is committed after %d", at, o, h.offsets[at])
		}
		h.offsets[at] = rec.Offset.Value.Offset
	case rec.Group != nil:
		g := rec.Group
		if g.Value == nil {
			return fmt.Errorf("group %s was removed", g.ID)
		}
		if g.Value.Generation < h.generations[g.ID] {
			return fmt.Errorf("group %s: generation %d comes after %d", g.ID, g.Value.Generation, h.generations[g.ID])
		}
		h.generations[g.ID] = g.Value.Generation
	default:
		return fmt.Errorf("neither an offset nor a group: %+v", rec)
	}
	return nil
}

// finish waits until all that the topic holds now has been read, and tells what was wrong.
func (h *history) finish(t *testing.T, n *testnode.Node) {
	t.Helper()
	ends, err := n.Admin(t).ListEndOffsets(t.Context(), offsetsTopic)
	if err != nil {
		t.Fatal(err)
	}
	testnode.Until(t, testnode.Patience, "the rest of "+offsetsTopic, func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		var err error
		ends.Each(func(o kadm.ListedOffset) {
			if next := h.next[o.Partition]; o.Err != nil || next < o.Offset {
				err = fmt.Errorf("partition %d: read to %d of %d (%v)", o.Partition, next, o.Offset, o.Err)
			}
		})
		return err
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, err := range h.errs {
		if i == 10 {
			t.Errorf("… %d errors", len(h.errs))
			break
		}
		t.Error(err)
	}
}

// noCoordinatorErrors fails the test for what the node's log must never tell.
func noCoordinatorErrors(t *testing.T, n *testnode.Node) {
	t.Helper()
	for line := range strings.Lines(n.LogText(t)) {
		for _, bad := range []string{"BUG:", "DATA RACE", "panic:", "level=ERROR"} {
			if strings.Contains(line, bad) {
				t.Error("the log tells: ", line)
			}
		}
	}
}
