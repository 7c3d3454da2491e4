package classic

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Heartbeat says that a member is alive, and lets it know of a rebalance.
func (g *Group) Heartbeat(s *Step, q *kmsg.HeartbeatRequest) *kerr.Error {
	if err := g.check(q.MemberID, q.InstanceID); err != nil {
		return err
	}
	if q.Generation != g.generation {
		return kerr.IllegalGeneration
	}
	g.expectHeartbeat(s, g.members[q.MemberID])
	if g.state == PreparingRebalance {
		return kerr.RebalanceInProgress
	}
	return nil
}

// Leave takes members out of the group, and tells of each what became of it.
func (g *Group) Leave(s *Step, members []kmsg.LeaveGroupRequestMember) []kmsg.LeaveGroupResponseMember {
	var out []kmsg.LeaveGroupResponseMember
	left := false
	for _, q := range members {
		r := kmsg.NewLeaveGroupResponseMember()
		r.MemberID, r.InstanceID = q.MemberID, q.InstanceID
		if err := g.leave(s, &q); err != nil {
			r.ErrorCode = err.Code
		} else {
			left = true
		}
		out = append(out, r)
	}
	switch {
	case !left:
	case g.state == PreparingRebalance:
		g.rebalance(s, "")
	case g.state != Empty:
		g.rebalance(s, "explicit LeaveGroup request")
	}
	return out
}

func (g *Group) leave(s *Step, q *kmsg.LeaveGroupRequestMember) *kerr.Error {
	id := q.MemberID
	switch {
	case id == "":
		// An administrator names static members by instance only.
		known, ok := "", false
		if q.InstanceID != nil {
			known, ok = g.static[*q.InstanceID]
		}
		if !ok {
			return kerr.UnknownMemberID
		}
		id = known
	case g.pending[id]:
		g.remove(s, id)
		return nil
	default:
		if err := g.check(id, q.InstanceID); err != nil {
			return err
		}
	}
	s.Notes = append(s.Notes, fmt.Sprintf("group %s: member %s has left%s", g.ID, id, reason(q.Reason)))
	g.dismiss(s, g.members[id])
	return nil
}

// CheckCommit is whether a commit of offsets may be stored. With transactional
// set it is part of a transaction.
func (g *Group) CheckCommit(id string, instance *string, generation int32, transactional bool) *kerr.Error {
	switch {
	case generation < 0 && g.state == Empty:
		// Offsets of consumers that use no group membership.
		return nil
	case generation >= 0 || id != "" || instance != nil:
		if err := g.check(id, instance); err != nil {
			return err
		}
		if generation != g.generation {
			return kerr.IllegalGeneration
		}
	case !transactional && g.state != Empty:
		return kerr.UnknownMemberID
	}
	if !transactional && g.state == CompletingRebalance {
		// The member has to join the new generation before it may commit.
		return kerr.RebalanceInProgress
	}
	return nil
}

// Committed takes a commit as a sign of life.
func (g *Group) Committed(s *Step, id string) {
	if m := g.members[id]; m != nil && (g.state == Stable || g.state == PreparingRebalance) {
		g.expectHeartbeat(s, m)
	}
}

// Describe fills in what DescribeGroups tells of the group.
func (g *Group) Describe(r *kmsg.DescribeGroupsResponseGroup) {
	r.State, r.ProtocolType = g.state.String(), g.ProtocolType()
	if g.state == Stable && g.protocol != nil {
		r.Protocol = *g.protocol
	}
	for _, m := range g.order {
		e := kmsg.NewDescribeGroupsResponseGroupMember()
		e.MemberID, e.InstanceID, e.ClientID, e.ClientHost = m.ID, m.InstanceID, m.ClientID, m.ClientHost
		// While a group rebalances the assignment is the one of before.
		e.ProtocolMetadata, e.MemberAssignment = []byte{}, m.Assignment
		if g.state == Stable {
			e.ProtocolMetadata = m.metadata(g.protocol)
		}
		r.Members = append(r.Members, e)
	}
}

// Waiters gives up on all who wait, as when another node has taken the group over.
func (g *Group) Waiters(err *kerr.Error) []Answer {
	var s Step
	for _, m := range g.order {
		g.answerJoin(&s, m, refusedJoin(m.ID, err))
		g.answerSync(&s, m, syncFailed(err))
	}
	return s.Answers
}

// CancelTimers forgets the deadlines of the group and its members.
func (g *Group) CancelTimers(s *Step) {
	s.Timers.Cancel(Timer{Kind: Join, Group: g.ID})
	s.Timers.Cancel(Timer{Kind: Sync, Group: g.ID})
	s.Timers.Cancel(Timer{Kind: Overdue, Group: g.ID})
	for _, m := range g.order {
		s.Timers.Cancel(Timer{Session, g.ID, m.ID})
	}
	for id := range g.pending {
		s.Timers.Cancel(Timer{Session, g.ID, id})
	}
}
