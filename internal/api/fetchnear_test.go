package api

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"weir/internal/isr"
	"weir/internal/records"
	"weir/internal/wire"
)

func broker(id int32, rack string) records.Versioned {
	r := records.NewRegisterBrokerRecord()
	r.BrokerID, r.BrokerEpoch, r.Fenced, r.Rack = id, int64(id), false, &rack
	return records.Versioned{Record: &r, Version: 3}
}

// consume fetches partition 0 as a consumer in a rack.
func (r *rig) consume(rack string, offset int64) *wire.FetchPartition {
	r.Helper()
	f := r.fetcher()
	f.NearRacks = true
	q := fetchQuery{order: []int32{0}, at: map[int32]int64{0: offset}}.request()
	q.Rack = rack
	res := f.Handle(r.Context(), r.call(), q).(*wire.FetchResponse)
	return &res.Topics[0].Partitions[0]
}

func TestConsumersAreSentToTheirRack(t *testing.T) {
	r := newRig(t, 1, 1, 2)
	r.change(broker(1, "east"), broker(2, "west"))
	r.append(0)
	r.append(0)
	r.follow(0, 1)
	for _, c := range []struct {
		rack   string
		offset int64
		want   int32
	}{
		{"west", 0, 2}, {"west", 1, 2},
		{"west", 2, -1},  // the follower has not got so far
		{"east", 0, -1},  // the leader's own
		{"north", 0, -1}, // nobody's
		{"", 0, -1},
	} {
		p := r.consume(c.rack, c.offset)
		if p.PreferredReadReplica != c.want || p.ErrorCode != 0 || p.Size() > 0 && c.want >= 0 {
			t.Errorf("%q at %d: sent to %d (want %d), error %d, %d bytes", c.rack, c.offset, p.PreferredReadReplica, c.want, p.ErrorCode, p.Size())
		}
	}
	fenced := records.NewBrokerRegistrationChangeRecord()
	fenced.BrokerID, fenced.BrokerEpoch, fenced.Fenced = 2, 2, 1
	r.change(records.Versioned{Record: &fenced})
	if p := r.consume("west", 0); p.PreferredReadReplica != -1 {
		t.Errorf("sent to %d, which is fenced", p.PreferredReadReplica)
	}
}

// A follower answers consumers up to the high watermark that it knows.
func TestConsumersReadFromFollowers(t *testing.T) {
	r := newRig(t, 1, 1)
	r.append(0)
	r.replica(0).Follow(2, 5, 5)
	if p := r.consume("", 0); p.ErrorCode != 0 || p.Size() == 0 || p.HighWatermark != 1 {
		t.Fatalf("error %d, %d bytes, high watermark %d", p.ErrorCode, p.Size(), p.HighWatermark)
	}
	q := fetchQuery{order: []int32{0}}.request()
	q.ReplicaID = 3 // a broker copies from leaders only
	res := r.fetcher().Handle(t.Context(), r.call(), q).(*wire.FetchResponse)
	if c := res.Topics[0].Partitions[0].ErrorCode; c != kerr.NotLeaderForPartition.Code {
		t.Fatalf("a follower's fetch: %d", c)
	}
}

// A follower that knows of a leader epoch before its leader does is held until the
// leader knows too, in a session and without.
func TestEarlyFollowersAreHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, 1, 2)
		r.append(0)
		fetch := func(wait time.Duration, done chan<- *wire.FetchResponse) {
			q := fetchQuery{order: []int32{0}, at: map[int32]int64{0: 0}, wait: wait, inSession: true}.request()
			q.ReplicaID = 2
			q.Topics[0].Partitions[0].CurrentLeaderEpoch = 5
			done <- r.fetcher().Handle(t.Context(), r.call(), q).(*wire.FetchResponse)
		}
		done := make(chan *wire.FetchResponse, 1)
		go fetch(500*time.Millisecond, done)
		synctest.Wait()
		select {
		case res := <-done:
			t.Fatalf("answered at once: %+v", res.Topics)
		default:
		}
		r.replica(0).Lead(isr.Assignment{Replicas: []int32{1, 2}, ISR: []int32{1, 2}, LeaderEpoch: 5, PartitionEpoch: 5}, r.clock.Now())
		synctest.Wait()
		select {
		case res := <-done:
			if p := res.Topics[0].Partitions[0]; p.ErrorCode != 0 || p.Size() == 0 {
				t.Fatalf("error %d, %d bytes", p.ErrorCode, p.Size())
			}
		default:
			t.Fatal("still held")
		}
		// The leader never comes to know it: refused when the wait is over.
		r.replica(0).Follow(3, 6, 6)
		go func() {
			q := fetchQuery{order: []int32{0}, wait: 100 * time.Millisecond}.request()
			q.ReplicaID = 2
			q.Topics[0].Partitions[0].CurrentLeaderEpoch = 7
			done <- r.fetcher().Handle(t.Context(), r.call(), q).(*wire.FetchResponse)
		}()
		if c := (<-done).Topics[0].Partitions[0].ErrorCode; c != kerr.UnknownLeaderEpoch.Code {
			t.Fatalf("refused with %d", c)
		}
	})
}

type fakeThrottle struct {
	exceeded bool
	passed   int64
}

func (f *fakeThrottle) Exceeded() bool { return f.exceeded }
func (f *fakeThrottle) Record(n int64) { f.passed += n }

// A follower that is not in sync gets no more of a throttled partition than the
// limit allows; the answer is no error.
func TestThrottledFollowers(t *testing.T) {
	r := newRig(t, 1, 1)
	r.append(0)
	r.replica(0).SetThrottled(true, false)
	limit := &fakeThrottle{}
	fetch := func(follower int32) wire.FetchPartition {
		f := r.fetcher()
		f.Throttle = limit
		q := fetchQuery{order: []int32{0}}.request()
		q.ReplicaID = follower
		return f.Handle(t.Context(), r.call(), q).(*wire.FetchResponse).Topics[0].Partitions[0]
	}
	if p := fetch(2); p.Size() == 0 || limit.passed != p.Size() {
		t.Fatalf("%d bytes, %d counted", p.Size(), limit.passed)
	}
	limit.exceeded = true
	if p := fetch(2); p.Size() != 0 || p.ErrorCode != 0 {
		t.Fatalf("%d bytes, error %d over the limit", p.Size(), p.ErrorCode)
	}
	if p := fetch(-1); p.Size() == 0 {
		t.Fatal("a consumer is throttled")
	}
}
