package classic

import (
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
)

// rebalance begins one, or ends the one that goes on when it waits for nobody.
func (g *Group) rebalance(s *Step, why string) {
	switch {
	case g.state != PreparingRebalance:
		g.prepare(s, why)
	case g.previous != Empty && g.allJoined():
		// An initial rebalance is not cut short: its delay is there for more to come.
		g.complete(s)
	}
}

// prepare begins a rebalance: every member has to join again.
func (g *Group) prepare(s *Step, why string) {
	if g.state == CompletingRebalance {
		g.failSyncs(s, kerr.RebalanceInProgress)
	}
	g.forgetSyncs(s)
	g.initial = g.state == Empty
	from := g.state
	if g.initial {
		g.delay = s.Config.InitialDelay
		g.remaining = max(g.rebalanceTimeout()-g.delay, 0)
		s.Timers.Set(Timer{Kind: Join, Group: g.ID}, s.Now.Add(g.delay))
	}
	g.enter(s, PreparingRebalance)
	s.Notes = append(s.Notes, fmt.Sprintf("group %s: preparing to rebalance from %v with old generation %d: %s", g.ID, from, g.generation, why))
	g.why = why
	switch {
	case g.initial:
	case g.allJoined():
		g.complete(s)
	default:
		s.Timers.Set(Timer{Kind: Join, Group: g.ID}, s.Now.Add(g.rebalanceTimeout()))
		g.tellMissing(s)
	}
}

// JoinDue is the deadline of a rebalance: it goes on without those who are missing.
func (g *Group) JoinDue(s *Step) {
	if g.state != PreparingRebalance {
		return
	}
	if !g.initial || !g.newMember || g.remaining == 0 {
		g.complete(s)
		return
	}
	// Somebody joined while the first rebalance was delayed: others may follow.
	g.newMember = false
	delay := min(s.Config.InitialDelay, g.remaining)
	g.remaining = max(g.remaining-g.delay, 0)
	g.delay = delay
	s.Timers.Set(Timer{Kind: Join, Group: g.ID}, s.Now.Add(delay))
}

// complete ends the join phase with the members that have joined.
func (g *Group) complete(s *Step) {
	s.Timers.Cancel(Timer{Kind: Join, Group: g.ID})
	g.dropMissing(s)
	if !g.electLeader() && len(g.order) > 0 {
		s.Notes = append(s.Notes, fmt.Sprintf("group %s could not complete its rebalance: no member has rejoined", g.ID))
		s.Timers.Set(Timer{Kind: Join, Group: g.ID}, s.Now.Add(g.rebalanceTimeout()))
		g.initial = false
		return
	}
	g.nextGeneration(s)
	if g.state == Empty {
		s.Notes = append(s.Notes, fmt.Sprintf("group %s with generation %d is now empty", g.ID, g.generation))
		s.Record = g.record(func(*Member) []byte { return []byte{} })
		return
	}
	s.Notes = append(s.Notes, fmt.Sprintf("group %s: stabilized generation %d with %d members", g.ID, g.generation, len(g.order)))
	for _, m := range g.order {
		r := g.joined(m.ID)
		if g.isLeader(m.ID) {
			r.Members = g.memberList()
		}
		g.answerJoin(s, m, r)
		g.expectHeartbeat(s, m)
		m.isNew = false
		g.unsynced[m.ID] = true
	}
	s.Timers.Set(Timer{Kind: Sync, Group: g.ID}, s.Now.Add(g.rebalanceTimeout()))
}

// dropMissing removes the dynamic members that have not joined again.
func (g *Group) dropMissing(s *Step) {
	var gone []string
	for _, m := range g.order {
		if m.join == nil && m.InstanceID == nil {
			gone = append(gone, m.ID)
		}
	}
	for _, id := range gone {
		g.remove(s, id)
	}
	if len(gone) > 0 {
		s.Notes = append(s.Notes, fmt.Sprintf("group %s removed dynamic members who haven't joined: %s", g.ID, strings.Join(gone, ", ")))
	}
}

// electLeader makes a member that has joined the leader. False when there is none.
func (g *Group) electLeader() bool {
	if g.leader == nil {
		return false
	}
	if m := g.members[*g.leader]; m != nil && m.join != nil {
		return true
	}
	for _, m := range g.order {
		if m.join != nil {
			g.leader = &m.ID
			return true
		}
	}
	return false
}

func (g *Group) nextGeneration(s *Step) {
	g.generation++
	if len(g.order) > 0 {
		p := g.selectProtocol()
		g.protocol = &p
		g.subscribed = g.computeSubscribed()
		g.enter(s, CompletingRebalance)
	} else {
		g.protocol = nil
		g.subscribed = g.computeSubscribed()
		g.enter(s, Empty)
	}
	clear(g.unsynced)
}

// SyncDue is the deadline for members to ask for their assignment.
func (g *Group) SyncDue(s *Step) {
	if (g.state != CompletingRebalance && g.state != Stable) || len(g.unsynced) == 0 {
		return
	}
	var gone []string
	for _, m := range g.order {
		if g.unsynced[m.ID] {
			gone = append(gone, m.ID)
		}
	}
	for _, id := range gone {
		g.remove(s, id)
	}
	s.Notes = append(s.Notes, fmt.Sprintf("group %s removed members who haven't sent their sync request: %s", g.ID, strings.Join(gone, ", ")))
	g.prepare(s, "removing "+strings.Join(gone, ", ")+" on pending sync request expiration")
}

// SessionDue is the end of a member's session.
func (g *Group) SessionDue(s *Step, id string) {
	if g.pending[id] {
		s.Notes = append(s.Notes, fmt.Sprintf("group %s: pending member %s was removed: it did not join in its session timeout", g.ID, id))
		g.remove(s, id)
		g.maybeComplete(s)
		return
	}
	m := g.members[id]
	if m == nil || (!m.isNew && (m.join != nil || m.sync != nil)) {
		return // one who waits for an answer is alive as long as its rebalance goes on
	}
	s.Notes = append(s.Notes, fmt.Sprintf("group %s: member %s has failed, removing it", g.ID, id))
	g.dismiss(s, m)
	if g.state == PreparingRebalance {
		g.maybeComplete(s)
		return
	}
	g.rebalance(s, "removing member "+id+" on heartbeat expiration")
}

// maybeComplete ends the join phase when those who are left have all joined.
func (g *Group) maybeComplete(s *Step) {
	if g.state == PreparingRebalance && g.allJoined() {
		g.complete(s)
	}
}

// dismiss removes a member and tells it, should it be waiting for a rebalance.
func (g *Group) dismiss(s *Step, m *Member) {
	g.answerJoin(s, m, refusedJoin("", kerr.UnknownMemberID))
	g.remove(s, m.ID)
}

func (g *Group) forgetSyncs(s *Step) {
	clear(g.unsynced)
	s.Timers.Cancel(Timer{Kind: Sync, Group: g.ID})
}

// synced notes that a member has asked for its assignment.
func (g *Group) synced(s *Step, id string) {
	delete(g.unsynced, id)
	if len(g.unsynced) == 0 {
		s.Timers.Cancel(Timer{Kind: Sync, Group: g.ID})
	}
}
