package kraft

import "weir/internal/invariant"

// quickMs bounds the waits of a voter that knows the leader's process to be gone.
const quickMs = 50

// enterUnattached forgets the leader. A higher epoch starts without a vote.
func (c *Core) enterUnattached(epoch int32) {
	at := c.now + c.electionWait()
	switch c.role { // the wait goes on: news of an epoch must not put off elections for ever
	case Unattached, Prospective, Candidate:
		at = c.electionAt
	case Follower:
		at = c.fetch.timeoutAt
	}
	if epoch > c.state.Epoch {
		c.state = QuorumState{Epoch: epoch, Leader: None, Voted: Replica{ID: None}}
	}
	invariant.Check(epoch == c.state.Epoch, "kraft: unattached in epoch %d after %d", epoch, c.state.Epoch)
	c.state.Leader = None
	c.leave()
	c.role, c.electionAt = Unattached, at
}

// enterFollower follows leader in epoch. A vote given in this epoch stays known.
func (c *Core) enterFollower(epoch, leader int32) {
	invariant.Check(leader != c.self.ID && epoch >= c.state.Epoch, "kraft: follower of %d in epoch %d, we are %d in %d", leader, epoch, c.self.ID, c.state.Epoch)
	if epoch > c.state.Epoch {
		c.state = QuorumState{Epoch: epoch, Leader: None, Voted: Replica{ID: None}}
	}
	invariant.Check(c.state.Leader == None || c.state.Leader == leader, "kraft: epoch %d has leaders %d and %d", epoch, c.state.Leader, leader)
	c.state.Leader = leader
	c.leave()
	c.role, c.quick = Follower, false
	c.fetch.timeoutAt = c.now + c.t.FetchMs
}

// leave clears what belongs to the role we had.
func (c *Core) leave() {
	c.dropLead()
	c.forget()
}

// enterProspective asks the others whether they would vote for us.
func (c *Core) enterProspective() {
	c.leave()
	c.role = Prospective
	c.electionAt = c.now + c.electionWait()
	if c.quick {
		c.electionAt = c.now + quickMs + int64(c.rand.IntN(quickMs+1))
	}
	c.openBallots()
}

// enterCandidate votes for itself in epoch: a new one, except that a restarted
// replica goes on with the one it stood for.
func (c *Core) enterCandidate(epoch int32) {
	c.state = QuorumState{Epoch: epoch, Leader: None, Voted: c.self}
	c.leave()
	c.role = Candidate
	c.electionAt = c.now + c.electionWait()
	if c.quick { // the dead leader's vote stays out, so a split vote cannot show before the wait ends
		c.electionAt = c.now + 2*quickMs + int64(c.rand.IntN(4*quickMs+1))
	}
	c.openBallots()
}

func (c *Core) openBallots() {
	c.ballots = c.ballots[:0]
	for _, v := range c.set.voters {
		b := ballot{voter: v.Replica}
		if v.is(c.self) {
			b.answer = granted
		}
		c.ballots = append(c.ballots, b)
	}
}

// count moves on as soon as the ballots decide.
func (c *Core) count() {
	var yes, no int
	for _, b := range c.ballots {
		switch b.answer {
		case granted:
			yes++
		case rejected:
			no++
		}
	}
	switch {
	case yes >= c.set.majority():
		if c.role == Prospective {
			c.enterCandidate(c.state.Epoch + 1)
		} else {
			c.enterLeader()
		}
	case no > len(c.ballots)-c.set.majority():
		c.lose()
	}
}

// lose ends a nomination that can no longer succeed.
func (c *Core) lose() {
	switch {
	case c.role == Candidate:
		c.enterProspective()
	case c.quick: // ask again when the short wait ends
	case c.state.Leader != None && c.state.Leader != c.self.ID:
		c.enterFollower(c.state.Epoch, c.state.Leader)
	default:
		c.electionAt = c.now + c.electionWait()
		c.enterUnattached(c.state.Epoch)
	}
}

func (c *Core) pollUnattached() {
	switch {
	case !c.isVoter():
		c.pollFetch()
	case c.now >= c.electionAt:
		c.enterProspective()
	default:
		c.pollFetch()
	}
}

func (c *Core) pollNominee() {
	if !c.isVoter() {
		c.enterUnattached(c.state.Epoch)
		return
	}
	role := c.role
	if c.now >= c.electionAt {
		if c.role == Prospective && !c.quick {
			c.lose() // follow again, or wait and look for a leader
		} else {
			c.enterProspective()
		}
	} else {
		c.count()
	}
	if c.role != role || c.now < c.retryAt {
		return
	}
	for i := range c.ballots {
		b := &c.ballots[i]
		if b.answer == unknown && b.askedID == 0 {
			b.askedID = c.send(b.voter.ID, 'v', VoteRequest{Epoch: c.state.Epoch, Candidate: c.self, Voter: b.voter,
				Last: c.log.last(), PreVote: c.role == Prospective})
		}
	}
	c.retryAt = c.electionAt // until one goes unanswered
}

func (c *Core) voteRequest(ref uint64, q VoteRequest) {
	switch {
	case q.Candidate.ID < 0 || q.Last.Offset < 0 || q.Last.Epoch < 0 || q.Epoch < 0 ||
		q.PreVote && q.Last.Epoch > q.Epoch || !q.PreVote && q.Last.Epoch >= q.Epoch:
		c.reply(ref, VoteResponse{Head: c.head(InvalidRequest)})
		return
	case q.Epoch < c.state.Epoch:
		c.reply(ref, VoteResponse{Head: c.head(FencedLeaderEpoch)})
		return
	case q.Epoch > c.state.Epoch:
		c.enterUnattached(q.Epoch)
	}
	if q.Voter.ID != None && !q.Voter.is(c.self) {
		c.reply(ref, VoteResponse{Head: c.head(InvalidVoterKey)})
		return
	}
	ok := c.grants(q)
	if ok && !q.PreVote && c.state.Voted.ID == None {
		c.state.Voted = q.Candidate
		if c.role == Unattached || c.role == Prospective { // give the candidate time
			c.enterUnattached(c.state.Epoch)
			c.electionAt = c.now + c.electionWait()
		}
	}
	c.reply(ref, VoteResponse{Head: c.head(OK), Granted: ok})
}

// grants is the rule of KIP-595 and KIP-996.
func (c *Core) grants(q VoteRequest) bool {
	upToDate := q.Last.Compare(c.log.last()) >= 0
	if q.PreVote {
		switch c.role {
		case Leader:
			return false
		case Follower: // a leader that we have just heard is good enough
			return upToDate && !c.fetch.once
		}
		return upToDate
	}
	switch c.role {
	case Leader, Candidate, Resigned:
		return c.role == Candidate && q.Candidate.ID == c.self.ID
	}
	if v := c.state.Voted; v.ID != None {
		return v.is(q.Candidate)
	}
	return c.state.Leader == None && upToDate
}

func (c *Core) voteResponse(s sent, id uint64, body ResponseBody) {
	r, answered := body.(VoteResponse)
	if answered && c.learn(r.Head) {
		return
	}
	if c.role != Prospective && c.role != Candidate || s.preVote != (c.role == Prospective) {
		return
	}
	for i := range c.ballots {
		b := &c.ballots[i]
		if b.askedID != id {
			continue
		}
		b.askedID = 0
		switch {
		case !answered, r.Code != OK && r.Code != UnsupportedVersion:
			c.retryAt = c.now + c.t.RetryMs
		case r.Granted, r.Code == UnsupportedVersion && s.preVote:
			// A voter from before KIP-996 does not know pre-votes: it does not object.
			b.answer = granted
		case r.Code == OK:
			b.answer = rejected
		default:
			c.retryAt = c.now + c.t.RetryMs
		}
	}
	c.count()
}

// learn takes up what an answer says about leader and epoch. It returns true
// when the answer belongs to another epoch, or brought us into another role.
func (c *Core) learn(h Head) bool {
	switch {
	case h.Leader.Epoch < c.state.Epoch:
		return true
	case h.Leader.Epoch > c.state.Epoch:
		if h.Leader.ID != None && h.Leader.ID != c.self.ID {
			c.enterFollower(h.Leader.Epoch, h.Leader.ID)
		} else {
			c.enterUnattached(h.Leader.Epoch)
		}
		return true
	case h.Leader.ID != None && h.Leader.ID != c.self.ID && c.state.Leader == None:
		c.enterFollower(h.Leader.Epoch, h.Leader.ID)
		return true
	}
	return false
}

// consistent reports whether l can be true beside what we know: an epoch has
// one leader, and we are it only if we know so.
func (c *Core) consistent(l LeaderAndEpoch) bool {
	if l.ID == c.self.ID {
		return l.Epoch < c.state.Epoch || l.Epoch == c.state.Epoch && c.state.Leader == c.self.ID
	}
	return l.Epoch != c.state.Epoch || c.state.Leader == None || c.state.Leader == l.ID
}

func (c *Core) beginRequest(ref uint64, q BeginRequest) {
	switch {
	case q.Leader.ID < 0 || !c.consistent(q.Leader):
		c.reply(ref, BeginResponse{c.head(InvalidRequest)})
		return
	case q.Leader.Epoch < c.state.Epoch:
		c.reply(ref, BeginResponse{c.head(FencedLeaderEpoch)})
		return
	}
	if q.Leader.ID != c.self.ID && (q.Leader.Epoch > c.state.Epoch || c.role != Follower) {
		c.enterFollower(q.Leader.Epoch, q.Leader.ID)
	}
	if q.Voter.ID != None && !q.Voter.is(c.self) {
		c.reply(ref, BeginResponse{c.head(InvalidVoterKey)})
		return
	}
	c.reply(ref, BeginResponse{c.head(OK)})
}

func (c *Core) endRequest(ref uint64, q EndRequest) {
	switch {
	case q.Leader.ID < 0 || !c.consistent(q.Leader):
		c.reply(ref, EndResponse{c.head(InvalidRequest)})
		return
	case q.Leader.Epoch < c.state.Epoch:
		c.reply(ref, EndResponse{c.head(FencedLeaderEpoch)})
		return
	}
	if q.Leader.ID != c.self.ID && (q.Leader.Epoch > c.state.Epoch || c.state.Leader == None) {
		c.enterFollower(q.Leader.Epoch, q.Leader.ID)
	}
	if c.role == Follower && c.isVoter() {
		c.fetch.once = false // it says itself that it leads no more
		c.fetch.timeoutAt = min(c.fetch.timeoutAt, c.now+c.successionWait(q.Successors))
	}
	c.reply(ref, EndResponse{c.head(OK)})
}

// successionWait lets the voter with the longest log stand first.
func (c *Core) successionWait(order []Replica) int64 {
	for i, r := range order {
		if r.is(c.self) {
			if i == 0 {
				return 0
			}
			step := c.t.BackoffMaxMs >> min(len(order)-1, 62)
			return min(c.t.BackoffMaxMs, max(step, 1)<<min(i-1, 30))
		}
	}
	return c.t.BackoffMaxMs
}

// refused hurries when the leader's process is gone (availability C3(d)).
func (c *Core) refused(id int32) {
	if id != c.state.Leader || id == c.self.ID || !c.isVoter() || c.quick {
		return
	}
	switch c.role {
	case Follower:
		c.quick = true
		c.fetch.timeoutAt = min(c.fetch.timeoutAt, c.now+int64(c.rand.IntN(quickMs+1)))
	case Prospective:
		c.quick = true
		c.electionAt = min(c.electionAt, c.now+quickMs+int64(c.rand.IntN(quickMs+1)))
	}
}
