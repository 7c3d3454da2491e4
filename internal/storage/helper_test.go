package storage

import (
	"fmt"
	"log/slog"
	"math"
	"testing"
	"time"

	"weir/internal/batch"
	"weir/internal/clock"
	"weir/internal/config"
	"weir/internal/rng"
	"weir/internal/storage/producer"
	"weir/internal/vfs"
	"weir/internal/vfs/memfs"
)

const testDir = "/data/t-0"

// start is when every test begins.
var start = time.UnixMilli(1_700_000_000_000)

func topicConfig() *config.Topic {
	return &config.Topic{
		SegmentBytes: 1 << 30, SegmentMs: 7 * 24 * 3600_000, RetentionMs: -1, RetentionBytes: -1,
		IndexIntervalBytes: 4096, SegmentIndexBytes: 10 << 20, FlushMessages: math.MaxInt64, FlushMs: math.MaxInt64,
		CleanupDelete: true, MaxMessageBytes: 1 << 20, FileDeleteDelayMs: 60_000,
	}
}

// env is a log on a file system, and what opening it again takes.
type env struct {
	t     testing.TB
	fs    vfs.FS
	clock *clock.Manual
	cfg   *config.Topic
	log   *Log
	point int64 // what the recovery point checkpoint says
	start int64 // what the log start checkpoint says
	clean bool
}

func newEnv(t testing.TB, change func(*config.Topic)) *env {
	fs := memfs.New()
	e := &env{t: t, fs: fs, clock: clock.NewManual(start), cfg: topicConfig()}
	fs.SetNow(e.clock.Now)
	if err := fs.MkdirAll("/data", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := fs.SyncDir("/"); err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(e.cfg)
	}
	e.open()
	return e
}

func (e *env) options() Options {
	return Options{
		FS: e.fs, Dir: testDir, Topic: "t", Config: e.cfg, RecoveryPoint: e.point, LogStart: e.start, HadCleanShutdown: e.clean,
		Clock: e.clock, Rand: rng.New(1), Logger: slog.New(slog.DiscardHandler),
		Lowered: func(p int64) error { e.point = min(e.point, p); return nil },
	}
}

func (e *env) open() {
	e.t.Helper()
	l, err := Open(e.options())
	if err != nil {
		e.t.Fatalf("open: %v", err)
	}
	e.log = l
}

// checkpoint does what the owner of the log directory does once in a while.
func (e *env) checkpoint() { e.point, e.start = e.log.RecoveryPoint(), e.log.LogStart() }

func (e *env) reopen(clean bool) {
	e.t.Helper()
	if clean {
		if err := e.log.Close(); err != nil {
			e.t.Fatalf("close: %v", err)
		}
		e.checkpoint()
	} else {
		e.log.Abandon()
	}
	e.clean = clean
	e.open()
}

// spec describes one batch.
type spec struct {
	n       int // records, 1 by default
	ts      int64
	id      int64 // producer id + 1; 0 is none
	epoch   int16
	seq     int32
	txn     bool
	size    int // of each value
	at      int64
	leader  int32
	control bool
}

func build(s spec) []byte {
	o := batch.Options{BaseOffset: s.at, LeaderEpoch: s.leader, ProducerID: s.id - 1, ProducerEpoch: s.epoch, BaseSequence: s.seq, Transactional: s.txn, Control: s.control}
	if s.id == 0 {
		o.ProducerEpoch, o.BaseSequence = batch.NoProducerEpoch, batch.NoSequence
	}
	b := batch.NewBuilder(o)
	ts := s.ts
	if ts == 0 {
		ts = start.UnixMilli()
	}
	for i := range max(s.n, 1) {
		b.Append(ts, nil, fmt.Appendf(nil, "%0*d", max(s.size, 1), i), nil)
	}
	return b.Build()
}

func marker(id int64, epoch int16, abort bool, coordinator int32) []byte {
	b := batch.NewBuilder(batch.Options{ProducerID: id - 1, ProducerEpoch: epoch, BaseSequence: batch.NoSequence, Transactional: true, Control: true})
	kind := byte(1)
	if abort {
		kind = 0
	}
	b.Append(start.UnixMilli(), []byte{0, 0, 0, kind}, []byte{0, 0, byte(coordinator >> 24), byte(coordinator >> 16), byte(coordinator >> 8), byte(coordinator)}, nil)
	return b.Build()
}

func (e *env) append(s spec) Appended {
	e.t.Helper()
	r, err := e.tryAppend(s)
	if err != nil {
		e.t.Fatalf("append %+v: %v", s, err)
	}
	return r
}

func (e *env) tryAppend(s spec) (Appended, error) {
	return e.log.Append(build(s), Append{LeaderEpoch: s.leader, Assign: true, Origin: producer.OriginClient})
}

// offsets reads all that the log has, checks that it is whole, and returns the
// offsets of all records.
func (e *env) offsets() []int64 {
	e.t.Helper()
	return readOffsets(e.t, e.log, e.log.LogStart())
}

func readOffsets(t testing.TB, l *Log, from int64) []int64 {
	t.Helper()
	var out []int64
	for at := from; at < l.LogEnd(); {
		r, err := l.Read(at, 1<<20, l.LogEnd(), true)
		if err != nil {
			t.Fatalf("read at %d: %v", at, err)
		}
		if r.Size == 0 {
			break
		}
		data, err := r.Regions[0].AppendTo(nil)
		r.Release()
		if err != nil {
			t.Fatalf("read at %d: %v", at, err)
		}
		for len(data) > 0 {
			b, rest, err := batch.NextEntry(data)
			if err == batch.ErrShort {
				break
			}
			if err != nil || !b.CheckCRC() {
				t.Fatalf("batch at %d is broken: %v", at, err)
			}
			for rec, err := range b.Records(nil) {
				if err != nil {
					t.Fatal(err)
				}
				if rec.Offset >= from {
					out = append(out, rec.Offset)
				}
			}
			at, data = b.LastOffset()+1, rest
		}
	}
	return out
}

// noTimers is the part of a clock.Clock that a log does not use.
type noTimers struct{}

func (noTimers) AfterFunc(time.Duration, func()) clock.Timer { panic("a log starts no timer") }
