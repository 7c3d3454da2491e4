package follower

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func options() Options {
	return Options{Self: 2, MaxWaitMs: 500, MinBytes: 1, MaxBytes: 10 << 20, PartitionMax: 1 << 20, BackoffMs: 10, BackoffMaxMs: 1000}
}

func k(n byte) Key { return Key{Topic: [16]byte{n}, Partition: 0} }

var v18 = Version{Fetch: 18, BrokerEpoch: 7}

// named lists the partitions that a request names, as topic@offset.
func named(req *kmsg.FetchRequest) (out []string) {
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			out = append(out, fmt.Sprintf("%d@%d", t.TopicID[0], p.FetchOffset))
		}
	}
	return out
}

func forgotten(req *kmsg.FetchRequest) (out []byte) {
	for _, t := range req.ForgottenTopics {
		out = append(out, t.TopicID[0])
	}
	return out
}

func answer(session int32, rows ...kmsg.FetchResponseTopic) *kmsg.FetchResponse {
	res := kmsg.NewPtrFetchResponse()
	res.SessionID, res.Topics = session, rows
	return res
}

func row(n byte, code int16, records string) kmsg.FetchResponseTopic {
	t := kmsg.NewFetchResponseTopic()
	t.TopicID = [16]byte{n}
	p := kmsg.NewFetchResponseTopicPartition()
	p.ErrorCode, p.RecordBatches, p.HighWatermark = code, []byte(records), 5
	t.Partitions = append(t.Partitions, p)
	return t
}

func (c *Core) must(t *testing.T, now int64, want ...string) *kmsg.FetchRequest {
	t.Helper()
	req, at := c.Request(now, v18)
	if req == nil {
		t.Fatalf("no request; again at %d", at)
	}
	if got := named(req); !slices.Equal(got, want) {
		t.Fatalf("names %v, want %v", got, want)
	}
	return req
}

func (c *Core) none(t *testing.T, now, want int64) {
	t.Helper()
	if req, at := c.Request(now, v18); req != nil || at != want {
		t.Fatalf("request %v, again at %d, want none and %d", req, at, want)
	}
}

func TestSessionNamesOnlyWhatMoved(t *testing.T) {
	c := New(options())
	c.none(t, 0, math.MaxInt64)
	c.Add(k(1), Start{LeaderEpoch: 3, Offset: 10, LastEpoch: 2})
	c.Add(k(2), Start{LeaderEpoch: 3, Offset: 20, LastEpoch: 2})
	req := c.must(t, 0, "1@10", "2@20")
	if req.SessionEpoch != 0 || req.ReplicaState.ID != 2 || req.ReplicaState.Epoch != 7 || req.Topics[0].Partitions[0].LastFetchedEpoch != 2 {
		t.Fatalf("%+v", req)
	}
	acts := c.Response(1, answer(99, row(1, 0, "x"), row(2, 0, "")))
	if len(acts) != 2 || acts[0].Kind != Append || string(acts[0].Records) != "x" {
		t.Fatalf("%+v", acts)
	}
	c.Done(1, Outcome{Action: acts[0], Offset: 11, LastEpoch: 3})
	c.Done(1, Outcome{Action: acts[1], Offset: 20, LastEpoch: 2})
	if req = c.must(t, 1, "1@11"); req.SessionID != 99 || req.SessionEpoch != 1 {
		t.Fatalf("session %d epoch %d", req.SessionID, req.SessionEpoch)
	}
	c.Response(2, answer(99))
	if req = c.must(t, 2); req.SessionEpoch != 2 { // nothing moved: an empty fetch waits in the session
		t.Fatalf("epoch %d", req.SessionEpoch)
	}
	c.Remove(k(2))
	c.Response(3, answer(99))
	if req = c.must(t, 3); !slices.Equal(forgotten(req), []byte{2}) {
		t.Fatalf("forgets %v", forgotten(req))
	}
}

// A partition that is given anew while a fetch is under way is not moved by the
// answer to the old one, and is not forgotten by the request that names it.
func TestAnswerOfAnOlderEpochIsVoid(t *testing.T) {
	c := New(options())
	c.Add(k(1), Start{LeaderEpoch: 3, Offset: 10})
	c.must(t, 0, "1@10")
	c.Add(k(1), Start{LeaderEpoch: 4, Offset: 8})
	if acts := c.Response(1, answer(99, row(1, 0, "old"))); len(acts) != 0 {
		t.Fatalf("%+v", acts)
	}
	if req := c.must(t, 1, "1@8"); len(req.ForgottenTopics) != 0 || req.Topics[0].Partitions[0].CurrentLeaderEpoch != 4 {
		t.Fatalf("%+v", req)
	}
	acts := c.Response(2, answer(99, row(1, 0, "new")))
	c.Add(k(1), Start{LeaderEpoch: 5, Offset: 9})
	c.Done(2, Outcome{Action: acts[0], Offset: 100}) // of leader epoch 4
	c.must(t, 2, "1@9")
}

func TestRefusedPartitionWaitsLongerEachTime(t *testing.T) {
	c := New(options())
	c.Add(k(1), Start{LeaderEpoch: 3, Offset: 10})
	c.Add(k(2), Start{LeaderEpoch: 3, Offset: 20})
	c.must(t, 0, "1@10", "2@20")
	now := int64(0)
	c.Response(now, answer(99, row(1, kerr.UnknownLeaderEpoch.Code, "")))
	for _, pause := range []int64{10, 20, 40, 80, 160, 320, 640, 1000, 1000} {
		req, _ := c.Request(now, v18)
		if req == nil || len(named(req)) != 0 || !slices.Equal(forgotten(req), []byte{1}) {
			t.Fatalf("at %d: %v, forgets %v", now, named(req), forgotten(req))
		}
		c.Response(now, answer(99))
		if next := c.nextRevival(); next != now+pause {
			t.Fatalf("again at %d, want a pause of %d after %d", next, pause, now)
		}
		now += pause
		c.must(t, now, "1@10")
		c.Response(now, answer(99, row(1, kerr.NotLeaderForPartition.Code, "")))
	}
	c.Response(now, answer(99))
}

// What the leader refused is asked for again in time, also while others wait in the session.
func TestDelayedPartitionsShortenTheWait(t *testing.T) {
	c := New(options())
	c.Add(k(1), Start{LeaderEpoch: 3, Offset: 10})
	c.Add(k(2), Start{LeaderEpoch: 3, Offset: 20})
	long := c.must(t, 0, "1@10", "2@20").MaxWaitMillis
	c.Response(5, answer(99, row(1, kerr.UnknownLeaderEpoch.Code, "")))
	if req := c.must(t, 7); req.MaxWaitMillis != 8 {
		t.Fatalf("waits for %d ms, want the 8 that are left of the pause", req.MaxWaitMillis)
	}
	c.Response(15, answer(99))
	if req := c.must(t, 15, "1@10"); req.MaxWaitMillis != long {
		t.Fatalf("waits for %d ms, want %d", req.MaxWaitMillis, long)
	}
}

// A session that has become empty ends: the leader's answer names none.
func TestEmptySessionEnds(t *testing.T) {
	c := New(options())
	c.Add(k(1), Start{LeaderEpoch: 3, Offset: 10})
	c.must(t, 0, "1@10")
	c.Response(0, answer(99))
	c.Remove(k(1))
	if req := c.must(t, 0); !slices.Equal(forgotten(req), []byte{1}) {
		t.Fatalf("forgets %v", forgotten(req))
	}
	c.Response(0, answer(0))
	c.none(t, 0, math.MaxInt64)
	c.Add(k(1), Start{LeaderEpoch: 4, Offset: 10})
	if req := c.must(t, 0, "1@10"); req.SessionID != 0 || req.SessionEpoch != 0 {
		t.Fatalf("session %d epoch %d", req.SessionID, req.SessionEpoch)
	}
}

func TestFencedPartitionWaitsForTheImage(t *testing.T) {
	c := New(options())
	c.Add(k(1), Start{LeaderEpoch: 3, Offset: 10})
	c.must(t, 0, "1@10")
	c.Response(0, answer(99, row(1, kerr.FencedLeaderEpoch.Code, "")))
	c.must(t, 0) // leaves the session
	c.Response(0, answer(99))
	c.none(t, 1<<40, math.MaxInt64)
	c.Add(k(1), Start{LeaderEpoch: 4, Offset: 10})
	c.must(t, 1<<40, "1@10")
}

func TestLostConnectionStartsANewSession(t *testing.T) {
	c := New(options())
	c.Add(k(1), Start{LeaderEpoch: 3, Offset: 10})
	c.must(t, 0, "1@10")
	c.Response(0, answer(99))
	c.must(t, 0)
	c.Lost(0, false)
	c.none(t, 0, 10)
	if req := c.must(t, 10, "1@10"); req.SessionEpoch != 0 || req.SessionID != 99 {
		t.Fatalf("session %d epoch %d", req.SessionID, req.SessionEpoch)
	}
	c.Lost(10, true) // given up by ourselves: at once
	c.must(t, 10, "1@10")
	res := answer(0)
	res.ErrorCode = kerr.FetchSessionIDNotFound.Code
	c.Response(11, res)
	if req := c.must(t, 11, "1@10"); req.SessionID != 0 {
		t.Fatalf("session %d", req.SessionID)
	}
}

// A leader without room for sessions answers with session 0: every fetch is full.
func TestWithoutSession(t *testing.T) {
	c := New(options())
	c.Add(k(1), Start{LeaderEpoch: 3, Offset: 10})
	for range 3 {
		c.must(t, 0, "1@10")
		c.Response(0, answer(0))
	}
}

func TestKinds(t *testing.T) {
	c := New(options())
	c.Add(k(1), Start{LeaderEpoch: 3, Offset: 10, LastEpoch: 2})
	c.must(t, 0, "1@10")
	r := row(1, 0, "")
	r.Partitions[0].DivergingEpoch.Epoch, r.Partitions[0].DivergingEpoch.EndOffset = 1, 6
	acts := c.Response(0, answer(99, r))
	if len(acts) != 1 || acts[0].Kind != Truncate || acts[0].Epoch != 1 || acts[0].Offset != 6 {
		t.Fatalf("%+v", acts)
	}
	c.Done(0, Outcome{Action: acts[0], Offset: 6, LastEpoch: 1})
	c.must(t, 0, "1@6")
	acts = c.Response(0, answer(99, row(1, kerr.OffsetOutOfRange.Code, "")))
	if len(acts) != 1 || acts[0].Kind != Relocate {
		t.Fatalf("%+v", acts)
	}
	c.Done(0, Outcome{Action: acts[0], Failed: true})
	if c.nextRevival() != 10 {
		t.Fatal("a failed action is not tried again")
	}
}

// TestRandomCopies lets a Core copy from a leader that loses sessions, refuses,
// changes its history and moves partitions away, and checks that it ends with the
// leader's logs and never appends out of place.
func TestRandomCopies(t *testing.T) {
	seeds := 50
	if s, err := strconv.Atoi(os.Getenv("WEIR_SEEDS")); err == nil {
		seeds = s * 10
	}
	for seed := range seeds {
		w := newWorld(t, uint64(seed))
		for range 200 {
			w.act(true)
		}
		for range 400 { // no more trouble: it must catch up
			w.act(false)
		}
		for n := range w.leader {
			if w.mine[n] != nil && !slices.Equal(w.leader[n], w.mine[n]) {
				t.Fatalf("seed %d: partition %d is %v, the leader's %v", seed, n, w.mine[n], w.leader[n])
			}
		}
	}
}

// world is a leader and a follower whose logs are lists of leader epochs.
type world struct {
	t      *testing.T
	r      *rand.Rand
	c      *Core
	now    int64
	epoch  map[byte]int32
	leader map[byte][]int32
	mine   map[byte][]int32 // nil: not followed
	place  map[byte]place   // the leader's session
	id     int32
	next   int32 // session epoch
	req    *kmsg.FetchRequest
}

type place struct {
	epoch, last int32
	offset      int64
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{t: t, r: rand.New(rand.NewPCG(seed, 1)), c: New(options()), epoch: map[byte]int32{}, leader: map[byte][]int32{}, mine: map[byte][]int32{}, place: map[byte]place{}}
	for n := byte(1); n <= 4; n++ {
		w.give(n)
	}
	return w
}

// give lets the follower follow n in a new leader epoch.
func (w *world) give(n byte) {
	w.epoch[n]++
	if w.mine[n] == nil {
		w.mine[n] = []int32{}
	}
	w.c.Add(k(n), w.start(n))
}

func (w *world) start(n byte) Start {
	s := Start{LeaderEpoch: w.epoch[n], Offset: int64(len(w.mine[n])), LastEpoch: None}
	if l := w.mine[n]; len(l) > 0 {
		s.LastEpoch = l[len(l)-1]
	}
	return s
}

func (w *world) act(trouble bool) {
	w.now += int64(w.r.IntN(30))
	n := byte(1 + w.r.IntN(4))
	if trouble {
		switch w.r.IntN(12) {
		case 0: // another leader, with a part of the history
			l := w.leader[n]
			w.leader[n] = slices.Clone(l[:len(l)-w.r.IntN(len(l)+1)])
			w.give(n)
		case 1:
			w.c.Remove(k(n))
			w.mine[n] = nil
		case 2:
			w.give(n)
		case 3:
			w.id = 0 // the leader forgets its sessions
		case 4:
			if w.req != nil {
				w.req = nil
				w.c.Lost(w.now, w.r.IntN(2) == 0)
			}
		}
		for range w.r.IntN(3) {
			w.leader[n] = append(w.leader[n], max(w.epoch[n], 1))
		}
	}
	if w.req == nil {
		w.req, _ = w.c.Request(w.now, v18)
		return
	}
	req := w.req
	w.req = nil
	for _, a := range w.c.Response(w.now, w.serve(req, trouble)) {
		w.do(a)
	}
}

func (w *world) serve(req *kmsg.FetchRequest, trouble bool) *kmsg.FetchResponse {
	res := kmsg.NewPtrFetchResponse()
	switch {
	case req.SessionEpoch == 0:
		clear(w.place)
		w.id, w.next = w.r.Int32N(1000)+1, 1
	case w.id == 0 || req.SessionID != w.id:
		res.ErrorCode = kerr.FetchSessionIDNotFound.Code
		return res
	case req.SessionEpoch != w.next:
		w.t.Fatalf("session epoch %d, want %d", req.SessionEpoch, w.next)
	default:
		w.next++
	}
	res.SessionID = w.id
	for _, f := range req.ForgottenTopics {
		delete(w.place, f.TopicID[0])
	}
	for _, t := range req.Topics {
		p := t.Partitions[0]
		w.place[t.TopicID[0]] = place{p.CurrentLeaderEpoch, p.LastFetchedEpoch, p.FetchOffset}
	}
	for n := byte(1); n <= 4; n++ {
		if p, ok := w.place[n]; ok {
			res.Topics = append(res.Topics, w.read(n, p, trouble))
		}
	}
	return res
}

func (w *world) read(n byte, p place, trouble bool) kmsg.FetchResponseTopic {
	r := row(n, 0, "")
	rp := &r.Partitions[0]
	log := w.leader[n]
	switch {
	case trouble && w.r.IntN(10) == 0:
		rp.ErrorCode = kerr.NotLeaderForPartition.Code
	case p.epoch < w.epoch[n]:
		rp.ErrorCode = kerr.FencedLeaderEpoch.Code
	case p.last != None && p.offset > 0 && (p.offset > int64(len(log)) || log[p.offset-1] != p.last):
		end := 0
		for end < len(log) && log[end] <= p.last {
			end++
		}
		rp.DivergingEpoch.EndOffset, rp.DivergingEpoch.Epoch = int64(end), 0
		if end > 0 {
			rp.DivergingEpoch.Epoch = log[end-1]
		}
	case p.offset > int64(len(log)):
		rp.ErrorCode = kerr.OffsetOutOfRange.Code
	default:
		for _, e := range log[p.offset:min(p.offset+2, int64(len(log)))] {
			rp.RecordBatches = append(rp.RecordBatches, byte(e))
		}
	}
	return r
}

func (w *world) do(a Action) {
	n := a.Key.Topic[0]
	out := Outcome{Action: a}
	if a.LeaderEpoch != w.epoch[n] || w.mine[n] == nil {
		w.t.Fatalf("an action of leader epoch %d for partition %d, which is in %d", a.LeaderEpoch, n, w.epoch[n])
	}
	switch a.Kind {
	case Append:
		for i, e := range a.Records {
			at := len(w.mine[n])
			w.mine[n] = append(w.mine[n], int32(e))
			if i == 0 && (at >= len(w.leader[n]) || w.leader[n][at] != int32(e)) {
				w.t.Fatalf("partition %d: %d appended at %d of %v", n, e, at, w.leader[n])
			}
		}
	case Truncate:
		to := 0
		for to < len(w.mine[n]) && to < int(a.Offset) && w.mine[n][to] <= a.Epoch {
			to++
		}
		w.mine[n] = w.mine[n][:to]
	case Relocate:
		w.mine[n] = w.mine[n][:min(len(w.mine[n]), len(w.leader[n]))]
	}
	if w.r.IntN(20) == 0 {
		out.Failed = true
	}
	s := w.start(n)
	out.Offset, out.LastEpoch = s.Offset, s.LastEpoch
	w.c.Done(w.now, out)
}

// What a limit holds back is asked for when the limit allows it; the rest goes on.
func TestHeldPartitions(t *testing.T) {
	c := New(options())
	c.Add(k(1), Start{LeaderEpoch: 3, Offset: 10})
	c.Add(k(2), Start{LeaderEpoch: 3, Offset: 20})
	held := v18
	held.Hold = func(x Key) bool { return x == k(1) }
	req, _ := c.Request(0, held)
	if got := named(req); !slices.Equal(got, []string{"2@20"}) {
		t.Fatalf("names %v", got)
	}
	c.Response(0, answer(99))
	if req, _ = c.Request(50, held); len(named(req)) != 0 {
		t.Fatalf("names %v", named(req))
	}
	c.Response(50, answer(99))
	c.must(t, 100, "1@10")
}
