package cluster

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/test/testnode"
)

// TestThreeNodes runs what three combined nodes promise on one cluster, one after the other: the names are those of
// docs/availability.md.
func TestThreeNodes(t *testing.T) {
	t.Parallel()
	s := hire(t, testnode.ClusterOptions{
		Members: []testnode.Member{{Props: map[string]string{"broker.rack": "a"}}, {Props: map[string]string{"broker.rack": "b"}}, {Props: map[string]string{"broker.rack": "c"}}},
		Props: map[string]string{
			"offsets.topic.replication.factor": "3", "offsets.topic.num.partitions": "3",
			"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
		},
	})
	s.Start(t)
	s.topic(t, "orderly", 6, 3)
	s.place(t, "told", [][]int32{{1, 2, 3}})
	for _, x := range []struct {
		name string
		run  func(*testing.T, *cast)
	}{
		{"A1 more replicas than brokers", refusedFactor},
		{"B1 others name the leader", namedLeader},
		{"B1 near consumers read from a follower", nearReads},
		{"B2 fetch sessions", fetchSessions},
		{"B5 acks", acks},
		{"B6 fewer in sync than needed", tooFew},
		{"B6 fewer in sync after the append", tooFewAfter},
		{"C1 C3 C9 faults under load", quickFaults},
		{"C4 a dead leader truncates", truncates},
		{"C5 unclean elections wait or not", unclean},
		{"C5 ELR remembers who may lead", remembered},
		{"C6 an empty disk", emptyDisk},
		{"C8 a silent broker is fenced", silent},
		{"C9 a clean stop", cleanStop},
		{"C10 a torn tail", tornTail},
		{"D2 groups find their new coordinator", coordinatorDies},
		{"D3 a factor of one is told of", fragileTopic},
		{"E2 preferred leaders", preferred},
	} {
		if !t.Run(x.name, func(t *testing.T) { x.run(t, s) }) {
			for _, n := range s.Nodes { // what one has left behind is not for the next
				if !n.Running() {
					n.Start(t)
				}
			}
		}
	}
}

// A1: a replication factor that cannot be met is refused, with both figures.
func refusedFactor(t *testing.T, s *cast) {
	for _, factor := range []int16{4, 0, -2} {
		res, err := s.admin.CreateTopic(t.Context(), 1, factor, nil, "too-many")
		if !errors.Is(err, kerr.InvalidReplicationFactor) {
			t.Errorf("RF %d: %v", factor, err)
		}
		if text := res.ErrMessage; factor == 4 && (!strings.Contains(text, "4") || !strings.Contains(text, "3")) {
			t.Errorf("RF 4 of 3 brokers: the message %q does not name both figures", text)
		}
	}
}

// B1: who does not lead says who does (KIP-951).
func namedLeader(t *testing.T, s *cast) {
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = 1, 5000
	rt, rp := kmsg.NewProduceRequestTopic(), kmsg.NewProduceRequestTopicPartition()
	topics, err := s.admin.ListTopics(t.Context(), "told")
	if err != nil {
		t.Fatal(err)
	}
	rt.Topic, rt.TopicID, rp.Records = "told", topics["told"].ID, someBatch("x")
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	raw, err := s.client.Broker(2).Request(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	got := raw.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
	if got.ErrorCode != kerr.NotLeaderForPartition.Code || got.CurrentLeader.LeaderID != 1 {
		t.Errorf("produce to a follower: %v, leader %+v; want node 1", kerr.ErrorForCode(got.ErrorCode), got.CurrentLeader)
	}
}

// B1: a consumer in the rack of an in-sync follower reads there.
func nearReads(t *testing.T, s *cast) {
	s.must(t, "told", "near")
	leader := s.leader(t, "told", 0)
	rack := map[int32]string{1: "a", 2: "b", 3: "c"}
	other := leader%3 + 1
	var from int32 = -1
	c := s.Client(t, append(slices.Clone(prompt), kgo.ConsumeTopics("told"), kgo.Rack(rack[other]), kgo.FetchMaxWait(50*time.Millisecond),
		kgo.WithHooks(fetchedFrom(func(id int32, records int) {
			if records > 0 {
				from = id
			}
		})))...)
	testnode.Until(t, testnode.Patience, "a record read near by", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if c.PollFetches(ctx).NumRecords() > 0 {
			return nil
		}
		return errors.New("nothing read")
	})
	if from != other {
		t.Errorf("a consumer in rack %s read from node %d, not from node %d", rack[other], from, other)
	}
}

// fetchedFrom is a hook that tells where batches came from.
type fetchedFrom func(node int32, records int)

func (f fetchedFrom) OnFetchBatchRead(meta kgo.BrokerMetadata, _ string, _ int32, m kgo.FetchBatchMetrics) {
	f(meta.NodeID, m.NumRecords)
}

// B2: followers ask for a hundred idle partitions with a few fetches that name none of them.
func fetchSessions(t *testing.T, s *cast) {
	s.topic(t, "idle", 60, 3)
	fetches := func() float64 {
		return s.metric(t, 1, `kafka_network_requestmetrics_requests_total{request="Fetch"}`)
	}
	// Each follower holds one fetch for 500 ms; controllers and brokers fetch the metadata log besides. In the second after the
	// creation they ask oftener, so that it may take another look.
	testnode.Until(t, testnode.Patience, "few fetches for idle partitions", func() error {
		began, before := time.Now(), fetches()
		testnode.Until(t, testnode.Patience, "followers that fetch", func() error {
			if n := fetches() - before; n < 20 {
				return fmt.Errorf("%v fetches", n)
			}
			return nil
		})
		if n, took := fetches()-before, time.Since(began); n/took.Seconds() > 40 {
			return fmt.Errorf("%v fetches in %v", n, took)
		}
		return nil
	})
}

// B5: acks=0 has no answer, and a bad one closes the connection; acks=1 waits for no follower; acks=all for those in sync.
func acks(t *testing.T, s *cast) {
	s.place(t, "acks", [][]int32{{1, 2, 3}})
	zero := func(node int32, topic string) error {
		c := dial(t, s.Node(node).Addr)
		req := kmsg.NewPtrProduceRequest()
		req.Version, req.Acks, req.TimeoutMillis = 7, 0, 1000
		rt, rp := kmsg.NewProduceRequestTopic(), kmsg.NewProduceRequestTopicPartition()
		rt.Topic, rp.Records = topic, someBatch("zero")
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		body := binary.BigEndian.AppendUint16(nil, 0) // Produce
		body = binary.BigEndian.AppendUint16(body, 7)
		body = append(body, 0, 0, 0, 1, 0xff, 0xff)
		body = req.AppendTo(body)
		if _, err := c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)); err != nil {
			return err
		}
		if err := c.SetReadDeadline(time.Now().Add(500 * time.Millisecond)); err != nil {
			return err
		}
		_, err := c.Read(make([]byte, 1))
		return err
	}
	if err := zero(1, "acks"); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("acks=0: %v, want silence", err)
	}
	if err := zero(2, "acks"); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("acks=0 to a follower: %v, want a closed connection", err)
	}
	pausable := s.brother(t, 1)
	s.Node(pausable).Pause(t)
	defer s.Node(pausable).Signal(t, syscall.SIGCONT)
	if code, err := s.direct(t, 1, "acks", "one", 1, 500); err != nil || code != 0 {
		t.Errorf("acks=1 with an ISR member that stands still: %v, %v", kerr.ErrorForCode(code), err)
	}
	if code, err := s.direct(t, 1, "acks", "all", -1, 500); err != nil || code != kerr.RequestTimedOut.Code {
		t.Errorf("acks=all with an ISR member that stands still: %v, %v", kerr.ErrorForCode(code), err)
	}
}

// brother is a node other than id that does not lead the quorum, so that it may be stopped without an election.
func (s *cast) brother(t *testing.T, id int32) int32 {
	t.Helper()
	leader := s.WaitLeader(t, testnode.Patience, -1).Leader
	for _, n := range s.brokers() {
		if n.ID != id && n.ID != leader {
			return n.ID
		}
	}
	t.Fatal("no such node")
	return 0
}

// B6: below min.insync.replicas acks=all is refused and appends nothing, acks=1 is taken and not shown, and consumers go on
// reading what is committed.
func tooFew(t *testing.T, s *cast) {
	down := s.brother(t, 1)
	s.place(t, "few", [][]int32{{1, down}}, "min.insync.replicas=2")
	s.must(t, "few", "committed")
	s.Node(down).Kill(t)
	s.until(t, testnode.Patience, "few", "the dead node is not in the ISR", func(p kadm.PartitionDetail) bool { return slices.Equal(p.ISR, []int32{1}) })
	_, err := s.send(t, "few", "refused", kgo.DisableIdempotentWrite(), kgo.RecordRetries(0))
	if !errors.Is(err, kerr.NotEnoughReplicas) {
		t.Errorf("acks=all with one in sync of two needed: %v", err)
	}
	if offset := s.must(t, "few", "hidden", acksOne...); offset != 1 {
		t.Errorf("acks=1 was given offset %d: the refused record was appended", offset)
	}
	if got := s.read(t, "few"); !slices.Equal(got, []string{"committed"}) {
		t.Errorf("consumers read %q", got)
	}
	s.back(t, down, "few")
	testnode.Until(t, testnode.Patience, "the record shows", func() error {
		if got := s.read(t, "few"); !slices.Equal(got, []string{"committed", "hidden"}) {
			return fmt.Errorf("consumers read %q", got)
		}
		return nil
	})
}

// read is partition 0 of a topic as far as it is committed.
func (s *cast) read(t *testing.T, topic string) []string {
	t.Helper()
	for _, n := range s.brokers() {
		if !n.Running() {
			continue
		}
		var got map[int32][]string
		testnode.Until(t, testnode.Patience, "reading "+topic, func() (err error) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			got, err = readTopic(ctx, n.Addr, topic)
			return err
		})
		return got[0]
	}
	t.Fatal("no broker runs")
	return nil
}

// B6: when the ISR shrinks below the need while a record waits, its producer is not told that it is safe. The high watermark does
// not move then (KIP-966), so that mostly the request's time runs out.
func tooFewAfter(t *testing.T, s *cast) {
	slow := s.brother(t, 1)
	s.place(t, "after", [][]int32{{1, slow}}, "min.insync.replicas=2")
	s.must(t, "after", "committed")
	s.Node(slow).Pause(t)
	code, err := s.direct(t, 1, "after", "x", -1, 6000)
	s.Node(slow).Signal(t, syscall.SIGCONT)
	if err != nil || code != kerr.NotEnoughReplicasAfterAppend.Code && code != kerr.RequestTimedOut.Code {
		t.Errorf("a record whose ISR shrank under it: %v, %v", kerr.ErrorForCode(code), err)
	}
	s.full(t, "after")
}

// C4: a leader that had records nobody copied gives them up when it is back, and has its leadership again 10 s after it is
// in sync.
func truncates(t *testing.T, s *cast) {
	s.place(t, "cut", [][]int32{{1, 2, 3}})
	testnode.Until(t, 20*time.Second, "node 1 leads", func() error {
		if l := s.leader(t, "cut", 0); l != 1 {
			return fmt.Errorf("node %d leads", l)
		}
		return nil
	})
	s.must(t, "cut", "kept")
	since := mark(t, s.Node(1))
	for _, id := range []int32{2, 3} {
		s.Node(id).Pause(t)
	}
	// The first answers the fetches that the followers had under way; they find it when they wake.
	for _, value := range []string{"under way", "lost"} {
		if code, err := s.direct(t, 1, "cut", value, 1, 2000); err != nil || code != 0 {
			t.Errorf("acks=1: %v, %v", kerr.ErrorForCode(code), err)
		}
	}
	s.Node(1).Kill(t)
	for _, id := range []int32{2, 3} {
		s.Node(id).Signal(t, syscall.SIGCONT)
	}
	s.until(t, testnode.Patience, "cut", "another leads", func(p kadm.PartitionDetail) bool { return p.Leader > 1 })
	s.must(t, "cut", "instead")
	s.back(t, 1, "cut")
	inSync := time.Now()
	says(t, s.Node(1), since, "truncated to the leader's log", "cut-0")
	if got := s.read(t, "cut"); slices.Contains(got, "lost") || got[0] != "kept" || got[len(got)-1] != "instead" {
		t.Errorf("the topic holds %q", got)
	}
	s.equal(t, "cut", 1)
	s.until(t, 40*time.Second, "cut", "node 1 leads again", func(p kadm.PartitionDetail) bool { return p.Leader == 1 })
	t.Logf("leaders are back after %v", time.Since(inSync).Round(100*time.Millisecond))
	if took := time.Since(inSync); took < 8*time.Second {
		t.Errorf("the leadership came back already after %v", took)
	}
}

// direct produces one record to a node that leads and returns the code of its answer, without any look at other nodes.
func (s *cast) direct(t *testing.T, node int32, topic, value string, acks int16, timeoutMs int32) (int16, error) {
	t.Helper()
	level := map[int16]kgo.Acks{-1: kgo.AllISRAcks(), 1: kgo.LeaderAck()}[acks] // the client puts its own into the request
	client, err := kgo.NewClient(kgo.SeedBrokers(s.Node(node).Addr), kgo.RequestRetries(0), kgo.RequiredAcks(level), kgo.DisableIdempotentWrite())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = acks, timeoutMs
	rt, rp := kmsg.NewProduceRequestTopic(), kmsg.NewProduceRequestTopicPartition()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	testnode.Until(t, testnode.Patience, fmt.Sprintf("node %d knows %s", node, topic), func() error {
		topics, err := kadm.NewClient(client).ListTopics(ctx, topic)
		if err != nil {
			return err
		}
		rt.TopicID = topics[topic].ID
		return topics[topic].Err
	})
	rt.Topic, rp.Records = topic, someBatch(value)
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	raw, err := client.Broker(int(node)).Request(ctx, req)
	if err != nil {
		return 0, err
	}
	return raw.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode, nil
}

// cleanStop is C9: the marker is written, leaders have moved before, and the next start recovers nothing.
func cleanStop(t *testing.T, s *cast) {
	s.must(t, "orderly", "x")
	id := s.WaitLeader(t, testnode.Patience, -1).Leader%3 + 1
	n := s.Node(id)
	n.Stop(t)
	if _, err := os.Stat(filepath.Join(n.LogDirs[0], ".kafka_cleanshutdown")); err != nil {
		t.Error(err)
	}
	list, err := s.look(t.Context(), "orderly")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list {
		if p.Leader == id || p.Leader < 0 {
			t.Errorf("orderly-%d is led by %d after node %d has stopped", p.Partition, p.Leader, id)
		}
	}
	since := mark(t, n)
	s.back(t, id, "orderly")
	for line := range strings.Lines(n.LogText(t)[since:]) { // the metadata log is written until the very end
		if strings.Contains(line, "recovering") && !strings.Contains(line, "__cluster_metadata") {
			t.Errorf("a start after a clean stop recovers: %s", line)
		}
	}
}

// C10: a kill in the middle of writes leaves a torn tail, which is cut.
func tornTail(t *testing.T, s *cast) {
	id := s.WaitLeader(t, testnode.Patience, -1).Leader%3 + 1
	n := s.Node(id)
	s.must(t, "orderly", "y")
	n.Kill(t)
	files, err := filepath.Glob(filepath.Join(dataDirs(n, "orderly", 0), "*.log"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v %v", files, err)
	}
	whole := someBatch("never acked")
	f, err := os.OpenFile(files[0], os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(whole[:len(whole)/2]); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	since := mark(t, n)
	s.back(t, id, "orderly")
	says(t, n, since, "cut the torn end of a segment", "orderly-0")
	s.equal(t, "orderly", 6)
}
