package clients

import (
	"bytes"
	"strconv"
	"testing"

	"weir/test/testnode"
)

// TestJavaProducer: the producer and the consumer of the real Apache Kafka, behind their console tools.
func TestJavaProducer(t *testing.T) {
	testnode.Oracle(t)
	n := start(t)
	in := lines(testnode.Rounds(2_000, 200_000))
	topic(t, n, "java", 1, nil)
	out := n.Tool(t, string(in), "kafka-console-producer", "--topic", "java", "--compression-codec", "zstd")
	if out.Code != 0 {
		t.Fatalf("exit code %d\n%s", out.Code, out.Stderr)
	}
	same(t, in, kcat(t, n, nil, "-C", "-t", "java", "-e", "-q"))
	back := n.Tool(t, "", "kafka-console-consumer", "--topic", "java", "--partition", "0", "--offset", "earliest",
		"--max-messages", strconv.Itoa(bytes.Count(in, []byte("\n"))), "--timeout-ms", "30000")
	if back.Code != 0 {
		t.Fatalf("exit code %d\n%s", back.Code, back.Stderr)
	}
	same(t, in, []byte(back.Stdout))
}
