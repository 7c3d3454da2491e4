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

// reconciler is one step of a member on its way to its target.
type reconciler struct {
	g    *Group
	s    *Step
	m    *Member
	to   target
	owns report
}

// next is the member after the step. One that has arrived, and one that has not given
// up yet what it has to, has nothing to do about its target.
func (r *reconciler) next(subscribed bool) (*Member, *Error) {
	epoch := r.m.Epoch
	switch {
	case r.m.State == Unknown: // a newer version has written it: the member has to begin anew
		if r.owns == nil || len(r.owns) > 0 {
			return nil, refuse(kerr.FencedMemberEpoch, "The consumer group member is in a unknown state. The member must abandon all its partitions and rejoin.")
		}
		epoch = r.to.epoch
	case r.m.reconciled(r.to.epoch), r.m.State == Unrevoked && r.owns.mayHold(r.m.Revoking):
		if subscribed {
			return r.shrink(), nil
		}
		return r.m, nil
	}
	return r.advance(epoch), nil
}

// mayHold tells whether the member may have any of the partitions: it does for sure
// when it says so, and may when it says nothing.
func (o report) mayHold(ps Owned) bool {
	return o == nil || slices.ContainsFunc(o, func(t kmsg.ConsumerGroupHeartbeatRequestTopic) bool {
		return slices.ContainsFunc(t.Partitions, func(p int32) bool { return ps.has(t.TopicID, p) })
	})
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
	if len(revoking) > 0 && r.owns.mayHold(revoking) {
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

// fate is what becomes of a partition in a step of a member.
type fate uint8

const (
	leave fate = iota // it is none of the member's business
	keep
	giveUp
	take
	wait // until another has given it up
)

// fateOf is the fate of a partition, by whether the member has it, whether it shall
// have it, and whether somebody else has it:
//
//	has  shall  other's
//	yes  yes    -        keep
//	yes  no     -        give up
//	no   yes    no       take
//	no   yes    yes      wait
//	no   no     -        leave
func fateOf(has, shall, others bool) fate {
	switch {
	case has && shall:
		return keep
	case has:
		return giveUp
	case shall && others:
		return wait
	case shall:
		return take
	}
	return leave
}

// sort puts the partitions that the member has or shall have by their fates. Those
// to take get the epoch of the target, the others keep theirs. What it does not
// subscribe to it shall not have; what it is giving up is nobody else's.
func (r *reconciler) sort() map[fate]Owned {
	out := map[fate]Owned{keep: {}, giveUp: {}, take: {}, wait: {}}
	wanted := r.to.parts.ByTopic()
	reads, _ := r.subscription()
	maps.DeleteFunc(wanted, func(topic uuid.UUID, _ []int32) bool { return !reads(topic) })
	for topic, ps := range r.m.Assigned {
		shall := make(map[int32]bool, len(wanted[topic]))
		for _, p := range wanted[topic] {
			shall[p] = true
		}
		for p, at := range ps {
			out[fateOf(true, shall[p], false)].add(topic, p, at)
		}
	}
	for topic, ps := range wanted {
		for _, p := range ps {
			if !r.m.Assigned.has(topic, p) {
				others := r.g.owner(topic, p) != -1 && !r.m.Revoking.has(topic, p)
				out[fateOf(false, true, others)].add(topic, p, r.to.epoch)
			}
		}
	}
	return out
}

// advance brings the member to what it has next on its way to the target. While it
// has anything to give up it is Unrevoked, stays at an epoch and gets nothing. Then it
// is at the target's epoch with all that is free: Unreleased when it waits for more,
// else Stable.
func (r *reconciler) advance(epoch int32) *Member {
	by := r.sort()
	n := *r.m
	n.PreviousEpoch, n.Assigned = r.m.Epoch, by[keep]
	if len(by[giveUp]) > 0 && r.owns.mayHold(by[giveUp]) {
		n.Epoch, n.State, n.Revoking = epoch, Unrevoked, by[giveUp]
		return &n
	}
	for topic, ps := range by[take] {
		for p, at := range ps {
			n.Assigned.add(topic, p, at)
		}
	}
	n.Epoch, n.State, n.Revoking = r.to.epoch, Stable, nil
	if len(by[wait]) > 0 {
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
