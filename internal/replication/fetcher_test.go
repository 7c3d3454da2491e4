package replication

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/batch"
	"weir/internal/clock"
	"weir/internal/isr"
	"weir/internal/partition"
	"weir/internal/peer"
	"weir/internal/records"
	"weir/internal/storage"
	"weir/internal/uuid"
	"weir/internal/vfs/memfs"
)

// fakeLeader answers Fetch and ListOffsets out of one replica, without sessions.
// It holds a fetch that finds nothing until there is something, or ctx ends.
type fakeLeader struct {
	*partition.Replica
	mu      sync.Mutex
	err     error // every request fails with it
	fetches int
	changed chan struct{}
}

func newLeader(t *testing.T, c clock.Clock) *fakeLeader {
	t.Helper()
	fs := memfs.New()
	if err := fs.MkdirAll("/l", 0o755); err != nil {
		t.Fatal(err)
	}
	e := newEnv(t)
	log, err := storage.Open(storage.Options{
		FS: fs, Dir: "/l/a-0", Topic: "a", Config: e.topicConfig(e.img, "a"), HadCleanShutdown: true, Clock: c, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	l := &fakeLeader{changed: make(chan struct{}, 1)}
	l.Replica = partition.New(partition.Options{Topic: "a", TopicID: t1, Self: 2, Log: log, Clock: c, Buffers: new(batch.Pool)})
	l.Replica.Watch(l)
	return l
}

func (l *fakeLeader) Changed(*partition.Replica, partition.News) { poke(l.changed) }
func (l *fakeLeader) Close()                                     {}

func (l *fakeLeader) fail(err error) {
	l.mu.Lock()
	l.err = err
	l.mu.Unlock()
}

func (l *fakeLeader) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fetches
}

func (l *fakeLeader) Do(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	l.mu.Lock()
	err := l.err
	l.fetches++
	l.mu.Unlock()
	if err != nil {
		return nil, err
	}
	switch q := req.(type) {
	case *kmsg.FetchRequest:
		return l.fetch(ctx, q)
	case *kmsg.ListOffsetsRequest:
		res := q.ResponseKind().(*kmsg.ListOffsetsResponse)
		p := kmsg.NewListOffsetsResponseTopicPartition()
		if p.Offset = l.Log().LogEnd(); q.Topics[0].Partitions[0].Timestamp == -2 {
			p.Offset = l.Log().LogStart()
		}
		res.Topics = append(res.Topics, kmsg.ListOffsetsResponseTopic{Topic: "a", Partitions: []kmsg.ListOffsetsResponseTopicPartition{p}})
		return res, nil
	}
	return nil, errors.New("unexpected request")
}

func (l *fakeLeader) fetch(ctx context.Context, q *kmsg.FetchRequest) (kmsg.Response, error) {
	res := q.ResponseKind().(*kmsg.FetchResponse)
	for {
		res.Topics = nil
		some := false
		for _, t := range q.Topics {
			rt := kmsg.FetchResponseTopic{TopicID: t.TopicID}
			for _, p := range t.Partitions {
				rp := l.read(p)
				some = some || rp.ErrorCode != 0 || len(rp.RecordBatches) > 0 || rp.DivergingEpoch.EndOffset >= 0
				rt.Partitions = append(rt.Partitions, rp)
			}
			res.Topics = append(res.Topics, rt)
		}
		if some {
			return res, nil
		}
		select {
		case <-l.changed:
		case <-time.After(time.Duration(q.MaxWaitMillis) * time.Millisecond):
			return res, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (l *fakeLeader) read(p kmsg.FetchRequestTopicPartition) kmsg.FetchResponseTopicPartition {
	rp := kmsg.NewFetchResponseTopicPartition()
	rp.Partition = p.Partition
	got, err := l.Read(partition.ReadRequest{
		Offset: p.FetchOffset, MaxBytes: int(p.PartitionMaxBytes), MinOne: true, Isolation: partition.ReadLogEnd,
		CurrentLeaderEpoch: p.CurrentLeaderEpoch, LastFetchedEpoch: p.LastFetchedEpoch,
	})
	var epoch *partition.EpochError
	var out *storage.OutOfRangeError
	switch {
	case errors.As(err, &epoch) && epoch.Fenced():
		rp.ErrorCode = kerr.FencedLeaderEpoch.Code
		return rp
	case errors.As(err, &epoch):
		rp.ErrorCode = kerr.UnknownLeaderEpoch.Code
		return rp
	case errors.As(err, &out):
		rp.ErrorCode = kerr.OffsetOutOfRange.Code
		return rp
	case err != nil:
		rp.ErrorCode = kerr.NotLeaderForPartition.Code
		return rp
	}
	defer got.Release()
	if got.Diverging != nil {
		rp.DivergingEpoch.Epoch, rp.DivergingEpoch.EndOffset = got.Diverging.Epoch, got.Diverging.EndOffset
		return rp
	}
	l.Fetched(isr.Fetch{Follower: self, LeaderEpoch: got.LeaderEpoch, BrokerEpoch: -1, Offset: p.FetchOffset, LogStart: p.LogStartOffset, Now: time.Now()})
	rp.HighWatermark, rp.LogStartOffset = got.HighWatermark, got.LogStart
	for _, g := range got.Regions {
		if rp.RecordBatches, err = g.AppendTo(rp.RecordBatches); err != nil {
			panic(err)
		}
	}
	return rp
}

func (l *fakeLeader) lead(epoch int32) {
	l.Lead(isr.Assignment{Replicas: []int32{2, 1}, ISR: []int32{2}, LeaderEpoch: epoch, PartitionEpoch: epoch}, time.Now())
}

// follow runs test in a bubble of virtual time with a Manager that copies from leader.
func follow(t *testing.T, test func(t *testing.T, e *env, l *fakeLeader)) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeader(t, clock.System{})
		e := newEnv(t)
		e.o.Clock = clock.System{}
		e.o.Connect = func(int32, string) Peer { return l }
		e.o.Fetch = FetchSettings{Fetchers: 1, MaxWait: 500 * time.Millisecond, MinBytes: 1, MaxBytes: 1 << 20, PartitionMax: 1 << 20, Backoff: time.Second, Timeout: 30 * time.Second}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- e.fetchers.run(ctx) }()
		defer func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}()
		test(t, e, l)
	})
}

// elect gives a partition another leader.
func elect(id uuid.UUID, p, leader int32) records.Metadata {
	r := records.NewPartitionChangeRecord()
	r.TopicID, r.PartitionID, r.Leader = id, p, leader
	return &r
}

func (l *fakeLeader) produce(t *testing.T, values ...string) {
	t.Helper()
	for _, v := range values {
		b := batch.NewBuilder(batch.NewOptions())
		b.Append(time.Now().UnixMilli(), nil, []byte(v), nil)
		if _, err := l.AppendAsLeader(partition.AppendRequest{Records: b.Build(), Version: 9, Acks: partition.AcksLeader}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFetcherCopiesAndCommits(t *testing.T) {
	follow(t, func(t *testing.T, e *env, l *fakeLeader) {
		l.lead(3)
		l.produce(t, "a", "b")
		e.replay(topic("a", t1), part(t1, 0, 2, 3, dirA, 2, 1))
		synctest.Wait()
		mine := e.get(t1, 0)
		if end := mine.Log().LogEnd(); end != 2 {
			t.Fatalf("log end %d", end)
		}
		l.produce(t, "c") // while the fetch is held
		synctest.Wait()
		if end := mine.Log().LogEnd(); end != 3 {
			t.Fatalf("log end %d", end)
		}
		time.Sleep(time.Second) // virtual: the next answer brings the high watermark
		if hw := mine.Log().HighWatermark(); hw != 3 {
			t.Fatalf("high watermark %d", hw)
		}
	})
}

// A leader that is behind is asked again soon, and one that is gone with growing
// pauses; what is given to a fetcher meanwhile is named by the next fetch, on the same
// connection.
func TestFetcherWaits(t *testing.T) {
	follow(t, func(t *testing.T, e *env, l *fakeLeader) {
		l.lead(3)
		l.produce(t, "a")
		b := records.NewRegisterBrokerRecord()
		b.BrokerID, b.BrokerEpoch = 2, 8
		e.replay(&b, topic("a", t1), part(t1, 0, 2, 4, dirA, 2, 1)) // the leader does not know epoch 4 yet
		time.Sleep(35 * time.Millisecond)
		l.lead(4)
		time.Sleep(41 * time.Millisecond) // the third pause
		if end := e.get(t1, 0).Log().LogEnd(); end != 1 {
			t.Fatalf("log end %d after the leader has come to know its epoch", end)
		}
		l.fail(&peer.Error{Kind: peer.Refused, Gone: true})
		time.Sleep(600 * time.Millisecond)
		if b, _ := e.img.Broker(2); !e.Gone(b) {
			t.Fatal("the leader's end was not noticed")
		}
		before := l.count()
		time.Sleep(10 * time.Second)
		if n := l.count() - before; n > 12 {
			t.Fatalf("%d attempts in ten seconds", n)
		}
		l.fail(nil)
		time.Sleep(time.Second)
		if b, _ := e.img.Broker(2); e.Gone(b) {
			t.Fatal("the leader is back and still counts as gone")
		}
		l.lead(5)
		l.produce(t, "b")
		e.replay(elect(t1, 0, 2))
		before = l.count()
		time.Sleep(500 * time.Millisecond)
		if end := e.get(t1, 0).Log().LogEnd(); end != 2 {
			t.Fatalf("log end %d after the leader's wait", end)
		}
		if n := l.count() - before; n > 4 {
			t.Fatalf("%d fetches to take up one partition", n)
		}
	})
}

func TestFetcherFindsItsPlace(t *testing.T) {
	follow(t, func(t *testing.T, e *env, l *fakeLeader) {
		l.lead(3)
		l.produce(t, "a", "b", "c", "d")
		if _, err := l.DeleteRecords(l.Log().HighWatermark()); err != nil {
			t.Fatal(err)
		}
		l.produce(t, "e")
		e.replay(topic("a", t1), part(t1, 0, 2, 3, dirA, 2, 1)) // empty here: offset 0 is below the leader's start
		synctest.Wait()
		mine := e.get(t1, 0)
		if o := mine.Log().Offsets(); o.LogStart != 4 || o.LogEnd != 5 {
			t.Fatalf("%+v", o)
		}
	})
}

// A replica that becomes leader is not copied any more.
func TestFetcherEndsWithTheRole(t *testing.T) {
	follow(t, func(t *testing.T, e *env, l *fakeLeader) {
		l.lead(3)
		e.replay(topic("a", t1), part(t1, 0, 2, 3, dirA, 2, 1))
		synctest.Wait()
		e.replay(elect(t1, 0, 1))
		time.Sleep(time.Second)
		e.fetchers.mu.Lock()
		left := len(e.fetchers.set)
		e.fetchers.mu.Unlock()
		if left != 0 {
			t.Fatalf("%d fetchers are left", left)
		}
		before := l.count()
		time.Sleep(10 * time.Second)
		if n := l.count() - before; n != 0 {
			t.Fatalf("%d more fetches", n)
		}
	})
}

// More fetchers, or fewer, take partitions over from each other while they are copied (num.replica.fetchers).
func TestFetchersAreResized(t *testing.T) {
	follow(t, func(t *testing.T, e *env, l *fakeLeader) {
		l.lead(3)
		e.replay(topic("a", t1), part(t1, 0, 2, 3, dirA, 2, 1))
		mine := e.get(t1, 0)
		slots := 2
		for slotOf(keyOf(mine), slots) == 0 {
			slots++
		}
		n := strconv.Itoa(slots)
		for i, c := range []struct {
			record records.Metadata
			slot   int
		}{
			{brokerSetting("1", "num.replica.fetchers", "1"), 0},
			{brokerSetting("", "num.replica.fetchers", n), 0}, // the broker's own counts
			{brokerSetting("1", "num.replica.fetchers", n), slotOf(keyOf(mine), slots)},
			{brokerSetting("1", "num.replica.fetchers", "1"), 0},
		} {
			e.replay(c.record)
			l.produce(t, "v")
			time.Sleep(time.Second) // virtual: the fetch under way ends
			e.fetchers.mu.Lock()
			used := slices.Collect(maps.Keys(e.fetchers.set))
			e.fetchers.mu.Unlock()
			if len(used) != 1 || used[0] != (fetcherKey{2, c.slot}) {
				t.Fatalf("step %d: fetchers %v, want slot %d alone", i, used, c.slot)
			}
			l.produce(t, "w")
			time.Sleep(time.Second)
			if end, want := mine.Log().LogEnd(), int64(2*i+2); end != want {
				t.Fatalf("step %d: log end %d, want %d", i, end, want)
			}
		}
	})
}
