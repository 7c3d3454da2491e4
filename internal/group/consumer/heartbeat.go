package consumer

import (
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/group/classic"
	"weir/internal/group/hashorder"
	"weir/internal/uuid"
)

// Validate refuses a heartbeat that makes no sense, before any group is asked.
func Validate(q *kmsg.ConsumerGroupHeartbeatRequest, assignors []string) *Error {
	empty := func(s *string) bool { return s != nil && strings.TrimSpace(*s) == "" }
	bad := func(text string) *Error { return &Error{Kind: kerr.InvalidRequest, Text: text} }
	switch {
	case (q.Version >= 1 || q.MemberEpoch > 0 || q.MemberEpoch == LeaveEpoch) && empty(&q.MemberID):
		return bad("MemberId can't be empty.")
	case empty(&q.Group):
		return bad("GroupId can't be empty.")
	case empty(q.InstanceID):
		return bad("InstanceId can't be empty.")
	case empty(q.RackID):
		return bad("RackId can't be empty.")
	case q.MemberEpoch == 0 && q.RebalanceTimeoutMillis == -1:
		return bad("RebalanceTimeoutMs must be provided in first request.")
	case q.MemberEpoch == 0 && (q.Topics == nil || len(q.Topics) > 0):
		return bad("TopicPartitions must be empty when (re-)joining.")
	case q.MemberEpoch == 0 && q.SubscribedTopicNames == nil && q.SubscribedTopicRegex == nil:
		return bad("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")
	case q.MemberEpoch == StaticLeaveEpoch && q.InstanceID == nil:
		return bad("InstanceId can't be null.")
	case q.MemberEpoch < StaticLeaveEpoch:
		return bad("MemberEpoch is invalid.")
	case q.ServerAssignor != nil && !slices.Contains(assignors, *q.ServerAssignor):
		known := hashorder.Map(slices.Clone(assignors), 0, hashorder.String)
		return refuse(kerr.UnsupportedAssignor, "ServerAssignor %s is not supported. Supported assignors: %s.", *q.ServerAssignor, strings.Join(known, ", "))
	}
	return nil
}

// Heartbeat is a member's heartbeat that does not leave: it may join, say what it
// subscribes to and what it owns, and is told what it shall have.
func (g *Group) Heartbeat(s *Step, soft *Soft, q *kmsg.ConsumerGroupHeartbeatRequest, from classic.Client) (*kmsg.ConsumerGroupHeartbeatResponse, *Error) {
	id := q.MemberID
	if err := g.full(s, id); err != nil {
		return nil, err
	}
	if id == "" {
		id = uuid.Random(s.Rand).String()
	}
	c, err := g.admit(s, arrival{id: id, instance: q.InstanceID, epoch: q.MemberEpoch, owns: q.Topics, create: q.MemberEpoch == 0})
	if err != nil {
		return nil, err
	}
	c.is = updated(c.was, q, from)
	names := g.writeMember(s, c)
	regex, err := g.updateRegex(s, soft, c)
	if err != nil {
		return nil, err
	}
	// A regular expression that is not resolved yet bumps the epoch when it is.
	epoch, same := g.current(s, soft, c, names || regex == regexResolved)
	to, err := g.retarget(s, epoch, c, same)
	if err != nil {
		return nil, err
	}
	m, err := g.reconcile(s, c.is, to, names || regex != regexSame, q.Topics)
	if err != nil {
		return nil, err
	}
	s.setTimer(classic.MemberSession, g, id, s.Settings.Session)
	r := q.ResponseKind().(*kmsg.ConsumerGroupHeartbeatResponse)
	r.MemberID, r.MemberEpoch, r.HeartbeatIntervalMillis = &m.ID, m.Epoch, int32(s.Settings.Heartbeat.Milliseconds())
	full := q.RebalanceTimeoutMillis != -1 && (q.SubscribedTopicNames != nil || q.SubscribedTopicRegex != nil) && q.Topics != nil
	if q.MemberEpoch == 0 || full || !sameOwned(m.Assigned, c.was.Assigned) {
		r.Assignment = m.Assigned.answer()
	}
	return r, nil
}

// Refused is the answer to a heartbeat that failed.
func Refused(version int16, err *Error) *kmsg.ConsumerGroupHeartbeatResponse {
	r := kmsg.NewPtrConsumerGroupHeartbeatResponse()
	r.Version, r.ErrorCode = version, err.Kind.Code
	if err.Text != "" && err.Kind != kerr.UnknownServerError { // of which Kafka tells nothing
		r.ErrorMessage = &err.Text
	}
	return r
}

func (o Owned) answer() *kmsg.ConsumerGroupHeartbeatResponseAssignment {
	a := kmsg.NewConsumerGroupHeartbeatResponseAssignment()
	a.Topics = []kmsg.ConsumerGroupHeartbeatResponseAssignmentTopic{}
	for _, id := range o.topics() {
		t := kmsg.NewConsumerGroupHeartbeatResponseAssignmentTopic()
		t.TopicID, t.Partitions = id, o.partitions(id)
		a.Topics = append(a.Topics, t)
	}
	return &a
}

// full refuses whoever is no member when there is no room.
func (g *Group) full(s *Step, id string) *Error {
	if g.Size() >= s.Config.MaxSize && (id == "" || g.Member(id) == nil) {
		return refuse(kerr.GroupMaxSizeReached, "The consumer group has reached its maximum capacity of %d members.", s.Config.MaxSize)
	}
	return nil
}

// updated is the member with what a heartbeat says.
func updated(was *Member, q *kmsg.ConsumerGroupHeartbeatRequest, from classic.Client) *Member {
	n := *was
	n.ClientID, n.ClientHost, n.Classic = from.ID, from.Host, nil
	if q.InstanceID != nil {
		n.InstanceID = q.InstanceID
	}
	if q.RackID != nil {
		n.RackID = q.RackID
	}
	if q.RebalanceTimeoutMillis != -1 {
		n.RebalanceTimeout = q.RebalanceTimeoutMillis
	}
	if q.ServerAssignor != nil {
		n.Assignor = q.ServerAssignor
	}
	if q.SubscribedTopicNames != nil {
		n.Topics = unique(q.SubscribedTopicNames)
	}
	if q.SubscribedTopicRegex != nil {
		n.Regex = q.SubscribedTopicRegex
	}
	return &n
}

// writeMember writes a changed member down, and tells whether the topics that it
// names are others.
func (g *Group) writeMember(s *Step, c change) (names bool) {
	if c.is.sameMetadata(c.was) {
		return false
	}
	s.write(c.is.metadataRecord(g.ID))
	return !sameNames(c.is.Topics, c.was.Topics)
}

// arrival is who sends a request, as it says of itself.
type arrival struct {
	id       string
	instance *string
	epoch    int32
	owns     report
	create   bool // it may be new
	classic  bool // it uses the classic protocol, whose epoch is checked elsewhere
}

// admit finds the member that sends a request, or makes one.
func (g *Group) admit(s *Step, a arrival) (change, *Error) {
	if a.instance != nil {
		return g.admitStatic(s, a)
	}
	m := g.Member(a.id)
	if m == nil {
		if !a.create {
			return change{}, g.unknown(a.id)
		}
		m = newMember(a.id)
	}
	if !a.classic {
		if err := m.checkEpoch(a.epoch, a.owns); err != nil {
			return change{}, err
		}
	}
	if a.create {
		g.noteJoin(s, a)
	}
	return change{was: m}, nil
}

func (g *Group) noteJoin(s *Step, a arrival) {
	protocol, instance := "consumer", ""
	if a.classic {
		protocol = "classic"
	}
	if a.instance != nil {
		instance = fmt.Sprintf(" (instance %s)", *a.instance)
	}
	s.note("group %s: member %s%s joins with the %s protocol", g.ID, a.id, instance, protocol)
}

func (g *Group) unknown(id string) *Error {
	return refuse(kerr.UnknownMemberID, "Member %s is not a member of group %s.", id, g.ID)
}

func (g *Group) admitStatic(s *Step, a arrival) (change, *Error) {
	old := g.staticMember(a.instance)
	switch {
	case a.create && old == nil:
		m := g.Member(a.id)
		if m == nil {
			m = newMember(a.id)
		}
		g.noteJoin(s, a)
		return change{was: m}, nil
	case a.create:
		if !a.classic && old.Classic == nil && old.Epoch != StaticLeaveEpoch {
			s.note("group %s: static member %s with instance id %s cannot join: member %s has it", g.ID, a.id, *a.instance, old.ID)
			return change{}, refuse(kerr.UnreleasedInstanceID, "Static member %s with instance id %s cannot join the group because the instance id is owned by %s member.", a.id, *a.instance, old.ID)
		}
		m := *old
		m.ID, m.Epoch, m.PreviousEpoch = a.id, 0, 0
		g.replace(s, old, &m)
		s.note("group %s: member %s with instance id %s takes the place of %s", g.ID, a.id, *a.instance, old.ID)
		return change{was: &m}, nil
	}
	if err := g.checkInstance(old, a.id, *a.instance); err != nil {
		return change{}, err
	}
	if !a.classic {
		if err := old.checkEpoch(a.epoch, a.owns); err != nil {
			return change{}, err
		}
	}
	return change{was: old}, nil
}

// checkInstance refuses who is not, or not any more, the static member.
func (g *Group) checkInstance(m *Member, id, instance string) *Error {
	switch {
	case m == nil:
		return refuse(kerr.UnknownMemberID, "Instance id %s is unknown.", instance)
	case m.ID != id:
		return refuse(kerr.FencedInstanceID, "Static member %s with instance id %s was fenced by member %s.", id, instance, m.ID)
	}
	return nil
}

// replace writes a static member down under its new id. Its timers stay: should the
// change fail they are still right, else they find no member.
func (g *Group) replace(s *Step, old, now *Member) {
	g.removeMember(s, old.ID)
	s.write(now.metadataRecord(g.ID), targetRecord(g.ID, now.ID, g.Target(old.ID)), now.currentRecord(g.ID))
}

func (g *Group) removeMember(s *Step, id string) {
	for _, k := range []Kind{KindCurrent, KindTargetMember, KindMember} {
		s.write(Record{Kind: k, Group: g.ID, Of: id})
	}
}

// checkEpoch refuses a heartbeat of another epoch than the member's. The epoch
// before is accepted while the member may have missed the answer that brought it
// the new one: then it has nothing beyond what that gave it.
func (m *Member) checkEpoch(epoch int32, owns report) *Error {
	rejoin := "The member must abandon all its partitions and rejoin."
	switch {
	case epoch == 0:
		return nil
	case epoch > m.Epoch:
		return refuse(kerr.FencedMemberEpoch, "The consumer group member has a greater member epoch (%d) than the one known by the group coordinator (%d). %s", epoch, m.Epoch, rejoin)
	case epoch < m.Epoch && (epoch != m.PreviousEpoch || !m.hasAll(owns)):
		return refuse(kerr.FencedMemberEpoch, "The consumer group member has a smaller member epoch (%d) than the one known by the group coordinator (%d). %s", epoch, m.Epoch, rejoin)
	}
	return nil
}

// hasAll tells whether the member is assigned all it says it owns.
func (m *Member) hasAll(owns report) bool {
	if owns == nil {
		return false
	}
	for _, t := range owns {
		if m.Assigned[t.TopicID] == nil {
			return false
		}
		for _, p := range t.Partitions {
			if !m.Assigned.has(t.TopicID, p) {
				return false
			}
		}
	}
	return true
}
