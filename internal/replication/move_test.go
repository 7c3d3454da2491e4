package replication

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"weir/internal/batch"
	"weir/internal/checkpoint"
	"weir/internal/partition"
	"weir/internal/records"
	"weir/internal/storage"
	"weir/internal/uuid"
	"weir/internal/vfs/errfs"
)

// numbered appends a record whose value begins with its offset.
func numbered(r *partition.Replica, n int64, padding string) error {
	b := batch.NewBuilder(batch.NewOptions())
	b.Append(start.UnixMilli()+n, nil, fmt.Appendf(nil, "%d %s", n, padding), nil)
	a, err := r.AppendAsLeader(partition.AppendRequest{Records: b.Build(), Version: 9, Acks: partition.AcksAll})
	if err == nil && a.FirstOffset != n {
		err = fmt.Errorf("record %d got offset %d", n, a.FirstOffset)
	}
	return err
}

// readNumbered reads from an offset to the high watermark that it finds first, as a consumer does, and checks that
// nothing is missing.
func readNumbered(r *partition.Replica, from int64) error {
	end, err := r.Latest(-1, partition.ReadUncommitted)
	for at := from; at < end && err == nil; {
		var got partition.Read
		got, err = r.Read(partition.ReadRequest{Offset: at, MaxBytes: 200_000, MinOne: true, CurrentLeaderEpoch: 0, LastFetchedEpoch: -1})
		if err != nil {
			break
		}
		at, err = checkNumbered(got, at)
		got.Release()
	}
	return err
}

func checkNumbered(got partition.Read, at int64) (next int64, err error) {
	var raw []byte
	for _, g := range got.Regions {
		if raw, err = g.AppendTo(raw); err != nil {
			return at, err
		}
	}
	next = at
	for len(raw) > 0 {
		e, rest, err := batch.NextEntry(raw)
		if err != nil {
			break // the last one is cut
		}
		for rec, err := range e.Records(nil) {
			if err != nil {
				return next, err
			}
			if value := fmt.Sprintf("%d ", next); rec.Offset != next || !strings.HasPrefix(string(rec.Value), value) {
				return next, fmt.Errorf("offset %d holds %.20q where %d was expected", rec.Offset, rec.Value, next)
			}
			next++
		}
		raw = rest
	}
	if next == at {
		return at, fmt.Errorf("nothing at offset %d: %+v", at, got)
	}
	return next, nil
}

// A partition moves to and fro under a producer, and its files are closed and deleted as soon as they may be: consumers
// find all that was acked before they began, and nobody takes a directory offline.
func TestReadersAndAProducerBesideMoves(t *testing.T) {
	e := newEnv(t)
	e.files = storage.NewFileLimiter(4)
	e.replay(topic("a", t1), part(t1, 0, 1, 0, dirA, 1))
	e.replay(topicSetting("a", "segment.bytes", "1048576"), topicSetting("a", "file.delete.delay.ms", "0"), topicSetting("a", "index.interval.bytes", "100"))
	r, p := e.get(t1, 0), checkpoint.TopicPartition{Topic: "a", Partition: 0}
	padding := strings.Repeat("x", 13_000)
	for n := range int64(100) {
		if err := numbered(r, n, padding); err != nil {
			t.Fatal(err)
		}
	}
	var stop atomic.Bool
	var wg sync.WaitGroup
	loop := func(f func() error) {
		wg.Go(func() {
			for !stop.Load() {
				if err := f(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	next, limit := int64(100), atomic.Int64{} // so that the log does not grow faster than it is copied
	loop(func() error {
		if next == limit.Load() {
			runtime.Gosched()
			return nil
		}
		next++
		return numbered(r, next-1, "")
	})
	loop(func() error { return readNumbered(r, 0) })
	loop(func() error {
		o, found, err := r.OffsetForTimestamp(start.UnixMilli()+40, -1, partition.ReadUncommitted)
		if err == nil && (!found || o.Offset != 40) {
			err = fmt.Errorf("the offset of a time is %d (%v)", o.Offset, found)
		}
		return err
	})
	later := start.Add(time.Hour)
	for i := range 40 {
		limit.Store(int64(200 + 100*i))
		if err := e.Move("a", 0, []string{"/b", "/a"}[i%2]); err != nil {
			t.Fatal(err)
		}
		if err := e.move(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		later = later.Add(time.Hour)
		e.Tick(later) // flushes, and deletes the log that was moved away
		if t.Failed() {
			break
		}
	}
	stop.Store(true)
	wg.Wait()
	if c := e.Counts(); c.Offline != 0 || len(e.dirs.OfflineDirs()) != 0 {
		t.Fatalf("counts %+v, offline directories %d", c, len(e.dirs.OfflineDirs()))
	}
	if err := readNumbered(r, 0); err != nil {
		t.Fatal(err)
	}
}

// A copy that is a little behind is finished while producers wait: under load it would never have caught up else.
func TestCopyIsFinished(t *testing.T) {
	e := newEnv(t)
	e.replay(topic("a", t1), part(t1, 0, 1, 0, dirA, 1))
	r, p := e.get(t1, 0), checkpoint.TopicPartition{Topic: "a", Partition: 0}
	n := int64(0)
	produce := func(count, size int) {
		t.Helper()
		for range count {
			if err := numbered(r, n, strings.Repeat("x", size)); err != nil {
				t.Fatal(err)
			}
			n++
		}
	}
	produce(3, 10)
	if err := e.Move("a", 0, "/b"); err != nil {
		t.Fatal(err)
	}
	future, _ := e.dirs.FutureLog(p)
	var buf []byte
	produce(8, 700_000)
	if done, err := finishCopy(r.Log(), future, &buf); done || err != nil || future.LogEnd() == n {
		t.Fatalf("%d of %d records were copied while producers waited: %v, %v", future.LogEnd(), n, done, err)
	}
	if err := r.Log().Flush(-1); err != nil {
		t.Fatal(err)
	}
	if done, err := finishCopy(r.Log(), future, &buf); !done || err != nil || future.LogEnd() != n || future.HighWatermark() != n || future.RecoveryPoint() != n {
		t.Fatalf("the copy ends at %d, high watermark %d, recovery point %d: %v, %v", future.LogEnd(), future.HighWatermark(), future.RecoveryPoint(), done, err)
	}
}

// Two directories hold a partition of one name, of two topics: the one that the image holds is served whichever was
// loaded first, and the other one is kept as stray.
func TestTheImageDecidesBetweenTopicsOfOneName(t *testing.T) {
	for name, present := range map[string]uuid.UUID{"the first": t1, "the second": t2, "neither": {15: 9, 0: 2}} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			p := checkpoint.TopicPartition{Topic: "a", Partition: 0}
			for dir, id := range map[uuid.UUID]uuid.UUID{dirA: t1, dirB: t2} {
				e.replay(topic("a", id), part(id, 0, 1, 0, dir, 1))
				e.produce(e.get(id, 0), id.String())
				e.replay(remove(id)) // and its directory comes back from somewhere
				list, err := e.fs.ReadDir(e.dirs.ByID(dir).Path)
				if err != nil {
					t.Fatal(err)
				}
				for _, d := range list {
					if d.IsDir() {
						if err := e.fs.Rename(e.dirs.ByID(dir).Path+"/"+d.Name(), e.dirs.ByID(dir).Path+"/back"); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
			if err := e.dirs.Close(9); err != nil {
				t.Fatal(err)
			}
			for _, d := range []string{"/a", "/b"} {
				if err := e.fs.Rename(d+"/back", d+"/a-0"); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 { // and so at the next start
				e.img = registered(e.epoch)
				e.open()
				e.replay(topic("a", present), part(present, 0, 1, 0, uuid.DirUnassigned, 1))
				l := e.get(present, 0).Log()
				if l.TopicID() != present || len(e.dirs.Failures()) != 0 {
					t.Fatalf("%s of topic %s is served, failures %v", l.Dir(), l.TopicID(), e.dirs.Failures())
				}
				if end := l.LogEnd(); (end == 1) != (present == t1 || present == t2) || l.HighWatermark() != end {
					t.Fatalf("it ends at %d, high watermark %d", end, l.HighWatermark())
				}
				strays := 0
				for _, d := range []string{"/a", "/b"} {
					list, err := e.fs.ReadDir(d)
					if err != nil {
						t.Fatal(err)
					}
					if anyStray(list) {
						strays++
					}
				}
				want := 1
				if present != t1 && present != t2 {
					want = 2
				}
				if strays != want {
					t.Fatalf("%d strays, want %d", strays, want)
				}
				if served, _ := e.dirs.Log(p); served != l {
					t.Fatal("another log is in the registry")
				}
				if err := e.dirs.Crash(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// The controller does not know the directory of a replica yet, and the directory fails. No empty log is made elsewhere
// in the place of its records: not when the image changes, nor at the next start, until there is no directory offline.
func TestReplicaMayStandInAnOfflineDirectory(t *testing.T) {
	e := newEnv(t)
	e.replay(topic("b", t2), part(t2, 0, 1, 0, dirA, 1))
	e.replay(topic("a", t1), part(t1, 0, 1, 0, uuid.DirUnassigned, 1)) // goes to the other directory
	l := e.get(t1, 0).Log()
	e.produce(e.get(t1, 0), "1")
	_, d := e.dirs.Log(checkpoint.TopicPartition{Topic: "a", Partition: 0})
	e.dirs.Fail(d, errors.New("i/o error"))
	change := records.NewPartitionChangeRecord()
	change.TopicID, change.PartitionID, change.Leader = t1, 0, 1
	e.replay(&change)
	var offline *OfflineError
	if _, err := e.Replica(t1, 0); !errors.As(err, &offline) || !strings.Contains(err.Error(), d.Path) {
		t.Fatalf("after a change: %v", err)
	}
	e.replay(part(t2, 1, 1, 0, uuid.DirUnassigned, 1)) // a new one is made all the same
	e.get(t2, 1)
	if err := e.dirs.Crash(); err != nil {
		t.Fatal(err)
	}

	faults := errfs.Wrap(e.fs, errfs.Rule{Op: errfs.Stat, Path: d.Path + "/" + checkpoint.MetaFile, Err: syscall.EIO})
	recs := []records.Metadata{topic("a", t1), part(t1, 0, 1, 1, uuid.DirUnassigned, 1), topic("b", t2), part(t2, 1, 1, 1, uuid.DirUnassigned, 1)}
	e.disk, e.img = faults, registered(e.epoch)
	e.open()
	e.replay(recs...)
	if _, err := e.Replica(t1, 0); !errors.As(err, &offline) || !strings.Contains(err.Error(), d.Path) {
		t.Fatalf("after a start: %v", err)
	}
	e.get(t2, 1) // its log is there
	if err := e.dirs.Crash(); err != nil {
		t.Fatal(err)
	}
	faults.Set()
	e.img = registered(e.epoch)
	e.open()
	e.replay(recs...)
	if got := e.get(t1, 0).Log(); got.Dir() != l.Dir() || got.LogEnd() != 1 {
		t.Fatalf("when the directory is back: %s ends at %d", got.Dir(), got.LogEnd())
	}
}

// copyBatch appends records of one leader epoch as a follower does.
func copyBatch(t *testing.T, l *storage.Log, epoch int32, from, n int64) {
	t.Helper()
	o := batch.NewOptions()
	o.BaseOffset, o.LeaderEpoch = from, epoch
	b := batch.NewBuilder(o)
	for i := range n {
		b.Append(start.UnixMilli(), nil, fmt.Appendf(nil, "%d in %d", from+i, epoch), nil)
	}
	if _, err := appendCopy(l, b.Build()); err != nil {
		t.Fatal(err)
	}
}

// A follower's log may be truncated and go on with other records while it is copied: the copy follows.
func TestCopyFollowsATruncation(t *testing.T) {
	type span struct {
		epoch int32
		n     int64
	}
	for name, c := range map[string]struct {
		before []span
		cut    int64
		after  []span
	}{
		"in the last epoch, and longer again":  {[]span{{1, 3}, {2, 4}}, 5, []span{{4, 9}}},
		"below the last epoch":                 {[]span{{1, 3}, {2, 4}}, 2, []span{{3, 8}}},
		"to nothing newer":                     {[]span{{1, 3}, {5, 4}}, 3, []span{{1, 6}}},
		"two epochs away":                      {[]span{{1, 3}, {2, 2}, {3, 2}}, 3, []span{{4, 9}}},
		"everything":                           {[]span{{2, 5}}, 0, []span{{3, 9}}},
		"to the same length":                   {[]span{{1, 3}, {2, 4}}, 3, []span{{3, 4}}},
		"within one epoch, not longer than it": {[]span{{1, 7}, {1, 3}}, 7, []span{{1, 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.replay(topic("a", t1), part(t1, 0, 1, 0, dirA, 1))
			log := e.get(t1, 0).Log()
			write := func(spans []span) {
				for _, s := range spans {
					copyBatch(t, log, s.epoch, log.LogEnd(), s.n)
				}
			}
			write(c.before)
			if err := e.Move("a", 0, "/b"); err != nil {
				t.Fatal(err)
			}
			future, _ := e.dirs.FutureLog(checkpoint.TopicPartition{Topic: "a", Partition: 0})
			var buf []byte
			finish := func() {
				t.Helper()
				if done, err := finishCopy(log, future, &buf); !done || err != nil {
					t.Fatal(done, err)
				}
			}
			finish()
			if _, err := log.Truncate(c.cut); err != nil {
				t.Fatal(err)
			}
			write(c.after)
			finish()
			if want, got := content(t, log), content(t, future); want != got {
				t.Fatalf("the copy holds\n%q, the log\n%q", got, want)
			}
		})
	}
}

func content(t *testing.T, l *storage.Log) string {
	t.Helper()
	var raw []byte
	got, err := l.Read(0, 1<<20, l.LogEnd(), true)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Release()
	for _, g := range got.Regions {
		if raw, err = g.AppendTo(raw); err != nil {
			t.Fatal(err)
		}
	}
	return string(raw)
}

// A copy that was taken away on purpose is no failure, one that cannot be made is.
func TestCancelledMoveIsNoFailure(t *testing.T) {
	var logged strings.Builder
	e := newEnv(t)
	e.o.Logger = slog.New(slog.NewTextHandler(&logged, nil))
	e.replay(topic("a", t1), part(t1, 0, 1, 0, dirA, 1))
	p := checkpoint.TopicPartition{Topic: "a", Partition: 0}
	begin := func() *storage.Log {
		t.Helper()
		if err := e.Move("a", 0, "/b"); err != nil {
			t.Fatal(err)
		}
		l, _ := e.dirs.FutureLog(p)
		return l
	}
	copied := begin()
	if err := e.Move("a", 0, "/a"); err != nil {
		t.Fatal(err)
	}
	if e.moveFailed(p, copied, storage.ErrClosed); strings.Contains(logged.String(), "ERROR") || !strings.Contains(logged.String(), "cancelled") {
		t.Errorf("a cancelled move: %s", logged.String())
	}
	again := begin()
	if e.moveFailed(p, copied, storage.ErrClosed); strings.Contains(logged.String(), "ERROR") {
		t.Errorf("a move that was begun anew: %s", logged.String())
	}
	if l, _ := e.dirs.FutureLog(p); l != again {
		t.Error("the new copy went with the old one")
	}
	if e.moveFailed(p, again, errors.New("rotten")); !strings.Contains(logged.String(), "ERROR") {
		t.Errorf("a failed move: %s", logged.String())
	}
	if l, _ := e.dirs.FutureLog(p); l != nil {
		t.Error("the failed copy is left")
	}
}

// A wish for a directory holds for one creation: a later topic of that name goes where it is assigned to.
func TestWishForADirectoryHoldsOnce(t *testing.T) {
	e := newEnv(t)
	if err := e.Move("a", 0, "/b"); err != nil {
		t.Fatal(err)
	}
	e.replay(topic("a", t1), part(t1, 0, 1, 0, dirA, 1))
	if dir := e.get(t1, 0).Log().Dir(); dir != "/b/a-0" {
		t.Errorf("created in %s", dir)
	}
	if err := e.Move("a", 0, "/b"); err != nil { // it is there: nothing to note
		t.Fatal(err)
	}
	e.replay(remove(t1), topic("a", t2), part(t2, 0, 1, 0, dirA, 1))
	if dir := e.get(t2, 0).Log().Dir(); dir != "/a/a-0" || len(e.preferred) != 0 {
		t.Errorf("created in %s, wishes %v", dir, e.preferred)
	}
}
