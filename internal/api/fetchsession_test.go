package api

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/clock"
	"weir/internal/partition"
)

func sessionRequest(version int16, id, epoch int32) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.SessionID, req.SessionEpoch = version, id, epoch
	return req
}

// begun starts and ends the fetch that makes a session.
func begun(t *testing.T, c *Sessions, version int16, follower bool, partitions int) int32 {
	t.Helper()
	req := sessionRequest(version, 0, 0)
	if follower {
		req.ReplicaID, req.ReplicaState.ID = 1, 1
	}
	s, full, err := c.begin(req)
	if err != nil || !full {
		t.Fatal(full, err)
	}
	for p := range partitions {
		k := partKey{topic: "t", partition: int32(p)}
		s.parts[k] = &fetchPart{s: s, key: k}
	}
	id := c.keep(s)
	c.end(s)
	return id
}

func TestSessionEpochs(t *testing.T) {
	c := NewSessions(clock.NewManual(time.UnixMilli(1e12)), 10)
	id := begun(t, c, 12, false, 1)
	for _, x := range []struct {
		what      string
		version   int16
		id, epoch int32
		full      bool
		err       *kerr.Error
	}{
		{"unknown id", 12, id + 1, 1, false, kerr.FetchSessionIDNotFound},
		{"too far", 12, id, 2, false, kerr.InvalidFetchSessionEpoch},
		{"ids in a session of names", 13, id, 1, false, kerr.FetchSessionTopicIDError},
		{"right", 12, id, 1, false, nil},
		{"again", 12, id, 1, false, kerr.InvalidFetchSessionEpoch},
		{"the next", 12, id, 2, false, nil},
		{"no session, before v7", 6, id, 3, true, nil},
		{"the session is untouched by it", 12, id, 3, false, nil},
		{"a full fetch without a session ends it", 12, id, -1, true, nil},
		{"it is gone", 12, id, 4, false, kerr.FetchSessionIDNotFound},
	} {
		s, full, err := c.begin(sessionRequest(x.version, x.id, x.epoch))
		if x.err != nil {
			if !errors.Is(err, x.err) {
				t.Errorf("%s: %v, want %v", x.what, err, x.err)
			}
			continue
		}
		if err != nil || full != x.full {
			t.Errorf("%s: full %t, %v", x.what, full, err)
			continue
		}
		c.end(s)
	}
}

func TestSessionEpochWraps(t *testing.T) {
	if got := nextSessionEpoch(math.MaxInt32); got != 1 {
		t.Errorf("after the last epoch comes %d", got)
	}
}

// Two fetches of one session at a time are a client's mistake: the second is
// refused, the first is not disturbed.
func TestSessionIsUsedByOneFetchAtATime(t *testing.T) {
	c := NewSessions(clock.NewManual(time.UnixMilli(1e12)), 10)
	id := begun(t, c, 13, false, 1)
	s, _, err := c.begin(sessionRequest(13, id, 1))
	if err != nil {
		t.Fatal(err)
	}
	for _, epoch := range []int32{1, 2} {
		if _, _, err := c.begin(sessionRequest(13, id, epoch)); !errors.Is(err, kerr.InvalidFetchSessionEpoch) {
			t.Errorf("epoch %d meanwhile: %v", epoch, err)
		}
	}
	c.end(s)
	if s, _, err = c.begin(sessionRequest(13, id, 2)); err != nil {
		t.Errorf("the next one: %v", err)
	}
	// The client starts anew while the fetch still waits: the session goes when it ends.
	n, _, err := c.begin(sessionRequest(13, id, 0))
	if err != nil || c.Len() != 0 {
		t.Fatalf("%v, %d sessions", err, c.Len())
	}
	if s.parts == nil {
		t.Error("closed under a running fetch")
	}
	c.end(s)
	if s.parts != nil {
		t.Error("not closed after its fetch")
	}
	c.end(n)
}

func TestSessionEviction(t *testing.T) {
	const consumer, follower = false, true
	type old struct {
		follower   bool
		partitions int
		age, idle  time.Duration
	}
	for _, x := range []struct {
		what       string
		old        []old
		follower   bool
		partitions int
		granted    bool
	}{
		{"there is room", nil, consumer, 1, true},
		{"the other is young", []old{{consumer, 1, time.Minute, time.Minute}}, consumer, 100, false},
		{"the other is not used any more", []old{{consumer, 100, 3 * time.Minute, 3 * time.Minute}}, consumer, 1, true},
		{"the other is old, in use and smaller", []old{{consumer, 1, 3 * time.Minute, 0}}, consumer, 2, true},
		{"the other is old, in use and as large", []old{{consumer, 2, 3 * time.Minute, 0}}, consumer, 2, false},
		{"a follower before a consumer", []old{{consumer, 100, 0, 0}}, follower, 1, true},
		{"a consumer after a follower", []old{{follower, 1, 3 * time.Minute, 0}}, consumer, 100, false},
	} {
		m := clock.NewManual(time.UnixMilli(1e12))
		c := NewSessions(m, 1)
		for _, o := range x.old {
			id := begun(t, c, 12, o.follower, o.partitions)
			m.Advance(o.age - o.idle)
			s, _, err := c.begin(sessionRequest(12, id, 1))
			if err != nil {
				t.Fatal(err)
			}
			c.end(s)
			m.Advance(o.idle + time.Millisecond)
		}
		if id := begun(t, c, 12, x.follower, x.partitions); (id != 0) != x.granted {
			t.Errorf("%s: session id %d", x.what, id)
		}
		if c.Len() != 1 {
			t.Errorf("%s: %d sessions in one slot", x.what, c.Len())
		}
	}
	if id := begun(t, NewSessions(clock.NewManual(time.UnixMilli(1e12)), 0), 12, follower, 1); id != 0 {
		t.Error("a session without a slot")
	}
}

// A forgotten partition is watched no longer, and an ended session neither.
func TestForgottenPartitionsAreNotWatched(t *testing.T) {
	r := newRig(t, 2, 1)
	first := r.fetch(t.Context(), fetchQuery{inSession: true, order: all(2)})
	s := r.sessions.byID[first.SessionID].fetchSession
	p := s.parts[partKey{id: rigTopic, partition: 0}]
	r.fetch(t.Context(), fetchQuery{inSession: true, session: first.SessionID, epoch: 1, forget: []int32{0}})
	r.append(0)
	if p.replica != nil || len(s.pending()) != 0 {
		t.Errorf("forgotten, yet told of a change")
	}
	r.fetch(t.Context(), fetchQuery{inSession: true, session: first.SessionID, epoch: -1})
	r.append(1)
	if len(s.pending()) != 0 {
		t.Errorf("an ended session is told of a change")
	}
}

// A high watermark alone is no reason to answer a follower, nor to read again while it waits.
func TestFollowersSleepThroughHighWatermarks(t *testing.T) {
	for _, x := range []struct {
		follower bool
		news     partition.News
		woken    bool
	}{
		{true, partition.Committed, false},
		{true, partition.Readable, true},
		{false, partition.Committed, true},
		{false, partition.Readable, true},
	} {
		s := newFetchSession(x.follower)
		p := &fetchPart{s: s}
		p.Changed(nil, x.news)
		if woken := len(s.wake) == 1; woken != x.woken {
			t.Errorf("%+v: woken %t", x, woken)
		}
		if len(s.take()) != 1 {
			t.Errorf("%+v: the partition is not to be read", x)
		}
	}
}
