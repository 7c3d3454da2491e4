package classic

import (
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Client is who sent a request, as the group tells others.
type Client struct {
	ID   string
	Host string // "/192.0.2.1"
}

// Join is a JoinGroup request. It is answered at once or when the rebalance that
// it begins or takes part in has come to its end.
func (g *Group) Join(s *Step, q *kmsg.JoinGroupRequest, c Client, w *Waiting) {
	switch {
	case !g.accepts(q.MemberID, s.Config.MaxSize):
		g.remove(s, q.MemberID)
		g.refuseJoin(s, w, "", kerr.GroupMaxSizeReached)
	case !g.supports(q.ProtocolType, q.Protocols):
		g.refuseJoin(s, w, q.MemberID, kerr.InconsistentGroupProtocol)
	case q.MemberID != "":
		g.joinKnown(s, q, c, w)
	case q.InstanceID != nil:
		g.joinStatic(s, q, c, w)
	default:
		g.joinDynamic(s, q, c, w)
	}
}

// accepts is whether there is room for whoever joins.
func (g *Group) accepts(id string, limit int) bool {
	m := g.members[id]
	switch g.state {
	case Empty:
		return true
	case PreparingRebalance:
		return (m != nil && m.join != nil) || g.joining < limit
	}
	return m != nil || len(g.order) < limit
}

func (g *Group) joinStatic(s *Step, q *kmsg.JoinGroupRequest, c Client, w *Waiting) {
	id := memberID(s, *q.InstanceID)
	if old, ok := g.static[*q.InstanceID]; ok {
		s.Notes = append(s.Notes, fmt.Sprintf("group %s: static member %s takes the place of %s as %s", g.ID, *q.InstanceID, old, id))
		g.returnStatic(s, q, old, id, w)
		return
	}
	g.enroll(s, q, c, id, w)
}

func (g *Group) joinDynamic(s *Step, q *kmsg.JoinGroupRequest, c Client, w *Waiting) {
	id := memberID(s, c.ID)
	if q.Version < 4 {
		g.enroll(s, q, c, id, w)
		return
	}
	// KIP-394: the member gets its id first, so that a join that is tried again
	// does not make another member. An id that does not come back is forgotten
	// after a session.
	g.pending[id] = true
	s.Timers.Set(Timer{Session, g.ID, id}, s.Now.Add(ms(q.SessionTimeoutMillis)))
	g.refuseJoin(s, w, id, kerr.MemberIDRequired)
}

func (g *Group) joinKnown(s *Step, q *kmsg.JoinGroupRequest, c Client, w *Waiting) {
	if g.pending[q.MemberID] && q.InstanceID == nil {
		g.enroll(s, q, c, q.MemberID, w)
		return
	}
	if err := g.check(q.MemberID, q.InstanceID); err != nil {
		r := refusedJoin(q.MemberID, err)
		r.Protocol = nil
		s.answer(w, r)
		return
	}
	m := g.members[q.MemberID]
	switch {
	case g.state == PreparingRebalance:
		g.rejoin(s, q, m, w)
	case g.state == CompletingRebalance && m.matches(q.Protocols):
		// It has missed the answer to its join: it gets it again.
		r := g.joined(m.ID)
		if g.isLeader(m.ID) {
			r.Members = g.memberList()
		}
		s.answer(w, r)
	case g.state == CompletingRebalance, g.state == Stable && (g.isLeader(m.ID) || !m.matches(q.Protocols)):
		g.rejoin(s, q, m, w)
	case g.state == Stable:
		// A follower that has lost track learns the generation.
		s.answer(w, g.joined(m.ID))
	default:
		g.refuseJoin(s, w, q.MemberID, kerr.UnknownMemberID)
	}
}

// enroll makes a member.
func (g *Group) enroll(s *Step, q *kmsg.JoinGroupRequest, c Client, id string, w *Waiting) {
	m := &Member{
		ID: id, InstanceID: clone(q.InstanceID), ClientID: c.ID, ClientHost: c.Host,
		RebalanceTimeout: RebalanceTimeout(q), SessionTimeout: q.SessionTimeoutMillis, Protocols: protocols(q),
		Assignment: []byte{}, isNew: true, join: w,
	}
	if g.state == PreparingRebalance && g.previous == Empty {
		g.newMember = true
	}
	if len(g.order) == 0 {
		t := q.ProtocolType
		g.protocolType = &t
	}
	g.add(m)
	s.Timers.Set(Timer{Session, g.ID, id}, s.Now.Add(newMemberJoinTimeout))
	g.rebalance(s, "adding new member "+id+reason(q.Reason))
}

// rejoin updates a member that joins again, and rebalances.
func (g *Group) rejoin(s *Step, q *kmsg.JoinGroupRequest, m *Member, w *Waiting) {
	g.update(m, protocols(q), RebalanceTimeout(q), q.SessionTimeoutMillis, w)
	g.rebalance(s, fmt.Sprintf("member %s joins again in %v%s", m.ID, g.state, reason(q.Reason)))
}

// update replaces what a member joined with. A join that still waits is not
// answered any more: its connection sent another.
func (g *Group) update(m *Member, ps []Protocol, rebalance, session int32, w *Waiting) {
	g.vote(m, -1)
	m.Protocols, m.RebalanceTimeout, m.SessionTimeout = ps, rebalance, session
	g.vote(m, 1)
	switch {
	case w != nil && m.join == nil:
		g.joining++
	case w == nil && m.join != nil:
		g.joining--
	}
	m.join = w
}

// returnStatic lets a static member that has lost its member id come back
// (KIP-345). While the group is stable and the protocol stays the same, nobody
// else notices.
func (g *Group) returnStatic(s *Step, q *kmsg.JoinGroupRequest, old, id string, w *Waiting) {
	leaderBefore := g.leaderID()
	m := g.replaceStatic(s, *q.InstanceID, old, id)
	g.expectHeartbeat(s, m)
	was := *m
	g.update(m, protocols(q), RebalanceTimeout(q), q.SessionTimeoutMillis, w)
	switch g.state {
	case Stable:
		if g.protocol == nil || g.selectProtocol() != *g.protocol {
			g.rebalance(s, "static member "+id+" changes the protocol"+reason(q.Reason))
			return
		}
		s.Record = g.record(func(m *Member) []byte { return m.Assignment })
		s.Then = func(s *Step, failed *kerr.Error) { g.staticStored(s, &was, q.Version, leaderBefore, old, id, failed) }
	case CompletingRebalance:
		// The leader has, or will have, computed an assignment for the old id.
		g.prepare(s, "static member "+*q.InstanceID+" comes back as "+id+reason(q.Reason))
	default:
		g.rebalance(s, "")
	}
}

// staticStored answers a static member once its new id is stored.
func (g *Group) staticStored(s *Step, was *Member, version int16, leaderBefore, old, id string, failed *kerr.Error) {
	m := g.members[id]
	if m == nil {
		return // replaced or removed meanwhile, and told
	}
	if failed != nil {
		w := m.join
		g.update(m, was.Protocols, was.RebalanceTimeout, was.SessionTimeout, nil)
		g.expectHeartbeat(s, g.replaceStatic(s, *m.InstanceID, id, old))
		if w != nil {
			r := g.joined("")
			r.LeaderID, r.ErrorCode = leaderBefore, failed.Code
			s.answer(w, r)
		}
		return
	}
	if g.state != Stable {
		return // another rebalance has begun: it answers
	}
	r := g.joined(id)
	if version < 9 {
		// The old leader's id keeps the client from assigning anew.
		r.LeaderID = leaderBefore
	} else if g.isLeader(id) {
		r.Members, r.SkipAssignment = g.memberList(), true
	}
	g.answerJoin(s, m, r)
}

// replaceStatic gives a static member another id. Whoever still uses the old one
// is fenced.
func (g *Group) replaceStatic(s *Step, instance, old, id string) *Member {
	m := g.members[old]
	if m.join != nil {
		r := refusedJoin(old, kerr.FencedInstanceID)
		r.Protocol = nil
		g.answerJoin(s, m, r)
	}
	g.answerSync(s, m, syncFailed(kerr.FencedInstanceID))
	s.Timers.Cancel(Timer{Session, g.ID, old})
	n := *m
	n.ID, n.isNew = id, false
	delete(g.members, old)
	delete(g.unsynced, old)
	g.members[id] = &n
	g.order[slices.Index(g.order, m)] = &n
	g.static[instance] = id
	if g.isLeader(old) {
		g.leader = &n.ID
	}
	return &n
}

func (g *Group) joined(id string) *kmsg.JoinGroupResponse {
	r := kmsg.NewPtrJoinGroupResponse()
	r.MemberID, r.Generation, r.ProtocolType, r.Protocol, r.LeaderID = id, g.generation, g.protocolType, g.protocol, g.leaderID()
	return r
}

// memberList is what the leader computes the assignment from.
func (g *Group) memberList() []kmsg.JoinGroupResponseMember {
	var out []kmsg.JoinGroupResponseMember
	for _, m := range g.order {
		e := kmsg.NewJoinGroupResponseMember()
		e.MemberID, e.InstanceID, e.ProtocolMetadata = m.ID, m.InstanceID, m.metadata(g.protocol)
		out = append(out, e)
	}
	return out
}

func (g *Group) answerJoin(s *Step, m *Member, r *kmsg.JoinGroupResponse) {
	if m.join != nil {
		s.answer(m.join, r)
		m.join = nil
		g.joining--
	}
}

func (g *Group) refuseJoin(s *Step, w *Waiting, id string, err *kerr.Error) {
	s.answer(w, refusedJoin(id, err))
}

// refusedJoin is the answer to a join that failed. Kafka's protocol name is then
// mostly empty, and in some places null.
func refusedJoin(id string, err *kerr.Error) *kmsg.JoinGroupResponse {
	r := kmsg.NewPtrJoinGroupResponse()
	r.Generation, r.MemberID, r.ErrorCode = -1, id, err.Code
	return r
}

// RefusedJoin is the answer to a join for which no group was asked.
func RefusedJoin(version int16, id string, err *kerr.Error) *kmsg.JoinGroupResponse {
	r := refusedJoin(id, err)
	r.Version = version
	return r
}

func memberID(s *Step, prefix string) string {
	var b [16]byte
	if _, err := s.Rand.Read(b[:]); err != nil {
		panic(fmt.Sprintf("BUG: no randomness: %v", err))
	}
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80 // a random UUID, RFC 9562 version 4
	return fmt.Sprintf("%s-%x-%x-%x-%x-%x", prefix, b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// RebalanceTimeout of a member: v0 had none of its own.
func RebalanceTimeout(q *kmsg.JoinGroupRequest) int32 {
	if q.Version == 0 {
		return q.SessionTimeoutMillis
	}
	return q.RebalanceTimeoutMillis
}

// protocols copies what the request buffer holds.
func protocols(q *kmsg.JoinGroupRequest) []Protocol {
	out := make([]Protocol, 0, len(q.Protocols))
	for _, p := range q.Protocols {
		out = append(out, Protocol{Name: p.Name, Metadata: append([]byte{}, p.Metadata...)})
	}
	return out
}

func clone(s *string) *string {
	if s == nil {
		return nil
	}
	c := *s
	return &c
}

func reason(r *string) string {
	if r == nil || *r == "" {
		return ""
	}
	return "; client reason: " + *r
}
