package clients

import (
	"bytes"
	"strconv"
	"testing"

	"weir/test/testnode"
)

// The versions of the Java client: today's, and the last that Apache Kafka 4 turns away.
const (
	javaNow = "4.3.1"
	javaOld = "0.10.2.2"
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

const assignorOption = "partition.assignment.strategy=org.apache.kafka.clients.consumer."

// TestJavaGroup: today's Java consumer in classic groups.
func TestJavaGroup(t *testing.T) {
	together(t)
	for _, l := range []life{
		{protocol: "cooperative-sticky", cooperative: true, extras: true},
		{protocol: "range"},
	} {
		t.Run(l.protocol, func(t *testing.T) {
			if l.protocol == "range" && !testnode.Full() {
				t.Skip("WEIR_FULL=1 runs the other assignor")
			}
			class := map[string]string{"range": "RangeAssignor", "cooperative-sticky": "CooperativeStickyAssignor"}[l.protocol]
			bothSystems(t, func(t *testing.T, n *testnode.Node) {
				startProgram(t, n, "java", "java-"+l.protocol, javaClient(t, javaNow, "v4", "group.protocol=classic", assignorOption+class)).live(l)
			})
		})
	}
}

// TestJavaStatic: members with a group.instance.id. One that goes and comes back within its session gets its partitions
// again, the others notice nothing, and neither does a node that is killed meanwhile make a difference.
func TestJavaStatic(t *testing.T) {
	together(t)
	bothSystems(t, func(t *testing.T, n *testnode.Node) {
		topic(t, n, "static", groupPartitions, nil)
		// A client that finds no node forgets all metadata and, as the group's leader, joins again when it is back
		// ("cached metadata has changed"); this one does not.
		c := startProgram(t, n, "static", "static", javaClient(t, javaNow, "v4", "group.protocol=classic", "session.timeout.ms=120000",
			"metadata.recovery.strategy=none"))
		for _, m := range []string{"a", "b", "c"} {
			c.join(m, "group.instance.id="+m)
		}
		c.awaitShares(groupPartitions, "a", "b", "c")
		c.send(600)
		c.awaitRecords()
		c.awaitCommitted()
		before := c.snapshot()

		c.leave("b")
		c.awaitGroup("Stable", 3, "range")
		c.join("b", "group.instance.id=b")
		c.awaitShares(groupPartitions, "a", "b", "c")
		c.send(1200)
		c.awaitRecords()
		c.awaitCommitted()
		c.checkStatic(before)

		c.leave("c")
		n.Kill(t)
		n.Start(t)
		c.join("c", "group.instance.id=c")
		c.awaitShares(groupPartitions, "a", "b", "c")
		c.send(1800)
		c.awaitRecords()
		c.awaitCommitted()
		c.checkStatic(before)
		c.check()
		if c.again != 0 {
			t.Errorf("%d records were read more than once", c.again)
		}
	})
}

// snapshot is every member's assignments so far.
func (c *crew) snapshot() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := map[string]string{}
	for m, all := range c.history {
		last[m] = all[len(all)-1]
	}
	return last
}

// checkStatic fails when a member's assignment has changed since the snapshot, be it for a moment. A member that came back
// begins with the same.
func (c *crew) checkStatic(before map[string]string) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for m, want := range before {
		at := 0
		for i, held := range c.history[m] {
			if held == want {
				at = i
				break
			}
		}
		for _, held := range c.history[m][at:] {
			if held != want {
				c.t.Errorf("%s had %s, and then %v", m, want, c.history[m])
				break
			}
		}
	}
}

// TestJavaOld: the consumer and the producer of Kafka 0.10.2.
func TestJavaOld(t *testing.T) {
	together(t)
	oldClient(t, func(t *testing.T, n *testnode.Node) {
		startProgram(t, n, "old", "old", javaClient(t, javaOld, "v0", assignorOption+"RangeAssignor")).live(life{protocol: "range", extras: true})
	})
}
