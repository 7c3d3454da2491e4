package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/batch"
	"weir/test/testnode"
)

// someBatch is one record without a producer.
func someBatch(value string) []byte {
	b := batch.NewBuilder(batch.NewOptions())
	b.Append(time.Now().UnixMilli(), nil, []byte(value), nil)
	return b.Build()
}

// astray makes a topic whose partition 0 has lost every ISR member: node `last`, which has the record "lost", is down, and
// node `old`, which has only "kept", is up.
func astray(t *testing.T, s *cast, topic string, configs ...string) (last, old int32) {
	t.Helper()
	last = s.brother(t, 0)
	old = s.brother(t, last)
	s.place(t, topic, [][]int32{{last, old}}, configs...)
	s.must(t, topic, "kept")
	s.Node(old).Kill(t)
	s.until(t, testnode.Patience, topic, "one in sync", func(p kadm.PartitionDetail) bool { return slices.Equal(p.ISR, []int32{last}) })
	s.must(t, topic, "lost")
	s.Node(last).Kill(t)
	s.Node(old).Start(t)
	return last, old
}

// leaderless waits until metadata says that a partition has no leader.
func leaderless(t *testing.T, s *cast, topic string) {
	t.Helper()
	testnode.Until(t, testnode.Patience, topic+" has no leader", func() error {
		list, err := s.look(t.Context(), topic)
		if err != nil {
			return err
		}
		if list[0].Leader != -1 || !errors.Is(list[0].Err, kerr.LeaderNotAvailable) {
			return fmt.Errorf("leader %d, %v", list[0].Leader, list[0].Err)
		}
		return nil
	})
}

// C5: without its ISR a partition waits; when the topic allows unclean elections, a live replica leads within 2 s; what is
// lost is logged and counted, and the old leader gives up what it has.
func unclean(t *testing.T, s *cast) {
	last, old := astray(t, s, "astray")
	leaderless(t, s, "astray")
	before := 0.0
	for _, n := range s.brokers() {
		if n.Running() {
			before += s.metric(t, n.ID, "kafka_controller_controllerstats_uncleanleaderelections_total")
		}
	}
	active := s.WaitLeader(t, testnode.Patience, -1).Leader
	since, sinceOld := mark(t, s.Node(active)), mark(t, s.Node(old))
	s.alter(t, "astray", "unclean.leader.election.enable", "true")
	allowed := time.Now()
	s.until(t, 20*time.Second, "astray", "the live replica leads", func(p kadm.PartitionDetail) bool { return p.Leader == old })
	took := time.Since(allowed)
	t.Logf("an unclean leader after %v", took.Round(time.Millisecond))
	if took > 10*time.Second {
		t.Errorf("an unclean leader only after %v", took)
	}
	after := 0.0
	for _, n := range s.brokers() {
		if n.Running() {
			after += s.metric(t, n.ID, "kafka_controller_controllerstats_uncleanleaderelections_total")
		}
	}
	if after <= before {
		t.Errorf("unclean elections counted: %v, before %v", after, before)
	}
	says(t, s.Node(old), sinceOld, "elected uncleanly", "astray-0")
	says(t, s.Node(active), since, "uncleanly", "astray-0")
	s.must(t, "astray", "instead")
	sinceLast := mark(t, s.Node(last))
	s.back(t, last, "astray") // a new process: it counts from zero
	if got := s.read(t, "astray"); !slices.Equal(got, []string{"kept", "instead"}) {
		t.Errorf("the topic holds %q", got)
	}
	says(t, s.Node(last), sinceLast, "truncated to the leader's log", "partition=astray-0", "from=1", "to=1")
	if n := s.metric(t, last, "weir_replication_truncated_records_total"); n < 1 {
		t.Errorf("%v truncated records are counted", n)
	}
	s.equal(t, "astray", 1)
	uncleanByTool(t, s)
}

// C5 by request: kafka-leader-election --election-type UNCLEAN asks ElectLeaders.
func uncleanByTool(t *testing.T, s *cast) {
	last, old := astray(t, s, "forced")
	leaderless(t, s, "forced")
	if testnode.Full() {
		out := s.Node(old).Tool(t, "", "kafka-leader-election", "--election-type", "UNCLEAN", "--topic", "forced", "--partition", "0")
		if out.Code != 0 {
			t.Errorf("kafka-leader-election: %d\n%s%s", out.Code, out.Stdout, out.Stderr)
		}
	} else if err := s.elect(t, "forced", 1); err != nil {
		t.Error(err)
	}
	s.until(t, 10*time.Second, "forced", "the live replica leads", func(p kadm.PartitionDetail) bool { return p.Leader == old })
	s.back(t, last, "forced")
	if got := s.read(t, "forced"); !slices.Equal(got, []string{"kept"}) {
		t.Errorf("the topic holds %q", got)
	}
}

// elect asks for an election of partition 0: 0 preferred, 1 unclean.
func (s *cast) elect(t *testing.T, topic string, kind int8) error {
	t.Helper()
	req := kmsg.NewPtrElectLeadersRequest()
	req.ElectionType, req.TimeoutMillis = kind, 10_000
	rt := kmsg.NewElectLeadersRequestTopic()
	rt.Topic, rt.Partitions = topic, []int32{0}
	req.Topics = append(req.Topics, rt)
	res, err := req.RequestWith(t.Context(), s.client)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(res.Topics[0].Partitions[0].ErrorCode)
}

// alter sets a topic's configuration.
func (s *cast) alter(t *testing.T, topic, key, value string) {
	t.Helper()
	res, err := s.admin.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: key, Value: &value}}, topic)
	if err == nil {
		_, err = res.On(topic, nil)
	}
	if err == nil && res[0].Err != nil {
		err = res[0].Err
	}
	if err != nil {
		t.Fatal(err)
	}
}

// C5, KIP-966: below min.insync.replicas nothing is committed, so who left the ISR in good order may lead again without loss.
func remembered(t *testing.T, s *cast) {
	last := s.brother(t, 0)
	old := s.brother(t, last)
	s.place(t, "elr", [][]int32{{last, old}}, "min.insync.replicas=2")
	s.must(t, "elr", "kept")
	s.Node(old).Stop(t)
	s.until(t, testnode.Patience, "elr", "one in sync", func(p kadm.PartitionDetail) bool { return slices.Equal(p.ISR, []int32{last}) })
	res, err := describePartition(t.Context(), s, "elr")
	if err != nil || !slices.Equal(res.EligibleLeaderReplicas, []int32{old}) {
		t.Errorf("eligible leaders are %v, %v; want node %d", res.EligibleLeaderReplicas, err, old)
	}
	s.Node(last).Kill(t)
	s.Node(old).Start(t)
	s.until(t, testnode.Patience, "elr", "the eligible replica leads", func(p kadm.PartitionDetail) bool { return p.Leader == old })
	s.back(t, last, "elr")
	if got := s.read(t, "elr"); !slices.Equal(got, []string{"kept"}) {
		t.Errorf("the topic holds %q", got)
	}
}

func describePartition(ctx context.Context, s *cast, topic string) (kmsg.DescribeTopicPartitionsResponseTopicPartition, error) {
	req := kmsg.NewPtrDescribeTopicPartitionsRequest()
	rt := kmsg.NewDescribeTopicPartitionsRequestTopic()
	rt.Topic = topic
	req.Topics, req.ResponsePartitionLimit = append(req.Topics, rt), 100
	res, err := req.RequestWith(ctx, s.client)
	if err != nil {
		return kmsg.DescribeTopicPartitionsResponseTopicPartition{}, err
	}
	if len(res.Topics) != 1 || len(res.Topics[0].Partitions) != 1 {
		return kmsg.DescribeTopicPartitionsResponseTopicPartition{}, fmt.Errorf("%+v", res.Topics)
	}
	return res.Topics[0].Partitions[0], nil
}

// C6: a broker that comes back with an empty disk copies everything anew and truncates nobody, even when it was the leader.
func emptyDisk(t *testing.T, s *cast) {
	l := s.burden(t, "wiped", 2)
	l.flows(t, testnode.Patience)
	id := s.leader(t, "wiped", 0)
	s.Node(id).Kill(t)
	l.flows(t, testnode.Patience)
	s.Node(id).Wipe(t)
	s.Node(id).Start(t)
	l.flows(t, testnode.Patience)
	l.end(t)
}

// C8: a broker that is silent is fenced after its session, leads nothing, and is shown as fenced; when it speaks again it is
// unfenced.
func silent(t *testing.T, s *cast) {
	s.topic(t, "session", 3, 3)
	id := s.brother(t, 0)
	s.Node(id).Pause(t)
	paused := true
	defer func() {
		if paused {
			s.Node(id).Signal(t, syscall.SIGCONT)
		}
	}()
	s.until(t, testnode.Patience, "session", "it leads nothing", func(p kadm.PartitionDetail) bool {
		return p.Leader >= 0 && p.Leader != id && !slices.Contains(p.ISR, id)
	})
	if !s.fenced(t)[id] {
		t.Errorf("node %d is not shown as fenced", id)
	}
	s.Node(id).Signal(t, syscall.SIGCONT)
	paused = false
	s.full(t, "session")
	if s.fenced(t)[id] {
		t.Errorf("node %d is shown as fenced", id)
	}
}

// fenced tells of each registered broker whether it is fenced.
func (s *cast) fenced(t *testing.T) map[int32]bool {
	t.Helper()
	req := kmsg.NewPtrDescribeClusterRequest()
	req.EndpointType, req.IncludeFencedBrokers = 1, true
	out := map[int32]bool{}
	testnode.Until(t, testnode.Patience, "the list of brokers", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		res, err := req.RequestWith(ctx, s.client)
		if err != nil {
			return err
		}
		for _, b := range res.Brokers {
			out[b.NodeID] = b.IsFenced
		}
		return kerr.ErrorForCode(res.ErrorCode)
	})
	return out
}

// D2: a group's coordinator dies; the group finds the new one, keeps its offsets and reads on.
func coordinatorDies(t *testing.T, s *cast) {
	s.topic(t, "work", 2, 3, "min.insync.replicas=2")
	c := s.Client(t, append(slices.Clone(prompt), kgo.ConsumerGroup("workers"), kgo.ConsumeTopics("work"), kgo.FetchMaxWait(100*time.Millisecond),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(), kgo.SessionTimeout(6*time.Second), kgo.HeartbeatInterval(300*time.Millisecond))...)
	next := 0
	work := func() { // one record in, one record out, committed
		t.Helper()
		want := fmt.Sprint("job ", next)
		next++
		s.must(t, "work", want)
		testnode.Until(t, 60*time.Second, want, func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			fetches := c.PollFetches(ctx)
			if n := fetches.NumRecords(); n != 1 || string(fetches.Records()[0].Value) != want {
				return fmt.Errorf("%d records, %v", n, fetches.Errors())
			}
			return nil
		})
		testnode.Until(t, 60*time.Second, "commit of "+want, func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			return c.CommitUncommittedOffsets(ctx)
		})
	}
	work()
	var coordinator int32
	testnode.Until(t, testnode.Patience, "a coordinator", func() error {
		list := s.admin.FindGroupCoordinators(t.Context(), "workers")
		coordinator = list["workers"].NodeID
		return list["workers"].Err
	})
	s.full(t, "__consumer_offsets")
	s.Node(coordinator).Kill(t)
	work()
	s.back(t, coordinator, "__consumer_offsets", "work")
	work()
	testnode.Until(t, testnode.Patience, "the group's offsets", func() error {
		got, err := s.admin.FetchOffsets(t.Context(), "workers")
		if err != nil {
			return err
		}
		if o, ok := got.Lookup("work", 0); !ok || o.At != int64(next) {
			return fmt.Errorf("committed is %d of %d", o.At, next)
		}
		return nil
	})
}

// E2: leaders go back to the preferred replicas when asked to.
func preferred(t *testing.T, s *cast) {
	s.place(t, "prefer", [][]int32{{1, 2, 3}})
	s.Node(1).Stop(t)
	s.until(t, testnode.Patience, "prefer", "another leads", func(p kadm.PartitionDetail) bool { return p.Leader > 1 })
	s.back(t, 1, "prefer")
	if testnode.Full() {
		out := s.Node(2).Tool(t, "", "kafka-leader-election", "--election-type", "PREFERRED", "--topic", "prefer", "--partition", "0")
		if out.Code != 0 {
			t.Errorf("kafka-leader-election: %d\n%s%s", out.Code, out.Stdout, out.Stderr)
		}
	} else if err := s.elect(t, "prefer", 0); err != nil && !errors.Is(err, kerr.ElectionNotNeeded) {
		t.Error(err)
	}
	s.until(t, testnode.Patience, "prefer", "node 1 leads", func(p kadm.PartitionDetail) bool { return p.Leader == 1 })
}
