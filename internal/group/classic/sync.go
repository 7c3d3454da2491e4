package classic

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Sync is a SyncGroup request: a member asks for its assignment, and the leader
// brings those of all. It is answered when the leader's are committed.
func (g *Group) Sync(s *Step, q *kmsg.SyncGroupRequest, w *Waiting) {
	if err := g.checkSync(q); err != nil {
		s.answer(w, syncFailed(err))
		return
	}
	m := g.members[q.MemberID]
	switch g.state {
	case PreparingRebalance:
		s.answer(w, syncFailed(kerr.RebalanceInProgress))
	case Stable:
		g.synced(s, m.ID)
		r := kmsg.NewPtrSyncGroupResponse()
		r.ProtocolType, r.Protocol, r.MemberAssignment = g.protocolType, g.protocol, m.Assignment
		s.answer(w, r)
	case CompletingRebalance:
		m.sync = w
		g.synced(s, m.ID)
		if g.isLeader(m.ID) {
			g.store(s, q)
		}
	default:
		s.answer(w, syncFailed(kerr.UnknownMemberID))
	}
}

func (g *Group) checkSync(q *kmsg.SyncGroupRequest) *kerr.Error {
	if len(g.order) == 0 {
		return kerr.UnknownMemberID
	}
	if err := g.check(q.MemberID, q.InstanceID); err != nil {
		return err
	}
	switch {
	case q.Generation != g.generation:
		return kerr.IllegalGeneration
	case differs(q.ProtocolType, g.protocolType), differs(q.Protocol, g.protocol):
		return kerr.InconsistentGroupProtocol
	}
	return nil
}

// differs is whether a member names another protocol than the group has: it need
// not name any.
func differs(asked, have *string) bool {
	return asked != nil && (have == nil || *asked != *have)
}

// store writes the leader's assignment. Only when it is committed does the group
// become stable.
func (g *Group) store(s *Step, q *kmsg.SyncGroupRequest) {
	assigned := map[string][]byte{}
	for _, a := range q.GroupAssignment {
		assigned[a.MemberID] = append([]byte{}, a.MemberAssignment...)
	}
	for _, m := range g.order {
		if assigned[m.ID] == nil {
			assigned[m.ID] = []byte{}
		}
	}
	s.Record = g.record(func(m *Member) []byte { return assigned[m.ID] })
	generation := g.generation
	s.Then = func(s *Step, failed *kerr.Error) {
		// A rebalance may have begun meanwhile: then there is nothing left to do.
		if g.state != CompletingRebalance || g.generation != generation {
			return
		}
		if failed != nil {
			g.failSyncs(s, failed)
			g.rebalance(s, fmt.Sprintf("error %s when storing the group assignment", failed.Message))
			return
		}
		for _, m := range g.order {
			m.Assignment = assigned[m.ID]
			r := kmsg.NewPtrSyncGroupResponse()
			r.ProtocolType, r.Protocol, r.MemberAssignment = g.protocolType, g.protocol, m.Assignment
			if m.sync != nil {
				g.answerSync(s, m, r)
				g.expectHeartbeat(s, m)
			}
		}
		g.enter(s, Stable)
	}
}

// failSyncs answers every member that waits for an assignment, and takes away
// the old ones.
func (g *Group) failSyncs(s *Step, err *kerr.Error) {
	for _, m := range g.order {
		m.Assignment = []byte{}
		if m.sync != nil {
			g.answerSync(s, m, syncFailed(err))
			g.expectHeartbeat(s, m)
		}
	}
}

func (g *Group) answerSync(s *Step, m *Member, r *kmsg.SyncGroupResponse) {
	if m.sync != nil {
		s.answer(m.sync, r)
		m.sync = nil
	}
}

func syncFailed(err *kerr.Error) *kmsg.SyncGroupResponse {
	r := kmsg.NewPtrSyncGroupResponse()
	r.ErrorCode, r.MemberAssignment = err.Code, []byte{}
	return r
}
