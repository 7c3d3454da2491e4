package storage

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/internal/batch"
	"weir/internal/clock"
	"weir/internal/vfs"
	"weir/internal/vfs/memfs"
)

// kafkaDir is one more partition directory of Apache Kafka, cleanly closed, to be held against:
//
//	go test ./internal/storage -run Golden -args -kafka-dir /some/data/topic-0
var kafkaDir = flag.String("kafka-dir", "", "a partition directory of a cleanly stopped Apache Kafka")

const golden = "testdata/kafka-4.3.1/"

// load copies a directory into memory.
func load(t *testing.T, dir string) (*memfs.FS, map[string][]byte) {
	t.Helper()
	mem := memfs.New()
	if err := mem.MkdirAll(testDir, 0o755); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	was := map[string][]byte{}
	for _, f := range files {
		data, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		was[f.Name()] = data
		if err := vfs.WriteFileAtomic(mem, testDir+"/"+f.Name(), data); err != nil {
			t.Fatal(err)
		}
	}
	return mem, was
}

func goldenOptions(mem vfs.FS, c clock.Clock) Options {
	cfg := topicConfig()
	cfg.SegmentBytes, cfg.IndexIntervalBytes = 1<<20, 500
	return Options{FS: mem, Dir: testDir, Topic: "txn", Config: cfg, Clock: c}
}

// inTheTimeOf makes a clock that stands when the records were written, so that
// no producer has expired.
func inTheTimeOf(t *testing.T, files map[string][]byte) *clock.Manual {
	t.Helper()
	ts := int64(0)
	for name, data := range files {
		for strings.HasSuffix(name, ".log") && len(data) > 0 {
			e, rest, err := batch.NextEntry(data)
			if err != nil {
				break
			}
			ts, data = max(ts, e.MaxTimestamp()), rest
		}
	}
	return clock.NewManual(time.UnixMilli(ts))
}

// TestGoldenClean takes over a cleanly closed directory, and then makes all
// that can be made anew from the .log files: each byte must be Kafka's.
func TestGoldenClean(t *testing.T) {
	dir := golden + "clean/txn-0"
	if *kafkaDir != "" {
		dir = *kafkaDir
	}
	mem, was := load(t, dir)
	c := inTheTimeOf(t, was)
	o := goldenOptions(mem, c)
	o.HadCleanShutdown = true
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	end := l.LogEnd()
	if *kafkaDir == "" && (end != 504 || l.TopicID().IsZero() || l.ProducerCount() != 1) {
		t.Fatalf("log end %d, topic id %s, %d producers", end, l.TopicID(), l.ProducerCount())
	}
	same(t, "offsets", readOffsets(t, l, 0), seq(0, end))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	compare(t, "taken over", mem, was)

	for name := range was {
		if !strings.HasSuffix(name, ".log") && name != "partition.metadata" {
			if err := mem.Remove(testDir + "/" + name); err != nil {
				t.Fatal(err)
			}
		}
	}
	if l, err = Open(goldenOptions(mem, c)); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	compare(t, "made anew", mem, was)
}

func compare(t *testing.T, what string, mem vfs.FS, want map[string][]byte) {
	t.Helper()
	files, err := mem.ReadDir(testDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		data, err := vfs.ReadFile(mem, testDir+"/"+f.Name())
		if err != nil {
			t.Fatal(err)
		}
		w, ok := want[f.Name()]
		if !ok {
			t.Errorf("%s: %s is not there in Kafka's directory", what, f.Name())
		} else if !bytes.Equal(data, w) {
			t.Errorf("%s: %s differs: %d bytes, Kafka has %d", what, f.Name(), len(data), len(w))
		}
	}
	if len(files) != len(want) {
		t.Errorf("%s: %d files, Kafka has %d", what, len(files), len(want))
	}
}

// TestGoldenKilled takes over a directory after kill -9.
func TestGoldenKilled(t *testing.T) {
	mem, was := load(t, golden+"killed/txn-0")
	for name, size := range map[string]int64{".index": 10485760, ".timeindex": 10485756} {
		f, err := mem.Open(testDir+"/00000000000000000000"+name, os.O_CREATE|os.O_RDWR, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Truncate(size); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	o := goldenOptions(mem, inTheTimeOf(t, was))
	o.RecoveryPoint = 504
	var told []Progress
	o.Progress = func(p Progress) { told = append(told, p) }
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "offsets", readOffsets(t, l, 0), seq(0, l.LogEnd()))
	if l.LogEnd() <= 504 || len(told) != 2 || told[1].Remaining != 0 || told[1].Offset != l.LogEnd() || told[1].Read < told[1].Size {
		t.Fatalf("log end %d, progress %+v", l.LogEnd(), told)
	}
	l.SetHighWatermark(l.LogEnd())
	if l.FirstUnstable() != -1 || l.ProducerCount() != 1 {
		t.Fatalf("first unstable %d, %d producers", l.FirstUnstable(), l.ProducerCount())
	}
	if p := l.ActiveProducers()[0]; p.TxnStartOffset != -1 || p.LastSequence < 0 && p.ProducerEpoch == 0 {
		t.Fatalf("producer %+v", p)
	}
	if e := l.Epochs(); len(e) != 2 || e[0].StartOffset != 0 || e[1].StartOffset != 504 {
		t.Fatalf("epochs %+v", e)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
