package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/test/testnode"
)

// TestManyPartitions: a cluster with very many partitions stays quick. They are created and deleted while another topic is
// written to, which must go on; a killed node's partitions get leaders at once, and it is back in all ISRs soon after its
// return. In the long form there are 10,000 with three replicas each, and the figures go to test/results/many.json.
func TestManyPartitions(t *testing.T) {
	started := time.Now()
	m := &multitude{cast: hire(t, testnode.ClusterOptions{Members: testnode.Nodes(3, testnode.Member{}), Props: map[string]string{
		"broker.session.timeout.ms": "9000", "broker.heartbeat.interval.ms": "2000", "replica.lag.time.max.ms": "30000",
		"log.segment.delete.delay.ms": "1000",
	}}), each: int32(testnode.Rounds(100, 1000)), topics: testnode.Rounds(3, 10), figures: map[string]any{}}
	m.Start(t)
	m.topic(t, "beside", 3, 3)
	p := m.watch(t, "beside", 3)
	p.begin(t, 3)
	// A lone node that does all this takes two seconds; two busy cores must not fail the test.
	limit := time.Duration(testnode.Rounds(60, 300)) * time.Second

	m.measure(t, p, "created", func() {
		for i := range m.topics {
			m.create(t, m.name(i))
		}
		m.figure(t, "create answered")
		m.await(t, limit, nil, 3)
	})
	m.memory(t, "resident MB")

	dead := m.Node(2)
	dead.Kill(t)
	m.measure(t, nil, "new leaders", func() { m.await(t, limit, dead, 1) })
	m.measure(t, nil, "restarted", func() { dead.Start(t) })
	m.measure(t, p, "in sync again", func() { m.await(t, limit, nil, 3) })
	m.memory(t, "resident MB after the restart")
	m.full(t, "beside")

	m.measure(t, p, "deleted", func() {
		for i := range m.topics {
			m.delete(t, m.name(i))
		}
		m.figure(t, "delete answered")
		m.gone(t, limit, "renamed", "-delete")
		m.gone(t, limit, "removed")
	})
	if testnode.Full() {
		testnode.WriteResult(t, "many", time.Since(started), m.figures)
	}
}

// multitude is a cluster with very many partitions.
type multitude struct {
	*cast
	each    int32 // partitions of a topic
	topics  int
	figures map[string]any // ms, or what their names say
	began   time.Time
}

func (m *multitude) name(i int) string { return fmt.Sprintf("many-%d", i) }

// measure times a phase, and how long the probe stood still meanwhile.
func (m *multitude) measure(t *testing.T, p *probe, what string, work func()) {
	t.Helper()
	if p != nil {
		p.begin(t, 3)
	}
	m.began = time.Now()
	work()
	m.figure(t, what)
	if p != nil {
		worst := time.Duration(0)
		for _, g := range p.gaps(t, 3, time.Now()) {
			worst = max(worst, g)
		}
		m.figures[what+", longest pause beside"] = worst.Milliseconds()
		t.Logf("%s: the topic beside stood still for %v at most", what, worst)
	}
}

// figure notes the time since the phase began.
func (m *multitude) figure(t *testing.T, what string) {
	took := time.Since(m.began).Round(time.Millisecond)
	m.figures[what] = took.Milliseconds()
	t.Logf("%s: %v", what, took)
}

func (m *multitude) create(t *testing.T, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if _, err := m.admin.CreateTopic(ctx, m.each, 3, nil, name); err != nil {
		t.Fatalf("create topic %s: %v", name, err)
	}
}

func (m *multitude) delete(t *testing.T, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if _, err := m.admin.DeleteTopic(ctx, name); err != nil {
		t.Fatalf("delete topic %s: %v", name, err)
	}
}

// await waits until every partition has a leader that serves, other than on the dead node, and so many replicas in sync.
func (m *multitude) await(t *testing.T, limit time.Duration, dead *testnode.Node, inSync int) {
	t.Helper()
	client := m.Client(t, append(prompt, kgo.RequestRetries(0))...)
	defer client.Close()
	testnode.Until(t, limit, "all partitions are led", func() error {
		for i := range m.topics {
			if err := m.led(t.Context(), client, m.name(i), dead, inSync); err != nil {
				return err
			}
		}
		return nil
	})
}

// led tells what a topic lacks.
func (m *multitude) led(ctx context.Context, client *kgo.Client, name string, dead *testnode.Node, inSync int) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{{Topic: &name}}
	var res *kmsg.MetadataResponse
	err := errors.New("no node runs")
	for _, n := range m.Nodes {
		if n.Running() {
			if res, err = req.RequestWith(ctx, client.Broker(int(n.ID))); err != nil {
				return err
			}
			break
		}
	}
	if err != nil {
		return err
	}
	if got := len(res.Topics[0].Partitions); got != int(m.each) {
		return fmt.Errorf("%s has %d partitions, %v", name, got, kerr.ErrorForCode(res.Topics[0].ErrorCode))
	}
	ask := map[int32]*kmsg.ListOffsetsRequest{}
	for _, p := range res.Topics[0].Partitions {
		if p.Leader < 0 || dead != nil && p.Leader == dead.ID || len(p.ISR) < inSync {
			return fmt.Errorf("%s-%d: leader %d, in sync %v", name, p.Partition, p.Leader, p.ISR)
		}
		r := ask[p.Leader]
		if r == nil {
			r = kmsg.NewPtrListOffsetsRequest()
			r.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: name}}
			ask[p.Leader] = r
		}
		r.Topics[0].Partitions = append(r.Topics[0].Partitions, kmsg.ListOffsetsRequestTopicPartition{Partition: p.Partition, CurrentLeaderEpoch: p.LeaderEpoch, Timestamp: -1})
	}
	for leader, r := range ask {
		ends, err := r.RequestWith(ctx, client.Broker(int(leader)))
		if err != nil {
			return err
		}
		for _, p := range ends.Topics[0].Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return fmt.Errorf("%s-%d on node %d: %w", name, p.Partition, leader, err)
			}
		}
	}
	return nil
}

// gone waits until no node has directories of the topics, other than with the given suffixes.
func (m *multitude) gone(t *testing.T, limit time.Duration, what string, suffixes ...string) {
	t.Helper()
	testnode.Until(t, limit, "directories are "+what, func() error {
		for _, n := range m.Nodes {
			list, err := os.ReadDir(n.LogDirs[0])
			if err != nil {
				return err
			}
		each:
			for _, e := range list {
				for _, s := range suffixes {
					if strings.HasSuffix(e.Name(), s) {
						continue each
					}
				}
				if strings.HasPrefix(e.Name(), "many-") {
					return fmt.Errorf("%s of node %d is there", e.Name(), n.ID)
				}
			}
		}
		return nil
	})
	m.figure(t, what)
}

// memory notes what the nodes hold resident.
func (m *multitude) memory(t *testing.T, what string) {
	t.Helper()
	var all []int
	for _, n := range m.Nodes {
		text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(n.PID()), "status"))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(text), "VmRSS:")
		kb, err := strconv.Atoi(strings.Fields(rest)[0])
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, kb/1000)
	}
	m.figures[what] = all
	t.Logf("%s: %v", what, all)
}
