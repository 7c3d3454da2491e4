package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"weir/test/testnode"
)

// makeTopic creates a topic over any broker of the cluster.
func makeTopic(t *testing.T, c *testnode.Cluster, name string, partitions int32, replicas int16) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testnode.Patience)
	defer cancel()
	if _, err := kadm.NewClient(c.Client(t)).CreateTopic(ctx, partitions, replicas, nil, name); err != nil {
		t.Fatalf("create topic %s: %v", name, err)
	}
}

// knows waits until a broker lists the topics.
func knows(t *testing.T, n *testnode.Node, topics ...string) {
	t.Helper()
	admin := n.Admin(t)
	testnode.Until(t, testnode.Patience, fmt.Sprintf("node %d knows %v", n.ID, topics), func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		list, err := admin.ListTopics(ctx, topics...)
		if err != nil {
			return err
		}
		return list.Error()
	})
}

// C3(d): when the leader of the quorum is killed, a successor leads within half a
// second; the dead node comes back as a follower and hears what it has missed.
func TestQuorumLeaderKilled(t *testing.T) {
	t.Parallel()
	for name, dynamic := range map[string]bool{"static voters": false, "dynamic voters": true} {
		t.Run(name, func(t *testing.T) {
			c := testnode.NewCluster(t, testnode.ClusterOptions{
				Members: append(testnode.Nodes(3, testnode.Member{Roles: testnode.ControllerOnly}), testnode.Member{Roles: testnode.BrokerOnly}),
				Dynamic: dynamic,
			})
			c.Start(t)
			makeTopic(t, c, "before", 1, 1)
			var took []time.Duration
			for round := range testnode.Rounds(2, 6) {
				old := c.WaitLeader(t, testnode.Patience, -1)
				killed := time.Now()
				c.Node(old.Leader).Kill(t)
				fresh := c.WaitLeader(t, testnode.Patience, old.Leader)
				took = append(took, time.Since(killed).Round(time.Millisecond))
				if fresh.Epoch <= old.Epoch {
					t.Errorf("epoch %d after epoch %d", fresh.Epoch, old.Epoch)
				}
				topic := "after-" + strconv.Itoa(round)
				makeTopic(t, c, topic, 1, 1)
				c.Node(old.Leader).Start(t)
				testnode.Until(t, testnode.Patience, "the dead controller catches up", func() error {
					s, err := c.Quorum()
					if err != nil {
						return err
					}
					if end := s.Voters[old.Leader]; end < fresh.HighWatermark {
						return fmt.Errorf("its log ends at %d, committed is %d", end, s.HighWatermark)
					}
					return nil
				})
				knows(t, c.Node(4), "before", topic)
			}
			t.Logf("a new leader after %v", took)
			for _, d := range took {
				if d > leaderLimit {
					t.Errorf("a new leader only after %v", d)
				}
			}
		})
	}
}

// leaderLimit is the promise of half a second, with room for a machine that runs
// other tests meanwhile; the timeouts that an election would take without a proof
// that the leader is gone begin at 2 s.
const leaderLimit = 1500 * time.Millisecond

// A leader that stops in good order hands on, and nobody waits for a timeout.
func TestQuorumLeaderStops(t *testing.T) {
	t.Parallel()
	c := testnode.NewCluster(t, testnode.ClusterOptions{Members: testnode.Nodes(3, testnode.Member{})})
	c.Start(t)
	makeTopic(t, c, "spread", 6, 3)
	old := c.WaitLeader(t, testnode.Patience, -1)
	c.Node(old.Leader).Stop(t)
	begun := time.Now()
	fresh := c.WaitLeader(t, testnode.Patience, old.Leader)
	if took := time.Since(begun); took > leaderLimit {
		t.Errorf("a new leader only %v after the old one had gone", took)
	}
	// Its leaderships were moved first: no partition lacks a leader.
	admin := kadm.NewClient(c.Client(t))
	testnode.Until(t, testnode.Patience, "all partitions are led by the others", func() error {
		topics, err := admin.ListTopics(t.Context(), "spread")
		if err != nil {
			return err
		}
		for _, p := range topics["spread"].Partitions {
			if p.Leader < 0 || p.Leader == old.Leader {
				return fmt.Errorf("partition %d is led by %d", p.Partition, p.Leader)
			}
		}
		return nil
	})
	c.Node(old.Leader).Start(t)
	if s := c.WaitLeader(t, testnode.Patience, -1); s.Leader != fresh.Leader {
		t.Errorf("the return of node %d took the leadership from node %d to %d", old.Leader, fresh.Leader, s.Leader)
	}
}

// An observer, and a voter with an empty log, catch up by a snapshot when the
// leader no longer has the records.
func TestCatchUpBySnapshot(t *testing.T) {
	t.Parallel()
	c := testnode.NewCluster(t, testnode.ClusterOptions{
		Members: append(testnode.Nodes(3, testnode.Member{Roles: testnode.ControllerOnly}), testnode.Nodes(2, testnode.Member{Roles: testnode.BrokerOnly})...),
		Props: map[string]string{
			"metadata.log.max.record.bytes.between.snapshots": "2000", "metadata.max.retention.bytes": "3000",
			"internal.metadata.log.segment.bytes": "2000", "internal.metadata.delete.delay.millis": "100",
		},
	})
	late, voter := c.Node(5), c.Node(3)
	for _, n := range c.Nodes {
		if n != late && n != voter {
			n.Launch(t)
		}
	}
	c.Node(4).WaitReady(t)
	for i := range 12 {
		makeTopic(t, c, fmt.Sprintf("topic-%02d", i), 4, 1)
	}
	// Retention runs each minute, and at a start: so the leaders begin anew with a short log.
	for _, id := range []int32{1, 2} {
		c.Node(id).Stop(t)
		c.Node(id).Start(t)
	}
	c.WaitLeader(t, testnode.Patience, -1)
	voter.Start(t)
	late.Start(t)
	knows(t, late, "topic-00", "topic-11")
	for _, n := range []*testnode.Node{late, voter} {
		testnode.Until(t, testnode.Patience, fmt.Sprintf("node %d fetches a snapshot", n.ID), func() error {
			if !strings.Contains(n.LogText(t), "fetching a snapshot") {
				return fmt.Errorf("its log does not say so:\n%s", n.LogTail(10))
			}
			return nil
		})
	}
	testnode.Until(t, testnode.Patience, "the voter has caught up", func() error {
		s, err := c.Quorum()
		if err == nil && s.Voters[3] < s.HighWatermark-10 {
			err = fmt.Errorf("its log ends at %d, committed is %d", s.Voters[3], s.HighWatermark)
		}
		return err
	})
}

// A broker without a controller waits, says what it tries, and comes up when there is one.
func TestBrokerWaitsForControllers(t *testing.T) {
	t.Parallel()
	c := testnode.NewCluster(t, testnode.ClusterOptions{Members: []testnode.Member{{Roles: testnode.ControllerOnly}, {Roles: testnode.BrokerOnly}}, Dynamic: true})
	broker := c.Node(2)
	broker.Launch(t)
	testnode.Until(t, testnode.Patience, "the broker says what it waits for", func() error {
		if text := broker.LogText(t); !strings.Contains(text, "waiting for a leader of the metadata quorum") || !strings.Contains(text, c.Node(1).Controller) {
			return fmt.Errorf("its log:\n%s", text)
		}
		return nil
	})
	c.Node(1).Start(t)
	broker.WaitReady(t)
	makeTopic(t, c, "a", 1, 1)
	client := c.Client(t, kgo.DefaultProduceTopic("a"))
	if err := client.ProduceSync(t.Context(), kgo.StringRecord("x")).FirstErr(); err != nil {
		t.Error(err)
	}
}

// What may not join is refused with both values, and the cluster goes on.
func TestRefusedMembers(t *testing.T) {
	t.Parallel()
	c := testnode.NewCluster(t, testnode.ClusterOptions{Members: []testnode.Member{{}, {Roles: testnode.BrokerOnly}}})
	c.Start(t)
	servers := "1@" + c.Node(1).Controller
	for name, x := range map[string]struct {
		cluster string
		id      int32
		copied  bool     // a copy of the directory of a node that runs
		want    []string // the address of the newcomer beside it where it matters
	}{
		"another cluster":     {"AAAAAAAAAAAAAAAAAAAABA", 7, false, []string{testnode.ClusterID, "AAAAAAAAAAAAAAAAAAAABA", "cluster"}},
		"an id that is alive": {testnode.ClusterID, 2, false, []string{"node id 2", "in use", c.Node(2).Addr}},
		"a copied directory":  {testnode.ClusterID, 2, true, []string{"node id 2", "in use", c.Node(2).Addr}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := testnode.TempDir(t)
			addr := "127.0.0.1:" + strconv.Itoa(testnode.FreePort(t))
			props := filepath.Join(dir, "node.properties")
			write(t, props, fmt.Sprintf(`process.roles=broker
node.id=%d
listeners=PLAINTEXT://%s
controller.listener.names=CONTROLLER
controller.quorum.voters=%s
log.dirs=%s/data
`, x.id, addr, servers, dir))
			if x.copied {
				if err := os.CopyFS(filepath.Join(dir, "data"), os.DirFS(c.Node(2).LogDirs[0])); err != nil {
					t.Fatal(err)
				}
			} else if out := testnode.Weir(t, "", "storage", "format", "-t", x.cluster, "-c", props); out.Code != 0 {
				t.Fatal(out.Stderr)
			}
			if x.cluster == testnode.ClusterID {
				x.want = append(x.want, addr)
			}
			refused(t, serve(t, props), x.want...)
		})
	}
	makeTopic(t, c, "goes-on", 2, 2)
}
