package broker_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"weir/internal/broker"
	"weir/internal/clock"
	"weir/internal/config"
	"weir/internal/loggers"
	"weir/internal/rng"
	"weir/internal/storage/format"
	"weir/internal/uuid"
	"weir/internal/vfs"
	"weir/internal/vfs/memfs"
)

// cuts is how many times the power fails in each run, from which seed:
//
//	go test ./internal/broker -run PowerCut -args -cuts 100 -seed 7
var (
	cuts = flag.Int("cuts", 0, "power cuts in each run; 0: 4, WEIR_SEEDS or, with WEIR_FULL=1, 60")
	seed = flag.Uint64("seed", 1, "first seed of the power cuts")
)

func numCuts() int {
	n, _ := strconv.Atoi(os.Getenv("WEIR_SEEDS")) // "" is none
	switch {
	case *cuts > 0:
		return *cuts
	case n > 0:
		return n
	case os.Getenv("WEIR_FULL") != "":
		return 60
	}
	return 4
}

const (
	cutTopic      = "cut"
	cutPartitions = 4
)

// nodeProperties is a node on loopback ports that the system chooses. Segments
// and intervals are small, so that a short life rolls, checkpoints and snapshots.
const nodeProperties = `
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:9093
log.dirs=/data/a,/data/b
log.segment.bytes=1048576
log.index.interval.bytes=512
log.flush.offset.checkpoint.interval.ms=100
log.flush.start.offset.checkpoint.interval.ms=100
replica.high.watermark.checkpoint.interval.ms=100
metadata.log.max.record.bytes.between.snapshots=2000
`

// settings reads a server.properties.
func settings(t *testing.T, text string) (*config.Static, *config.Node) {
	t.Helper()
	static, _, err := config.Load("server.properties", []byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	node, err := static.Node()
	if err != nil {
		t.Fatal(err)
	}
	return static, node
}

// formatted makes a file system that holds the formatted directories of a node.
func formatted(t *testing.T, properties string) *memfs.FS {
	t.Helper()
	_, node := settings(t, properties)
	fsys := memfs.New()
	q, err := format.QuorumFor(node, format.Choice{})
	if err == nil {
		err = fsys.MkdirAll("/data", 0o755)
	}
	if err == nil {
		err = fsys.SyncDir("/")
	}
	if err == nil {
		err = format.Format(format.Options{
			FS: fsys, NowMs: time.Now().UnixMilli(), Rand: rng.System(), ClusterID: uuid.Random(rng.System()).String(),
			NodeID: node.NodeID, LogDirs: node.LogDirs, MetadataDir: node.MetadataDir, Quorum: q,
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return fsys
}

// startNode starts a node in this process.
func startNode(t *testing.T, properties string, fsys vfs.FS, logs *strings.Builder) (*broker.Broker, error) {
	t.Helper()
	static, node := settings(t, properties)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	return broker.Start(ctx, broker.Options{
		Static: static, Node: node, FS: fsys, Clock: clock.System{}, Loggers: loggers.New(slog.NewTextHandler(logs, nil), slog.LevelInfo), OpenFiles: 100,
	})
}

func stopNode(t *testing.T, b *broker.Broker) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := b.Shutdown(ctx); err != nil {
		t.Error(err)
	}
}

func newClient(t *testing.T, b *broker.Broker, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	a := b.Addresses()[0]
	c, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(fmt.Sprintf("%s:%d", a.Host, a.Port)), kgo.DisableClientMetrics(),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// history is what producers were told of each partition's records.
type history struct {
	mu    sync.Mutex
	sent  [cutPartitions]map[string]bool // every value that was ever handed to a producer
	acked [cutPartitions]map[int64]string
	next  int
}

func newHistory() *history {
	h := &history{}
	for p := range cutPartitions {
		h.sent[p], h.acked[p] = map[string]bool{}, map[int64]string{}
	}
	return h
}

// record makes the next record for a partition.
func (h *history) record(p int32, dice *rng.Source) *kgo.Record {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.next++
	value := fmt.Sprintf("%d-%d-%s", p, h.next, strings.Repeat("x", dice.IntN(400)))
	h.sent[p][value] = true
	return &kgo.Record{Topic: cutTopic, Partition: p, Value: []byte(value)}
}

func (h *history) ack(r *kgo.Record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.acked[r.Partition][r.Offset] = string(r.Value)
}

// promised copies what was acked up to now.
func (h *history) promised() [cutPartitions]map[int64]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out [cutPartitions]map[int64]string
	for p := range out {
		out[p] = make(map[int64]string, len(h.acked[p]))
		for o, v := range h.acked[p] {
			out[p][o] = v
		}
	}
	return out
}

// load produces with acks=all until ctx ends.
func (h *history) load(ctx context.Context, t *testing.T, b *broker.Broker, dice *rng.Source) (stop func()) {
	c := newClient(t, b, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0), kgo.MaxBufferedRecords(64),
		kgo.RecordRetries(2), kgo.ProducerBatchCompression(kgo.NoCompression()))
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			r := h.record(int32(dice.IntN(cutPartitions)), dice)
			c.Produce(ctx, r, func(r *kgo.Record, err error) {
				if err == nil {
					h.ack(r)
				}
			})
		}
	})
	return func() {
		cancel()
		done.Wait()
		c.Close()
	}
}

// ackedAtLeast waits until n more records were acked.
func (h *history) ackedAtLeast(ctx context.Context, n int) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		got := 0
		for _, m := range h.promised() {
			got += len(m)
		}
		if got >= n {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("only %d of %d records acked: %w", got, n, context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// found reads a partition from its start to its end.
func found(ctx context.Context, t *testing.T, b *broker.Broker, p int32) (map[int64]string, int64, error) {
	c := newClient(t, b, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{cutTopic: {p: kgo.NewOffset().AtStart()}}))
	defer c.Close()
	ends, err := kadm.NewClient(c).ListEndOffsets(ctx, cutTopic)
	if err != nil {
		return nil, 0, err
	}
	end, ok := ends.Lookup(cutTopic, p)
	if !ok || end.Err != nil {
		return nil, 0, fmt.Errorf("end of partition %d: %v", p, end.Err)
	}
	out, next := map[int64]string{}, int64(0)
	for next < end.Offset {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return nil, 0, err
		}
		for _, e := range fetches.Errors() {
			return nil, 0, e.Err
		}
		for _, r := range fetches.Records() {
			if r.Offset != next {
				return nil, 0, fmt.Errorf("partition %d: offset %d follows %d", p, r.Offset, next-1)
			}
			out[r.Offset] = string(r.Value)
			next++
		}
	}
	return out, end.Offset, nil
}

// check holds what a restarted node serves against what its producers were
// told before the cut. What is found becomes the history of the next life.
func (h *history) check(ctx context.Context, t *testing.T, b *broker.Broker, promised [cutPartitions]map[int64]string, durable bool) error {
	for p := range int32(cutPartitions) {
		got, end, err := found(ctx, t, b, p)
		if err != nil {
			return err
		}
		seen := map[string]int64{}
		for o, v := range got {
			if !h.sent[p][v] {
				return fmt.Errorf("partition %d offset %d holds %.20q, which nobody sent", p, o, v)
			}
			if other, twice := seen[v]; twice {
				return fmt.Errorf("partition %d holds %.20q at %d and %d", p, v, o, other)
			}
			seen[v] = o
		}
		for o, v := range promised[p] {
			switch {
			case o < end && got[o] != v:
				return fmt.Errorf("partition %d offset %d holds %.20q, its producer was told of %.20q", p, o, got[o], v)
			case o >= end && durable:
				return fmt.Errorf("partition %d ends at %d, but %d was acked after an fsync", p, end, o)
			}
		}
		h.acked[p] = got
	}
	return nil
}

// countdown is a disk whose power fails after a number of changes: it keeps what
// is left then, and goes on, so that the node on it can be stopped.
type countdown struct {
	*memfs.FS
	dice *rng.Source

	mu    sync.Mutex
	after int       // changes until the power fails
	cut   *memfs.FS // what it leaves; nil before
}

func (c *countdown) change() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.after == 0 {
		c.cut = c.Crash(c.dice)
	}
	c.after--
}

// left is what the power cut left, nil when it did not come.
func (c *countdown) left() *memfs.FS {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.after = -1 // no more
	return c.cut
}

func (c *countdown) Open(name string, flag int, perm os.FileMode) (vfs.File, error) {
	if flag&(os.O_CREATE|os.O_TRUNC) != 0 {
		c.change()
	}
	f, err := c.FS.Open(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &countedFile{f, c}, nil
}

func (c *countdown) Remove(name string) error    { c.change(); return c.FS.Remove(name) }
func (c *countdown) Rename(a, b string) error    { c.change(); return c.FS.Rename(a, b) }
func (c *countdown) SyncDir(name string) error   { c.change(); return c.FS.SyncDir(name) }
func (c *countdown) RemoveAll(name string) error { c.change(); return c.FS.RemoveAll(name) }

type countedFile struct {
	vfs.File
	disk *countdown
}

func (f *countedFile) WriteAt(p []byte, off int64) (int, error) {
	f.disk.change()
	return f.File.WriteAt(p, off)
}
func (f *countedFile) Truncate(n int64) error { f.disk.change(); return f.File.Truncate(n) }
func (f *countedFile) Sync() error            { f.disk.change(); return f.File.Sync() }

// TestPowerCut runs a whole node on a disk that loses power under load, again
// and again. The node always comes back; each offset that it then serves holds
// what its producer was told; with log.flush.interval.messages=1 nothing that
// was acked is gone, without only a tail.
func TestPowerCut(t *testing.T) {
	for _, flush := range []int64{1, 1 << 40} {
		t.Run(fmt.Sprintf("flush=%d", flush), func(t *testing.T) {
			t.Parallel()
			powerCuts(t, flush)
		})
	}
}

func powerCuts(t *testing.T, flush int64) {
	properties := nodeProperties + fmt.Sprintf("log.flush.interval.messages=%d\n", flush)
	dice := rng.New(*seed)
	disk, h := formatted(t, properties), newHistory()
	var logs strings.Builder
	b, err := startNode(t, properties, disk, &logs)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d, the node's log:\n%s", *seed, logs.String())
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(20+2*numCuts())*time.Second)
	defer cancel()
	c := newClient(t, b)
	_, err = kadm.NewClient(c).CreateTopic(ctx, cutPartitions, 1, map[string]*string{"min.insync.replicas": kadm.StringPtr("1")}, cutTopic)
	c.Close()
	if err != nil {
		t.Fatal(err)
	}
	for cut := range numCuts() {
		have := 0
		for _, m := range h.promised() {
			have += len(m)
		}
		stop := h.load(ctx, t, b, rng.New(dice.Uint64()))
		if err := h.ackedAtLeast(ctx, have+1+dice.IntN(600)); err != nil {
			t.Fatal(err)
		}
		promised := h.promised()
		after := disk.Crash(dice)
		stop()
		stopNode(t, b) // on the old disk, which no longer matters
		logs.Reset()
		restarts := &countdown{FS: after, dice: dice, after: dice.IntN(120)}
		if b, err = startNode(t, properties, restarts, &logs); err != nil {
			t.Fatalf("cut %d: the node does not start: %v", cut, err)
		}
		if again := restarts.left(); again != nil { // the power fails again while the node comes up
			stopNode(t, b)
			after = again
			if b, err = startNode(t, properties, after, &logs); err != nil {
				t.Fatalf("cut %d, and again during the start: the node does not start: %v", cut, err)
			}
		}
		disk = after
		if err := h.check(ctx, t, b, promised, flush == 1); err != nil {
			stopNode(t, b)
			t.Fatalf("cut %d: %v", cut, err)
		}
	}
	stopNode(t, b)
	if b, err = startNode(t, properties, disk, &logs); err != nil {
		t.Fatal("after a clean stop: ", err)
	}
	defer stopNode(t, b)
	if err := h.check(ctx, t, b, h.promised(), true); err != nil {
		t.Fatal("after a clean stop: ", err)
	}
}

// TestStopsWhenItCannotStart: what a failed start has opened is closed again.
func TestStopsWhenItCannotStart(t *testing.T) {
	disk := formatted(t, nodeProperties)
	var logs strings.Builder
	first, err := startNode(t, nodeProperties, disk, &logs)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := startNode(t, nodeProperties, disk, &logs); !errors.Is(err, vfs.ErrLocked) {
		if err == nil {
			stopNode(t, b)
		}
		t.Errorf("a second node on the same directories: %v, want %v", err, vfs.ErrLocked)
	}
	stopNode(t, first)
	again, err := startNode(t, nodeProperties, disk, &logs)
	if err != nil {
		t.Fatal(err)
	}
	stopNode(t, again)
}
