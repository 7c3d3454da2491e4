package cluster

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"weir/test/testnode"
)

// reassignTool is E1 with Apache Kafka's own tool: a plan is generated, executed with a throttle, listed, verified, and another
// one is cancelled.
func reassignTool(t *testing.T, s *cast) {
	testnode.Oracle(t)
	s.place(t, "tooled", [][]int32{{1}, {2}})
	s.must(t, "tooled", "a")
	file := func(name, text string) string {
		path := filepath.Join(s.Node(1).Dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	run := func(args ...string) string {
		t.Helper()
		out := s.Node(1).Tool(t, "", "kafka-reassign-partitions", args...)
		if out.Code != 0 {
			t.Errorf("%v: exit code %d\n%s%s", args, out.Code, out.Stdout, out.Stderr)
		}
		return out.Stdout
	}
	plan := func(one, two string) string {
		return fmt.Sprintf(`{"version":1,"partitions":[{"topic":"tooled","partition":0,"replicas":[%s]},{"topic":"tooled","partition":1,"replicas":[%s]}]}`, one, two)
	}
	if testnode.Full() {
		topics := file("topics.json", `{"version":1,"topics":[{"topic":"tooled"}]}`)
		if text := run("--generate", "--topics-to-move-json-file", topics, "--broker-list", "3,4"); !strings.Contains(text, "Proposed partition reassignment configuration") {
			t.Errorf("--generate:\n%s", text)
		}
	}
	raise := file("raise.json", plan("1,3,5", "2,4,6"))
	if text := run("--execute", "--reassignment-json-file", raise, "--throttle", "50000000"); !strings.Contains(text, "Successfully started partition reassignment") {
		t.Errorf("--execute:\n%s", text)
	}
	s.until(t, testnode.Patience, "tooled", "three replicas in sync", func(p kadm.PartitionDetail) bool { return len(p.Replicas) == 3 && len(p.ISR) == 3 })
	text := run("--verify", "--reassignment-json-file", raise)
	for _, want := range []string{"Reassignment of partition tooled-0 is completed", "Reassignment of partition tooled-1 is completed", "Clearing broker-level throttles"} {
		if !strings.Contains(text, want) {
			t.Errorf("--verify does not say %q:\n%s", want, text)
		}
	}
	// A fetch may bring a megabyte each eleven seconds, whatever the throttle: forty last longer than the tools. A dead target
	// the tool does not let through.
	client := s.Client(t, kgo.DefaultProduceTopic("tooled"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	var much []*kgo.Record
	for range 400 {
		much = append(much, &kgo.Record{Value: bytes.Repeat([]byte("x"), 100_000)})
	}
	if err := client.ProduceSync(t.Context(), much...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	slow := file("slow.json", plan("1,6", "2,3"))
	run("--execute", "--reassignment-json-file", slow, "--throttle", "1000")
	if text := run("--list"); !strings.Contains(text, "tooled-0") || !strings.Contains(text, "adding: 6") {
		t.Errorf("--list:\n%s", text)
	}
	if text := run("--verify", "--reassignment-json-file", slow); !strings.Contains(text, "Reassignment of partition tooled-0 is still in progress") {
		t.Errorf("--verify:\n%s", text)
	}
	s.must(t, "tooled", "goes on")
	if text := run("--cancel", "--reassignment-json-file", slow); !strings.Contains(text, "Successfully cancelled partition reassignment") {
		t.Errorf("--cancel:\n%s", text)
	}
	s.until(t, testnode.Patience, "tooled", "as before", func(p kadm.PartitionDetail) bool {
		return p.Partition != 0 || slices.Equal(p.Replicas, []int32{1, 3, 5})
	})
}
