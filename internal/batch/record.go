package batch

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"

	"weir/internal/batch/compress"
)

// Record is one record of a batch. Key, Value and Headers alias the batch or, when it is compressed, a buffer that the
// next step of the iteration overwrites: copy what must stay.
type Record struct {
	OffsetDelta    int32
	TimestampDelta int64
	Offset         int64
	Timestamp      int64  // ms; the batch's MaxTimestamp with LogAppendTime; -1 for magic 0
	Key, Value     []byte // nil is null, empty is empty
	Headers        []Header
	Attributes     int8 // unused by Kafka so far
}

// Header is one record header. Value nil is null.
type Header struct {
	Key, Value []byte
}

// minRecordLen is the shortest record: length, attributes, both deltas, key and value length, header count, one byte each.
const minRecordLen = 7

// MaxRecord bounds the inflated size of one record in a compressed batch, because consumers of it have to hold it whole.
const MaxRecord = 128 << 20

// Records iterates the records. An error (*CorruptError or *InvalidRecordError) is the last thing yielded. buf
// may be nil, at the price of fresh decompressor state; it must not be used for anything else during the iteration.
// The CRC is not checked.
func (b Batch) Records(buf *Buffers) func(yield func(Record, error) bool) {
	return func(yield func(Record, error) bool) {
		if buf == nil {
			buf = new(Buffers)
		}
		if b.Codec() == None {
			b.plainRecords(buf, yield)
			return
		}
		b.streamedRecords(buf, yield)
	}
}

func (b Batch) plainRecords(buf *Buffers, yield func(Record, error) bool) {
	rest := b.RecordBytes()
	count := b.Count()
	if err := checkCount(count, len(rest)); err != nil {
		yield(Record{}, err)
		return
	}
	for range count {
		body, next, err := splitRecord(rest)
		if err == nil {
			err = buf.parse(body, true)
		}
		if err != nil {
			yield(Record{}, err)
			return
		}
		rest = next
		b.place(&buf.rec)
		if !yield(buf.rec, nil) {
			return
		}
	}
	if len(rest) > 0 {
		yield(Record{}, errRemaining())
	}
}

func (b Batch) streamedRecords(buf *Buffers, yield func(Record, error) bool) {
	count := b.Count()
	if count < 0 {
		yield(Record{}, errCount(count))
		return
	}
	if count == 0 && len(b) == HeaderLen {
		return // what compaction leaves of a batch
	}
	win := &buf.win
	defer win.release()
	if err := win.reset(b.Codec(), b.RecordBytes(), false); err != nil {
		yield(Record{}, errInflate(err))
		return
	}
	for range count {
		size, err := win.recordLen()
		var body []byte
		if err == nil {
			body, err = win.take(size)
		}
		if err == nil {
			err = buf.parse(body, true)
		}
		if err != nil {
			yield(Record{}, err)
			return
		}
		b.place(&buf.rec)
		if !yield(buf.rec, nil) {
			return
		}
	}
	if err := win.ensureEnd(); err != nil {
		yield(Record{}, err)
	}
}

// place turns the deltas of a parsed record into its offset and timestamp.
func (b Batch) place(r *Record) {
	r.Offset = b.BaseOffset() + int64(r.OffsetDelta)
	if b.TimestampType() == LogAppendTime {
		r.Timestamp = b.MaxTimestamp()
	} else {
		r.Timestamp = b.BaseTimestamp() + r.TimestampDelta
	}
}

func errCount(count int32) error {
	return invalid("Found invalid record count %d in magic v2 batch", count)
}
func errRemaining() error {
	return invalid("Incorrect declared batch size, records still remaining in file")
}
func errPremature() error {
	return invalid("Incorrect declared batch size, premature EOF reached")
}
func errStructure() error { return invalid("Found invalid record structure") }

// errInflate says that compressed bytes are damaged although the CRC held: the producer sent nonsense.
func errInflate(err error) error {
	var inner *InvalidRecordError
	if errors.As(err, &inner) {
		return inner
	}
	e := unanswerable("Failed to decompress record stream: %v", err)
	if errors.Is(err, compress.ErrTooLarge) { // a limit of ours: Java's producer makes smaller batches of it then
		e.Code = kerr.MessageTooLarge.Code
	}
	return e
}

// checkCount refuses a record count that the bytes of a plain batch cannot hold.
func checkCount(count int32, bytes int) error {
	if count < 0 {
		return errCount(count)
	}
	if int(count) > bytes/minRecordLen {
		return errPremature()
	}
	return nil
}

// splitRecord splits the body of the first record off plain bytes.
func splitRecord(b []byte) (body, rest []byte, err error) {
	size, n := varint(b)
	switch {
	case n < 0:
		return nil, nil, unanswerable("Varint is too long, the most significant bit in the 5th byte is set")
	case n == 0:
		return nil, nil, errPremature()
	}
	b = b[n:]
	if size < 0 || int(size) > len(b) {
		return nil, nil, invalid("Invalid record size: expected %d bytes in record payload, but instead the buffer has only %d remaining bytes.", size, len(b))
	}
	return b[:size], b[size:], nil
}

// parse reads a record's body, without its length, into buf.rec. The header slice is kept and reused; with headers
// false they are only checked.
func (buf *Buffers) parse(body []byte, headers bool) error {
	r := &buf.rec
	hs := r.Headers[:0]
	*r = Record{}
	if len(body) < minRecordLen-1 {
		return errStructure()
	}
	size := len(body)
	r.Attributes = int8(body[0])
	body = body[1:]
	var n int
	if r.TimestampDelta, n = varlong(body); n <= 0 {
		return errStructure()
	}
	body = body[n:]
	if r.OffsetDelta, n = varint(body); n <= 0 {
		return errStructure()
	}
	body = body[n:]
	var ok bool
	if r.Key, body, ok = field(body); !ok {
		return errStructure()
	}
	if r.Value, body, ok = field(body); !ok {
		return errStructure()
	}
	count, n := varint(body)
	if n <= 0 {
		return errStructure()
	}
	body = body[n:]
	if count < 0 {
		return invalid("Found invalid number of record headers %d", count)
	}
	if int(count) > len(body) {
		return invalid("Found invalid number of record headers. %d is larger than the remaining size of the buffer", count)
	}
	for range count {
		var h Header
		if h.Key, body, ok = field(body); !ok {
			return errStructure()
		}
		if h.Key == nil {
			return invalid("Invalid negative header key size %d", -1)
		}
		if h.Value, body, ok = field(body); !ok {
			return errStructure()
		}
		if headers {
			hs = append(hs, h)
		}
	}
	if len(body) != 0 {
		return invalid("Invalid record size: expected to read %d bytes in record payload, but instead read %d", size, size-len(body))
	}
	r.Headers = hs
	return nil
}

// field reads a varint length and so many bytes; a negative length is null.
func field(b []byte) (v, rest []byte, ok bool) {
	size, n := varint(b)
	if n <= 0 {
		return nil, nil, false
	}
	b = b[n:]
	if size < 0 {
		return nil, b, true
	}
	if int(size) > len(b) {
		return nil, nil, false
	}
	return b[:size:size], b[size:], true
}

// varint reads a zigzag varint of at most 5 bytes; n is 0 when b is too short, negative when it is too long.
func varint(b []byte) (v int32, n int) {
	var u uint32
	for i, c := range b {
		if i == 4 && c > 0x0f {
			return 0, -1
		}
		u |= uint32(c&0x7f) << (7 * i)
		if c < 0x80 {
			return int32(u>>1) ^ -int32(u&1), i + 1
		}
	}
	return 0, 0
}

// varlong reads a zigzag varint of at most 10 bytes, as varint does.
func varlong(b []byte) (v int64, n int) {
	var u uint64
	for i, c := range b {
		if i == 9 && c > 1 {
			return 0, -1
		}
		u |= uint64(c&0x7f) << (7 * i)
		if c < 0x80 {
			return int64(u>>1) ^ -int64(u&1), i + 1
		}
	}
	return 0, 0
}

func appendVarint(dst []byte, v int32) []byte { return appendVarlong(dst, int64(v)) }

func appendVarlong(dst []byte, v int64) []byte {
	u := uint64(v<<1) ^ uint64(v>>63)
	for u >= 0x80 {
		dst = append(dst, byte(u)|0x80)
		u >>= 7
	}
	return append(dst, byte(u))
}

func varlongLen(v int64) int {
	n := 1
	for u := uint64(v<<1) ^ uint64(v>>63); u >= 0x80; u >>= 7 {
		n++
	}
	return n
}

func fieldLen(b []byte) int {
	if b == nil {
		return 1
	}
	return varlongLen(int64(len(b))) + len(b)
}

func appendField(dst, b []byte) []byte {
	if b == nil {
		return append(dst, 1) // zigzag of -1
	}
	return append(appendVarint(dst, int32(len(b))), b...)
}
