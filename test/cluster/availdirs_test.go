package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"weir/test/testnode"
)

// E1: a broker's replicas, one that leads and one that follows, go from one of its directories to another under load, also when
// it is killed in between; others see nothing of it.
func betweenDirs(t *testing.T, s *cast) {
	n := s.Node(2)
	s.place(t, "between", [][]int32{{2, 1, 3}, {1, 2, 3}}, "min.insync.replicas=2")
	l := s.burdenOn(t, "between", 2)
	l.flows(t, testnode.Patience)
	moveTo(t, n, "between", 2, n.LogDirs[1])
	moveTo(t, n, "between", 2, n.LogDirs[0])
	l.flows(t, testnode.Patience)
	s.full(t, "between")

	var all kadm.TopicsSet
	all.Add("between", 0, 1)
	res, err := n.Admin(t).AlterBrokerReplicaLogDirs(t.Context(), n.ID, kadm.AlterReplicaLogDirsReq{n.LogDirs[1]: all})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range res["between"] {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	n.Kill(t) // wherever the move stands, nothing is lost
	s.back(t, n.ID, "between")
	moveTo(t, n, "between", 2, n.LogDirs[1]) // between its last two renames both logs are whole, and either may be taken
	testnode.Until(t, 60*time.Second, "the move ends", func() error { return standsIn(n, "between", 2, n.LogDirs[1]) })
	if testnode.Full() {
		dirsByTool(t, s, n)
	}
	l.flows(t, testnode.Patience)
	l.end(t)
}

// standsIn tells whether a topic's replicas are in one directory of a node, whole, and in no other.
func standsIn(n *testnode.Node, topic string, partitions int, dir string) error {
	for _, d := range n.LogDirs {
		found, err := filepath.Glob(filepath.Join(d, topic+"-*"))
		if err != nil {
			return err
		}
		want := 0
		if d == dir {
			want = partitions
		}
		for _, f := range found {
			if strings.HasSuffix(f, "-delete") || strings.HasSuffix(f, "-stray") {
				want++ // of a move before
			} else if strings.HasSuffix(f, "-future") {
				return fmt.Errorf("%s is there", f)
			}
		}
		if len(found) != want {
			return fmt.Errorf("%s has %q", d, found)
		}
	}
	return nil
}

// dirsByTool moves back by kafka-reassign-partitions with log_dirs.
func dirsByTool(t *testing.T, s *cast, n *testnode.Node) {
	t.Helper()
	testnode.Oracle(t)
	path := filepath.Join(n.Dir, "dirs.json")
	text := fmt.Sprintf(`{"version":1,"partitions":[{"topic":"between","partition":0,"replicas":[2,1,3],"log_dirs":[%q,"any","any"]},{"topic":"between","partition":1,"replicas":[1,2,3],"log_dirs":["any",%q,"any"]}]}`, n.LogDirs[0], n.LogDirs[0])
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	out := s.Node(1).Tool(t, "", "kafka-reassign-partitions", "--execute", "--reassignment-json-file", path)
	if out.Code != 0 || !strings.Contains(out.Stdout, "Successfully started log directory moves for: between-0-2,between-1-2") {
		t.Fatalf("--execute: exit code %d\n%s%s", out.Code, out.Stdout, out.Stderr)
	}
	testnode.Until(t, 60*time.Second, "the move by the tool ends", func() error { return standsIn(n, "between", 2, n.LogDirs[0]) })
	out = s.Node(1).Tool(t, "", "kafka-reassign-partitions", "--verify", "--reassignment-json-file", path)
	if !strings.Contains(out.Stdout, "Reassignment of replica between-0-2 completed successfully.") {
		t.Errorf("--verify: exit code %d\n%s%s", out.Code, out.Stdout, out.Stderr)
	}
}
