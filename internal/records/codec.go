package records

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"weir/internal/invariant"
	"weir/internal/uuid"
)

// Tag is a tagged field (KIP-482) that this version of the schemas does not know. It is kept on reading and written
// back, as Kafka does, so that a record of a newer node survives a snapshot made here.
type Tag struct {
	Number uint32
	Data   []byte // a copy, owned by the message
}

// --- writing ---

func ptr[T any](v T) *T { return &v }

func appendBool(dst []byte, v bool) []byte {
	if v {
		return append(dst, 1)
	}
	return append(dst, 0)
}

func appendInt8(dst []byte, v int8) []byte   { return append(dst, byte(v)) }
func appendInt16(dst []byte, v int16) []byte { return binary.BigEndian.AppendUint16(dst, uint16(v)) }
func appendInt32(dst []byte, v int32) []byte { return binary.BigEndian.AppendUint32(dst, uint32(v)) }
func appendInt64(dst []byte, v int64) []byte { return binary.BigEndian.AppendUint64(dst, uint64(v)) }

func appendUint16(dst []byte, v uint16) []byte { return binary.BigEndian.AppendUint16(dst, v) }
func appendUint32(dst []byte, v uint32) []byte { return binary.BigEndian.AppendUint32(dst, v) }

func appendFloat64(dst []byte, v float64) []byte {
	return binary.BigEndian.AppendUint64(dst, math.Float64bits(v))
}

func appendUUID(dst []byte, v uuid.UUID) []byte { return append(dst, v[:]...) }

// maxString is the most bytes that a string field can hold, in compact form too: Kafka reads no longer one.
const maxString = math.MaxInt16

func appendString(dst []byte, flex bool, s string) []byte {
	if len(s) > maxString {
		invariant.Check(false, "a string of %d bytes in a record: at most %d", len(s), maxString)
	}
	if flex {
		dst = binary.AppendUvarint(dst, uint64(len(s))+1)
	} else {
		dst = appendInt16(dst, int16(len(s)))
	}
	return append(dst, s...)
}

func appendNullableString(dst []byte, flex bool, s *string) []byte {
	switch {
	case s != nil:
		return appendString(dst, flex, *s)
	case flex:
		return append(dst, 0)
	}
	return append(dst, 0xff, 0xff)
}

func appendBytes(dst []byte, flex bool, b []byte) []byte {
	return append(appendLen(dst, flex, len(b)), b...)
}

func appendNullableBytes(dst []byte, flex bool, b []byte) []byte {
	return append(appendNullableLen(dst, flex, len(b), b == nil), b...)
}

// appendLen writes the length in front of an array or of bytes.
func appendLen(dst []byte, flex bool, n int) []byte {
	if flex {
		return binary.AppendUvarint(dst, uint64(n)+1)
	}
	return appendInt32(dst, int32(n))
}

func appendNullableLen(dst []byte, flex bool, n int, null bool) []byte {
	switch {
	case !null:
		return appendLen(dst, flex, n)
	case flex:
		return append(dst, 0)
	}
	return appendInt32(dst, -1)
}

// appendPresence writes the byte in front of a struct that may be null.
func appendPresence(dst []byte, null bool) []byte {
	if null {
		return append(dst, 0xff)
	}
	return append(dst, 1)
}

// appendTaggedPresence writes the mark in front of a struct that may be null and is a tagged field: a uvarint.
func appendTaggedPresence(dst []byte, null bool) []byte {
	if null {
		return append(dst, 0)
	}
	return append(dst, 1)
}

// tagWriter writes the tagged fields behind a struct: known ones as they come, in ascending order, unknown ones in
// between. The count goes in front at the end.
type tagWriter struct {
	dst   []byte
	raw   []Tag // unknown ones not written yet
	count int
	start int // where the section starts in dst
	at    int // where the open field starts in dst
	tag   uint32
}

func beginTags(dst []byte, raw []Tag) tagWriter {
	return tagWriter{dst: append(dst, 0), raw: raw, start: len(dst)}
}

// open starts known field tag; its content is then appended to w.dst.
func (w *tagWriter) open(tag uint32) {
	for len(w.raw) > 0 && w.raw[0].Number < tag {
		w.writeRaw()
	}
	if len(w.raw) > 0 && w.raw[0].Number == tag {
		invariant.Check(false, "tagged field %d is both known and unknown", tag)
	}
	w.tag, w.at = tag, len(w.dst)
}

// close puts tag and size in front of what was appended since open.
func (w *tagWriter) close() {
	w.count++
	var head [2 * binary.MaxVarintLen64]byte
	h := binary.AppendUvarint(head[:0], uint64(w.tag))
	h = binary.AppendUvarint(h, uint64(len(w.dst)-w.at))
	w.dst = insert(w.dst, w.at, h)
}

func (w *tagWriter) writeRaw() {
	t := w.raw[0]
	w.raw = w.raw[1:]
	w.count++
	w.dst = binary.AppendUvarint(w.dst, uint64(t.Number))
	w.dst = binary.AppendUvarint(w.dst, uint64(len(t.Data)))
	w.dst = append(w.dst, t.Data...)
}

func (w *tagWriter) end() []byte {
	for len(w.raw) > 0 {
		w.writeRaw()
	}
	if w.count < 0x80 {
		w.dst[w.start] = byte(w.count)
		return w.dst
	}
	var head [binary.MaxVarintLen64]byte
	h := binary.AppendUvarint(head[:0], uint64(w.count))
	w.dst[w.start] = h[0]
	return insert(w.dst, w.start+1, h[1:])
}

// insert shifts dst[at:] and puts b before it.
func insert(dst []byte, at int, b []byte) []byte {
	n := len(dst)
	dst = append(dst, b...)
	copy(dst[at+len(b):], dst[at:n])
	copy(dst[at:], b)
	return dst
}

// checkVersion stops a program that asks for a version which the message does not have.
func checkVersion(name string, version, lowest, highest int16) {
	if version < lowest || version > highest { // asked first: the arguments below would be allocated each time
		invariant.Check(false, "%s has versions %d to %d, not %d", name, lowest, highest, version)
	}
}

// mustFit stops a program that would lose the value of a field: the version being written does not have it.
// Kafka throws UnsupportedVersionException there.
func mustFit(isDefault bool, field string, version int16) {
	if !isDefault {
		invariant.Check(false, "%s is set, but version %d does not have it", field, version)
	}
}

// --- reading ---

// reader takes values off the front of buf. The first failure sticks: later reads return zero values.
type reader struct {
	buf []byte
	all int // length of buf at the start, for the position in errors
	err error
}

var (
	errCut     = errors.New("cut short")
	errNull    = errors.New("null where a value must stand")
	errVarint  = errors.New("bad variable-length number")
	errTags    = errors.New("tagged fields out of order")
	errTagSize = errors.New("a tagged field does not fill its size")
)

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = fmt.Errorf("%w at byte %d", err, r.all-len(r.buf))
	}
}

func (r *reader) take(n int) []byte {
	if r.err != nil || n > len(r.buf) {
		r.fail(errCut)
		return nil
	}
	b := r.buf[:n:n]
	r.buf = r.buf[n:]
	return b
}

func (r *reader) int8() int8 {
	if b := r.take(1); b != nil {
		return int8(b[0])
	}
	return 0
}

func (r *reader) bool() bool { return r.int8() != 0 }

func (r *reader) uint16() uint16 {
	if b := r.take(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (r *reader) uint32() uint32 {
	if b := r.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (r *reader) uint64() uint64 {
	if b := r.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (r *reader) int16() int16     { return int16(r.uint16()) }
func (r *reader) int32() int32     { return int32(r.uint32()) }
func (r *reader) int64() int64     { return int64(r.uint64()) }
func (r *reader) float64() float64 { return math.Float64frombits(r.uint64()) }

func (r *reader) uuid() uuid.UUID {
	if b := r.take(len(uuid.UUID{})); b != nil {
		return uuid.UUID(b)
	}
	return uuid.UUID{}
}

// uvarint reads an unsigned number of at most 32 bits, as every length, count and tag is.
func (r *reader) uvarint() uint32 {
	if r.err != nil {
		return 0
	}
	v, n := binary.Uvarint(r.buf)
	switch {
	case n == 0:
		r.fail(errCut)
		return 0
	case n < 0 || v > math.MaxUint32:
		r.fail(errVarint)
		return 0
	}
	r.buf = r.buf[n:]
	return uint32(v)
}

// length reads the length of an array whose elements take at least minBytes each, or -1 for null. A length that the
// remaining bytes cannot hold fails before anything is allocated for it.
func (r *reader) length(flex, nullable bool, minBytes int) int {
	var n int
	if flex {
		n = int(r.uvarint()) - 1
	} else {
		n = int(r.int32())
	}
	return r.checkLength(n, nullable, minBytes)
}

func (r *reader) checkLength(n int, nullable bool, minBytes int) int {
	switch {
	case r.err != nil:
		return -1
	case n < 0 && nullable:
		return -1
	case n < 0:
		r.fail(errNull)
		return -1
	case n > len(r.buf)/minBytes:
		r.fail(fmt.Errorf("length %d with only %d bytes left: %w", n, len(r.buf), errCut))
		return -1
	}
	return n
}

func (r *reader) stringLength(flex, nullable bool) int {
	var n int
	if flex {
		n = int(r.uvarint()) - 1
	} else {
		n = int(r.int16())
	}
	if n = r.checkLength(n, nullable, 1); n > maxString {
		r.fail(fmt.Errorf("a string of %d bytes, at most %d", n, maxString))
		return -1
	}
	return n
}

func (r *reader) string(flex bool) string {
	n := r.stringLength(flex, false)
	if n <= 0 {
		return ""
	}
	return string(r.take(n))
}

func (r *reader) nullableString(flex bool) *string {
	n := r.stringLength(flex, true)
	if n < 0 {
		return nil
	}
	s := string(r.take(n))
	return &s
}

// bytes returns a copy; nil for none.
func (r *reader) bytes(flex bool) []byte {
	n := r.length(flex, false, 1)
	if n <= 0 {
		return nil
	}
	return append([]byte(nil), r.take(n)...)
}

// nullableBytes returns a copy; nil for null.
func (r *reader) nullableBytes(flex bool) []byte {
	n := r.length(flex, true, 1)
	if n < 0 {
		return nil
	}
	return append(make([]byte, 0, n), r.take(n)...)
}

// readPresence reads the byte in front of a struct that may be null.
func (r *reader) readPresence() bool { return r.int8() >= 0 && r.err == nil }

// readTaggedPresence reads the mark in front of a struct that may be null and is a tagged field.
func (r *reader) readTaggedPresence() bool { return r.uvarint() > 0 && r.err == nil }

// tags yields each tagged field; while the caller handles one, the reader ends where that field ends.
func (r *reader) tags(yield func(tag uint32) bool) {
	n := int(r.uvarint())
	for next := int64(0); n > 0 && r.err == nil; n-- {
		tag := r.uvarint()
		size := r.checkLength(int(r.uvarint()), false, 1)
		if r.err != nil {
			return
		}
		if int64(tag) < next {
			r.fail(errTags)
			return
		}
		next = int64(tag) + 1
		rest := r.buf[size:]
		r.buf = r.buf[:size:size]
		r.all -= len(rest)
		more := yield(tag)
		if r.err == nil && len(r.buf) != 0 {
			r.fail(errTagSize)
		}
		r.buf = rest
		r.all += len(rest)
		if !more {
			return
		}
	}
}

// unknownTag takes the whole content of a field yielded by tags.
func (r *reader) unknownTag(tag uint32) Tag {
	return Tag{Number: tag, Data: append([]byte(nil), r.take(len(r.buf))...)}
}

// finish turns the reader's state into the result of ReadPrefix.
func (r *reader) finish(name string, version int16) (rest []byte, err error) {
	if r.err != nil {
		return nil, fmt.Errorf("%s version %d: %w", name, version, r.err)
	}
	return r.buf, nil
}

// versionError is the answer to bytes of a version that the schemas do not have.
func versionError(name string, version, lowest, highest int16) error {
	if version >= lowest && version <= highest {
		return nil
	}
	return fmt.Errorf("%s version %d: only versions %d to %d are known", name, version, lowest, highest)
}

// noRest refuses bytes behind a message that must fill its record.
func noRest(name string, version int16, rest []byte, err error) error {
	if err == nil && len(rest) > 0 {
		return fmt.Errorf("%s version %d: %d bytes behind its end", name, version, len(rest))
	}
	return err
}
