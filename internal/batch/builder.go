package batch

import (
	"encoding/binary"
	"fmt"
	"math"

	"weir/internal/batch/compress"
)

// Options are the header fields of a batch to build. NewOptions gives those of a batch without a producer; the zero value would
// claim producer 0.
type Options struct {
	Codec         Codec
	Level         int // in the codec's own scale, or LevelDefault
	BaseOffset    int64
	LeaderEpoch   int32
	ProducerID    int64
	ProducerEpoch int16
	BaseSequence  int32
	TimestampType TimestampType
	LogAppendMs   int64 // MaxTimestamp when TimestampType is LogAppendTime
	Transactional bool
	Control       bool
	// DeleteHorizonMs is the delete horizon that a cleaner sets (KIP-534); 0 is none. It becomes the base timestamp.
	DeleteHorizonMs int64
}

// NewOptions are the options of a plain batch at offset 0: no producer, no leader epoch, no compression.
func NewOptions() Options {
	return Options{Level: LevelDefault, LeaderEpoch: NoLeaderEpoch, ProducerID: NoProducerID, ProducerEpoch: NoProducerEpoch, BaseSequence: NoSequence}
}

// Builder writes one batch record by record. It is for one goroutine. Compressed output is produced as records
// arrive, so that only the result is held in memory.
type Builder struct {
	opts    Options
	out     compress.Writer
	scratch []byte // one encoded record
	count   int
	last    int32 // offset delta of the last record, -1 before the first
	base    int64 // base timestamp
	max     int64
	maxAt   int32 // offset delta of the first record with max
	raw     int   // bytes of records before compression
}

// NewBuilder starts a batch.
func NewBuilder(o Options) *Builder {
	b := new(Builder)
	b.Reset(o)
	return b
}

// Reset starts another batch, keeping compressor state. The codec must be valid.
func (b *Builder) Reset(o Options) {
	b.opts, b.count, b.last, b.base, b.max, b.maxAt, b.raw = o, 0, -1, NoTimestamp, NoTimestamp, -1, 0
	if o.DeleteHorizonMs > 0 {
		b.base = o.DeleteHorizonMs
	}
	if err := b.out.Reset(o.Codec, o.Level, make([]byte, HeaderLen, 512), false); err != nil {
		panic(fmt.Sprintf("BUG: batch builder: %v", err))
	}
}

// Append adds a record at the next offset.
func (b *Builder) Append(ts int64, key, value []byte, headers []Header) {
	b.AppendAt(b.last+1, ts, key, value, headers)
}

// AppendAt adds a record whose offset delta must be larger than the last one's: compaction leaves holes.
func (b *Builder) AppendAt(delta int32, ts int64, key, value []byte, headers []Header) {
	rest := fieldLen(key) + fieldLen(value) + varlongLen(int64(len(headers)))
	for i := range headers {
		rest += fieldLen(headers[i].Key) + fieldLen(headers[i].Value)
	}
	b.begin(delta, ts, rest)
	s := b.field(b.scratch[:0], key)
	s = appendVarint(b.field(s, value), int32(len(headers)))
	for i := range headers {
		k := headers[i].Key
		if k == nil {
			k = []byte{} // a header's key is never null
		}
		s = b.field(b.field(s, k), headers[i].Value)
	}
	b.write(s)
	if b.scratch = s[:0]; cap(s) > keepWindow {
		b.scratch = nil
	}
}

// begin writes a record up to its deltas; rest bytes of it are to follow: key, value, headers.
func (b *Builder) begin(delta int32, ts int64, rest int) {
	if delta <= b.last {
		panic(fmt.Sprintf("BUG: batch builder: offset delta %d after %d", delta, b.last))
	}
	if b.count == 0 && b.opts.DeleteHorizonMs <= 0 {
		b.base = ts
	}
	if ts > b.max {
		b.max, b.maxAt = ts, delta
	}
	b.count++
	b.last = delta
	s := appendVarint(b.scratch[:0], int32(1+varlongLen(ts-b.base)+varlongLen(int64(delta))+rest))
	s = appendVarint(appendVarlong(append(s, 0), ts-b.base), delta)
	b.write(s)
	b.scratch = s[:0]
}

// field appends a field to s, but writes s and the field when that is large: what is large is not copied.
func (b *Builder) field(s, f []byte) []byte {
	if len(f) <= windowLen {
		return appendField(s, f)
	}
	b.write(appendVarint(s, int32(len(f))))
	b.write(f)
	return s[:0]
}

// write adds bytes of a record that was begun.
func (b *Builder) write(p []byte) {
	if _, err := b.out.Write(p); err != nil {
		panic(fmt.Sprintf("BUG: batch builder: writing to memory: %v", err))
	}
	b.raw += len(p)
}

// Len is the length of the batch in bytes so far. With compression it may lag behind what was appended.
func (b *Builder) Len() int { return b.out.Len() }

// RawLen is how long the batch would be uncompressed.
func (b *Builder) RawLen() int { return HeaderLen + b.raw }

// Count is the number of records so far.
func (b *Builder) Count() int { return b.count }

// Build completes the batch; without records it is an empty batch, as compaction leaves. The result is owned by the caller. The
// builder may only be Reset afterwards.
func (b *Builder) Build() Batch { return b.build(max(b.last, 0)) }

// BuildUpTo is Build with a last offset delta that is not smaller than the last record's: compaction keeps a batch's range.
func (b *Builder) BuildUpTo(lastDelta int32) Batch {
	if lastDelta < b.last {
		panic(fmt.Sprintf("BUG: batch builder: last offset delta %d before record %d", lastDelta, b.last))
	}
	return b.build(lastDelta)
}

func (b *Builder) build(lastDelta int32) Batch {
	raw, err := b.out.Close()
	if err != nil || len(raw) > math.MaxInt32 {
		panic(fmt.Sprintf("BUG: batch builder: %d bytes: %v", len(raw), err))
	}
	o := &b.opts
	attrs := uint16(o.Codec)
	if b.count == 0 { // an empty batch has no compressed stream either
		raw, attrs = raw[:HeaderLen], 0
	}
	out := Batch(raw)
	maxTS := b.max
	if o.TimestampType == LogAppendTime {
		attrs |= attrLogAppend
		maxTS = o.LogAppendMs
	}
	if o.Transactional {
		attrs |= attrTransactional
	}
	if o.Control {
		attrs |= attrControl
	}
	if o.DeleteHorizonMs > 0 {
		attrs |= attrDeleteHorizon
	}
	binary.BigEndian.PutUint32(out[offLength:], uint32(len(out)-OverheadLen))
	out[offMagic] = 2
	out.SetBaseOffset(o.BaseOffset)
	out.SetLeaderEpoch(o.LeaderEpoch)
	binary.BigEndian.PutUint16(out[offAttributes:], attrs)
	binary.BigEndian.PutUint32(out[offLastOffsetDelta:], uint32(lastDelta))
	binary.BigEndian.PutUint64(out[offBaseTimestamp:], uint64(b.base))
	binary.BigEndian.PutUint64(out[offMaxTimestamp:], uint64(maxTS))
	binary.BigEndian.PutUint64(out[offProducerID:], uint64(o.ProducerID))
	binary.BigEndian.PutUint16(out[offProducerEpoch:], uint16(o.ProducerEpoch))
	binary.BigEndian.PutUint32(out[offBaseSequence:], uint32(o.BaseSequence))
	binary.BigEndian.PutUint32(out[offCount:], uint32(b.count))
	out.setCRC()
	return out
}
