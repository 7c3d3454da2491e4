package cluster

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"weir/test/testnode"
)

// gate pauses the load while a file is there.
type gate struct {
	path string // "": never

	mu   sync.Mutex
	last time.Time // when the file was seen last
}

// shut tells whether the file is there.
func (g *gate) shut() bool {
	if g.path == "" {
		return false
	}
	if _, err := os.Stat(g.path); err != nil {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.last = time.Now()
	return true
}

// lately tells whether the file was there within the time before now.
func (g *gate) lately(d time.Duration) bool {
	shut := g.shut()
	g.mu.Lock()
	defer g.mu.Unlock()
	return shut || time.Since(g.last) < d
}

// mixture is the load of TestRollingRestarts: a topic whose old records go (stream), one whose records stay (kept) and that
// a group reads, a compacted one, topics that come and go, and settings that change.
type mixture struct {
	*cast
	gate    *gate
	stream  *stream
	kept    *pressure
	latest  *latest
	members []*seat
	commits *commits
	history *history
	churn   *churn
	stops   []func() // end what reads, and the commits
}

func (l *mixture) topics() []string {
	return []string{l.stream.topic, l.kept.topic, l.latest.topic, offsetsTopic}
}

// mix starts all but the churn.
func (s *cast) mix(t *testing.T) *mixture {
	t.Helper()
	l := &mixture{cast: s, gate: &gate{path: os.Getenv(pauseVariable)}, commits: newCommits()}
	s.topic(t, "stream", 6, 3, "min.insync.replicas=2", "segment.bytes=16777216", "retention.bytes=33554432")
	s.topic(t, "kept", 3, 3, "min.insync.replicas=2")
	s.topic(t, "latest", 2, 3, "min.insync.replicas=2", "cleanup.policy=compact", "segment.ms=10000", "min.cleanable.dirty.ratio=0.1")
	l.stream = newStream(t, s, "stream", 6, l.gate)
	l.kept = &pressure{ledger: newLedger("kept", 3, true), s: s, pace: 50 * time.Millisecond, idle: l.gate.shut}
	l.kept.start(t)
	l.latest = newLatest(t, s, "latest", 2, l.gate)
	for range 2 {
		m := &seat{group: "readers", topic: "kept", balancer: kgo.CooperativeStickyBalancer}
		if err := m.sit(t.Context(), l.commits, s.seeds()...); err != nil {
			t.Fatal(err)
		}
		l.members, l.stops = append(l.members, m), append(l.stops, m.stop)
	}
	testnode.Until(t, testnode.Patience, "the offsets topic", func() error {
		_, err := s.look(t.Context(), offsetsTopic)
		return err
	})
	s.full(t, offsetsTopic)
	h, stop, err := watchGroups(t.Context(), s.seeds()...)
	if err != nil {
		t.Fatal(err)
	}
	l.history, l.stops = h, append(l.stops, stop)
	for i := range l.stops {
		l.stops[i] = sync.OnceFunc(l.stops[i])
		t.Cleanup(l.stops[i])
	}
	l.churn = &churn{cast: s, gate: l.gate}
	return l
}

// flows waits until all kinds of load are at work.
func (l *mixture) flows(t *testing.T) {
	t.Helper()
	testnode.Until(t, 10*time.Minute, "the load is let through", func() error {
		if l.gate.shut() {
			return fmt.Errorf("%s is there", l.gate.path)
		}
		return nil
	})
	l.kept.flows(t, testnode.Patience)
	l.commits.waitRequests(t, 5)
	testnode.Until(t, testnode.Patience, "the stream flows", func() error { return l.stream.passed(600) })
	testnode.Until(t, testnode.Patience, "the table is written", func() error { return l.latest.passed(50) })
}

// healthy fails the test for what must not happen at any time.
func (l *mixture) healthy(t *testing.T) {
	t.Helper()
	l.commits.mu.Lock()
	errs := slices.Clone(l.commits.errs)
	l.commits.mu.Unlock()
	l.history.mu.Lock()
	errs = append(errs, l.history.errs...)
	l.history.mu.Unlock()
	l.kept.mu.Lock()
	errs = append(errs, l.kept.errs...)
	l.kept.mu.Unlock()
	errs = append(errs, l.stream.passed(0), l.latest.passed(0), l.churn.failed())
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// end stops the load and looks at everything it left behind.
func (l *mixture) end(t *testing.T) map[string]any {
	t.Helper()
	l.kept.end(t)
	l.stream.end(t)
	l.latest.end(t)
	l.members[0].stop()
	promised := l.commits.promised()
	for _, stop := range l.stops[:len(l.stops)-1] { // not yet who watches
		stop()
	}
	testnode.Until(t, testnode.Patience, "committed offsets", func() error { return l.commits.check(t.Context(), l.Node(1), promised) })
	l.history.finish(t, l.Node(1))
	l.stops[len(l.stops)-1]()
	l.churn.gone(t)
	l.healthy(t)
	return map[string]any{
		"stream_records": total64(l.stream.acked), "stream_bytes": total64(l.stream.acked) * streamBytes, "kept_records": l.kept.numAcked(),
		"table_records": l.latest.acked, "commits": l.commits.numRequests(), "topics_made": l.churn.made, "settings_changed": l.churn.changed,
	}
}

func total64(list []int64) (sum int64) {
	for _, n := range list {
		sum += n
	}
	return sum
}

// stream is a topic that is written and read at the same time, so that retention may take what has been read. Records of a
// partition are numbered from 1.
type stream struct {
	topic  string
	cancel func()
	work   sync.WaitGroup
	client *kgo.Client

	mu          sync.Mutex
	sent, acked []int64           // by partition: records
	read        []int64           // by partition: the number of the last record that was read
	open        []map[int64]int64 // by partition: offsets, by number, that only the producer or only the reader was told
	errs        []error
}

// streamBytes is the size of a record of a stream.
const streamBytes = 1000

func newStream(t *testing.T, s *cast, topic string, partitions int32, g *gate) *stream {
	t.Helper()
	x := &stream{topic: topic, sent: make([]int64, partitions), acked: make([]int64, partitions), read: make([]int64, partitions)}
	for range partitions {
		x.open = append(x.open, map[int64]int64{})
	}
	x.client = s.Client(t, slices.Concat(prompt, []kgo.Opt{
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(5 * time.Millisecond), kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.StopProducerOnDataLossDetected(), kgo.MaxBufferedRecords(20_000),
	})...)
	reader := s.Client(t, slices.Concat(prompt, []kgo.Opt{kgo.ConsumeTopics(topic), kgo.FetchMaxWait(100 * time.Millisecond)})...)
	ctx, cancel := context.WithCancel(t.Context())
	x.work.Go(func() { x.write(ctx, g) })
	reading, end := context.WithCancel(t.Context())
	var reads sync.WaitGroup
	reads.Go(func() { x.follow(reading, reader) })
	x.cancel = cancel
	t.Cleanup(func() {
		cancel()
		end()
		x.work.Wait()
		reads.Wait()
	})
	return x
}

// write sends about two megabytes a second.
func (x *stream) write(ctx context.Context, g *gate) {
	filler := make([]byte, streamBytes)
	for i := range filler {
		filler[i] = byte(rand.IntN(256))
	}
	pace := time.NewTicker(25 * time.Millisecond)
	defer pace.Stop()
	for ctx.Err() == nil {
		<-pace.C
		if g.shut() {
			continue
		}
		for i := range 48 {
			x.client.Produce(context.WithoutCancel(ctx), x.next(int32(i)%int32(len(x.sent)), filler), x.told)
		}
	}
}

func (x *stream) next(p int32, filler []byte) *kgo.Record {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.sent[p]++
	value := slices.Clone(filler)
	binary.BigEndian.PutUint64(value, uint64(x.sent[p]))
	return &kgo.Record{Topic: x.topic, Partition: p, Value: value}
}

func (x *stream) told(r *kgo.Record, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err != nil {
		x.errs = append(x.errs, fmt.Errorf("%s-%d: an idempotent producer gave up: %w", r.Topic, r.Partition, err))
		return
	}
	x.acked[r.Partition]++
	x.match(r, "acked")
}

// match compares what producer and reader are told of one record, when both have been.
func (x *stream) match(r *kgo.Record, how string) {
	n := int64(binary.BigEndian.Uint64(r.Value))
	other, ok := x.open[r.Partition][n]
	if !ok {
		x.open[r.Partition][n] = r.Offset
		return
	}
	delete(x.open[r.Partition], n)
	if other != r.Offset {
		x.errs = append(x.errs, fmt.Errorf("%s-%d: number %d is %s at offset %d, and was told to be at %d", x.topic, r.Partition, n, how, r.Offset, other))
	}
}

// follow reads the topic to its end, all the time.
func (x *stream) follow(ctx context.Context, c *kgo.Client) {
	for ctx.Err() == nil {
		fetches := c.PollFetches(ctx)
		x.mu.Lock()
		fetches.EachError(func(topic string, p int32, err error) {
			if lost := (*kgo.ErrDataLoss)(nil); errors.As(err, &lost) {
				x.errs = append(x.errs, fmt.Errorf("%s-%d: %w", topic, p, err))
			}
		})
		for _, r := range fetches.Records() {
			if n := int64(binary.BigEndian.Uint64(r.Value)); n != x.read[r.Partition]+1 {
				x.errs = append(x.errs, fmt.Errorf("%s-%d: offset %d holds number %d after %d", x.topic, r.Partition, r.Offset, n, x.read[r.Partition]))
			}
			x.read[r.Partition]++
			x.match(r, "read")
		}
		x.mu.Unlock()
	}
}

// passed is nil when so many records have been read and nothing was wrong.
func (x *stream) passed(records int64) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.errs) > 0 {
		return x.errs[0]
	}
	if n := total64(x.read); n < records {
		return fmt.Errorf("%d of %d records read", n, records)
	}
	return nil
}

// end stops the producer; all that was sent has been acked once and read once.
func (x *stream) end(t *testing.T) {
	t.Helper()
	x.cancel()
	x.work.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), testnode.Patience)
	defer cancel()
	if err := x.client.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	testnode.Until(t, testnode.Patience, x.topic+": all is read", func() error {
		x.mu.Lock()
		defer x.mu.Unlock()
		for p := range x.sent {
			if x.sent[p] != x.acked[p] || x.read[p] != x.sent[p] || len(x.open[p]) > 0 {
				return fmt.Errorf("partition %d: sent %d, acked %d, read %d, %d of them only one of both", p, x.sent[p], x.acked[p], x.read[p], len(x.open[p]))
			}
		}
		return nil
	})
}

// latest is a compacted topic of a few keys whose values count.
type latest struct {
	topic  string
	cancel func()
	work   sync.WaitGroup
	client *kgo.Client
	s      *cast

	mu    sync.Mutex
	sent  map[string]int
	acked int
	errs  []error
}

const latestKeys = 200

func newLatest(t *testing.T, s *cast, topic string, partitions int32, g *gate) *latest {
	t.Helper()
	x := &latest{topic: topic, s: s, sent: map[string]int{}}
	x.client = s.Client(t, slices.Concat(prompt, []kgo.Opt{kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.StopProducerOnDataLossDetected()})...)
	ctx, cancel := context.WithCancel(t.Context())
	x.cancel = cancel
	x.work.Go(func() {
		pace := time.NewTicker(20 * time.Millisecond)
		defer pace.Stop()
		for i := 0; ctx.Err() == nil; i++ {
			<-pace.C
			if !g.shut() {
				x.client.Produce(context.WithoutCancel(ctx), x.next(i%latestKeys, partitions), x.told)
			}
		}
	})
	t.Cleanup(func() { cancel(); x.work.Wait() })
	return x
}

func (x *latest) next(i int, partitions int32) *kgo.Record {
	x.mu.Lock()
	defer x.mu.Unlock()
	key := strconv.Itoa(i)
	x.sent[key]++
	return &kgo.Record{Topic: x.topic, Partition: int32(i) % partitions, Key: []byte(key), Value: strconv.AppendInt(nil, int64(x.sent[key]), 10)}
}

func (x *latest) told(r *kgo.Record, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err != nil {
		x.errs = append(x.errs, fmt.Errorf("%s-%d: an idempotent producer gave up: %w", r.Topic, r.Partition, err))
		return
	}
	x.acked++
}

func (x *latest) passed(records int) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.errs) > 0 {
		return x.errs[0]
	}
	if x.acked < records {
		return fmt.Errorf("%d of %d records acked", x.acked, records)
	}
	return nil
}

// end stops the producer; the values of a key never go back, and the last of each key is the last that was sent.
func (x *latest) end(t *testing.T) {
	t.Helper()
	x.cancel()
	x.work.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), testnode.Patience)
	defer cancel()
	if err := x.client.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	x.mu.Lock()
	want := maps.Clone(x.sent)
	x.mu.Unlock()
	reader := x.s.Client(t, slices.Concat(prompt, []kgo.Opt{kgo.ConsumeTopics(x.topic), kgo.FetchMaxWait(100 * time.Millisecond)})...)
	have := map[string]int{}
	for !maps.Equal(have, want) {
		fetches := reader.PollFetches(ctx)
		if ctx.Err() != nil {
			break
		}
		for _, r := range fetches.Records() {
			n, err := strconv.Atoi(string(r.Value))
			if err != nil || n <= have[string(r.Key)] {
				t.Errorf("%s-%d: offset %d: key %s has %q after %d", x.topic, r.Partition, r.Offset, r.Key, r.Value, have[string(r.Key)])
			}
			have[string(r.Key)] = n
		}
	}
	for key, n := range want {
		if have[key] != n {
			t.Errorf("%s: key %s ends with %d, sent was %d", x.topic, key, have[key], n)
		}
	}
}

// churn makes and deletes topics and changes settings, one after the other.
type churn struct {
	*cast
	gate *gate
	stop func()

	mu            sync.Mutex
	made, changed int
	errs          []error
}

// start does something every so often.
func (x *churn) start(t *testing.T, every time.Duration) {
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	work.Go(func() {
		pace := time.NewTicker(every)
		defer pace.Stop()
		for i := 0; ; i++ {
			select {
			case <-pace.C:
			case <-ctx.Done():
				return
			}
			if x.gate.shut() {
				continue
			}
			if err := x.turn(ctx, i); err != nil && ctx.Err() == nil {
				x.mu.Lock()
				x.errs = append(x.errs, err)
				x.mu.Unlock()
				return
			}
		}
	})
	x.stop = sync.OnceFunc(func() { cancel(); work.Wait() })
	t.Cleanup(x.stop)
}

// turn makes a topic, writes to it, changes settings, and deletes the topic again.
func (x *churn) turn(ctx context.Context, i int) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), testnode.Patience)
	defer cancel()
	name := "comes-" + strconv.Itoa(i)
	if err := again(ctx, kerr.TopicAlreadyExists, func() error {
		_, err := x.admin.CreateTopic(ctx, 3, 3, nil, name)
		return err
	}); err != nil {
		return fmt.Errorf("create %s: %w", name, err)
	}
	for p := range int32(3) {
		if err := x.client.ProduceSync(ctx, &kgo.Record{Topic: name, Partition: p, Value: []byte(name)}).FirstErr(); err != nil {
			return fmt.Errorf("produce to %s: %w", name, err)
		}
	}
	if err := again(ctx, nil, func() error { return x.change(ctx, i) }); err != nil {
		return fmt.Errorf("change settings: %w", err)
	}
	if err := again(ctx, kerr.UnknownTopicOrPartition, func() error {
		_, err := x.admin.DeleteTopic(ctx, name)
		return err
	}); err != nil {
		return fmt.Errorf("delete %s: %w", name, err)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.made++
	x.changed += 2
	return nil
}

// change sets something of a topic and of all brokers.
func (x *churn) change(ctx context.Context, i int) error {
	set := func(key string, value int) []kadm.AlterConfig {
		text := strconv.Itoa(value)
		return []kadm.AlterConfig{{Name: key, Value: &text}}
	}
	topics, err := x.admin.AlterTopicConfigs(ctx, set("max.compaction.lag.ms", 1_000_000_000+i), "stream")
	if err != nil {
		return err
	}
	brokers, err := x.admin.AlterBrokerConfigs(ctx, set("log.retention.ms", 1_000_000_000+i))
	if err != nil {
		return err
	}
	for _, r := range slices.Concat(topics, brokers) {
		err = errors.Join(err, r.Err)
	}
	return err
}

// again repeats what fails while a node restarts, until ctx ends; done is the error of what had succeeded before its
// answer was lost.
func again(ctx context.Context, done error, f func() error) error {
	for {
		err := f()
		if err == nil || done != nil && errors.Is(err, done) {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (x *churn) failed() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return errors.Join(x.errs...)
}

// gone: no topic that was deleted is left, neither in the metadata nor on a disk; of one that was deleted while a node was down
// that node keeps a stray log.
func (x *churn) gone(t *testing.T) {
	t.Helper()
	testnode.Until(t, testnode.Patience, "deleted topics go", func() error {
		topics, err := x.admin.ListTopics(t.Context())
		if err != nil {
			return err
		}
		for _, name := range topics.Names() {
			if strings.HasPrefix(name, "comes-") {
				return fmt.Errorf("topic %s is there", name)
			}
		}
		for _, n := range x.Nodes {
			entries, err := os.ReadDir(n.LogDirs[0])
			if err != nil {
				return err
			}
			for _, e := range entries {
				if strings.HasPrefix(e.Name(), "comes-") && !strings.HasSuffix(e.Name(), "-stray") {
					return fmt.Errorf("node %d has %s", n.ID, e.Name())
				}
			}
		}
		return nil
	})
}
