package classic

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// A rebalance that waits for members is told of when it begins, when it has
// lasted tellFirst, and then each time it has lasted twice as long: whoever reads
// the log sees what is stuck without asking, and is not flooded.
const tellFirst = 5 * time.Second

// Missing is what a rebalance waits for.
type Missing struct {
	Group      string
	State      State
	Generation int32 // the one before the rebalance, or that which is being assigned
	Why        string
	Members    []Absent
	Since      time.Time     // when the group entered the state
	For        time.Duration // since then
	Until      time.Time     // when it goes on without them; zero when that is not known
	Told       bool          // the log has been told less than 5 s ago
}

// Absent is a member that a rebalance waits for.
type Absent struct {
	ID                   string
	InstanceID           *string
	ClientID, ClientHost string
	// Role is what it has to do: "join", "join for the first time" (an id that was
	// handed out) or "assign" (the leader).
	Role string
}

// String names the member and what it has to do.
func (a Absent) String() string {
	out := a.ID
	if a.InstanceID != nil {
		out += " (instance " + *a.InstanceID + ")"
	}
	if a.ClientHost != "" {
		out += fmt.Sprintf(" of client %q at %s", a.ClientID, a.ClientHost)
	}
	return out + " has to " + a.Role
}

// namesAtMost bounds the members that a line of the log names.
const namesAtMost = 20

// Names lists the members for a line of the log: all, or the first and how many more.
func (m *Missing) Names() []string {
	out := make([]string, 0, min(len(m.Members), namesAtMost+1))
	for i, a := range m.Members {
		if i == namesAtMost {
			return append(out, fmt.Sprintf("and %d more", len(m.Members)-i))
		}
		out = append(out, a.String())
	}
	return out
}

// Missing says whom a rebalance waits for; nil when it waits for nobody. An
// initial rebalance waits for nobody: its delay has to pass.
func (g *Group) Missing(s *Step) *Missing {
	w := &Missing{Group: g.ID, State: g.state, Generation: g.generation, Why: g.why}
	timer := Timer{Kind: Join, Group: g.ID}
	switch {
	case g.state == PreparingRebalance && !g.initial:
		w.Members = g.unjoined()
	case g.state == CompletingRebalance:
		timer.Kind = Sync
		if m := g.members[g.leaderID()]; m != nil && m.sync == nil {
			w.Members = append(w.Members, absent(m, "assign"))
		}
	}
	if len(w.Members) == 0 {
		return nil
	}
	if g.sinceMs >= 0 {
		w.Since = time.UnixMilli(g.sinceMs)
		w.For = s.Now.Sub(w.Since)
	}
	w.Until, _ = s.Timers.Get(timer)
	w.Told = !g.told.IsZero() && s.Now.Sub(g.told) < tellFirst
	return w
}

// DescribeMissing is Missing for who describes the group and tells the log of it.
func (g *Group) DescribeMissing(s *Step) *Missing {
	w := g.Missing(s)
	if w != nil && !w.Told {
		g.told = s.Now
	}
	return w
}

// unjoined lists who has not joined a rebalance, by id.
func (g *Group) unjoined() []Absent {
	var out []Absent
	for _, m := range g.order {
		if m.join == nil {
			out = append(out, absent(m, "join"))
		}
	}
	for id := range g.pending {
		out = append(out, Absent{ID: id, Role: "join for the first time"})
	}
	slices.SortFunc(out, func(a, b Absent) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

func absent(m *Member, role string) Absent {
	return Absent{ID: m.ID, InstanceID: m.InstanceID, ClientID: m.ClientID, ClientHost: m.ClientHost, Role: role}
}

// tellMissing has the log name those whom the group waits for.
func (g *Group) tellMissing(s *Step) {
	if w := g.Missing(s); w != nil {
		s.Waits, g.told = append(s.Waits, w), s.Now
	}
}

// watch sets the timer that tells of a rebalance again, when one begins, and
// takes it away at its end.
func (g *Group) watch(s *Step) {
	timer := Timer{Kind: Overdue, Group: g.ID}
	if g.state != PreparingRebalance && g.state != CompletingRebalance {
		g.rebalancing = time.Time{}
		s.Timers.Cancel(timer)
		return
	}
	if g.rebalancing.IsZero() {
		g.rebalancing, g.tellAfter = s.Now, tellFirst
		s.Timers.Set(timer, s.Now.Add(tellFirst))
	}
}

// OverdueDue tells of a rebalance that still goes on.
func (g *Group) OverdueDue(s *Step) {
	if g.rebalancing.IsZero() {
		return
	}
	g.tellMissing(s)
	g.tellAfter *= 2
	s.Timers.Set(Timer{Kind: Overdue, Group: g.ID}, g.rebalancing.Add(g.tellAfter))
}
