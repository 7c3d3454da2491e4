package batch

import (
	"encoding/binary"
	"fmt"
)

const (
	legacyOverhead  = OverheadLen
	legacyMinV0     = 14 // crc 4, magic 1, attributes 1, key length 4, value length 4
	legacyMinV1     = legacyMinV0 + 8
	entryPrefixLen  = offMagic + 1
	legacyMagicByte = offMagic // the magic stands at the same place in every format
)

// EntryLen reads the total length and magic of the entry (v2 batch or message of magic 0 or 1) that starts at head, which
// must hold at least 17 bytes, else ErrShort. *CorruptError: no entry of any format can start here.
func EntryLen(head []byte) (n int, magic int8, err error) {
	if len(head) >= OverheadLen {
		size := int32(binary.BigEndian.Uint32(head[offLength:]))
		if size < legacyMinV0 {
			return 0, 0, &CorruptError{Offset: int64(binary.BigEndian.Uint64(head)), Reason: fmt.Sprintf("record size %d is less than the minimum record overhead (%d)", size, legacyMinV0)}
		}
	}
	if len(head) < entryPrefixLen {
		return 0, 0, ErrShort
	}
	size := int(int32(binary.BigEndian.Uint32(head[offLength:])))
	magic = int8(head[offMagic])
	least := legacyMinV0
	switch magic {
	case 0:
	case 1:
		least = legacyMinV1
	case 2:
		least = HeaderLen - OverheadLen
	default:
		return 0, magic, &CorruptError{Offset: int64(binary.BigEndian.Uint64(head)), Reason: fmt.Sprintf("invalid magic found in record: %d", magic)}
	}
	if size < least {
		return 0, magic, &CorruptError{Offset: int64(binary.BigEndian.Uint64(head)), Reason: fmt.Sprintf("record size %d is less than the minimum %d of magic %d", size, least, magic)}
	}
	return size + OverheadLen, magic, nil
}

// Entry is one whole entry of a log or of a produce request: a v2 batch, or a message of magic 0 or 1 (a compressed
// wrapper with all that it holds counts as one entry). It aliases the bytes it was split off from.
type Entry []byte

// NextEntry splits off the first entry, whatever its magic; errors as Next.
func NextEntry(b []byte) (e Entry, rest []byte, err error) {
	n, _, err := EntryLen(b)
	if err != nil {
		return nil, b, err
	}
	if len(b) < n {
		return nil, b, ErrShort
	}
	return Entry(b[:n:n]), b[n:], nil
}

// Len is the whole length in bytes.
func (e Entry) Len() int { return len(e) }

// Magic is 0, 1 or 2.
func (e Entry) Magic() int8 { return int8(e[legacyMagicByte]) }

// Batch is the entry as a v2 batch, if it is one.
func (e Entry) Batch() (Batch, bool) { return Batch(e), e.Magic() == 2 }

// Message is the entry as a message of magic 0 or 1, if it is one.
func (e Entry) Message() (Message, bool) { return Message(e), e.Magic() < 2 }

// LastOffset is the offset of the last record in the entry.
func (e Entry) LastOffset() int64 {
	if b, ok := e.Batch(); ok {
		return b.LastOffset()
	}
	return Message(e).Offset()
}

// CheckCRC says whether the stored CRC is right.
func (e Entry) CheckCRC() bool {
	if b, ok := e.Batch(); ok {
		return b.CheckCRC()
	}
	return Message(e).CheckCRC()
}

// MaxTimestamp is the largest timestamp in ms, -1 for magic 0.
func (e Entry) MaxTimestamp() int64 {
	if b, ok := e.Batch(); ok {
		return b.MaxTimestamp()
	}
	return Message(e).Timestamp()
}

// TimestampType says who set the timestamps.
func (e Entry) TimestampType() TimestampType {
	if b, ok := e.Batch(); ok {
		return b.TimestampType()
	}
	return Message(e).TimestampType()
}

// Codec is how the entry's records are compressed.
func (e Entry) Codec() Codec {
	if b, ok := e.Batch(); ok {
		return b.Codec()
	}
	return Message(e).Codec()
}

// LeaderEpoch is the appending leader's epoch, -1 for magic 0 and 1.
func (e Entry) LeaderEpoch() int32 {
	if b, ok := e.Batch(); ok {
		return b.LeaderEpoch()
	}
	return NoLeaderEpoch
}

// Records iterates the records of the entry as Batch.Records and Message.Records do.
func (e Entry) Records(buf *Buffers) func(yield func(Record, error) bool) {
	if b, ok := e.Batch(); ok {
		return b.Records(buf)
	}
	return Message(e).Records(buf)
}

// BaseOffset is the offset of the first record. For a compressed message it has to be looked up inside, hence buf and the error.
func (e Entry) BaseOffset(buf *Buffers) (int64, error) {
	if b, ok := e.Batch(); ok {
		return b.BaseOffset(), nil
	}
	return Message(e).BaseOffset(buf)
}
