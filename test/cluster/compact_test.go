package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"weir/internal/batch"
	"weir/internal/rng"
	"weir/test/testnode"
)

// The settings of the compacted topics' life.
const (
	deleteRetention = 3 * time.Second
	windowRetention = 15 * time.Second
	// memoryLimit is the resident memory that a node with these tables must stay below. The cleaner has at most 20 MiB.
	memoryLimit = 200 << 20
	// patience is the limit for what takes seconds on an idle machine.
	patience = 3 * time.Minute
)

// compactLife is a node with a compacted topic and one that is compacted and deleted, their writers and readers.
type compactLife struct {
	*testing.T
	n       *testnode.Node
	dice    *rng.Source
	tables  []*table
	writers []func() // end the writers
	readers []func() // end the readers
	threads int

	mu     sync.Mutex
	passes int // reads from start to end
	slow   time.Duration
	tailed []*reader

	starts, kills, changes int
	rss                    int
}

func newCompactLife(ctx context.Context, t *testing.T, seed uint64) *compactLife {
	n := testnode.New(t, testnode.Options{Props: map[string]string{
		"log.cleaner.backoff.ms": "50", "log.cleaner.dedupe.buffer.size": "16777216", "log.cleaner.io.buffer.load.factor": "0.002",
		"log.retention.check.interval.ms": "500", "log.initial.task.delay.ms": "100", "log.segment.delete.delay.ms": "500",
		"log.flush.offset.checkpoint.interval.ms": "500", "log.flush.scheduler.interval.ms": "500",
	}})
	n.Start(t)
	l := &compactLife{T: t, n: n, dice: rng.New(seed), threads: 1}
	l.tables = []*table{newTable("table", 3, false), newTable("window", 2, true)}
	for _, x := range l.tables {
		configs := map[string]string{
			"cleanup.policy": "compact", "segment.ms": strconv.Itoa(testnode.Rounds(300, 1000)), "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.01",
			"delete.retention.ms": strconv.Itoa(int(deleteRetention.Milliseconds())), "index.interval.bytes": "512",
		}
		if x.deletes {
			configs["cleanup.policy"], configs["retention.ms"] = "compact,delete", strconv.Itoa(int(windowRetention.Milliseconds()))
		}
		createTopic(t, n, x.topic, x.partitions, configs)
	}
	l.startWriters(ctx)
	l.startReaders(ctx)
	return l
}

func (l *compactLife) startWriters(ctx context.Context) {
	l.Helper()
	keys := testnode.Rounds(300, 800)
	id := 0
	for _, x := range l.tables {
		writers := []*writer{
			{codec: kgo.NoCompression(), once: true}, {codec: kgo.ZstdCompression(), once: true}, {codec: kgo.GzipCompression()},
			{codec: kgo.Lz4Compression(), once: true}, {codec: kgo.SnappyCompression()},
		}
		if x.deletes {
			writers = writers[2:4]
		}
		for _, w := range writers {
			w.t, w.id, w.keys = x, id, keys
			stop, err := w.background(ctx, l.n.Addr)
			if err != nil {
				l.Fatal(err)
			}
			l.writers = append(l.writers, stop)
			id++
		}
		stop, err := (&writer{t: x, id: id, keys: keys}).unsure(ctx, l.n.Addr)
		if err != nil {
			l.Fatal(err)
		}
		l.writers = append(l.writers, stop)
		id++
	}
}

// startReaders has two consumers a table read it from the start over and over, and one follow its end.
func (l *compactLife) startReaders(ctx context.Context) {
	l.Helper()
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	for _, x := range l.tables {
		for _, bytes := range []int32{10_000, 1 << 20} {
			work.Go(func() {
				for ctx.Err() == nil {
					if err := l.pass(ctx, x, bytes); err != nil && ctx.Err() == nil {
						x.fail(err)
						return
					}
				}
			})
		}
		tail, err := newReader(l.n.Addr, x, 1<<18)
		if err != nil {
			l.Fatal(err)
		}
		l.tailed = append(l.tailed, tail)
		work.Go(func() {
			for ctx.Err() == nil {
				if err := tail.poll(ctx); err != nil && ctx.Err() == nil {
					x.fail(fmt.Errorf("following the end: %w", err))
					return
				}
			}
		})
	}
	l.readers = append(l.readers, func() { cancel(); work.Wait() })
}

// pass reads a table from the start until everything acked before is seen.
func (l *compactLife) pass(ctx context.Context, x *table, fetchBytes int32) error {
	promised := x.snapshot()
	r, err := newReader(l.n.Addr, x, fetchBytes)
	if err != nil {
		return err
	}
	defer r.c.Close()
	ends, err := r.ends(ctx)
	if err != nil {
		return err
	}
	if err := r.readTo(ctx, ends); err != nil {
		return err
	}
	took := time.Since(r.began)
	// A record may have gone for a newer one above these ends, so reading goes on until that is seen.
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := r.readUntil(limited, func() error { return r.missing(promised, windowRetention, deleteRetention) }); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.passes++
	l.slow = max(l.slow, took)
	return nil
}

// wait waits until so many more records are acked on each table, and looks at the memory meanwhile.
func (l *compactLife) wait(more int) {
	l.Helper()
	for _, x := range l.tables {
		want := x.numAcked() + more
		testnode.Until(l.T, patience, "records acked on "+x.topic, func() error {
			l.rss = max(l.rss, rss(l.T, l.n))
			if err := x.failed(); err != nil {
				l.Fatal(err)
			}
			if n := x.numAcked(); n < want {
				return fmt.Errorf("%d, not %d", n, want)
			}
			return nil
		})
	}
	if l.rss > memoryLimit {
		l.Fatalf("the node takes %d bytes of memory, the limit is %d", l.rss, memoryLimit)
	}
}

// disturb does one random thing to the node.
func (l *compactLife) disturb() {
	l.Helper()
	switch l.dice.IntN(8) {
	case 0, 1:
		l.kill()
	case 2:
		l.restart()
	case 3:
		l.set("log.cleaner.io.max.bytes.per.second", []string{"500000", "3000000", "50000000", "1.7976931348623157E308"}[l.dice.IntN(4)])
	case 4: // at most double or half of what there is
		l.threads = max(1, min(4, []int{l.threads * 2, (l.threads + 1) / 2}[l.dice.IntN(2)]))
		l.set("log.cleaner.dedupe.buffer.size", strconv.Itoa((10+l.dice.IntN(10))<<20))
		l.set("log.cleaner.threads", strconv.Itoa(l.threads))
	case 5: // the buffer has to have 1 MiB a thread: this is what makes it too small for one pass
		l.set("log.cleaner.io.buffer.load.factor", []string{"0.0005", "0.005", "0.9"}[l.dice.IntN(3)])
	case 6:
		l.set("log.cleaner.io.buffer.size", []string{"2000", "20000", "524288"}[l.dice.IntN(3)])
	case 7:
		x := l.tables[l.dice.IntN(len(l.tables))]
		l.setTopic(x, "min.cleanable.dirty.ratio", []string{"0", "0.01", "0.3"}[l.dice.IntN(3)])
		l.setTopic(x, "min.compaction.lag.ms", []string{"0", "1500"}[l.dice.IntN(2)])
	}
}

func (l *compactLife) kill() {
	l.Helper()
	l.n.Kill(l.T)
	l.n.Start(l.T)
	l.kills++
}

func (l *compactLife) restart() {
	l.Helper()
	l.n.Restart(l.T)
	l.starts++
}

func (l *compactLife) set(key, value string) {
	l.Helper()
	res, err := l.n.Admin(l.T).AlterBrokerConfigs(l.Context(), []kadm.AlterConfig{{Name: key, Value: &value}})
	for _, r := range res {
		err = errors.Join(err, r.Err)
	}
	if err != nil {
		l.Fatalf("%s=%s: %v", key, value, err)
	}
	l.changes++
}

func (l *compactLife) setTopic(x *table, key, value string) {
	l.Helper()
	res, err := l.n.Admin(l.T).AlterTopicConfigs(l.Context(), []kadm.AlterConfig{{Name: key, Value: &value}}, x.topic)
	for _, r := range res {
		err = errors.Join(err, r.Err)
	}
	if err != nil {
		l.Fatalf("%s=%s: %v", key, value, err)
	}
	l.changes++
}

func (l *compactLife) checkErrors() {
	l.Helper()
	for _, x := range l.tables {
		if err := x.failed(); err != nil {
			l.Fatal(err)
		}
	}
}

// quiet ends writers and readers; those that follow the end must have seen every key's last value.
func (l *compactLife) quiet(ctx context.Context) {
	l.Helper()
	for _, stop := range l.writers {
		stop()
	}
	l.checkErrors()
	for _, stop := range l.readers {
		stop()
	}
	l.checkErrors()
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, tail := range l.tailed {
		promised := tail.t.snapshot()
		if err := tail.readUntil(limited, func() error { return tail.missing(promised, windowRetention, 0) }); err != nil {
			l.Errorf("following the end of %s: %v", tail.t.topic, err)
		}
		tail.c.Close()
	}
}

// rolling is the key of the records that only roll segments.
const rolling = "roll/0"

// settle has the cleaner do all there is to do: no key but the rolling one is left with two records, and no tombstone.
func (l *compactLife) settle() {
	l.Helper()
	l.set("log.cleaner.io.max.bytes.per.second", "1.7976931348623157E308")
	l.set("log.cleaner.io.buffer.load.factor", "0.9")
	l.set("log.cleaner.io.buffer.size", "524288")
	for _, x := range l.tables {
		l.setTopic(x, "segment.ms", "100")
		l.setTopic(x, "min.compaction.lag.ms", "0")
		l.setTopic(x, "min.cleanable.dirty.ratio", "0")
		l.setTopic(x, "delete.retention.ms", "300")
	}
	client := l.n.Client(l.T, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for _, x := range l.tables {
		testnode.Until(l.T, patience, "compaction of all of "+x.topic, func() error {
			for p := range x.partitions { // a new segment each, since the old ones are older than segment.ms
				x.mu.Lock()
				c := x.cells[rolling]
				c.sent++
				for tombstone(rolling, c.sent) {
					c.sent++
				}
				x.cells[rolling] = c
				x.mu.Unlock()
				r := row(rolling, c.sent)
				r.Topic, r.Partition = x.topic, p
				if err := client.ProduceSync(l.Context(), r).FirstErr(); err != nil {
					l.Fatal(err)
				}
			}
			v := readAll(l.T, l.n, x)
			for key, n := range v.count {
				if n > 1 && key != rolling {
					return fmt.Errorf("key %q has %d records", key, n)
				}
			}
			if v.dead > 0 {
				return fmt.Errorf("%d tombstones are left", v.dead)
			}
			return nil
		})
	}
}

// checkTables reads both topics at rest.
func (l *compactLife) checkTables(when string) {
	l.Helper()
	for _, x := range l.tables {
		v := readAll(l.T, l.n, x)
		cells := x.snapshot()
		if err := v.missing(cells, windowRetention, time.Hour); err != nil {
			l.Fatalf("%s: %v", when, err)
		}
	}
}

// noComplaints looks for what a node must not say.
func (l *compactLife) noComplaints() {
	l.Helper()
	for line := range strings.Lines(l.n.LogText(l.T)) {
		if strings.Contains(line, "level=ERROR") || strings.Contains(line, "BUG:") || strings.Contains(line, "panic:") || strings.Contains(line, "DATA RACE") || strings.Contains(line, "cannot be compacted") {
			l.Errorf("the log says: %s", line)
		}
	}
}

// checkFiles reads the segments of a stopped node as they are: whole batches, good checksums, offsets that rise.
func (l *compactLife) checkFiles() {
	l.Helper()
	var sane []string
	for _, x := range l.tables {
		for p := range x.partitions {
			dir := filepath.Join(l.n.LogDirs[0], fmt.Sprintf("%s-%d", x.topic, p))
			files, err := os.ReadDir(dir)
			if err != nil {
				l.Fatal(err)
			}
			next := int64(0)
			for _, f := range files { // sorted by name: by offset
				switch filepath.Ext(f.Name()) {
				case ".log":
					if next, err = checkSegment(filepath.Join(dir, f.Name()), next); err != nil {
						l.Errorf("%s/%s: %v", dir, f.Name(), err)
					}
				case ".index", ".timeindex":
					sane = append(sane, filepath.Join(dir, f.Name()))
				case ".cleaned", ".swap":
					l.Errorf("%s was left", f.Name())
				}
			}
		}
	}
	l.Run("indexes", func(t *testing.T) {
		testnode.Oracle(t)
		slices.Sort(sane)
		out := testnode.Tool(t, "", "kafka-dump-log", "--index-sanity-check", "--files", strings.Join(sane, ","))
		if n := strings.Count(out.Stdout, "passed sanity check") + strings.Count(out.Stdout, "is empty"); n != len(sane) || out.Code != 0 {
			t.Errorf("%d of %d indexes are sane to kafka-dump-log (exit code %d):\n%s%s", n, len(sane), out.Code, out.Stdout, out.Stderr)
		}
	})
}

func checkSegment(path string, next int64) (int64, error) {
	base, err := strconv.ParseInt(strings.TrimSuffix(filepath.Base(path), ".log"), 10, 64)
	if err != nil {
		return next, err
	}
	if base < next {
		return next, fmt.Errorf("it begins below offset %d", next)
	}
	raw, err := os.ReadFile(path)
	for next = base; err == nil && len(raw) > 0; {
		var e batch.Entry
		if e, raw, err = batch.NextEntry(raw); err != nil {
			return next, fmt.Errorf("after offset %d: %w", next, err)
		}
		if !e.CheckCRC() || e.LastOffset() < next {
			return next, fmt.Errorf("a batch up to offset %d after offset %d, CRC %t", e.LastOffset(), next-1, e.CheckCRC())
		}
		for r, err := range e.Records(nil) {
			if err != nil || r.Offset < next || r.Offset > e.LastOffset() {
				return next, fmt.Errorf("offset %d within a batch up to %d, after %d: %w", r.Offset, e.LastOffset(), next, err)
			}
			next = r.Offset + 1
		}
		next = e.LastOffset() + 1
	}
	return next, err
}

// TestCompactedTopics: compaction under load changes nothing but what is superseded. Every key's last value is there, no
// consumer is told an error or gets stuck, whatever moment the node is stopped or killed at, and memory is bounded. In the
// end one record of each key is left, and tombstones have gone.
func TestCompactedTopics(t *testing.T) {
	start := time.Now()
	life := time.Duration(testnode.Rounds(4, 600)) * time.Second
	ctx, cancel := context.WithTimeout(t.Context(), 2*life+5*time.Minute)
	defer cancel()
	l := newCompactLife(ctx, t, 1)
	l.wait(1000)
	l.kill()
	l.wait(500)
	l.restart()
	for time.Since(start) < life {
		l.wait(l.dice.IntN(testnode.Rounds(1500, 6000)))
		l.disturb()
	}
	l.wait(1)
	l.quiet(ctx)
	l.checkTables("after the load")
	l.settle()
	l.checkTables("all is compacted")
	l.rss = max(l.rss, rss(t, l.n))
	l.n.Stop(t)
	l.noComplaints()
	l.checkFiles()
	l.n.Start(t)
	l.checkTables("after the last start")
	left := l.size()
	l.n.Stop(t)
	acked := 0
	for _, x := range l.tables {
		acked += x.numAcked()
	}
	if l.passes < 4 {
		t.Errorf("only %d reads from the start", l.passes)
	}
	values := map[string]any{
		"seconds": int(time.Since(start).Seconds()), "acked": acked, "kills": l.kills, "stops": l.starts, "changes": l.changes, "reads_from_start": l.passes,
		"slowest_read_ms": l.slow.Milliseconds(), "rss_most": l.rss, "rss_limit": memoryLimit, "bytes_left": left, "runs": strings.Count(l.n.LogText(t), "compacted a log"),
	}
	t.Log(values)
	if testnode.Full() {
		testnode.WriteResult(t, "soak-compaction", time.Since(start), values)
	}
}

// size is the bytes of all segments.
func (l *compactLife) size() int64 {
	l.Helper()
	sum := int64(0)
	for _, x := range l.tables {
		for p := range x.partitions {
			err := filepath.WalkDir(filepath.Join(l.n.LogDirs[0], fmt.Sprintf("%s-%d", x.topic, p)), func(path string, d fs.DirEntry, err error) error {
				if err != nil || filepath.Ext(path) != ".log" {
					return err
				}
				info, err := d.Info()
				if err == nil {
					sum += info.Size()
				}
				return err
			})
			if err != nil {
				l.Fatal(err)
			}
		}
	}
	return sum
}
