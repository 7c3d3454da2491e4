package interop

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"weir/internal/batch"
	"weir/test/testnode"
)

const (
	compacted = "compacted" // what clients of today write: all codecs, tombstones, transactions
	old       = "old"       // message sets of magic 0 and 1
)

// compaction is a directory with dirty topics, which both systems clean.
type compaction struct {
	*scene
	clock  time.Time         // of the next record: a minute's jump rolls the segment
	latest map[string]string // by key the last committed value of the topic compacted; "" is a tombstone
	active map[string]int64  // by topic where the active segment begins
}

func newCompaction(t *testing.T) *compaction {
	n := testnode.New(t, testnode.Options{System: testnode.Apache, Props: map[string]string{
		"log.cleaner.backoff.ms": "300", "log.cleaner.min.cleanable.ratio": "1", // nothing is cleaned while this is 1
		"log.cleaner.delete.retention.ms": "600000", "log.flush.scheduler.interval.ms": "500",
	}})
	return &compaction{
		scene: newScene(t, n), clock: time.Now().Add(2 * time.Hour).Truncate(time.Second), // above the markers of transactions, which would roll segments
		latest: map[string]string{}, active: map[string]int64{},
	}
}

func (c *compaction) record(topic, key, value string) *kgo.Record {
	c.clock = c.clock.Add(time.Millisecond)
	r := &kgo.Record{Topic: topic, Key: []byte(key), Timestamp: c.clock, Headers: []kgo.RecordHeader{{Key: "h", Value: []byte(key)}}}
	if value != "" {
		r.Value = []byte(value)
	}
	return r
}

// some are records of a few keys, a tenth of them tombstones.
func (c *compaction) some(n int, tag string) []*kgo.Record {
	var out []*kgo.Record
	for i := range n {
		value := fmt.Sprintf("%s %d", tag, i)
		if c.dice.IntN(10) == 0 {
			value = ""
		}
		out = append(out, c.record(compacted, fmt.Sprintf("key %d", c.dice.IntN(40)), value))
	}
	return out
}

func (c *compaction) put(client *kgo.Client, commit bool, records []*kgo.Record) {
	c.Helper()
	for _, r := range client.ProduceSync(c.Context(), records...) {
		c.must(r.Err, "produce")
	}
	if commit {
		for _, r := range records {
			c.latest[string(r.Key)] = string(r.Value)
		}
	}
}

// roll makes the next record begin a segment, and notes where.
func (c *compaction) roll(client *kgo.Client, topic string) {
	c.Helper()
	c.clock = c.clock.Add(time.Minute)
	rs := client.ProduceSync(c.Context(), c.record(topic, "rolls", fmt.Sprint(c.clock.UnixMilli())))
	c.must(rs.FirstErr(), "roll")
	c.active[topic] = rs[0].Record.Offset
	if topic == compacted {
		c.latest["rolls"] = string(rs[0].Record.Value)
	}
}

// fill writes segments of all kinds of batches. Transactions only where they are served.
func (c *compaction) fill(transactions bool) {
	c.Helper()
	plain := c.client(kgo.ProducerBatchCompression(kgo.NoCompression()))
	for round, codec := range []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()} {
		client := c.client(kgo.ProducerBatchCompression(codec))
		for i := range 6 {
			c.put(client, true, c.some(1+c.dice.IntN(8), fmt.Sprintf("round %d batch %d", round, i)))
		}
		client.Close()
		if transactions {
			c.transactions(round)
		}
		c.roll(plain, compacted)
	}
}

func (c *compaction) transactions(round int) {
	client := c.client(kgo.TransactionalID(fmt.Sprintf("tx %d", round%2)), kgo.ProducerBatchCompression(kgo.NoCompression()))
	defer client.Close()
	for i := range 3 {
		c.must(client.BeginTransaction(), "begin")
		commit := i != 1
		c.put(client, commit, c.some(3, fmt.Sprintf("transaction %d of round %d", i, round)))
		c.must(client.EndTransaction(c.Context(), kgo.TransactionEndTry(commit)), "end")
		c.clock = c.clock.Add(time.Millisecond)
	}
}

// writeOld puts message sets of magic 1 and 0 into the topic old of a node that is down, as a broker of old has left them.
func (c *compaction) writeOld() {
	c.Helper()
	var set []byte
	offset := int64(0)
	for i, codec := range []batch.Codec{batch.None, batch.None, batch.Gzip, batch.Snappy, batch.Lz4, batch.None} {
		o := batch.NewOptions()
		o.Codec, o.BaseOffset = codec, offset
		b := batch.NewBuilder(o)
		n := 1
		if codec != batch.None {
			n = 5
		}
		for j := range n {
			value := fmt.Appendf(nil, "old %d %d", i, j)
			if j == 3 {
				value = nil
			}
			b.Append(c.clock.UnixMilli(), fmt.Appendf(nil, "key %d", (i+j)%4), value, nil)
		}
		var err error
		set, err = batch.DownConvert(set, b.Build(), int8(1-i/3), nil)
		c.must(err, "down-convert")
		offset += int64(n)
	}
	dir := filepath.Join(c.n.LogDirs[0], old+"-0")
	files, err := os.ReadDir(dir)
	c.must(err, "list")
	for _, f := range files {
		if strings.HasPrefix(f.Name(), "0000") {
			c.must(os.Remove(filepath.Join(dir, f.Name())), "remove")
		}
	}
	c.must(os.WriteFile(filepath.Join(dir, "00000000000000000000.log"), set, 0o644), "write")
	c.must(os.Remove(filepath.Join(c.n.LogDirs[0], ".kafka_cleanshutdown")), "remove")
}

// cleanBy runs a system on the directory until its cleaner has reached the active segments, and stops it.
func (c *compaction) cleanBy(s testnode.System, topics ...string) {
	c.Helper()
	c.n.Become(c.T, s)
	c.n.SetProp(c.T, "log.cleaner.min.cleanable.ratio", "0.0001")
	c.n.Start(c.T)
	c.awaitClean(topics...)
	c.n.Stop(c.T)
	c.n.SetProp(c.T, "log.cleaner.min.cleanable.ratio", "1")
}

func (c *compaction) awaitClean(topics ...string) {
	c.Helper()
	file := filepath.Join(c.n.LogDirs[0], "cleaner-offset-checkpoint")
	c.until("compaction", func() error {
		text, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		for _, topic := range topics {
			if line := fmt.Sprintf("%s 0 %d\n", topic, c.active[topic]); !strings.Contains(string(text), line) {
				return fmt.Errorf("no line %q in %q; log: %s", line, text, c.n.LogTail(5))
			}
		}
		return nil
	})
}

// segments are the compacted segments of a topic, by file name.
func (c *compaction) segments(topic string) map[string][]byte {
	c.Helper()
	files, err := filepath.Glob(filepath.Join(c.n.LogDirs[0], topic+"-0", "0*"))
	c.must(err, "list")
	out := map[string][]byte{}
	active := fmt.Sprintf("%020d", c.active[topic])
	for _, f := range files {
		name := filepath.Base(f)
		if ext := filepath.Ext(name); name < active && ext != ".deleted" && ext != ".snapshot" {
			out[name], err = os.ReadFile(f)
			c.must(err, "read")
		}
	}
	return out
}

// text is a segment with all that compaction decides. Delete horizons are moments of the run: only that they are there.
func (c *compaction) text(log []byte) string {
	c.Helper()
	var out strings.Builder
	for len(log) > 0 {
		e, rest, err := batch.NextEntry(log)
		c.must(err, "split")
		log = rest
		if b, ok := e.Batch(); ok {
			fmt.Fprintf(&out, "%d-%d epoch %d attributes %x producer %d/%d/%d count %d max %d\n", b.BaseOffset(), b.LastOffset(), b.LeaderEpoch(), b.Attributes(),
				b.ProducerID(), b.ProducerEpoch(), b.BaseSequence(), b.Count(), b.MaxTimestamp())
		} else {
			fmt.Fprintf(&out, "magic %d %s to %d, max %d\n", e.Magic(), e.Codec(), e.LastOffset(), e.MaxTimestamp())
		}
		if !e.CheckCRC() {
			out.WriteString("  wrong CRC\n")
		}
		for r, err := range e.Records(nil) {
			c.must(err, "records")
			fmt.Fprintf(&out, "  %d at %d: %q=%q (null %t) %q\n", r.Offset, r.Timestamp, r.Key, r.Value, r.Value == nil, r.Headers)
		}
	}
	return out.String()
}

// dumpCompacted has kafka-dump-log read the files. It lists each hole that compaction leaves, which is no fault of theirs.
func dumpCompacted(t *testing.T, files []string) {
	t.Helper()
	var logs, indexes []string
	for _, f := range files {
		if filepath.Ext(f) == ".log" {
			logs = append(logs, f)
		} else {
			indexes = append(indexes, f)
		}
	}
	out := testnode.Tool(t, "", "kafka-dump-log", "--deep-iteration", "--files", strings.Join(append(logs, indexes...), ","))
	for line := range strings.Lines(out.Stdout + "\n" + out.Stderr) {
		if !strings.Contains(line, "payload: ") && !strings.Contains(line, " is followed by ") && complaints.MatchString(line) {
			t.Errorf("kafka-dump-log: %s", line)
		}
	}
	if out.Code != 0 || !strings.Contains(out.Stdout, "| offset: ") {
		t.Errorf("kafka-dump-log: exit code %d: %s", out.Code, out.Stderr)
	}
	dumpLog(t, slices.DeleteFunc(indexes, func(f string) bool { return filepath.Ext(f) == ".txnindex" }), "--index-sanity-check")
}

func copyDir(t *testing.T, from, to string) {
	t.Helper()
	if err := os.RemoveAll(to); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil { // modification times count
		t.Fatalf("%v: %s", err, out)
	}
}

// values consumes a topic as a read-committed consumer does: what a table built from it holds.
func (c *compaction) values(topic string) map[string]string {
	c.Helper()
	_, end := c.offsets(topic, 0)
	client := c.client(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	defer client.Close()
	out := map[string]string{}
	for next := int64(0); next < end; {
		fs := client.PollFetches(c.Context())
		c.must(fs.Err(), "fetch")
		for r := range fs.RecordsAll() {
			next = r.Offset + 1
			if r.Attrs.IsControl() {
				continue
			}
			out[string(r.Key)] = string(r.Value)
		}
	}
	return out
}

// compare holds what a consumer gets against what was written; tombstones may be there or not.
func (c *compaction) compare(by string) {
	c.Helper()
	got, want := c.values(compacted), maps.Clone(c.latest)
	drop := func(_, v string) bool { return v == "" }
	maps.DeleteFunc(got, drop)
	maps.DeleteFunc(want, drop)
	if !maps.Equal(got, want) {
		for k, v := range want {
			if got[k] != v {
				c.Errorf("%s: %q is %q, want %q", by, k, got[k], v)
			}
		}
		for k, v := range got {
			if _, ok := want[k]; !ok {
				c.Errorf("%s: %q is %q, want none", by, k, v)
			}
		}
	}
	figures.add("compacted_keys_compared", len(want))
}

// TestCompactionLikeKafka has both systems clean the same directory, and compares the segments that they leave. Then each
// goes on with what the other has left.
func TestCompactionLikeKafka(t *testing.T) {
	testnode.Oracle(t)
	t.Parallel()
	c := newCompaction(t)
	c.n.Start(t)
	configs := map[string]string{"cleanup.policy": "compact", "segment.ms": "30000", "message.timestamp.after.max.ms": "9000000000"}
	c.ensure(compacted, 1, configs)
	c.ensure(old, 1, configs)
	c.fill(true)
	c.n.Stop(t)
	c.writeOld()
	c.n.Start(t)
	plain := c.client(kgo.ProducerBatchCompression(kgo.NoCompression()))
	c.roll(plain, old)
	plain.Close()
	c.n.Stop(t)

	data := c.n.LogDirs[0]
	dirty := filepath.Join(c.n.Dir, "dirty")
	copyDir(t, data, dirty)
	left := map[testnode.System]map[string]map[string][]byte{}
	for _, s := range []testnode.System{testnode.Apache, testnode.Ours} {
		copyDir(t, dirty, data)
		c.cleanBy(s, compacted, old)
		left[s] = map[string]map[string][]byte{compacted: c.segments(compacted), old: c.segments(old)}
		for _, topic := range []string{compacted, old} {
			var files []string
			for name := range left[s][topic] {
				if filepath.Ext(name) != ".txnindex" || len(left[s][topic][name]) > 0 {
					files = append(files, filepath.Join(data, topic+"-0", name))
				}
			}
			if s == testnode.Ours {
				dumpCompacted(t, files)
			}
		}
	}
	for _, topic := range []string{compacted, old} {
		ours, theirs := left[testnode.Ours][topic], left[testnode.Apache][topic]
		maps.DeleteFunc(theirs, func(name string, b []byte) bool { return filepath.Ext(name) == ".txnindex" && len(b) == 0 }) // Weir makes it when needed
		if a, b := slices.Sorted(maps.Keys(ours)), slices.Sorted(maps.Keys(theirs)); !slices.Equal(a, b) {
			t.Errorf("%s: files %v, Apache Kafka leaves %v", topic, a, b)
		}
		for name, b := range theirs {
			switch filepath.Ext(name) {
			case ".log":
				if a, b := c.text(ours[name]), c.text(b); a != b {
					t.Errorf("%s/%s:\n%s\nApache Kafka leaves:\n%s", topic, name, a, b)
				}
				figures.add("compacted_bytes_compared", len(b))
			case ".txnindex":
				if !bytes.Equal(ours[name], b) {
					t.Errorf("%s/%s:\n%x\nApache Kafka leaves:\n%x", topic, name, ours[name], b)
				}
			}
		}
	}
	if t.Failed() {
		return
	}
	// Weir's directory goes on under Apache Kafka, and back.
	for _, s := range []testnode.System{testnode.Apache, testnode.Ours, testnode.Apache, testnode.Ours} {
		c.n.Become(t, s)
		c.n.Start(t)
		c.compare("before more records under " + string(s))
		c.fill(s == testnode.Apache)
		c.compare("after more records under " + string(s))
		c.n.Stop(t)
		c.cleanBy(s, compacted)
		c.n.Start(t)
		c.compare("cleaned by " + string(s))
		c.n.Kill(t)
	}
}
