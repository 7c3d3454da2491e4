package classic

import (
	"time"

	"weir/internal/records"
)

// Generation is the number of the last rebalance.
func (g *Group) Generation() int32 { return g.generation }

// Protocol is the protocol that was chosen, nil before the first rebalance has been
// completed.
func (g *Group) Protocol() *string { return g.protocol }

// Members lists the members. They are not to be changed.
func (g *Group) Members() []*Member { return g.order }

// Metadata is what the member joined with for a protocol.
func (m *Member) Metadata(protocol string) []byte { return m.metadata(&protocol) }

// Converted is the group that a consumer group becomes when only members of the
// classic protocol are left. These have what they were assigned there (assign tells
// it, once the protocol is chosen), and the first one leads.
func Converted(id string, now time.Time, generation int32, members []*Member, assign func(m *Member, protocol string) []byte) *Group {
	g := New(id, now)
	kind := Consumer
	g.state, g.generation, g.protocolType = Stable, generation, &kind
	for _, m := range members {
		g.add(m)
	}
	p := g.selectProtocol()
	g.protocol = &p
	g.subscribed = g.computeSubscribed()
	for _, m := range g.order {
		m.Assignment = assign(m, p)
	}
	return g
}

// Stored is the group's stored state with the assignments that its members have.
func (g *Group) Stored() *records.GroupMetadataValue {
	return g.record(func(m *Member) []byte { return m.Assignment })
}

// Start begins the sessions of a converted group's members, and a rebalance if there
// is a reason for one.
func (g *Group) Start(s *Step, why string) {
	for _, m := range g.order {
		g.expectHeartbeat(s, m)
	}
	if why != "" {
		g.prepare(s, why)
	}
}
