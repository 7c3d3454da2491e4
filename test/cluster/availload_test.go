package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/test/testnode"
)

// createPlaced creates a topic with given replicas.
func createPlaced(ctx context.Context, client *kgo.Client, name string, replicas [][]int32, configs map[string]*string) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 20_000
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, -1, -1
	for i, list := range replicas {
		a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		a.Partition, a.Replicas = int32(i), list
		t.ReplicaAssignment = append(t.ReplicaAssignment, a)
	}
	for k, v := range configs {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = k, v
		t.Configs = append(t.Configs, c)
	}
	req.Topics = append(req.Topics, t)
	res, err := req.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	if err := kerr.ErrorForCode(res.Topics[0].ErrorCode); err != nil {
		return fmt.Errorf("%w: %s", err, message(res.Topics[0].ErrorMessage))
	}
	return nil
}

func message(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// pressure is producers with acks=all at work on one topic, and what they were told.
type pressure struct {
	*ledger
	s    *cast
	pace time.Duration // between two batches
	idle func() bool   // while it is true nothing is sent; nil: never
	stop func()
}

// burden starts idempotent producers on a new topic with RF 3 and min.insync.replicas=2.
func (s *cast) burden(t *testing.T, name string, partitions int32) *pressure {
	t.Helper()
	s.topic(t, name, partitions, 3, "min.insync.replicas=2")
	return s.burdenOn(t, name, partitions)
}

func (s *cast) burdenOn(t *testing.T, name string, partitions int32) *pressure {
	t.Helper()
	l := &pressure{ledger: newLedger(name, partitions, true), s: s, pace: 5 * time.Millisecond}
	l.start(t)
	return l
}

func (l *pressure) start(t *testing.T) {
	t.Helper()
	client, err := kgo.NewClient(slices.Concat(prompt, []kgo.Opt{
		kgo.SeedBrokers(l.s.seeds()...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MaxBufferedRecords(1000),
		kgo.ProducerLinger(time.Millisecond), kgo.StopProducerOnDataLossDetected(),
	})...)
	l.stop, err = l.background(t.Context(), client, err, l.pour)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.stop)
}

// pour hands records to a producer until ctx ends, a batch at each beat.
func (l *pressure) pour(ctx context.Context, c *kgo.Client) {
	const burst = 5
	pace := time.NewTicker(l.pace)
	defer pace.Stop()
	for i := int32(0); ctx.Err() == nil; i++ {
		<-pace.C
		if l.idle != nil && l.idle() {
			continue
		}
		for range burst {
			c.Produce(ctx, l.next(i%l.partitions), func(r *kgo.Record, err error) {
				switch {
				case err == nil:
					l.ack(r.Partition, r.Offset, string(r.Value))
				case ctx.Err() == nil && !errors.Is(err, kgo.ErrClientClosed):
					l.fail(fmt.Errorf("%s-%d: an idempotent producer gave up: %w", r.Topic, r.Partition, err))
				}
			})
		}
	}
}

// flows waits until each partition has taken records that were sent after the call.
func (l *pressure) flows(t *testing.T, limit time.Duration) {
	t.Helper()
	l.mu.Lock()
	from := slices.Clone(l.sent)
	l.mu.Unlock()
	testnode.Until(t, limit, l.topic+": records pass", func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if len(l.errs) > 0 {
			return l.errs[0]
		}
		behind := map[int32]bool{}
		for p := range l.partitions {
			behind[p] = l.most[p] <= from[p]
		}
		for p, b := range behind {
			if b {
				return fmt.Errorf("partition %d: sent %d, acked up to %d", p, from[p], l.most[p])
			}
		}
		return nil
	})
}

// settle waits until all is in sync and holds the topic, read anew, against what producers were told.
func (l *pressure) settle(t *testing.T) {
	t.Helper()
	l.s.full(t, l.topic)
	promised := l.promised()
	testnode.Until(t, 60*time.Second, l.topic+": nothing acked is lost", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
		defer cancel()
		return l.check(ctx, l.s.brokers()[0], promised)
	})
	l.s.equal(t, l.topic, l.partitions)
}

// end stops the producers and looks at everything a last time.
func (l *pressure) end(t *testing.T) {
	t.Helper()
	l.stop()
	l.settle(t)
}

// equal compares the batches in the files of all replicas, as far as the shortest reaches. Segments may be cut at
// different places; batches may not.
func (s *cast) equal(t *testing.T, topic string, partitions int32) {
	t.Helper()
	for p := range partitions {
		var first []byte
		var of int32
		for _, n := range s.brokers() {
			have, err := batches(n, topic, p)
			if err != nil {
				t.Error(err)
			}
			if have == nil {
				continue
			}
			size := min(len(first), len(have))
			if first != nil && !bytes.Equal(first[:size], have[:size]) {
				at := 0
				for first[at] == have[at] {
					at++
				}
				t.Errorf("%s-%d: nodes %d and %d differ from byte %d of %d on", topic, p, of, n.ID, at, size)
			}
			if first == nil || len(have) < len(first) {
				first, of = have, n.ID
			}
		}
	}
}

// batches is what the segments of one replica hold, one after the other; nil where there is no replica.
func batches(n *testnode.Node, topic string, partition int32) ([]byte, error) {
	var out []byte
	for _, dir := range n.LogDirs {
		files, err := filepath.Glob(filepath.Join(dir, fmt.Sprintf("%s-%d", topic, partition), "*.log"))
		if err != nil {
			return nil, err
		}
		slices.Sort(files)
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				return nil, err
			}
			out = append(out, text...)
		}
	}
	return out, nil
}

// probe writes one record after the other to every partition of a topic, each waiting for its ack, to see how long
// writing stands still.
type probe struct {
	stop func()

	mu   sync.Mutex
	last map[int32]time.Time
	gap  map[int32]time.Duration
	from time.Time
}

// watch starts a probe.
func (s *cast) watch(t *testing.T, topic string, partitions int32) *probe {
	t.Helper()
	p := &probe{last: map[int32]time.Time{}, gap: map[int32]time.Duration{}}
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	var clients []*kgo.Client
	for i := range partitions {
		client, err := kgo.NewClient(slices.Concat(prompt, []kgo.Opt{
			kgo.SeedBrokers(s.seeds()...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0),
			kgo.MetadataMinAge(10 * time.Millisecond), kgo.RetryBackoffFn(func(int) time.Duration { return 10 * time.Millisecond }),
		})...)
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, client)
		work.Go(func() {
			for ctx.Err() == nil {
				if client.ProduceSync(ctx, &kgo.Record{Topic: topic, Partition: i, Value: []byte("x")}).FirstErr() == nil {
					p.acked(i)
				}
				select { // a hundred records a second are enough
				case <-ctx.Done():
				case <-time.After(10 * time.Millisecond):
				}
			}
		})
	}
	p.stop = sync.OnceFunc(func() {
		cancel()
		work.Wait()
		for _, c := range clients {
			c.Close()
		}
	})
	t.Cleanup(p.stop)
	return p
}

func (p *probe) acked(i int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if last, ok := p.last[i]; ok {
		p.gap[i] = max(p.gap[i], now.Sub(last))
	}
	p.last[i] = now
}

// begin forgets what was measured so far, when every partition has been acked at least once.
func (p *probe) begin(t *testing.T, partitions int32) {
	t.Helper()
	testnode.Until(t, testnode.Patience, "the probe writes", func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.last) < int(partitions) {
			return fmt.Errorf("to %d of %d partitions", len(p.last), partitions)
		}
		return nil
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.gap)
	p.from = time.Now()
}

// gaps are the longest times without an ack since begin, by partition, when every partition has been acked again after it.
func (p *probe) gaps(t *testing.T, partitions int32, since time.Time) []time.Duration {
	t.Helper()
	testnode.Until(t, testnode.Patience, "the probe writes to every partition again", func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		for i := range partitions {
			if !p.last[i].After(since) {
				return fmt.Errorf("not to partition %d", i)
			}
		}
		return nil
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]time.Duration, partitions)
	for i := range out {
		out[i] = p.gap[int32(i)].Round(time.Millisecond)
	}
	return out
}

// dataDirs tells where a node keeps a partition.
func dataDirs(n *testnode.Node, topic string, partition int32) string {
	return filepath.Join(n.LogDirs[0], fmt.Sprintf("%s-%d", topic, partition))
}

// words joins durations for a message.
func words(list []time.Duration) string {
	var out []string
	for _, d := range list {
		out = append(out, d.String())
	}
	return strings.Join(out, " ")
}
