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
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"weir/internal/batch"
	"weir/test/testnode"
)

// old is the topic with message sets of magic 0 and 1.
const old = "old"

// compaction is a directory with dirty topics, which both systems clean.
type compaction struct {
	*scene
	clock  time.Time // of the next record: a minute's jump rolls the segment
	topics []*dirtyTopic
}

func newCompaction(t *testing.T) *compaction {
	n := testnode.New(t, testnode.Options{System: testnode.Apache, Props: map[string]string{
		"log.cleaner.backoff.ms": "300", "log.cleaner.min.cleanable.ratio": "1", // nothing is cleaned while this is 1
		"log.cleaner.delete.retention.ms": "600000", "log.flush.scheduler.interval.ms": "500", "log.cleaner.dedupe.buffer.size": "2097152",
	}})
	return &compaction{scene: newScene(t, n), clock: time.Now().Add(2 * time.Hour).Truncate(time.Second)} // above the markers of transactions, which would roll segments
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

// rollOld begins a segment behind the message sets.
func (c *compaction) rollOld() {
	c.Helper()
	client := c.client()
	defer client.Close()
	c.clock = c.clock.Add(time.Minute)
	c.must(client.ProduceSync(c.Context(), &kgo.Record{Topic: old, Key: []byte("rolls"), Value: []byte("yes"), Timestamp: c.clock}).FirstErr(), "roll")
}

// cleanBy runs a system on the directory until its cleaner has reached the active segments, and stops it.
func (c *compaction) cleanBy(s testnode.System, topics ...string) {
	c.Helper()
	c.n.Become(c.T, s)
	c.n.SetProp(c.T, "log.cleaner.min.cleanable.ratio", "0.0001")
	active := map[string]int64{}
	for _, topic := range topics {
		active[topic] = c.active(topic)
	}
	c.n.Start(c.T)
	c.awaitClean(active)
	c.n.Stop(c.T)
	c.n.SetProp(c.T, "log.cleaner.min.cleanable.ratio", "1")
}

// active is where the active segment of a topic begins; the node is down.
func (c *compaction) active(topic string) int64 {
	c.Helper()
	logs, err := filepath.Glob(filepath.Join(c.n.LogDirs[0], topic+"-0", "*.log"))
	c.must(err, "list")
	if len(logs) < 2 {
		c.Fatalf("%s has the segments %v", topic, logs)
	}
	slices.Sort(logs)
	base, err := strconv.ParseInt(strings.TrimSuffix(filepath.Base(logs[len(logs)-1]), ".log"), 10, 64)
	c.must(err, "name of a segment")
	return base
}

func (c *compaction) awaitClean(upTo map[string]int64) {
	c.Helper()
	file := filepath.Join(c.n.LogDirs[0], "cleaner-offset-checkpoint")
	c.until("compaction", func() error {
		text, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		for topic, offset := range upTo {
			if line := fmt.Sprintf("%s 0 %d\n", topic, offset); !strings.Contains(string(text), line) {
				return fmt.Errorf("no line %q in %q; log: %s", line, text, c.n.LogTail(5))
			}
		}
		return nil
	})
}

// segments are the compacted segments of a topic, by file name; the node is down. Of producer snapshots those count that
// are of a segment.
func (c *compaction) segments(topic string) map[string][]byte {
	c.Helper()
	files, err := filepath.Glob(filepath.Join(c.n.LogDirs[0], topic+"-0", "0*"))
	c.must(err, "list")
	out := map[string][]byte{}
	active := fmt.Sprintf("%020d", c.active(topic))
	for _, f := range files {
		if name := filepath.Base(f); name < active && filepath.Ext(name) != ".deleted" {
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

// dumpCompacted has kafka-dump-log read the files. It lists each hole that compaction leaves, which is no fault of theirs,
// and time index entries of batches that are empty now; both systems make the same.
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
		if !strings.Contains(line, "payload: ") && !strings.Contains(line, " is followed by ") && !strings.Contains(line, "Found timestamp mismatch") && complaints.MatchString(line) {
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
			if r.Key != nil { // what has none goes when it is compacted
				out[string(r.Key)] = string(r.Value)
			}
		}
	}
	return out
}

// compare holds what a consumer gets against what was written; tombstones may be there or not.
func (c *compaction) compare(by string) {
	c.Helper()
	for _, d := range c.topics {
		got := c.values(d.name)
		for k, v := range d.latest {
			if got[k] != v.value {
				c.Errorf("%s: %s: %q is %q, want %q", by, d.name, k, got[k], v.value)
			}
		}
		for k, v := range got {
			if _, ok := d.latest[k]; !ok && v != "" {
				c.Errorf("%s: %s: %q is %q, want none", by, d.name, k, v)
			}
		}
		figures.add("compacted_keys_compared", len(d.latest))
	}
}

// cleanedAlike has both systems clean what the directory holds and compares the segments that they leave. last leaves its
// result in the directory.
func (c *compaction) cleanedAlike(last testnode.System, topics []string) {
	c.Helper()
	data, dirty := c.n.LogDirs[0], filepath.Join(c.n.Dir, "dirty")
	copyDir(c.T, data, dirty)
	left := map[testnode.System]map[string]map[string][]byte{}
	order := []testnode.System{testnode.Apache, testnode.Ours}
	if last == testnode.Apache {
		slices.Reverse(order)
	}
	for _, s := range order {
		copyDir(c.T, dirty, data)
		c.cleanBy(s, topics...)
		left[s] = map[string]map[string][]byte{}
		var files []string
		for _, topic := range topics {
			left[s][topic] = c.segments(topic)
			for name := range left[s][topic] {
				if filepath.Ext(name) != ".txnindex" || len(left[s][topic][name]) > 0 {
					files = append(files, filepath.Join(data, topic+"-0", name))
				}
			}
		}
		if s == testnode.Ours {
			dumpCompacted(c.T, files)
		}
	}
	for _, topic := range topics {
		c.alike(topic, left[testnode.Ours][topic], left[testnode.Apache][topic])
	}
}

// alike compares the cleaned files of one topic.
func (c *compaction) alike(topic string, ours, theirs map[string][]byte) {
	c.Helper()
	maps.DeleteFunc(theirs, func(name string, b []byte) bool { return filepath.Ext(name) == ".txnindex" && len(b) == 0 }) // Weir makes it when needed
	if a, b := slices.Sorted(maps.Keys(ours)), slices.Sorted(maps.Keys(theirs)); !slices.Equal(a, b) {
		c.Errorf("%s: files %v, Apache Kafka leaves %v", topic, a, b)
	}
	for name, b := range theirs {
		switch filepath.Ext(name) {
		case ".log":
			if a, b := c.text(ours[name]), c.text(b); a != b {
				c.Errorf("%s/%s:\n%s\nApache Kafka leaves:\n%s", topic, name, a, b)
			}
			figures.add("compacted_bytes_compared", len(b))
		case ".index": // holds positions, which differ where the compressors do
			if log := strings.TrimSuffix(name, ".index") + ".log"; bytes.Equal(ours[log], theirs[log]) && !bytes.Equal(ours[name], b) {
				c.Errorf("%s/%s:\n%x\nApache Kafka leaves:\n%x", topic, name, ours[name], b)
			}
		default:
			if !bytes.Equal(ours[name], b) {
				c.Errorf("%s/%s:\n%x\nApache Kafka leaves:\n%x", topic, name, ours[name], b)
			}
		}
	}
}

// TestCompactionLikeKafka has both systems clean the same directory, and compares the segments that they leave: first what
// was never cleaned, with room for all keys, then cleaned logs that have become dirty again, with room for so few keys that
// many runs are needed. In the end each goes on with what the other has left.
func TestCompactionLikeKafka(t *testing.T) {
	testnode.Oracle(t)
	t.Parallel()
	c := newCompaction(t)
	c.n.Start(t)
	c.makeTopics(testnode.Rounds(3, 16))
	c.ensure(old, 1, map[string]string{"cleanup.policy": "compact", "segment.ms": "30000", "message.timestamp.after.max.ms": "9000000000"})
	c.fill(true)
	c.n.Stop(t)
	c.writeOld()
	c.n.Start(t)
	c.rollOld()
	c.n.Stop(t)
	var names []string
	for _, d := range c.topics {
		names = append(names, d.name)
	}
	c.cleanedAlike(testnode.Ours, append(slices.Clone(names), old))
	for i := range testnode.Rounds(1, 4) {
		if t.Failed() {
			return
		}
		c.n.Become(t, testnode.Apache)
		c.n.SetProp(t, "log.cleaner.io.buffer.load.factor", []string{"0.0004", "0.9"}[i%2]) // a table of 34 keys, then one that is large enough
		c.n.Start(t)
		c.compare(fmt.Sprintf("round %d, cleaned before", i))
		c.fill(true)
		c.n.Stop(t)
		c.cleanedAlike([]testnode.System{testnode.Apache, testnode.Ours}[i%2], names)
	}
	if t.Failed() {
		return
	}
	legs := []testnode.System{testnode.Ours, testnode.Apache, testnode.Ours, testnode.Apache}
	for _, s := range legs[:testnode.Rounds(2, 4)] {
		c.n.Become(t, s)
		c.n.Start(t)
		c.compare("before more records under " + string(s))
		c.fill(s == testnode.Apache)
		c.compare("after more records under " + string(s))
		c.n.Stop(t)
		c.cleanBy(s, names...)
		c.n.Start(t)
		c.compare("cleaned by " + string(s))
		c.n.Kill(t)
	}
}
