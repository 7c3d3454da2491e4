package cluster

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"weir/test/testnode"
)

// go test ./test/cluster -run TestFaultRounds -faults SIGSTOP -rounds 10
var (
	faultKinds  = flag.String("faults", "", "TestFaultRounds: only the kinds that match")
	faultRounds = flag.Int("rounds", 0, "TestFaultRounds: how many rounds; 0: as always")
)

// tally counts faults and the worst gap of each kind.
type tally struct {
	Rounds int   `json:"rounds"`
	Gaps   []int `json:"gaps_ms"`
}

// TestFaultRounds mixes all faults under load, one after the other, on three combined nodes whose network and disks can be made
// to fail. After each round all is in sync again and nothing acked is lost, doubled or out of order; replicas are equal.
// Which node is struck, and in which order, is drawn anew in each run; the seed is logged.
func TestFaultRounds(t *testing.T) {
	t.Parallel()
	s := hire(t, testnode.ClusterOptions{
		Members: testnode.Nodes(3, testnode.Member{}), Wired: true, Faulty: true,
		Props: map[string]string{"offsets.topic.replication.factor": "3"},
	})
	s.Start(t)
	x := s.scene(t, "rounds", 6)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	dice := rand.New(rand.NewPCG(seed, 0))
	var kinds []string
	for kind := range plagues {
		if regexp.MustCompile(*faultKinds).MatchString(kind) {
			kinds = append(kinds, kind)
		}
	}
	slices.Sort(kinds)
	dice.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	counts, began := map[string]*tally{}, time.Now()
	for round := range cmp.Or(*faultRounds, testnode.Rounds(2, 30)) {
		kind, id := kinds[round%len(kinds)], int32(1+dice.IntN(3))
		x.full(t, "rounds")
		x.full(t, "rounds-probe")
		x.probe.begin(t, probed)
		struck := time.Now()
		plagues[kind](t, x, id)
		x.load.flows(t, 60*time.Second)
		x.load.settle(t)
		worst := slices.Max(x.probe.gaps(t, probed, time.Now()))
		t.Logf("round %d: %s on node %d: no write for %v, all well after %v", round+1, kind, id, worst, time.Since(struck).Round(time.Millisecond))
		if counts[kind] == nil {
			counts[kind] = &tally{}
		}
		counts[kind].Rounds++
		counts[kind].Gaps = append(counts[kind].Gaps, int(worst.Milliseconds()))
		if t.Failed() {
			break
		}
	}
	x.probe.stop()
	x.load.end(t)
	figures := map[string]any{"acked": x.load.numAcked(), "by fault": counts}
	t.Log(figures["acked"], "records acked")
	if testnode.Full() && *faultKinds == "" {
		testnode.WriteResult(t, "faults", time.Since(began), figures)
	}
}

// plagues are what befalls a node, each to its end: afterwards the node runs and its network and disk work.
var plagues = map[string]func(t *testing.T, x *scene, id int32){
	"kill -9": func(t *testing.T, x *scene, id int32) {
		x.Node(id).Kill(t)
		x.load.flows(t, testnode.Patience)
		x.Node(id).Start(t)
	},
	"kill -9 and back at once": func(t *testing.T, x *scene, id int32) {
		x.Node(id).Kill(t)
		x.Node(id).Start(t)
	},
	"kill -9 of the quorum's leader": func(t *testing.T, x *scene, _ int32) {
		id := x.quorumLeader(t)
		x.Node(id).Kill(t)
		x.load.flows(t, testnode.Patience)
		x.Node(id).Start(t)
	},
	"SIGTERM": func(t *testing.T, x *scene, id int32) {
		x.Node(id).Stop(t)
		x.load.flows(t, testnode.Patience)
		x.Node(id).Start(t)
	},
	"SIGSTOP, fenced, SIGCONT": func(t *testing.T, x *scene, id int32) {
		x.Node(id).Pause(t)
		x.without(t, id)
		x.Node(id).Signal(t, syscall.SIGCONT)
	},
	"SIGSTOP and kill -9": func(t *testing.T, x *scene, id int32) {
		x.Node(id).Pause(t)
		x.Node(id).Kill(t)
		x.load.flows(t, testnode.Patience)
		x.Node(id).Start(t)
	},
	"cut off from all": func(t *testing.T, x *scene, id int32) {
		isolate(x.cast, id)
		x.Wires.Cut(id, testnode.Clients)
		x.without(t, id)
		x.load.flows(t, testnode.Patience)
		x.Wires.HealAll()
	},
	"cut between two": func(t *testing.T, x *scene, id int32) {
		x.Wires.Cut(id, id%3+1)
		x.load.flows(t, testnode.Patience)
		x.Wires.HealAll()
	},
	"an empty disk": func(t *testing.T, x *scene, id int32) {
		x.Node(id).Kill(t)
		x.load.flows(t, testnode.Patience)
		x.Node(id).Wipe(t)
		x.Node(id).Start(t)
	},
	"a slow disk": func(t *testing.T, x *scene, id int32) {
		x.Node(id).Faults(t, "sync * 300ms", "write *.log 20ms")
		x.load.flows(t, 60*time.Second)
		x.load.flows(t, 60*time.Second)
		x.Node(id).Faults(t)
	},
	"a failing disk": func(t *testing.T, x *scene, id int32) {
		since := mark(t, x.Node(id))
		x.Node(id).Faults(t, "write *.log EIO")
		says(t, x.Node(id), since, "offline") // its only directory: the node ends, as Apache Kafka's does
		testnode.Until(t, testnode.Patience, "the node ends", func() error {
			if x.Node(id).Running() {
				return fmt.Errorf("node %d runs", id)
			}
			return nil
		})
		x.load.flows(t, testnode.Patience)
		x.Node(id).Faults(t)
		x.Node(id).Start(t)
	},
}

// without waits until a node leads nothing and is in no ISR, as the others see it.
func (x *scene) without(t *testing.T, id int32) {
	t.Helper()
	x.until(t, 60*time.Second, x.load.topic, fmt.Sprintf("without node %d", id), func(p kadm.PartitionDetail) bool {
		return p.Leader >= 0 && p.Leader != id && !slices.Contains(p.ISR, id)
	})
}
