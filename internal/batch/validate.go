package batch

import (
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Origin says who appends (Kafka's AppendOrigin). Clients are trusted least.
type Origin uint8

// The origins. Replication is not among them: a follower checks CRCs and offsets, and no topic rules.
const (
	Client Origin = iota
	Coordinator
	RaftLeader
)

// Policy is what a topic and the moment allow. Validate does not change it.
type Policy struct {
	Topic     string // for error texts
	Partition int32
	Origin    Origin
	Now       int64 // ms; LogAppendTime's timestamp
	// TimestampType, BeforeMaxMs and AfterMaxMs are message.timestamp.type and its bounds in ms (MaxInt64: no bound).
	TimestampType TimestampType
	BeforeMaxMs   int64
	AfterMaxMs    int64
	Compacted     bool // cleanup.policy has compact: records without a key are refused
	Target        Target
	// MaxBatch is max.message.bytes: it limits the batch as sent and as stored, in bytes. 0 or less: no limit.
	MaxBatch int32
}

// Target is compression.type: the zero value is "producer" (keep what came), else recompress to Codec.
type Target struct {
	Recompress bool
	Codec      Codec
	Level      int // in the codec's own scale; LevelDefault for Kafka's default
}

// Checked is what Validate and UpConvert found.
type Checked struct {
	// Batch is what to append: the given batch, perhaps with a new header, or fresh bytes when Recompressed.
	Batch        Batch
	Count        int
	MaxTimestamp int64 // ms, -1 when no record has one; the append time with LogAppendTime
	// OffsetDeltaOfMaxTimestamp is the delta, from the base offset, of the first record with MaxTimestamp (the first record with
	// LogAppendTime), -1 without timestamps.
	OffsetDeltaOfMaxTimestamp int32
	Recompressed              bool
}

// maxRecordErrors bounds how many bad records are listed: an answer with more helps nobody, and their texts cost memory.
const maxRecordErrors = 1000

// Validate checks one produced batch as Kafka's UnifiedLog.analyzeAndValidateRecords and LogValidator do, sets the topic's
// timestamp type and the found maximum in the header (LogAppendTime changes only the header), and recompresses if the
// topic demands another codec. Base offset and leader epoch remain to be patched by the append. Nothing is allocated for an
// accepted batch that is not recompressed, given a used buf (nil works too).
//
// Errors: *InvalidRecordError with answer code and record errors; *CorruptError (CORRUPT_MESSAGE). b's header may then have
// been left as it was or not: it must not be appended.
func Validate(b Batch, p *Policy, buf *Buffers) (Checked, error) {
	if buf == nil {
		buf = new(Buffers)
	}
	if err := checkHeader(b, p); err != nil {
		return Checked{}, err
	}
	v := newValidator(p, b.TimestampType(), b.Codec())
	v.b = b
	// As in Kafka, control records are not compressed when they come uncompressed.
	keep := v.target == b.Codec() || b.Codec() == None && b.IsControl()
	if !keep {
		return v.recompress(buf)
	}
	var err error
	if b.Codec() == None {
		err = v.plain(buf)
	} else {
		err = v.compressed(buf, nil)
	}
	if err != nil {
		return Checked{}, err
	}
	c := v.result(b)
	b.SetMaxTimestamp(p.TimestampType, c.MaxTimestamp)
	return c, nil
}

// checkHeader checks what needs no look at the records, in Kafka's order.
func checkHeader(b Batch, p *Policy) error {
	if p.Origin == Client && b.BaseOffset() != 0 {
		return invalid("The baseOffset of the record batch in the append to %s should be 0, but it is %d", p.where(), b.BaseOffset())
	}
	if p.MaxBatch > 0 && b.Len() > int(p.MaxBatch) {
		return p.tooLarge(b.Len())
	}
	if !b.CheckCRC() {
		return &CorruptError{Offset: -1, Reason: fmt.Sprintf("Record is corrupt (stored crc = %d) in topic partition %s.", b.CRC(), p.where())}
	}
	if !b.Codec().Valid() {
		return unanswerable("Unknown compression type id: %d", b.Codec())
	}
	if p.Origin != Client {
		return nil
	}
	return checkClientHeader(b, p)
}

func checkClientHeader(b Batch, p *Policy) error {
	first, last := b.BaseOffset(), b.LastOffset()
	span := last - first + 1
	count := int64(b.Count())
	switch {
	case span <= 0:
		return invalid("Batch has an invalid offset range: [%d, %d] in topic partition %s", first, last, p.where())
	case count <= 0:
		return invalid("Invalid reported count for record batch: %d in topic partition %s", count, p.where())
	case span != count:
		return invalid("Inconsistent batch offset range [%d, %d] and count of records %d in topic partition %s", first, last, count, p.where())
	case b.IsControl():
		return invalid("Clients are not allowed to write control records in topic partition %s", p.where())
	case b.HasProducerID() && b.BaseSequence() < 0:
		return invalid("Invalid sequence number %d in record batch with producerId %d in topic partition %s", b.BaseSequence(), b.ProducerID(), p.where())
	}
	return nil
}

func (p *Policy) where() string { return fmt.Sprintf("%s-%d", p.Topic, p.Partition) }

func (p *Policy) tooLarge(size int) *InvalidRecordError {
	return &InvalidRecordError{Code: kerr.MessageTooLarge.Code, Message: fmt.Sprintf(
		"The record batch size in the append to %s is %d bytes which exceeds the maximum configured value of %d).", p.where(), size, p.MaxBatch)}
}

// validator is the walk over the records of one batch or message set.
type validator struct {
	b         Batch // nil for message sets
	p         *Policy
	from      TimestampType // of the source
	target    Codec
	max       int64 // largest timestamp so far
	maxAt     int32 // position of the first record with it
	index     int32
	bad       []RecordError // at most maxRecordErrors
	badTotal  int
	badTime   bool
	misplaced bool // an offset delta is not the record's position
}

func newValidator(p *Policy, from TimestampType, source Codec) validator {
	v := validator{p: p, from: from, max: NoTimestamp, maxAt: -1, target: source}
	if p.Target.Recompress {
		v.target = p.Target.Codec
	}
	return v
}

func (v *validator) plain(buf *Buffers) error {
	rest := v.b.RecordBytes()
	count := v.b.Count()
	if err := checkCount(count, len(rest)); err != nil {
		return err
	}
	for range count {
		body, next, err := splitRecord(rest)
		if err != nil {
			return err
		}
		if err := buf.parse(body, false); err != nil {
			return err
		}
		rest = next
		v.b.place(&buf.rec)
		v.check(&buf.rec, len(buf.rec.Key), len(buf.rec.Value))
	}
	if len(rest) > 0 {
		return errRemaining()
	}
	return v.refused()
}

// compressed checks the records as they are inflated, and writes them to out unless that is nil. A record that does not fit
// into the window passes through it in pieces, so that none is held whole, however much a few bytes inflate to.
func (v *validator) compressed(buf *Buffers, out *Builder) error {
	win := &buf.win
	defer win.release()
	if err := win.reset(v.b.Codec(), v.b.RecordBytes(), false); err != nil {
		return errInflate(err)
	}
	for range v.b.Count() {
		size, err := win.recordLen()
		if err != nil {
			return err
		}
		var keyLen, valueLen int
		if size <= windowLen {
			var body []byte
			if body, err = win.take(size); err == nil {
				err = buf.parse(body, out != nil)
			}
			keyLen, valueLen = len(buf.rec.Key), len(buf.rec.Value)
		} else {
			keyLen, valueLen, err = win.skim(size, &buf.rec, v.copier(out))
		}
		if err == errGrown {
			err = v.p.grown(out.Len())
		}
		if err != nil {
			return err
		}
		v.b.place(&buf.rec)
		if buf.rec.OffsetDelta != v.index {
			v.misplaced = true
		}
		if out != nil && size <= windowLen {
			err = v.rewrite(out, &buf.rec)
		} else {
			v.check(&buf.rec, keyLen, valueLen)
		}
		if err != nil {
			return err
		}
	}
	if err := win.ensureEnd(); err != nil {
		return err
	}
	if err := v.refused(); err != nil {
		return err
	}
	if v.misplaced && out == nil { // Kafka tries to rewrite such a batch and fails; a plain one it lets pass
		return unanswerable("Offset deltas of the records are not 0, 1, 2… in topic partition %s", v.p.where())
	}
	return nil
}

// check applies the topic's rules to one record.
func (v *validator) check(r *Record, keyLen, valueLen int) {
	switch {
	case v.p.Compacted && r.Key == nil:
		v.reject("Compacted topic cannot accept message without key in topic partition %s", v.p.where())
	case v.p.TimestampType == CreateTime && r.Timestamp != NoTimestamp:
		if ago := v.p.Now - r.Timestamp; ago > v.p.BeforeMaxMs || -ago > v.p.AfterMaxMs {
			v.badTime = true
			v.reject("Timestamp %d of message with offset %d is out of range. The timestamp should be within [%d, %d]",
				r.Timestamp, r.Offset, v.p.Now-v.p.BeforeMaxMs, v.p.Now+v.p.AfterMaxMs)
		}
	case v.from == LogAppendTime:
		v.badTime = true
		v.reject("Invalid timestamp type in message DefaultRecord(offset=%d, timestamp=%d, key=%d bytes, value=%d bytes). Producer should not set timestamp type to LogAppendTime.",
			r.Offset, r.Timestamp, max(keyLen, 0), max(valueLen, 0))
	}
	if r.Timestamp > v.max {
		v.max, v.maxAt = r.Timestamp, v.index
	}
	v.index++
}

func (v *validator) reject(format string, args ...any) {
	v.badTotal++
	if len(v.bad) < maxRecordErrors {
		v.bad = append(v.bad, RecordError{Index: v.index, Message: fmt.Sprintf(format, args...)})
	}
}

// refused is the error for the whole batch when records were rejected.
func (v *validator) refused() error {
	if v.badTotal == 0 {
		return nil
	}
	if v.badTime {
		return &InvalidRecordError{Code: kerr.InvalidTimestamp.Code, Message: "One or more records have been rejected due to invalid timestamp", RecordErrors: v.bad}
	}
	text := make([]string, 0, 3)
	for _, e := range v.bad[:min(len(v.bad), 3)] {
		text = append(text, fmt.Sprintf("RecordError(batchIndex=%d, message='%s')", e.Index, e.Message))
	}
	err := invalid("One or more records have been rejected due to %d record errors in total, and only showing the first three errors at most: [%s]", v.badTotal, strings.Join(text, ", "))
	err.RecordErrors = slices.Clip(v.bad)
	return err
}

func (v *validator) result(b Batch) Checked {
	c := Checked{Batch: b, Count: int(v.index), MaxTimestamp: v.max, OffsetDeltaOfMaxTimestamp: v.maxAt}
	if v.p.TimestampType == LogAppendTime {
		c.MaxTimestamp, c.OffsetDeltaOfMaxTimestamp = v.p.Now, 0
	}
	return c
}

// copier writes large records to out as they pass, unless the batch is refused anyway.
func (v *validator) copier(out *Builder) copier {
	if out == nil || v.badTotal > 0 {
		return copier{}
	}
	return copier{out: out, from: v.b, fixed: v.p.TimestampType == LogAppendTime, ms: v.p.Now, limit: max(int(v.p.MaxBatch), 0)}
}

// recompress checks the records and writes them anew at offset deltas 0, 1, 2…, in one pass over the stream: neither the
// inflated batch nor much more than MaxBatch of output is ever held.
func (v *validator) recompress(buf *Buffers) (Checked, error) {
	out := buf.builder(v.options())
	if v.b.Codec() != None {
		if err := v.compressed(buf, out); err != nil {
			return Checked{}, err
		}
		return v.finish(out)
	}
	for r, err := range v.b.Records(buf) {
		if err == nil {
			err = v.rewrite(out, &r)
		}
		if err != nil {
			return Checked{}, err
		}
	}
	return v.finish(out)
}

// rewrite checks one record and adds it to the new batch, unless the batch is refused anyway.
func (v *validator) rewrite(out *Builder, r *Record) error {
	v.check(r, len(r.Key), len(r.Value))
	if v.badTotal > 0 {
		return nil
	}
	if v.target == None { // what is not compressed is known to be too large before it is copied
		if err := v.checkGrown(out.Len() + len(r.Key) + len(r.Value)); err != nil {
			return err
		}
	}
	out.Append(v.timestamp(r), r.Key, r.Value, r.Headers)
	return v.checkGrown(out.Len())
}

// timestamp is what a rewritten record gets.
func (v *validator) timestamp(r *Record) int64 {
	if v.p.TimestampType == LogAppendTime {
		return v.p.Now
	}
	return r.Timestamp
}

// finish ends the new batch, or refuses it.
func (v *validator) finish(out *Builder) (Checked, error) {
	if err := v.refused(); err != nil {
		return Checked{}, err
	}
	fresh := out.Build()
	if err := v.checkGrown(fresh.Len()); err != nil {
		return Checked{}, err
	}
	c := v.result(fresh)
	c.Recompressed = true
	return c, nil
}

func (v *validator) checkGrown(size int) error {
	if v.p.MaxBatch > 0 && size > int(v.p.MaxBatch) {
		return v.p.grown(size)
	}
	return nil
}

func (p *Policy) grown(size int) *InvalidRecordError {
	return &InvalidRecordError{Code: kerr.MessageTooLarge.Code, Message: fmt.Sprintf(
		"Message batch size is %d bytes in append topartition %s which exceeds the maximum configured size of %d.", size, p.where(), p.MaxBatch)}
}

// options are the header of the rewritten batch.
func (v *validator) options() Options {
	o := NewOptions()
	o.Codec = v.target
	if v.p.Target.Recompress {
		o.Level = v.p.Target.Level
	}
	o.TimestampType, o.LogAppendMs = v.p.TimestampType, v.p.Now
	if b := v.b; b != nil {
		o.BaseOffset, o.LeaderEpoch = b.BaseOffset(), b.LeaderEpoch()
		o.ProducerID, o.ProducerEpoch, o.BaseSequence = b.ProducerID(), b.ProducerEpoch(), b.BaseSequence()
		o.Transactional, o.Control = b.IsTransactional(), b.IsControl()
	}
	return o
}

// Single takes the one batch that a Produce request of v3 or later may hold for a partition; apiVersion is for the texts and,
// below v7, to refuse zstd (KIP-110). Errors: *InvalidRecordError, *CorruptError.
func Single(records []byte, apiVersion int16) (Batch, error) {
	e, rest, err := NextEntry(records)
	switch {
	case err == ErrShort:
		return nil, invalid("Produce requests with version %d must have at least one record batch per partition", apiVersion)
	case err != nil:
		return nil, err
	case e.Magic() != 2:
		return nil, invalid("Produce requests with version %d are only allowed to contain record batches with magic version 2", apiVersion)
	}
	b := Batch(e)
	if apiVersion < 7 && b.Codec() == Zstd {
		return nil, &InvalidRecordError{Code: kerr.UnsupportedCompressionType.Code,
			Message: fmt.Sprintf("Produce requests with version %d are not allowed to use ZStandard compression", apiVersion)}
	}
	switch _, _, err := NextEntry(rest); {
	case err == nil:
		return nil, invalid("Produce requests with version %d are only allowed to contain exactly one record batch per partition", apiVersion)
	case err != ErrShort:
		return nil, err
	}
	return b, nil // what is too short for a second batch is ignored, as Kafka does
}
