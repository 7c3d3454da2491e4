package kraft

import (
	"slices"

	"weir/internal/invariant"
)

// request answers another replica, or holds its fetch.
func (c *Core) request(ev Request) {
	switch q := ev.Body.(type) {
	case VoteRequest:
		c.voteRequest(ev.Ref, q)
	case BeginRequest:
		c.beginRequest(ev.Ref, q)
	case EndRequest:
		c.endRequest(ev.Ref, q)
	case FetchRequest:
		c.fetchRequest(ev.Ref, q)
	case SnapshotRequest:
		c.snapshotRequest(ev.Ref, q)
	case AddVoterRequest:
		c.addVoter(ev.Ref, q)
	case RemoveVoterRequest:
		c.removeVoter(ev.Ref, q)
	case UpdateVoterRequest:
		c.updateVoter(ev.Ref, q)
	case UpgradeRequest:
		c.upgrade(ev.Ref, q)
	default:
		invariant.Check(false, "kraft: unknown request %T", q)
	}
}

func (c *Core) response(ev Response) {
	s, ok := c.sent[ev.ID]
	if !ok {
		return // of an earlier role or epoch
	}
	delete(c.sent, ev.ID)
	switch s.kind {
	case 'v':
		c.voteResponse(s, ev.ID, ev.Body)
	case 'b':
		c.beginResponse(ev.ID, ev.Body)
	case 'e':
		c.endResponse(s, ev.Body)
	case 'f':
		c.fetchResponse(ev.ID, ev.Body)
	}
}

// leaderOnly checks what every request to a leader must satisfy.
func (c *Core) leaderOnly(epoch int32) Code {
	switch {
	case epoch >= 0 && epoch < c.state.Epoch:
		return FencedLeaderEpoch
	case epoch > c.state.Epoch:
		return UnknownLeaderEpoch
	case c.role != Leader:
		return NotLeader
	}
	return OK
}

func (c *Core) fetchRequest(ref uint64, q FetchRequest) {
	code := c.leaderOnly(q.Epoch)
	if q.Offset < 0 || q.LastEpoch < 0 && q.Replica.ID >= 0 || q.Epoch < 0 && q.Replica.ID >= 0 {
		code = InvalidRequest
	}
	if code != OK {
		c.reply(ref, FetchResponse{Head: c.head(code), HighWatermark: -1, LogStart: -1})
		return
	}
	if r, bad := c.misplaced(q); bad {
		c.reply(ref, r)
		return
	}
	if q.Replica.ID >= 0 && q.Replica.ID != c.self.ID {
		c.fetched(q)
	}
	if c.role != Leader { // it committed our own removal
		c.reply(ref, FetchResponse{Head: c.head(NotLeader), HighWatermark: -1, LogStart: -1})
		return
	}
	if q.MaxWaitMs > 0 && q.Offset == c.log.End && !c.news(q) {
		c.waiting = append(c.waiting, waiting{ref: ref, req: q, deadline: c.now + q.MaxWaitMs})
		return
	}
	c.reply(ref, c.data(q))
}

// misplaced answers a fetch whose place does not fit our log.
func (c *Core) misplaced(q FetchRequest) (FetchResponse, bool) {
	r := FetchResponse{Head: c.head(OK), HighWatermark: c.hw, LogStart: c.log.Start.Offset}
	if q.LastEpoch < 0 { // a tool that does not tell what it has
		if q.Offset < c.log.Start.Offset || q.Offset > c.log.End {
			r.Head.Code = OffsetOutOfRange
			return r, true
		}
		return r, false
	}
	r.Diverging, r.Snapshot = c.log.has(Position{Offset: q.Offset, Epoch: q.LastEpoch})
	return r, r.Diverging != nil || r.Snapshot != nil
}

// fetched takes a replica's fetch as the acknowledgement it is.
func (c *Core) fetched(q FetchRequest) {
	p := c.peer(q.Replica)
	if q.Offset >= c.log.End {
		p.caughtUpAt = c.now
	} else if p.endAtFetch >= 0 && q.Offset >= p.endAtFetch {
		p.caughtUpAt = max(p.caughtUpAt, p.fetchedAt)
	}
	p.end, p.fetchedAt, p.endAtFetch = q.Offset, c.now, c.log.End
	if c.set.Has(q.Replica) {
		c.checkQuorum()
		c.advance()
		return
	}
	c.lead.peers = slices.DeleteFunc(c.lead.peers, func(p peer) bool {
		return !c.set.Has(p.replica) && c.now-p.fetchedAt >= observerSessionMs
	})
}

// news reports whether the asker would learn anything: KIP-1166 lets it say
// which high watermark it knows.
func (c *Core) news(q FetchRequest) bool {
	return q.Offset < c.log.End || q.HighWatermark >= 0 && q.HighWatermark < c.hw
}

func (c *Core) data(q FetchRequest) FetchResponse {
	return FetchResponse{Head: c.head(OK), HighWatermark: c.hw, LogStart: c.log.Start.Offset,
		Read: q.Offset < c.log.End, Offset: q.Offset, MaxBytes: q.MaxBytes}
}

// wake answers the held fetches that have something to hear now.
func (c *Core) wake() {
	c.waiting = slices.DeleteFunc(c.waiting, func(w waiting) bool {
		if !c.news(w.req) {
			return false
		}
		c.reply(w.ref, c.data(w.req))
		return true
	})
}

func (c *Core) expireWaiting() {
	c.waiting = slices.DeleteFunc(c.waiting, func(w waiting) bool {
		if c.now < w.deadline {
			return false
		}
		c.reply(w.ref, c.data(w.req))
		return true
	})
}

func (c *Core) snapshotRequest(ref uint64, q SnapshotRequest) {
	code := c.leaderOnly(q.Epoch)
	if code == OK && q.Replica.ID >= 0 && c.set.Has(q.Replica) && q.Replica.ID != c.self.ID {
		c.peer(q.Replica).fetchedAt = c.now // downloading is being alive
		c.checkQuorum()
	}
	c.reply(ref, SnapshotResponse{Head: c.head(code), ID: q.ID, Offset: q.Offset})
}
