package kraft

import "math"

func (c *Core) pollFollower() {
	if c.isVoter() && c.now >= c.fetch.timeoutAt {
		c.enterProspective()
		return
	}
	if !c.isVoter() && c.now >= c.fetch.timeoutAt { // an observer looks for the leader elsewhere
		c.enterUnattached(c.state.Epoch)
		return
	}
	c.pollFetch()
}

// mayFetch: one fetch at a time, and a voter's next one acknowledges what it has
// written so far, so that must be flushed.
func (c *Core) mayFetch() bool {
	return c.fetch.inflight == 0 && !c.fetch.appending && !c.fetch.installing &&
		(!c.isVoter() || c.log.Flushed == c.log.End)
}

func (c *Core) nextFetch() int64 {
	if !c.mayFetch() || c.alone() {
		return math.MaxInt64
	}
	return c.fetch.at
}

// alone reports that there is nobody to fetch from.
func (c *Core) alone() bool { return c.state.Leader == None && c.set.IsOnly(c.self) }

// pollFetch sends the next fetch: to the leader, or to anybody who may know it.
func (c *Core) pollFetch() {
	if !c.mayFetch() || c.now < c.fetch.at || c.alone() {
		return
	}
	to := None
	if c.role == Follower && (c.isVoter() || !c.fetch.missed) {
		to = c.state.Leader // an observer whom the leader did not answer asks anybody in between: there may be another one
	}
	last := c.log.last()
	c.fetch.inflight = c.send(to, 'f', FetchRequest{Replica: c.self, Epoch: c.state.Epoch, Offset: last.Offset,
		LastEpoch: last.Epoch, HighWatermark: c.hw, MaxWaitMs: c.t.MaxWaitMs, MaxBytes: c.t.MaxFetch})
}

func (c *Core) fetchResponse(id uint64, body ResponseBody) {
	if c.fetch.inflight != id {
		return
	}
	c.fetch.inflight = 0
	r, answered := body.(FetchResponse)
	c.fetch.missed = !answered && !c.fetch.missed
	if !answered {
		c.fetch.at = c.now + c.t.RetryMs
		return
	}
	if c.learn(r.Head) {
		return
	}
	if r.Code != OK || c.role != Follower {
		c.fetch.at = c.now + c.t.RetryMs
		return
	}
	c.fetch.timeoutAt, c.fetch.once = c.now+c.t.FetchMs, true
	c.fetch.hw = max(c.fetch.hw, r.HighWatermark)
	switch {
	case r.Diverging != nil:
		c.diverge(*r.Diverging)
	case r.Snapshot != nil:
		id := *r.Snapshot
		if id.Offset <= c.hw || id.Epoch < c.log.Start.Epoch { // we are past it: the answer makes no sense
			c.fetch.at = c.now + c.t.RetryMs
			return
		}
		c.fetch.installing, c.ready.Install = true, &id
	case len(r.Records) > 0:
		c.fetch.appending, c.ready.Append = true, r.Records
	default:
		c.followHighWatermark()
	}
}

// diverge cuts the log to where it agrees with the leader's. A leader that
// disagrees about something committed is not believed.
func (c *Core) diverge(d Position) {
	to := c.log.agree(d)
	if d.Epoch < 0 || d.Offset < 0 || to < max(c.hw, c.log.Start.Offset) || to >= c.log.End {
		c.fetch.at = c.now + c.t.RetryMs
		return
	}
	c.cut(to)
}

// followHighWatermark takes over the leader's high watermark as far as our log
// reaches. It never goes back.
func (c *Core) followHighWatermark() {
	c.hw = max(c.hw, min(c.fetch.hw, c.log.End))
}

func (c *Core) installing(failed bool) {
	if !c.fetch.installing {
		return
	}
	if failed {
		c.fetch.installing, c.fetch.at = false, c.now+c.t.RetryMs
		return
	}
	if c.role == Follower {
		c.fetch.timeoutAt = c.now + c.t.FetchMs
	}
}
