package batch

import (
	"encoding/binary"
	"hash/crc32"
)

// Message is one message of magic 0 or 1 with its offset and size, perhaps a compressed wrapper. It aliases its bytes.
type Message []byte

// LegacyNext splits the first message off a message set; errors as Next, *CorruptError for magic 2.
func LegacyNext(b []byte) (m Message, rest []byte, err error) {
	n, magic, err := EntryLen(b)
	if err != nil {
		return nil, b, err
	}
	if magic > 1 {
		return nil, b, corruptMagic(magic, b)
	}
	if len(b) < n {
		return nil, b, ErrShort
	}
	return Message(b[:n:n]), b[n:], nil
}

// Offset is the message's offset; that of a wrapper is its last inner message's.
func (m Message) Offset() int64 { return int64(binary.BigEndian.Uint64(m)) }

// SetOffset moves the message; its CRC does not cover the offset.
func (m Message) SetOffset(o int64) { binary.BigEndian.PutUint64(m, uint64(o)) }

// Magic is 0 or 1.
func (m Message) Magic() int8 { return int8(m[legacyMagicByte]) }

// CRC is the stored CRC-32 (IEEE).
func (m Message) CRC() uint32 { return binary.BigEndian.Uint32(m[OverheadLen:]) }

// CheckCRC says whether the stored CRC is right.
func (m Message) CheckCRC() bool { return m.CRC() == crc32.ChecksumIEEE(m[legacyMagicByte:]) }

func (m Message) attributes() byte { return m[legacyMagicByte+1] }

// Codec is the compression of the value; None for a plain message.
func (m Message) Codec() Codec { return Codec(m.attributes() & attrCodec) }

// TimestampType is NoTimestampType for magic 0.
func (m Message) TimestampType() TimestampType {
	switch {
	case m.Magic() == 0:
		return NoTimestampType
	case m.attributes()&attrLogAppend != 0:
		return LogAppendTime
	}
	return CreateTime
}

// Timestamp is the message's timestamp in ms, a wrapper's is the largest inside; -1 for magic 0.
func (m Message) Timestamp() int64 {
	if m.Magic() == 0 {
		return NoTimestamp
	}
	return int64(binary.BigEndian.Uint64(m[legacyMagicByte+2:]))
}

// BaseOffset is the offset of the first message inside; for a plain message its own.
func (m Message) BaseOffset(buf *Buffers) (int64, error) { panic("not built yet") }

// Records iterates the messages, those inside a wrapper if it is one, with absolute offsets.
// Key, Value live until the next step. After an error the iteration ends.
func (m Message) Records(buf *Buffers) func(yield func(Record, error) bool) { panic("not built yet") }
