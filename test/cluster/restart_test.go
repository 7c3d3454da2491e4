package cluster

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"weir/test/testnode"
)

// backLimit is how long a node that was killed and started at once may be out of the ISR: 1.5 s on an idle machine, and no
// session (9 s) is waited for on a busy one.
const backLimit = 5 * time.Second

// TestKilledAndBack: a broker that is killed and starts again at once does not wait for the end of its old session, whatever
// the node is: its new process knows that the old one has ended, and says so.
func TestKilledAndBack(t *testing.T) {
	t.Parallel()
	s := hire(t, testnode.ClusterOptions{
		Members: append(testnode.Nodes(3, testnode.Member{}), testnode.Member{Roles: testnode.BrokerOnly}),
		Props:   map[string]string{"broker.session.timeout.ms": "9000", "broker.heartbeat.interval.ms": "2000"},
	})
	s.Start(t)
	s.place(t, "all", [][]int32{{1, 2, 3, 4}, {2, 3, 4, 1}, {3, 4, 1, 2}, {4, 1, 2, 3}})
	took := map[string][]time.Duration{}
	for range testnode.Rounds(1, 5) {
		leader := s.WaitLeader(t, testnode.Patience, -1).Leader
		for _, x := range []struct {
			kind string
			id   int32
		}{{"a broker alone", 4}, {"a follower of the quorum", leader%3 + 1}, {"the active controller", leader}} {
			took[x.kind] = append(took[x.kind], s.killedAndBack(t, x.kind, x.id))
			s.full(t, "all")
		}
	}
	report(t, "kill -9 and back in the ISR", map[string]any{"took": fmt.Sprint(took)})
}

// killedAndBack kills a node, starts it at once, and returns the time until it is in sync everywhere, as it sees it itself.
func (s *cast) killedAndBack(t *testing.T, kind string, id int32) time.Duration {
	t.Helper()
	n := s.Node(id)
	n.Kill(t)
	since, began := mark(t, n), time.Now()
	n.Launch(t)
	says(t, n, since, "registered with the controller")
	n.WaitReady(t)
	admin := kadm.NewClient(n.Client(t, prompt...))
	testnode.Until(t, testnode.Patience, "back in the ISR", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		topics, err := admin.ListTopics(ctx, "all")
		if err != nil {
			return err
		}
		list := topics["all"].Partitions.Sorted()
		if i := slices.IndexFunc(list, func(p kadm.PartitionDetail) bool { return len(p.ISR) < 4 }); len(list) < 4 || i >= 0 {
			return fmt.Errorf("%+v", list)
		}
		return nil
	})
	took := time.Since(began).Round(time.Millisecond)
	t.Logf("%s, node %d: back after %v", kind, id, took)
	if took > backLimit {
		t.Errorf("%s, node %d: back in the ISR only after %v", kind, id, took)
	}
	return took
}
