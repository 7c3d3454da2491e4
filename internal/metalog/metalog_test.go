package metalog

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/batch"
	"weir/internal/clock"
	"weir/internal/kraft"
	"weir/internal/records"
	"weir/internal/rng"
	"weir/internal/uuid"
	"weir/internal/vfs"
	"weir/internal/vfs/errfs"
	"weir/internal/vfs/memfs"
)

// listener remembers what it was told.
type listener struct {
	next    int64
	names   []string // of the topics committed, one per record
	offsets []int64
	leaders []kraft.LeaderAndEpoch
	loaded  []kraft.Position
	batches []Batch
	fail    error
	log     *Log
}

func (li *listener) Committed(b Batch) error {
	if b.Base != li.next {
		return fmt.Errorf("batch at %d, expected %d", b.Base, li.next)
	}
	li.next = b.Last + 1
	li.batches = append(li.batches, b)
	for i, r := range b.Records {
		li.names = append(li.names, r.Record.(*records.TopicRecord).Name)
		li.offsets = append(li.offsets, b.Base+int64(i))
	}
	return li.fail
}

func (li *listener) LoadSnapshot(s Snapshot) error {
	li.loaded, li.next, li.names = append(li.loaded, s.ID), s.ID.Offset, nil
	for r, err := range s.Records {
		if err != nil {
			return err
		}
		li.names = append(li.names, r.Record.(*records.TopicRecord).Name)
	}
	return nil
}

func (li *listener) LeaderChanged(l kraft.LeaderAndEpoch) error {
	li.leaders = append(li.leaders, l)
	li.log.mu.Lock()
	defer li.log.mu.Unlock()
	if start := li.log.core.EpochStart(); l.ID == li.log.o.Self.ID && li.next <= start {
		return fmt.Errorf("told to lead at %d, the epoch starts at %d", li.next, start)
	}
	return nil
}

func topics(names ...string) []records.Versioned {
	var out []records.Versioned
	for _, n := range names {
		r := records.NewTopicRecord()
		r.Name = n
		copy(r.TopicID[1:], n)
		out = append(out, records.Versioned{Record: &r})
	}
	return out
}

func options(fsys vfs.FS, c clock.Clock) Options {
	return Options{FS: fsys, Dir: "meta", Self: kraft.Replica{ID: 1, Dir: uuid.UUID{0: 7, 15: 1}},
		Voters:   []kraft.Voter{{Replica: kraft.Replica{ID: 1}}},
		Timeouts: kraft.Timeouts{ElectionMs: 1000, FetchMs: 2000, RetryMs: 20, MaxWaitMs: 500, MaxFetch: 1 << 20, BackoffMaxMs: 1000},
		Limits:   Limits{SegmentBytes: 1 << 20, SegmentMs: 7 * 86400_000, RetentionBytes: -1, RetentionMs: -1, MaxBatchBytes: 8 << 20, DeleteDelayMs: 60_000},
		Clock:    c, Rand: rng.New(1), Logger: slog.New(slog.DiscardHandler)}
}

// node is a Log that a test polls by hand.
type testNode struct {
	*Log
	*listener
	t     *testing.T
	clock *clock.Manual
}

func open(t *testing.T, fsys vfs.FS, with func(*Options)) *testNode {
	t.Helper()
	c := clock.NewManual(time.UnixMilli(1_800_000_000_000))
	o := options(fsys, c)
	if with != nil {
		with(&o)
	}
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	n := &testNode{Log: l, listener: &listener{log: l}, t: t, clock: c}
	l.Register(n.listener)
	return n
}

func (n *testNode) poll() {
	n.t.Helper()
	if _, err := n.Poll(); err != nil {
		n.t.Fatal(err)
	}
}

func (n *testNode) append(epoch int32, names ...string) int64 {
	n.t.Helper()
	last, err := n.Append(epoch, topics(names...), true)
	if err != nil {
		n.t.Fatal(err)
	}
	return last
}

func newDisk(t *testing.T) *memfs.FS {
	fsys := memfs.New()
	if err := fsys.MkdirAll("meta", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := fsys.SyncDir("."); err != nil {
		t.Fatal(err)
	}
	return fsys
}

func TestLeadsAndCommits(t *testing.T) {
	disk := newDisk(t)
	n := open(t, disk, nil)
	if n.poll(); !slices.Equal(n.leaders, []kraft.LeaderAndEpoch{{ID: 1, Epoch: 1}}) || n.HighWatermark() != 1 {
		t.Fatalf("leaders %v, high watermark %d", n.leaders, n.HighWatermark())
	}
	if last := n.append(1, "a", "b"); last != 2 || n.HighWatermark() != 1 || n.LogEnd() != 3 {
		t.Fatalf("last %d, high watermark %d, end %d", last, n.HighWatermark(), n.LogEnd())
	}
	if n.names != nil {
		t.Fatal("told before the flush")
	}
	n.append(1, "c")
	n.poll()
	if !slices.Equal(n.names, []string{"a", "b", "c"}) || !slices.Equal(n.offsets, []int64{1, 2, 3}) || len(n.batches) != 3 {
		t.Fatalf("%v %v", n.names, n.offsets)
	}
	if _, err := n.Append(2, topics("x"), true); !errors.As(err, new(*NotLeaderError)) {
		t.Fatal(err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	n = open(t, disk, nil)
	n.poll()
	if !slices.Equal(n.names, []string{"a", "b", "c"}) || n.leaders[len(n.leaders)-1] != (kraft.LeaderAndEpoch{ID: 1, Epoch: 2}) {
		t.Fatalf("%v %v", n.names, n.leaders)
	}
	q, ok := n.Quorum()
	if !ok || q.Leader.Epoch != 2 || len(q.Voters) != 1 || q.Voters[0].LogEnd != 5 {
		t.Fatalf("%+v", q)
	}
	state, err := vfs.ReadFile(disk, "meta/__cluster_metadata-0/quorum-state")
	if want := `{"clusterId":"","leaderId":1,"leaderEpoch":2,"votedId":-1,"appliedOffset":0,"currentVoters":[{"voterId":1}],"data_version":0}`; err != nil || string(state) != want {
		t.Fatalf("%s %v", state, err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Append(2, topics("x"), true); err == nil {
		t.Fatal("appended to a closed log")
	}
}

func TestBatchLimit(t *testing.T) {
	n := open(t, newDisk(t), func(o *Options) { o.Limits.MaxBatchBytes = 300 })
	n.poll()
	var names []string
	for i := range 20 {
		names = append(names, fmt.Sprint("topic-", i))
	}
	var large *TooLargeError
	if _, err := n.Append(1, topics(names...), true); !errors.As(err, &large) || large.Limit != 300 {
		t.Fatal(err)
	}
	if _, err := n.Append(1, topics(strings.Repeat("x", 400)), false); !errors.As(err, &large) {
		t.Fatal(err)
	}
	if n.LogEnd() != 1 {
		t.Fatal("a refused append wrote something")
	}
	if last, err := n.Append(1, topics(names...), false); err != nil || last != 20 {
		t.Fatal(last, err)
	}
	n.poll()
	if !slices.Equal(n.names, names) || len(n.batches) < 4 {
		t.Fatalf("%d batches, %v", len(n.batches), n.names)
	}
	for _, b := range n.batches {
		if b.Bytes > 300 {
			t.Errorf("batch of %d bytes", b.Bytes)
		}
	}
}

// TestPowerCut cuts the power before every single operation on the disk.
func TestPowerCut(t *testing.T) {
	disk := newDisk(t)
	type cut struct {
		disk  *memfs.FS
		names []string // committed at that moment
		epoch int32    // told to others at that moment
	}
	var cuts []cut
	var n *testNode
	dice := rng.New(7)
	fsys := errfs.Wrap(disk, errfs.Rule{Before: func() {
		c := cut{disk: disk.Crash(dice)}
		if n != nil {
			c.names, c.epoch = slices.Clone(n.names), n.Leader().Epoch
		}
		cuts = append(cuts, c)
	}})
	for round := range 2 {
		n = nil
		n = open(t, fsys, nil)
		n.poll()
		for i := range 4 {
			n.append(n.Leader().Epoch, fmt.Sprint(round, ".", i))
			if i%2 == 1 {
				n.poll()
			}
		}
		b := n.batches[len(n.batches)-1]
		if err := n.WriteSnapshot(b.Last, b.Epoch, b.TimestampMs, slices.Values(topics(n.names...))); err != nil {
			t.Fatal(err)
		}
		n.append(n.Leader().Epoch, fmt.Sprint(round, ".end"))
		n.poll()
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d cuts", len(cuts))
	for i, c := range cuts {
		if err := c.disk.MkdirAll("meta", 0o755); err != nil {
			t.Fatal(err)
		}
		m := open(t, c.disk, nil)
		if m.poll(); m.Leader().ID != 1 || m.Leader().Epoch <= c.epoch {
			t.Fatalf("cut %d: leader %+v, before the cut epoch %d", i, m.Leader(), c.epoch)
		}
		if len(m.names) < len(c.names) || !slices.Equal(m.names[:len(c.names)], c.names) {
			t.Fatalf("cut %d: committed %v, found %v", i, c.names, m.names)
		}
		m.append(m.Leader().Epoch, "after")
		if m.poll(); m.names[len(m.names)-1] != "after" {
			t.Fatalf("cut %d: %v", i, m.names)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDiskFaults(t *testing.T) {
	boom := errors.New("boom")
	for _, rule := range []errfs.Rule{
		{Op: errfs.Sync, Path: "*.log", Skip: 2, Err: boom},
		{Op: errfs.Sync, Path: "quorum-state.tmp", Err: boom},
		{Op: errfs.Write, Path: "*.log", Skip: 2, Err: boom},
	} {
		disk := newDisk(t)
		n := open(t, errfs.Wrap(disk, rule), nil)
		var err error
		for i := 0; i < 10 && err == nil; i++ {
			if _, err = n.Poll(); err == nil && n.Leader().ID == 1 {
				_, err = n.Append(1, topics("a"), true)
			}
		}
		if !errors.Is(err, boom) {
			t.Errorf("%s of %s: %v", rule.Op, rule.Path, err)
		}
		if rule.Path == "quorum-state.tmp" && (n.leaders != nil || n.LogEnd() > 0 && n.Leader().ID == 1 && len(n.names) > 0) {
			t.Errorf("led without a durable quorum-state: %v", n.leaders)
		}
	}
}

func TestListenerErrorIsFatal(t *testing.T) {
	n := open(t, newDisk(t), nil)
	n.fail = errors.New("no")
	if _, err := n.Poll(); !errors.Is(err, n.fail) {
		t.Fatal(err)
	}
	if _, err := n.Append(1, topics("x"), true); !errors.Is(err, n.fail) {
		t.Fatal(err)
	}
}

func TestSnapshotsAndRetention(t *testing.T) {
	disk := newDisk(t)
	limits := func(o *Options) { o.Limits.SegmentBytes, o.Limits.RetentionBytes = 4096, 5000 }
	n := open(t, disk, limits)
	n.poll()
	for i := range 60 {
		n.append(1, fmt.Sprint("t", i), strings.Repeat("x", 200))
		if n.poll(); i%20 == 19 {
			b := n.batches[len(n.batches)-1]
			if err := n.WriteSnapshot(b.Last, b.Epoch, b.TimestampMs, slices.Values(topics("only", fmt.Sprint(i)))); err != nil {
				t.Fatal(err)
			}
			if err := n.WriteSnapshot(b.Last, b.Epoch, b.TimestampMs, slices.Values(topics("again"))); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := n.WriteSnapshot(500, 1, 0, slices.Values(topics())); err == nil {
		t.Fatal("snapshot of what is not committed")
	}
	want := []string{"00000000000000000041-0000000001.checkpoint", "00000000000000000081-0000000001.checkpoint", "00000000000000000121-0000000001.checkpoint"}
	if got := list(t, disk, ".checkpoint"); !slices.Equal(got, want) {
		t.Fatal(got)
	}
	n.clock.Advance(2 * time.Minute)
	n.poll()
	if got := list(t, disk, ".checkpoint"); !slices.Equal(got, want[2:]) {
		t.Fatal(got)
	}
	if got := list(t, disk, ".deleted"); len(got) < 3 {
		t.Fatal(got)
	}
	n.clock.Advance(2 * time.Minute)
	n.poll()
	n.clock.Advance(2 * time.Minute)
	n.poll()
	if got := list(t, disk, ".deleted"); len(got) != 0 {
		t.Fatal(got)
	}
	if n.store.LogStart() != 121 {
		t.Fatalf("log start %d", n.store.LogStart())
	}
	n.append(1, "tail")
	n.poll()
	// A reader below the log's start is sent to the snapshot.
	n.Request(9, kraft.FetchRequest{Replica: kraft.Replica{ID: 9}, Epoch: 1, Offset: 3, LastEpoch: 1, HighWatermark: -1}, func(r kraft.ResponseBody, _ []vfs.Region) {
		if f := r.(kraft.FetchResponse); f.Snapshot == nil || f.Snapshot.Offset != 121 {
			t.Errorf("%+v", f)
		}
	})
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	n = open(t, disk, limits)
	n.poll()
	if !slices.Equal(n.loaded, []kraft.Position{{Offset: 121, Epoch: 1}}) || !slices.Equal(n.names, []string{"only", "59", "tail"}) {
		t.Fatalf("%v %v", n.loaded, n.names)
	}
}

func list(t *testing.T, fsys vfs.FS, suffix string) []string {
	t.Helper()
	es, err := fsys.ReadDir("meta/" + PartitionDir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range es {
		if strings.HasSuffix(e.Name(), suffix) {
			out = append(out, e.Name())
		}
	}
	return out
}

func TestDynamicVoters(t *testing.T) {
	disk := newDisk(t)
	self := kraft.Replica{ID: 1, Dir: uuid.UUID{0: 7, 15: 1}}
	set, err := kraft.NewVoterSet([]kraft.Voter{{Replica: self, MaxVersion: 1, Endpoints: []kraft.Endpoint{{Name: "CONTROLLER", Host: "localhost", Port: 9093}}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := WriteVoters(disk, "meta", set, 1_800_000_000_000); err != nil {
		t.Fatal(err)
	}
	if err := WriteBootstrap(disk, "meta", topics("boot"), 1_800_000_000_000); err != nil {
		t.Fatal(err)
	}
	dynamic := func(o *Options) { o.Voters = nil }
	n := open(t, disk, dynamic)
	n.poll()
	if boot, err := n.Bootstrap(); err != nil || len(boot) != 1 {
		t.Fatal(boot, err)
	}
	if n.HighWatermark() != 3 || len(n.batches) != 1 {
		t.Fatalf("high watermark %d, %+v", n.HighWatermark(), n.batches)
	}
	n.append(1, "a")
	n.poll()
	b := n.batches[len(n.batches)-1]
	if err := n.WriteSnapshot(b.Last, b.Epoch, b.TimestampMs, slices.Values(topics("a"))); err != nil {
		t.Fatal(err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	state, err := vfs.ReadFile(disk, "meta/__cluster_metadata-0/quorum-state")
	if want := `{"leaderId":1,"leaderEpoch":1,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}`; err != nil || string(state) != want {
		t.Fatalf("%s %v", state, err)
	}
	n = open(t, disk, dynamic)
	n.poll()
	voters, version := n.Voters()
	if v, ok := voters.Get(1); version != 1 || !ok || v.Dir != self.Dir || v.Endpoints[0].Port != 9093 || n.Leader().Epoch != 2 {
		t.Fatalf("%+v %d %+v", voters, version, n.Leader())
	}
	// Another disk under the same id is no voter: it looks for a leader and never leads.
	n = open(t, disk, func(o *Options) { o.Voters, o.Self.Dir = nil, uuid.UUID{15: 9} })
	for range 10 {
		n.poll()
		n.clock.Advance(time.Second)
	}
	if n.Leader().ID == 1 {
		t.Fatal("a stranger's disk leads")
	}
}

func TestLogWithoutItsSnapshot(t *testing.T) {
	disk := newDisk(t)
	limits := func(o *Options) { o.Limits.SegmentBytes, o.Limits.RetentionBytes = 4096, 1 }
	n := open(t, disk, limits)
	n.poll()
	for i := range 40 {
		n.append(1, strings.Repeat("x", 200))
		if n.poll(); i%19 == 18 {
			b := n.batches[len(n.batches)-1]
			if err := n.WriteSnapshot(b.Last, b.Epoch, b.TimestampMs, slices.Values(topics("s"))); err != nil {
				t.Fatal(err)
			}
		}
	}
	n.clock.Advance(2 * time.Minute)
	n.poll()
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range list(t, disk, ".checkpoint") {
		if err := disk.Remove(filepath.Join("meta", PartitionDir, name)); err != nil {
			t.Fatal(err)
		}
	}
	o := options(disk, n.clock)
	limits(&o)
	if _, err := Open(o); err == nil || !strings.Contains(err.Error(), "no snapshot of what came before") {
		t.Fatal(err)
	}
}

func TestBrokenSnapshot(t *testing.T) {
	disk := newDisk(t)
	if err := WriteBootstrap(disk, "meta", topics("a", "b"), 5); err != nil {
		t.Fatal(err)
	}
	name := "meta/" + BootstrapName
	whole, err := vfs.ReadFile(disk, name)
	if err != nil {
		t.Fatal(err)
	}
	for cut := range len(whole) {
		if err := vfs.WriteFileAtomic(disk, name, whole[:cut]); err != nil {
			t.Fatal(err)
		}
		if recs, err := ReadBootstrap(disk, "meta"); err == nil {
			t.Fatalf("cut at %d of %d: read %d records", cut, len(whole), len(recs))
		}
	}
	if err := disk.Remove(name); err != nil {
		t.Fatal(err)
	}
	if recs, err := ReadBootstrap(disk, "meta"); recs != nil || err != nil {
		t.Fatal(recs, err)
	}
}

func FuzzSnapshotFile(f *testing.F) {
	disk := memfs.New()
	set, _ := kraft.NewVoterSet([]kraft.Voter{{Replica: kraft.Replica{ID: 1, Dir: uuid.UUID{3}}, Endpoints: []kraft.Endpoint{{Name: "C", Host: "h", Port: 1}}}})
	if err := errors.Join(writeFile(disk, "x.checkpoint", Content{Version: 1, Voters: &set, Records: slices.Values(topics("a", "b"))}, 5, 200)); err != nil {
		f.Fatal(err)
	}
	seed, err := vfs.ReadFile(disk, "x.checkpoint")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add(seed[:100])
	f.Fuzz(func(t *testing.T, raw []byte) {
		disk := memfs.New()
		w, err := disk.Open("f", os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.WriteAt(raw, 0); err != nil && err != io.EOF {
			t.Fatal(err)
		}
		n := 0
		if _, err := readFile(disk, "f", 0, func(records.Versioned) bool { n++; return true }); err == nil && n > len(raw) {
			t.Fatalf("%d records in %d bytes", n, len(raw))
		}
	})
}

// sends collects what a node sends.
type sends []kraft.Send

func (s *sends) Send(k kraft.Send) { *s = append(*s, k) }

// TestBadLeader: what a leader sends is checked before it is written.
func TestBadLeader(t *testing.T) {
	batchOf := func(base int64, epoch int32, names ...string) batch.Batch {
		b := newBuilder(base, epoch, false)
		for _, r := range topics(names...) {
			b.Append(5, nil, records.AppendMetadata(nil, r), nil)
		}
		return b.Build()
	}
	broken := batchOf(2, 3, "broken")
	broken[len(broken)-1] ^= 1
	good := batchOf(0, 2, "a", "b")
	for name, c := range map[string]struct {
		raw []byte
		end int64
	}{
		"good":            {slices.Concat(good, batchOf(2, 3, "c")), 3},
		"wrong CRC":       {slices.Concat(good, broken), 2},
		"cut":             {slices.Concat(good, batchOf(2, 3, "c")[:70]), 2},
		"gap":             {slices.Concat(good, batchOf(4, 3, "c")), 2},
		"epoch goes back": {slices.Concat(good, batchOf(2, 1, "c")), 2},
		"future epoch":    {slices.Concat(good, batchOf(2, 4, "c")), 2},
		"rubbish":         {[]byte("rubbish that is long enough to be a batch header, but is none at all"), 0},
	} {
		t.Run(name, func(t *testing.T) {
			var out sends
			n := open(t, newDisk(t), func(o *Options) {
				o.Voters, o.Transport = append(o.Voters, kraft.Voter{Replica: kraft.Replica{ID: 2}}), &out
			})
			n.poll()
			n.Request(2, kraft.BeginRequest{Leader: kraft.LeaderAndEpoch{ID: 2, Epoch: 3}, Voter: kraft.Replica{ID: 1}}, func(kraft.ResponseBody, []vfs.Region) {})
			n.poll()
			fetch := out[len(out)-1]
			n.Response(kraft.Response{From: 2, ID: fetch.ID, Body: kraft.FetchResponse{Head: kraft.Head{Leader: kraft.LeaderAndEpoch{ID: 2, Epoch: 3}}, HighWatermark: 1 << 40, Records: c.raw}})
			n.clock.Advance(time.Second)
			n.poll()
			if n.LogEnd() != c.end || n.HighWatermark() != c.end || len(n.names) != int(c.end) {
				t.Fatalf("log end %d, high watermark %d, %v; want %d", n.LogEnd(), n.HighWatermark(), n.names, c.end)
			}
			if f, ok := out[len(out)-1].Body.(kraft.FetchRequest); !ok || f.Offset != c.end || out[len(out)-1].ID == fetch.ID {
				t.Fatalf("next request %+v", out[len(out)-1])
			}
		})
	}
}

func TestFileNames(t *testing.T) {
	for name, want := range map[string]bool{
		"00000000000000000041-0000000001.checkpoint": true, "bootstrap.checkpoint": false, "00000000000000000041-0000000001.checkpoint.part": false,
		"00000000000000000041-000000000x.checkpoint": false, "leader-epoch-checkpoint": false, "99999999999999999999-0000000001.checkpoint": false,
		"+0000000000000000041-0000000001.checkpoint": false,
	} {
		id, ok := parseFileName(name)
		if ok != want || ok && fileName(id) != name {
			t.Errorf("%s: %v %v", name, id, ok)
		}
	}
}
