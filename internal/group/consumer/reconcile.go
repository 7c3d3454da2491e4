package consumer

import (
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/group/assignor"
	"weir/internal/group/classic"
	"weir/internal/uuid"
)

// target is what a member is to be brought to.
type target struct {
	epoch int32
	parts assignor.Assignment
}

// report is the partitions that a member says it owns; nil when it says nothing.
type report []kmsg.ConsumerGroupHeartbeatRequestTopic

// reconcile brings a member nearer to its target, and writes that down. With
// subscribed set its subscription has just changed: what it does not read any more
// is to be given up at once.
func (g *Group) reconcile(s *Step, m *Member, to target, subscribed bool, owns report) (*Member, *Error) {
	if !subscribed && m.reconciled(to.epoch) {
		return m, nil
	}
	r := reconciler{g: g, s: s, m: m, to: to, owns: owns}
	next, err := r.next(subscribed)
	if err != nil || next.sameAssignment(m) {
		return m, err
	}
	s.write(next.currentRecord(g.ID))
	if next.Classic == nil && next.State == Unrevoked { // classic ones have timers for joining and syncing
		s.setTimer(classic.MemberRevoke, g, next.ID, ms(next.RebalanceTimeout))
	}
	return next, nil
}

// reconciler is one step of a member (Kafka's CurrentAssignmentBuilder).
type reconciler struct {
	g    *Group
	s    *Step
	m    *Member
	to   target
	owns report
}

func (r *reconciler) next(subscribed bool) (*Member, *Error) {
	m := r.m
	switch m.State {
	case Stable:
		switch {
		case m.Epoch != r.to.epoch:
			return r.advance(m.Epoch), nil
		case subscribed:
			return r.shrink(), nil
		}
		return m, nil
	case Unrevoked:
		if r.stillOwns(m.Revoking) {
			if subscribed {
				return r.shrink(), nil
			}
			return m, nil
		}
		return r.advance(m.Epoch), nil
	case Unreleased:
		return r.advance(m.Epoch), nil
	}
	// A newer version has written this state: the member has to begin anew.
	if r.owns == nil || len(r.owns) > 0 {
		return nil, refuse(kerr.FencedMemberEpoch, "The consumer group member is in a unknown state. The member must abandon all its partitions and rejoin.")
	}
	return r.advance(r.to.epoch), nil
}

// stillOwns tells whether the member has, as far as is known, any of the partitions.
func (r *reconciler) stillOwns(ps Owned) bool {
	if r.owns == nil {
		return true
	}
	for _, t := range r.owns {
		for _, p := range t.Partitions {
			if ps.has(t.TopicID, p) {
				return true
			}
		}
	}
	return false
}

// shrink takes from the member what it does not subscribe to any more, without
// looking at its target.
func (r *reconciler) shrink() *Member {
	m := r.m
	reads, any := r.subscription()
	assigned, revoking := Owned{}, maps.Clone(m.Revoking)
	if revoking == nil {
		revoking = Owned{}
	}
	for topic, ps := range m.Assigned {
		if reads(topic) {
			assigned[topic] = ps
			continue
		}
		all := maps.Clone(m.Revoking[topic])
		if all == nil {
			all = map[int32]int32{}
		}
		maps.Copy(all, ps)
		revoking[topic] = all
	}
	// Kafka takes "nothing to read and nothing to revoke" for a change, always.
	if len(assigned) == len(m.Assigned) && (any || len(m.Revoking) > 0) {
		return m
	}
	n := *m
	n.PreviousEpoch, n.Assigned = m.Epoch, assigned
	if len(revoking) > 0 && r.stillOwns(revoking) {
		n.State, n.Revoking = Unrevoked, revoking
	}
	return &n
}

// subscription tells of each topic whether the member subscribes to it, and whether
// it names any. A regular expression that is not resolved yet matches nothing.
func (r *reconciler) subscription() (reads func(topic uuid.UUID) bool, any bool) {
	names := map[string]bool{}
	for _, n := range r.m.Topics {
		names[n] = true
	}
	if re := r.g.resolved(r.m.regex()); re != nil {
		for _, n := range re.Topics {
			names[n] = true
		}
	}
	return func(topic uuid.UUID) bool {
		t, ok := r.s.Image.TopicByID(topic)
		return ok && names[t.Name]
	}, len(names) > 0
}

// advance computes what the member has next on its way to the target: first it
// keeps only what it shall have; when nothing is left to revoke it gets the rest, as
// far as that is free.
func (r *reconciler) advance(epoch int32) *Member {
	m := r.m
	reads, _ := r.subscription()
	wanted := r.to.parts.ByTopic()
	assigned, revoking, pending := Owned{}, Owned{}, map[uuid.UUID][]int32{}
	waits := false
	topics := slices.AppendSeq(slices.Collect(maps.Keys(wanted)), maps.Keys(m.Assigned))
	slices.SortFunc(topics, uuid.UUID.Compare)
	for _, topic := range slices.Compact(topics) {
		shall := map[int32]bool{}
		if reads(topic) {
			for _, p := range wanted[topic] {
				shall[p] = true
			}
		}
		for p, at := range m.Assigned[topic] {
			if shall[p] {
				assigned.add(topic, p, at)
			} else {
				revoking.add(topic, p, at)
			}
		}
		for p := range shall {
			switch {
			case m.Assigned.has(topic, p):
			case r.g.owner(topic, p) != -1 && !m.Revoking.has(topic, p):
				waits = true
			default:
				pending[topic] = append(pending[topic], p)
			}
		}
	}
	n := *m
	n.PreviousEpoch, n.Assigned = m.Epoch, assigned
	if len(revoking) > 0 && r.stillOwns(revoking) {
		n.Epoch, n.State, n.Revoking = epoch, Unrevoked, revoking
		return &n
	}
	for topic, ps := range pending {
		for _, p := range ps {
			assigned.add(topic, p, r.to.epoch)
		}
	}
	n.Epoch, n.State, n.Revoking = r.to.epoch, Stable, nil
	if waits {
		n.State = Unreleased
	}
	return &n
}

func (o Owned) add(topic uuid.UUID, p, epoch int32) {
	if o[topic] == nil {
		o[topic] = map[int32]int32{}
	}
	o[topic][p] = epoch
}
