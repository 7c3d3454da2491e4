package kraft

import (
	"fmt"
	"testing"
)

// TestHostile feeds one replica random messages, consistent with nothing: it may
// do as they say, but never trips over its own invariants.
func TestHostile(t *testing.T) {
	led := 0
	for seed := range uint64(100) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			h := newHarness(seed)
			set, err := NewVoterSet([]Voter{{Replica: Replica{ID: 1}}, {Replica: Replica{ID: 2}}, {Replica: Replica{ID: 3}}})
			if err != nil {
				t.Fatal(err)
			}
			h.add(1, dirOf(1), set, nil)
			h.nodes[2], h.nodes[3] = &node{id: 2}, &node{id: 3}
			h.start(1)
			n := h.nodes[1]
			for range 400 {
				h.now += int64(h.rnd.IntN(200))
				h.net = h.net[max(0, len(h.net)-6):]
				switch h.rnd.IntN(3) {
				case 0:
					n.ref++
					n.pending[n.ref] = packet{from: 2}
					h.step(n, Request{From: 2, Ref: n.ref, Body: h.anyRequest(n)})
				case 1:
					ids := h.net
					h.net = nil
					for _, p := range ids {
						if p.req != nil {
							h.step(n, Response{From: p.to, ID: p.id, Body: h.anyResponse(n, p.req)})
						}
					}
				default:
					h.step(n, Tick{})
					if n.core.Role() == Leader {
						h.propose(n, 1)
					}
				}
			}
			led += len(h.leaders)
		})
	}
	if led < 20 {
		t.Errorf("only %d epochs were led: the messages are too hostile to test a leader", led)
	}
}

func (h *harness) small(n int) int32 { return int32(h.rnd.IntN(n)) - 1 }

func (h *harness) anyEpoch(n *node) int32 { return n.core.State().Epoch + h.small(4) - 1 }

func (h *harness) anyPosition(n *node) Position {
	return Position{Offset: int64(h.small(len(n.log) + 4)), Epoch: h.anyEpoch(n)}
}

func (h *harness) anyRequest(n *node) RequestBody {
	leader := LeaderAndEpoch{ID: h.small(5), Epoch: h.anyEpoch(n)}
	switch h.rnd.IntN(5) {
	case 0:
		return VoteRequest{Epoch: leader.Epoch, Candidate: Replica{ID: h.small(5)}, Voter: Replica{ID: h.small(3)}, Last: h.anyPosition(n), PreVote: h.rnd.IntN(2) == 0}
	case 1:
		return BeginRequest{Leader: leader, Voter: Replica{ID: h.small(3)}}
	case 2:
		return EndRequest{Leader: leader, Successors: []Replica{{ID: h.small(4)}, {ID: h.small(4)}}}
	case 3:
		p := h.anyPosition(n)
		// Nobody acknowledges what a leader does not have, or all is lost.
		return FetchRequest{Replica: Replica{ID: h.small(6)}, Epoch: leader.Epoch, Offset: p.Offset, LastEpoch: p.Epoch, HighWatermark: int64(h.small(9)), MaxWaitMs: int64(h.small(300))}
	}
	return SnapshotRequest{Replica: Replica{ID: h.small(5)}, Epoch: leader.Epoch, ID: h.anyPosition(n), Offset: int64(h.small(9))}
}

func (h *harness) anyResponse(n *node, req RequestBody) ResponseBody {
	head := Head{Code: []Code{OK, OK, OK, NotLeader, FencedLeaderEpoch, UnknownLeaderEpoch, UnsupportedVersion}[h.rnd.IntN(7)],
		Leader: LeaderAndEpoch{ID: h.small(5), Epoch: h.anyEpoch(n)}}
	if h.rnd.IntN(2) == 0 { // else a replica would never win
		head = Head{Leader: LeaderAndEpoch{ID: None, Epoch: n.core.State().Epoch}}
		if _, ok := req.(VoteRequest); ok {
			return VoteResponse{Head: head, Granted: true}
		}
	}
	switch h.rnd.IntN(6) {
	case 0:
		return VoteResponse{Head: head, Granted: h.rnd.IntN(2) == 0}
	case 1:
		return BeginResponse{head}
	case 2:
		return EndResponse{head}
	case 3:
		return nil
	}
	f := FetchResponse{Head: head, HighWatermark: int64(h.small(len(n.log) + 9))}
	switch p := h.anyPosition(n); h.rnd.IntN(4) {
	case 0:
		f.Diverging = &p
	case 1:
		f.Snapshot = &p
	case 2:
		if e := n.core.State().Epoch; head.Leader.Epoch == e {
			f.Records = encode([]entryOnDisk{{epoch: e, kind: 'd'}, {epoch: e, kind: 'd'}})
		}
	}
	return f
}
