package batch

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"weir/internal/batch/compress"
)

// wrapperOf makes a compressed message of inner messages with the given offsets.
func wrapperOf(t testing.TB, magic int8, c Codec, offset int64, edit func(Message), offsets ...int64) []byte {
	t.Helper()
	var set []byte
	for _, o := range offsets {
		at := len(set)
		set = appendMessage(set, magic, 0, o, nowMs, []byte("k"), []byte("v"))
		if edit != nil {
			edit(Message(set[at:]))
		}
	}
	var w compress.Writer
	if err := w.Reset(c, LevelDefault, nil, magic == 0); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(set); err != nil {
		t.Fatal(err)
	}
	value, err := w.Close()
	if err != nil {
		t.Fatal(err)
	}
	return appendMessage(nil, magic, byte(c), offset, nowMs, nil, value)
}

func offsetsOf(t testing.TB, b []byte) ([]int64, error) {
	t.Helper()
	m, rest, err := LegacyNext(b)
	if err != nil || len(rest) > 0 {
		t.Fatal(err, len(rest))
	}
	var got []int64
	for r, err := range m.Records(nil) {
		if err != nil {
			return got, err
		}
		got = append(got, r.Offset)
	}
	return got, nil
}

func TestWrapperOffsets(t *testing.T) {
	for _, c := range []struct {
		name   string
		magic  int8
		offset int64
		inner  []int64
		want   []int64 // nil: refused
	}{
		{"magic 0 is absolute", 0, 12, []int64{10, 11, 12}, []int64{10, 11, 12}},
		{"magic 1 is relative", 1, 12, []int64{0, 1, 2}, []int64{10, 11, 12}},
		{"magic 1 with holes", 1, 19, []int64{1, 5, 9}, []int64{11, 15, 19}},
		{"magic 1 from a producer", 1, 0, []int64{0, 1, 2}, []int64{0, 1, 2}},
		{"magic 1 at its first offsets", 1, 2, []int64{0, 1, 2}, []int64{0, 1, 2}},
		{"magic 1 wrapper too low", 1, 1, []int64{0, 1, 2}, nil},
		{"nothing inside", 1, 1, nil, nil},
	} {
		for codec := Gzip; codec <= Lz4; codec++ {
			got, err := offsetsOf(t, wrapperOf(t, c.magic, codec, c.offset, nil, c.inner...))
			if c.want == nil {
				var inv *InvalidRecordError
				if !errors.As(err, &inv) || inv.Code != kerr.InvalidRecord.Code {
					t.Errorf("%s, %s: got %v, %v", c.name, codec, got, err)
				}
				continue
			}
			if err != nil || len(got) != len(c.want) || got[0] != c.want[0] || got[len(got)-1] != c.want[len(c.want)-1] {
				t.Errorf("%s, %s: got %v, %v; want %v", c.name, codec, got, err, c.want)
			}
		}
	}
}

func TestUpConvertRefuses(t *testing.T) {
	plain := func(magic int8, ts int64, key []byte) []byte {
		return appendMessage(nil, magic, 0, 0, ts, key, []byte("v"))
	}
	badCRC := func(b []byte) []byte { b[len(b)-1] ^= 1; return b }
	for _, c := range []struct {
		name  string
		topic string
		set   []byte
		code  *kerr.Error
		count int
	}{
		{"empty", "plain", nil, nil, 0},
		{"only a cut message", "plain", plain(1, nowMs, nil)[:20], nil, 0},
		{"cut at the end", "plain", append(plain(1, nowMs, nil), plain(1, nowMs, nil)[:20]...), nil, 1},
		{"two", "plain", append(plain(0, 0, nil), plain(0, 0, nil)...), nil, 2},
		{"crc", "plain", badCRC(plain(0, 0, nil)), kerr.CorruptMessage, 0},
		{"mixed magic", "plain", append(plain(0, 0, nil), plain(1, nowMs, nil)...), kerr.InvalidRecord, 0},
		{"two wrappers", "plain", append(wrapperOf(t, 1, Gzip, 0, nil, 0), wrapperOf(t, 1, Gzip, 0, nil, 0)...), kerr.InvalidRecord, 0},
		{"inner crc", "plain", wrapperOf(t, 1, Gzip, 0, func(m Message) { m[len(m)-1] ^= 1 }, 0, 1), kerr.CorruptMessage, 0},
		{"inner magic", "plain", wrapperOf(t, 1, Gzip, 0, func(m Message) { m[legacyMagicByte] = 0 }, 0), kerr.InvalidRecord, 0},
		{"inner compressed", "plain", wrapperOf(t, 1, Gzip, 0, func(m Message) { m[legacyMagicByte+1] = 1 }, 0), kerr.InvalidRecord, 0},
		{"inner size", "plain", wrapperOf(t, 1, Gzip, 0, func(m Message) { binary.BigEndian.PutUint32(m[offLength:], 1) }, 0), kerr.CorruptMessage, 0},
		{"zstd wrapper", "plain", appendMessage(nil, 1, byte(Zstd), 0, nowMs, nil, []byte("x")), kerr.InvalidRecord, 0},
		{"null wrapper", "plain", appendMessage(nil, 1, byte(Gzip), 0, nowMs, nil, nil), kerr.InvalidRecord, 0},
		{"all zero inner offsets", "plain", wrapperOf(t, 1, Snappy, 0, nil, 0, 0, 0), nil, 3},
		{"keyless", "compacted", append(plain(1, nowMs, []byte("k")), plain(1, nowMs, nil)...), kerr.InvalidRecord, 0},
		{"old", "bounded", plain(1, nowMs-60000, nil), kerr.InvalidTimestamp, 0},
		{"without time", "bounded", plain(0, 0, nil), nil, 1},
		{"to gzip", "gzipped", append(plain(0, 0, nil), plain(0, 0, nil)...), nil, 2},
		{"append time", "appended", plain(1, 5, nil), nil, 1},
		{"v2 batch", "plain", make3(None, nowMs, nil), nil, 3},
		{"two v2 batches", "plain", append(make3(None, nowMs, nil), make3(None, nowMs, nil)...), kerr.InvalidRecord, 0},
		{"large", "small", appendMessage(nil, 1, 0, 0, nowMs, nil, make([]byte, 60000)), kerr.MessageTooLarge, 0},
		{"many make a large one", "small", append(appendMessage(nil, 1, 0, 0, nowMs, nil, make([]byte, 30000)), appendMessage(nil, 1, 0, 1, nowMs, nil, make([]byte, 30000))...), kerr.MessageTooLarge, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			if *javaDir != "" {
				if err := os.WriteFile(filepath.Join(*javaDir, strings.ReplaceAll(c.name, " ", "_")+"@"+c.topic+".set"), c.set, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			p := policyOf(c.topic, nowMs)
			got, err := UpConvert(c.set, p, nil)
			code, text, _ := verdict(err)
			if c.code != nil && code != c.code.Code || c.code == nil && err != nil || got.Count != c.count {
				t.Fatalf("got %d %q, count %d", code, text, got.Count)
			}
			if c.count == 0 {
				return
			}
			b := got.Batch
			if !b.CheckCRC() || b.LastOffsetDelta() != int32(c.count-1) || b.TimestampType() != p.TimestampType || b.MaxTimestamp() != got.MaxTimestamp {
				t.Errorf("batch %x, %+v", []byte(b), got)
			}
			if p.Target.Recompress && b.Codec() != p.Target.Codec {
				t.Errorf("codec %s", b.Codec())
			}
		})
	}
}

func TestDownConvertDropsControl(t *testing.T) {
	b := make3(None, nowMs, func(o *Options) { o.Control = true })
	if out, err := DownConvert([]byte("x"), b, 1, nil); err != nil || string(out) != "x" {
		t.Errorf("%q, %v", out, err)
	}
	o := NewOptions()
	o.Codec = Gzip
	if out, err := DownConvert([]byte("x"), NewBuilder(o).BuildUpTo(4), 0, nil); err != nil || string(out) != "x" {
		t.Errorf("empty batch: %q, %v", out, err)
	}
}
