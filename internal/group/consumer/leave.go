package consumer

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/group/classic"
)

// Leave is a heartbeat with which a member leaves. A static member may go for a
// while, and keep what it has. out are the members to take out of the group with
// Fence.
func (g *Group) Leave(s *Step, q *kmsg.ConsumerGroupHeartbeatRequest) (r *kmsg.ConsumerGroupHeartbeatResponse, out []*Member, err *Error) {
	r = q.ResponseKind().(*kmsg.ConsumerGroupHeartbeatResponse)
	id := q.MemberID
	r.MemberID, r.MemberEpoch = &id, q.MemberEpoch
	if q.InstanceID == nil {
		m := g.Member(id)
		if m == nil {
			return nil, nil, g.unknown(id)
		}
		s.note("group %s: member %s has left", g.ID, id)
		return r, []*Member{m}, nil
	}
	m := g.staticMember(q.InstanceID)
	if err := g.checkInstance(m, id, *q.InstanceID); err != nil {
		return nil, nil, err
	}
	if q.MemberEpoch != StaticLeaveEpoch {
		s.note("group %s: static member %s with instance id %s has left", g.ID, id, *q.InstanceID)
		return r, []*Member{m}, nil
	}
	s.note("group %s: static member %s with instance id %s has left for a while", g.ID, id, *q.InstanceID)
	away := *m
	away.Epoch, away.Revoking, away.Assigned = StaticLeaveEpoch, nil, Owned{}
	for topic, ps := range m.Assigned {
		for p := range ps {
			away.Assigned.add(topic, p, 0) // whoever comes back has had it from the beginning
		}
	}
	s.write(away.currentRecord(g.ID))
	return r, nil, nil
}

// Fence takes members out of the group. See Downgrades for what is to be asked first.
func (g *Group) Fence(s *Step, out []*Member) {
	if len(out) == 0 {
		return
	}
	for _, m := range out {
		g.removeMember(s, m.ID)
	}
	gone := map[string]int{}
	names := g.names
	for _, m := range out {
		for _, t := range m.Topics {
			names = addSubscribers(names, t, subscribers{byName: -1})
		}
		if re := m.regex(); re != "" {
			if gone[re]++; gone[re] == g.patternCount(re) {
				s.write(Record{Kind: KindRegex, Group: g.ID, Of: re})
				names = g.withoutRegex(names, re)
			}
		}
	}
	g.bump(s, g.Epoch+1, metadataHash(s.Image, keys(names)))
	for _, m := range out {
		s.cancelTimers(g, m.ID)
	}
}

// Downgrades tells whether the group becomes a classic one when members leave: all
// that are left use that protocol.
func (g *Group) Downgrades(s *Step, out []*Member) bool {
	leaving := 0
	for _, m := range out {
		if m.Classic != nil {
			leaving++
		}
	}
	left := g.Size() - len(out)
	if g.classic-leaving != left || left <= 0 || len(out) == 0 {
		return false
	}
	return g.mayDowngrade(s, left)
}

func (g *Group) mayDowngrade(s *Step, members int) bool {
	switch {
	case !s.Config.Downgrade:
		s.note("group %s: it stays a consumer group, whose members all use the classic protocol: group.consumer.migration.policy", g.ID)
	case members > s.Config.ClassicMaxSize:
		s.note("group %s: it stays a consumer group: it is larger than group.max.size", g.ID)
	default:
		return true
	}
	return false
}

// Due is a member's timer that has come. out are the members to take out with Fence.
// Timers but for the session's are not canceled when the member has done what they
// wait for, as that may not be committed: they mean nothing to such a member.
func (g *Group) Due(s *Step, kind classic.TimerKind, id string) (out []*Member) {
	m := g.Member(id)
	if m == nil {
		return nil
	}
	why := ""
	switch {
	case kind == classic.MemberSession:
		why = "its session expired"
	case kind == classic.MemberJoin && m.Classic != nil:
		why = "it did not join again in its rebalance timeout"
	case kind == classic.MemberSync && m.Classic != nil:
		why = "it did not ask for its assignment in its rebalance timeout"
	case kind == classic.MemberRevoke && m.Classic == nil && m.State == Unrevoked:
		why = "it did not give up partitions in its rebalance timeout"
	default:
		return nil
	}
	s.note("group %s: member %s is fenced: %s", g.ID, id, why)
	return []*Member{m}
}

// Load starts the timers of all members, when the group has been taken over.
func (g *Group) Load(s *Step) {
	for id, m := range all(g.members) {
		s.setTimer(classic.MemberSession, g, id, s.Settings.Session)
		if m.Classic == nil && m.State == Unrevoked {
			s.setTimer(classic.MemberRevoke, g, id, ms(m.RebalanceTimeout))
		}
	}
}

// CancelTimers forgets the timers of all members, when the group is gone.
func (g *Group) CancelTimers(s *Step) {
	for id := range all(g.members) {
		s.cancelTimers(g, id)
	}
}

// PartitionCheck is whether an offset of a partition may be committed.
type PartitionCheck func(topic [16]byte, p int32) *kerr.Error

// Any is a PartitionCheck that nothing fails.
func Any([16]byte, int32) *kerr.Error { return nil }

// CheckCommit is whether a member may commit offsets. check is then to be asked for
// each partition: a member whose epoch is older than the group's may commit only for
// what it has had since.
func (g *Group) CheckCommit(id string, instance *string, epoch int32, transactional bool, version int16) (check PartitionCheck, err *kerr.Error) {
	switch {
	case epoch < 0 && g.Size() == 0:
		return Any, nil // an administrator, or a consumer that uses no membership
	case transactional && epoch == -1 && id == "" && instance == nil:
		return Any, nil
	}
	m := g.Member(id)
	if m == nil {
		return nil, kerr.UnknownMemberID
	}
	if !transactional && m.Classic == nil && version < 9 {
		return nil, kerr.UnsupportedVersion
	}
	stale := m.stale()
	switch {
	case epoch == m.Epoch:
		return Any, nil
	case epoch > m.Epoch:
		return nil, stale
	}
	return func(topic [16]byte, p int32) *kerr.Error {
		since, ok := m.Assigned[topic][p]
		if !ok {
			since, ok = m.Revoking[topic][p]
		}
		if !ok || epoch < since {
			return stale
		}
		return nil
	}, nil
}

// stale is how a member is told that its epoch is not the group's.
func (m *Member) stale() *kerr.Error {
	if m.Classic != nil {
		return kerr.IllegalGeneration
	}
	return kerr.StaleMemberEpoch
}

// CheckFetch is whether a member may read offsets; id is nil when it does not say.
func (g *Group) CheckFetch(id *string, epoch int32) *kerr.Error {
	switch {
	case id == nil && epoch < 0:
		return nil
	case id == nil:
		return kerr.UnknownServerError // Kafka fails on it
	}
	m := g.Member(*id)
	switch {
	case m == nil:
		return kerr.UnknownMemberID
	case epoch != m.Epoch:
		return m.stale()
	}
	return nil
}
