package storage

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/config"
	"weir/internal/rng"
	"weir/internal/storage/producer"
	"weir/internal/uuid"
)

func seq(from, to int64) []int64 {
	var out []int64
	for i := from; i < to; i++ {
		out = append(out, i)
	}
	return out
}

func same(t testing.TB, what string, got, want []int64) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

func TestAppendAssignsOffsetsAndSurvivesBothStops(t *testing.T) {
	for _, clean := range []bool{true, false} {
		e := newEnv(t, nil)
		e.append(spec{n: 3, leader: 2})
		r := e.append(spec{n: 2, leader: 4})
		if r.FirstOffset != 3 || r.LastOffset != 4 || r.LogStart != 0 || r.MaxTimestamp != start.UnixMilli() || r.LogAppendTimeMs != -1 {
			t.Fatalf("appended %+v", r)
		}
		e.reopen(clean)
		if n := e.log.OpenFiles(); n != 0 {
			t.Fatalf("%d files open in a log that nobody uses", n)
		}
		same(t, "offsets", e.offsets(), seq(0, 5))
		if got := e.log.Epochs(); len(got) != 2 || got[0].Epoch != 2 || got[1].StartOffset != 3 {
			t.Fatalf("epochs %+v", got)
		}
		if clean && e.log.RecoveryPoint() != 5 {
			t.Fatalf("recovery point %d after a clean stop", e.log.RecoveryPoint())
		}
		if r := e.append(spec{leader: 4}); r.FirstOffset != 5 {
			t.Fatalf("appended at %d after reopening", r.FirstOffset)
		}
	}
}

// K11: at the log end and up to it empty, beyond it and below the log start out of range.
func TestReadBounds(t *testing.T) {
	e := newEnv(t, nil)
	for range 4 {
		e.append(spec{})
	}
	e.log.SetHighWatermark(3)
	if _, err := e.log.SetLogStart(1); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		from, upTo int64
		size       bool
		outOf      bool
	}{
		{from: 1, upTo: 3, size: true}, {from: 3, upTo: 3}, {from: 4, upTo: 3}, {from: 4, upTo: 4}, {from: 3, upTo: 4, size: true},
		{from: 5, upTo: 3, outOf: true}, {from: 0, upTo: 3, outOf: true}, {from: -1, upTo: 3, outOf: true},
	} {
		r, err := e.log.Read(c.from, 1<<20, c.upTo, true)
		var out *OutOfRangeError
		if errors.As(err, &out) != c.outOf || r.Size > 0 != c.size {
			t.Errorf("read %+v: %d bytes, %v", c, r.Size, err)
		}
		r.Release()
	}
}

func TestReadStopsBelowTheBound(t *testing.T) {
	e := newEnv(t, nil)
	for range 5 {
		e.append(spec{n: 2})
	}
	one := int64(len(build(spec{n: 2})))
	for upTo, batches := range map[int64]int64{0: 0, 2: 1, 3: 1, 6: 3, 10: 5, 99: 5} {
		r, err := e.log.Read(0, 1<<20, upTo, true)
		if err != nil || r.Size != batches*one {
			t.Errorf("up to %d: %d bytes (%v), want %d batches of %d", upTo, r.Size, err, batches, one)
		}
		r.Release()
	}
	// Limits inside the first batch: minOne gives it whole, else it is cut and said to be.
	for _, minOne := range []bool{true, false} {
		r, err := e.log.Read(2, 10, 10, minOne)
		want := int64(10)
		if minOne {
			want = one
		}
		if err != nil || r.Size != want || r.FirstBatchCut == minOne || r.FirstBatchOffset != 2 {
			t.Errorf("minOne %v: %+v, %v", minOne, r, err)
		}
		r.Release()
	}
}

// K12: a follower copies the holes of its leader; reading in a hole gives the next batch, also behind a segment's end.
func TestReadPassesHoles(t *testing.T) {
	e := newEnv(t, nil)
	follow := func(at int64) {
		if _, err := e.log.Append(build(spec{at: at, n: 2}), Append{Origin: producer.OriginReplication}); err != nil {
			t.Fatal(err)
		}
	}
	follow(0)
	follow(10)
	if err := e.log.Roll(); err != nil {
		t.Fatal(err)
	}
	follow(20)
	for from, want := range map[int64]int64{0: 0, 5: 10, 11: 10, 12: 20, 15: 20, 21: 20} {
		r, err := e.log.Read(from, 1<<20, e.log.LogEnd(), true)
		if err != nil || r.FirstBatchOffset != want || r.Size == 0 {
			t.Errorf("read at %d: %+v, %v; want the batch at %d", from, r, err, want)
		}
		r.Release()
	}
}

func TestFollowerRefuses(t *testing.T) {
	e := newEnv(t, nil)
	e.append(spec{n: 3, leader: 1})
	follower := Append{Origin: producer.OriginReplication, LeaderEpoch: 1}
	var unexpected *UnexpectedOffsetError
	if _, err := e.log.Append(build(spec{at: 2, leader: 1}), follower); !errors.As(err, &unexpected) || unexpected.Expected != 3 {
		t.Errorf("overlapping offset: %v", err)
	}
	bad := build(spec{at: 3, leader: 1})
	bad[len(bad)-1] ^= 1
	var corrupt *BadBatchError
	if _, err := e.log.Append(bad, follower); !errors.As(err, &corrupt) {
		t.Errorf("wrong CRC: %v", err)
	}
	// A cut last batch, and a batch of a later leader, are left out.
	two := append(build(spec{at: 3, leader: 1}), build(spec{at: 4, leader: 1})...)
	if r, err := e.log.Append(two[:len(two)-3], follower); err != nil || r.LastOffset != 3 {
		t.Errorf("cut batch: %+v, %v", r, err)
	}
	if r, err := e.log.Append(build(spec{at: 4, leader: 2}), follower); err != nil || r.FirstOffset != 4 || r.LastOffset != 3 {
		t.Errorf("later epoch: %+v, %v", r, err)
	}
	same(t, "offsets", e.offsets(), seq(0, 4))
}

func TestAppendTooLarge(t *testing.T) {
	e := newEnv(t, func(c *config.Topic) { c.SegmentBytes = 200 })
	var large *TooLargeError
	if _, err := e.tryAppend(spec{size: 300}); !errors.As(err, &large) {
		t.Fatalf("got %v", err)
	}
	e.append(spec{})
}

func TestRoll(t *testing.T) {
	one := int32(len(build(spec{})))
	for name, c := range map[string]struct {
		change func(*config.Topic)
		step   int64 // ms between records
		want   int   // segments after four appends
	}{
		"none":       {func(*config.Topic) {}, 0, 1},
		"size":       {func(c *config.Topic) { c.SegmentBytes = 2 * one }, 0, 2},
		"time":       {func(c *config.Topic) { c.SegmentMs = 1000 }, 600, 2},
		"index full": {func(c *config.Topic) { c.SegmentIndexBytes, c.IndexIntervalBytes = 12*2, 0 }, 1, 2},
	} {
		e := newEnv(t, c.change)
		for i := range int64(4) {
			e.append(spec{ts: start.UnixMilli() + i*c.step})
		}
		if got := e.log.NumSegments(); got != c.want {
			t.Errorf("%s: %d segments, want %d", name, got, c.want)
		}
		same(t, name, e.offsets(), seq(0, 4))
		if e.log.NumSegments() > 1 {
			// A roll leaves flushing to the ticker, and a producer snapshot at the new base.
			if e.log.RecoveryPoint() != 0 {
				t.Errorf("%s: recovery point %d before the tick", name, e.log.RecoveryPoint())
			}
			if err := e.log.Tick(start); err != nil {
				t.Fatal(err)
			}
			if e.log.RecoveryPoint() != e.log.ActiveBase() {
				t.Errorf("%s: recovery point %d after the tick, want %d", name, e.log.RecoveryPoint(), e.log.ActiveBase())
			}
		}
	}
}

func TestOffsetOverflowRolls(t *testing.T) {
	e := newEnv(t, nil)
	for i, at := range []int64{0, math.MaxInt32, math.MaxInt32 + 1} {
		if _, err := e.log.Append(build(spec{at: at}), Append{Origin: producer.OriginReplication}); err != nil {
			t.Fatal(err)
		}
		if got, want := e.log.NumSegments(), []int{1, 1, 2}[i]; got != want {
			t.Fatalf("%d segments after offset %d", got, at)
		}
	}
}

// K1: a repeat of one of the last five batches gives the original offsets; an older one or a gap is refused.
func TestDuplicates(t *testing.T) {
	for _, stop := range []string{"none", "clean", "kill"} {
		e := newEnv(t, nil)
		for i := range int32(7) {
			e.append(spec{id: 8, n: 2, seq: 2 * i})
		}
		switch stop {
		case "clean":
			e.reopen(true)
		case "kill":
			e.reopen(false)
		}
		for i := range int32(7) {
			r, err := e.tryAppend(spec{id: 8, n: 2, seq: 2 * i})
			known := i >= 2
			if stop == "clean" {
				known = i == 6 // a snapshot holds only the last batch
			}
			switch {
			case known && (err != nil || !r.Duplicate || r.FirstOffset != int64(2*i) || r.LastOffset != int64(2*i)+1):
				t.Errorf("%s: repeat of %d: %+v, %v", stop, i, r, err)
			case !known && !errors.Is(err, ErrOutOfOrderSequence):
				t.Errorf("%s: old repeat of %d: %+v, %v", stop, i, r, err)
			}
		}
		if _, err := e.tryAppend(spec{id: 8, seq: 15}); !errors.Is(err, ErrOutOfOrderSequence) {
			t.Errorf("gap: %v", err)
		}
		if _, err := e.tryAppend(spec{id: 8, seq: 14, epoch: 1}); !errors.Is(err, ErrOutOfOrderSequence) {
			t.Errorf("new epoch that does not start at 0: %v", err)
		}
		e.append(spec{id: 8, epoch: 1})
		if _, err := e.tryAppend(spec{id: 8, seq: 14}); !errors.Is(err, ErrInvalidEpoch) {
			t.Errorf("old epoch: %v", err)
		}
		if e.log.LogEnd() != 15 {
			t.Errorf("log end %d", e.log.LogEnd())
		}
	}
}

func TestTransactions(t *testing.T) {
	e := newEnv(t, nil)
	coordinator := Append{Assign: true, Origin: producer.OriginCoordinator, TxnVersion: 1}
	write := func(s spec) error {
		g, err := e.log.StartVerification(s.id-1, s.seq, s.epoch, false)
		if err != nil {
			return err
		}
		_, err = e.log.Append(build(s), Append{Assign: true, Origin: producer.OriginClient, Guard: g})
		return err
	}
	end := func(id int64, abort bool) {
		t.Helper()
		if _, err := e.log.Append(marker(id, 0, abort, 3), coordinator); err != nil {
			t.Fatal(err)
		}
		e.log.SetHighWatermark(e.log.LogEnd())
	}
	check := func(what string, want Offsets) {
		t.Helper()
		if got := e.log.Offsets(); got != want {
			t.Fatalf("%s: %+v, want %+v", what, got, want)
		}
	}
	e.append(spec{n: 2})
	if _, err := e.tryAppend(spec{id: 1, txn: true}); !errors.Is(err, ErrInvalidTxnState) {
		t.Fatalf("unverified: %v", err)
	}
	for id := range int64(2) {
		if err := write(spec{id: id + 1, txn: true}); err != nil {
			t.Fatal(err)
		}
	}
	e.log.SetHighWatermark(4)
	check("two open", Offsets{HighWatermark: 4, LastStable: 2, LogEnd: 4, FirstUnstable: 2})
	if _, err := e.tryAppend(spec{id: 1, seq: 1}); !errors.Is(err, ErrInvalidTxnState) {
		t.Fatalf("plain write in a transaction: %v", err)
	}
	e.log.SetHighWatermark(3)
	end(1, true)
	check("first aborted", Offsets{HighWatermark: 5, LastStable: 3, LogEnd: 5, FirstUnstable: 3})
	for _, stop := range []string{"none", "clean", "kill"} {
		if stop != "none" {
			e.reopen(stop == "clean")
			e.log.SetHighWatermark(5)
		}
		check(stop, Offsets{HighWatermark: 5, LastStable: 3, LogEnd: 5, FirstUnstable: 3})
		aborted, err := e.log.AbortedTransactions(0, 5)
		if err != nil || len(aborted) != 1 || aborted[0] != (AbortedTxn{ProducerID: 0, FirstOffset: 2}) {
			t.Fatalf("%s: aborted %+v, %v", stop, aborted, err)
		}
		active := e.log.ActiveProducers()
		if len(active) != 2 || active[0].TxnStartOffset != -1 || active[0].CoordinatorEpoch != 3 || active[1].TxnStartOffset != 3 {
			t.Fatalf("%s: producers %+v", stop, active)
		}
	}
	if _, err := e.log.Append(marker(1, 0, true, 2), coordinator); !errors.Is(err, ErrCoordinatorFenced) {
		t.Fatalf("old coordinator: %v", err)
	}
	end(2, false)
	check("all ended", Offsets{HighWatermark: 6, LastStable: 6, LogEnd: 6, FirstUnstable: -1})
	if aborted, _ := e.log.AbortedTransactions(3, 6); len(aborted) != 1 {
		t.Fatalf("aborted from 3: %+v", aborted)
	}
	if aborted, _ := e.log.AbortedTransactions(5, 6); len(aborted) != 0 {
		t.Fatalf("aborted from 5: %+v", aborted)
	}
}

func TestExpiry(t *testing.T) {
	e := newEnv(t, nil)
	e.append(spec{id: 1})
	if n := e.log.ExpireProducers(start.Add(23*time.Hour), 24*3600_000); n != 0 {
		t.Fatalf("%d expired early", n)
	}
	if n := e.log.ExpireProducers(start.Add(24*time.Hour), 24*3600_000); n != 1 || e.log.ProducerCount() != 0 {
		t.Fatalf("%d expired", n)
	}
	e.append(spec{id: 1, seq: 7}) // nothing known: any sequence
}

func TestRetention(t *testing.T) {
	one := int64(len(build(spec{})))
	for name, c := range map[string]struct {
		change   func(*config.Topic)
		hw       int64
		start    int64
		after    time.Duration
		segments int // left of five with one record each
		first    int64
	}{
		"nothing":           {func(*config.Topic) {}, 5, 0, time.Hour, 5, 0},
		"size":              {func(c *config.Topic) { c.RetentionBytes = 2*one + 1 }, 5, 0, 0, 3, 2},
		"size zero":         {func(c *config.Topic) { c.RetentionBytes = 0 }, 5, 0, 0, 1, 5},
		"time":              {func(c *config.Topic) { c.RetentionMs = 2500 }, 5, 0, 4500 * time.Millisecond, 3, 2},
		"time, all":         {func(c *config.Topic) { c.RetentionMs = 10 }, 5, 0, time.Hour, 1, 5},
		"not above the hw":  {func(c *config.Topic) { c.RetentionMs = 10 }, 2, 0, time.Hour, 3, 2},
		"log start":         {func(c *config.Topic) { c.CleanupDelete = false }, 5, 3, 0, 2, 3},
		"compact has no ms": {func(c *config.Topic) { c.CleanupDelete, c.RetentionMs = false, 1 }, 5, 0, time.Hour, 5, 0},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, func(tc *config.Topic) { tc.SegmentBytes = int32(one); c.change(tc) })
			for i := range int64(5) {
				e.append(spec{ts: start.UnixMilli() + 1000*i, id: 1, seq: int32(i)})
			}
			e.log.SetHighWatermark(c.hw)
			if c.start > 0 {
				if _, err := e.log.SetLogStart(c.start); err != nil {
					t.Fatal(err)
				}
			}
			n, err := e.log.Retain(start.Add(c.after))
			if err != nil {
				t.Fatal(err)
			}
			if e.log.NumSegments() != c.segments || e.log.LogStart() != c.first {
				t.Fatalf("%d removed: %d segments from %d, want %d from %d", n, e.log.NumSegments(), e.log.LogStart(), c.segments, c.first)
			}
			same(t, "left", e.offsets(), seq(c.first, 5))
			checkDeletes(t, e, n)
			e.reopen(false)
			same(t, "left after a kill", e.offsets(), seq(c.first, 5))
		})
	}
}

// checkDeletes: n segments wait under their .deleted names and go after the delay.
func checkDeletes(t *testing.T, e *env, n int) {
	t.Helper()
	deleted := func() int {
		files, err := e.fs.ReadDir(testDir)
		if err != nil {
			t.Fatal(err)
		}
		count := 0
		for _, f := range files {
			if strings.HasSuffix(f.Name(), ".log.deleted") {
				count++
			}
		}
		return count
	}
	if deleted() != n {
		t.Fatalf("%d .deleted logs, want %d", deleted(), n)
	}
	if err := e.log.Tick(start.Add(59 * time.Second)); err != nil || deleted() != n {
		t.Fatalf("gone too early: %d left, %v", deleted(), err)
	}
	if err := e.log.Tick(start.Add(61 * time.Second)); err != nil || deleted() != 0 || len(e.log.PendingDeletes()) != 0 {
		t.Fatalf("%d .deleted logs after the delay, %v", deleted(), err)
	}
}

func TestTruncate(t *testing.T) {
	for _, to := range []int64{0, 1, 4, 7, 10, 12} {
		e := newEnv(t, func(c *config.Topic) { c.SegmentBytes = 4 * int32(len(build(spec{id: 1}))) })
		for i := range int32(10) {
			e.append(spec{id: 1, seq: i, leader: i / 3})
		}
		e.log.SetHighWatermark(8)
		if err := e.log.Flush(-1); err != nil {
			t.Fatal(err)
		}
		e.checkpoint()
		cut, err := e.log.Truncate(to)
		if err != nil || cut != (to < 10) {
			t.Fatalf("truncate to %d: %v, %v", to, cut, err)
		}
		end := min(to, 10)
		o := e.log.Offsets()
		if o.LogEnd != end || o.HighWatermark != min(end, 8) || e.log.RecoveryPoint() != end || e.point != end {
			t.Fatalf("after truncating to %d: %+v, recovery point %d, checkpoint %d", to, o, e.log.RecoveryPoint(), e.point)
		}
		same(t, "left", e.offsets(), seq(0, end))
		// The producer goes on where the log ends.
		r := e.append(spec{id: 1, seq: int32(end), leader: 9})
		if r.FirstOffset != end {
			t.Fatalf("appended at %d", r.FirstOffset)
		}
		e.reopen(false)
		same(t, "after a kill", e.offsets(), seq(0, end+1))
		if got := e.log.EndOffsetForEpoch(3); to >= 10 && (got != EpochEnd{3, 10}) {
			t.Fatalf("epoch 3 ends at %+v", got)
		}
		if got := e.log.EndOffsetForEpoch(9); got != (EpochEnd{9, end + 1}) {
			t.Fatalf("epoch 9 ends at %+v", got)
		}
	}
}

func TestTruncateFully(t *testing.T) {
	e := newEnv(t, nil)
	e.append(spec{n: 3, id: 1, leader: 1})
	if err := e.log.TruncateFullyAndStartAt(100); err != nil {
		t.Fatal(err)
	}
	if o := e.log.Offsets(); o != (Offsets{100, 100, 100, 100, -1}) || len(e.log.Epochs()) != 0 || e.log.ProducerCount() != 0 {
		t.Fatalf("%+v %+v", o, e.log.Epochs())
	}
	e.append(spec{leader: 2})
	e.reopen(false)
	same(t, "offsets", e.offsets(), []int64{100})
	// Below the first segment a truncation starts anew.
	if cut, err := e.log.Truncate(50); !cut || err != nil || e.log.LogStart() != 50 || e.log.LogEnd() != 50 {
		t.Fatalf("%v %v %+v", cut, err, e.log.Offsets())
	}
}

// K17, K20.
func TestTimes(t *testing.T) {
	e := newEnv(t, func(c *config.Topic) { c.SegmentBytes = 2 * int32(len(build(spec{}))) })
	for i, ts := range []int64{2, 4, 6, 8} {
		e.append(spec{ts: ts, leader: int32(i)})
	}
	for ts, want := range map[int64]int64{1: 0, 2: 0, 3: 1, 8: 3, 9: -1} {
		r, ok, err := e.log.OffsetForTimestamp(ts)
		if err != nil || ok != (want >= 0) || ok && (r.Offset != want || r.LeaderEpoch != int32(want) || r.Timestamp != 2*want+2) {
			t.Errorf("%d: %+v %v %v, want %d", ts, r, ok, err, want)
		}
	}
	if r, ok, err := e.log.MaxTimestamp(); err != nil || !ok || r.Offset != 3 || r.Timestamp != 8 {
		t.Errorf("max: %+v %v %v", r, ok, err)
	}
	for ts, want := range map[int64][]int64{-1: {4, 2, 0}, -2: {0}, 1: nil, math.MaxInt64: {4, 2, 0}} {
		got, err := e.log.OffsetsBefore(ts, 10)
		if err != nil {
			t.Fatal(err)
		}
		same(t, "before", got, want)
	}
	for epoch, want := range map[int32]EpochEnd{-1: {-1, -1}, 0: {0, 1}, 2: {2, 3}, 3: {3, 4}, 4: {-1, -1}} {
		if got := e.log.EndOffsetForEpoch(epoch); got != want {
			t.Errorf("epoch %d: %+v, want %+v", epoch, got, want)
		}
	}
}

func TestTopicID(t *testing.T) {
	e := newEnv(t, nil)
	id := uuid.Random(rng.New(7))
	if err := e.log.AssignTopicID(id); err != nil {
		t.Fatal(err)
	}
	e.reopen(true)
	if e.log.TopicID() != id {
		t.Fatalf("topic id %s", e.log.TopicID())
	}
	var other *TopicIDError
	if err := e.log.AssignTopicID(uuid.Random(rng.New(8))); !errors.As(err, &other) {
		t.Fatalf("got %v", err)
	}
	o := e.options()
	o.TopicID = uuid.Random(rng.New(8))
	if _, err := Open(o); !errors.As(err, &other) {
		t.Fatalf("got %v", err)
	}
}

func TestRenameAndDelete(t *testing.T) {
	e := newEnv(t, nil)
	e.append(spec{n: 2})
	r, err := e.log.Read(0, 100, 2, true)
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []Kind{Future, Current, Stray, Deleted} {
		if err := e.log.Rename(kind, rng.New(uint64(kind))); err != nil {
			t.Fatal(err)
		}
		dir := e.log.Dir()
		topic, p, k, err := ParseDirName(dir[strings.LastIndexByte(dir, '/')+1:])
		if err != nil || topic != "t" || p != 0 || k != kind {
			t.Fatalf("%s: %s %d %v %v", dir, topic, p, k, err)
		}
		if err := e.log.CloseIdle(); err != nil || e.log.OpenFiles() != 0 {
			t.Fatal(err)
		}
		same(t, kind.String(), e.offsets(), seq(0, 2))
	}
	e.append(spec{})
	if err := e.log.Flush(-1); err != nil {
		t.Fatal(err)
	}
	if err := e.log.Delete(); err != nil {
		t.Fatal(err)
	}
	if files, _ := e.fs.ReadDir("/data"); len(files) != 0 {
		t.Fatalf("left: %v", files)
	}
	if _, err := r.Regions[0].AppendTo(nil); err != nil {
		t.Errorf("a region in flight: %v", err)
	}
	r.Release()
	if _, err := e.tryAppend(spec{}); !errors.Is(err, ErrClosed) {
		t.Errorf("append after delete: %v", err)
	}
}

func TestDirNames(t *testing.T) {
	long := strings.Repeat("x", 249)
	for _, kind := range []Kind{Deleted, Stray, Future} {
		name := RenamedDirName(long, 12, kind, rng.New(1))
		if kind != Future && len(name) != 255 {
			t.Errorf("%s: %d bytes", kind, len(name))
		}
		topic, p, k, err := ParseDirName(name)
		if err != nil || !strings.HasPrefix(long, topic) || p != 12 || k != kind {
			t.Errorf("%s: %q %d %v %v", name, topic, p, k, err)
		}
	}
	for name, want := range map[string]bool{"a-0": true, "a-b-10": true, "a.b-1": true, "a": false, "-1": false, "a-": false, "a-x": false, "a-01": false, "a-1-delete": false, "t-delete-3": true} {
		if _, _, _, err := ParseDirName(name); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFileLimiter(t *testing.T) {
	e := newEnv(t, nil)
	files := NewFileLimiter(6)
	var logs []*Log
	for i := range 5 {
		o := e.options()
		o.Dir, o.Partition, o.Files = DirName("/data/u", int32(i)), int32(i), files
		l, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		logs = append(logs, l)
	}
	for round := range int64(3) {
		for _, l := range logs {
			if _, err := l.Append(build(spec{}), Append{Assign: true}); err != nil {
				t.Fatal(err)
			}
			same(t, "offsets", readOffsets(t, l, 0), seq(0, round+1))
			open := 0
			for _, o := range logs {
				open += o.OpenFiles()
			}
			if open > 6 || files.Open() > 6 {
				t.Fatalf("%d files open, the limiter counts %d", open, files.Open())
			}
		}
	}
	for _, l := range logs {
		if err := l.CloseIdle(); err != nil {
			t.Fatal(err)
		}
	}
	if files.Open() != 0 {
		t.Fatalf("%d files open after all were closed", files.Open())
	}
}

func TestOldMessageSets(t *testing.T) {
	e := newEnv(t, nil)
	var set []byte
	for i := range int64(4) {
		set = append(set, oldMessage(i, int8(i/2))...)
	}
	if _, err := e.log.Append(set, Append{Origin: producer.OriginReplication}); err != nil {
		t.Fatal(err)
	}
	e.append(spec{})
	for _, clean := range []bool{false, true} {
		e.reopen(clean)
		same(t, "offsets", e.offsets(), seq(0, 5))
	}
	if r, ok, err := e.log.OffsetForTimestamp(1); err != nil || !ok || r.Offset != 2 || r.LeaderEpoch != -1 {
		t.Errorf("time lookup in magic 1: %+v %v %v", r, ok, err)
	}
}

// oldMessage is a message of magic 0 or 1 with a null key.
func oldMessage(offset int64, magic int8) []byte {
	body := []byte{byte(magic), 0}
	if magic == 1 {
		body = binary.BigEndian.AppendUint64(body, uint64(start.UnixMilli()))
	}
	body = append(body, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1, 'v')
	m := binary.BigEndian.AppendUint64(nil, uint64(offset))
	m = binary.BigEndian.AppendUint32(m, uint32(4+len(body)))
	m = binary.BigEndian.AppendUint32(m, crc32.ChecksumIEEE(body))
	return append(m, body...)
}
