package batch

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
)

// nowMs is the present of the cases. The run against a real broker uses the real present instead.
const nowMs = 1_800_000_000_000

// topicKind is a topic setting that cases need, as Policy here and as topic configuration on a real broker.
type topicKind struct {
	configs map[string]string
	policy  func(*Policy)
}

var topicKinds = map[string]topicKind{
	"plain":     {nil, func(*Policy) {}},
	"compacted": {map[string]string{"cleanup.policy": "compact"}, func(p *Policy) { p.Compacted = true }},
	"appended":  {map[string]string{"message.timestamp.type": "LogAppendTime"}, func(p *Policy) { p.TimestampType = LogAppendTime }},
	"small":     {map[string]string{"max.message.bytes": "51200"}, func(p *Policy) { p.MaxBatch = 51200 }},
	"bounded": {map[string]string{"message.timestamp.before.max.ms": "20000", "message.timestamp.after.max.ms": "20000"},
		func(p *Policy) { p.BeforeMaxMs, p.AfterMaxMs = 20000, 20000 }},
	"gzipped": {map[string]string{"compression.type": "gzip"}, func(p *Policy) { p.Target = Target{Recompress: true, Codec: Gzip, Level: LevelDefault} }},
	"bare":    {map[string]string{"compression.type": "uncompressed"}, func(p *Policy) { p.Target = Target{Recompress: true} }},
	"baresmall": {map[string]string{"compression.type": "uncompressed", "max.message.bytes": "51200"},
		func(p *Policy) { p.Target, p.MaxBatch = Target{Recompress: true}, 51200 }},
}

func policyOf(kind string, now int64) *Policy {
	p := &Policy{Topic: kind, Now: now, BeforeMaxMs: math.MaxInt64, AfterMaxMs: 3600000, MaxBatch: 1048588}
	topicKinds[kind].policy(p)
	return p
}

type produceCase struct {
	name    string
	topic   string
	records func(now int64) []byte
	code    *kerr.Error // nil: accepted
	text    string      // part of the message
	indexes []int32     // of the record errors
	// unlike says why the real broker answers another code here.
	unlike string
}

type rec struct {
	ts         int64
	key, value []byte
	headers    []Header
}

func make3(c Codec, now int64, edit func(*Options)) Batch {
	o := NewOptions()
	o.Codec = c
	if edit != nil {
		edit(&o)
	}
	return buildOf(o, rec{now, []byte("a"), []byte("1"), nil}, rec{now, []byte("b"), []byte("2"), []Header{{[]byte("h"), nil}, {[]byte("h"), []byte{}}}}, rec{now, []byte("c"), nil, nil})
}

func buildOf(o Options, rs ...rec) Batch {
	b := NewBuilder(o)
	for _, r := range rs {
		b.Append(r.ts, r.key, r.value, r.headers)
	}
	return b.Build()
}

func fix(b Batch) []byte { b.setCRC(); return b }

// rawBatch is a batch of handwritten record bytes, compressed by codec.
func rawBatch(c Codec, now int64, count int32, raw []byte) []byte {
	o := NewOptions()
	o.Codec = c
	bl := NewBuilder(o)
	bl.base, bl.max, bl.count, bl.last = now, now, int(count), count-1
	if _, err := bl.out.Write(raw); err != nil {
		panic(err)
	}
	return bl.Build()
}

func record3(now int64, deltas ...int32) []byte {
	var raw []byte
	for _, d := range deltas {
		raw = append(raw, 2*8, 0, 0, byte(2*d), 2, 'k', 2, 'v', 0) // zigzag
	}
	return raw
}

// compressedPayload replaces the records of a batch by given compressed bytes.
func compressedPayload(c Codec, now int64, count int32, payload []byte) []byte {
	b := rawBatch(None, now, count, payload)
	b[offAttributes+1] = byte(c)
	return fix(b)
}

func produceCases() []produceCase {
	cases := []produceCase{
		{name: "none", topic: "plain", records: func(int64) []byte { return []byte{} }, code: kerr.InvalidRecord, text: "must have at least one record batch"},
		{name: "two batches", topic: "plain", records: func(n int64) []byte { return append(make3(None, n, nil), make3(None, n, nil)...) }, code: kerr.InvalidRecord, text: "exactly one"},
		{name: "trailing garbage", topic: "plain", records: func(n int64) []byte { return append(make3(None, n, nil), 1, 2, 3) }},
		{name: "cut", topic: "plain", records: func(n int64) []byte { b := make3(None, n, nil); return b[:len(b)-1] }, code: kerr.InvalidRecord},
		{name: "magic 3", topic: "plain", records: func(n int64) []byte { b := make3(None, n, nil); b[offMagic] = 3; return b }, code: kerr.CorruptMessage},
		{name: "base offset", topic: "plain", records: func(n int64) []byte { return make3(None, n, func(o *Options) { o.BaseOffset = 7 }) }, code: kerr.InvalidRecord, text: "baseOffset"},
		{name: "control", topic: "plain", records: func(n int64) []byte { return make3(None, n, func(o *Options) { o.Control = true }) }, code: kerr.InvalidRecord, text: "control records"},
		{name: "sequence", topic: "plain", records: func(n int64) []byte {
			return make3(None, n, func(o *Options) { o.ProducerID = 5; o.ProducerEpoch = 0 })
		}, code: kerr.InvalidRecord, text: "Invalid sequence number -1"},
		{name: "codec 5", topic: "plain", records: func(n int64) []byte { b := make3(None, n, nil); b[offAttributes+1] = 5; return fix(b) }, code: kerr.UnknownServerError},
		{name: "too large", topic: "small", records: func(n int64) []byte {
			return buildOf(NewOptions(), rec{n, []byte("k"), make([]byte, 60000), nil})
		}, code: kerr.MessageTooLarge, text: "exceeds the maximum configured value"},
		{name: "zeros shrink", topic: "small", records: func(n int64) []byte {
			o := NewOptions()
			o.Codec = Gzip
			return buildOf(o, rec{n, []byte("k"), make([]byte, 10<<20), nil})
		}},
		{name: "recompressed too large", topic: "baresmall", records: func(n int64) []byte {
			o := NewOptions()
			o.Codec = Zstd
			return buildOf(o, rec{n, []byte("k"), make([]byte, 1<<20), nil})
		}, code: kerr.MessageTooLarge},
	}
	for _, c := range []Codec{None, Gzip, Snappy, Lz4, Zstd} {
		cases = append(cases, codecCases(c)...)
	}
	for _, c := range []Codec{Gzip, Snappy, Lz4, Zstd} {
		cases = append(cases, damageCases(c)...)
	}
	return cases
}

func codecCases(c Codec) []produceCase {
	set := func(off int, v uint32) func(int64) []byte {
		return func(n int64) []byte {
			b := make3(c, n, nil)
			binary.BigEndian.PutUint32(b[off:], v)
			return fix(b)
		}
	}
	cases := []produceCase{
		{name: "good", topic: "plain", records: func(n int64) []byte { return make3(c, n, nil) }},
		{name: "good", topic: "compacted", records: func(n int64) []byte { return make3(c, n, nil) }},
		{name: "good", topic: "appended", records: func(n int64) []byte { return make3(c, n, nil) }},
		{name: "good", topic: "gzipped", records: func(n int64) []byte { return make3(c, n, nil) }},
		{name: "good", topic: "bare", records: func(n int64) []byte { return make3(c, n, nil) }},
		{name: "crc", topic: "plain", records: func(n int64) []byte { b := make3(c, n, nil); b[len(b)-1] ^= 1; return b }, code: kerr.CorruptMessage, text: "Record is corrupt (stored crc = "},
		{name: "last offset delta", topic: "plain", records: set(offLastOffsetDelta, 3), code: kerr.InvalidRecord, text: "Inconsistent batch offset range [0, 3] and count of records 3"},
		{name: "negative last offset delta", topic: "plain", records: set(offLastOffsetDelta, 0xffffffff), code: kerr.InvalidRecord, text: "invalid offset range"},
		{name: "count 0", topic: "plain", records: set(offCount, 0), code: kerr.InvalidRecord, text: "Invalid reported count"},
		{name: "count -1", topic: "plain", records: set(offCount, 0xffffffff), code: kerr.InvalidRecord, text: "Invalid reported count"},
		{name: "count beyond records", topic: "plain", records: func(n int64) []byte {
			b := make3(c, n, nil)
			binary.BigEndian.PutUint32(b[offLastOffsetDelta:], 3)
			binary.BigEndian.PutUint32(b[offCount:], 4)
			return fix(b)
		}, code: kerr.InvalidRecord},
		{name: "count below records", topic: "plain", records: func(n int64) []byte {
			b := make3(c, n, nil)
			binary.BigEndian.PutUint32(b[offLastOffsetDelta:], 1)
			binary.BigEndian.PutUint32(b[offCount:], 2)
			return fix(b)
		}, code: kerr.InvalidRecord, text: "records still remaining"},
		{name: "huge count", topic: "plain", records: func(n int64) []byte {
			b := make3(c, n, nil)
			binary.BigEndian.PutUint32(b[offLastOffsetDelta:], math.MaxInt32-1)
			binary.BigEndian.PutUint32(b[offCount:], math.MaxInt32)
			return fix(b)
		}, code: kerr.InvalidRecord},
		{name: "keyless", topic: "compacted", records: func(n int64) []byte {
			o := NewOptions()
			o.Codec = c
			return buildOf(o, rec{n, []byte("a"), nil, nil}, rec{n, nil, []byte("x"), nil}, rec{n, []byte{}, []byte("x"), nil})
		}, code: kerr.InvalidRecord, text: "rejected due to 1 record errors", indexes: []int32{1}},
		{name: "timestamps", topic: "bounded", records: func(n int64) []byte {
			o := NewOptions()
			o.Codec = c
			return buildOf(o, rec{n, nil, nil, nil}, rec{n - 60000, nil, nil, nil}, rec{n + 60000, nil, nil, nil}, rec{-1, nil, nil, nil})
		}, code: kerr.InvalidTimestamp, text: "invalid timestamp", indexes: []int32{1, 2}},
		{name: "keyless and old", topic: "plain", records: func(n int64) []byte {
			o := NewOptions()
			o.Codec = c
			return buildOf(o, rec{n + 7200000, nil, nil, nil})
		}, code: kerr.InvalidTimestamp, indexes: []int32{0}},
		{name: "claims append time", topic: "plain", records: func(n int64) []byte {
			return make3(c, n, func(o *Options) { o.TimestampType, o.LogAppendMs = LogAppendTime, n })
		}},
		{name: "claims append time", topic: "appended", records: func(n int64) []byte {
			return make3(c, n, func(o *Options) { o.TimestampType, o.LogAppendMs = LogAppendTime, n })
		}, code: kerr.InvalidTimestamp, text: "invalid timestamp", indexes: []int32{0, 1, 2}},
		{name: "no timestamp", topic: "plain", records: func(n int64) []byte {
			o := NewOptions()
			o.Codec = c
			return buildOf(o, rec{-1, nil, nil, nil})
		}},
	}
	for _, bad := range []struct {
		name string
		raw  []byte
	}{
		{"negative record length", []byte{0x03}},
		{"record longer than data", []byte{0x7e, 0, 0, 0, 1, 1, 0}},
		{"record shorter", append([]byte{0x0e, 0, 0, 0, 1, 1, 0}, 0)},
		{"negative headers", []byte{0x0c, 0, 0, 0, 1, 1, 1}},
		{"many headers", []byte{0x0c, 0, 0, 0, 1, 1, 0x7e}},
		{"null header key", []byte{0x10, 0, 0, 0, 1, 1, 2, 1, 1}},
		{"key beyond record", []byte{0x0c, 0, 0, 0, 0x7e, 1, 0}},
		{"empty record", []byte{0x00}},
	} {
		pc := produceCase{name: bad.name, topic: "plain", records: func(n int64) []byte { return rawBatch(c, n, 1, bad.raw) }, code: kerr.InvalidRecord}
		if c != None && bad.name == "record longer than data" {
			pc.unlike = "Kafka skims compressed records and accepts what no consumer can read afterwards"
		}
		cases = append(cases, pc)
	}
	overlong, misplaced, rewritten := kerr.InvalidRecord, kerr.UnknownServerError, (*kerr.Error)(nil)
	if c == None {
		overlong, misplaced = kerr.UnknownServerError, nil
	}
	if c == Gzip {
		rewritten = kerr.UnknownServerError
	}
	cases = append(cases,
		produceCase{name: "offset deltas", topic: "plain", records: func(n int64) []byte { return rawBatch(c, n, 3, record3(n, 0, 5, 1)) }, code: misplaced},
		produceCase{name: "offset deltas", topic: "gzipped", records: func(n int64) []byte { return rawBatch(c, n, 3, record3(n, 0, 5, 1)) }, code: rewritten},
		produceCase{name: "overlong varint", topic: "plain", records: func(n int64) []byte { return rawBatch(c, n, 1, bytes.Repeat([]byte{0x80}, 20)) }, code: overlong},
		produceCase{name: "null key length -5", topic: "plain", records: func(n int64) []byte { return rawBatch(c, n, 1, []byte{0x0c, 0, 0, 0, 9, 9, 0}) }},
		produceCase{name: "record attributes", topic: "plain", records: func(n int64) []byte { return rawBatch(c, n, 1, []byte{0x0c, 0x77, 0, 0, 1, 1, 0}) }},
	)
	for i := range cases {
		cases[i].name = fmt.Sprintf("%s/%s", c, cases[i].name)
	}
	return cases
}

func damageCases(c Codec) []produceCase {
	name := func(s string) string { return fmt.Sprintf("%s/%s", c, s) }
	empty, behind := kerr.UnknownServerError, kerr.UnknownServerError
	switch c {
	case Zstd:
		empty = kerr.InvalidRecord
	case Gzip, Lz4: // what follows the stream is never looked at
		behind = nil
	}
	return []produceCase{
		{name: name("no stream"), topic: "plain", records: func(n int64) []byte { return compressedPayload(c, n, 1, nil) }, code: empty},
		{name: name("garbage stream"), topic: "plain", records: func(n int64) []byte { return compressedPayload(c, n, 1, []byte("this is not compressed")) }, code: kerr.UnknownServerError},
		{name: name("cut stream"), topic: "plain", records: func(n int64) []byte {
			b := make3(c, n, nil)
			return compressedPayload(c, n, 3, b[HeaderLen:len(b)-6])
		}, code: kerr.UnknownServerError},
		{name: name("bytes behind stream"), topic: "plain", records: func(n int64) []byte {
			b := make3(c, n, nil)
			return compressedPayload(c, n, 3, append(b[HeaderLen:len(b):len(b)], "garbage behind"...))
		}, code: behind},
	}
}

func caseName(c produceCase) string { return c.name + "@" + c.topic }

func TestCaseNamesDiffer(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range produceCases() {
		if seen[caseName(c)] {
			t.Errorf("case %s twice", caseName(c))
		}
		seen[caseName(c)] = true
	}
}
