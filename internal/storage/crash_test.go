package storage

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"weir/internal/batch"
	"weir/internal/config"
	"weir/internal/rng"
	"weir/internal/storage/producer"
	"weir/internal/vfs"
	"weir/internal/vfs/memfs"
)

// opFS calls before each operation that changes the disk.
type opFS struct {
	vfs.FS
	before func()
}

func (f *opFS) Open(name string, flag int, perm os.FileMode) (vfs.File, error) {
	if flag&(os.O_CREATE|os.O_TRUNC) != 0 {
		f.before()
	}
	h, err := f.FS.Open(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &opFile{h, f}, nil
}
func (f *opFS) Remove(name string) error               { f.before(); return f.FS.Remove(name) }
func (f *opFS) Rename(a, b string) error               { f.before(); return f.FS.Rename(a, b) }
func (f *opFS) SyncDir(name string) error              { f.before(); return f.FS.SyncDir(name) }
func (f *opFS) MkdirAll(n string, p os.FileMode) error { f.before(); return f.FS.MkdirAll(n, p) }

type opFile struct {
	vfs.File
	fs *opFS
}

func (f *opFile) WriteAt(p []byte, off int64) (int, error) {
	f.fs.before()
	return f.File.WriteAt(p, off)
}
func (f *opFile) Truncate(n int64) error { f.fs.before(); return f.File.Truncate(n) }
func (f *opFile) Sync() error            { f.fs.before(); return f.File.Sync() }

// model is what the log must and may hold. Values name the append that wrote
// them, so a record at a wrong offset or of a lost branch is noticed.
type model struct {
	now     []string // by offset, from 0; below start they may be gone
	before  []string // the content before the truncation under way
	start   int64
	durable int64 // acked under flush.messages=1, or below the recovery point
	point   int64 // recovery point checkpoint
	doing   string
}

func (m *model) clone() model {
	c := *m
	c.now = append([]string(nil), m.now...)
	c.before = append([]string(nil), m.before...)
	return c
}

// run is a life of a log: appends of three producers, rolls, ticks,
// checkpoints, a truncation, retention, a clean stop. It returns at the first
// error.
type run struct {
	fs       vfs.FS
	cfg      *config.Topic
	m        model
	log      *Log
	clean    bool
	appendNo int
	seqs     [3]int32
}

func (r *run) open() error {
	o := Options{
		FS: r.fs, Dir: testDir, Topic: "t", Config: r.cfg, RecoveryPoint: r.m.point, HadCleanShutdown: r.clean, LogStart: r.m.start,
		Clock: fixedClock{}, Lowered: func(p int64) error { r.m.point = min(r.m.point, p); return nil },
	}
	l, err := Open(o)
	r.log, r.clean = l, false
	return err
}

func (r *run) append() error {
	r.m.doing = "append"
	who := r.appendNo % 3
	n := 1 + r.appendNo%3
	o := batch.NewOptions()
	o.ProducerID, o.ProducerEpoch, o.BaseSequence = int64(who), 0, r.seqs[who]
	b := batch.NewBuilder(o)
	var values []string
	for i := range n {
		values = append(values, fmt.Sprintf("append %d record %d", r.appendNo, i))
		b.Append(start.UnixMilli()+int64(r.appendNo), nil, []byte(values[i]), nil)
	}
	r.appendNo++
	r.seqs[who] += int32(n)
	r.m.now = append(r.m.now, values...) // may be there from now on
	a, err := r.log.Append(b.Build(), Append{Assign: true, LeaderEpoch: int32(r.appendNo / 10), Origin: producer.OriginClient})
	if err != nil {
		return err
	}
	if got := a.LastOffset + 1; got != int64(len(r.m.now)) {
		return fmt.Errorf("append ended at %d, want %d", got, len(r.m.now))
	}
	if r.cfg.FlushMessages == 1 {
		r.m.durable = a.LastOffset + 1
	}
	r.m.durable = max(r.m.durable, r.log.RecoveryPoint())
	return nil
}

func (r *run) truncate(to int64) error {
	r.m.doing = "truncate"
	r.m.before = append([]string(nil), r.m.now...)
	r.m.now = r.m.now[:to:to]
	r.m.durable = min(r.m.durable, to)
	if _, err := r.log.Truncate(to); err != nil {
		return err
	}
	r.m.before = nil
	// The producers whose records went start over in a new life of the test.
	for _, p := range r.log.ActiveProducers() {
		r.seqs[p.ProducerID] = p.LastSequence + 1
	}
	return nil
}

func (r *run) live() error {
	if err := r.open(); err != nil {
		return err
	}
	for i := range 36 {
		if err := r.append(); err != nil {
			return err
		}
		switch {
		case i%9 == 4:
			r.m.doing = "tick"
			if err := r.log.Tick(start.Add(time.Duration(i) * time.Hour)); err != nil {
				return err
			}
			r.m.durable = max(r.m.durable, r.log.RecoveryPoint())
			r.m.point = r.log.RecoveryPoint()
		case i == 15:
			at, err := r.log.Read(int64(len(r.m.now))-5, 100, r.log.LogEnd(), true) // the start of a batch
			if err != nil {
				return err
			}
			at.Release()
			if err := r.truncate(at.FirstBatchOffset); err != nil {
				return err
			}
		case i == 25:
			r.m.doing = "retention"
			r.log.SetHighWatermark(r.log.LogEnd())
			if _, err := r.log.SetLogStart(8); err != nil {
				return err
			}
			r.m.start = 8
			if _, err := r.log.Retain(start); err != nil {
				return err
			}
		case i == 20: // kill -9: nothing is lost, but much is not synced
			r.m.doing = "restart"
			r.log.Abandon()
			if err := r.open(); err != nil {
				return err
			}
		case i == 30:
			r.m.doing = "close"
			if err := r.log.Close(); err != nil {
				return err
			}
			r.m.durable, r.m.point = int64(len(r.m.now)), r.log.RecoveryPoint()
			r.m.doing, r.clean = "open", true
			if err := r.open(); err != nil {
				return err
			}
		}
	}
	return nil
}

// check holds the log after a power cut against the model.
func (m *model) check(l *Log) error {
	end := l.LogEnd()
	if end < m.durable {
		return fmt.Errorf("log ends at %d, but %d was durable", end, m.durable)
	}
	if most := max(len(m.now), len(m.before)); end > int64(most) {
		return fmt.Errorf("log ends at %d, but only %d were ever written", end, most)
	}
	next := l.LogStart()
	if next > max(m.start, 0) {
		return fmt.Errorf("log starts at %d, want at most %d", next, m.start)
	}
	for next < end {
		r, err := l.Read(next, 1<<20, end, true)
		if err != nil {
			return err
		}
		data, err := r.Regions[0].AppendTo(nil)
		r.Release()
		if err != nil {
			return err
		}
		for len(data) > 0 {
			b, rest, err := batch.Next(data)
			if err != nil || !b.CheckCRC() {
				return fmt.Errorf("broken batch at %d: %v", next, err)
			}
			for rec, err := range b.Records(nil) {
				if err != nil {
					return err
				}
				if rec.Offset < next {
					continue
				}
				if rec.Offset != next {
					return fmt.Errorf("offset %d follows %d", rec.Offset, next-1)
				}
				if v := string(rec.Value); !m.allows(next, v) {
					return fmt.Errorf("offset %d holds %q", next, v)
				}
				next++
			}
			data = rest
		}
	}
	return m.checkState(l)
}

func (m *model) allows(offset int64, v string) bool {
	return offset < int64(len(m.now)) && m.now[offset] == v || offset < int64(len(m.before)) && m.before[offset] == v
}

// checkState: epochs and producers are those of the records that are left.
func (m *model) checkState(l *Log) error {
	for _, e := range l.Epochs() {
		if e.StartOffset >= l.LogEnd() || e.StartOffset < l.LogStart() {
			return fmt.Errorf("epoch %+v is outside [%d, %d)", e, l.LogStart(), l.LogEnd())
		}
	}
	for _, p := range l.ActiveProducers() {
		// A repeat of the last batch of each producer must be known.
		e, _ := l.mu.producers.Lookup(p.ProducerID)
		if e.LastOffset() >= l.LogEnd() {
			return fmt.Errorf("producer %d reaches %d, the log %d", p.ProducerID, e.LastOffset(), l.LogEnd())
		}
	}
	return nil
}

type fixedClock struct{ noTimers }

func (fixedClock) Now() time.Time { return start }

func crashConfig(flush int64) *config.Topic {
	c := topicConfig()
	c.SegmentBytes, c.IndexIntervalBytes, c.FlushMessages = 700, 100, flush
	return c
}

var errCut = errors.New("power cut")

// ways is in how many ways the power is cut before each operation:
//
//	go test ./internal/storage -run PowerCut -args -ways 100
var ways = flag.Int64("ways", 3, "ways of losing unsynced data at each power cut")

// TestPowerCutAtEveryOperation loses power before each operation that changes
// the disk, in several ways, and opens what is left.
func TestPowerCutAtEveryOperation(t *testing.T) {
	for _, flush := range []int64{1, 1 << 40} {
		ops := lifeUntil(t, flush, 1<<40, nil)
		for at := range ops {
			for way := range *ways {
				var dice *rng.Source // none: nothing survives that was not synced
				if way > 0 {
					dice = rng.New(uint64(at*1000 + way))
				}
				lifeUntil(t, flush, at, dice)
				if t.Failed() {
					t.Fatalf("flush.messages %d, cut before operation %d, way %d", flush, at, way)
				}
			}
		}
	}
}

// cutAt runs f on a file system that loses power before operation at, and
// returns what is left then; nil when f ended before. n counts the operations.
func cutAt(mem *memfs.FS, at int64, dice *rng.Source, f func(vfs.FS) error) (left *memfs.FS, n int64, err error) {
	defer func() {
		if p := recover(); p != nil && p != errCut {
			panic(p)
		}
	}()
	err = f(&opFS{FS: mem, before: func() {
		if n == at {
			if dice == nil {
				left = mem.Crash(nil)
			} else {
				left = mem.Crash(dice)
			}
			panic(errCut)
		}
		n++
	}})
	return nil, n, err
}

// lifeUntil runs a life up to operation at, cuts the power there and checks
// what is left. It returns the number of operations.
func lifeUntil(t *testing.T, flush, at int64, dice *rng.Source) int64 {
	t.Helper()
	mem := memfs.New()
	if err := errors.Join(mem.MkdirAll("/data", 0o755), mem.SyncDir("/")); err != nil {
		t.Fatal(err)
	}
	r := &run{cfg: crashConfig(flush)}
	left, n, err := cutAt(mem, at, dice, func(fs vfs.FS) error {
		r.fs = fs
		return r.live()
	})
	if err != nil {
		t.Fatalf("life: %v", err)
	}
	if left == nil {
		return n
	}
	m := r.m.clone()
	if dice != nil { // the power may fail again while the log is recovered
		again, _, err := cutAt(left, dice.Int64N(12), dice, func(fs vfs.FS) error { return (&run{cfg: r.cfg, fs: fs, m: m}).open() })
		if err != nil {
			t.Fatalf("during %s: first open: %v\n%s", m.doing, err, listing(left))
		}
		if again != nil {
			left = again
		}
	}
	after := &run{cfg: r.cfg, fs: left, m: m}
	if err := after.open(); err != nil {
		t.Fatalf("during %s: open: %v\npoint %d, durable %d of %d\n%s", m.doing, err, m.point, m.durable, len(m.now), listing(left))
	}
	if err := m.check(after.log); err != nil {
		t.Fatalf("during %s: %v\n%s", m.doing, err, listing(left))
	}
	end := after.log.LogEnd()
	if _, err := after.log.Append(build(spec{leader: 99}), Append{Assign: true, LeaderEpoch: 99}); err != nil || after.log.LogEnd() != end+1 {
		t.Fatalf("during %s: append after it: %v", m.doing, err)
	}
	return n
}

func listing(fs vfs.FS) string {
	files, err := fs.ReadDir(testDir)
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	for _, f := range files {
		info, err := f.Info()
		if err != nil {
			return err.Error()
		}
		fmt.Fprintf(&b, "%s %d\n", f.Name(), info.Size())
	}
	return b.String()
}
