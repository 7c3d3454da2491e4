package partition

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"testing"
	"time"

	"weir/internal/batch"
	"weir/internal/clock"
	"weir/internal/config"
	"weir/internal/isr"
	"weir/internal/storage"
	"weir/internal/storage/producer"
	"weir/internal/vfs/memfs"
)

var start = time.UnixMilli(1_700_000_000_000)

func topicConfig() *config.Topic {
	return &config.Topic{
		SegmentBytes: 1 << 20, SegmentMs: math.MaxInt64, RetentionMs: -1, RetentionBytes: -1,
		IndexIntervalBytes: 4096, SegmentIndexBytes: 1 << 20, FlushMessages: math.MaxInt64, FlushMs: math.MaxInt64,
		CleanupDelete: true, MaxMessageBytes: 1 << 20, FileDeleteDelayMs: 60_000, MinInsyncReplicas: 1,
		CompressionType: "producer", TimestampType: "CreateTime", TimestampBeforeMaxMs: math.MaxInt64, TimestampAfterMaxMs: math.MaxInt64,
	}
}

type env struct {
	*Replica
	fs     *memfs.FS
	clock  *clock.Manual
	failed []error
}

func newReplica(t *testing.T, change func(*config.Topic)) *env {
	t.Helper()
	cfg := topicConfig()
	if change != nil {
		change(cfg)
	}
	e := &env{fs: memfs.New(), clock: clock.NewManual(start)}
	e.Replica = New(Options{
		Topic: "t", ID: 0, Self: 1, Log: e.openLog(t, "/data/t-0", cfg), Clock: e.clock, Buffers: new(batch.Pool),
		Failed: func(_ *Replica, err error) { e.failed = append(e.failed, err) },
	})
	return e
}

func (e *env) openLog(t *testing.T, dir string, cfg *config.Topic) *storage.Log {
	t.Helper()
	if err := e.fs.MkdirAll("/data", 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := storage.Open(storage.Options{
		FS: e.fs, Dir: dir, Topic: "t", Config: cfg, HadCleanShutdown: true, Clock: e.clock, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (e *env) lead(epoch int32, isrSet ...int32) {
	e.Lead(isr.Assignment{Replicas: []int32{1, 2, 3}[:max(len(isrSet), 1)], ISR: isrSet, LeaderEpoch: epoch}, e.clock.Now())
}

func oneBatch(values ...string) []byte {
	b := batch.NewBuilder(batch.NewOptions())
	for _, v := range values {
		b.Append(start.UnixMilli(), nil, []byte(v), nil)
	}
	return b.Build()
}

func (e *env) produce(t *testing.T, acks Acks, values ...string) Appended {
	t.Helper()
	a, err := e.AppendAsLeader(AppendRequest{Records: oneBatch(values...), Version: 9, Acks: acks})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestOnlyTheLeaderAppendsAndAnswers(t *testing.T) {
	e := newReplica(t, nil)
	var moved *NotLeaderError
	_, err := e.AppendAsLeader(AppendRequest{Records: oneBatch("a"), Version: 9})
	if !errors.As(err, &moved) || moved.Leader != None {
		t.Fatalf("append before any role: %v", err)
	}
	e.Follow(7, 3, 1)
	if _, err = e.Read(ReadRequest{CurrentLeaderEpoch: None, LastFetchedEpoch: None}); !errors.As(err, &moved) || moved.Leader != 7 || moved.LeaderEpoch != 3 {
		t.Fatalf("read of a follower: %v", err)
	}
	e.lead(4, 1)
	if a := e.produce(t, AcksAll, "a", "b"); a.FirstOffset != 0 || a.LastOffset != 1 || a.LeaderEpoch != 4 {
		t.Fatalf("appended %+v", a)
	}
	e.lead(3, 1) // an older epoch changes nothing
	if s := e.Status(); !s.Leading || s.LeaderEpoch != 4 {
		t.Fatalf("after an older epoch: %+v", s)
	}
}

func TestEpochsAreChecked(t *testing.T) {
	e := newReplica(t, nil)
	e.lead(4, 1)
	for asked, want := range map[int32]string{None: "", 4: "", 3: "fenced", 5: "unknown"} {
		err := e.CheckEpoch(asked)
		var epoch *EpochError
		switch {
		case want == "" && err != nil, want != "" && !errors.As(err, &epoch), want != "" && epoch.Fenced() != (want == "fenced"):
			t.Errorf("epoch %d: %v, want %q", asked, err, want)
		}
	}
}

func TestCommitWaitsForTheISR(t *testing.T) {
	e := newReplica(t, func(c *config.Topic) { c.MinInsyncReplicas = 2 })
	e.lead(1, 1, 2)
	a := e.produce(t, AcksAll, "a", "b")
	c, err := e.WaitCommitted(a)
	if err != nil || c == nil {
		t.Fatalf("committed without the follower: %v %v", c, err)
	}
	if got, _ := e.Read(ReadRequest{Offset: 0, MaxBytes: 1 << 20, CurrentLeaderEpoch: None, LastFetchedEpoch: None}); got.Size != 0 {
		t.Fatal("consumer sees uncommitted records")
	}
	follower := func(off int64) {
		if !e.Fetched(isr.Fetch{Follower: 2, LeaderEpoch: e.Status().LeaderEpoch, BrokerEpoch: -1, Offset: off, Now: e.clock.Now()}) {
			t.Fatal("follower's fetch not accepted")
		}
	}
	follower(1)
	select {
	case <-c.Done():
		t.Fatal("committed after half of the records")
	default:
	}
	follower(2)
	<-c.Done()
	if c.Err() != nil || e.Log().HighWatermark() != 2 {
		t.Fatalf("err %v, high watermark %d", c.Err(), e.Log().HighWatermark())
	}
	if c, err := e.WaitCommitted(a); c != nil || err != nil {
		t.Fatalf("already committed, yet %v %v", c, err)
	}
}

func TestLostLeadershipEndsWaits(t *testing.T) {
	e := newReplica(t, nil)
	e.lead(1, 1, 2)
	c, err := e.WaitCommitted(e.produce(t, AcksAll, "a"))
	if err != nil || c == nil {
		t.Fatal(c, err)
	}
	e.Follow(2, 2, 1)
	<-c.Done()
	var moved *NotLeaderError
	if !errors.As(c.Err(), &moved) || moved.Leader != 2 {
		t.Fatalf("got %v", c.Err())
	}
}

func TestForgottenWaitIsNotTold(t *testing.T) {
	e := newReplica(t, nil)
	e.lead(1, 1, 2)
	first, _ := e.WaitCommitted(e.produce(t, AcksAll, "a"))
	second, _ := e.WaitCommitted(e.produce(t, AcksAll, "b"))
	e.Forget(first)
	e.Forget(first) // twice does no harm
	e.Fetched(isr.Fetch{Follower: 2, LeaderEpoch: e.Status().LeaderEpoch, BrokerEpoch: -1, Offset: 2, Now: e.clock.Now()})
	<-second.Done()
	select {
	case <-first.Done():
		t.Fatal("a forgotten wait was completed")
	default:
	}
}

func TestTooFewReplicasRefusesBeforeTheAppend(t *testing.T) {
	e := newReplica(t, func(c *config.Topic) { c.MinInsyncReplicas = 2 })
	e.Lead(isr.Assignment{Replicas: []int32{1, 2}, ISR: []int32{1}, LeaderEpoch: 1}, e.clock.Now())
	_, err := e.AppendAsLeader(AppendRequest{Records: oneBatch("a"), Version: 9, Acks: AcksAll})
	var few *NotEnoughReplicasError
	if !errors.As(err, &few) || few.AfterAppend || few.Need != 2 || e.Log().LogEnd() != 0 {
		t.Fatalf("%v, log end %d", err, e.Log().LogEnd())
	}
	e.produce(t, AcksLeader, "a") // acks=1 is accepted, but not visible
	if hw := e.Log().HighWatermark(); hw != 0 {
		t.Fatalf("high watermark %d", hw)
	}
	cfg := topicConfig()
	e.SetConfig(cfg) // min.insync.replicas=1: the record is committed now
	if hw := e.Log().HighWatermark(); hw != 1 {
		t.Fatalf("high watermark %d after lowering min.insync.replicas", hw)
	}
}

func TestNewLeaderDoesNotKnowTheLatestOffset(t *testing.T) {
	e := newReplica(t, nil)
	e.lead(1, 1, 2)
	e.produce(t, AcksLeader, "a", "b")
	e.Follow(2, 2, 1)
	e.Lead(isr.Assignment{Replicas: []int32{1, 2}, ISR: []int32{1, 2}, LeaderEpoch: 3}, e.clock.Now())
	var notYet *OffsetNotAvailableError
	if _, err := e.Latest(None, ReadUncommitted); !errors.As(err, &notYet) {
		t.Fatalf("got %v", err)
	}
	if end, err := e.Latest(None, ReadLogEnd); err != nil || end != 2 {
		t.Fatalf("log end %d %v", end, err)
	}
	if _, ok, err := e.OffsetForTimestamp(0, None, ReadUncommitted); ok || !errors.As(err, &notYet) {
		t.Fatalf("a record that may not be committed: %t %v", ok, err)
	}
	if _, ok, err := e.MaxTimestamp(None, ReadUncommitted); ok || !errors.As(err, &notYet) {
		t.Fatalf("a record that may not be committed: %t %v", ok, err)
	}
	e.Fetched(isr.Fetch{Follower: 2, LeaderEpoch: e.Status().LeaderEpoch, BrokerEpoch: -1, Offset: 1, Now: e.clock.Now()})
	if o, ok, err := e.OffsetForTimestamp(0, None, ReadUncommitted); !ok || o.Offset != 0 || err != nil {
		t.Fatalf("the first record is committed: %+v %t %v", o, ok, err)
	}
	e.Fetched(isr.Fetch{Follower: 2, LeaderEpoch: e.Status().LeaderEpoch, BrokerEpoch: -1, Offset: 2, Now: e.clock.Now()})
	if off, err := e.Latest(None, ReadUncommitted); err != nil || off != 2 {
		t.Fatalf("latest %d %v", off, err)
	}
}

func TestBoundsOfARead(t *testing.T) {
	e := newReplica(t, nil)
	e.lead(1, 1)
	e.produce(t, AcksAll, "a", "b", "c")
	if _, err := e.DeleteRecords(1); err != nil {
		t.Fatal(err)
	}
	for off, want := range map[int64]string{0: "out", 1: "data", 3: "empty", 4: "out", -1: "out"} {
		got, err := e.Read(ReadRequest{Offset: off, MaxBytes: 1 << 20, CurrentLeaderEpoch: None, LastFetchedEpoch: None})
		var out *storage.OutOfRangeError
		is := "empty"
		switch {
		case errors.As(err, &out):
			is = "out"
		case err != nil:
			t.Fatal(err)
		case got.Size > 0:
			is = "data"
		}
		got.Release()
		if is != want {
			t.Errorf("offset %d: %s, want %s", off, is, want)
		}
	}
}

func TestDivergingReaderIsTold(t *testing.T) {
	e := newReplica(t, nil)
	e.lead(1, 1)
	e.produce(t, AcksAll, "a", "b") // epoch 1: offsets 0 and 1
	e.lead(5, 1)
	e.produce(t, AcksAll, "c")
	read := func(off int64, epoch int32) Read {
		got, err := e.Read(ReadRequest{Offset: off, MaxBytes: 1 << 20, CurrentLeaderEpoch: None, LastFetchedEpoch: epoch})
		if err != nil {
			t.Fatal(err)
		}
		got.Release()
		return got
	}
	if got := read(3, 1); got.Diverging == nil || *got.Diverging != (storage.EpochEnd{Epoch: 1, EndOffset: 2}) {
		t.Errorf("epoch 1 at 3: %+v", got.Diverging)
	}
	if got := read(2, 1); got.Diverging != nil {
		t.Errorf("epoch 1 at 2 agrees, got %+v", got.Diverging)
	}
	if got := read(3, 3); got.Diverging == nil || *got.Diverging != (storage.EpochEnd{Epoch: 1, EndOffset: 2}) {
		t.Errorf("an epoch that never was: %+v", got.Diverging)
	}
}

func TestDeleteRecords(t *testing.T) {
	e := newReplica(t, nil)
	e.lead(1, 1)
	e.produce(t, AcksAll, "a", "b", "c")
	var out *storage.OutOfRangeError
	for _, off := range []int64{4, -7} {
		if _, err := e.DeleteRecords(off); !errors.As(err, &out) {
			t.Errorf("to %d: %v", off, err)
		}
	}
	if low, err := e.DeleteRecords(DeleteToHighWatermark); err != nil || low != 3 {
		t.Fatalf("to the high watermark: %d %v", low, err)
	}
	if a := e.produce(t, AcksAll, "d"); a.FirstOffset != 3 {
		t.Fatalf("the log goes on at %d", a.FirstOffset)
	}
	if low := e.LowWatermark(func(int32) (isr.Broker, bool) { return isr.Broker{}, true }); low != 3 {
		t.Fatalf("low watermark %d", low)
	}
}

func TestSwapLog(t *testing.T) {
	e := newReplica(t, nil)
	e.lead(1, 1)
	e.produce(t, AcksAll, "a", "b")
	next := e.openLog(t, "/other", topicConfig())
	if swapped, err := e.SwapLog(func(*storage.Log) (*storage.Log, error) { return nil, nil }); swapped || err != nil {
		t.Fatal("swapped for nothing", err)
	}
	if _, err := next.Append(raw(t, e.Log()), storage.Append{LeaderEpoch: math.MaxInt32, Origin: producer.OriginReplication, TxnVersion: -1}); err != nil {
		t.Fatal(err)
	}
	if swapped, err := e.SwapLog(func(*storage.Log) (*storage.Log, error) { return next, nil }); !swapped || err != nil {
		t.Fatal(swapped, err)
	}
	if e.Log() != next || next.HighWatermark() != 2 {
		t.Fatalf("high watermark of the new log %d", next.HighWatermark())
	}
	if a := e.produce(t, AcksAll, "c"); a.FirstOffset != 2 {
		t.Fatalf("append after the swap at %d", a.FirstOffset)
	}
}

// A reader that still holds the log that was moved away, when its files are gone, is answered from the new one: neither
// with an error nor by taking the replica offline.
func TestReadAcrossASwap(t *testing.T) {
	e := newReplica(t, nil)
	e.lead(1, 1)
	e.produce(t, AcksAll, "a", "b")
	old, next := e.Log(), e.openLog(t, "/other", topicConfig())
	if _, err := next.Append(raw(t, old), storage.Append{LeaderEpoch: math.MaxInt32, Origin: producer.OriginReplication, TxnVersion: -1}); err != nil {
		t.Fatal(err)
	}
	q := ReadRequest{MaxBytes: 1 << 20, CurrentLeaderEpoch: None, LastFetchedEpoch: 1}
	calls := 0
	got, err := onLog(e.Replica, func(log *storage.Log) (Read, error) {
		if calls++; calls == 1 {
			if swapped, err := e.SwapLog(func(*storage.Log) (*storage.Log, error) { return next, nil }); !swapped || err != nil {
				t.Fatal(swapped, err)
			}
			if err := old.Delete(); err != nil {
				t.Fatal(err)
			}
		}
		return e.readLog(log, q)
	})
	if err != nil || got.Size == 0 || got.HighWatermark != 2 || calls != 2 {
		t.Fatalf("read %+v, %v, from %d logs", got, err, calls)
	}
	got.Release()
	if len(e.failed) > 0 {
		t.Fatal(e.failed)
	}
	for name, look := range map[string]func() (int64, error){
		"largest timestamp": func() (int64, error) {
			o, _, err := e.MaxTimestamp(None, ReadUncommitted)
			return o.Offset, err
		},
		"offset by time": func() (int64, error) {
			o, _, err := e.OffsetForTimestamp(1, None, ReadUncommitted)
			return o.Offset, err
		},
		"oldest": func() (int64, error) {
			o, err := e.OffsetsBefore(math.MaxInt64, 1)
			return o[0] - 2, err
		},
	} {
		if o, err := look(); o != 0 || err != nil {
			t.Errorf("%s: offset %d, %v", name, o, err)
		}
	}
}

// raw is what a log holds.
func raw(t *testing.T, l *storage.Log) []byte {
	t.Helper()
	got, err := l.Read(0, 1<<20, l.LogEnd(), true)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Release()
	b, err := got.Regions[0].AppendTo(nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// counter is a Watcher.
type counter struct {
	n    int
	last News
}

func (c *counter) Changed(_ *Replica, n News) { c.n, c.last = c.n+1, n }

func TestWatchersAreTold(t *testing.T) {
	e := newReplica(t, nil)
	a, b := new(counter), new(counter)
	e.Watch(a)
	e.Watch(b)
	e.lead(1, 1)
	e.produce(t, AcksAll, "a")
	e.Unwatch(a)
	before := a.n
	e.produce(t, AcksAll, "b")
	if before < 2 || a.n != before || b.n <= before {
		t.Fatalf("told %d then %d, the other %d", before, a.n, b.n)
	}
	before = b.n
	if _, err := e.AppendAsLeader(AppendRequest{Records: oneBatch("c"), Version: 9, Acks: AcksLeader, Quiet: true}); err != nil {
		t.Fatal(err)
	}
	if b.n != before {
		t.Fatal("told of a quiet append")
	}
	if e.Tell(); b.n != before+1 || b.last != Readable {
		t.Fatalf("told %d times of a quiet append, last of %d", b.n-before, b.last)
	}
}

func TestWatchersAreToldWhatHasChanged(t *testing.T) {
	e := newReplica(t, nil)
	e.lead(1, 1, 2)
	w := new(counter)
	e.Watch(w)
	a := e.produce(t, AcksLeader, "a")
	if w.last != Readable {
		t.Fatalf("an append is news of kind %d", w.last)
	}
	e.Fetched(isr.Fetch{Follower: 2, LeaderEpoch: 1, BrokerEpoch: -1, Offset: a.LastOffset + 1, Now: e.clock.Now()})
	if w.last != Committed {
		t.Fatalf("a fetch that moves the high watermark is news of kind %d", w.last)
	}
}

// Appends of many goroutines beside role changes and reads: run with -race.
func TestConcurrentAppends(t *testing.T) {
	e := newReplica(t, nil)
	e.lead(1, 1)
	const writers, each = 8, 50
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				a, err := e.AppendAsLeader(AppendRequest{Records: oneBatch(fmt.Sprint(w, i)), Version: 9, Acks: AcksAll})
				if err != nil {
					t.Error(err)
					return
				}
				if c, err := e.WaitCommitted(a); c != nil || err != nil {
					t.Errorf("one replica, yet not committed at once: %v", err)
				}
			}
		})
	}
	wg.Go(func() {
		for range each {
			got, err := e.Read(ReadRequest{MaxBytes: 1 << 20, CurrentLeaderEpoch: None, LastFetchedEpoch: None})
			if err != nil {
				t.Error(err)
			}
			if got.HighWatermark > got.LogEnd {
				t.Errorf("high watermark %d above the log end %d", got.HighWatermark, got.LogEnd)
			}
			got.Release()
		}
	})
	wg.Wait()
	if hw := e.Log().HighWatermark(); hw != writers*each {
		t.Fatalf("high watermark %d", hw)
	}
}
