package interop

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"weir/test/testnode"
)

// One voter is Apache Kafka's, two are ours: they elect each other, follow each
// other's log and serve each other's brokers, whoever leads. The leader is killed
// until nodes of both systems have led (short form: once).
func TestMixedQuorum(t *testing.T) {
	t.Parallel()
	testnode.Oracle(t)
	c := testnode.NewCluster(t, testnode.ClusterOptions{
		Members: []testnode.Member{{System: testnode.Apache}, {}, {}},
		Props:   map[string]string{"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"},
	})
	c.Start(t)
	led := map[testnode.System]bool{}
	for round := 0; round < testnode.Rounds(1, 12); round++ {
		old := c.WaitLeader(t, testnode.Patience, -1)
		led[c.Node(old.Leader).System()] = true
		if led[testnode.Ours] && led[testnode.Apache] {
			break
		}
		everyBrokerCreates(t, c, fmt.Sprintf("round-%d", round))
		followed(t, c)
		c.Node(old.Leader).Kill(t)
		c.WaitLeader(t, testnode.Patience, old.Leader)
		everyBrokerCreates(t, c, fmt.Sprintf("round-%d-without-%d", round, old.Leader))
		c.Node(old.Leader).Start(t)
	}
	if testnode.Full() && len(led) < 2 {
		t.Errorf("only %v led", led)
	}
	everyBrokerCreates(t, c, "end")
	followed(t, c)
}

// Brokers of both systems live under controllers of either.
func TestMixedRoles(t *testing.T) {
	t.Parallel()
	testnode.Oracle(t)
	for _, x := range []struct{ controller, broker testnode.System }{{testnode.Ours, testnode.Apache}, {testnode.Apache, testnode.Ours}} {
		t.Run(fmt.Sprintf("%s controller, %s broker", x.controller, x.broker), func(t *testing.T) {
			c := testnode.NewCluster(t, testnode.ClusterOptions{
				Members: []testnode.Member{{System: x.controller, Roles: testnode.ControllerOnly}, {System: x.broker, Roles: testnode.BrokerOnly}},
				Dynamic: true,
			})
			c.Start(t)
			everyBrokerCreates(t, c, "a")
			followed(t, c)
			c.Node(2).Restart(t) // a controlled shutdown, and a registration with the epoch of a clean one
			everyBrokerCreates(t, c, "b")
		})
	}
}

// everyBrokerCreates has each broker that runs create a topic, which it forwards to the active controller.
func everyBrokerCreates(t *testing.T, c *testnode.Cluster, name string) {
	t.Helper()
	for _, n := range c.Nodes {
		if !n.Running() || n.Roles() == testnode.ControllerOnly {
			continue
		}
		topic := fmt.Sprintf("%s-by-%d", name, n.ID)
		admin := kadm.NewClient(n.Client(t))
		testnode.Until(t, testnode.Patience, fmt.Sprintf("node %d creates %s", n.ID, topic), func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			_, err := admin.CreateTopic(ctx, 2, 1, nil, topic)
			return err
		})
	}
}

// followed waits until every voter that runs, and every broker, has the log up to what is committed now.
func followed(t *testing.T, c *testnode.Cluster) {
	t.Helper()
	want, err := c.Quorum()
	if err != nil {
		t.Fatal(err)
	}
	testnode.Until(t, testnode.Patience, "all follow", func() error {
		s, err := c.Quorum()
		if err != nil {
			return err
		}
		for _, n := range c.Nodes {
			end, known := s.Voters[n.ID]
			if !known {
				end, known = s.Observers[n.ID]
			}
			if n.Running() && (!known || end < want.HighWatermark) {
				return fmt.Errorf("the log of node %d ends at %d, committed was %d", n.ID, end, want.HighWatermark)
			}
		}
		return nil
	})
}

// A controller of one system joins the voters of a quorum that the other leads (KIP-853).
func TestMixedVotersJoin(t *testing.T) {
	t.Parallel()
	testnode.Oracle(t)
	for _, x := range []struct{ first, joins testnode.System }{{testnode.Ours, testnode.Apache}, {testnode.Apache, testnode.Ours}} {
		t.Run(fmt.Sprintf("%s joins %s", x.joins, x.first), func(t *testing.T) {
			c := testnode.NewCluster(t, testnode.ClusterOptions{
				Members: []testnode.Member{
					{System: x.first, First: true},
					{System: x.joins, Roles: testnode.ControllerOnly, Props: map[string]string{"controller.quorum.auto.join.enable": "true"}},
				},
				Dynamic: true,
			})
			c.Start(t)
			testnode.Until(t, testnode.Patience, "two voters", func() error {
				s, err := c.Quorum()
				if err == nil && len(s.Voters) != 2 {
					err = fmt.Errorf("the voters are %v, observers %v", s.Voters, s.Observers)
				}
				return err
			})
			everyBrokerCreates(t, c, "with-two")
			followed(t, c)
		})
	}
}
