package clients

import (
	"bytes"
	"fmt"
	"strconv"
	"testing"

	"weir/test/testnode"
)

// TestOldTools: the console producer, the console consumer and GetOffsetShell of Kafka 1.0.2.
func TestOldTools(t *testing.T) {
	oldClient(t, func(t *testing.T, n *testnode.Node) {
		topic(t, n, "old", 1, nil)
		topic(t, n, "spread", 4, nil)
		count := testnode.Rounds(1_000, 50_000)
		in := lines(count)
		rest := after(in, count/3)
		t.Run("before", func(t *testing.T) {
			oracleVersion(t, "1.0.2")
			oldTool(t, in, "kafka-console-producer", "--broker-list", n.Addr, "--topic", "old", "--compression-codec", "gzip", "--request-required-acks", "-1")
			if testnode.Full() {
				same(t, in, oldRead(t, n, count, "--partition", "0", "--offset", "earliest"))
			}
			same(t, after(in, count-3), oldRead(t, n, 3, "--partition", "0", "--offset", strconv.Itoa(count-3)))
			// The tool of that time commits all that it has polled.
			same(t, in[:len(in)-len(rest)], oldRead(t, n, count/3, "--group", "old", "--from-beginning", "--consumer-property", "max.poll.records=1"))
		})
		n.Kill(t)
		n.Start(t)
		t.Run("after", func(t *testing.T) {
			oracleVersion(t, "1.0.2")
			same(t, rest, oldRead(t, n, count-count/3, "--group", "old"))
			if got, want := oldOffsets(t, n, "old", "-1"), fmt.Sprintf("old:0:%d\n", count); got != want {
				t.Errorf("the end: %q, want %q", got, want)
			}
			if !testnode.Full() {
				return
			}
			if got, want := oldOffsets(t, n, "spread", "-2"), "spread:0:0\nspread:1:0\nspread:2:0\nspread:3:0\n"; got != want {
				t.Errorf("the beginnings: %q, want %q", got, want)
			}
		})
	})
}

// oldTool runs a tool of the version that oracleVersion has set, to a good end.
func oldTool(t *testing.T, stdin []byte, name string, args ...string) []byte {
	t.Helper()
	out := testnode.Tool(t, string(stdin), name, args...)
	if out.Code != 0 {
		t.Fatalf("%s %v: exit code %d\n%s", name, args, out.Code, out.Stderr)
	}
	return []byte(out.Stdout)
}

func oldRead(t *testing.T, n *testnode.Node, records int, args ...string) []byte {
	t.Helper()
	return oldTool(t, nil, "kafka-console-consumer", append([]string{"--bootstrap-server", n.Addr, "--topic", "old",
		"--max-messages", strconv.Itoa(records), "--timeout-ms", "30000"}, args...)...)
}

func oldOffsets(t *testing.T, n *testnode.Node, topic, time string) string {
	t.Helper()
	return string(oldTool(t, nil, "kafka.tools.GetOffsetShell", "--broker-list", n.Addr, "--topic", topic, "--time", time))
}

// after is what follows the first n lines.
func after(text []byte, n int) []byte {
	return bytes.Join(bytes.SplitAfter(text, []byte("\n"))[n:], nil)
}
