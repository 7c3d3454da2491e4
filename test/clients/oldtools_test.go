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
		t.Run("1.0.2", func(t *testing.T) {
			oracleVersion(t, "1.0.2")
			run := func(stdin []byte, args ...string) []byte {
				t.Helper()
				out := testnode.Tool(t, string(stdin), args[0], args[1:]...)
				if out.Code != 0 {
					t.Fatalf("%v: exit code %d\n%s", args, out.Code, out.Stderr)
				}
				return []byte(out.Stdout)
			}
			read := func(max int, args ...string) []byte {
				t.Helper()
				return run(nil, append([]string{"kafka-console-consumer", "--bootstrap-server", n.Addr, "--topic", "old",
					"--max-messages", strconv.Itoa(max), "--timeout-ms", "30000"}, args...)...)
			}
			run(in, "kafka-console-producer", "--broker-list", n.Addr, "--topic", "old", "--compression-codec", "gzip", "--request-required-acks", "-1")
			if testnode.Full() {
				same(t, in, read(count, "--partition", "0", "--offset", "earliest"))
			}
			same(t, after(in, count-3), read(3, "--partition", "0", "--offset", strconv.Itoa(count-3)))

			// A group reads a part, the node is restarted, and the group reads on where it was. The tool of that time
			// commits all that it has polled.
			same(t, in[:len(in)-len(after(in, count/3))], read(count/3, "--group", "old", "--from-beginning", "--consumer-property", "max.poll.records=1"))
			n.Kill(t)
			n.Start(t)
			same(t, after(in, count/3), read(count-count/3, "--group", "old"))

			offsets := func(topic, time string) string {
				t.Helper()
				return string(run(nil, "kafka.tools.GetOffsetShell", "--broker-list", n.Addr, "--topic", topic, "--time", time))
			}
			if got, want := offsets("old", "-1"), fmt.Sprintf("old:0:%d\n", count); got != want {
				t.Errorf("the end: %q, want %q", got, want)
			}
			if !testnode.Full() {
				return
			}
			if got, want := offsets("spread", "-2"), "spread:0:0\nspread:1:0\nspread:2:0\nspread:3:0\n"; got != want {
				t.Errorf("the beginnings: %q, want %q", got, want)
			}
		})
	})
}

// after is what follows the first n lines.
func after(text []byte, n int) []byte {
	return bytes.Join(bytes.SplitAfter(text, []byte("\n"))[n:], nil)
}
