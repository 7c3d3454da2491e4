package cleaner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/internal/batch"
	"weir/internal/config"
	"weir/internal/storage"
	"weir/internal/storage/segment"
	"weir/internal/vfs/errfs"
)

func TestLastValueStays(t *testing.T) {
	e := newEnv(t, nil)
	e.puts("a=1", "b=1", "a=2", "c=1")
	e.roll()
	e.puts("b=2", "a=3")
	e.roll()
	e.clean()
	// The two small segments became one; the last batch of the run stays.
	e.expect("3-3[3:c=1] 4-4[4:b=2] 5-5[5:a=3]")
	if e.cleaned != 6 || e.log.NumSegments() != 2 || e.log.Segments()[0].BaseOffset() != 0 {
		t.Errorf("checkpoint %d, segments %d", e.cleaned, e.log.NumSegments())
	}
	if e.cleaner.Step(context.Background()) {
		t.Error("cleaned again although nothing is dirty")
	}
	e.log.Abandon()
	e.open(false)
	e.expect("3-3[3:c=1] 4-4[4:b=2] 5-5[5:a=3]")
	if end := e.log.LogEnd(); end != 6 {
		t.Errorf("log end %d", end)
	}
	r, err := e.log.Read(0, 1<<20, 6, true)
	if err != nil || r.FirstBatchOffset != 3 {
		t.Errorf("read at 0: %+v, %v", r, err)
	}
	r.Release()
}

func TestWithinABatch(t *testing.T) {
	for _, codec := range []batch.Codec{batch.None, batch.Gzip, batch.Snappy, batch.Lz4, batch.Zstd} {
		for _, logAppend := range []bool{false, true} {
			e := newEnv(t, nil)
			e.produce(spec{codec: codec, append: logAppend, recs: []kv{{"a", "1"}, {"b", "1"}, {"a", "2"}, {"", "no key"}, {"c", "empty"}, {"d", "1"}}})
			e.clock.Advance(time.Second)
			e.puts("d=2", "z=1")
			e.roll()
			before := e.log.Segments()[0]
			var ts int64
			for b, err := range before.Batches(0, before.Size()) {
				if err != nil {
					t.Fatal(err)
				}
				ts = b.MaxTimestamp()
				break
			}
			e.clean()
			name := ""
			if codec != batch.None {
				name = "(" + codec.String() + ")"
			}
			e.expect("0-5" + name + "[1:b=1 2:a=2 4:c=] 6-6[6:d=2] 7-7[7:z=1]")
			err := entries(e.log, func(b batch.Entry) error {
				if v, _ := b.Batch(); v.BaseOffset() == 0 && (v.MaxTimestamp() != ts || v.TimestampType() == batch.LogAppendTime != logAppend || v.LeaderEpoch() != 3) {
					t.Errorf("%s: header changed: %d %s", codec, v.MaxTimestamp(), v.TimestampType())
				}
				for r, err := range b.Records(nil) {
					if err != nil || len(r.Headers) != 1 {
						t.Errorf("headers %v %v", r.Headers, err)
					}
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
			if n := e.cleaner.Stats.UnkeyedDropped.Load(); n != 1 {
				t.Errorf("%d records without a key", n)
			}
		}
	}
}

func TestTombstones(t *testing.T) {
	e := newEnv(t, nil)
	e.puts("a=1", "b=1", "a", "c=1")
	e.roll()
	e.clean()
	e.expect("1-1[1:b=1] 2-2(horizon+10000)[2:a=null] 3-3[3:c=1]")
	e.clock.Advance(9 * time.Second)
	e.puts("x=1")
	e.roll()
	e.clean()
	e.expect("1-1[1:b=1] 2-2(horizon+10000)[2:a=null] 3-3[3:c=1] 4-4[4:x=1]") // not due, and the horizon does not move
	e.clock.Advance(time.Second)
	e.puts("x=2")
	e.roll()
	e.clean()
	e.expect("1-1[1:b=1] 3-3[3:c=1] 5-5[5:x=2]")
}

func TestNewestBatchOfAProducerStays(t *testing.T) {
	e := newEnv(t, nil)
	e.produce(spec{id: 7, seq: 0, recs: []kv{{"a", "1"}}})
	e.produce(spec{id: 7, seq: 1, recs: []kv{{"a", "2"}, {"b", "1"}}})
	e.produce(spec{id: 8, seq: 0, recs: []kv{{"b", "2"}}})
	e.puts("a=3", "b=3")
	e.roll()
	e.clean()
	e.expect("1-2[] 3-3[] 4-4[4:a=3] 5-5[5:b=3]")
	e.log.Abandon()
	for _, f := range e.files() {
		if strings.HasSuffix(f, ".snapshot") {
			if err := e.fs.Remove(testDir + "/" + f); err != nil {
				t.Fatal(err)
			}
		}
	}
	e.open(false)
	for _, p := range e.log.ActiveProducers() {
		if want := map[int64]int32{6: 2, 7: 0}[p.ProducerID]; p.LastSequence != want {
			t.Errorf("producer %d goes on at %d, want %d", p.ProducerID, p.LastSequence, want)
		}
	}
	if n := e.log.ProducerCount(); n != 2 {
		t.Errorf("%d producers", n)
	}
}

func (e *env) files() []string {
	list, err := e.disk.ReadDir(testDir)
	if err != nil {
		e.t.Fatal(err)
	}
	var out []string
	for _, f := range list {
		out = append(out, f.Name())
	}
	return out
}

func TestTransactions(t *testing.T) {
	e := newEnv(t, nil)
	e.produce(spec{id: 1, txn: true, seq: 0, recs: []kv{{"a", "aborted"}}})   // 0
	e.produce(spec{id: 2, txn: true, seq: 0, recs: []kv{{"b", "committed"}}}) // 1
	e.marker(1, 0, true)                                                      // 2
	e.marker(2, 0, false)                                                     // 3
	e.produce(spec{id: 1, txn: true, seq: 1, recs: []kv{{"c", "1"}}})         // 4
	e.marker(1, 0, false)                                                     // 5
	e.puts("z=1")                                                             // 6
	e.roll()
	e.clean()
	// The aborted record is gone; its marker stays for this run, for a batch of it was there.
	e.expect("1-1[1:b=committed] 2-2(control)[2:abort] 3-3(control)[3:commit] 4-4[4:c=1] 5-5(control)[5:commit] 6-6[6:z=1]")
	if a, err := e.log.AbortedTransactions(0, 7); err != nil || len(a) != 1 || a[0].FirstOffset != 0 {
		t.Errorf("aborted %v %v", a, err)
	}
	e.puts("b=2") // 7
	e.roll()
	e.clean()
	// Now nothing of the aborted transaction is left: its marker gets a horizon. b's transaction is emptied.
	e.expect("1-1[] 2-2(control,horizon+10000)[2:abort] 3-3(control)[3:commit] 4-4[4:c=1] 5-5(control)[5:commit] 6-6[6:z=1] 7-7[7:b=2]")
	if a, err := e.log.AbortedTransactions(0, 7); err != nil || len(a) != 0 {
		t.Errorf("aborted %v %v", a, err)
	}
	e.clock.Advance(11 * time.Second)
	e.puts("b=3") // 8
	e.roll()
	e.clean()
	e.expect("1-1[] 3-3(control)[3:commit] 4-4[4:c=1] 5-5(control)[5:commit] 6-6[6:z=1] 8-8[8:b=3]")
}

func TestOpenTransactionHoldsBack(t *testing.T) {
	e := newEnv(t, nil)
	e.puts("a=1", "a=2")
	e.roll()
	e.produce(spec{id: 1, txn: true, recs: []kv{{"a", "3"}}})
	e.puts("a=4")
	e.roll()
	e.clean()
	e.expect("1-1[1:a=2] 2-2[2:a=3] 3-3[3:a=4]")
	if e.cleaned != 2 {
		t.Errorf("checkpoint %d", e.cleaned)
	}
	if e.cleaner.Step(context.Background()) {
		t.Error("cleaned above the last stable offset")
	}
}

func TestHighWatermarkAndRecoveryPointHoldBack(t *testing.T) {
	e := newEnv(t, nil)
	e.puts("a=1", "a=2")
	if err := e.log.Roll(); err != nil {
		t.Fatal(err)
	}
	if e.cleaner.Step(context.Background()) {
		t.Error("cleaned above the high watermark")
	}
	e.log.SetHighWatermark(2)
	if e.cleaner.Step(context.Background()) {
		t.Error("cleaned what is not durable")
	}
	if err := e.log.Tick(e.clock.Now()); err != nil {
		t.Fatal(err)
	}
	e.clean()
	e.expect("1-1[1:a=2]")
}

func TestSmallMapTakesSeveralRuns(t *testing.T) {
	e := newEnv(t, nil)
	e.conf.DedupeBytes = 5 * entrySize // four keys at 0.9
	for i := range 20 {
		e.puts(fmt.Sprintf("k%d=%d", i%7, i))
	}
	e.roll()
	var points []int64
	for e.cleaner.Step(context.Background()) {
		points = append(points, e.cleaned)
	}
	if len(points) != 5 || points[4] != 20 {
		t.Errorf("checkpoints %v", points)
	}
	// Every key's last value, and at most what a run could not see together.
	last := map[string]string{}
	if err := entries(e.log, func(b batch.Entry) error {
		for r := range b.Records(nil) {
			last[string(r.Key)] = string(r.Value)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for i := 13; i < 20; i++ {
		if k := fmt.Sprintf("k%d", i%7); last[k] != fmt.Sprint(i) {
			t.Errorf("%s = %s, want %d", k, last[k], i)
		}
	}
}

func TestMessageSets(t *testing.T) {
	e := newEnv(t, nil)
	var set []byte
	off := int64(0)
	add := func(magic int8, codec batch.Codec, recs ...kv) {
		o := batch.NewOptions()
		o.Codec, o.BaseOffset = codec, off
		b := batch.NewBuilder(o)
		for _, r := range recs {
			var v []byte
			if r.value != "" {
				v = []byte(r.value)
			}
			b.Append(start.UnixMilli(), []byte(r.key), v, nil)
		}
		var err error
		if set, err = batch.DownConvert(set, b.Build(), magic, nil); err != nil {
			t.Fatal(err)
		}
		off += int64(len(recs))
	}
	add(0, batch.None, kv{"a", "1"})
	add(0, batch.None, kv{"gone", ""})
	add(1, batch.Gzip, kv{"a", "2"}, kv{"b", "1"}, kv{"c", "1"})
	add(0, batch.Snappy, kv{"c", "2"}, kv{"b", "2"}, kv{"d", "1"})
	if _, err := e.log.Append(set, storage.Append{LeaderEpoch: 3}); err != nil {
		t.Fatal(err)
	}
	e.roll()
	e.clean()
	// As Apache Kafka 4.3.1 does: what stays becomes v2 batches of the same codec.
	e.expect("1-1(horizon+10000)[1:gone=null] 2-2(gzip)[2:a=2] 5-7(snappy)[5:c=2 6:b=2 7:d=1]")
	e.clock.Advance(11 * time.Second)
	e.puts("x=1")
	e.roll()
	e.clean()
	e.expect("2-2(gzip)[2:a=2] 5-7(snappy)[5:c=2 6:b=2 7:d=1] 8-8[8:x=1]")
}

// A tombstone in a message set goes at once when its segment is old.
func TestTombstonesOfMessageSets(t *testing.T) {
	e := newEnv(t, func(c *config.Topic) { c.CleanupCompact = false })
	e.puts("a=1")
	e.roll()
	o := batch.NewOptions()
	o.BaseOffset = 1
	b := batch.NewBuilder(o)
	b.Append(start.UnixMilli(), []byte("gone"), nil, nil)
	set, err := batch.DownConvert(nil, b.Build(), 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.log.Append(set, storage.Append{LeaderEpoch: 3}); err != nil {
		t.Fatal(err)
	}
	e.puts("b=1")
	e.roll()
	segs := e.log.Segments()
	// The first segment is clean and young, the second is old.
	if err := segs[0].SetLastModifiedMs(start.UnixMilli() + 11_000); err != nil {
		t.Fatal(err)
	}
	e.cleaned, e.known = 1, true
	c := *e.cfg
	c.CleanupCompact = true
	e.log.SetConfig(&c)
	e.clean()
	e.expect("0-0[0:a=1] 2-2[2:b=1]")
}

func TestUncleanableLogIsNamedAndPassedOver(t *testing.T) {
	e := newEnv(t, nil)
	e.puts("a=1", "a=2")
	e.roll()
	f, err := e.disk.Open(e.log.Segments()[0].LogPath(), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{0xff}, 75); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if e.cleaner.Step(context.Background()) {
			t.Fatal("a damaged log was cleaned")
		}
	}
	bad := e.cleaner.Uncleanable()
	if len(bad) != 1 || bad[0].Partition != part || e.failed != nil || e.cleaner.Stats.Failures.Load() != 1 {
		t.Fatalf("uncleanable %+v, disk error %v", bad, e.failed)
	}
	if s := e.lines.String(); !strings.Contains(s, "t-0") || strings.Count(s, "cannot be compacted") != 1 {
		t.Errorf("it was told as: %s", s)
	}
	for _, name := range e.files() {
		if strings.HasSuffix(name, segment.SuffixCleaned) {
			t.Errorf("%s was left", name)
		}
	}
	if n := e.cleaner.Stats.UncleanableBytes.Load(); n == 0 {
		t.Error("no uncleanable bytes")
	}
}

func TestFaults(t *testing.T) {
	for _, op := range []errfs.Op{errfs.Create, errfs.Write, errfs.Sync, errfs.Rename, errfs.SyncDir, errfs.ModTime} {
		for _, fault := range []error{syscall.ENOSPC, syscall.EIO} {
			for skip := range 6 {
				e := newEnv(t, nil)
				e.puts("a=1", "b=1", "a=2")
				e.roll()
				e.puts("b=2")
				e.roll()
				want := e.dump()
				e.log.Abandon()
				faulty := errfs.Wrap(e.disk)
				e.fs = faulty
				e.open(false)
				e.log.SetHighWatermark(e.log.LogEnd())
				if err := e.log.Flush(-1); err != nil {
					t.Fatal(err)
				}
				faulty.Set(errfs.Rule{Op: op, Skip: skip, Count: 1, Err: fault})
				done := e.cleaner.Step(context.Background())
				faulty.Set()
				name := fmt.Sprintf("%s %v after %d", op, fault, skip)
				if len(e.cleaner.Uncleanable()) > 0 {
					t.Errorf("%s: a disk error is no fault of the log", name)
				}
				if errors.Is(fault, syscall.EIO) && !done && e.failed == nil {
					t.Errorf("%s: nobody was told", name)
				}
				// Whatever happened: the log opens, with the old or the new content.
				e.log.Abandon()
				e.open(false)
				if got := e.dump(); got != want && got != "2-2[2:a=2] 3-3[3:b=2]" && !done {
					t.Errorf("%s: left %s", name, got)
				}
				for _, f := range e.files() {
					if strings.HasSuffix(f, segment.SuffixCleaned) || strings.HasSuffix(f, segment.SuffixSwap) {
						t.Errorf("%s: left %s", name, f)
					}
				}
			}
		}
	}
}

func TestLogChangesMeanwhile(t *testing.T) {
	change := map[string]func(*env) error{
		"truncated": func(e *env) error { _, err := e.log.Truncate(3); return err },
		"closed":    func(e *env) error { return e.log.Close() },
		"retained": func(e *env) error {
			_, err := e.log.SetLogStart(3)
			if err == nil {
				_, err = e.log.Retain(e.clock.Now())
			}
			return err
		},
		"deleted": func(e *env) error { return e.log.Delete() },
	}
	for name, f := range change {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, func(c *config.Topic) { c.FileDeleteDelayMs = 0 })
			e.puts("a=1", "b=1", "a=2")
			e.roll()
			e.puts("b=2", "c=1")
			e.roll()
			j, ok := e.cleaner.next()
			if !ok {
				t.Fatal("nothing to clean")
			}
			if err := f(e); err != nil {
				t.Fatal(err)
			}
			if err := e.log.RunDeletes(e.clock.Now()); err != nil {
				t.Fatal(err)
			}
			if e.cleaner.do(context.Background(), e.conf.sane(), j) {
				t.Error("it was cleaned")
			}
			if len(e.cleaner.Uncleanable()) > 0 || e.failed != nil || e.known {
				t.Errorf("uncleanable %v, disk %v, checkpoint %d", e.cleaner.Uncleanable(), e.failed, e.cleaned)
			}
		})
	}
}

func TestTruncationLowersTheCheckpoint(t *testing.T) {
	e := newEnv(t, nil)
	e.puts("a=1", "b=1", "a=2", "c=1")
	e.roll()
	e.clean()
	if e.cleaned != 4 {
		t.Fatalf("checkpoint %d", e.cleaned)
	}
	if _, err := e.log.Truncate(2); err != nil {
		t.Fatal(err)
	}
	e.puts("b=2", "b=3", "c=3")
	e.roll()
	e.clean()
	e.expect("3-3[3:b=3] 4-4[4:c=3]")
}

func TestRunStopsAndWakes(t *testing.T) {
	e := newEnv(t, nil)
	e.puts("a=1", "a=2")
	e.roll()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- e.cleaner.Run(ctx) }()
	for e.cleaner.Stats.Runs.Load() == 0 { // spins for as long as the run takes
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	e.expect("1-1[1:a=2]")
}
