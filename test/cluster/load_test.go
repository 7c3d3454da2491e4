package cluster

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"weir/internal/batch"
	"weir/test/testnode"
)

// spot is a place in a topic.
type spot struct {
	partition int32
	offset    int64
}

// ledger is what the producers of one topic did and were told.
type ledger struct {
	topic      string
	partitions int32
	once       bool // the producers promise each record at most once

	mu    sync.Mutex
	sent  []int              // by partition: the number of the last record handed to a producer
	acked map[spot]string    // where the producer was told a record is
	most  map[int32]int      // by partition: the highest number of a record that was acked
	seen  map[int32][]string // by partition: what the last check found, by offset
	errs  []error            // what a producer must never be told
}

func newLedger(topic string, partitions int32, once bool) *ledger {
	return &ledger{topic: topic, partitions: partitions, once: once, sent: make([]int, partitions), acked: map[spot]string{}, most: map[int32]int{}, seen: map[int32][]string{}}
}

// next makes the next record of a partition. Values tell partition and number, so that order can be checked.
func (l *ledger) next(p int32) *kgo.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent[p]++
	return &kgo.Record{Topic: l.topic, Partition: p, Value: []byte(fmt.Sprintf("%d/%d/%s", p, l.sent[p], strings.Repeat("·", l.sent[p]%100)))}
}

func (l *ledger) ack(p int32, offset int64, value string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := spot{p, offset}
	if other, taken := l.acked[at]; taken && other != value {
		l.errs = append(l.errs, fmt.Errorf("%s-%d: two producers were told of offset %d", l.topic, p, offset))
	}
	l.acked[at] = value
	n, err := number(value)
	if err != nil {
		l.errs = append(l.errs, err)
	}
	l.most[p] = max(l.most[p], n)
}

func (l *ledger) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errs = append(l.errs, err)
}

func (l *ledger) promised() map[spot]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.acked)
}

func (l *ledger) numAcked() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acked)
}

// number reads a record's number out of its value.
func number(value string) (int, error) {
	_, rest, _ := strings.Cut(value, "/")
	n, _, _ := strings.Cut(rest, "/")
	return strconv.Atoi(n)
}

// check reads the whole topic and holds it against what producers were told before.
func (l *ledger) check(ctx context.Context, n *testnode.Node, promised map[spot]string) error {
	got, err := readTopic(ctx, n.Addr, l.topic)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.errs) > 0 {
		return l.errs[0]
	}
	for p := range l.partitions {
		if err := l.checkPartition(p, got[p]); err != nil {
			return fmt.Errorf("%s-%d: %w", l.topic, p, err)
		}
		l.seen[p] = got[p]
	}
	for at, value := range promised {
		if have := got[at.partition]; at.offset >= int64(len(have)) || have[at.offset] != value {
			return fmt.Errorf("%s-%d: offset %d of %d was acked for %.20q and is gone", l.topic, at.partition, at.offset, len(have), value)
		}
	}
	return nil
}

func (l *ledger) checkPartition(p int32, values []string) error {
	for o, v := range l.seen[p] { // what could be read once stays
		if o >= len(values) || values[o] != v {
			return fmt.Errorf("offset %d of %d held %.20q when it was read before", o, len(values), v)
		}
	}
	last, found := 0, map[string]int{}
	for o, v := range values {
		n, err := number(v)
		if err != nil || n > l.sent[p] {
			return fmt.Errorf("offset %d holds %.20q, which was never sent", o, v)
		}
		if at, twice := found[v]; twice && l.once {
			return fmt.Errorf("%.20q stands at %d and %d", v, at, o)
		}
		if n <= last && l.once {
			return fmt.Errorf("offset %d holds number %d after %d", o, n, last)
		}
		found[v], last = o, n
	}
	return nil
}

// readTopic reads every partition from its start to its present end. Offsets must be without holes.
func readTopic(ctx context.Context, addr, topic string) (map[int32][]string, error) {
	c, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumeTopics(topic), kgo.FetchMaxWait(100*time.Millisecond))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	ends, err := kadm.NewClient(c).ListEndOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	out, missing := map[int32][]string{}, int64(0)
	for p, o := range ends[topic] {
		if o.Err != nil {
			return nil, fmt.Errorf("%s-%d: %w", topic, p, o.Err)
		}
		missing += o.Offset
	}
	for missing > 0 {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return nil, fmt.Errorf("%s: %d records missing: %w", topic, missing, err)
		}
		for _, e := range fetches.Errors() {
			return nil, fmt.Errorf("%s-%d: %w", e.Topic, e.Partition, e.Err)
		}
		for _, r := range fetches.Records() {
			if have := out[r.Partition]; r.Offset != int64(len(have)) {
				return nil, fmt.Errorf("%s-%d: offset %d follows %d", topic, r.Partition, r.Offset, len(have)-1)
			}
			out[r.Partition] = append(out[r.Partition], string(r.Value))
			if r.Offset < ends[topic][r.Partition].Offset {
				missing--
			}
		}
	}
	return out, nil
}

// produce hands records to a kgo producer until ctx ends, a burst a millisecond.
func (l *ledger) produce(ctx context.Context, c *kgo.Client) {
	const burst = 8
	pace := time.NewTicker(time.Millisecond)
	defer pace.Stop()
	for i := int32(0); ctx.Err() == nil; i++ {
		if i%burst == 0 {
			<-pace.C
		}
		p := i / burst % l.partitions // a burst is a batch
		c.Produce(ctx, l.next(p), func(r *kgo.Record, err error) {
			if err == nil {
				l.ack(r.Partition, r.Offset, string(r.Value))
			} else if l.once && ctx.Err() == nil {
				l.fail(fmt.Errorf("%s-%d: an idempotent producer gave up: %w", r.Topic, r.Partition, err))
			}
		})
	}
}

// idempotent starts a producer with acks=all as franz-go makes it by default. It tries again until it is stopped.
func (l *ledger) idempotent(ctx context.Context, addr string) (stop func(), err error) {
	c, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MaxBufferedRecords(400),
		kgo.ProducerLinger(time.Millisecond), kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }))
	return l.background(ctx, c, err, l.produce)
}

// leaderOnly starts a producer with acks=1 that never tries again: what it is not told of may be there or not.
func (l *ledger) leaderOnly(ctx context.Context, addr string) (stop func(), err error) {
	c, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MaxBufferedRecords(200),
		kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite(), kgo.RecordRetries(0), kgo.MaxProduceRequestsInflightPerBroker(1),
		kgo.ProducerLinger(time.Millisecond), kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }))
	return l.background(ctx, c, err, l.produce)
}

// counter starts a producer that sends one hand-made batch at a time and asks for acks itself.
func (l *ledger) counter(ctx context.Context, addr string, acks int16) (stop func(), err error) {
	c, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.RequestRetries(0), kgo.MaxVersions(kversion.V2_8_0()))
	return l.background(ctx, c, err, func(ctx context.Context, c *kgo.Client) {
		for p := int32(0); ctx.Err() == nil; p = (p + 1) % l.partitions {
			r := l.next(p)
			offset, err := produceOne(ctx, c, r, acks)
			if err == nil {
				l.ack(p, offset, string(r.Value))
				continue
			}
			select { // the node is down: ask again a little later
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
}

func (l *ledger) background(ctx context.Context, c *kgo.Client, err error, run func(context.Context, *kgo.Client)) (func(), error) {
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() { run(ctx, c) })
	return func() {
		cancel()
		done.Wait()
		c.Close()
	}, nil
}

// produceOne sends one record in a batch without producer id and returns its offset. The client must speak a version that
// names topics.
func produceOne(ctx context.Context, c *kgo.Client, r *kgo.Record, acks int16) (int64, error) {
	b := batch.NewBuilder(batch.NewOptions())
	var headers []batch.Header
	for _, h := range r.Headers {
		headers = append(headers, batch.Header{Key: []byte(h.Key), Value: h.Value})
	}
	b.Append(time.Now().UnixMilli(), r.Key, r.Value, headers)
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = acks, 5000
	t, p := kmsg.NewProduceRequestTopic(), kmsg.NewProduceRequestTopicPartition()
	t.Topic, p.Partition, p.Records = r.Topic, r.Partition, b.Build()
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	raw, err := c.Broker(1).Request(ctx, req)
	if err != nil {
		return -1, err
	}
	res := raw.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
	return res.BaseOffset, kerr.ErrorForCode(res.ErrorCode)
}

// createTopic creates a topic and waits for nothing: when it returns, the topic can be produced to.
func createTopic(t testing.TB, n *testnode.Node, topic string, partitions int32, configs map[string]string) {
	t.Helper()
	c := map[string]*string{}
	for k, v := range configs {
		c[k] = &v
	}
	if _, err := n.Admin(t).CreateTopic(t.Context(), partitions, 1, c, topic); err != nil {
		t.Fatal(err)
	}
}
