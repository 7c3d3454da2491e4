package api

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/batch"
	"weir/internal/image"
	"weir/internal/isr"
	"weir/internal/partition"
	"weir/internal/records"
	"weir/internal/wire"
)

// fetchQuery is a fetch of partitions of topic "t", by id.
type fetchQuery struct {
	session, epoch int32 // epoch -1 (the zero query's is set by request) is no session
	inSession      bool
	wait           time.Duration
	minBytes       int32
	at             map[int32]int64 // partition → offset
	order          []int32
	forget         []int32
}

func (q fetchQuery) request() *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.MaxWaitMillis, req.MinBytes, req.MaxBytes = 13, ms(q.wait), max(q.minBytes, 1), 50<<20
	req.ReplicaID = -1
	req.SessionID, req.SessionEpoch = q.session, -1
	if q.inSession {
		req.SessionEpoch = q.epoch
	}
	t := kmsg.NewFetchRequestTopic()
	t.TopicID = rigTopic
	for _, p := range q.order {
		f := kmsg.NewFetchRequestTopicPartition()
		f.Partition, f.FetchOffset, f.PartitionMaxBytes, f.CurrentLeaderEpoch, f.LastFetchedEpoch = p, q.at[p], 1<<20, -1, -1
		t.Partitions = append(t.Partitions, f)
	}
	if len(t.Partitions) > 0 {
		req.Topics = append(req.Topics, t)
	}
	if len(q.forget) > 0 {
		f := kmsg.NewFetchRequestForgottenTopic()
		f.TopicID, f.Partitions = rigTopic, q.forget
		req.ForgottenTopics = append(req.ForgottenTopics, f)
	}
	return req
}

func all(n int32) []int32 {
	var out []int32
	for p := range n {
		out = append(out, p)
	}
	return out
}

// rows are the partitions of an answer, in order.
func rows(r *wire.FetchResponse) map[int32]wire.FetchPartition {
	out := map[int32]wire.FetchPartition{}
	for _, t := range r.Topics {
		for _, p := range t.Partitions {
			out[p.Partition] = p
		}
	}
	return out
}

// A bubble of synctest ends only when every goroutine in it has ended: each of
// these tests also shows that a fetch leaves none behind.

func TestFetchWakesOnHighWatermark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, 1, 2)
		done := make(chan *wire.FetchResponse, 1)
		start := time.Now()
		go func() { done <- r.fetch(t.Context(), fetchQuery{wait: time.Minute, order: all(2)}) }()
		synctest.Wait()
		r.append(1)
		synctest.Wait()
		select {
		case <-done:
			t.Fatal("answered with records that follower 2 does not have")
		default:
		}
		time.Sleep(time.Second)
		r.follow(1, 1)
		res := <-done
		if p := rows(res)[1]; p.HighWatermark != 1 || p.Size() == 0 {
			t.Errorf("got %+v", p)
		}
		if took := time.Since(start); took != time.Second {
			t.Errorf("woken after %v", took)
		}
		res.Release()
	})
}

// A follower's fetch that moves the high watermark, and then has nothing to wait for but its time, tells of it at its end.
func TestFollowerIsToldTheHighWatermark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, 1, 2)
		r.append(0)
		req := fetchQuery{wait: 500 * time.Millisecond, order: all(1), at: map[int32]int64{0: 1}}.request()
		req.ReplicaID = 2
		res := r.fetcher().Handle(t.Context(), r.call(), req).(*wire.FetchResponse)
		if p := rows(res)[0]; p.ErrorCode != 0 || p.HighWatermark != 1 {
			t.Errorf("got %+v", p)
		}
		res.Release()
	})
}

// Who waits for records is woken when all batches of a request are appended.
func TestOneProduceIsOneFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, 1)
		done := make(chan *wire.FetchResponse, 1)
		go func() { done <- r.fetch(t.Context(), fetchQuery{wait: time.Minute, order: all(2)}) }()
		synctest.Wait()
		req := kmsg.NewPtrProduceRequest()
		req.Version, req.Acks, req.TimeoutMillis = 9, 1, 1000
		pt := kmsg.NewProduceRequestTopic()
		pt.Topic = "t"
		for p := range int32(2) {
			pp := kmsg.NewProduceRequestTopicPartition()
			pp.Partition, pp.Records = p, records1()
			pt.Partitions = append(pt.Partitions, pp)
		}
		req.Topics = append(req.Topics, pt)
		d := &produced{p: &Produce{Images: r.images, Replicas: r.replicas, Clock: r.clock}, c: r.call(), req: req, res: responseTo[*kmsg.ProduceResponse](req), img: r.images.Image(), acks: 1, quiet: several(req)}
		d.appendOne(mustTopic(t, r), &pt.Partitions[0], new(kmsg.ProduceResponseTopicPartition))
		synctest.Wait()
		select {
		case <-done:
			t.Fatal("answered after the first of two batches")
		default:
		}
		d.appendOne(mustTopic(t, r), &pt.Partitions[1], new(kmsg.ProduceResponseTopicPartition))
		d.tell()
		res := <-done
		if got := rows(res); len(got) != 2 {
			t.Errorf("got %+v", got)
		}
		res.Release()
	})
}

func mustTopic(t *testing.T, r *rig) *image.Topic {
	t.Helper()
	topic, ok := r.images.Image().Topic("t")
	if !ok {
		t.Fatal("no topic")
	}
	return topic
}

func TestFetchEndsWithItsTimeOrItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, 1)
		start := time.Now()
		r.fetch(t.Context(), fetchQuery{wait: 500 * time.Millisecond, order: all(1)})
		if took := time.Since(start); took != 500*time.Millisecond {
			t.Errorf("waited %v", took)
		}
		ctx, hangUp := context.WithCancel(t.Context())
		time.AfterFunc(100*time.Millisecond, hangUp)
		start = time.Now()
		r.fetch(ctx, fetchQuery{wait: time.Minute, order: all(1)})
		if took := time.Since(start); took != 100*time.Millisecond {
			t.Errorf("waited %v after the client had gone", took)
		}
	})
}

func TestFetchWaitsForMinBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, 1)
		done := make(chan *wire.FetchResponse, 1)
		go func() {
			done <- r.fetch(t.Context(), fetchQuery{wait: time.Minute, minBytes: int32(2 * len(records1())), order: all(2)})
		}()
		synctest.Wait()
		r.append(0)
		synctest.Wait()
		select {
		case <-done:
			t.Fatal("answered with half of what was asked for")
		default:
		}
		r.append(1)
		res := <-done
		if got := rows(res); got[0].HighWatermark != 1 || got[1].HighWatermark != 1 {
			t.Errorf("got %+v", got)
		}
		res.Release()
	})
}

// The topic is deleted while a client waits: the replica is retired before the
// image without the topic is published.
func TestFetchOfDeletedTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, 1)
		done := make(chan *wire.FetchResponse, 1)
		go func() { done <- r.fetch(t.Context(), fetchQuery{wait: time.Minute, order: all(1)}) }()
		synctest.Wait()
		r.replicas.drop(rigTopic, 0)
		synctest.Wait()
		gone := records.NewRemoveTopicRecord()
		gone.TopicID = rigTopic
		r.change(records.Versioned{Record: &gone})
		if p := rows(<-done)[0]; p.ErrorCode != kerr.UnknownTopicID.Code {
			t.Errorf("error %d, want %d", p.ErrorCode, kerr.UnknownTopicID.Code)
		}
	})
}

// Case K12: offsets that compaction has removed answer with what follows.
func TestFetchInHoles(t *testing.T) {
	r := newRig(t, 1, 1)
	r.replica(0).Follow(2, 5, 5)
	r.hole(0, 3, 0)  // 0–2 are gone
	r.hole(0, 10, 5) // 4–9 are gone, and of 10–15 all but the last
	r.replica(0).Lead(isr.Assignment{Replicas: []int32{1}, ISR: []int32{1}, LeaderEpoch: 6, PartitionEpoch: 6}, r.clock.Now())
	for offset, want := range map[int64]int64{0: 3, 2: 3, 3: 3, 4: 10, 9: 10, 10: 10, 12: 10, 15: 10} {
		res := r.fetch(t.Context(), fetchQuery{order: all(1), at: map[int32]int64{0: offset}})
		p := rows(res)[0]
		var raw []byte
		for _, g := range p.Regions {
			var err error
			if raw, err = g.AppendTo(raw); err != nil {
				t.Fatal(err)
			}
		}
		res.Release()
		b, _, err := batch.Next(raw)
		if p.ErrorCode != 0 || err != nil || b.BaseOffset() != want {
			t.Errorf("at %d: error %d, %v, want a batch at %d", offset, p.ErrorCode, err, want)
		}
	}
}

func TestIncrementalAnswerHoldsNewsOnly(t *testing.T) {
	r := newRig(t, 3, 1)
	ctx := t.Context()
	first := r.fetch(ctx, fetchQuery{inSession: true, order: all(3)})
	if first.SessionID == 0 || len(rows(first)) != 3 {
		t.Fatalf("first answer %+v", first)
	}
	next := func(q fetchQuery) map[int32]wire.FetchPartition {
		t.Helper()
		q.inSession, q.session = true, first.SessionID
		res := r.fetch(ctx, q)
		if res.ErrorCode != 0 {
			t.Fatalf("epoch %d: error %d", q.epoch, res.ErrorCode)
		}
		res.Release()
		return rows(res)
	}
	if got := next(fetchQuery{epoch: 1}); len(got) != 0 {
		t.Errorf("nothing happened, got %v", got)
	}
	r.append(2)
	if got := next(fetchQuery{epoch: 2}); len(got) != 1 || got[2].HighWatermark != 1 {
		t.Errorf("one partition has news, got %v", got)
	}
	if got := next(fetchQuery{epoch: 3}); len(got) != 1 {
		t.Errorf("the client has not moved on: the records come again; got %v", got)
	}
	if got := next(fetchQuery{epoch: 4, order: []int32{2}, at: map[int32]int64{2: 1}}); len(got) != 0 {
		t.Errorf("it has moved on, got %v", got)
	}
	r.append(0)
	if got := next(fetchQuery{epoch: 5, forget: []int32{0}}); len(got) != 0 {
		t.Errorf("the partition with news is forgotten, got %v", got)
	}
	r.append(0)
	if got := next(fetchQuery{epoch: 6}); len(got) != 0 {
		t.Errorf("it stays forgotten, got %v", got)
	}
	if got := r.fetch(ctx, fetchQuery{inSession: true, session: first.SessionID, epoch: 7, forget: []int32{1, 2}}); got.SessionID != 0 || got.ErrorCode != 0 {
		t.Errorf("an emptied session ends: %+v", got)
	}
	if r.sessions.Len() != 0 {
		t.Errorf("%d sessions are left", r.sessions.Len())
	}
}

// A fetch at an offset that is served by a partition which gets no share stays on
// the list and is served by the next one.
func TestFullAnswerGoesOnWithTheRest(t *testing.T) {
	r := newRig(t, 2, 1)
	r.append(0)
	r.append(1)
	req := fetchQuery{inSession: true, order: all(2)}.request()
	req.MaxBytes = 1
	res := r.fetcher().Handle(t.Context(), r.call(), req).(*wire.FetchResponse)
	a, b := rows(res)[0], rows(res)[1]
	if a.Size() == 0 || b.Size() != 0 || b.HighWatermark != 1 {
		t.Fatalf("the first partition comes whole, the second empty: %d %d", a.Size(), b.Size())
	}
	res.Release()
	req = fetchQuery{inSession: true, session: res.SessionID, epoch: 1, order: []int32{0}, at: map[int32]int64{0: 1}}.request()
	req.MaxBytes = 1
	res = r.fetcher().Handle(t.Context(), r.call(), req).(*wire.FetchResponse)
	if b := rows(res)[1]; b.Size() == 0 {
		t.Errorf("the second partition has its turn: %+v", rows(res))
	}
	res.Release()
}

// fetch.max.bytes bounds what anybody is given, and with it the min bytes that a
// fetch waits for (Kafka's KafkaApis.handleFetchRequest).
func TestFetchMaxBytesBoundsFollowersAndMinBytes(t *testing.T) {
	r := newRig(t, 3, 1)
	for p := range int32(3) {
		r.append(p)
	}
	for _, follower := range []int32{-1, 2} {
		f := r.fetcher()
		f.MaxBytes = 100 // one record and a piece of the next
		q := fetchQuery{order: all(3), wait: time.Hour, minBytes: 1 << 20}
		req := q.request()
		req.Version, req.ReplicaID = 14, follower
		res := f.Handle(t.Context(), r.call(), req).(*wire.FetchResponse)
		size := int64(0)
		for _, p := range rows(res) {
			size += p.Size()
		}
		if size == 0 || size > 100 {
			t.Errorf("replica %d got %d bytes", follower, size)
		}
		res.Release()
	}
}

// A leader that has lost and regained its leadership between the reading and the
// noting of a fetch believes nothing of it: its log may have been cut meanwhile.
func TestFetchOfAnotherLeadership(t *testing.T) {
	r := newRig(t, 1, 1, 2)
	r.append(0)
	p := r.replica(0)
	got, err := p.Read(partition.ReadRequest{Offset: 1, MaxBytes: 1, Isolation: partition.ReadLogEnd, CurrentLeaderEpoch: 4, LastFetchedEpoch: partition.None})
	if err != nil || got.LeaderEpoch != 4 {
		t.Fatalf("%+v %v", got, err)
	}
	p.Follow(2, 5, 5)
	p.Lead(isr.Assignment{Replicas: []int32{1, 2}, ISR: []int32{1, 2}, LeaderEpoch: 6, PartitionEpoch: 6}, r.clock.Now())
	seen := isr.Fetch{Follower: 2, LeaderEpoch: got.LeaderEpoch, BrokerEpoch: -1, Offset: 1, Now: r.clock.Now()}
	if p.Fetched(seen) || p.Log().HighWatermark() != 0 {
		t.Errorf("believed: the high watermark is %d", p.Log().HighWatermark())
	}
	if seen.LeaderEpoch = 6; !p.Fetched(seen) || p.Log().HighWatermark() != 1 {
		t.Errorf("not believed: the high watermark is %d", p.Log().HighWatermark())
	}
}
