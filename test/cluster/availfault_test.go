package cluster

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"weir/test/testnode"
)

// A gap is how long writing stood still because of one fault: with each partition's probe, the longest time without an ack.
type gap struct {
	Fault string          `json:"fault"`
	MS    []time.Duration `json:"-"`
	Most  int64           `json:"most_ms"`
	Each  []int64         `json:"by_partition_ms"`
}

// gapLimit is ten times the promise: what a busy machine may take.
const gapLimit = 5 * time.Second

// scene is a cluster under load, with a probe, to inflict faults on.
type scene struct {
	*cast
	load  *pressure
	probe *probe
	gaps  []gap
}

const probed = 6 // partitions of the probe's topic

func (s *cast) scene(t *testing.T, name string, partitions int32) *scene {
	t.Helper()
	s.topic(t, name+"-probe", probed, 3, "min.insync.replicas=2")
	x := &scene{cast: s, load: s.burden(t, name, partitions)}
	x.probe = s.watch(t, name+"-probe", probed)
	x.load.flows(t, testnode.Patience)
	return x
}

// strike inflicts a fault on a node, which is not able to lead then, and measures how long each partition could not be written.
func (x *scene) strike(t *testing.T, fault string, id int32, how func()) {
	t.Helper()
	x.full(t, x.load.topic+"-probe")
	x.full(t, x.load.topic)
	x.probe.begin(t, probed)
	how()
	without := func(p kadm.PartitionDetail) bool {
		return p.Leader >= 0 && p.Leader != id && !slices.Contains(p.ISR, id)
	}
	x.until(t, testnode.Patience, x.load.topic+"-probe", "others lead", without)
	x.until(t, testnode.Patience, x.load.topic, "others lead", without)
	g := gap{Fault: fault, MS: x.probe.gaps(t, probed, time.Now())}
	for _, d := range g.MS {
		g.Each, g.Most = append(g.Each, d.Milliseconds()), max(g.Most, d.Milliseconds())
	}
	x.gaps = append(x.gaps, g)
	t.Logf("%s of node %d: no write for %s", fault, id, words(g.MS))
	x.load.flows(t, testnode.Patience)
}

// kill, term and pause are faults; each leaves the node as it was.
func (x *scene) kill(t *testing.T, fault string, id int32) {
	t.Helper()
	x.strike(t, fault, id, func() { x.Node(id).Kill(t) })
	x.limit(t)
	x.Node(id).Start(t)
}

func (x *scene) term(t *testing.T, fault string, id int32) {
	t.Helper()
	x.strike(t, fault, id, func() { x.Node(id).Stop(t) })
	x.limit(t)
	x.Node(id).Start(t)
}

func (x *scene) pause(t *testing.T, fault string, id int32) {
	t.Helper()
	x.strike(t, fault, id, func() { x.Node(id).Pause(t) })
	x.Node(id).Signal(t, syscall.SIGCONT)
}

func (x *scene) limit(t *testing.T) {
	t.Helper()
	if g := x.gaps[len(x.gaps)-1]; time.Duration(g.Most)*time.Millisecond > gapLimit {
		t.Errorf("%s: no write for %d ms", g.Fault, g.Most)
	}
}

// quorumLeader is who leads the metadata quorum.
func (x *scene) quorumLeader(t *testing.T) int32 {
	t.Helper()
	return x.WaitLeader(t, testnode.Patience, -1).Leader
}

// quickFaults are C1, C3 and C9 in their short form: each kind of fault once, under load.
func quickFaults(t *testing.T, s *cast) {
	x := s.scene(t, "strikes", 4)
	x.kill(t, "kill -9 of the quorum's leader", x.quorumLeader(t))
	x.kill(t, "kill -9 of another node", s.brother(t, 0))
	x.term(t, "SIGTERM of the quorum's leader", x.quorumLeader(t))
	x.term(t, "SIGTERM of another node", s.brother(t, 0))
	x.pause(t, "SIGSTOP of another node", s.brother(t, 0))
	x.probe.stop()
	x.load.end(t)
	figures := map[string]any{}
	for i, g := range x.gaps {
		figures[fmt.Sprintf("%d %s", i+1, g.Fault)] = g
	}
	report(t, "faults on three nodes", figures)
}
