package storage

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"weir/internal/clock"
	"weir/internal/config"
	"weir/internal/storage/producer"
	"weir/internal/vfs"
	"weir/internal/vfs/errfs"
	"weir/internal/vfs/memfs"
)

// faulty puts an errfs before the env's file system.
func faulty(t *testing.T, change func(*config.Topic)) (*env, *errfs.FS) {
	e := newEnv(t, change)
	f := errfs.Wrap(e.fs)
	e.fs = f
	e.reopen(true)
	return e, f
}

func TestFullDisk(t *testing.T) {
	one := len(build(spec{id: 1}))
	for _, short := range []int{0, 1, one - 1} {
		e, f := faulty(t, func(c *config.Topic) { c.SegmentBytes = int32(3 * one) })
		for i := range int32(5) {
			e.append(spec{id: 1, seq: i})
		}
		f.Set(errfs.Rule{Op: errfs.Write, Err: syscall.ENOSPC, Short: short})
		for range 2 {
			_, err := e.tryAppend(spec{id: 1, seq: 5})
			var disk *DiskError
			if !errors.Is(err, ErrNoSpace) || !errors.As(err, &disk) || disk.Dir != testDir {
				t.Fatalf("append on a full disk: %v", err)
			}
		}
		if e.log.LogEnd() != 5 {
			t.Fatalf("log end %d", e.log.LogEnd())
		}
		same(t, "offsets on the full disk", e.offsets(), seq(0, 5))
		e.log.SetHighWatermark(5)
		if _, err := e.log.SetLogStart(3); err != nil {
			t.Fatal(err)
		}
		if n, err := e.log.Retain(start); err != nil || n != 1 {
			t.Fatalf("retention on a full disk: %d, %v", n, err)
		}
		if err := e.log.RunDeletes(start.Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		f.Set()
		if r := e.append(spec{id: 1, seq: 5}); r.FirstOffset != 5 || r.Duplicate {
			t.Fatalf("append with room again: %+v", r)
		}
		e.reopen(false)
		same(t, "offsets", e.offsets(), seq(3, 6))
	}
}

func TestOpenOnFullDisk(t *testing.T) {
	for _, clean := range []bool{true, false} {
		mem := memfs.New()
		e := &env{t: t, fs: mem, clock: clock.NewManual(start), cfg: topicConfig()}
		e.cfg.SegmentBytes, e.cfg.IndexIntervalBytes = 1000, 1
		if err := mem.MkdirAll("/data", 0o755); err != nil {
			t.Fatal(err)
		}
		e.open()
		for i := range int32(30) {
			e.append(spec{id: 1, seq: i})
		}
		if clean {
			if err := e.log.Close(); err != nil {
				t.Fatal(err)
			}
			e.checkpoint()
		} else {
			e.log.Abandon()
		}
		mem.SetCapacity(1) // less than is used
		e.clean = clean
		e.open()
		same(t, "offsets", e.offsets(), seq(0, 30))
		if _, err := e.tryAppend(spec{id: 1, seq: 30}); !errors.Is(err, ErrNoSpace) {
			t.Fatalf("append: %v", err)
		}
		if r, err := e.tryAppend(spec{id: 1, seq: 29}); err != nil || !r.Duplicate {
			t.Fatalf("repeat of the last batch: %+v, %v", r, err)
		}
	}
}

func TestFailedFlush(t *testing.T) {
	e, f := faulty(t, func(c *config.Topic) { c.FlushMessages = 1 })
	e.append(spec{})
	f.Set(errfs.Rule{Op: errfs.Sync, Path: "*.log", Err: syscall.EIO})
	var disk *DiskError
	if _, err := e.tryAppend(spec{}); !errors.As(err, &disk) || !errors.Is(err, syscall.EIO) || errors.Is(err, ErrNoSpace) {
		t.Fatalf("got %v", err)
	}
	if p := e.log.RecoveryPoint(); p != 1 {
		t.Fatalf("recovery point %d after a failed fsync", p)
	}
}

func TestFailedTruncationEndsTheLog(t *testing.T) {
	e, f := faulty(t, nil)
	e.append(spec{})
	e.append(spec{})
	f.Set(errfs.Rule{Op: errfs.Truncate, Path: "*.log", Err: syscall.EIO})
	if _, err := e.log.Truncate(1); !errors.Is(err, syscall.EIO) {
		t.Fatalf("got %v", err)
	}
	f.Set()
	if _, err := e.tryAppend(spec{}); !errors.Is(err, syscall.EIO) {
		t.Fatalf("append to a log whose content is unknown: %v", err)
	}
	if _, err := e.log.Read(0, 1, 1, true); !errors.Is(err, syscall.EIO) {
		t.Fatalf("read: %v", err)
	}
	e.log.Abandon()
	e.clean = false
	e.open()
	e.append(spec{})
}

// A cut that is not durable, or of which the checkpoint could not be told, is not to be appended to.
func TestTruncationThatIsNotDurableEndsTheLog(t *testing.T) {
	for _, op := range []errfs.Op{errfs.Sync, errfs.SyncDir, ""} {
		e, f := faulty(t, nil)
		e.append(spec{n: 3})
		e.append(spec{n: 3})
		if err := e.log.Flush(-1); err != nil {
			t.Fatal(err)
		}
		if op == "" {
			e.log.lowered = func(int64) error { return syscall.ENOSPC }
		} else {
			f.Set(errfs.Rule{Op: op, Err: syscall.EIO})
		}
		if _, err := e.log.Truncate(3); err == nil {
			t.Fatalf("%q: no error", op)
		}
		f.Set()
		var disk *DiskError
		if _, err := e.tryAppend(spec{}); !errors.As(err, &disk) || disk.Op != "truncate" {
			t.Errorf("%q: append after it: %v", op, err)
		}
	}
}

// What a flush is syncing may be deleted by retention meanwhile, without harm.
func TestDeletionDuringAFlush(t *testing.T) {
	e, f := faulty(t, func(c *config.Topic) { c.FileDeleteDelayMs = 0 })
	e.append(spec{n: 3})
	if err := e.log.Roll(); err != nil {
		t.Fatal(err)
	}
	e.append(spec{})
	e.log.SetHighWatermark(4)
	deleted := make(chan error, 1)
	f.Set(errfs.Rule{Op: errfs.Sync, Path: "*.log", Count: 1, Before: func() {
		if _, err := e.log.SetLogStart(3); err != nil {
			t.Error(err)
		}
		if n, err := e.log.Retain(start); n != 1 || err != nil {
			t.Error(n, err)
		}
		go func() { deleted <- e.log.RunDeletes(start) }()
		for i := 0; i < 1000 && len(deleted) == 0; i++ {
			runtime.Gosched()
		}
	}})
	if err := e.log.Flush(-1); err != nil {
		t.Error(err)
	}
	if err := <-deleted; err != nil {
		t.Error(err)
	}
	if e.log.RecoveryPoint() != 4 || len(e.log.PendingDeletes()) != 0 {
		t.Errorf("recovery point %d, %v", e.log.RecoveryPoint(), e.log.PendingDeletes())
	}
}

func TestTxnIndexFailureTakesTheMarkerBack(t *testing.T) {
	e, f := faulty(t, nil)
	abortOne(e, 0) // an earlier one of the same producer
	e.log.SetHighWatermark(2)
	g, err := e.log.StartVerification(0, 1, 0, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.log.Append(build(spec{id: 1, seq: 1, txn: true}), Append{Assign: true, Guard: g}); err != nil {
		t.Fatal(err)
	}
	f.Set(errfs.Rule{Op: errfs.Write, Path: "*.txnindex", Err: syscall.ENOSPC})
	end := Append{Assign: true, Origin: producer.OriginCoordinator}
	if _, err := e.log.Append(marker(1, 0, true, 0), end); !errors.Is(err, ErrNoSpace) {
		t.Fatalf("got %v", err)
	}
	e.append(spec{}) // makes the state of the transactions seen
	if o := e.log.Offsets(); o.LogEnd != 4 || o.FirstUnstable != 2 || o.LastStable != 2 {
		t.Fatalf("%+v", o)
	}
	f.Set()
	if r, err := e.log.Append(marker(1, 0, true, 0), end); err != nil || r.FirstOffset != 4 {
		t.Fatalf("%+v, %v", r, err)
	}
	if a, err := e.log.AbortedTransactions(0, 5); err != nil || len(a) != 2 {
		t.Fatalf("%+v, %v", a, err)
	}
}

func TestCorruptDataBelowTheRecoveryPoint(t *testing.T) {
	e := newEnv(t, nil)
	one := int64(len(build(spec{})))
	for range 4 {
		e.append(spec{})
	}
	if err := e.log.Flush(3); err != nil {
		t.Fatal(err)
	}
	e.checkpoint()
	e.point = 3
	e.log.Abandon()
	flip := func(pos int64) {
		f, err := e.fs.Open(testDir+"/00000000000000000000.log", 2, 0)
		if err != nil {
			t.Fatal(err)
		}
		var b [1]byte
		if _, err := f.ReadAt(b[:], pos); err != nil {
			t.Fatal(err)
		}
		b[0] ^= 0xff
		if _, err := f.WriteAt(b[:], pos); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	flip(2*one - 1)
	var corrupt *CorruptError
	if _, err := Open(e.options()); !errors.As(err, &corrupt) || corrupt.Offset != 1 || corrupt.File != "00000000000000000000.log" || corrupt.Dir != testDir {
		t.Fatalf("got %v", err)
	}
	flip(2*one - 1)
	flip(4*one - 1) // above the recovery point: a torn end
	e.open()
	same(t, "offsets", e.offsets(), seq(0, 3))
}

func TestBrokenEpochFileAndSnapshotAreMadeAnew(t *testing.T) {
	for _, c := range []struct{ file, content string }{{"leader-epoch-checkpoint", "0\nx\n"}, {"leader-epoch-checkpoint", ""}, {"00000000000000000006.snapshot", "rubbish"}} {
		e := newEnv(t, nil)
		for i := range int32(6) {
			e.append(spec{id: 1, seq: i, leader: i / 2})
		}
		if err := e.log.Close(); err != nil {
			t.Fatal(err)
		}
		e.checkpoint()
		if err := vfs.WriteFileAtomic(e.fs, testDir+"/"+c.file, []byte(c.content)); err != nil {
			t.Fatal(err)
		}
		e.open() // no clean-shutdown marker
		if got := e.log.Epochs(); len(got) != 3 || got[2].StartOffset != 4 {
			t.Errorf("%s: epochs %+v", c.file, got)
		}
		if r, err := e.tryAppend(spec{id: 1, seq: 3}); err != nil || !r.Duplicate || r.FirstOffset != 3 {
			t.Errorf("%s: repeat: %+v, %v", c.file, r, err)
		}
	}
}

// TestGroupCommit: appends that wait for one fsync share the next.
func TestGroupCommit(t *testing.T) {
	e, f := faulty(t, func(c *config.Topic) { c.FlushMessages = 1 })
	var syncs atomic.Int32
	first, entered := make(chan struct{}), make(chan struct{})
	f.Set(errfs.Rule{Op: errfs.Sync, Path: "*.log", Before: func() {
		if syncs.Add(1) == 1 {
			close(entered)
			<-first
		}
	}})
	const n = 20
	var wg sync.WaitGroup
	var mu sync.Mutex
	var got []int64
	for range n {
		wg.Go(func() {
			r, err := e.log.Append(build(spec{}), Append{Assign: true})
			if err != nil {
				t.Error(err)
			}
			if e.log.RecoveryPoint() <= r.LastOffset {
				t.Errorf("offset %d is acked, but only %d are fsynced", r.LastOffset, e.log.RecoveryPoint())
			}
			mu.Lock()
			got = append(got, r.FirstOffset)
			mu.Unlock()
		})
	}
	<-entered
	for e.log.LogEnd() < n {
		// Appends go on while the first one's fsync hangs; nothing else can
		// raise the log end, so this ends as soon as all have written.
		runtime.Gosched()
	}
	close(first)
	wg.Wait()
	slices.Sort(got)
	same(t, "offsets", got, seq(0, n))
	if s := syncs.Load(); s > 3 {
		t.Errorf("%d fsyncs for %d appends", s, n)
	}
}

// TestReadersAndWriters runs everything at once; with -race it shows what is not guarded.
func TestReadersAndWriters(t *testing.T) {
	e := newEnv(t, func(c *config.Topic) { c.SegmentBytes = 2000 })
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				o := e.log.Offsets()
				if o.LogStart > o.LastStable || o.LastStable > o.HighWatermark || o.HighWatermark > o.LogEnd {
					t.Errorf("%+v", o)
					return
				}
				r, err := e.log.Read(o.LogStart, 500, o.HighWatermark, true)
				var out *OutOfRangeError
				if err != nil && !errors.As(err, &out) {
					t.Error(err)
					return
				}
				for _, g := range r.Regions {
					if _, err := g.AppendTo(nil); err != nil {
						t.Error(err)
					}
				}
				r.Release()
			}
		})
	}
	for i := range int32(300) {
		e.append(spec{id: 1, seq: i})
		e.log.SetHighWatermark(e.log.LogEnd())
		switch i % 20 {
		case 5:
			if err := e.log.Tick(start); err != nil {
				t.Fatal(err)
			}
		case 10:
			if _, err := e.log.SetLogStart(int64(i) - 5); err != nil {
				t.Fatal(err)
			}
			if _, err := e.log.Retain(start); err != nil {
				t.Fatal(err)
			}
		case 15:
			if err := e.log.CloseIdle(); err != nil {
				t.Fatal(err)
			}
		}
	}
	close(stop)
	wg.Wait()
}
