package batch

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
)

// DownConvert appends b to dst as messages of the given magic (0 for Fetch v0–v1, 1 for v2–v3). A control batch appends nothing;
// a compressed batch becomes one compressed wrapper; headers and producer fields are lost. The zstd codec does not exist there:
// *InvalidRecordError with UNSUPPORTED_COMPRESSION_TYPE. On an error dst is returned as it was. buf may be nil.
func DownConvert(dst []byte, b Batch, magic int8, buf *Buffers) ([]byte, error) {
	return DownConvertEntry(dst, Entry(b), magic, buf)
}

// DownConvertEntry is DownConvert for what an old segment may hold: an entry that already is of that magic or below is copied.
func DownConvertEntry(dst []byte, e Entry, magic int8, buf *Buffers) ([]byte, error) {
	if buf == nil {
		buf = new(Buffers)
	}
	if e.Magic() <= magic {
		return append(dst, e...), nil
	}
	if b, ok := e.Batch(); ok && b.IsControl() {
		return dst, nil
	}
	if e.Codec() > Lz4 {
		return dst, &InvalidRecordError{Code: kerr.UnsupportedCompressionType.Code,
			Message: fmt.Sprintf("Down-conversion of %s-compressed batches is not supported", e.Codec())}
	}
	d := down{dst: dst, magic: magic, kind: e.TimestampType(), codec: e.Codec()}
	var err error
	if e.Codec() == None {
		err = d.plain(e, buf)
	} else {
		err = d.wrapped(e, buf)
	}
	if err != nil {
		return dst, err
	}
	return d.dst, nil
}

// down is one conversion.
type down struct {
	dst   []byte
	magic int8
	kind  TimestampType
	codec Codec
}

func (d *down) plain(e Entry, buf *Buffers) error {
	for r, err := range e.Records(buf) {
		if err != nil {
			return err
		}
		d.dst = appendMessage(d.dst, d.magic, d.attributes(None), r.Offset, r.Timestamp, r.Key, r.Value)
	}
	return nil
}

// wrapped streams the records into one wrapper message at the end of dst, and completes its head afterwards. Inner offsets
// of magic 1 count from the first record, those of magic 0 are absolute.
func (d *down) wrapped(e Entry, buf *Buffers) error {
	start := len(d.dst)
	d.dst = appendMessage(d.dst, d.magic, d.attributes(d.codec), 0, 0, nil, nil)
	head := len(d.dst)
	if err := buf.wrap.Reset(d.codec, LevelDefault, d.dst, d.magic == 0); err != nil {
		return err
	}
	first, last, most := int64(-1), int64(-1), NoTimestamp
	for r, err := range e.Records(buf) {
		if err != nil {
			return err
		}
		if first < 0 {
			first = r.Offset
		}
		off := r.Offset
		if d.magic > 0 {
			off -= first
		}
		last, most = r.Offset, max(most, r.Timestamp)
		buf.msg = slices.Grow(buf.msg[:0], messageHead+len(r.Key)+len(r.Value))
		buf.msg = appendMessage(buf.msg, d.magic, d.attributes(None), off, r.Timestamp, r.Key, r.Value)
		if _, err := buf.wrap.Write(buf.msg); err != nil {
			return err
		}
		if cap(buf.msg) > keepWindow {
			buf.msg = nil
		}
	}
	out, err := buf.wrap.Close()
	if err != nil {
		return err
	}
	if first < 0 { // compaction left no record
		d.dst = out[:start]
		return nil
	}
	m := Message(out[start:])
	m.SetOffset(last)
	binary.BigEndian.PutUint32(m[offLength:], uint32(len(m)-OverheadLen))
	if d.magic > 0 {
		binary.BigEndian.PutUint64(m[legacyMagicByte+2:], uint64(most))
	}
	binary.BigEndian.PutUint32(out[head-4:], uint32(len(out)-head))
	binary.BigEndian.PutUint32(m[OverheadLen:], crc32.ChecksumIEEE(m[legacyMagicByte:]))
	d.dst = out
	return nil
}

func (d *down) attributes(c Codec) byte {
	a := byte(c)
	if d.magic > 0 && d.kind == LogAppendTime {
		a |= attrLogAppend
	}
	return a
}

// messageHead is how long a message is without key and value, at most.
const messageHead = 34

// appendMessage appends one message of magic 0 or 1 with its offset, size and CRC; magic 0 has no timestamp.
func appendMessage(dst []byte, magic int8, attributes byte, offset, ts int64, key, value []byte) []byte {
	start := len(dst)
	dst = binary.BigEndian.AppendUint64(dst, uint64(offset))
	dst = append(dst, 0, 0, 0, 0, 0, 0, 0, 0, byte(magic), attributes) // size and CRC follow below
	if magic > 0 {
		dst = binary.BigEndian.AppendUint64(dst, uint64(ts))
	}
	dst = appendLegacyField(dst, key)
	dst = appendLegacyField(dst, value)
	m := dst[start:]
	binary.BigEndian.PutUint32(m[offLength:], uint32(len(m)-OverheadLen))
	binary.BigEndian.PutUint32(m[OverheadLen:], crc32.ChecksumIEEE(m[legacyMagicByte:]))
	return dst
}

func appendLegacyField(dst, b []byte) []byte {
	if b == nil {
		return append(dst, 0xff, 0xff, 0xff, 0xff)
	}
	return append(binary.BigEndian.AppendUint32(dst, uint32(len(b))), b...)
}
