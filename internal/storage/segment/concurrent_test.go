package segment

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"weir/internal/batch"
	"weir/internal/rng"
	"weir/internal/vfs/errfs"
)

// A reader that holds an old view of an index must not see it change.
func TestOldViews(t *testing.T) {
	f := newFS(t)
	s := create(t, options(f, 0))
	v := &view{last: offsetEntry.none(0)}
	for i := range int64(10) {
		v = s.offsets.add(v, pair{10 * (i + 1), 100 * (i + 1)})
	}
	old := s.offsets.view.Load()
	must(t, s.offsets.keep(old, 4))
	for i := range int64(6) {
		s.offsets.add(s.offsets.view.Load(), pair{1000 + i, 1000 + i})
	}
	for i := range 10 {
		if p, err := s.offsets.get(old, i); err != nil || p != (pair{10 * int64(i+1), 100 * int64(i+1)}) {
			t.Errorf("entry %d of the old view is %v, %v", i, p, err)
		}
	}
	now := s.offsets.view.Load()
	if p, err := s.offsets.get(now, 4); err != nil || p != (pair{1000, 1000}) || now.entries(offsetEntry) != 10 {
		t.Errorf("entry 4 of the new view is %v, %v", p, err)
	}
	// In the file too: entries 0 to 9 are written, 3 are kept.
	must(t, s.offsets.spill(0))
	must(t, s.offsets.keep(s.offsets.view.Load(), 3))
	if got := len(file(t, f, 0, ExtIndex)); got != 24 || s.offsets.view.Load().last != (pair{30, 300}) {
		t.Errorf("%d bytes of index, last entry %v", got, s.offsets.view.Load().last)
	}
	must(t, s.offsets.keep(s.offsets.view.Load(), 0))
	if s.offsets.view.Load().last != (pair{0, 0}) {
		t.Errorf("the last entry of nothing is %v", s.offsets.view.Load().last)
	}
}

// Readers beside an appender, who also flushes and closes files, find what was there when they began.
func TestReadersBesideAppender(t *testing.T) {
	f := newFS(t)
	o := options(f, 0)
	o.IndexIntervalBytes = 0
	s := create(t, o)
	const batches = 3000
	var next atomic.Int64
	var wg sync.WaitGroup
	for i := range 3 {
		wg.Go(func() {
			r := rng.New(uint64(i))
			var buf batch.Buffers
			for {
				end := next.Load()
				if end == batches {
					return
				}
				if end == 0 {
					continue
				}
				offset := r.Int64N(end)
				res, ok, err := s.Read(offset, 400, 1<<40, true)
				if err != nil || !ok || res.First.BaseOffset != offset {
					t.Errorf("Read(%d) of %d = %+v %v %v", offset, end, res, ok, err)
					return
				}
				b, err := res.Region.AppendTo(nil)
				res.Region.Release()
				e, _, nerr := batch.NextEntry(b)
				if err != nil || nerr != nil || !e.CheckCRC() || e.LastOffset() != offset {
					t.Errorf("Read(%d) gave other bytes: %v %v", offset, err, nerr)
					return
				}
				if got, ok, err := s.FindTimestamp(offset*2, 0, &buf); err != nil || !ok || got.Offset != offset {
					t.Errorf("FindTimestamp(%d) = %+v %v %v", offset*2, got, ok, err)
					return
				}
				if l, err := s.LargestTimestamp(); err != nil || l.Offset < end-1 {
					t.Errorf("LargestTimestamp = %v, %v after %d", l, err, end)
					return
				}
			}
		})
	}
	wg.Go(func() {
		for next.Load() < batches {
			if err := errors.Join(s.CloseHandles(), s.Flush()); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for n := range int64(batches) {
		put(t, s, records(n, n*2))
		next.Store(n + 1)
	}
	wg.Wait()
	must(t, s.Close())
	must(t, open(t, o).SanityCheck(true))
}

// A truncation beside readers: below the cut everything is found all the time.
func TestReadersBesideTruncation(t *testing.T) {
	f := newFS(t)
	o := options(f, 0)
	o.IndexIntervalBytes = 0
	s := create(t, o)
	const stable = 600
	for n := range int64(stable) {
		put(t, s, records(n, n))
	}
	var done atomic.Bool
	var wg sync.WaitGroup
	for i := range 2 {
		wg.Go(func() {
			r := rng.New(uint64(i))
			for !done.Load() {
				offset := r.Int64N(stable)
				p, ok, err := s.Position(offset)
				if err != nil || !ok || p.BaseOffset != offset {
					t.Errorf("Position(%d) = %+v %v %v", offset, p, ok, err)
					return
				}
				// Above the cut anything may be found, but no damage, apart from bytes that go while being read.
				if p, ok, err := s.Position(stable + 300); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) || ok && p.LastOffset < stable+300 {
					t.Errorf("Position(%d) = %+v %v %v", stable+300, p, ok, err)
					return
				}
			}
		})
	}
	for range 40 {
		for n := range int64(700) {
			put(t, s, records(stable+n, n))
		}
		_, err := s.TruncateTo(stable)
		must(t, err)
	}
	done.Store(true)
	wg.Wait()
}

// A sync that fails leaves the segment dirty, and the next Flush tries again.
func TestFlushFails(t *testing.T) {
	for _, path := range []string{"*.log", "*.index", "*.timeindex"} {
		mem := newFS(t)
		f := errfs.Wrap(mem)
		s := create(t, options(f, 0))
		all := slices.Concat(fill(t, s, 20)...)
		f.Set(errfs.Rule{Op: errfs.Sync, Path: path, Count: 1, Err: syscall.EIO})
		if err := s.Flush(); !errors.Is(err, syscall.EIO) || !s.Dirty() {
			t.Errorf("%s: Flush = %v, dirty %v", path, err, s.Dirty())
		}
		must(t, s.Flush())
		must(t, f.SyncDir(dir))
		dead := mem.Crash(nil)
		if got := file(t, dead, 0, ExtLog); !bytes.Equal(got, all) {
			t.Errorf("%s: %d bytes are sure, want %d", path, len(got), len(all))
		}
		if len(file(t, dead, 0, ExtIndex)) == 0 || len(file(t, dead, 0, ExtTimeIndex)) == 0 {
			t.Errorf("%s: an index is not sure", path)
		}
	}
}

// Flush must not return while another Flush is still syncing what was appended before.
func TestFlushWaitsForFlush(t *testing.T) {
	f := errfs.Wrap(newFS(t))
	s := create(t, options(f, 0))
	fill(t, s, 3)
	syncing, goOn := make(chan struct{}), make(chan struct{})
	f.Set(errfs.Rule{Op: errfs.Sync, Path: "*.log", Count: 1, Before: func() { close(syncing); <-goOn }})
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- s.Flush() }()
	<-syncing
	// Appending goes on beside a sync.
	put(t, s, records(9, 1))
	go func() { second <- s.Flush() }()
	// It has every chance to return, and must not.
	for range 2000 {
		runtime.Gosched()
		if len(second) > 0 {
			t.Fatal("the second Flush did not wait")
		}
	}
	close(goOn)
	must(t, <-first)
	must(t, <-second)
	if s.Dirty() {
		t.Error("still dirty")
	}
}

// A truncation in the middle of a lookup: whatever was read before is looked at again.
func TestTruncationWithinLookup(t *testing.T) {
	for _, path := range []string{"*.log", "*.index"} {
		for nth := range 3 {
			f := errfs.Wrap(newFS(t))
			o := options(f, 0)
			o.IndexIntervalBytes = 0
			s := create(t, o)
			fill(t, s, 1200)
			must(t, s.Flush())
			truncated := false
			f.Set(errfs.Rule{Op: errfs.Read, Path: path, Skip: nth, Count: 1, Before: func() {
				f.Set()
				truncated = true
				if _, err := s.TruncateTo(90); err != nil {
					t.Error(err)
				}
			}})
			p, ok, err := s.Position(3300)
			if err != nil || ok && truncated && p.LastOffset < 3300 {
				t.Errorf("%s read %d: Position = %+v %v %v", path, nth, p, ok, err)
			}
			if !truncated && nth == 0 {
				t.Errorf("%s was not read", path)
			}
			if p, ok, err := s.Position(80); err != nil || !ok || p.BaseOffset != 78 {
				t.Errorf("%s: Position(80) = %+v %v %v", path, p, ok, err)
			}
		}
	}
}
