package clients

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/test/testnode"
)

// TestKcatLines: lines in, the same bytes out, for every codec.
func TestKcatLines(t *testing.T) {
	n := start(t)
	in := lines(testnode.Rounds(20_000, 1_000_000))
	for _, codec := range codecs() {
		t.Run(codec, func(t *testing.T) {
			began := time.Now()
			kcat(t, n, in, "-P", "-t", codec, "-z", codec)
			produced := time.Since(began)
			began = time.Now()
			out := kcat(t, n, nil, "-C", "-t", codec, "-e", "-q")
			consumed := time.Since(began)
			same(t, in, out)
			report(t, "clients", "kcat "+codec, map[string]any{
				"lines": bytes.Count(in, []byte("\n")), "bytes": len(in), "produce_ms": produced.Milliseconds(), "consume_ms": consumed.Milliseconds(),
			})
		})
	}
	// A restart does not change a byte.
	n.Kill(t)
	n.Start(t)
	for _, codec := range codecs() {
		same(t, in, kcat(t, n, nil, "-C", "-t", codec, "-e", "-q"))
	}
}

// TestKcatOldProtocols: kcat told that the broker is old speaks the message sets of its time.
func TestKcatOldProtocols(t *testing.T) {
	n := start(t)
	in := lines(testnode.Rounds(5_000, 100_000))
	for _, version := range []string{"0.8.2", "0.9.0"} {
		old := []string{"-X", "api.version.request=false", "-X", "broker.version.fallback=" + version}
		for _, codec := range []string{"none", "gzip", "snappy", "lz4"} {
			t.Run(version+" "+codec, func(t *testing.T) {
				topic := "old-" + version + "-" + codec
				kcat(t, n, in, append(old, "-P", "-t", topic, "-z", codec)...)
				same(t, in, kcat(t, n, nil, append(old, "-C", "-t", topic, "-e", "-q")...))
				same(t, in, kcat(t, n, nil, "-C", "-t", topic, "-e", "-q")) // and a new one reads the same

				topic = "new-" + version + "-" + codec
				kcat(t, n, in, "-P", "-t", topic, "-z", codec)
				same(t, in, kcat(t, n, nil, append(old, "-C", "-t", topic, "-e", "-q")...))
			})
		}
	}
}

// TestKcatKeysAndHeaders: null is not empty, for keys and for values, and headers come in their order.
func TestKcatKeysAndHeaders(t *testing.T) {
	n := start(t)
	const format = "%o|%K:%k|%S:%s|%h\n"
	for i, c := range []struct {
		stdin string
		args  []string
		want  string
	}{
		{"key=value", []string{"-K", "="}, "3:key|5:value|"},
		{"=value", []string{"-K", "=", "-Z"}, "-1:|5:value|"},
		{"=value", []string{"-K", "="}, "0:|5:value|"},
		{"key=", []string{"-K", "=", "-Z"}, "3:key|-1:|"},
		{"key=", []string{"-K", "="}, "3:key|0:|"},
		{"=", []string{"-K", "=", "-Z"}, "-1:|-1:|"},
		{"value", []string{"-H", "a=1", "-H", "b=", "-H", "a=2", "-H", "null"}, "-1:|5:value|a=1,b=,a=2,null=NULL"},
		{"value", []string{"-H", "emoji=🌊", "-k", "fixed"}, "5:fixed|5:value|emoji=🌊"},
		{strings.Repeat("x", 900_000), []string{"-k", strings.Repeat("k", 50_000)}, ""},
	} {
		for _, codec := range codecs() {
			topic := fmt.Sprintf("keys-%d-%s", i, codec)
			kcat(t, n, []byte(c.stdin), append([]string{"-P", "-t", topic, "-z", codec, "-X", "message.max.bytes=2000000"}, c.args...)...)
			got := strings.TrimSuffix(string(kcat(t, n, nil, "-C", "-t", topic, "-e", "-q", "-f", format)), "\n")
			want := "0|" + c.want
			if c.want == "" {
				want = fmt.Sprintf("0|%d:%s|%d:%s|", len(c.args[1]), c.args[1], len(c.stdin), c.stdin)
			}
			if got != want {
				t.Errorf("%s %v %.20q: %.80q, want %.80q", codec, c.args, c.stdin, got, want)
			}
		}
	}
}

// TestKcatOffsets: from the end, from an offset, from a time.
func TestKcatOffsets(t *testing.T) {
	n := start(t)
	kcat(t, n, lines(100), "-P", "-t", "offsets")
	read := func(from string) string {
		return string(kcat(t, n, nil, "-C", "-t", "offsets", "-e", "-q", "-p", "0", "-o", from, "-f", "%o "))
	}
	if got := read("97"); got != "97 98 99 " {
		t.Errorf("from 97: %q", got)
	}
	if got := read("-2"); got != "98 99 " {
		t.Errorf("the last two: %q", got)
	}
	if got := read("s@1"); !strings.HasPrefix(got, "0 1 2 ") {
		t.Errorf("from long ago: %.20q", got)
	}
	if got := strings.TrimSpace(string(kcat(t, n, nil, "-Q", "-t", "offsets:0:1"))); got != "offsets [0] offset 0" {
		t.Errorf("query of a time: %q", got)
	}
}
