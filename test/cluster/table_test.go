package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"

	"weir/internal/rng"
	"weir/test/testnode"
)

// table is a compacted topic as its writers know it. Each key has one writer and one partition. The records of a key are
// numbered; key and number decide everything else of a record, so that whatever is read can be checked alone.
type table struct {
	topic      string
	partitions int32
	deletes    bool // cleanup.policy is compact,delete: old keys may be gone

	mu      sync.Mutex
	cells   map[string]cell
	records int // acked
	errs    []error
}

// cell is what is known of one key.
type cell struct {
	sent, acked int       // the highest number handed to the producer, and acked
	at          time.Time // when the latter was sent
	once        bool      // its producer is idempotent: a reader never sees numbers go back
}

func newTable(topic string, partitions int32, deletes bool) *table {
	return &table{topic: topic, partitions: partitions, deletes: deletes, cells: map[string]cell{}}
}

const numberHeader = "n"

func tableDice(key string, n int) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s/%d", key, n)
	return h.Sum64()
}

// tombstone says whether the n-th record of a key deletes it.
func tombstone(key string, n int) bool { return tableDice(key, n)%8 == 0 }

// row is the n-th record of a key, without its place.
func row(key string, n int) *kgo.Record {
	d := tableDice(key, n) >> 8
	r := &kgo.Record{Key: []byte(key), Headers: []kgo.RecordHeader{{Key: numberHeader, Value: strconv.AppendInt(nil, int64(n), 10)}}}
	if d%5 == 0 {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: "", Value: []byte{}}, kgo.RecordHeader{Key: "again", Value: []byte(key)}, kgo.RecordHeader{Key: "again", Value: nil})
	}
	switch {
	case tombstone(key, n):
	case d%16 == 1:
		r.Value = []byte{}
	default:
		r.Value = []byte(strings.Repeat(fmt.Sprintf("%s/%d,", key, n), 1+int(d%24)))
	}
	return r
}

// next makes the next record of the i-th key of a writer.
func (t *table) next(writer, i int, once bool) (*kgo.Record, int) {
	key := fmt.Sprintf("%d/%d", writer, i)
	if writer == 0 && i == 0 {
		key = "" // an empty key is a key
	}
	t.mu.Lock()
	c := t.cells[key]
	c.sent, c.once = c.sent+1, once
	t.cells[key] = c
	t.mu.Unlock()
	r := row(key, c.sent)
	r.Topic, r.Partition = t.topic, int32(i)%t.partitions
	return r, c.sent
}

func (t *table) ack(key []byte, n int, sent time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.cells[string(key)]
	if n > c.acked {
		c.acked, c.at = n, sent
	}
	t.cells[string(key)] = c
	t.records++
}

func (t *table) numAcked() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.records
}

func (t *table) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.errs) < 10 {
		t.errs = append(t.errs, err)
	}
}

func (t *table) failed() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return errors.Join(t.errs...)
}

func (t *table) snapshot() map[string]cell {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.cells)
}

// writer is one producer of a table, with keys of its own.
type writer struct {
	t     *table
	id    int
	keys  int
	codec kgo.CompressionCodec
	once  bool // idempotent
}

// mayBeGone says whether a tombstone of a key was sent as its n-th record or later; not every one is acked.
func (t *table) mayBeGone(key string, n int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for ; n <= t.cells[key].sent; n++ {
		if tombstone(key, n) {
			return true
		}
	}
	return false
}

// background starts a writer; stop has it send what it holds and returns when all of that is acked.
func (w *writer) background(ctx context.Context, addr string) (stop func(), err error) {
	opts := []kgo.Opt{
		kgo.SeedBrokers(addr), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MaxBufferedRecords(300), kgo.ProducerBatchCompression(w.codec),
		kgo.ProducerLinger(time.Millisecond), kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }), kgo.AlwaysRetryEOF(),
	}
	if !w.once { // one request at a time keeps the order of repeated ones
		opts = append(opts, kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(1))
	}
	c, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, err
	}
	running, end := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() { w.produce(running, ctx, c) })
	return func() {
		end()
		done.Wait()
		if err := c.Flush(ctx); err != nil {
			w.t.fail(fmt.Errorf("writer %d: records that are not acked in the end: %w", w.id, err))
		}
		c.Close()
	}, nil
}

// pick chooses a key: half of all records are of a tenth of the keys.
func (w *writer) pick(dice *rng.Source) int {
	if dice.IntN(2) == 0 {
		return dice.IntN(w.keys/10 + 1)
	}
	return dice.IntN(w.keys)
}

// produce hands over a burst of records every few milliseconds until running ends.
func (w *writer) produce(running, ctx context.Context, c *kgo.Client) {
	dice := rng.New(uint64(w.id))
	pace := time.NewTicker(5 * time.Millisecond)
	defer pace.Stop()
	for running.Err() == nil {
		<-pace.C
		for range 1 + dice.IntN(15) {
			r, n := w.t.next(w.id, w.pick(dice), w.once)
			sent := time.Now()
			c.Produce(ctx, r, func(r *kgo.Record, err error) {
				if err == nil {
					w.t.ack(r.Key, n, sent)
				} else if ctx.Err() == nil {
					w.t.fail(fmt.Errorf("%s-%d: writer %d gave up: %w", r.Topic, r.Partition, w.id, err))
				}
			})
		}
	}
}

// unsure starts a writer that sends one hand-made batch at a time and never again: the last records of a key may be there
// or not. Now and then it tries a record without a key, which must be refused.
func (w *writer) unsure(ctx context.Context, addr string) (stop func(), err error) {
	c, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.RequestRetries(0), kgo.MaxVersions(kversion.V2_8_0()))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		dice := rng.New(uint64(w.id))
		for i := 1; ctx.Err() == nil; i++ {
			if i%100 == 0 {
				if _, err := produceOne(ctx, c, &kgo.Record{Topic: w.t.topic, Value: []byte("no key")}, -1); err == nil || isKafka(err) && !kerr.IsRetriable(err) && !errors.Is(err, kerr.InvalidRecord) {
					w.t.fail(fmt.Errorf("a record without a key: %v, want %w", err, kerr.InvalidRecord))
				}
			}
			r, n := w.t.next(w.id, w.pick(dice), true)
			sent := time.Now()
			_, err := produceOne(ctx, c, r, -1)
			pause := 5 * time.Millisecond
			switch {
			case err == nil:
				w.t.ack(r.Key, n, sent)
			case isKafka(err) && !kerr.IsRetriable(err):
				w.t.fail(fmt.Errorf("writer %d: %w", w.id, err))
			default:
				pause = 20 * time.Millisecond // the node is down: ask again a little later
			}
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		}
	})
	return func() { cancel(); done.Wait(); c.Close() }, nil
}

// isKafka says that an error is an answer, not the lack of one.
func isKafka(err error) bool {
	var k *kerr.Error
	return errors.As(err, &k)
}

// view is what a reader has seen of a table.
type view struct {
	t      *table
	next   map[int32]int64
	newest map[string]int
	count  map[string]int // records by key
	dead   int            // tombstones
	began  time.Time
}

func newView(t *table) *view {
	return &view{t: t, next: map[int32]int64{}, newest: map[string]int{}, count: map[string]int{}, began: time.Now()}
}

// see takes the next record and checks all that can be checked of one.
func (v *view) see(r *kgo.Record) error {
	if r.Offset < v.next[r.Partition] {
		return fmt.Errorf("offset %d where %d or more was to come", r.Offset, v.next[r.Partition])
	}
	v.next[r.Partition] = r.Offset + 1
	if len(r.Headers) == 0 || r.Headers[0].Key != numberHeader {
		return fmt.Errorf("offset %d: headers %v", r.Offset, r.Headers)
	}
	n, err := strconv.Atoi(string(r.Headers[0].Value))
	if err != nil {
		return fmt.Errorf("offset %d: %w", r.Offset, err)
	}
	key := string(r.Key)
	if want := row(key, n); !equalRow(r, want) {
		return fmt.Errorf("offset %d: key %q number %d holds %.40q with headers %v, want %.40q with %v", r.Offset, key, n, r.Value, r.Headers, want.Value, want.Headers)
	}
	v.t.mu.Lock()
	c, known := v.t.cells[key]
	v.t.mu.Unlock()
	switch {
	case !known || n > c.sent:
		return fmt.Errorf("offset %d: key %q number %d, which was never sent", r.Offset, key, n)
	case c.once && n <= v.newest[key]:
		return fmt.Errorf("offset %d: key %q number %d after %d", r.Offset, key, n, v.newest[key])
	}
	v.newest[key] = n
	v.count[key]++
	if r.Value == nil {
		v.dead++
	}
	return nil
}

func equalRow(a, b *kgo.Record) bool {
	if !bytes.Equal(a.Value, b.Value) || (a.Value == nil) != (b.Value == nil) || len(a.Headers) != len(b.Headers) {
		return false
	}
	for i, h := range a.Headers {
		if w := b.Headers[i]; h.Key != w.Key || !bytes.Equal(h.Value, w.Value) || (h.Value == nil) != (w.Value == nil) {
			return false
		}
	}
	return true
}

// missing tells of a key that is not what was acked before the reader began. retention is retention.ms (0: none). A
// reader that takes longer than delete.retention.ms may miss tombstones, so those count in views of patient readers only.
func (v *view) missing(promised map[string]cell, retention, deleteRetention time.Duration) error {
	now := time.Now()
	slow := now.Sub(v.began) >= deleteRetention
	for key, c := range promised {
		got := v.newest[key]
		switch {
		case c.acked == 0 || got >= c.acked:
			continue
		case (got == 0 || slow) && v.t.mayBeGone(key, c.acked):
			continue
		case v.t.deletes && now.Sub(c.at) > retention && (got == 0 || slow):
			continue // retention is no promise, so it may also be there
		}
		return fmt.Errorf("%s: key %q is at number %d after %v of reading, %d (tombstone: %t) was acked", v.t.topic, key, got, now.Sub(v.began).Round(time.Millisecond), c.acked, tombstone(key, c.acked))
	}
	return nil
}

// reader consumes a table from its beginning.
type reader struct {
	*view
	c     *kgo.Client
	moved time.Time // when it last got a record
}

// newReader makes a consumer of all partitions. Of a topic that is compacted and no more it asks for offset 0 and takes no
// other.
func newReader(addr string, t *table, fetchBytes int32) (*reader, error) {
	from, reset := kgo.NewOffset().At(0), kgo.NoResetOffset()
	if t.deletes {
		from = kgo.NewOffset().AtStart()
		reset = from
	}
	all := map[int32]kgo.Offset{}
	for p := range t.partitions {
		all[p] = from
	}
	c, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{t.topic: all}), kgo.ConsumeResetOffset(reset),
		kgo.FetchMaxWait(100*time.Millisecond), kgo.FetchMaxPartitionBytes(fetchBytes), kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }))
	return &reader{view: newView(t), c: c, moved: time.Now()}, err
}

// poll takes what is there within a moment.
func (r *reader) poll(ctx context.Context) error {
	short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	fs := r.c.PollFetches(short)
	for _, e := range fs.Errors() {
		var lost *kgo.ErrDataLoss
		if isKafka(e.Err) || errors.As(e.Err, &lost) {
			return fmt.Errorf("%s-%d: a consumer at %d is told: %w", e.Topic, e.Partition, r.next[e.Partition], e.Err)
		}
	}
	for rec := range fs.RecordsAll() {
		if err := r.see(rec); err != nil {
			return fmt.Errorf("%s-%d: %w", rec.Topic, rec.Partition, err)
		}
		r.moved = time.Now()
	}
	return ctx.Err()
}

// ends are the partitions' ends, as soon as the node tells.
func (r *reader) ends(ctx context.Context) (map[int32]int64, error) {
	return r.list(ctx, (*kadm.Client).ListEndOffsets)
}

func (r *reader) list(ctx context.Context, ask func(*kadm.Client, context.Context, ...string) (kadm.ListedOffsets, error)) (map[int32]int64, error) {
	for {
		listed, err := ask(kadm.NewClient(r.c), ctx, r.t.topic)
		if err = errors.Join(err, listed.Error()); err == nil {
			out := map[int32]int64{}
			for p, o := range listed[r.t.topic] {
				out[p] = o.Offset
			}
			return out, nil
		}
		if ctx.Err() != nil {
			return nil, err
		}
	}
}

// left says what there is to read below the ends, nil when that is nothing. The active segment keeps its last record, so a
// reader that has not got to the end misses something; but retention may have emptied the log.
func (r *reader) left(ctx context.Context, ends map[int32]int64) error {
	behind := map[int32]int64{}
	for p, end := range ends {
		if r.next[p] < end {
			behind[p] = end
		}
	}
	if len(behind) > 0 && r.t.deletes {
		starts, err := r.list(ctx, (*kadm.Client).ListStartOffsets)
		if err != nil {
			return err
		}
		maps.DeleteFunc(behind, func(p int32, end int64) bool { return starts[p] >= end })
	}
	if len(behind) > 0 {
		return fmt.Errorf("partitions end at %v", behind)
	}
	return nil
}

// stuckLimit is how long a reader that misses something may get no record, restarts of the node included.
const stuckLimit = 30 * time.Second

// readUntil polls until done says so. Errors: what a consumer must not be told, and getting nothing more, or no end.
func (r *reader) readUntil(ctx context.Context, done func() error) error {
	for {
		missing := done()
		if missing == nil {
			return nil
		}
		if err := r.poll(ctx); err != nil && ctx.Err() == nil {
			return err
		}
		if idle := time.Since(r.moved); ctx.Err() != nil || idle > stuckLimit {
			return fmt.Errorf("a reader of %s at %v, which got its last record %v ago, is stuck: %w", r.t.topic, r.next, idle.Round(time.Millisecond), missing)
		}
	}
}

// readTo reads everything below the ends.
func (r *reader) readTo(ctx context.Context, ends map[int32]int64) error {
	return r.readUntil(ctx, func() error { return r.left(ctx, ends) })
}

// readAll reads a table at rest from its start to its end.
func readAll(t *testing.T, n *testnode.Node, table *table) *view {
	t.Helper()
	ctx := t.Context()
	r, err := newReader(n.Addr, table, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer r.c.Close()
	ends, err := r.ends(ctx)
	if err == nil {
		err = r.readTo(ctx, ends)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r.view
}
