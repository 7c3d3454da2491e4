package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"weir/test/testnode"
)

// cast is a cluster as the tests of availability see it.
type cast struct {
	*testnode.Cluster
	client  *kgo.Client // of all brokers
	admin   *kadm.Client
	metrics map[int32]string // address of weir.metrics.listener, by node
}

// quick are settings that let a test see in seconds what takes longer by default: what stays silent is judged sooner. What
// is dead is noticed at once in any case.
var quick = map[string]string{
	"broker.session.timeout.ms": "4000", "broker.heartbeat.interval.ms": "500", "replica.lag.time.max.ms": "3000",
	"log.initial.task.delay.ms": "200", "min.insync.replicas": "1", "group.min.session.timeout.ms": "500",
}

// hire formats and starts a cluster.
func hire(t *testing.T, o testnode.ClusterOptions) *cast {
	t.Helper()
	s := &cast{metrics: map[int32]string{}}
	props := map[string]string{}
	for k, v := range quick {
		props[k] = v
	}
	for k, v := range o.Props {
		props[k] = v
	}
	o.Props = props
	for i := range o.Members {
		at := "127.0.0.1:" + strconv.Itoa(testnode.FreePort(t))
		own := map[string]string{"weir.metrics.listener": at}
		for k, v := range o.Members[i].Props {
			own[k] = v
		}
		o.Members[i].Props, s.metrics[int32(i+1)] = own, at
	}
	s.Cluster = testnode.NewCluster(t, o)
	s.client = s.Client(t, prompt...)
	s.admin = kadm.NewClient(s.client)
	return s
}

// prompt are options of clients that ask again soon.
var prompt = []kgo.Opt{
	kgo.MetadataMinAge(50 * time.Millisecond), kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
	kgo.RequestTimeoutOverhead(2 * time.Second), kgo.ProduceRequestTimeout(3 * time.Second), kgo.DialTimeout(2 * time.Second),
	kgo.AlwaysRetryEOF(), kgo.UnknownTopicRetries(-1),
}

// topic creates a topic, its settings as "key=value".
func (s *cast) topic(t *testing.T, name string, partitions int32, replicas int16, configs ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testnode.Patience)
	defer cancel()
	if _, err := s.admin.CreateTopic(ctx, partitions, replicas, settings(configs), name); err != nil {
		t.Fatalf("create topic %s: %v", name, err)
	}
	s.full(t, name)
}

func settings(list []string) map[string]*string {
	out := map[string]*string{}
	for _, c := range list {
		k, v, _ := strings.Cut(c, "=")
		out[k] = &v
	}
	return out
}

// place creates a topic of one partition for each list of replicas.
func (s *cast) place(t *testing.T, name string, replicas [][]int32, configs ...string) {
	t.Helper()
	if err := createPlaced(t.Context(), s.client, name, replicas, settings(configs)); err != nil {
		t.Fatalf("create topic %s: %v", name, err)
	}
	s.full(t, name)
}

// look describes a topic's partitions, by id.
func (s *cast) look(ctx context.Context, topic string) ([]kadm.PartitionDetail, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	topics, err := s.admin.ListTopicsWithInternal(ctx)
	if err != nil {
		return nil, err
	}
	d, ok := topics[topic]
	if !ok || d.Err != nil {
		return nil, fmt.Errorf("topic %s: %w", topic, errors.Join(d.Err, errors.New("not there")))
	}
	return d.Partitions.Sorted(), nil
}

// until waits until every partition of a topic is as ok wants.
func (s *cast) until(t *testing.T, limit time.Duration, topic, what string, ok func(kadm.PartitionDetail) bool) {
	t.Helper()
	testnode.Until(t, limit, topic+": "+what, func() error {
		list, err := s.look(t.Context(), topic)
		if err != nil {
			return err
		}
		for _, p := range list {
			if !ok(p) {
				return fmt.Errorf("%s-%d: leader %d (epoch %d), replicas %v, ISR %v, %v", topic, p.Partition, p.Leader, p.LeaderEpoch, p.Replicas, p.ISR, p.Err)
			}
		}
		return nil
	})
}

// full waits until each replica is in sync.
func (s *cast) full(t *testing.T, topic string) {
	t.Helper()
	s.until(t, 60*time.Second, topic, "all in sync", func(p kadm.PartitionDetail) bool {
		return p.Leader >= 0 && len(p.ISR) == len(p.Replicas)
	})
}

// leader is who leads a partition now.
func (s *cast) leader(t *testing.T, topic string, partition int32) int32 {
	t.Helper()
	leader := int32(-1)
	testnode.Until(t, testnode.Patience, "a leader of "+topic, func() error {
		list, err := s.look(t.Context(), topic)
		if err != nil {
			return err
		}
		if leader = list[partition].Leader; leader < 0 {
			return fmt.Errorf("%s-%d has none", topic, partition)
		}
		return nil
	})
	return leader
}

// metric reads one figure of a node, e.g. `kafka_server_replicamanager_isrshrinks_total`; labels are part of the name.
func (s *cast) metric(t *testing.T, node int32, name string) float64 {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.metrics[node]+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+" "); ok {
			f, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Fatal(err)
			}
			return f
		}
	}
	t.Fatalf("node %d has no metric %s", node, name)
	return 0
}

// send produces one record to partition 0 with a client's own acks, and returns its offset.
func (s *cast) send(t *testing.T, topic, value string, opts ...kgo.Opt) (int64, error) {
	t.Helper()
	client, err := kgo.NewClient(slices.Concat([]kgo.Opt{kgo.SeedBrokers(s.seeds()...), kgo.RecordPartitioner(kgo.ManualPartitioner())}, prompt, opts)...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r, err := client.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte(value)}).First()
	return r.Offset, err
}

// acksOne are options of a producer that is content with the leader, and tries once.
var acksOne = []kgo.Opt{kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite()}

func (s *cast) must(t *testing.T, topic, value string, opts ...kgo.Opt) int64 {
	t.Helper()
	offset, err := s.send(t, topic, value, opts...)
	if err != nil {
		t.Fatalf("produce %q to %s: %v", value, topic, err)
	}
	return offset
}

// seeds are the addresses of the brokers.
func (s *cast) seeds() []string {
	var out []string
	for _, n := range s.Nodes {
		if n.Roles() != testnode.ControllerOnly {
			out = append(out, n.Addr)
		}
	}
	return out
}

// brokers lists the nodes that are brokers.
func (s *cast) brokers() []*testnode.Node {
	var out []*testnode.Node
	for _, n := range s.Nodes {
		if n.Roles() != testnode.ControllerOnly {
			out = append(out, n)
		}
	}
	return out
}

// says waits for a line in a node's log, written after the given place in it.
func says(t *testing.T, n *testnode.Node, since int, parts ...string) string {
	t.Helper()
	found := ""
	testnode.Until(t, testnode.Patience, fmt.Sprintf("node %d says %q", n.ID, parts), func() error {
		for line := range strings.Lines(n.LogText(t)[since:]) {
			if !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(line, p) }) {
				found = line
				return nil
			}
		}
		return errors.New("it does not")
	})
	return found
}

// mark is the present end of a node's log, for says.
func mark(t *testing.T, n *testnode.Node) int {
	t.Helper()
	return len(n.LogText(t))
}

// back starts a node that was down and waits until a topic is all in sync.
func (s *cast) back(t *testing.T, id int32, topics ...string) {
	t.Helper()
	s.Node(id).Start(t)
	for _, topic := range topics {
		s.full(t, topic)
	}
}
