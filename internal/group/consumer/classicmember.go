package consumer

import (
	"encoding/binary"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/group/assignor"
	"weir/internal/group/classic"
	"weir/internal/records"
	"weir/internal/uuid"
)

// Joined is what came of a JoinGroup.
type Joined struct {
	Response *kmsg.JoinGroupResponse
	// Downgrade, when set, has the group become a classic one: the last member of the
	// consumer protocol, a static one, was replaced by one of the classic protocol.
	Downgrade *Downgrade
}

// Downgrade is how a group becomes a classic one.
type Downgrade struct {
	Joining, Replaced *Member // nil when a member has left
	Why               string  // for a rebalance; "" for none
}

// Join is a JoinGroup of a member that uses the classic protocol.
func (g *Group) Join(s *Step, soft *Soft, q *kmsg.JoinGroupRequest, from classic.Client) (Joined, *Error) {
	id, fresh := q.MemberID, q.MemberID == ""
	if fresh {
		id = uuid.Random(s.Rand).String()
	}
	if err := g.mayJoinClassic(s, q, id); err != nil {
		return Joined{}, err
	}
	r := q.ResponseKind().(*kmsg.JoinGroupResponse)
	if fresh && q.InstanceID == nil && q.Version >= 4 {
		s.note("group %s: a member is to join with the id %s", g.ID, id)
		return Joined{Response: classic.RefusedJoin(q.Version, id, kerr.MemberIDRequired)}, nil
	}
	sub, version := subscriptionOf(q.Protocols[0].Metadata)
	if version < 0 {
		return Joined{}, refuse(kerr.UnknownServerError, "Malformed embedded consumer protocol in subscription deserialization.")
	}
	c, err := g.admit(s, arrival{id: id, instance: q.InstanceID, create: fresh || q.InstanceID == nil, classic: true})
	if err != nil {
		return Joined{}, err
	}
	c.is = joined(c.was, q, &sub, from)
	down, m, err := g.joinAs(s, soft, c, g.owns(s, &sub))
	if err != nil {
		return Joined{}, err
	}
	consumers, name := classic.Consumer, m.Classic.SupportedProtocols[0].Name
	r.MemberID, r.Generation, r.ProtocolType, r.Protocol = m.ID, m.Epoch, &consumers, &name
	s.cancelTimer(classic.MemberJoin, g, m.ID)
	if down == nil {
		s.setTimer(classic.MemberSession, g, m.ID, ms(q.SessionTimeoutMillis))
		s.setTimer(classic.MemberSync, g, m.ID, ms(q.RebalanceTimeoutMillis))
	}
	return Joined{Response: r, Downgrade: down}, nil
}

// joinAs writes a member down that has joined, and brings it nearer to its target
// or has the group become a classic one.
func (g *Group) joinAs(s *Step, soft *Soft, c change, owns report) (*Downgrade, *Member, *Error) {
	existing := g.staticMember(c.is.InstanceID)
	downgrade := existing != nil && existing.Classic == nil && g.classic == g.Size()-1 && g.mayDowngrade(s, g.Size())
	names := g.writeMember(s, c)
	regex, err := g.updateRegex(s, soft, c)
	if err != nil {
		return nil, nil, err
	}
	bump := names || regex != regexSame
	epoch, same := g.current(s, soft, c, bump)
	to := target{g.AssignmentEpoch, g.targetOf(c.is)}
	down := &Downgrade{Joining: c.is, Replaced: existing}
	if !downgrade {
		down = nil
		if to, err = g.retarget(s, epoch, c, same); err != nil {
			return nil, nil, err
		}
	} else if g.AssignmentEpoch < epoch {
		down.Why = fmt.Sprintf("Downgrade group %s from consumer to classic with stale assignment.", g.ID)
		return down, c.is, nil // the rebalance brings it all
	}
	m, err := g.reconcile(s, c.is, to, bump, owns)
	if down != nil {
		down.Joining = m
	}
	return down, m, err
}

// mayJoinClassic is whether the member may join with the classic protocol.
func (g *Group) mayJoinClassic(s *Step, q *kmsg.JoinGroupRequest, id string) *Error {
	if !s.Config.Upgrade && !s.Config.Downgrade {
		return refuse(kerr.InconsistentGroupProtocol, "Cannot join the consumer group %s with the classic protocol because the group migration is disabled.", g.ID)
	}
	if err := g.full(s, id); err != nil {
		return err
	}
	if q.ProtocolType == classic.Consumer {
		for _, p := range q.Protocols {
			if n, _ := get(g.protocols, p.Name); n == g.classic {
				return nil
			}
		}
	}
	return refuse(kerr.InconsistentGroupProtocol, "Member %s's protocols are not supported.", id)
}

// joined is the member with what a JoinGroup says.
func joined(was *Member, q *kmsg.JoinGroupRequest, sub *records.ConsumerProtocolSubscription, from classic.Client) *Member {
	n, none := *was, ""
	n.ClientID, n.ClientHost, n.Regex, n.Topics = from.ID, from.Host, &none, unique(sub.Topics)
	if q.InstanceID != nil {
		n.InstanceID = q.InstanceID
	}
	if sub.RackID != nil && *sub.RackID != "" {
		n.RackID = sub.RackID
	}
	if t := classic.RebalanceTimeout(q); t != -1 {
		n.RebalanceTimeout = t
	}
	ps := make([]classic.Protocol, 0, len(q.Protocols))
	for _, p := range q.Protocols {
		ps = append(ps, classic.Protocol{Name: p.Name, Metadata: append([]byte{}, p.Metadata...)})
	}
	n.Classic = classicMetadata(q.SessionTimeoutMillis, ps)
	return &n
}

func classicMetadata(session int32, ps []classic.Protocol) *records.ConsumerGroupMemberMetadataValueClassicMemberMetadata {
	v := records.NewConsumerGroupMemberMetadataValueClassicMemberMetadata()
	v.SessionTimeoutMs = session
	for _, p := range ps {
		x := records.NewConsumerGroupMemberMetadataValueClassicMemberMetadataSupportedProtocol()
		x.Name, x.Metadata = p.Name, p.Metadata
		v.SupportedProtocols = append(v.SupportedProtocols, x)
	}
	return &v
}

// newestProtocol is the highest version of the embedded consumer protocol.
const newestProtocol = 3

// subscriptionOf reads the subscription that a classic consumer embeds in its
// protocols. The version is negative when it cannot be read.
func subscriptionOf(b []byte) (v records.ConsumerProtocolSubscription, version int16) {
	version, body := protocolVersion(b)
	if version < 0 {
		return v, version
	}
	if _, err := v.ReadPrefix(body, min(version, newestProtocol)); err != nil {
		return v, -1
	}
	return v, version
}

func protocolVersion(b []byte) (version int16, body []byte) {
	if len(b) < 2 {
		return -1, nil
	}
	return int16(binary.BigEndian.Uint16(b)), b[2:]
}

// owns is what a subscription says the member owns.
func (g *Group) owns(s *Step, sub *records.ConsumerProtocolSubscription) report {
	out := report{}
	for _, t := range sub.OwnedPartitions {
		if topic, ok := s.Image.Topic(t.Topic); ok {
			row := kmsg.NewConsumerGroupHeartbeatRequestTopic()
			row.TopicID, row.Partitions = topic.ID, t.Partitions
			out = append(out, row)
		}
	}
	return out
}

// assignmentOf is an assignment as the embedded consumer protocol has it, in the
// version of a member's subscription.
func assignmentOf(s *Step, a assignor.Assignment, metadata []byte) []byte {
	version, _ := protocolVersion(metadata)
	version = max(min(version, newestProtocol), 0)
	v := records.NewConsumerProtocolAssignment()
	for _, t := range a {
		if topic, ok := s.Image.TopicByID(t.Topic); ok {
			row := records.NewConsumerProtocolAssignmentAssignedPartition()
			row.Topic, row.Partitions = topic.Name, t.Partitions
			v.AssignedPartitions = append(v.AssignedPartitions, row)
		}
	}
	return v.AppendTo(binary.BigEndian.AppendUint16(nil, uint16(version)), version)
}

func (o Owned) assignment() assignor.Assignment {
	a := make(assignor.Assignment, 0, len(o))
	for _, id := range o.topics() {
		a = append(a, assignor.Partitions{Topic: id, Partitions: o.partitions(id)})
	}
	return a
}

// classicMember finds the member of the classic protocol that sends a request.
func (g *Group) classicMember(id string, instance *string, generation int32) (*Member, *Error) {
	m := g.Member(id)
	if instance != nil {
		m = g.staticMember(instance)
		if err := g.checkInstance(m, id, *instance); err != nil {
			return nil, err
		}
	}
	switch {
	case m == nil:
		return nil, g.unknown(id)
	case m.Classic == nil:
		return nil, refuse(kerr.UnknownMemberID, "Member %s does not use the classic protocol.", id)
	case m.Epoch != generation:
		return nil, refuse(kerr.IllegalGeneration, "The request generation id %d is not equal to the member epoch %d of member %s.", generation, m.Epoch, id)
	}
	return m, nil
}

// Sync is a SyncGroup: the member asks for what it was assigned when it joined.
func (g *Group) Sync(s *Step, q *kmsg.SyncGroupRequest) (*kmsg.SyncGroupResponse, *Error) {
	m, err := g.classicMember(q.MemberID, q.InstanceID, q.Generation)
	if err != nil {
		return nil, err
	}
	p := m.Classic.SupportedProtocols[0]
	if q.ProtocolType != nil && *q.ProtocolType != classic.Consumer || q.Protocol != nil && *q.Protocol != p.Name {
		return nil, refuse(kerr.InconsistentGroupProtocol, "The protocol of member %s is not the one of the join response.", m.ID)
	}
	if g.AssignmentEpoch > m.Epoch && m.State != Unrevoked {
		g.expectJoin(s, m)
		return nil, refuse(kerr.RebalanceInProgress, "A new rebalance is triggered in group %s and member %s should rejoin to catch up.", g.ID, m.ID)
	}
	s.cancelTimer(classic.MemberSync, g, m.ID)
	s.setTimer(classic.MemberSession, g, m.ID, ms(m.Classic.SessionTimeoutMs))
	r := q.ResponseKind().(*kmsg.SyncGroupResponse)
	r.ProtocolType, r.Protocol, r.MemberAssignment = q.ProtocolType, q.Protocol, assignmentOf(s, m.Assigned.assignment(), p.Metadata)
	return r, nil
}

// expectJoin has a member join in its rebalance timeout, counted from when it was
// first told to.
func (g *Group) expectJoin(s *Step, m *Member) {
	if _, set := s.Timers.Get(classic.Timer{Kind: classic.MemberJoin, Group: g.ID, Member: m.ID}); !set {
		s.setTimer(classic.MemberJoin, g, m.ID, ms(m.RebalanceTimeout))
	}
}

// ClassicHeartbeat keeps the session of a member of the classic protocol, and has it
// join again when there is something for it to give up or to get.
func (g *Group) ClassicHeartbeat(s *Step, q *kmsg.HeartbeatRequest) *Error {
	m, err := g.classicMember(q.MemberID, q.InstanceID, q.Generation)
	if err != nil {
		return err
	}
	s.setTimer(classic.MemberSession, g, m.ID, ms(m.Classic.SessionTimeoutMs))
	if m.Epoch < g.AssignmentEpoch || m.State == Unrevoked || m.State == Unreleased && !g.waits(m) {
		g.expectJoin(s, m)
		return refuse(kerr.RebalanceInProgress, "")
	}
	return nil
}

// waits tells whether a partition that the member shall have is still another's.
func (g *Group) waits(m *Member) bool {
	for _, t := range g.Target(m.ID) {
		for _, p := range t.Partitions {
			if !m.Assigned.has(t.Topic, p) && g.owner(t.Topic, p) != -1 {
				return true
			}
		}
	}
	return false
}

// ClassicLeave is a LeaveGroup, by which members of either protocol can be taken
// out. out are those to take out with Fence.
func (g *Group) ClassicLeave(s *Step, members []kmsg.LeaveGroupRequestMember) (rows []kmsg.LeaveGroupResponseMember, out []*Member) {
	seen := map[string]bool{}
	for _, q := range members {
		row := kmsg.NewLeaveGroupResponseMember()
		row.MemberID, row.InstanceID = q.MemberID, q.InstanceID
		m := g.Member(q.MemberID)
		switch {
		case q.InstanceID == nil && m == nil:
			row.ErrorCode = kerr.UnknownMemberID.Code
		case q.InstanceID != nil:
			m = g.staticMember(q.InstanceID)
			if m == nil {
				row.ErrorCode = kerr.UnknownMemberID.Code
			} else if q.MemberID != "" && q.MemberID != m.ID {
				row.ErrorCode = kerr.FencedInstanceID.Code
			}
		}
		if rows = append(rows, row); row.ErrorCode == 0 && !seen[m.ID] {
			seen[m.ID] = true
			out = append(out, m)
			s.note("group %s: member %s has left", g.ID, m.ID)
		}
	}
	return rows, out
}
