package batch

import (
	"encoding/binary"
	"hash/crc32"
)

// Sizes and field offsets of a v2 batch, in bytes from its start.
const (
	// HeaderLen is the length of a v2 batch header; the records follow it.
	HeaderLen = 61
	// OverheadLen is the base offset and the length field, which the length itself does not count.
	OverheadLen = 12

	offBaseOffset      = 0
	offLength          = 8
	offLeaderEpoch     = 12
	offMagic           = 16
	offCRC             = 17
	offAttributes      = 21
	offLastOffsetDelta = 23
	offBaseTimestamp   = 27
	offMaxTimestamp    = 35
	offProducerID      = 43
	offProducerEpoch   = 51
	offBaseSequence    = 53
	offCount           = 57
)

// Attribute bits of a v2 batch; the low four of them mean the same in message sets.
const (
	attrCodec         = 0x07
	attrLogAppend     = 0x08
	attrTransactional = 0x10
	attrControl       = 0x20
	attrDeleteHorizon = 0x40
)

// Values that stand for "none" in a header.
const (
	NoTimestamp     int64 = -1
	NoProducerID    int64 = -1
	NoProducerEpoch int16 = -1
	NoSequence      int32 = -1
	NoLeaderEpoch   int32 = -1
)

// TimestampType says who set the timestamps of a batch.
type TimestampType uint8

// The two timestamp types. NoTimestampType is what messages of magic 0 have.
const (
	CreateTime TimestampType = iota
	LogAppendTime
	NoTimestampType TimestampType = 255
)

// String gives Kafka's name of the type.
func (t TimestampType) String() string {
	switch t {
	case CreateTime:
		return "CreateTime"
	case LogAppendTime:
		return "LogAppendTime"
	}
	return "NoTimestampType"
}

// Batch is exactly one whole v2 batch: its header and records. It is a view on the bytes and owns
// nothing; accessors must only be called on what Next, NextEntry, Validate or Builder.Build returned.
type Batch []byte

// Next splits the first v2 batch off b. The batch aliases b. ErrShort means that b ends before the batch
// does; *CorruptError that no batch can start here: the length is impossible or the magic is not 2.
// The CRC is not looked at (see CheckCRC). Nothing is allocated on success.
func Next(b []byte) (batch Batch, rest []byte, err error) {
	n, magic, err := EntryLen(b)
	if err != nil {
		return nil, b, err
	}
	if magic != 2 {
		return nil, b, corruptMagic(magic, b)
	}
	if len(b) < n {
		return nil, b, ErrShort
	}
	return Batch(b[:n:n]), b[n:], nil
}

func (b Batch) i64(off int) int64 { return int64(binary.BigEndian.Uint64(b[off:])) }
func (b Batch) i32(off int) int32 { return int32(binary.BigEndian.Uint32(b[off:])) }
func (b Batch) i16(off int) int16 { return int16(binary.BigEndian.Uint16(b[off:])) }

// Len is the whole length in bytes, header included.
func (b Batch) Len() int { return len(b) }

// BaseOffset is the offset of the first record, even when compaction removed it.
func (b Batch) BaseOffset() int64 { return b.i64(offBaseOffset) }

// SetBaseOffset moves the batch. The CRC does not cover this field.
func (b Batch) SetBaseOffset(o int64) { binary.BigEndian.PutUint64(b[offBaseOffset:], uint64(o)) }

// LeaderEpoch is the epoch of the leader that appended the batch.
func (b Batch) LeaderEpoch() int32 { return b.i32(offLeaderEpoch) }

// SetLeaderEpoch stamps the epoch of the appending leader. The CRC does not cover this field.
func (b Batch) SetLeaderEpoch(e int32) { binary.BigEndian.PutUint32(b[offLeaderEpoch:], uint32(e)) }

// Magic is 2.
func (b Batch) Magic() int8 { return int8(b[offMagic]) }

// CRC is the stored CRC-32C.
func (b Batch) CRC() uint32 { return binary.BigEndian.Uint32(b[offCRC:]) }

// Attributes are the raw attribute bits.
func (b Batch) Attributes() int16 { return b.i16(offAttributes) }

// Codec is how the records are compressed. It may be invalid in foreign bytes: see Codec.Valid.
func (b Batch) Codec() Codec { return Codec(b.Attributes() & attrCodec) }

// TimestampType says who set the timestamps.
func (b Batch) TimestampType() TimestampType {
	if b.Attributes()&attrLogAppend != 0 {
		return LogAppendTime
	}
	return CreateTime
}

// IsTransactional says that the batch belongs to a transaction.
func (b Batch) IsTransactional() bool { return b.Attributes()&attrTransactional != 0 }

// IsControl says that the records are control records (transaction markers, KRaft control records).
func (b Batch) IsControl() bool { return b.Attributes()&attrControl != 0 }

// HasDeleteHorizon says that BaseTimestamp is the time at which tombstones and markers may be removed (KIP-534).
func (b Batch) HasDeleteHorizon() bool { return b.Attributes()&attrDeleteHorizon != 0 }

// LastOffsetDelta is LastOffset minus BaseOffset; compaction keeps it when it removes records.
func (b Batch) LastOffsetDelta() int32 { return b.i32(offLastOffsetDelta) }

// LastOffset is the offset of the last record, even when compaction removed it.
func (b Batch) LastOffset() int64 { return b.BaseOffset() + int64(b.LastOffsetDelta()) }

// NextOffset is LastOffset + 1.
func (b Batch) NextOffset() int64 { return b.LastOffset() + 1 }

// BaseTimestamp is what the record's timestamp deltas add to, in ms; with HasDeleteHorizon it is that horizon too.
func (b Batch) BaseTimestamp() int64 { return b.i64(offBaseTimestamp) }

// MaxTimestamp is the largest timestamp of the records, or the append time with LogAppendTime, in ms.
func (b Batch) MaxTimestamp() int64 { return b.i64(offMaxTimestamp) }

// SetMaxTimestamp sets the timestamp type and the maximum in the header and recomputes the CRC, as the
// broker does on append. Nothing is written when both already hold.
func (b Batch) SetMaxTimestamp(t TimestampType, ts int64) {
	if b.TimestampType() == t && b.MaxTimestamp() == ts {
		return
	}
	attrs := b.Attributes() &^ attrLogAppend
	if t == LogAppendTime {
		attrs |= attrLogAppend
	}
	binary.BigEndian.PutUint16(b[offAttributes:], uint16(attrs))
	binary.BigEndian.PutUint64(b[offMaxTimestamp:], uint64(ts))
	b.setCRC()
}

// ProducerID is the idempotent producer's id or NoProducerID.
func (b Batch) ProducerID() int64 { return b.i64(offProducerID) }

// HasProducerID says that the batch comes from an idempotent or transactional producer.
func (b Batch) HasProducerID() bool { return b.ProducerID() > NoProducerID }

// ProducerEpoch is the producer's epoch or -1.
func (b Batch) ProducerEpoch() int16 { return b.i16(offProducerEpoch) }

// BaseSequence is the sequence number of the first record or -1.
func (b Batch) BaseSequence() int32 { return b.i32(offBaseSequence) }

// LastSequence is the sequence number of the last record; it wraps from the largest int32 to 0.
func (b Batch) LastSequence() int32 {
	base := b.BaseSequence()
	if base == NoSequence {
		return NoSequence
	}
	return AddSequence(base, b.LastOffsetDelta())
}

// AddSequence is base + n in the ring 0…MaxInt32 in which sequence numbers run.
func AddSequence(base, n int32) int32 { return int32((int64(base) + int64(n)) & 0x7fffffff) }

// Count is the number of records that the header states.
func (b Batch) Count() int32 { return b.i32(offCount) }

// RecordBytes are the bytes behind the header, compressed as Codec says.
func (b Batch) RecordBytes() []byte { return b[HeaderLen:] }

// ComputeCRC is the CRC-32C of everything from the attributes on.
func (b Batch) ComputeCRC() uint32 { return crc32.Update(0, castagnoli, b[offAttributes:]) }

// CheckCRC says whether the stored CRC is right.
func (b Batch) CheckCRC() bool { return b.CRC() == b.ComputeCRC() }

func (b Batch) setCRC() { binary.BigEndian.PutUint32(b[offCRC:], b.ComputeCRC()) }

// castagnoli is read-only: crc32.MakeTable returns the shared, hardware-accelerated table.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)
