package bench

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/batch"
)

// Limits of a Java consumer: fetch.max.bytes, max.partition.fetch.bytes, fetch.max.wait.ms.
const (
	fetchBytes     = 50 << 20
	partitionBytes = 1 << 20
	fetchWaitMs    = 500
)

// consumer reads some partitions of a topic, which one broker leads, over one connection, in a fetch session.
type consumer struct {
	*conn
	topic   topic
	offsets map[int32]int64
	changed []int32 // partitions whose offset the broker does not know yet
	session int32
	epoch   int32
	records int64
}

func newConsumer(tp topic, partitions []int32) (*consumer, error) {
	c, err := dial(tp.leaders[partitions[0]])
	if err != nil {
		return nil, err
	}
	f := &consumer{conn: c, topic: tp, offsets: map[int32]int64{}, changed: partitions}
	for _, p := range partitions {
		f.offsets[p] = 0
	}
	return f, nil
}

// fetch reads once and returns how many records came.
func (f *consumer) fetch() (int64, error) {
	req := kmsg.NewFetchRequest()
	req.Version, req.MaxWaitMillis, req.MinBytes, req.MaxBytes = fetchVersion, fetchWaitMs, 1, fetchBytes
	req.SessionID, req.SessionEpoch = f.session, f.epoch
	if len(f.changed) > 0 {
		rt := kmsg.NewFetchRequestTopic()
		rt.TopicID = f.topic.id
		for _, p := range f.changed {
			rp := kmsg.NewFetchRequestTopicPartition()
			rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = p, f.offsets[p], partitionBytes
			rt.Partitions = append(rt.Partitions, rp)
		}
		req.Topics = append(req.Topics, rt)
	}
	var resp kmsg.FetchResponse
	if err := f.ask(&req, &resp); err != nil {
		return 0, err
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return 0, err
	}
	f.session, f.epoch, f.changed = resp.SessionID, f.epoch+1, f.changed[:0]
	var got int64
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return 0, fmt.Errorf("fetching %s-%d: %w", f.topic.name, p.Partition, err)
			}
			n, next := walk(p.RecordBatches, f.offsets[p.Partition])
			if got += n; next != f.offsets[p.Partition] {
				f.offsets[p.Partition] = next
				f.changed = append(f.changed, p.Partition)
			}
		}
	}
	f.records += got
	return got, nil
}

// walk counts the records of whole batches from an offset on, and says where they end.
func walk(b []byte, from int64) (records, next int64) {
	next = from
	for {
		e, rest, err := batch.NextEntry(b)
		if err != nil { // a cut last batch, as every answer may have
			return records, next
		}
		if v2, ok := e.Batch(); ok && v2.LastOffset() >= next {
			records += min(int64(v2.Count()), v2.NextOffset()-next)
			next = v2.NextOffset()
		}
		b = rest
	}
}

// received is what consumers did.
type received struct {
	records int64
	took    time.Duration
}

// consume reads a topic from the beginning until so many records have come, with n consumers that share the partitions.
func consume(t testing.TB, s System, tp topic, n int, records int64) received {
	t.Helper()
	ends, err := endsOf(s, tp)
	if err != nil {
		t.Fatal(err)
	}
	errs, counts := make([]error, n), make([]int64, n)
	var wg sync.WaitGroup
	start := time.Now()
	for i := range n {
		wg.Go(func() { counts[i], errs[i] = consumeShare(tp, i, n, ends) })
	}
	wg.Wait()
	out := received{took: time.Since(start)}
	for i := range n {
		if errs[i] != nil {
			t.Fatal(errs[i])
		}
		out.records += counts[i]
	}
	if out.records != records {
		t.Fatalf("%s: %d records came of %d", tp.name, out.records, records)
	}
	return out
}

// consumeShare reads every n-th partition up to its end.
func consumeShare(tp topic, i, n int, ends []int64) (int64, error) {
	var mine []int32
	var want int64
	for p := int32(i); p < tp.partitions; p += int32(n) {
		mine = append(mine, p)
		want += ends[p]
	}
	f, err := newConsumer(tp, mine)
	if err != nil {
		return 0, err
	}
	defer f.close()
	for f.records < want {
		if _, err := f.fetch(); err != nil {
			return f.records, err
		}
	}
	return f.records, nil
}

// endsOf are the log ends of a topic, asked from those who lead now.
func endsOf(s System, tp topic) ([]int64, error) {
	c, err := dial(s.Bootstrap()[0])
	if err != nil {
		return nil, err
	}
	now, err := c.leaders(tp.name)
	c.close()
	if err != nil {
		return nil, err
	}
	return now.ends()
}
