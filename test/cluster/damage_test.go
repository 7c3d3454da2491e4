package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"weir/test/testnode"
)

// damaged is a node with two topics of one partition: a, which is damaged while the node is down, and b.
type damaged struct {
	n    *testnode.Node
	a, b *filler
}

// newDamaged makes a node whose topics hold several segments, and stops it.
func newDamaged(t *testing.T, clean bool) *damaged {
	t.Helper()
	props := small()
	props["log.retention.check.interval.ms"] = "1000"
	n := testnode.New(t, testnode.Options{Props: props})
	n.Start(t)
	createTopic(t, n, "a", 1, nil)
	createTopic(t, n, "b", 1, nil)
	d := &damaged{n: n, a: newFiller(t, n, "a"), b: newFiller(t, n, "b")}
	for range 700 {
		for _, f := range []*filler{d.a, d.b} {
			if err := f.produce(t, 4000); err != nil {
				t.Fatal(err)
			}
		}
	}
	if clean {
		n.Stop(t)
		return d
	}
	// Rolled segments are flushed, and the recovery points written, a moment later.
	testnode.Until(t, 20*time.Second, "recovery points", func() error {
		raw, err := os.ReadFile(d.path("recovery-point-offset-checkpoint"))
		text := string(raw)
		if err != nil || !strings.Contains(text, "a 0 5") || !strings.Contains(text, "b 0 5") {
			return fmt.Errorf("they are %q", text)
		}
		return nil
	})
	n.Kill(t)
	return d
}

func (d *damaged) path(elem ...string) string {
	return filepath.Join(append([]string{d.n.LogDirs[0]}, elem...)...)
}

// files are those of topic a with a suffix, oldest first.
func (d *damaged) files(t *testing.T, suffix string) []string {
	t.Helper()
	all, err := filepath.Glob(d.path("a-0", "*"+suffix))
	if err != nil || len(all) == 0 {
		t.Fatalf("topic a has no %s: %v", suffix, err)
	}
	slices.Sort(all)
	return all
}

// works checks that both topics are whole, take records, and are so after another start.
func (d *damaged) works(t *testing.T) {
	t.Helper()
	for range testnode.Rounds(1, 2) {
		for _, f := range []*filler{d.a, d.b} {
			f.connect(t)
			f.check(t, 0)
			if err := f.produce(t, 100); err != nil {
				t.Fatalf("produce to %s: %v", f.topic, err)
			}
			f.check(t, len(f.values)-1)
		}
		d.n.Restart(t)
	}
}

// offlineFor checks that topic a is offline because of a file, and b is not.
func (d *damaged) offlineFor(t *testing.T, file string) {
	t.Helper()
	d.a.connect(t)
	d.b.connect(t)
	if err := d.a.produce(t, 10); !errors.Is(err, kerr.KafkaStorageError) {
		t.Errorf("produce to the damaged partition: %v, want %v", err, kerr.KafkaStorageError)
	}
	d.b.check(t, 0)
	if err := d.b.produce(t, 10); err != nil {
		t.Error("another partition does not take records: ", err)
	}
	if !strings.Contains(d.n.LogText(t), file) {
		t.Errorf("the log does not name %s", file)
	}
}

// TestDamagedSmallFiles damages one small file of a log directory at a time: each can be made anew from the records, so
// the node starts and serves everything. Only when partition.metadata is there and cannot be read, nobody knows whose
// records these are: the partition is offline until somebody has looked (Apache Kafka takes the whole directory offline).
func TestDamagedSmallFiles(t *testing.T) {
	garbage := func(t *testing.T, files ...string) {
		for _, f := range files {
			write(t, f, strings.Repeat("\x00\xff no such thing\n", 20))
		}
	}
	remove := func(t *testing.T, files ...string) {
		for _, f := range files {
			if err := os.Remove(f); err != nil {
				t.Fatal(err)
			}
		}
	}
	empty := func(t *testing.T, files ...string) {
		for _, f := range files {
			write(t, f, "")
		}
	}
	kinds := []struct {
		name string
		pick func(t *testing.T, d *damaged) []string
	}{
		{"offset index", func(t *testing.T, d *damaged) []string { return d.files(t, ".index") }},
		{"time index", func(t *testing.T, d *damaged) []string { return d.files(t, ".timeindex") }},
		{"producer snapshot", func(t *testing.T, d *damaged) []string { return d.files(t, ".snapshot") }},
		{"leader epochs", func(_ *testing.T, d *damaged) []string { return []string{d.path("a-0", "leader-epoch-checkpoint")} }},
		{"partition.metadata", func(_ *testing.T, d *damaged) []string { return []string{d.path("a-0", "partition.metadata")} }},
		{"recovery points", func(_ *testing.T, d *damaged) []string { return []string{d.path("recovery-point-offset-checkpoint")} }},
		{"log starts", func(_ *testing.T, d *damaged) []string { return []string{d.path("log-start-offset-checkpoint")} }},
		{"high watermarks", func(_ *testing.T, d *damaged) []string { return []string{d.path("replication-offset-checkpoint")} }},
		{"clean shutdown", func(_ *testing.T, d *damaged) []string { return []string{d.path(".kafka_cleanshutdown")} }},
	}
	ways := []struct {
		name string
		do   func(t *testing.T, files ...string)
	}{{"garbage", garbage}, {"empty", empty}, {"gone", remove}}
	d := newDamaged(t, true)
	for _, kind := range kinds {
		for _, way := range ways {
			t.Run(kind.name+" "+way.name, func(t *testing.T) {
				if d.n.Running() { // left by a subtest that failed
					d.n.Kill(t)
				}
				files := kind.pick(t, d)
				way.do(t, files...)
				d.n.Start(t)
				if kind.name == "partition.metadata" && way.name != "gone" {
					d.offlineFor(t, files[0])
					remove(t, files...)
					d.n.Restart(t)
				}
				d.works(t)
				d.n.Stop(t)
			})
		}
	}
}

// TestDamagedRecords: bytes that rot below the recovery point take that partition offline, when they are met, and nothing
// else. The message names file and offset; what the operator has put right is served again.
func TestDamagedRecords(t *testing.T) {
	d := newDamaged(t, false)
	first := d.files(t, ".log")[0]
	whole, err := os.ReadFile(first)
	if err != nil {
		t.Fatal(err)
	}
	rotten := bytes.Clone(whole)
	at := len(rotten) / 2
	copy(rotten[at:], make([]byte, 20_000))
	write(t, first, string(rotten))
	offset := at/(len(d.a.values[0])+80) + 3 // in the midst of it

	d.n.Start(t)
	d.a.connect(t)
	d.b.connect(t)
	if err := d.a.produce(t, 10); err != nil {
		t.Error("before the rot is met: ", err)
	}
	if err := readAt(t, d.n, "a", int64(offset)); err == nil {
		t.Error("the rotten part was read")
	}
	testnode.Until(t, 10*time.Second, "the partition is offline", func() error {
		if err := d.a.produce(t, 10); !errors.Is(err, kerr.KafkaStorageError) {
			return fmt.Errorf("produce: %w", err)
		}
		return nil
	})
	d.b.check(t, 0)
	if err := d.b.produce(t, 10); err != nil {
		t.Error("another partition does not take records: ", err)
	}
	told := false
	for line := range strings.Lines(d.n.LogText(t)) {
		told = told || strings.Contains(line, "level=ERROR") && strings.Contains(line, strings.TrimSuffix(filepath.Base(first), ".log")) && strings.Contains(line, "a-0") && strings.Contains(line, fmt.Sprint("offset ", offset))
	}
	if !told {
		t.Errorf("the log does not name file and offset %d", offset)
	}

	write(t, first, string(whole))
	d.n.Restart(t)
	d.works(t)
}

// readAt fetches from an offset and returns what the consumer is told.
func readAt(t *testing.T, n *testnode.Node, topic string, offset int64) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	c := n.Client(t, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(offset)}}), kgo.KeepRetryableFetchErrors())
	return c.PollFetches(ctx).Err()
}

// TestTornTail: a process that dies while it writes leaves half a batch. It is cut off.
func TestTornTail(t *testing.T) {
	d := newDamaged(t, false)
	logs := d.files(t, ".log")
	last := logs[len(logs)-1]
	f, err := os.OpenFile(last, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	head, err := os.ReadFile(last)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Write(head[:min(len(head), 1000)])
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	d.n.Start(t)
	d.works(t)
}

// TestUnknownThings: what Weir does not know in its log directories stays.
func TestUnknownThings(t *testing.T) {
	d := newDamaged(t, true)
	for _, dir := range []string{"lost+found", "not-a-partition", "b-00", "b--1", "-0", "a-0.deleted", "old-7", "x.-0", "snapshot.d"} {
		if err := os.MkdirAll(d.path(dir, "inside"), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, d.path(dir, "inside", "precious"), dir)
	}
	write(t, d.path("README"), "mine")
	write(t, d.path("a-0", "notes.txt"), "mine")
	before := d.tree(t)
	for range 2 {
		d.n.Start(t)
		d.works(t)
		d.n.Kill(t)
	}
	d.n.Start(t)
	d.n.Stop(t)
	after := d.tree(t)
	for _, f := range before {
		if strings.Contains(f, "precious") || strings.Contains(f, "README") || strings.Contains(f, "notes.txt") {
			// A directory that looks like a partition nobody knows may have got another name.
			if !slices.ContainsFunc(after, func(a string) bool { return filepath.Base(a) == filepath.Base(f) && stem(a) == stem(f) }) {
				t.Errorf("%s is gone", f)
			}
		}
	}
}

// tree lists all files.
func (d *damaged) tree(t *testing.T) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(d.n.LogDirs[0], func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			out = append(out, strings.TrimPrefix(path, d.n.LogDirs[0]+"/"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// stem is the first directory of a path, up to what is added when a log is moved out of the way.
func stem(path string) string {
	first, _, _ := strings.Cut(path, "/")
	if i := strings.Index(first, "."); i > 0 {
		first = first[:i]
	}
	return first
}
