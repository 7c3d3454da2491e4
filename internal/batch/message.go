package batch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
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

// fields reads what a message of magic 0 or 1 carries. Key and value alias it.
func (m Message) fields() (key, value []byte, err error) {
	b := m[legacyMagicByte+2:]
	if m.Magic() > 0 {
		b = b[8:]
	}
	var ok bool
	if key, b, ok = legacyField(b); !ok {
		return nil, nil, errLegacy(m, "key reaches beyond the message")
	}
	if value, b, ok = legacyField(b); !ok {
		return nil, nil, errLegacy(m, "value reaches beyond the message")
	}
	if len(b) > 0 {
		return nil, nil, errLegacy(m, "bytes behind the value")
	}
	return key, value, nil
}

// legacyField reads an int32 length and so many bytes; a negative length is null.
func legacyField(b []byte) (v, rest []byte, ok bool) {
	if len(b) < 4 {
		return nil, nil, false
	}
	n := int(int32(binary.BigEndian.Uint32(b)))
	b = b[4:]
	if n < 0 {
		return nil, b, true
	}
	if n > len(b) {
		return nil, nil, false
	}
	return b[:n:n], b[n:], true
}

func errLegacy(m Message, reason string) error {
	return &CorruptError{Offset: m.Offset(), Reason: "message of magic " + string('0'+byte(m.Magic())) + ": " + reason}
}

// BaseOffset is the offset of the first message inside; for a plain message its own.
func (m Message) BaseOffset(buf *Buffers) (int64, error) {
	if m.Codec() == None {
		return m.Offset(), nil
	}
	for r, err := range m.Records(buf) {
		return r.Offset, err
	}
	return 0, errNoInner()
}

// Records iterates the messages, those inside a wrapper if it is one, with absolute offsets; OffsetDelta counts from the first
// one's. Key and Value live until the next step. An error is the last thing yielded. CRCs are not checked.
func (m Message) Records(buf *Buffers) func(yield func(Record, error) bool) {
	return func(yield func(Record, error) bool) {
		if buf == nil {
			buf = new(Buffers)
		}
		if m.Codec() == None {
			key, value, err := m.fields()
			yield(Record{Offset: m.Offset(), Timestamp: m.Timestamp(), Key: key, Value: value}, err)
			return
		}
		m.deep(buf, false, yield)
	}
}

func errNoInner() error { return invalid("Found invalid compressed record set with no inner records") }

// deep iterates the messages inside a wrapper; with crc it refuses those whose CRC is wrong.
func (m Message) deep(buf *Buffers, crc bool, yield func(Record, error) bool) {
	_, value, err := m.fields()
	switch {
	case err != nil:
	case value == nil:
		err = invalid("Found invalid compressed record set with null value (magic = %d)", m.Magic())
	case m.Codec() > Lz4:
		err = invalid("Invalid wrapper compressionType found in legacy deep record iterator %s", m.Codec())
	}
	var first, add int64
	if err == nil {
		first, add, err = m.innerOffsets(buf, value)
	}
	if err != nil {
		yield(Record{}, err)
		return
	}
	in := inner{win: &buf.win, wrapper: m}
	defer in.win.release()
	if err := in.start(value); err != nil {
		yield(Record{}, err)
		return
	}
	for {
		msg, err := in.next()
		if err == nil && msg == nil {
			return
		}
		var r Record
		if err == nil && crc && !msg.CheckCRC() {
			err = &CorruptError{Offset: -1, Reason: "Record is corrupt (wrong crc of a message inside a compressed one)"}
		}
		if err == nil {
			r.Key, r.Value, err = msg.fields()
		}
		if err != nil {
			yield(Record{}, err)
			return
		}
		r.Offset = msg.Offset() + add
		r.OffsetDelta = int32(r.Offset - first)
		r.Timestamp = msg.Timestamp()
		if m.TimestampType() == LogAppendTime {
			r.Timestamp = m.Timestamp()
		}
		if !yield(r, nil) {
			return
		}
	}
}

// innerOffsets walks the wrapper once to learn its first offset and what must be added to the inner offsets. Those of magic 0 are
// absolute; those of magic 1 count from the first message, and the wrapper has the offset of the last one (KIP-31). A wrapper at
// offset 0 comes from a producer (some of which numbered the inner messages wrongly).
func (m Message) innerOffsets(buf *Buffers, value []byte) (first, add int64, err error) {
	in := inner{win: &buf.win, wrapper: m}
	defer in.win.release()
	if err := in.start(value); err != nil {
		return 0, 0, err
	}
	n := 0
	var last int64
	for ; ; n++ {
		off, _, err := in.head()
		if err != nil {
			return 0, 0, err
		}
		if in.ended {
			break
		}
		if n == 0 {
			first = off
		}
		last = off
		if err := in.win.skip(in.size, copier{}); err != nil {
			return 0, 0, err
		}
	}
	switch {
	case n == 0:
		return 0, 0, errNoInner()
	case m.Magic() == 0 || m.Offset() == 0:
		return first, 0, nil
	case last > m.Offset():
		return 0, 0, invalid("Found invalid wrapper offset in compressed v1 message set, wrapper offset '%d' is less than the last inner message offset '%d' and it is not zero.", m.Offset(), last)
	}
	return first + m.Offset() - last, m.Offset() - last, nil
}

// inner reads the message set inside a wrapper as a stream.
type inner struct {
	win     *window
	wrapper Message
	size    int // of the message whose head was read, behind its 12 bytes
	ended   bool
}

func (in *inner) start(value []byte) error {
	if err := in.win.reset(in.wrapper.Codec(), value, in.wrapper.Magic() == 0); err != nil {
		return errInflate(err)
	}
	return nil
}

// head reads offset and size of the next message, or finds the end.
func (in *inner) head() (offset int64, head []byte, err error) {
	if in.win.r == in.win.w {
		switch err := in.win.fill(0); {
		case errors.Is(err, io.EOF):
			in.ended = true
			return 0, nil, nil
		case err != nil:
			return 0, nil, errInflate(err)
		}
	}
	head, err = in.win.take(OverheadLen)
	if err != nil {
		return 0, nil, err
	}
	least := legacyMinV0
	if in.wrapper.Magic() > 0 {
		least = legacyMinV1
	}
	in.size = int(int32(binary.BigEndian.Uint32(head[offLength:])))
	if in.size < least || in.size > MaxRecord {
		return 0, nil, &CorruptError{Offset: -1, Reason: fmt.Sprintf("Record size %d inside a compressed message", in.size)}
	}
	return int64(binary.BigEndian.Uint64(head)), head, nil
}

// next returns the next message, nil at the end. It lives until the next call.
func (in *inner) next() (Message, error) {
	_, _, err := in.head()
	if err != nil || in.ended {
		return nil, err
	}
	in.win.r -= OverheadLen // the head lies directly before: the window keeps what was taken last
	b, err := in.win.take(OverheadLen + in.size)
	if err != nil {
		return nil, err
	}
	m := Message(b)
	switch {
	case m.Magic() != in.wrapper.Magic():
		return nil, invalid("Compressed message magic %d does not match wrapper magic %d", m.Magic(), in.wrapper.Magic())
	case m.Codec() != None:
		return nil, invalid("Inner messages must not be compressed")
	}
	return m, nil
}
