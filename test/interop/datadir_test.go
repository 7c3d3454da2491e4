// Package interop holds Weir against the real Apache Kafka: one directory that goes back and forth between the two
// systems, and the real command-line tools talking to a Weir node.
package interop

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/test/testnode"
)

// end is how a leg ends.
type end int

const (
	clean  end = iota
	killed     // kill -9
)

func (e end) String() string { return [...]string{"clean", "kill -9"}[e] }

// leg is a run of one system on the directory.
type leg struct {
	system testnode.System
	end    end
}

// journey is one directory and the systems that it goes through.
type journey struct {
	name      string
	formatter testnode.System
	dynamic   bool // kraft.version 1
	dirs      int
	legs      []leg
}

// alternate lists n legs that change the system every time, beginning with first; the ends are taken in turn.
func alternate(first testnode.System, n int, ends ...end) []leg {
	var out []leg
	for i := range n {
		system := first
		if i%2 == 1 {
			system = map[testnode.System]testnode.System{testnode.Ours: testnode.Apache, testnode.Apache: testnode.Ours}[first]
		}
		out = append(out, leg{system, ends[i%len(ends)]})
	}
	return out
}

func journeys() []journey {
	const weir, kafka = testnode.Ours, testnode.Apache
	if !testnode.Full() {
		return []journey{
			{"from Weir, static voter", weir, false, 1, alternate(weir, 4, clean, killed, killed, clean)},
			{"from Kafka, standalone, two directories", kafka, true, 2, alternate(kafka, 4, killed, clean, clean, killed)},
		}
	}
	var out []journey
	for _, formatter := range []testnode.System{weir, kafka} {
		for _, dynamic := range []bool{false, true} {
			for _, dirs := range []int{1, 3} {
				for _, first := range []testnode.System{weir, kafka} {
					out = append(out, journey{
						fmt.Sprintf("formatted by %s, dynamic=%v, dirs=%d, first %s", formatter, dynamic, dirs, first),
						formatter, dynamic, dirs, alternate(first, 9, clean, clean, killed, killed),
					})
				}
			}
		}
	}
	return out
}

// TestDataDirectory moves directories between Weir and Apache Kafka: what the one has written, the other serves, record
// by record, and goes on with.
func TestDataDirectory(t *testing.T) {
	for _, j := range journeys() {
		t.Run(j.name, func(t *testing.T) {
			testnode.Oracle(t)
			t.Parallel()
			travel(t, j)
		})
	}
}

func travel(t *testing.T, j journey) {
	start := time.Now()
	n := testnode.New(t, testnode.Options{
		System: j.legs[0].system, Formatter: j.formatter, Dynamic: j.dynamic, LogDirs: j.dirs,
		Props: map[string]string{
			"log.retention.check.interval.ms": "300", "log.initial.task.delay.ms": "500", "log.flush.start.offset.checkpoint.interval.ms": "200",
			"auto.create.topics.enable": "false", "log.cleaner.backoff.ms": "200", "offsets.topic.num.partitions": "5",
			"offsets.retention.check.interval.ms": "300",
		},
	})
	s := newScene(t, n)
	var before *world
	for i, leg := range j.legs {
		s.leg = i
		n.Become(t, leg.system)
		n.Start(t)
		if before != nil {
			after := look(t, n)
			same(t, fmt.Sprintf("leg %d: %s after %s (%v)", i, leg.system, j.legs[i-1].system, j.legs[i-1].end), before, after)
			figures.add("datadir_records_compared", after.count())
		}
		for _, c := range changes() {
			c.do(s)
			if t.Failed() {
				t.Fatalf("leg %d (%s): %s", i, leg.system, c.name)
			}
		}
		before = look(t, n)
		s.check(before)
		halted(s)
		if leg.end == clean {
			n.Stop(t)
		} else {
			n.Kill(t)
		}
		figures.add(fmt.Sprintf("datadir_legs_%s_%v", leg.system, leg.end), 1)
		// Apache Kafka's tool refuses the preallocated indexes that Apache Kafka itself leaves in a kill -9.
		if leg.system == testnode.Ours || testnode.Full() && leg.end == clean {
			figures.add("datadir_records_dumped", dump(t, n, before))
		}
		if t.Failed() {
			t.Fatalf("leg %d (%s, %v)", i, leg.system, leg.end)
		}
	}
	tidied(t, n)
	figures.add("datadir_journeys", 1)
	t.Logf("%d records, %v", before.count(), time.Since(start).Round(time.Millisecond))
}

// tidied lets Weir run on a directory until what the deletions of both systems have left is gone.
func tidied(t *testing.T, n *testnode.Node) {
	t.Helper()
	n.Become(t, testnode.Ours)
	n.SetProp(t, "log.segment.delete.delay.ms", "100")
	n.Start(t)
	testnode.Until(t, 30*time.Second, "removal of what was deleted", func() error {
		for _, dir := range n.LogDirs {
			if err := filepath.WalkDir(dir, leftover); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		return nil
	})
	n.Stop(t)
}

func leftover(path string, _ fs.DirEntry, err error) error {
	for _, suffix := range []string{"-delete", "-stray", "-future", ".deleted", ".cleaned", ".swap"} {
		if err == nil && strings.HasSuffix(path, suffix) {
			return fmt.Errorf("%s is still there", path)
		}
	}
	return err
}
