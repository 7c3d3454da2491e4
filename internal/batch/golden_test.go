package batch

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var javaDir = flag.String("java", "", "write files there for testdata/Golden.java to read")

func goldenFiles(t testing.TB) map[string][]byte {
	names, err := filepath.Glob("testdata/*.bin")
	if err != nil || len(names) != 22 {
		t.Fatalf("golden files: %v, %v", names, err)
	}
	files := map[string][]byte{}
	for _, n := range names {
		b, err := os.ReadFile(n)
		if err != nil {
			t.Fatal(err)
		}
		files[strings.TrimSuffix(filepath.Base(n), ".bin")] = b
	}
	return files
}

// dump prints records one a line.
func dump(t testing.TB, entries []byte, buf *Buffers) string {
	var sb strings.Builder
	for len(entries) > 0 {
		e, rest, err := NextEntry(entries)
		if err != nil {
			t.Fatal(err)
		}
		if !e.CheckCRC() {
			t.Fatalf("entry at %d: wrong CRC", e.LastOffset())
		}
		for r, err := range e.Records(buf) {
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&sb, "%d %d %s %s", r.Offset, r.Timestamp, show(r.Key), show(r.Value))
			for _, h := range r.Headers {
				fmt.Fprintf(&sb, " %s=%s", show(h.Key), show(h.Value))
			}
			sb.WriteByte('\n')
		}
		entries = rest
	}
	return sb.String()
}

func show(b []byte) string {
	switch {
	case b == nil:
		return "null"
	case len(b) > 20:
		return fmt.Sprintf("%d×%c", len(b), b[0])
	}
	return fmt.Sprintf("%q", b)
}

// wantGolden is the text of the golden records in the given shape.
func wantGolden(name string, headers bool) string {
	ts := [4]int64{1700000000000, 1700000000005, 1699999999999, 1700000000005}
	if strings.HasSuffix(name, "-append") {
		ts = [4]int64{1700000009999, 1700000009999, 1700000009999, 1700000009999}
	}
	if strings.HasPrefix(name, "v0") {
		ts = [4]int64{-1, -1, -1, -1}
	}
	h := ""
	if headers {
		h = ` "h"="x" "h"=null ""=""`
	}
	return fmt.Sprintf("100 %d \"key\" \"value\"%s\n101 %d null \"\"\n102 %d \"\" null\n103 %d 40×k 400×v\n", ts[0], h, ts[1], ts[2], ts[3])
}

func TestGoldenRecords(t *testing.T) {
	var buf Buffers
	for name, b := range goldenFiles(t) {
		t.Run(name, func(t *testing.T) {
			if got, want := dump(t, b, &buf), wantGolden(name, name[1] == '2'); got != want {
				t.Errorf("got\n%swant\n%s", got, want)
			}
			e, _, _ := NextEntry(b)
			if base, err := e.BaseOffset(&buf); err != nil || base != 100 {
				t.Errorf("base offset %d, %v", base, err)
			}
		})
	}
}

// An uncompressed batch has one encoding: ours must be Kafka's byte for byte.
func TestGoldenBuilt(t *testing.T) {
	for name, want := range goldenFiles(t) {
		if !strings.HasPrefix(name, "v2-none") {
			continue
		}
		o := NewOptions()
		o.BaseOffset = 100
		if strings.HasSuffix(name, "append") {
			o.TimestampType, o.LogAppendMs = LogAppendTime, 1700000009999
		}
		got := buildOf(o, goldenRecs()...)
		got.SetLeaderEpoch(Batch(want).LeaderEpoch())
		if !bytes.Equal(got, want) {
			t.Errorf("%s\n got %x\nwant %x", name, []byte(got), want)
		}
	}
}

func goldenRecs() []rec {
	return []rec{
		{1700000000000, []byte("key"), []byte("value"), []Header{{[]byte("h"), []byte("x")}, {[]byte("h"), nil}, {[]byte{}, []byte{}}}},
		{1700000000005, nil, []byte{}, nil},
		{1699999999999, []byte{}, nil, nil},
		{1700000000005, bytes.Repeat([]byte("k"), 40), bytes.Repeat([]byte("v"), 400), nil},
	}
}

func TestDownConvertGolden(t *testing.T) {
	var buf Buffers
	files := goldenFiles(t)
	for name, b := range files {
		for magic := int8(0); magic < 2; magic++ {
			if name[1] < byte('1'+magic) {
				continue
			}
			t.Run(fmt.Sprintf("%s to %d", name, magic), func(t *testing.T) {
				out := []byte("prefix")
				var err error
				for rest := b; len(rest) > 0 && err == nil; {
					var e Entry
					e, rest, _ = NextEntry(rest)
					out, err = DownConvertEntry(out, e, magic, &buf)
				}
				if strings.Contains(name, "zstd") {
					if code, _, _ := verdict(err); code != 76 || string(out) != "prefix" {
						t.Errorf("zstd: %v", err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				out = out[len("prefix"):]
				want := wantGolden(name, false)
				if magic == 0 {
					want = wantGolden("v0", false)
				}
				if got := dump(t, out, &buf); got != want {
					t.Errorf("got\n%swant\n%s", got, want)
				}
				// Plain messages have one encoding, the real one's.
				if strings.Contains(name, "-none") {
					like := fmt.Sprintf("v%d%s", magic, name[2:])
					if magic == 0 {
						like = "v0-none"
					}
					if !bytes.Equal(out, files[like]) {
						t.Errorf("\n got %x\nwant %x", out, files[like])
					}
				}
			})
		}
	}
}

func TestUpConvertGolden(t *testing.T) {
	var buf Buffers
	for name, b := range goldenFiles(t) {
		if name[1] == '2' {
			continue
		}
		t.Run(name, func(t *testing.T) {
			p := policyOf("plain", nowMs)
			c, err := UpConvert(b, p, &buf)
			if strings.HasSuffix(name, "-append") {
				// A message is refused in a CreateTime topic only for its time; in a LogAppendTime topic for its type.
				p.TimestampType = LogAppendTime
				if _, err := UpConvert(b, p, &buf); err == nil {
					t.Error("LogAppendTime was accepted from a client")
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			c.Batch.SetBaseOffset(100)
			want := wantGolden(name, false)
			if got := dump(t, c.Batch, &buf); got != want {
				t.Errorf("got\n%swant\n%s", got, want)
			}
			e, _, _ := NextEntry(b)
			if c.Batch.Codec() != e.Codec() || c.Count != 4 || !c.Recompressed {
				t.Errorf("%+v, codec %s", c, c.Batch.Codec())
			}
		})
	}
}

// TestWriteForJava writes what testdata/Golden.java shall read; see testdata/README.md.
func TestWriteForJava(t *testing.T) {
	if *javaDir == "" {
		t.Skip("-java DIR is not given")
	}
	for _, c := range []Codec{None, Gzip, Snappy, Lz4, Zstd} {
		o := NewOptions()
		o.Codec, o.BaseOffset = c, 100
		b := buildOf(o, goldenRecs()...)
		write := func(name string, data []byte) {
			if err := os.WriteFile(filepath.Join(*javaDir, name+".ours"), data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		write("v2-"+c.String(), b)
		bl := NewBuilder(o)
		for i := range 5000 {
			bl.Append(nowMs, fmt.Appendf(nil, "key%d", i), bytes.Repeat([]byte{byte(i), byte(i >> 8)}, 40), nil)
		}
		write("v2-large-"+c.String(), bl.Build())
		for magic := int8(0); magic < 2 && c != Zstd; magic++ {
			out, err := DownConvert(nil, b, magic, nil)
			if err != nil {
				t.Fatal(err)
			}
			write(fmt.Sprintf("v%d-%s", magic, c), out)
		}
	}
}
