package storage

import (
	"fmt"
	"os"
	"path"
	"reflect"
	"slices"
	"testing"

	"weir/internal/config"
	"weir/internal/rng"
	"weir/internal/storage/epoch"
	"weir/internal/storage/producer"
	"weir/internal/storage/segment"
	"weir/internal/vfs/memfs"
)

// killed makes a log of several segments and leader epochs by idempotent producers, part of it flushed, and lets its
// process die.
func killed(t *testing.T, seed uint64) *env {
	t.Helper()
	e := newEnv(t, func(c *config.Topic) { c.SegmentBytes, c.IndexIntervalBytes = 60_000, 100 })
	dice := rng.New(seed)
	sequences := [3]int32{}
	for i := range 100 + dice.IntN(500) {
		p := dice.IntN(3)
		n := 1 + dice.IntN(3)
		e.append(spec{n: n, id: int64(p + 1), seq: sequences[p], leader: int32(i / 150), size: 50, ts: start.UnixMilli() + int64(dice.IntN(1000))})
		sequences[p] += int32(n)
		if dice.IntN(200) == 0 {
			if err := e.log.Flush(-1); err != nil {
				t.Fatal(err)
			}
			e.checkpoint()
		}
	}
	e.log.Abandon()
	return e
}

// opened is what can be seen of a log.
type opened struct {
	offsets   Offsets
	records   []int64
	epochs    any
	largest   segment.TimestampOffset
	producers any
}

func (e *env) openWith(intact bool) opened {
	e.t.Helper()
	o := e.options()
	o.Intact = intact
	l, err := Open(o)
	if err != nil {
		e.t.Fatal(err)
	}
	e.log = l
	largest, err := l.Segments()[len(l.Segments())-1].LargestTimestamp()
	if err != nil {
		e.t.Fatal(err)
	}
	return opened{offsets: l.Offsets(), records: e.offsets(), epochs: l.epochs.Entries(), largest: largest, producers: l.ActiveProducers()}
}

// fork copies the disk as the next process finds it: nothing is lost.
func (e *env) fork() *env {
	e.t.Helper()
	mem := e.fs.(*memfs.FS)
	if err := mem.SyncVolume("/"); err != nil {
		e.t.Fatal(err)
	}
	f := *e
	f.fs = mem.Crash(nil)
	return &f
}

// TestResumeIsRecovery: a log whose process died is the same whether it is resumed or recovered, and goes on the same.
func TestResumeIsRecovery(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			e := killed(t, seed)
			other := e.fork()
			resumed, recovered := e.openWith(true), other.openWith(false)
			if !reflect.DeepEqual(resumed, recovered) {
				t.Fatalf("resumed\n%+v\nrecovered\n%+v", resumed, recovered)
			}
			for i, s := range e.log.Segments() {
				a, at, err := s.IndexSizes()
				b, bt, err2 := other.log.Segments()[i].IndexSizes()
				// Recovery ends a segment's time index with its largest timestamp, as a roll does.
				if err != nil || err2 != nil || a != b || bt-at > 12 || bt < at {
					t.Errorf("segment %d: indexes of %d and %d bytes, recovered %d and %d (%v, %v)", i, a, at, b, bt, err, err2)
				}
			}
			// What was resumed is not on disk yet, and must be after a flush.
			e.append(spec{n: 2, leader: 9})
			if err := e.log.Flush(-1); err != nil {
				t.Fatal(err)
			}
			e.checkpoint()
			want := e.offsets()
			e.fs = e.fs.(*memfs.FS).Crash(nil)
			e.openWith(false)
			if got := e.offsets(); !slices.Equal(got, want) {
				t.Errorf("after a flush and a power cut %d records are left of %d", len(got), len(want))
			}
		})
	}
}

// damage changes the end of the log file that the process was writing.
func (e *env) damage(change func(b []byte) []byte) {
	e.t.Helper()
	names, err := e.fs.ReadDir(testDir)
	if err != nil {
		e.t.Fatal(err)
	}
	var last string
	for _, n := range names {
		if path.Ext(n.Name()) == segment.ExtLog {
			last = path.Join(testDir, n.Name())
		}
	}
	f, err := e.fs.Open(last, os.O_RDWR, 0)
	if err != nil {
		e.t.Fatal(err)
	}
	info, err := f.Stat()
	if err != nil {
		e.t.Fatal(err)
	}
	b := make([]byte, info.Size())
	if _, err := f.ReadAt(b, 0); err != nil {
		e.t.Fatal(err)
	}
	b = change(b)
	if err := f.Truncate(0); err != nil {
		e.t.Fatal(err)
	}
	if _, err := f.WriteAt(b, 0); err != nil {
		e.t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		e.t.Fatal(err)
	}
}

// TestResumeTornTail: what a process died in the middle of is cut as recovery cuts it.
func TestResumeTornTail(t *testing.T) {
	for name, change := range map[string]func([]byte) []byte{
		"half a batch":      func(b []byte) []byte { return b[:len(b)-20] },
		"half a header":     func(b []byte) []byte { return append(b, build(spec{n: 1, at: 1 << 20})[:30]...) },
		"zeros":             func(b []byte) []byte { return append(b, make([]byte, 500)...) },
		"a changed byte":    func(b []byte) []byte { b[len(b)-1]++; return b },
		"an offset again":   func(b []byte) []byte { return append(b, build(spec{n: 1, at: 0})...) },
		"too far an offset": func(b []byte) []byte { return append(b, build(spec{n: 1, at: 1 << 40})...) },
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(10) {
				e := killed(t, seed)
				e.damage(change)
				other := e.fork()
				resumed, recovered := e.openWith(true), other.openWith(false)
				if !reflect.DeepEqual(resumed, recovered) {
					t.Fatalf("seed %d: resumed\n%+v\nrecovered\n%+v", seed, resumed, recovered)
				}
			}
		})
	}
}

// TestResumeMarkers: a log with transactions is recovered, so that its transaction index is complete.
func TestResumeMarkers(t *testing.T) {
	e := newEnv(t, nil)
	for _, b := range [][]byte{build(spec{n: 2, id: 1, txn: true}), marker(1, 0, true, 0)} {
		if _, err := e.log.Append(b, Append{Assign: true, Origin: producer.OriginReplication}); err != nil {
			t.Fatal(err)
		}
	}
	e.log.Abandon()
	if err := e.fs.Remove(path.Join(testDir, segment.Name(0, segment.ExtTxnIndex, ""))); err != nil { // the process died before
		t.Fatal(err)
	}
	e.openWith(true)
	aborted, err := e.log.AbortedTransactions(0, e.log.LogEnd())
	if err != nil || len(aborted) != 1 {
		t.Errorf("aborted transactions %v, error %v", aborted, err)
	}
}

// As in TestEpochThatBeginsInAHole, and also when a marker lets the log be recovered in full after all.
func TestResumedEpochThatBeginsInAHole(t *testing.T) {
	for _, marker := range []bool{false, true} {
		e := newEnv(t, nil)
		want := []epoch.Entry{{Epoch: 1, StartOffset: 0}, {Epoch: 2, StartOffset: 2}, {Epoch: 4, StartOffset: 7}}
		for i, at := range []int64{0, 5, 9} { // the batches at 2 and 7 are gone
			e.log.AssignEpoch(want[i].Epoch, want[i].StartOffset)
			s := spec{at: at, leader: want[i].Epoch}
			if marker && i == 2 {
				s.id, s.txn = 8, true
			}
			if _, err := e.log.Append(build(s), Append{Origin: producer.OriginReplication, LeaderEpoch: want[i].Epoch}); err != nil {
				t.Fatal(err)
			}
		}
		if err := e.log.Flush(-1); err != nil {
			t.Fatal(err)
		}
		e.log.Abandon()
		if got := e.openWith(true).epochs; !reflect.DeepEqual(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
	}
}
