package batch

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"runtime"
	"testing"
	"unsafe"

	"github.com/twmb/franz-go/pkg/kerr"

	"weir/internal/batch/compress"
)

func TestNext(t *testing.T) {
	b := make3(None, nowMs, nil)
	two := append(append([]byte{}, b...), b...)
	first, rest, err := Next(two)
	if err != nil || !bytes.Equal(first, b) || !bytes.Equal(rest, b) {
		t.Fatalf("%x, %x, %v", []byte(first), rest, err)
	}
	for n := range b {
		if _, _, err := Next(b[:n]); err != ErrShort {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	for name, edit := range map[string]func(Batch){
		"magic 1":      func(b Batch) { b[offMagic] = 1 },
		"magic -1":     func(b Batch) { b[offMagic] = 0xff },
		"length":       func(b Batch) { copy(b[offLength:], []byte{0, 0, 0, 48}) },
		"minus length": func(b Batch) { copy(b[offLength:], []byte{0xff, 0xff, 0xff, 0xff}) },
	} {
		c := append(Batch{}, b...)
		edit(c)
		var cor *CorruptError
		if _, _, err := Next(c); !errors.As(err, &cor) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := testing.AllocsPerRun(100, func() { Next(two) }); n != 0 {
		t.Errorf("Next allocates %v", n)
	}
}

func TestHeader(t *testing.T) {
	o := Options{Codec: Lz4, BaseOffset: 7, LeaderEpoch: 3, ProducerID: 99, ProducerEpoch: 4, BaseSequence: math.MaxInt32 - 1, Transactional: true, DeleteHorizonMs: nowMs}
	b := buildOf(o, rec{nowMs + 5, nil, nil, nil}, rec{nowMs + 9, nil, nil, nil}, rec{nowMs, nil, nil, nil})
	got := fmt.Sprint(b.BaseOffset(), b.LastOffset(), b.LeaderEpoch(), b.Codec(), b.ProducerID(), b.ProducerEpoch(), b.BaseSequence(), b.LastSequence(),
		b.IsTransactional(), b.IsControl(), b.HasDeleteHorizon(), b.BaseTimestamp() == nowMs, b.MaxTimestamp()-nowMs, b.Count(), b.CheckCRC(), b.TimestampType())
	want := "7 9 3 lz4 99 4 2147483646 0 true false true true 9 3 true CreateTime"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	b.SetBaseOffset(1000)
	b.SetLeaderEpoch(8)
	if !b.CheckCRC() {
		t.Error("patching offset and epoch broke the CRC")
	}
	b.SetMaxTimestamp(LogAppendTime, 42)
	if !b.CheckCRC() || b.MaxTimestamp() != 42 || b.TimestampType() != LogAppendTime {
		t.Error("SetMaxTimestamp")
	}
	for r, err := range b.Records(nil) {
		if err != nil || r.Timestamp != 42 {
			t.Errorf("record time %d, %v", r.Timestamp, err)
		}
	}
}

func TestLogAppendTimeKeepsRecords(t *testing.T) {
	for c := None; c <= Zstd; c++ {
		b := make3(c, nowMs-100, nil)
		before := bytes.Clone(b[HeaderLen:])
		got, err := Validate(b, policyOf("appended", nowMs), nil)
		if err != nil || got.Recompressed || &got.Batch[0] != &b[0] || !bytes.Equal(b[HeaderLen:], before) || !b.CheckCRC() || b.MaxTimestamp() != nowMs || b.TimestampType() != LogAppendTime {
			t.Errorf("%s: %+v, %v", c, got, err)
		}
	}
}

func TestMaxTimestamp(t *testing.T) {
	for c := None; c <= Zstd; c++ {
		o := NewOptions()
		o.Codec = c
		b := buildOf(o, rec{5, nil, nil, nil}, rec{9, nil, nil, nil}, rec{9, nil, nil, nil}, rec{1, nil, nil, nil})
		copy(b[offMaxTimestamp:], []byte{0, 0, 0, 0, 0, 0, 0, 77}) // a lie
		b.setCRC()
		got, err := Validate(b, policyOf("plain", nowMs), nil)
		if err != nil || got.MaxTimestamp != 9 || got.OffsetDeltaOfMaxTimestamp != 1 || b.MaxTimestamp() != 9 || !b.CheckCRC() {
			t.Errorf("%s: %+v, %v", c, got, err)
		}
	}
}

// Values, headers and their order survive a change of codec byte for byte (case K36).
func TestRecompressKeepsBytes(t *testing.T) {
	rs := []rec{{nowMs, nil, []byte{}, []Header{{[]byte("a"), nil}, {[]byte("a"), []byte{}}, {[]byte("\xff\xfe"), []byte("\xc3\x28")}}}, {nowMs + 1, []byte{}, nil, nil}, {nowMs, []byte("\x00"), bytes.Repeat([]byte{0xff}, 200000), nil}}
	var buf Buffers
	for from := None; from <= Zstd; from++ {
		for to := None; to <= Zstd; to++ {
			o := NewOptions()
			o.Codec, o.ProducerID, o.ProducerEpoch, o.BaseSequence, o.Transactional = from, 5, 1, 7, true
			b := buildOf(o, rs...)
			want := dump(t, b, &buf)
			p := policyOf("plain", nowMs)
			p.Target = Target{Recompress: true, Codec: to, Level: LevelDefault}
			got, err := Validate(b, p, &buf)
			if err != nil {
				t.Fatalf("%s to %s: %v", from, to, err)
			}
			n := got.Batch
			if d := dump(t, n, &buf); d != want {
				t.Errorf("%s to %s: got\n%swant\n%s", from, to, d, want)
			}
			if n.Codec() != to || got.Recompressed != (from != to) || n.ProducerID() != 5 || n.ProducerEpoch() != 1 || n.BaseSequence() != 7 || !n.IsTransactional() || n.MaxTimestamp() != nowMs+1 {
				t.Errorf("%s to %s: header lost: %+v", from, to, got)
			}
		}
	}
}

func TestLevels(t *testing.T) {
	for c, levels := range map[Codec][]int{Gzip: {1, 6, 9, -1}, Lz4: {1, 9, 17}, Zstd: {-131072, 1, 3, 22}} {
		for _, l := range levels {
			o := NewOptions()
			o.Codec, o.Level = c, l
			b := buildOf(o, rec{nowMs, nil, bytes.Repeat([]byte("weir over water "), 20000), nil})
			if b.Len() > 40000 {
				t.Errorf("%s level %d: %d bytes", c, l, b.Len())
			}
			for r, err := range b.Records(nil) {
				if err != nil || len(r.Value) != 320000 {
					t.Errorf("%s level %d: %d bytes, %v", c, l, len(r.Value), err)
				}
			}
		}
	}
}

func TestSnappyRaw(t *testing.T) {
	raw := record3(nowMs, 0, 1, 2)
	var w compress.Writer
	if err := w.Reset(Snappy, LevelDefault, nil, false); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(raw); err != nil {
		t.Fatal(err)
	}
	framed, err := w.Close()
	if err != nil {
		t.Fatal(err)
	}
	const xerialHead = 16 + 4
	b, err := Single(compressedPayload(Snappy, nowMs, 3, framed[xerialHead:]), 9)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Validate(b, policyOf("plain", nowMs), nil); err != nil {
		t.Errorf("raw snappy: %v", err)
	}
	// Two xerial streams in a row, and two gzip members, are one stream each.
	two := compressedPayload(Snappy, nowMs, 6, append(bytes.Clone(framed), framed...))
	if n := countRecords(t, two); n != 6 {
		t.Errorf("%d records", n)
	}
}

func countRecords(t *testing.T, b Batch) (n int) {
	for _, err := range b.Records(nil) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

// A batch that inflates to 24 MiB costs no memory to check, whatever its codec; the limits of one record hold.
func TestInflatingBatches(t *testing.T) {
	zeros := make([]byte, 24<<20)
	for c := Gzip; c <= Zstd; c++ {
		o := NewOptions()
		o.Codec = c
		b := buildOf(o, rec{nowMs, []byte("k"), zeros, nil})
		var buf Buffers
		p := policyOf("plain", nowMs)
		p.MaxBatch = 0
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got, err := Validate(b, p, &buf)
		runtime.ReadMemStats(&after)
		if err != nil || got.Count != 1 {
			t.Fatalf("%s: %+v, %v", c, got, err)
		}
		if used := after.TotalAlloc - before.TotalAlloc; used > 12<<20 {
			t.Errorf("%s: checking %d bytes allocated %d", c, b.Len(), used)
		}
	}
}

func TestRecordLimit(t *testing.T) {
	raw := appendVarint(nil, MaxRecord+1)
	for c := Gzip; c <= Zstd; c++ {
		b := rawBatch(c, nowMs, 1, append(raw[:len(raw):len(raw)], make([]byte, 100)...))
		if code, _, _ := verdict(second(Validate(b, policyOf("plain", nowMs), nil))); code != kerr.InvalidRecord.Code {
			t.Errorf("%s: %d", c, code)
		}
	}
}

func second(_ Checked, err error) error { return err }

func TestSingleZstd(t *testing.T) {
	b := make3(Zstd, nowMs, nil)
	if code, _, _ := verdict(secondBatch(Single(b, 6))); code != kerr.UnsupportedCompressionType.Code {
		t.Errorf("v6: %d", code)
	}
	if _, err := Single(b, 7); err != nil {
		t.Errorf("v7: %v", err)
	}
}

func secondBatch(_ Batch, err error) error { return err }

// Checking allocates nothing once the buffers are warm, however many records there are.
func TestValidateAllocates(t *testing.T) {
	for c := None; c <= Lz4; c++ {
		b := benchBatch(c, 500)
		p := benchPolicy()
		var buf Buffers
		n := testing.AllocsPerRun(20, func() {
			if _, err := Validate(b, p, &buf); err != nil {
				t.Fatal(err)
			}
		})
		if n != 0 {
			t.Errorf("%s: %v allocations", c, n)
		}
	}
}

// Builders and buffers are cheap as long as no codec is used: control batches are built all the time.
func TestSmallStructs(t *testing.T) {
	if n := unsafe.Sizeof(Builder{}); n > 1024 {
		t.Errorf("Builder takes %d bytes", n)
	}
	if n := unsafe.Sizeof(Buffers{}); n > 2048 {
		t.Errorf("Buffers takes %d bytes", n)
	}
}

func benchBatch(c Codec, n int) Batch {
	o := NewOptions()
	o.Codec = c
	bl := NewBuilder(o)
	for i := range n {
		bl.Append(nowMs, fmt.Appendf(nil, "key-%d", i), fmt.Appendf(nil, "value %d, which is about a hundred bytes long because that is what people measure with %x", i, i*7919), nil)
	}
	return bl.Build()
}

func benchPolicy() *Policy {
	p := policyOf("plain", nowMs)
	p.MaxBatch = 0
	return p
}

func BenchmarkValidate(b *testing.B) {
	for c := None; c <= Zstd; c++ {
		b.Run(c.String(), func(b *testing.B) {
			batch := benchBatch(c, 1000)
			p := benchPolicy()
			var buf Buffers
			b.SetBytes(int64(benchBatch(None, 1000).Len()))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Validate(batch, p, &buf); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkRecompress(b *testing.B) {
	for c := None; c <= Zstd; c++ {
		b.Run("lz4-"+c.String(), func(b *testing.B) {
			batch := benchBatch(Lz4, 1000)
			p := benchPolicy()
			p.Target = Target{Recompress: c != Lz4, Codec: c, Level: LevelDefault}
			var buf Buffers
			b.SetBytes(int64(benchBatch(None, 1000).Len()))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Validate(batch, p, &buf); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkRecords(b *testing.B) {
	for _, c := range []Codec{None, Lz4} {
		b.Run(c.String(), func(b *testing.B) {
			batch := benchBatch(c, 1000)
			var buf Buffers
			b.SetBytes(int64(benchBatch(None, 1000).Len()))
			b.ReportAllocs()
			for b.Loop() {
				for _, err := range batch.Records(&buf) {
					if err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
