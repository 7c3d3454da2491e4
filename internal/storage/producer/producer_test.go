package producer

import (
	"encoding/hex"
	"errors"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"

	"weir/internal/vfs"
	"weir/internal/vfs/memfs"
)

func newState(t *testing.T, cfg Config) (*State, *memfs.FS) {
	t.Helper()
	mem := memfs.New()
	if err := mem.MkdirAll("/d", 0o755); err != nil {
		t.Fatal(err)
	}
	return openState(t, mem, cfg), mem
}

func openState(t *testing.T, mem vfs.FS, cfg Config) *State {
	t.Helper()
	s, err := New(mem, "/d", "t-0", cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// data is a batch of n records at an offset.
func data(id int64, epoch int16, seq int32, n int32, at int64) *Batch {
	return &Batch{ProducerID: id, Epoch: epoch, FirstSequence: seq, LastSequence: int32((int64(seq) + int64(n) - 1) & math.MaxInt32),
		FirstOffset: at, LastOffset: at + int64(n) - 1, MaxTimestamp: 1000 + at, TxnVersion: -1}
}

func txnData(id int64, epoch int16, seq int32, at int64) *Batch {
	b := data(id, epoch, seq, 1, at)
	b.Transactional = true
	return b
}

func end(id int64, epoch int16, coordinator int32, abort bool, at int64) *Batch {
	return &Batch{ProducerID: id, Epoch: epoch, Transactional: true, Control: true, Marker: true, Abort: abort, CoordinatorEpoch: coordinator,
		FirstSequence: -1, LastSequence: -1, FirstOffset: at, LastOffset: at, MarkerTimestamp: 1000 + at, TxnVersion: 1}
}

func put(s *State, origin Origin, batches ...*Batch) error {
	s.Begin(origin)
	for _, b := range batches {
		if err := s.Stage(b); err != nil {
			return err
		}
	}
	for _, t := range s.Commit() {
		s.Complete(t)
	}
	s.SetMapEnd(batches[len(batches)-1].LastOffset + 1)
	return nil
}

func TestSequences(t *testing.T) {
	for name, c := range map[string]struct {
		before []*Batch
		next   *Batch
		want   error
	}{
		"first, any sequence":            {nil, data(1, 0, 77, 1, 0), nil},
		"next":                           {[]*Batch{data(1, 0, 0, 3, 0)}, data(1, 0, 3, 1, 3), nil},
		"gap":                            {[]*Batch{data(1, 0, 0, 3, 0)}, data(1, 0, 4, 1, 3), ErrOutOfOrderSequence},
		"back":                           {[]*Batch{data(1, 0, 0, 3, 0)}, data(1, 0, 2, 1, 3), ErrOutOfOrderSequence},
		"wrap":                           {[]*Batch{data(1, 0, math.MaxInt32-1, 2, 0)}, data(1, 0, 0, 1, 2), nil},
		"wrap within a batch":            {[]*Batch{data(1, 0, math.MaxInt32, 3, 0)}, data(1, 0, 2, 1, 3), nil},
		"zero again without wrap":        {[]*Batch{data(1, 0, 0, 3, 0)}, data(1, 0, 0, 1, 3), ErrOutOfOrderSequence},
		"new epoch from zero":            {[]*Batch{data(1, 0, 0, 3, 0)}, data(1, 1, 0, 1, 3), nil},
		"new epoch not from zero":        {[]*Batch{data(1, 0, 0, 3, 0)}, data(1, 1, 3, 1, 3), ErrOutOfOrderSequence},
		"old epoch":                      {[]*Batch{data(1, 1, 0, 3, 0)}, data(1, 0, 3, 1, 3), ErrInvalidEpoch},
		"after only a marker, any":       {[]*Batch{end(1, 0, 1, true, 0)}, data(1, 0, 5, 1, 1), ErrOutOfOrderSequence},
		"after only a marker, from zero": {[]*Batch{end(1, 0, 1, true, 0)}, data(1, 0, 0, 1, 1), nil},
		"another producer":               {[]*Batch{data(1, 0, 0, 3, 0)}, data(2, 0, 0, 1, 3), nil},
	} {
		s, _ := newState(t, Config{})
		for _, b := range c.before {
			origin := OriginClient
			if b.Control {
				origin = OriginCoordinator
			}
			if err := put(s, origin, b); err != nil {
				t.Fatal(name, err)
			}
		}
		if err := put(s, OriginClient, c.next); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
		// What a leader has accepted a follower believes.
		if err := put(s, OriginReplication, c.next); err != nil {
			t.Errorf("%s: replicated: %v", name, err)
		}
	}
}

func TestStageIsForgottenWithoutCommit(t *testing.T) {
	s, _ := newState(t, Config{})
	s.Begin(OriginClient)
	if err := s.Stage(txnData(1, 0, 0, 0)); err != nil {
		t.Fatal(err)
	}
	s.Begin(OriginClient)
	s.Commit()
	if s.Len() != 0 {
		t.Fatal("a batch that was not committed left state behind")
	}
	if _, open := s.FirstUnstable(); open {
		t.Fatal("a transaction that was not committed is open")
	}
}

func TestOneAppendOfManyProducers(t *testing.T) {
	s, _ := newState(t, Config{})
	batches := []*Batch{data(1, 0, 0, 1, 0), data(2, 0, 0, 1, 1), data(1, 0, 1, 1, 2), data(3, 0, 0, 1, 3), data(2, 0, 1, 1, 4), data(1, 0, 2, 1, 5)}
	if err := put(s, OriginReplication, batches...); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[int64]int32{1: 2, 2: 1, 3: 0} {
		e, ok := s.Lookup(id)
		if !ok || e.LastSequence() != want || len(e.Batches()) != int(want)+1 {
			t.Errorf("producer %d: %+v", id, e)
		}
	}
}

func TestMarkers(t *testing.T) {
	s, _ := newState(t, Config{})
	check := func(step string, unstable int64) {
		t.Helper()
		if got, _ := s.FirstUnstable(); got != unstable {
			t.Fatalf("%s: first unstable %d, want %d", step, got, unstable)
		}
	}
	for i, b := range []*Batch{txnData(1, 0, 0, 10), txnData(2, 0, 0, 11)} {
		if err := put(s, OriginClient, b); err != nil {
			t.Fatal(i, err)
		}
	}
	check("two open", 10)
	if got := s.LastStable(CompletedTxn{ProducerID: 1, FirstOffset: 10, LastOffset: 12}); got != 11 {
		t.Fatalf("last stable %d while producer 2 is open", got)
	}
	if err := put(s, OriginCoordinator, end(1, 0, 5, true, 12)); err != nil {
		t.Fatal(err)
	}
	check("ended, not replicated", 10)
	s.OnHighWatermark(12)
	check("the marker itself is not below the high watermark", 10)
	s.OnHighWatermark(13)
	check("replicated", 11)
	if err := put(s, OriginCoordinator, end(2, 0, 4, true, 13)); err != nil {
		t.Fatal(err)
	}
	s.OnHighWatermark(14)
	check("all ended", -1)
	if err := put(s, OriginCoordinator, end(1, 0, 4, true, 14)); !errors.Is(err, ErrCoordinatorFenced) {
		t.Fatalf("old coordinator: %v", err)
	}
	if err := put(s, OriginClient, data(1, 0, 1, 1, 15)); err != nil {
		t.Fatalf("a plain batch after the transaction: %v", err)
	}
}

// Under transaction version 2 a marker's epoch is above the last one; an equal one only repeats a marker.
func TestMarkersOfVersion2(t *testing.T) {
	for name, c := range map[string]struct {
		epoch int16
		open  bool
		want  error
	}{"bumped": {6, true, nil}, "equal, open": {5, true, ErrInvalidEpoch}, "equal, ended": {5, false, nil}, "lower": {4, false, ErrInvalidEpoch}} {
		s, _ := newState(t, Config{})
		first := data(1, 5, 0, 1, 0)
		first.Transactional = c.open
		if err := put(s, OriginClient, first); err != nil {
			t.Fatal(err)
		}
		m := end(1, c.epoch, 0, false, 1)
		m.TxnVersion = 2
		if err := put(s, OriginCoordinator, m); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

func TestVerification(t *testing.T) {
	s, _ := newState(t, Config{})
	guard := func(seq int32, epoch int16) Guard {
		t.Helper()
		g, err := s.StartVerification(1, seq, epoch, false, 0)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	b := txnData(1, 0, 3, 0)
	if err := s.CheckVerified(b, NoGuard); !errors.Is(err, ErrInvalidTxnState) {
		t.Fatalf("no guard: %v", err)
	}
	g := guard(3, 0)
	if again := guard(2, 0); again != g || g == NoGuard {
		t.Fatalf("guards %d and %d", g, again)
	}
	if err := s.CheckVerified(b, g+1); !errors.Is(err, ErrInvalidTxnState) {
		t.Fatalf("another guard: %v", err)
	}
	if err := s.CheckVerified(b, g); err != nil {
		t.Fatal(err)
	}
	if err := put(s, OriginClient, b); !errors.Is(err, ErrOutOfOrderSequence) {
		t.Fatalf("sequence 3 before the 2 that was seen: %v", err)
	}
	if err := put(s, OriginClient, txnData(1, 0, 2, 0)); err != nil {
		t.Fatal(err)
	}
	if guard(3, 0) != NoGuard || s.CheckVerified(txnData(1, 0, 3, 1), NoGuard) != nil {
		t.Fatal("the open transaction needs no verification")
	}
	if _, err := s.StartVerification(1, 0, -1, false, 0); !errors.Is(err, ErrInvalidEpoch) {
		t.Fatalf("fenced: %v", err)
	}
	off, _ := newState(t, Config{})
	unverified := *b
	unverified.Unverified = true
	if err := off.CheckVerified(&unverified, NoGuard); err != nil {
		t.Fatal(err)
	}
}

// The bytes of a snapshot that Apache Kafka 4.3.1 wrote at the end of a partition with one transactional producer.
const kafkaSnapshot = "0001" + "42331e35" + "00000001" + "0000000000000001" + "0004" + "ffffffff" + "ffffffffffffffff" + "00000000" + "000001a22a7f73e4" + "00000000" + "ffffffffffffffff"

func TestSnapshotBytes(t *testing.T) {
	want, err := hex.DecodeString(kafkaSnapshot)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := Decode(want)
	if err != nil || len(entries) != 1 {
		t.Fatal(entries, err)
	}
	e := entries[0]
	if e.ProducerID != 1 || e.Epoch != 4 || !e.Empty() || e.LastTimestamp != 0x1a22a7f73e4 || e.CoordinatorEpoch != 0 || e.TxnFirstOffset != NoOffset {
		t.Fatalf("%+v", e)
	}
	if got := Encode(entries); !slices.Equal(got, want) {
		t.Fatalf("%x", got)
	}
}

func TestSnapshotRoundTripAndDamage(t *testing.T) {
	s, mem := newState(t, Config{})
	if err := put(s, OriginClient, data(2, 3, 7, 2, 40), txnData(1, 0, 0, 42)); err != nil {
		t.Fatal(err)
	}
	if wrote, err := s.Snapshot(); !wrote || err != nil {
		t.Fatal(wrote, err)
	}
	if wrote, err := s.Snapshot(); wrote || err != nil {
		t.Fatal("a second snapshot at the same offset")
	}
	r := openState(t, mem, Config{})
	if err := r.Reload(0, 43, 2000); err != nil {
		t.Fatal(err)
	}
	e, ok := r.Lookup(2)
	if u, open := r.FirstUnstable(); !ok || e.LastSequence() != 8 || e.LastOffset() != 41 || e.Epoch != 3 || !open || u != 42 || r.MapEnd() != 43 {
		t.Fatalf("%+v %d %v", e, u, open)
	}
	good, err := vfs.ReadFile(mem, "/d/"+SnapshotName(43))
	if err != nil {
		t.Fatal(err)
	}
	for i := range good {
		bad := slices.Clone(good)
		bad[i] ^= 0x10
		var corrupt *CorruptSnapshotError
		if _, err := Decode(bad); !errors.As(err, &corrupt) {
			t.Fatalf("byte %d flipped: %v", i, err)
		}
		if _, err := Decode(good[:i]); !errors.As(err, &corrupt) {
			t.Fatalf("cut to %d bytes: %v", i, err)
		}
	}
}

func TestReloadTakesTheNewestGoodSnapshot(t *testing.T) {
	s, mem := newState(t, Config{})
	for i := range int32(3) {
		if err := put(s, OriginClient, data(1, 0, i, 1, int64(i)*10)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Snapshot(); err != nil {
			t.Fatal(err)
		}
	}
	if err := vfs.WriteFileAtomic(mem, "/d/"+SnapshotName(11), []byte{0, 1, 2}); err != nil {
		t.Fatal(err)
	}
	r := openState(t, mem, Config{})
	if err := r.Reload(0, 15, 2000); err != nil {
		t.Fatal(err)
	}
	if e, ok := r.Lookup(1); !ok || e.LastSequence() != 0 || r.MapEnd() != 1 || !slices.Equal(r.Snapshots(), []int64{1}) {
		t.Fatalf("%+v, map end %d, left %v", e, r.MapEnd(), r.Snapshots())
	}
	// Below the log start a snapshot is useless; an expired producer is left out.
	r = openState(t, mem, Config{ExpirationMs: 10})
	if err := r.Reload(0, 15, 5000); err != nil || r.Len() != 0 {
		t.Fatal(r.Len(), err)
	}
	r = openState(t, mem, Config{})
	if err := r.Reload(1, 15, 2000); err != nil || r.Len() != 0 || r.MapEnd() != 1 || len(r.Snapshots()) != 0 {
		t.Fatal(r, err, r.Snapshots())
	}
}

func TestRemoveStray(t *testing.T) {
	for name, c := range map[string]struct{ files, bases, left []int64 }{
		"all at segments":           {[]int64{10, 20}, []int64{0, 10, 20}, []int64{10, 20}},
		"the newest past them":      {[]int64{5, 10, 25, 30}, []int64{0, 10, 20}, []int64{10, 30}},
		"strays below the last one": {[]int64{5, 10, 15}, []int64{0, 10, 20}, []int64{10}},
		"no segments":               {[]int64{5, 7}, nil, []int64{7}},
	} {
		_, mem := newState(t, Config{})
		for _, o := range c.files {
			if err := vfs.WriteFileAtomic(mem, "/d/"+SnapshotName(o), nil); err != nil {
				t.Fatal(err)
			}
		}
		s := openState(t, mem, Config{})
		if err := s.RemoveStray(c.bases); err != nil {
			t.Fatal(err)
		}
		if got := openState(t, mem, Config{}).Snapshots(); !slices.Equal(got, c.left) {
			t.Errorf("%s: left %v, want %v", name, got, c.left)
		}
	}
}

func TestMarkSnapshotDeleted(t *testing.T) {
	s, mem := newState(t, Config{})
	if err := put(s, OriginClient, data(1, 0, 0, 1, 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Snapshot(); err != nil {
		t.Fatal(err)
	}
	if ok, err := s.MarkSnapshotDeleted(1); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if ok, err := s.MarkSnapshotDeleted(1); ok || err != nil {
		t.Fatal(ok, err)
	}
	if _, err := mem.Stat("/d/" + SnapshotName(1) + DeletedSuffix); err != nil {
		t.Fatal(err)
	}
}

func TestExpireAndLate(t *testing.T) {
	s, _ := newState(t, Config{ExpirationMs: 100, MaxTxnTimeoutMs: 50, LateTxnBufferMs: 50})
	if err := put(s, OriginClient, data(1, 0, 0, 1, 0)); err != nil {
		t.Fatal(err)
	}
	if err := put(s, OriginClient, txnData(2, 0, 0, 1)); err != nil {
		t.Fatal(err)
	}
	if s.Expire(1099) != 0 || s.Expire(1100) != 1 || s.Expire(99999) != 0 {
		t.Fatal("only the producer without a transaction expires")
	}
	if s.HasLateTransaction(1101) || !s.HasLateTransaction(1102) {
		t.Fatal("a transaction is late after its longest timeout and the buffer")
	}
}

func FuzzDecode(f *testing.F) {
	seed, err := hex.DecodeString(kafkaSnapshot)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add(Encode(nil))
	f.Add([]byte(strings.Repeat("\x00", 20)))
	f.Fuzz(func(t *testing.T, b []byte) {
		entries, err := Decode(b)
		if err != nil {
			return
		}
		if again, err := Decode(Encode(slices.Clone(entries))); err != nil || len(again) != len(entries) {
			t.Fatalf("%d entries became %d: %v", len(entries), len(again), err)
		}
	})
}
