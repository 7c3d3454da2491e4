package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"weir/test/testnode"
)

// TestRecoveryIsToldOf is C10 on a disk that is so slow that recovery takes a while: the broker says how far it is and how long
// it still takes; it is fenced until its logs are recovered, leads nothing, and the others go on; then it is unfenced and in
// sync. The machine counts as one that was switched off: without its hint of the session logs are recovered, not resumed.
func TestRecoveryIsToldOf(t *testing.T) {
	t.Parallel()
	s := hire(t, testnode.ClusterOptions{
		Members: testnode.Nodes(3, testnode.Member{}), Faulty: true,
	})
	s.Start(t)
	l := s.burden(t, "recovered", 12)
	l.flows(t, testnode.Patience)
	const id = 3
	n := s.Node(id)
	s.place(t, "alone", [][]int32{{id}})
	s.must(t, "alone", "kept")
	n.Kill(t)
	l.flows(t, testnode.Patience)
	if err := os.Remove(filepath.Join(n.LogDirs[0], ".weir-session")); err != nil {
		t.Fatal(err)
	}
	n.Faults(t, "read *.log 800ms")
	since := mark(t, n)
	n.Launch(t)
	line := says(t, n, since, `msg="still `, "of=13", "eta=")
	m := regexp.MustCompile(`bytes=(\d+) "of bytes"=(\d+) eta=(\S+)`).FindStringSubmatch(line)
	if m == nil || m[2] == "0" {
		t.Errorf("no progress: %s", line)
	} else if d, err := time.ParseDuration(m[3]); err != nil || d <= 0 || d > time.Minute {
		t.Errorf("ETA %q: %s", m[3], line)
	}
	if !strings.Contains(n.LogText(t)[since:], "loaded all logs") {
		if !s.fenced(t)[id] {
			t.Errorf("node %d is unfenced before its logs are recovered", id)
		}
		s.absent(t, "recovered", id)
		l.flows(t, testnode.Patience)
	}
	n.Faults(t)
	n.WaitReady(t)
	if s.fenced(t)[id] {
		t.Errorf("node %d is ready, and fenced", id)
	}
	s.until(t, testnode.Patience, "alone", "it leads", func(p kadm.PartitionDetail) bool { return p.Leader == id })
	if got := s.read(t, "alone"); !slices.Equal(got, []string{"kept"}) {
		t.Errorf("the topic holds %q", got)
	}
	inOrder(t, n.LogText(t)[since:], "loading logs", "still ", "loaded all logs", "registered with the controller")
	l.end(t)
}

// absent is an error unless a node leads nothing of a topic and is in no ISR of it.
func (s *cast) absent(t *testing.T, topic string, id int32) {
	t.Helper()
	list, err := s.look(t.Context(), topic)
	for _, p := range list {
		if p.Leader == id || slices.Contains(p.ISR, id) {
			err = errors.Join(err, fmt.Errorf("%s-%d: leader %d, ISR %v", topic, p.Partition, p.Leader, p.ISR))
		}
	}
	if err != nil {
		t.Error(err)
	}
}

// inOrder looks for texts in a log, one behind the other.
func inOrder(t *testing.T, log string, texts ...string) {
	t.Helper()
	for i, text := range texts {
		_, rest, ok := strings.Cut(log, text)
		if !ok {
			t.Errorf("the log does not say %q after %q", text, texts[:i])
			return
		}
		log = rest
	}
}
