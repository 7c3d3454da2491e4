package normal

import (
	"os"
	"strings"
	"testing"
)

// What may be replaced is replaced.
func TestReplaced(t *testing.T) {
	names := Names{"127.0.0.1:12345": "NODE", "12345": "PORT", "/tmp/weir-node-1": "DIR", "/tmp/weir-node-12": "DIR2"}
	for _, x := range []struct{ text, want string }{
		{"[2026-11-30 07:24:03,123] ERROR no (x)", "ERROR no (x)"},
		{"at 2026-11-30 07:24:03:123, MB", "at TIME, MB"},
		{"CreateTime:1796022243123", "CreateTime:TIME"},
		{"1234 ms ago   \t5 ms ago", "N ms ago\tN ms ago"},
		{"FinalizedVersionLevel: 1\tEpoch: 42", "FinalizedVersionLevel: 1\tEpoch: N"},
		{`broker epoch 17, "brokerEpoch":18, ProducerEpoch: 3`, `broker epoch N, "brokerEpoch":N, ProducerEpoch: N`},
		{"member c-0a1b2c3d-0a1b-2c3d-4e5f-0123456789ab", "member c-UUID"},
		{"TopicId: 4L6g3nShT-eMCtK-0X86sw\tx", "TopicId: ID\tx"},
		{`"AAAAAAAAAAAAAAAAAAAa1g"`, `"ID"`},
		{"TopicId: OYzOmSjpSeCUswOgOlbnZA\t", "TopicId: ID\t"}, // no digit
		{"directoryId=Optional[AAAAAAAAAAAAAAAAAAAa1g])", "directoryId=Optional[ID])"},
		{"NODE is at 127.0.0.1:12345, host 127.0.0.1 port 12345", "NODE is at NODE, host 127.0.0.1 port PORT"},
		{"/tmp/weir-node-1/data-1 /tmp/weir-node-12/data-1", "DIR/data-1 DIR2/data-1"},
	} {
		if got := Text(x.text, names); got != x.want {
			t.Errorf("%q: %q, want %q", x.text, got, x.want)
		}
	}
}

// What a system answers otherwise stays, so that a difference shows.
func TestKept(t *testing.T) {
	const kept = "AAAAAAAAAAAAAAAAAAAa1g"
	for _, text := range []string{
		"Topic: t\tPartition: 0\tLeader: 2\tReplicas: 2,3,1\tIsr: 3,2\tElr: \tLastKnownElr: ",
		"t:0:12345", "LeaderEpoch:            4", "HighWatermark:          170",
		"retention.ms=604800000", "segment.bytes=1073741824", "1234567890123",
		"exit code 1", "max lag is 0 for partition t-0 at offset 10 among 3 partitions",
		"TopicExistsException: Topic 'first' already exists.", "leader.replication.throttled.rate=1000",
		"ApproximatelyTwentyTwo", "TheConsumerRebalancing", "group.coordinator.rebalance.protocols", "ClusterId: " + kept,
		"127.0.0.1:12346",
	} {
		if got := Text(text, Names{"127.0.0.1:12345": "NODE"}, kept); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}

// The file is to stay so short that it can be read as a whole.
func TestLength(t *testing.T) {
	source, err := os.ReadFile("normal.go")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), "\n"); n > 80 {
		t.Errorf("normal.go has %d lines, at most 80 are allowed", n)
	}
}
