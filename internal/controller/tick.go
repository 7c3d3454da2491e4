package controller

import (
	"fmt"
	"math"
	"slices"

	"weir/internal/image"
	"weir/internal/records"
)

// Tick does what time asks for: sessions that ran out are fenced, leaderless partitions get unclean leaders where that is allowed,
// leaderships go back to preferred replicas, and an idle log gets a NoOpRecord so that followers and brokers see it move.
// Call it at NextTick or at any other time.
func (c *Core) Tick(s Step) Result {
	if !c.soft.active {
		return Result{}
	}
	d := image.NewDelta(s.Image)
	var res Result
	for _, ref := range c.expired(s.NowMs) {
		img := d.Image()
		c.died(c.soft.brokers[ref.ID], s.NowMs)
		b, ok := img.Broker(ref.ID)
		if !ok || b.Epoch != ref.Epoch || b.Fenced {
			continue
		}
		res.Notes = append(res.Notes, fmt.Sprintf("fencing broker %d at epoch %d because its session has timed out", b.ID, b.Epoch))
		res.Records = replay(d, res.Records, c.fence(img, b))
	}
	if due(&c.soft.nextUncleanMs, c.o.UncleanIntervalMs, s.NowMs) {
		res.Records = replay(d, res.Records, c.electUncleanly(d.Image()))
	}
	res.Records = c.giveBack(s, d, res.Records)
	if due(&c.soft.nextBalanceMs, c.o.RebalanceIntervalMs, s.NowMs) {
		res.Records = replay(d, res.Records, c.balance(d.Image(), nobody))
	}
	if len(c.o.Raise) > 0 && due(&c.soft.nextRaiseMs, raiseIntervalMs, s.NowMs) {
		recs, notes := c.raise(s, d.Image())
		res.Records, res.Notes = replay(d, res.Records, recs), append(res.Notes, notes...)
	}
	if due(&c.soft.nextNoOpMs, c.o.NoOpIntervalMs, s.NowMs) {
		r := records.NewNoOpRecord()
		res.Records = append(res.Records, records.Versioned{Record: &r})
	}
	return res
}

// due reports whether a periodic duty is due and sets its next time.
func due(next *int64, interval, nowMs int64) bool {
	if interval <= 0 || nowMs < *next {
		return false
	}
	*next = nowMs + interval
	return true
}

// NextTick is the time in milliseconds at which Tick has something to do; math.MaxInt64 when never.
func (c *Core) NextTick() int64 {
	next := int64(math.MaxInt64)
	if !c.soft.active {
		return next
	}
	for _, duty := range []struct{ at, interval int64 }{
		{c.soft.nextNoOpMs, c.o.NoOpIntervalMs}, {c.soft.nextUncleanMs, c.o.UncleanIntervalMs}, {c.soft.nextBalanceMs, c.o.RebalanceIntervalMs},
	} {
		if duty.interval > 0 {
			next = min(next, duty.at)
		}
	}
	if len(c.o.Raise) > 0 {
		next = min(next, c.soft.nextRaiseMs)
	}
	for _, b := range c.soft.brokers {
		if b.contactMs != noContact {
			next = min(next, b.contactMs+c.o.SessionTimeoutMs)
		}
		if b.returnDueMs > 0 {
			next = min(next, b.returnDueMs)
		}
	}
	return next
}

// expired lists the sessions that ran out, by broker id.
func (c *Core) expired(nowMs int64) []BrokerRef {
	var out []BrokerRef
	for id, b := range c.soft.brokers {
		if b.contactMs != noContact && !c.validSession(id, b.epoch, nowMs) {
			out = append(out, BrokerRef{id, b.epoch})
		}
	}
	slices.SortFunc(out, func(a, b BrokerRef) int { return int(a.ID - b.ID) })
	return out
}

// returned starts the wait after which a broker that came back gets its preferred leaderships again (availability promise C4).
func (c *Core) returned(ses *session, nowMs int64) {
	ses.unfencedMs = nowMs
	if c.o.RebalanceIntervalMs <= 0 || c.o.RebalanceAfterReturnMs <= 0 {
		return
	}
	ses.returnWaitMs = max(ses.returnWaitMs, c.o.RebalanceAfterReturnMs)
	ses.returnDueMs = nowMs + ses.returnWaitMs
}

// giveBack elects returned brokers where they are preferred and in sync again. While one is not in sync everywhere its wait starts
// over; the regular rebalancing is the backstop.
func (c *Core) giveBack(s Step, d *image.Delta, recs []records.Versioned) []records.Versioned {
	ids := make([]int32, 0, len(c.soft.brokers))
	for id, b := range c.soft.brokers {
		if b.returnDueMs > 0 && s.NowMs >= b.returnDueMs {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	for _, id := range ids {
		img, b := d.Image(), c.soft.brokers[id]
		if catchingUp(img, id) {
			b.returnDueMs = s.NowMs + b.returnWaitMs
			continue
		}
		b.returnDueMs = 0
		recs = replay(d, recs, c.balance(img, id))
	}
	return recs
}

// catchingUp reports whether the broker is out of sync in a partition that it should lead.
func catchingUp(img *image.Image, broker int32) bool {
	for _, p := range img.PartitionsOn(broker) {
		if p.Replicas[0] == broker && p.Leader != broker && !slices.Contains(p.ISR, broker) {
			return true
		}
	}
	return false
}
