package api

import (
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/records"
	"weir/internal/replication"
	"weir/internal/wire"
)

// fakeStarts tells one follower's fetches what the test says.
type fakeStarts struct {
	next  chan struct{}
	just  bool
	asked []int32
}

func (f *fakeStarts) Starts(id int32) (<-chan struct{}, bool) {
	f.asked = append(f.asked, id)
	return f.next, f.just
}

// A follower's fetch is let go of when there is more for it to name, and waits for moments
// only while that may be so. A consumer's goes on.
func TestFetchOfFollowerEndsWhenMoreIsLed(t *testing.T) {
	for name, c := range map[string]struct {
		replica int32
		unknown bool // no broker is registered
		just    bool
		want    time.Duration
	}{
		"a follower's fetch":                    {replica: 2, want: time.Second},
		"a consumer's fetch":                    {replica: -1, want: time.Minute},
		"a follower's, just after":              {replica: 2, just: true, want: replication.StartWait},
		"a consumer's, just after that as well": {replica: -1, just: true, want: time.Minute},
		"of an id that no broker has":           {replica: 2, unknown: true, want: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 1, 1, 2)
				if !c.unknown {
					r.register(1, 2)
				}
				f := r.fetcher()
				starts := &fakeStarts{next: make(chan struct{}), just: c.just}
				f.Starts = starts
				req := fetchQuery{wait: time.Minute, order: all(1)}.request()
				req.ReplicaID = c.replica
				time.AfterFunc(time.Second, func() { close(starts.next) })
				start := time.Now()
				res := f.Handle(t.Context(), r.call(), req).(*wire.FetchResponse)
				if took := time.Since(start); took != c.want {
					t.Errorf("answered after %v, want %v", took, c.want)
				}
				if c.unknown && len(starts.asked) > 0 {
					t.Errorf("noted %v", starts.asked)
				}
				if p := rows(res)[0]; p.ErrorCode != 0 || p.Size() != 0 {
					t.Errorf("got %+v", p)
				}
				time.Sleep(time.Minute) // the timer has fired
			})
		})
	}
}

// A fetch that is ahead of this broker's metadata is held on: refused, it would come back
// only after a pause.
func TestFetchAheadIsHeldOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, 1, 2)
		r.register(1, 2)
		f := r.fetcher()
		f.Starts = &fakeStarts{next: make(chan struct{}), just: true}
		close(f.Starts.(*fakeStarts).next)
		req := fetchQuery{wait: time.Second, order: all(1)}.request()
		req.ReplicaID, req.Topics[0].Partitions[0].CurrentLeaderEpoch = 2, 5
		start := time.Now()
		f.Handle(t.Context(), r.call(), req)
		if took := time.Since(start); took != time.Second {
			t.Errorf("held for %v", took)
		}
	})
}

// register has brokers in the image.
func (r *rig) register(ids ...int32) {
	r.Helper()
	for _, id := range ids {
		b := records.NewRegisterBrokerRecord()
		b.BrokerID, b.Fenced, b.EndPoints = id, false, []records.RegisterBrokerRecordEndPoint{{Host: "h", Port: 1}}
		r.change(records.Versioned{Record: &b})
	}
}
