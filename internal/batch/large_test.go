package batch

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
)

// records reads a batch whole.
func recordsOf(t *testing.T, b Batch) (out []Record) {
	t.Helper()
	for r, err := range b.Records(nil) {
		if err != nil {
			t.Fatal(err)
		}
		c := r
		c.Key, c.Value = bytes.Clone(r.Key), bytes.Clone(r.Value)
		c.Headers = nil
		for _, h := range r.Headers {
			c.Headers = append(c.Headers, Header{bytes.Clone(h.Key), bytes.Clone(h.Value)})
		}
		out = append(out, c)
	}
	return out
}

// Records larger than the window are the same after they were compressed anew.
func TestLargeRecordsRecompressed(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	noise := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(r.IntN(20))
		}
		return b
	}
	values := [][]byte{noise(10), noise(3 * windowLen), nil, {}, noise(windowLen), noise(windowLen - 30), noise(2<<20 + 7)}
	for _, from := range []Codec{None, Gzip, Snappy, Lz4, Zstd} {
		for _, to := range []Codec{None, Gzip, Snappy, Lz4, Zstd} {
			if from == to {
				continue
			}
			o := NewOptions()
			o.Codec = from
			in := NewBuilder(o)
			for i, v := range values {
				in.Append(1000+int64(i)*70_000, []byte{byte(i)}, v, []Header{{Key: []byte("h"), Value: v}, {Key: v}})
			}
			b := in.Build()
			c, err := Validate(b, &Policy{BeforeMaxMs: math.MaxInt64, AfterMaxMs: math.MaxInt64, Target: Target{Recompress: true, Codec: to, Level: LevelDefault}}, nil)
			if err != nil {
				t.Fatalf("%v to %v: %v", from, to, err)
			}
			if c.Batch.Codec() != to || !c.Batch.CheckCRC() || c.MaxTimestamp != 1000+6*70_000 || c.OffsetDeltaOfMaxTimestamp != 6 {
				t.Fatalf("%v to %v: %+v", from, to, c)
			}
			want, got := recordsOf(t, b), recordsOf(t, c.Batch)
			for i := range want {
				w, g := want[i], got[i]
				same := w.Timestamp == g.Timestamp && w.Offset == g.Offset && bytes.Equal(w.Key, g.Key) && bytes.Equal(w.Value, g.Value) && (w.Value == nil) == (g.Value == nil)
				for j := range w.Headers {
					same = same && len(g.Headers) == 2 && bytes.Equal(w.Headers[j].Key, g.Headers[j].Key) && bytes.Equal(w.Headers[j].Value, g.Headers[j].Value)
				}
				if !same {
					t.Fatalf("%v to %v: record %d differs", from, to, i)
				}
			}
		}
	}
}

// A few bytes that inflate to one record of 64 MiB cost no such memory, whatever they are compressed to, and are refused
// as soon as what is to be stored is larger than the topic allows.
func TestLargeRecordCostsNoMemory(t *testing.T) {
	for _, from := range []Codec{Gzip, Zstd, Lz4, Snappy} {
		o := NewOptions()
		o.Codec = from
		in := NewBuilder(o)
		in.Append(1, []byte("k"), make([]byte, 64<<20), nil)
		b := in.Build()
		for _, to := range []Codec{None, Gzip, Snappy, Lz4, Zstd} {
			p := Policy{BeforeMaxMs: math.MaxInt64, AfterMaxMs: math.MaxInt64, MaxBatch: 10 << 20, Target: Target{Recompress: true, Codec: to, Level: LevelDefault}}
			buf := new(Buffers)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := Validate(b, &p, buf)
			runtime.ReadMemStats(&after)
			var bad *InvalidRecordError
			if to == None && (!errors.As(err, &bad) || bad.Code != kerr.MessageTooLarge.Code) || to != None && err != nil {
				t.Errorf("%v to %v: %v", from, to, err)
			}
			if mib := (after.TotalAlloc - before.TotalAlloc) >> 20; mib > 64 {
				t.Errorf("%v to %v: %d MiB were allocated", from, to, mib)
			}
		}
	}
}

// Of all Buffers of a pool one at a time holds a large record; the others wait for it.
func TestOneLargeRecordAtATime(t *testing.T) {
	o := NewOptions()
	o.Codec = Gzip
	in := NewBuilder(o)
	in.Append(1, nil, make([]byte, 4<<20), nil)
	b := in.Build()
	var pool Pool
	var holding, most atomic.Int32
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			buf := pool.Get()
			defer pool.Put(buf)
			for _, err := range b.Records(buf) {
				if err != nil {
					t.Error(err)
				}
				most.Store(max(most.Load(), holding.Add(1)))
				runtime.Gosched()
				holding.Add(-1)
			}
		})
	}
	all.Wait()
	if most.Load() != 1 {
		t.Fatalf("%d at a time", most.Load())
	}
}
