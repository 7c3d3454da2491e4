package cluster

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"weir/test/testnode"
)

// D3: a broker that starts tells of internal topics with one replica, where the cluster could do more; what it tells to do
// cures it, and it says nothing of it any more.
func fragileTopic(t *testing.T, s *cast) {
	const topic, warning = "__transaction_state", "an internal topic has partitions with one replica"
	s.place(t, topic, [][]int32{{1}, {2}, {3}, {1}})
	since := mark(t, s.Node(2))
	s.Node(2).Restart(t)
	line := says(t, s.Node(2), since, "level=WARN", warning, "topic="+topic, "partitions=4")
	quoted := regexp.MustCompile(` file=("(?:[^"\\]|\\.)*")`).FindStringSubmatch(line)
	if quoted == nil {
		t.Fatalf("no file in %s", line)
	}
	text, err := strconv.Unquote(quoted[1])
	if err != nil {
		t.Fatal(err)
	}
	s.reassignBy(t, text)
	s.until(t, testnode.Patience, topic, "three replicas in sync", func(p kadm.PartitionDetail) bool {
		return len(p.Replicas) == 3 && len(p.ISR) == 3
	})
	since = mark(t, s.Node(2))
	s.Node(2).Restart(t) // it would be said before clients are let in
	if strings.Contains(s.Node(2).LogText(t)[since:], warning) {
		t.Errorf("it is said again:\n%s", s.Node(2).LogText(t)[since:])
	}
	if _, err := s.admin.DeleteTopic(t.Context(), topic); err != nil {
		t.Fatal(err)
	}
}

// reassignBy carries a file of kafka-reassign-partitions out: with that tool in the long form.
func (s *cast) reassignBy(t *testing.T, text string) {
	t.Helper()
	if testnode.Full() {
		path := filepath.Join(s.Node(1).Dir, "cure.json")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		out := s.Node(1).Tool(t, "", "kafka-reassign-partitions", "--execute", "--reassignment-json-file", path)
		if out.Code != 0 || !strings.Contains(out.Stdout, "Successfully started partition reassignment") {
			t.Fatalf("exit code %d\n%s%s", out.Code, out.Stdout, out.Stderr)
		}
		return
	}
	var plan struct {
		Version    int
		Partitions []struct {
			Topic     string
			Partition int32
			Replicas  []int32
		}
	}
	if err := json.Unmarshal([]byte(text), &plan); err != nil || plan.Version != 1 || len(plan.Partitions) == 0 {
		t.Fatalf("%v: %s", err, text)
	}
	req := kadm.AlterPartitionAssignmentsReq{}
	for _, p := range plan.Partitions {
		req.Assign(p.Topic, p.Partition, p.Replicas)
	}
	res, err := s.admin.AlterPartitionAssignments(t.Context(), req)
	if err == nil {
		err = res.Error()
	}
	if err != nil {
		t.Fatal(fmt.Errorf("%w: %s", err, text))
	}
}
