package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/test/testnode"
)

// TestGrowing runs what a cluster promises that begins with one node and grows to six.
func TestGrowing(t *testing.T) {
	t.Parallel()
	members := []testnode.Member{{Props: map[string]string{"broker.rack": "a"}}}
	for _, rack := range []string{"a", "b", "b", "c", "c"} {
		members = append(members, testnode.Member{Roles: testnode.BrokerOnly, Props: map[string]string{"broker.rack": rack}})
	}
	members[1].LogDirs = 2
	s := hire(t, testnode.ClusterOptions{
		Members: members, Props: map[string]string{"offsets.topic.num.partitions": "4"}, Unset: []string{"offsets.topic.replication.factor"},
	})
	s.Node(1).Start(t)
	s.topic(t, "first", 1, 1)
	for _, x := range []struct {
		name string
		run  func(*testing.T, *cast)
	}{
		{"D1 the offsets topic is made on first use", madeOnFirstUse},
		{"A4 brokers join", join},
		{"D3 internal topics raise their factor", raised},
		{"A2 replicas are spread evenly", spread},
		{"A3 racks and cordoned directories", racks},
		{"E1 reassignment", reassign},
		{"E1 between directories", betweenDirs},
		{"E1 a dead target, cancelled", deadTarget},
		{"E1 kafka-reassign-partitions", reassignTool},
	} {
		t.Run(x.name, func(t *testing.T) { x.run(t, s) })
	}
}

// D1: without offsets.topic.replication.factor in the file as many replicas as there are brokers, up to three.
func madeOnFirstUse(t *testing.T, s *cast) {
	s.commitSome(t)
	list, err := s.look(t.Context(), "__consumer_offsets")
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 4 || len(list[0].Replicas) != 1 {
		t.Errorf("%d partitions, the first on %v", len(list), list[0].Replicas)
	}
	configs, err := s.admin.DescribeTopicConfigs(t.Context(), "__consumer_offsets")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range configs[0].Configs {
		if c.Key == "cleanup.policy" && c.MaybeValue() != "compact" {
			t.Errorf("cleanup.policy=%s", c.MaybeValue())
		}
	}
}

// commitSome commits an offset of a group.
func (s *cast) commitSome(t *testing.T) {
	t.Helper()
	s.must(t, "first", "x")
	offsets := kadm.Offsets{}
	offsets.Add(kadm.Offset{Topic: "first", Partition: 0, At: 1, LeaderEpoch: -1})
	testnode.Until(t, testnode.Patience, "a commit", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		res, err := s.admin.CommitOffsets(ctx, "keeper", offsets)
		return errors.Join(err, res.Error())
	})
}

// A4: a broker joins and serves at once; old partitions stay where they are.
func join(t *testing.T, s *cast) {
	for _, n := range s.Nodes[1:] {
		n.Launch(t)
	}
	for _, n := range s.Nodes[1:] {
		n.WaitReady(t)
	}
	s.place(t, "joined", [][]int32{{6}})
	if code, err := s.direct(t, 6, "joined", "x", 1, 2000); err != nil || code != 0 {
		t.Errorf("produce to a broker that has joined: %v, %v", kerr.ErrorForCode(code), err)
	}
	s.until(t, testnode.Patience, "first", "it stays", func(p kadm.PartitionDetail) bool { return slices.Equal(p.Replicas, []int32{1}) })
}

// D3: internal topics whose factor is not set in the file raise it as brokers join.
func raised(t *testing.T, s *cast) {
	s.until(t, 90*time.Second, "__consumer_offsets", "three replicas in sync", func(p kadm.PartitionDetail) bool {
		return len(p.Replicas) == 3 && len(p.ISR) == 3
	})
	says(t, s.Node(1), 0, "__consumer_offsets", "adding replicas", "weir.internal.topics.auto.raise")
	got, err := s.admin.FetchOffsets(t.Context(), "keeper")
	if err != nil {
		t.Fatal(err)
	}
	if o, ok := got.Lookup("first", 0); !ok || o.At != 1 {
		t.Errorf("the group's offset is %v", o.At)
	}
}

// A2: six brokers, ten partitions, RF 3: five replicas on each, never two of one partition, one or two leaders.
func spread(t *testing.T, s *cast) {
	for round := range testnode.Rounds(3, 20) {
		topic := fmt.Sprintf("even-%d", round)
		s.topic(t, topic, 10, 3)
		list, err := s.look(t.Context(), topic)
		if err != nil {
			t.Fatal(err)
		}
		replicas, leaders := map[int32]int{}, map[int32]int{}
		for _, p := range list {
			leaders[p.Leader]++
			for i, id := range p.Replicas {
				replicas[id]++
				if slices.Contains(p.Replicas[:i], id) {
					t.Errorf("%s-%d is twice on one broker: %v", topic, p.Partition, p.Replicas)
				}
			}
		}
		for id := range int32(6) {
			if replicas[id+1] != 5 || leaders[id+1] < 1 || leaders[id+1] > 2 {
				t.Errorf("%s: broker %d has %d replicas and leads %d", topic, id+1, replicas[id+1], leaders[id+1])
			}
		}
	}
}

// A3: a partition's replicas stand on as many racks as possible; cordoned directories and dead brokers get none while
// others can take them.
func racks(t *testing.T, s *cast) {
	rack := map[int32]string{1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"}
	distinct := func(topic string, without ...int32) {
		t.Helper()
		list, err := s.look(t.Context(), topic)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range list {
			seen := map[string]bool{}
			for _, id := range p.Replicas {
				seen[rack[id]] = true
				if slices.Contains(without, id) {
					t.Errorf("%s-%d is on broker %d: %v", topic, p.Partition, id, p.Replicas)
				}
			}
			if len(seen) != 3 {
				t.Errorf("%s-%d is on %v, in %d racks", topic, p.Partition, p.Replicas, len(seen))
			}
		}
	}
	s.topic(t, "racks", 12, 3)
	distinct("racks")
	s.Node(6).Kill(t)
	testnode.Until(t, testnode.Patience, "node 6 is fenced", func() error {
		if !s.fenced(t)[6] {
			return errors.New("it is not")
		}
		return nil
	})
	s.topic(t, "racks-5", 12, 3)
	distinct("racks-5", 6)
	s.Node(6).Start(t)
	value := s.Node(5).LogDirs[0]
	res, err := s.admin.AlterBrokerConfigs(t.Context(), []kadm.AlterConfig{{Name: "cordoned.log.dirs", Value: &value}}, 5)
	if err != nil || res[0].Err != nil {
		t.Fatal(err, res[0].Err)
	}
	testnode.Until(t, testnode.Patience, "broker 5 takes nothing new", func() error {
		topic := fmt.Sprintf("cordon-%d", time.Now().UnixNano())
		s.topic(t, topic, 6, 3)
		list, err := s.look(t.Context(), topic)
		if err != nil {
			return err
		}
		for _, p := range list {
			if slices.Contains(p.Replicas, 5) {
				return fmt.Errorf("%s-%d is on %v", topic, p.Partition, p.Replicas)
			}
		}
		return nil
	})
	if _, err := s.admin.AlterBrokerConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.DeleteConfig, Name: "cordoned.log.dirs"}}, 5); err != nil {
		t.Fatal(err)
	}
}

// move asks for new replicas of partition 0; none cancels.
func (s *cast) move(t *testing.T, topic string, replicas ...int32) error {
	t.Helper()
	req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	req.TimeoutMillis = 10_000
	rt, rp := kmsg.NewAlterPartitionAssignmentsRequestTopic(), kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
	rt.Topic, rp.Replicas = topic, replicas
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	res, err := req.RequestWith(t.Context(), s.client)
	if err != nil {
		return err
	}
	return errors.Join(kerr.ErrorForCode(res.ErrorCode), kerr.ErrorForCode(res.Topics[0].Partitions[0].ErrorCode))
}

// E1: from one replica to three, and to other brokers, under load.
func reassign(t *testing.T, s *cast) {
	s.place(t, "moved", [][]int32{{1}})
	l := s.burdenOn(t, "moved", 1)
	l.flows(t, testnode.Patience)
	for _, to := range [][]int32{{1, 3, 5}, {2, 4, 6}, {6}} {
		if err := s.move(t, "moved", to...); err != nil {
			t.Fatal(err)
		}
		s.until(t, 60*time.Second, "moved", fmt.Sprintf("on %v", to), func(p kadm.PartitionDetail) bool {
			return slices.Equal(p.Replicas, to) && len(p.ISR) == len(to) && slices.Contains(to, p.Leader)
		})
		l.flows(t, testnode.Patience)
	}
	l.stop()
	testnode.Until(t, 60*time.Second, "nothing acked is lost", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		return l.check(ctx, s.Node(1), l.promised())
	})
}

// E1: a target that is dead holds a move up and nothing else; the list says what is missing, and cancelling restores.
func deadTarget(t *testing.T, s *cast) {
	s.place(t, "stuck", [][]int32{{1, 2}})
	s.Node(5).Kill(t)
	testnode.Until(t, testnode.Patience, "node 5 is fenced", func() error {
		if !s.fenced(t)[5] {
			return errors.New("it is not")
		}
		return nil
	})
	if err := s.move(t, "stuck", 3, 5); err != nil {
		t.Fatal(err)
	}
	s.until(t, testnode.Patience, "stuck", "the living target copies", func(p kadm.PartitionDetail) bool { return slices.Contains(p.ISR, 3) })
	s.must(t, "stuck", "goes on")
	var set kadm.TopicsSet
	set.Add("stuck", 0)
	list, err := s.admin.ListPartitionReassignments(t.Context(), set)
	if err != nil {
		t.Fatal(err)
	}
	r := list["stuck"][0]
	if !slices.Equal(r.AddingReplicas, []int32{3, 5}) || !slices.Equal(r.RemovingReplicas, []int32{1, 2}) {
		t.Errorf("under way: %+v", r)
	}
	if err := s.move(t, "stuck"); err != nil {
		t.Fatal(err)
	}
	s.until(t, testnode.Patience, "stuck", "as before", func(p kadm.PartitionDetail) bool {
		return slices.Equal(p.Replicas, []int32{1, 2}) && len(p.ISR) == 2
	})
	if got := s.read(t, "stuck"); !slices.Equal(got, []string{"goes on"}) {
		t.Errorf("the topic holds %q", got)
	}
	s.Node(5).Start(t)
}
