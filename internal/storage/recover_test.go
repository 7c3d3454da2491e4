package storage

import (
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"

	"weir/internal/config"
	"weir/internal/storage/epoch"
	"weir/internal/storage/producer"
	"weir/internal/vfs"
)

// names lists the files of the log that end in suffix.
func (e *env) names(suffix string) []string {
	e.t.Helper()
	files, err := e.fs.ReadDir(testDir)
	if err != nil {
		e.t.Fatal(err)
	}
	var out []string
	for _, f := range files {
		if strings.HasSuffix(f.Name(), suffix) {
			out = append(out, f.Name())
		}
	}
	return out
}

func (e *env) write(name, content string) {
	e.t.Helper()
	if err := vfs.WriteFileAtomic(e.fs, testDir+"/"+name, []byte(content)); err != nil {
		e.t.Fatal(err)
	}
}

func (e *env) cutFile(name string, size int64) {
	e.t.Helper()
	f, err := e.fs.Open(testDir+"/"+name, os.O_RDWR, 0)
	if err != nil {
		e.t.Fatal(err)
	}
	if err := f.Truncate(size); err != nil {
		e.t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		e.t.Fatal(err)
	}
}

// A power cut may take the end of a segment, at a batch or within one, and
// leave the next segment whole: what follows the gap is not the log any more.
// Compaction makes such gaps too, and there the next segment stays.
func TestRecordsMissingBetweenSegments(t *testing.T) {
	one := int64(len(build(spec{})))
	for _, c := range []struct {
		compact bool
		size    int64
		want    []int64
	}{
		{false, 3 * one, seq(0, 9)}, {false, 2 * one, seq(0, 2)}, {false, 2*one + 5, seq(0, 2)}, {true, 2*one + 5, seq(0, 2)},
		{true, 2 * one, append(seq(0, 2), seq(3, 9)...)},
	} {
		e := newEnv(t, func(tc *config.Topic) { tc.SegmentBytes, tc.CleanupCompact = int32(3*one), c.compact })
		for range 9 {
			e.append(spec{})
		}
		e.log.Abandon()
		e.cutFile("00000000000000000000.log", c.size)
		e.open()
		same(t, "offsets", e.offsets(), c.want)
	}
}

// The epoch file may know epochs of a branch that was lost.
func TestEpochsFollowTheBatches(t *testing.T) {
	for _, c := range []struct {
		file  string
		clean bool
		want  []epoch.Entry
	}{
		{"0\n3\n0 0\n5 2\n9 100\n", false, []epoch.Entry{{Epoch: 0, StartOffset: 0}, {Epoch: 3, StartOffset: 2}}},
		{"0\n2\n0 0\n2 1\n", false, []epoch.Entry{{Epoch: 0, StartOffset: 0}, {Epoch: 3, StartOffset: 2}}},
		{"0\n3\n0 0\n3 2\n9 4\n", true, []epoch.Entry{{Epoch: 0, StartOffset: 0}, {Epoch: 3, StartOffset: 2}}},
	} {
		e := newEnv(t, nil)
		e.append(spec{n: 2})
		e.append(spec{n: 2, leader: 3})
		if err := e.log.Close(); err != nil {
			t.Fatal(err)
		}
		e.write("leader-epoch-checkpoint", c.file)
		e.clean = c.clean
		e.open()
		if got := e.log.Epochs(); !slices.Equal(got, c.want) {
			t.Errorf("%q: %v, want %v", c.file, got, c.want)
		}
	}
}

// An epoch of the file that starts too late is put right by the batches.
func TestEpochThatStartsTooLate(t *testing.T) {
	e := newEnv(t, nil)
	e.append(spec{n: 2, leader: 3})
	if err := e.log.Close(); err != nil {
		t.Fatal(err)
	}
	e.write("leader-epoch-checkpoint", "0\n1\n3 1\n")
	e.open()
	if got := e.log.Epochs(); !slices.Equal(got, []epoch.Entry{{Epoch: 3, StartOffset: 0}}) {
		t.Errorf("%v", got)
	}
}

// Compaction may remove the record that an epoch begins with: where the epoch begins stays, as in Kafka.
func TestEpochThatBeginsInAHole(t *testing.T) {
	e := newEnv(t, nil)
	want := []epoch.Entry{{Epoch: 1, StartOffset: 0}, {Epoch: 2, StartOffset: 2}, {Epoch: 4, StartOffset: 7}}
	for i, at := range []int64{0, 5, 9} { // the batches at 2 and 7 are gone
		e.log.AssignEpoch(want[i].Epoch, want[i].StartOffset)
		if _, err := e.log.Append(build(spec{at: at, leader: want[i].Epoch}), Append{Origin: producer.OriginReplication, LeaderEpoch: want[i].Epoch}); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.log.Flush(-1); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		e.reopen(false)
		if got := e.log.Epochs(); !slices.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
	}
}

func TestOpenCleansUp(t *testing.T) {
	one := int32(len(build(spec{})))
	e := newEnv(t, func(c *config.Topic) { c.SegmentBytes = 2 * one })
	for range 6 {
		e.append(spec{})
	}
	e.reopen(true)
	e.log.Abandon()
	const base2 = "00000000000000000002"
	e.write("00000000000000000077.log.deleted", "x")
	e.write("00000000000000000078.index", "12345678") // no log file
	e.write("00000000000000000003.snapshot", "stray")
	e.write("unknown.txt", "kept")
	e.write(base2+".log.cleaned", "half")
	e.write(base2+".log.swap", "of the same, unfinished run")
	e.clean = true
	e.open()
	same(t, "offsets", e.offsets(), seq(0, 6))
	for _, gone := range []string{".deleted", "78.index", "03.snapshot", ".cleaned", ".swap"} {
		if left := e.names(gone); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	}
	if len(e.names("unknown.txt")) != 1 {
		t.Error("a file of an unknown name was removed")
	}
}

// Finished output of a compaction takes the place of the segments it was made from.
func TestOpenCompletesASwap(t *testing.T) {
	one := int32(len(build(spec{})))
	e := newEnv(t, func(c *config.Topic) { c.SegmentBytes, c.CleanupCompact = 2*one, true })
	for range 6 {
		e.append(spec{})
	}
	e.reopen(true)
	e.log.Abandon()
	var compacted []byte
	for _, at := range []int64{1, 3} { // of segments 0 and 2, offsets 0 and 2 are compacted away
		compacted = append(compacted, build(spec{at: at})...)
	}
	e.write("00000000000000000000.log.swap", string(compacted))
	e.open()
	same(t, "offsets", readOffsets(t, e.log, 1), []int64{1, 3, 4, 5})
	if logs := e.names(".log"); !slices.Equal(logs, []string{"00000000000000000000.log", "00000000000000000004.log"}) {
		t.Errorf("segments: %v", logs)
	}
}

// The log start checkpoint may lie beyond a log whose end was lost.
func TestLogStartBeyondTheEnd(t *testing.T) {
	e := newEnv(t, nil)
	e.append(spec{n: 3, leader: 1, id: 1})
	e.log.Abandon()
	e.start = 10
	e.open()
	if o := e.log.Offsets(); o.LogStart != 10 || o.LogEnd != 10 || len(e.log.Epochs()) != 0 || e.log.ProducerCount() != 0 {
		t.Fatalf("%+v", o)
	}
	if r := e.append(spec{}); r.FirstOffset != 10 {
		t.Fatalf("%+v", r)
	}
}

// Indexes that are missing or damaged are made anew, also those of segments
// below the recovery point, and aborted transactions come back with them.
func TestBrokenIndexes(t *testing.T) {
	for _, damage := range []func(e *env, name string){
		func(e *env, name string) { e.cutFile(name, 5) },
		func(e *env, name string) {
			if err := e.fs.Remove(testDir + "/" + name); err != nil {
				e.t.Fatal(err)
			}
		},
	} {
		one := int32(len(build(spec{id: 1, txn: true})))
		e := newEnv(t, func(c *config.Topic) { c.SegmentBytes, c.IndexIntervalBytes = 4*one, 10 })
		abortOne(e, 0)
		for range 4 {
			e.append(spec{})
		}
		if err := e.log.Flush(-1); err != nil {
			t.Fatal(err)
		}
		e.checkpoint()
		end := e.log.LogEnd()
		e.log.Abandon()
		damage(e, "00000000000000000000.index")
		e.open()
		same(t, "offsets", e.offsets(), seq(0, end))
		if a, err := e.log.AbortedTransactions(0, end); err != nil || len(a) != 1 {
			t.Errorf("aborted: %+v, %v", a, err)
		}
	}
}

// abortOne writes a transaction of one record, which is aborted.
func abortOne(e *env, seq int32) {
	e.t.Helper()
	g, err := e.log.StartVerification(0, seq, 0, false)
	if err != nil {
		e.t.Fatal(err)
	}
	if _, err := e.log.Append(build(spec{id: 1, seq: seq, txn: true}), Append{Assign: true, Guard: g}); err != nil {
		e.t.Fatal(err)
	}
	if _, err := e.log.Append(marker(1, 0, true, 0), Append{Assign: true, Origin: 1}); err != nil {
		e.t.Fatal(err)
	}
}

// An index that turns out to be damaged while the log is in use takes the
// partition offline, not the directory.
func TestIndexDamagedInUse(t *testing.T) {
	e := newEnv(t, func(c *config.Topic) { c.IndexIntervalBytes = 10 })
	for range 20 {
		e.append(spec{})
	}
	e.reopen(true)
	f, err := e.fs.Open(testDir+"/00000000000000000000.index", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{0, 0, 0, 9, 0x7f, 0xff, 0xff, 0xff}, 8*8); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	var corrupt *CorruptError
	for from := range int64(20) {
		r, err := e.log.Read(from, 1<<10, 20, true)
		r.Release()
		if err != nil && !errors.As(err, &corrupt) {
			t.Fatalf("read at %d: %v", from, err)
		}
	}
	if corrupt == nil || corrupt.File != "00000000000000000000.index" {
		t.Fatalf("got %+v", corrupt)
	}
}

// Damage that is found after a clean stop, because an index is missing, is told of, and not taken for durable.
func TestDamageAfterACleanStop(t *testing.T) {
	e := newEnv(t, nil)
	e.append(spec{n: 3})
	e.append(spec{n: 3})
	if err := e.log.Close(); err != nil {
		t.Fatal(err)
	}
	e.point, e.clean = 2, true
	if err := e.fs.Remove(testDir + "/00000000000000000000.index"); err != nil {
		t.Fatal(err)
	}
	name := testDir + "/00000000000000000000.log"
	b, err := vfs.ReadFile(e.fs, name)
	if err != nil {
		t.Fatal(err)
	}
	if err := vfs.WriteFileAtomic(e.fs, name, b[:len(b)-1]); err != nil {
		t.Fatal(err)
	}
	var told strings.Builder
	o := e.options()
	o.Logger = slog.New(slog.NewTextHandler(&told, nil))
	if e.log, err = Open(o); err != nil {
		t.Fatal(err)
	}
	if e.log.LogEnd() != 3 || e.log.RecoveryPoint() != 2 || !strings.Contains(told.String(), "cut the torn end") {
		t.Errorf("log end %d, recovery point %d, told %s", e.log.LogEnd(), e.log.RecoveryPoint(), told.String())
	}
}
