package kraft

import (
	"math"
	"slices"

	"weir/internal/invariant"
	"weir/internal/uuid"
)

// observerSessionMs is how long an observer that no longer fetches is listed.
const observerSessionMs = 300_000

// leading is what only a leader has.
type leading struct {
	start      int64 // offset of our LeaderChange record
	checkAt    int64 // resign, unless a majority fetched by then
	announceAt int64 // next BeginQuorumEpoch to voters that do not fetch
	peers      []peer
	change     *change // of the voters, not committed yet
	// told is what voters have said of themselves at kraft.version 0, by id: the file
	// has neither their directories nor the levels that they support.
	told map[int32]Voter
}

// peer is another replica as its fetches show it.
type peer struct {
	replica    Replica
	end        int64  // its log is flushed below; -1 unknown
	fetchedAt  int64  // ms, -1 never
	caughtUpAt int64  // ms when it last had all that we had
	endAtFetch int64  // our log's end at its last fetch
	announced  uint64 // BeginQuorumEpoch in flight, 0: none
}

// Quorum describes the quorum as its leader sees it.
type Quorum struct {
	Leader        LeaderAndEpoch
	HighWatermark int64
	Members       VoterSet
	Voters        []ReplicaState
	Observers     []ReplicaState
}

// ReplicaState is one replica's progress. Times are in milliseconds, -1 unknown.
type ReplicaState struct {
	Replica      Replica
	LogEnd       int64 // -1 unknown
	LastFetch    int64
	LastCaughtUp int64
}

// enterLeader opens our epoch with a LeaderChange record.
func (c *Core) enterLeader() {
	var granting []Replica
	for _, b := range c.ballots {
		if b.answer == granted {
			granting = append(granting, b.voter)
		}
	}
	c.leave()
	c.role, c.quick = Leader, false
	c.state.Leader, c.state.Voted = c.self.ID, Replica{ID: None}
	c.lead = &leading{start: c.log.End, checkAt: c.now + c.checkQuorumMs(), announceAt: c.now, told: map[int32]Voter{}}

	set, version, at := c.members.current()
	batch := &ControlBatch{Base: c.log.End, Epoch: c.state.Epoch, Leader: c.self.ID, Granting: granting}
	for _, v := range set.voters {
		batch.Members = append(batch.Members, v.Replica)
	}
	var said []Control
	if version > 0 && at < 0 { // the voters are only in our 0-0.checkpoint: let the log say so
		batch.Version, batch.Voters = &version, &set
		said = []Control{{Offset: batch.Base + 1, Version: &version}, {Offset: batch.Base + 2, Voters: &set}}
	}
	c.log.append([]Entry{{Next: batch.Base + batch.Count(), Epoch: c.state.Epoch}})
	c.members.append(said)
	c.refreshMembers()
	c.ready.Control = batch
}

func (c *Core) checkQuorumMs() int64 { return c.t.FetchMs * 3 / 2 }

// dropLead answers every held fetch: somebody else may know more.
func (c *Core) dropLead() {
	if c.lead == nil {
		return
	}
	if ch := c.lead.change; ch != nil && !ch.told {
		c.refuseChange(ch.ref, NotLeader, "The leader has resigned.")
	}
	c.lead = nil
	for _, w := range c.waiting {
		c.reply(w.ref, FetchResponse{Head: c.head(NotLeader), HighWatermark: -1, LogStart: -1})
	}
	c.waiting = nil
}

// enterResigned gives up the epoch we lead, and tells the others.
func (c *Core) enterResigned() {
	order := c.others()
	ends := map[int32]int64{}
	for _, p := range c.lead.peers {
		ends[p.replica.ID] = p.end
	}
	slices.SortStableFunc(order, func(a, b int32) int {
		return int(min(max(ends[b]-ends[a], -1), 1))
	})
	c.role = Resigned // before answering: head must not name us
	c.leave()
	c.electionAt = c.now + c.electionWait()
	c.ending = order
}

func (c *Core) pollResigned() {
	if c.now >= c.electionAt {
		if c.set.IsOnly(c.self) {
			c.enterProspective()
		} else {
			// Our own epoch is spent: we can neither vote nor lead in it.
			c.enterUnattached(c.state.Epoch + 1)
		}
		return
	}
	if c.now < c.retryAt {
		return
	}
	successors := make([]Replica, 0, len(c.ending))
	for _, id := range c.ending {
		if v, ok := c.set.Get(id); ok {
			successors = append(successors, v.Replica)
		}
	}
	for _, r := range successors {
		if !slices.ContainsFunc(c.inflight('e'), func(to int32) bool { return to == r.ID }) {
			c.send(r.ID, 'e', EndRequest{Leader: LeaderAndEpoch{ID: c.self.ID, Epoch: c.state.Epoch}, Successors: successors, LeaderEndpoints: c.endpoints})
		}
	}
	c.retryAt = c.electionAt
}

func (c *Core) endResponse(s sent, body ResponseBody) {
	r, answered := body.(EndResponse)
	if answered && c.learn(r.Head) || c.role != Resigned {
		return
	}
	if answered && r.Code == OK {
		c.ending = slices.DeleteFunc(c.ending, func(id int32) bool { return id == s.to })
		return
	}
	c.retryAt = c.now + c.t.RetryMs
}

func (c *Core) inflight(kind byte) []int32 {
	var to []int32
	for _, s := range c.sent {
		if s.kind == kind {
			to = append(to, s.to)
		}
	}
	return to
}

func (c *Core) pollLeader() {
	if len(c.set.voters) > 1 || !c.isVoter() {
		if c.now >= c.lead.checkAt {
			c.enterResigned()
			return
		}
		c.announce()
	}
	c.expireWaiting()
}

// announce sends BeginQuorumEpoch to the voters that have not fetched lately.
func (c *Core) announce() {
	if c.now < c.lead.announceAt {
		return
	}
	period := c.t.FetchMs / 2
	c.lead.announceAt = c.now + period
	for _, v := range c.set.voters {
		if v.is(c.self) {
			continue
		}
		p := c.peer(v.Replica)
		if p.announced == 0 && (p.fetchedAt < 0 || c.now-p.fetchedAt >= period) {
			p.announced = c.send(v.ID, 'b', BeginRequest{Leader: LeaderAndEpoch{ID: c.self.ID, Epoch: c.state.Epoch}, Voter: v.Replica, LeaderEndpoints: c.endpoints})
		}
	}
}

func (c *Core) beginResponse(id uint64, body ResponseBody) {
	r, answered := body.(BeginResponse)
	if answered && c.learn(r.Head) || c.role != Leader {
		return
	}
	for i := range c.lead.peers {
		if p := &c.lead.peers[i]; p.announced == id {
			p.announced = 0
			if !answered {
				c.lead.announceAt = min(c.lead.announceAt, c.now+c.t.RetryMs)
			}
		}
	}
}

func (c *Core) leaderDeadline() int64 {
	at := int64(math.MaxInt64)
	if len(c.set.voters) > 1 || !c.isVoter() {
		at = min(c.lead.checkAt, c.lead.announceAt)
	}
	for _, w := range c.waiting {
		at = min(at, w.deadline)
	}
	return at
}

// peer finds or makes the entry of another replica.
func (c *Core) peer(r Replica) *peer {
	for i := range c.lead.peers {
		if p := &c.lead.peers[i]; p.replica.is(r) {
			if p.replica.Dir != r.Dir && r.Dir != uuid.Zero {
				p.replica = r
			}
			return p
		}
	}
	c.lead.peers = append(c.lead.peers, peer{replica: r, end: -1, fetchedAt: -1, caughtUpAt: -1, endAtFetch: -1})
	return &c.lead.peers[len(c.lead.peers)-1]
}

// advance moves the high watermark to the largest offset that a majority of the
// voters has flushed, once that passes the start of our own epoch: older records
// are never committed by counting (Raft, figure 8).
func (c *Core) advance() {
	if len(c.set.voters) == 0 {
		return
	}
	ends := make([]int64, 0, len(c.set.voters))
	for _, v := range c.set.voters {
		if v.is(c.self) {
			ends = append(ends, c.log.Flushed)
			continue
		}
		end := int64(-1)
		for _, p := range c.lead.peers {
			if p.replica.is(v.Replica) {
				end = p.end
			}
		}
		ends = append(ends, end)
	}
	slices.SortFunc(ends, func(a, b int64) int { return int(min(max(b-a, -1), 1)) })
	hw := ends[c.set.majority()-1]
	if hw <= c.lead.start || hw <= c.hw {
		return
	}
	invariant.Check(hw <= c.log.End, "kraft: high watermark %d above the log's end %d", hw, c.log.End)
	c.hw = hw
	c.wake()
	c.settleChange()
}

// checkQuorum notes that a voter is alive; a majority of them gives us time.
func (c *Core) checkQuorum() {
	alive := 0
	times := []int64{}
	for _, v := range c.set.voters {
		if v.is(c.self) {
			alive++
			continue
		}
		for _, p := range c.lead.peers {
			if p.replica.is(v.Replica) && p.fetchedAt >= 0 {
				times = append(times, p.fetchedAt)
			}
		}
	}
	need := c.set.majority() - alive // others that must be heard
	if need <= 0 {
		c.lead.checkAt = c.now + c.checkQuorumMs()
		return
	}
	if len(times) < need {
		return
	}
	slices.SortFunc(times, func(a, b int64) int { return int(min(max(b-a, -1), 1)) })
	c.lead.checkAt = max(c.lead.checkAt, times[need-1]+c.checkQuorumMs())
}

// Quorum describes the quorum; ok is false unless this replica leads.
func (c *Core) Quorum() (q Quorum, ok bool) {
	if c.role != Leader {
		return Quorum{}, false
	}
	q = Quorum{Leader: LeaderAndEpoch{ID: c.self.ID, Epoch: c.state.Epoch}, HighWatermark: c.hw, Members: c.set}
	for _, v := range c.set.voters {
		st := ReplicaState{Replica: v.Replica, LogEnd: -1, LastFetch: -1, LastCaughtUp: -1}
		if v.is(c.self) {
			st = ReplicaState{Replica: c.self, LogEnd: c.log.End, LastFetch: c.now, LastCaughtUp: c.now}
		}
		for _, p := range c.lead.peers {
			if p.replica.is(v.Replica) {
				st.LogEnd, st.LastFetch, st.LastCaughtUp = p.end, p.fetchedAt, p.caughtUpAt
			}
		}
		q.Voters = append(q.Voters, st)
	}
	for _, p := range c.lead.peers {
		if !c.set.Has(p.replica) && c.now-p.fetchedAt < observerSessionMs {
			q.Observers = append(q.Observers, ReplicaState{Replica: p.replica, LogEnd: p.end, LastFetch: p.fetchedAt, LastCaughtUp: p.caughtUpAt})
		}
	}
	return q, true
}
