package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/test/testnode"
)

// TestControllersApart runs what needs controllers apart from the brokers, or a network that can be cut, on one cluster:
// nodes 1 to 3 are controllers, 4 to 6 brokers.
func TestControllersApart(t *testing.T) {
	t.Parallel()
	s := hire(t, testnode.ClusterOptions{
		Members: append(testnode.Nodes(3, testnode.Member{Roles: testnode.ControllerOnly}), testnode.Nodes(3, testnode.Member{Roles: testnode.BrokerOnly})...),
		Props:   map[string]string{"offsets.topic.replication.factor": "3"},
		Wired:   true,
	})
	s.Start(t)
	for _, x := range []struct {
		name string
		run  func(*testing.T, *cast)
	}{
		{"B3 what the ISR does not hold is not shown", notShown},
		{"B3 the latest offset is not known at first", offsetNotKnown},
		{"B4 a laggard leaves the ISR and returns", laggard},
		{"C2 two of three brokers lost", twoLost},
		{"C7 a leader cut off from everybody", cutOff},
		{"C7 a follower cut off from its leader", cutPair},
		{"C7 the quorum's leader cut off", cutController},
	} {
		if !t.Run(x.name, func(t *testing.T) { x.run(t, s) }) {
			s.Wires.HealAll() // what one has left behind is not for the next
			for _, n := range s.Nodes {
				if !n.Running() {
					n.Start(t)
				}
			}
		}
	}
}

// latest asks a partition's leader for its latest offset, as consumers do.
func (s *cast) latest(ctx context.Context, node int32, topic string) (int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	rt, rp := kmsg.NewListOffsetsRequestTopic(), kmsg.NewListOffsetsRequestTopicPartition()
	rt.Topic, rp.Timestamp = topic, -1
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	raw, err := s.client.Broker(int(node)).Request(ctx, req)
	if err != nil {
		return -1, err
	}
	p := raw.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
	return p.Offset, kerr.ErrorForCode(p.ErrorCode)
}

// B3: a record that one ISR member lacks is not shown.
func notShown(t *testing.T, s *cast) {
	s.place(t, "shown", [][]int32{{4, 5, 6}})
	s.must(t, "shown", "a")
	s.Wires.Cut(4, 6)
	s.must(t, "shown", "b", acksOne...)
	if at, err := s.latest(t.Context(), 4, "shown"); err != nil || at != 1 {
		t.Errorf("the latest offset is %d, %v while node 6 lacks a record", at, err)
	}
	if got := s.read(t, "shown"); !slices.Equal(got, []string{"a"}) {
		t.Errorf("consumers read %q", got)
	}
	s.Wires.Heal(4, 6)
	testnode.Until(t, testnode.Patience, "the record is shown", func() error {
		if at, err := s.latest(t.Context(), 4, "shown"); err != nil || at != 2 {
			return fmt.Errorf("the latest offset is %d, %w", at, err)
		}
		return nil
	})
	s.full(t, "shown")
}

// B3, KIP-207: a new leader that does not know yet how far is committed says so, and never names an older offset.
func offsetNotKnown(t *testing.T, s *cast) {
	s.must(t, "shown", "c")
	// Node 6 lives and is in the ISR, and fetches from nobody.
	s.Wires.Cut(4, 6)
	s.Wires.Cut(5, 6)
	s.must(t, "shown", "d", acksOne...)
	testnode.Until(t, testnode.Patience, "node 5 has the record", func() error {
		four, err4 := batches(s.Node(4), "shown", 0)
		five, err5 := batches(s.Node(5), "shown", 0)
		if err := errors.Join(err4, err5); err != nil || len(four) != len(five) {
			return fmt.Errorf("%d and %d bytes, %w", len(four), len(five), err)
		}
		return nil
	})
	s.Node(4).Kill(t)
	testnode.Until(t, testnode.Patience, "node 5 leads", func() error {
		p, err := s.told(t.Context(), 5, "shown")
		if err != nil || p.Leader != 5 {
			return fmt.Errorf("node %d, %w", p.Leader, err)
		}
		return nil
	})
	unknown := 0
	testnode.Until(t, testnode.Patience, "the latest offset", func() error {
		at, err := s.latest(t.Context(), 5, "shown")
		switch {
		case errors.Is(err, kerr.OffsetNotAvailable):
			unknown++
		case err == nil && at < 3:
			t.Fatalf("the latest offset went back to %d", at)
		case err == nil && at == 4:
			return nil
		}
		return fmt.Errorf("%d, %w", at, err)
	})
	if unknown == 0 {
		t.Error("the new leader never said that it does not know the latest offset")
	}
	s.Wires.HealAll()
	s.back(t, 4, "shown")
}

// B4: who does not catch up within replica.lag.time.max.ms leaves the ISR, which the metadata, a metric and a line in the
// log tell; and it returns.
func laggard(t *testing.T, s *cast) {
	s.place(t, "laggard", [][]int32{{4, 5, 6}})
	shrinks, expands := "kafka_server_replicamanager_isrshrinks_total", "kafka_server_replicamanager_isrexpands_total"
	since, before := mark(t, s.Node(4)), s.metric(t, 4, shrinks)
	s.must(t, "laggard", "held by all")
	s.Wires.Cut(4, 6)
	s.must(t, "laggard", "lacking", acksOne...)
	s.until(t, testnode.Patience, "laggard", "the laggard is not in the ISR", func(p kadm.PartitionDetail) bool { return !slices.Contains(p.ISR, 6) })
	if s.fenced(t)[6] {
		t.Error("the laggard, which the controllers reach, is fenced")
	}
	says(t, s.Node(4), since, "ISR changed", "laggard-0", "6 stands at 1")
	if now := s.metric(t, 4, shrinks); now <= before {
		t.Errorf("the metric of shrinks stays at %v", now)
	}
	since, before = mark(t, s.Node(4)), s.metric(t, 4, expands)
	s.Wires.Heal(4, 6)
	s.full(t, "laggard")
	says(t, s.Node(4), since, "ISR changed", "laggard-0", "6 has caught up")
	if now := s.metric(t, 4, expands); now <= before {
		t.Errorf("the metric of expansions stays at %v", now)
	}
}

// C2: RF 3 with min.insync.replicas=2 is writable through one loss and readable through two; with min.insync.replicas=1
// writable through two.
func twoLost(t *testing.T, s *cast) {
	s.place(t, "two", [][]int32{{4, 5, 6}}, "min.insync.replicas=2")
	s.place(t, "one", [][]int32{{4, 5, 6}})
	s.must(t, "two", "a")
	s.must(t, "one", "a")
	s.Node(4).Kill(t)
	s.must(t, "two", "b")
	s.must(t, "one", "b")
	s.Node(5).Kill(t)
	for _, topic := range []string{"two", "one"} {
		s.until(t, testnode.Patience, topic, "node 6 leads alone", func(p kadm.PartitionDetail) bool { return p.Leader == 6 && len(p.ISR) == 1 })
	}
	s.must(t, "one", "c")
	if got := s.read(t, "one"); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("min.insync.replicas=1: read %q", got)
	}
	if got := s.read(t, "two"); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("min.insync.replicas=2: read %q", got)
	}
	if code, err := s.direct(t, 6, "two", "c", -1, 2000); err != nil || code != kerr.NotEnoughReplicas.Code {
		t.Errorf("acks=all with one in sync of two needed: %v, %v", kerr.ErrorForCode(code), err)
	}
	s.Node(4).Launch(t)
	s.back(t, 5, "one", "two")
	s.Node(4).WaitReady(t)
	s.must(t, "two", "c")
	s.equal(t, "one", 1)
	s.equal(t, "two", 1)
}

// isolate cuts a broker off from every other node.
func isolate(s *cast, id int32) {
	for _, n := range s.Nodes {
		if n.ID != id {
			s.Wires.Cut(id, n.ID)
		}
	}
}

// C7: a leader that only its clients reach cannot commit with acks=all; another leads; when it is back it gives up what only it
// took.
func cutOff(t *testing.T, s *cast) {
	s.place(t, "split", [][]int32{{4, 5, 6}}, "min.insync.replicas=2")
	s.must(t, "split", "a")
	isolate(s, 4)
	if code, err := s.direct(t, 4, "split", "lost one", 1, 1000); err != nil || code != 0 {
		t.Errorf("acks=1 to the leader that is cut off: %v, %v", kerr.ErrorForCode(code), err)
	}
	if code, err := s.direct(t, 4, "split", "lost all", -1, 1000); err != nil || code == 0 {
		t.Errorf("acks=all to the leader that is cut off: %v, %v", kerr.ErrorForCode(code), err)
	}
	testnode.Until(t, testnode.Patience, "another leads", func() error {
		five, err := s.told(t.Context(), 5, "split")
		if err != nil || five.Leader == 4 {
			return fmt.Errorf("node 5 says node %d, %w", five.Leader, err)
		}
		return nil
	})
	four, err := s.told(t.Context(), 4, "split")
	five, err5 := s.told(t.Context(), 5, "split")
	if err := errors.Join(err, err5); err != nil || four.LeaderEpoch >= five.LeaderEpoch {
		t.Errorf("the leader cut off has epoch %d, the new one %d, %v", four.LeaderEpoch, five.LeaderEpoch, err)
	}
	if code, err := s.direct(t, five.Leader, "split", "b", -1, 5000); err != nil || code != 0 {
		t.Errorf("acks=all to the new leader: %v, %v", kerr.ErrorForCode(code), err)
	}
	if at, err := s.latest(t.Context(), 4, "split"); err == nil && at > 1 {
		t.Errorf("the leader cut off shows up to offset %d", at)
	}
	s.Wires.HealAll()
	s.full(t, "split")
	if got := s.read(t, "split"); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("the topic holds %q", got)
	}
	s.equal(t, "split", 1)
}

// told is what one node says of a topic's partition 0.
func (s *cast) told(ctx context.Context, node int32, topic string) (kmsg.MetadataResponseTopicPartition, error) {
	req := kmsg.NewPtrMetadataRequest()
	rt := kmsg.NewMetadataRequestTopic()
	rt.Topic = kmsg.StringPtr(topic)
	req.Topics = append(req.Topics, rt)
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	raw, err := s.client.Broker(int(node)).Request(ctx, req)
	if err != nil {
		return kmsg.MetadataResponseTopicPartition{}, err
	}
	topics := raw.(*kmsg.MetadataResponse).Topics
	if len(topics) != 1 || len(topics[0].Partitions) != 1 {
		return kmsg.MetadataResponseTopicPartition{}, fmt.Errorf("node %d tells %d topics: %w", node, len(topics), kerr.ErrorForCode(topics[0].ErrorCode))
	}
	return topics[0].Partitions[0], nil
}

// A follower that only its leader cannot be reached from leaves the ISR, writes go on, and it returns.
func cutPair(t *testing.T, s *cast) {
	l := s.burden(t, "pairs", 3)
	l.flows(t, testnode.Patience)
	s.Wires.Cut(4, 5)
	s.until(t, testnode.Patience, "pairs", "the pair is not in one ISR", func(p kadm.PartitionDetail) bool {
		return p.Leader == 6 || slices.Contains(p.ISR, 4) != slices.Contains(p.ISR, 5)
	})
	l.flows(t, testnode.Patience)
	s.Wires.Heal(4, 5)
	l.end(t)
}

// C7: one active controller an epoch. A leader of the quorum that is cut off is replaced, and follows when it is back.
func cutController(t *testing.T, s *cast) {
	old := s.WaitLeader(t, testnode.Patience, -1)
	isolate(s, old.Leader)
	fresh := s.elsewhere(t, old.Leader)
	if fresh.Epoch <= old.Epoch {
		t.Errorf("epoch %d after epoch %d", fresh.Epoch, old.Epoch)
	}
	s.topic(t, "while-cut", 1, 3)
	s.Wires.HealAll()
	testnode.Until(t, testnode.Patience, "one leader for all", func() error {
		x, err := s.Quorum()
		if err == nil && (x.Leader == old.Leader && x.Epoch <= old.Epoch || x.Voters[old.Leader] < fresh.HighWatermark) {
			err = fmt.Errorf("%+v", x)
		}
		return err
	})
	s.must(t, "while-cut", "x")
	for _, n := range s.Controllers() {
		if text := n.LogText(t); strings.Contains(text, "BUG") || strings.Contains(text, "panic") {
			t.Errorf("node %d:\n%s", n.ID, n.LogTail(20))
		}
	}
}

// elsewhere waits until the other controllers have a leader among them.
func (s *cast) elsewhere(t *testing.T, but int32) testnode.QuorumState {
	t.Helper()
	rest := &testnode.Cluster{}
	for _, n := range s.Controllers() {
		if n.ID != but {
			rest.Nodes = append(rest.Nodes, n)
		}
	}
	return rest.WaitLeader(t, testnode.Patience, but)
}
