package consumer

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"

	"weir/internal/group/classic"
	"weir/internal/image"
	"weir/internal/records"
)

// Upgrade is the group that a classic group with members becomes, and writes it
// down. Its members keep what they have, and are members of the classic protocol
// until they join with the new one. The tombstone of the classic group is written
// before by whoever calls.
func Upgrade(s *Step, old *classic.Group) (*Group, *Error) {
	cannot := func(why string) *Error {
		s.note("group %s: it cannot become a consumer group: %s", old.ID, why)
		return refuse(kerr.GroupIDNotFound, "Cannot upgrade classic group %s to consumer group because %s.", old.ID, why)
	}
	switch {
	case !s.Config.Upgrade:
		return nil, cannot("online upgrade is disabled")
	case old.ProtocolType() != classic.Consumer:
		return nil, cannot("the group does not use the consumer embedded protocol")
	case old.Size() > s.Config.MaxSize:
		return nil, cannot("the group size exceeds the consumer group maximum size")
	case old.Protocol() == nil:
		// Its first rebalance goes on. Kafka fails on that, too.
		return nil, refuse(kerr.UnknownServerError, "%s", kerr.UnknownServerError.Description)
	}
	g := &Group{ID: old.ID, Epoch: old.Generation(), AssignmentEpoch: old.Generation()}
	taken := map[image.PartitionID]bool{}
	for _, m := range old.Members() {
		n, why := upgraded(s, m, *old.Protocol(), old.Generation(), taken)
		switch why {
		case "":
		case broken:
			return nil, refuse(kerr.UnknownServerError, broken)
		default:
			return nil, cannot(why)
		}
		g.targets = set(g.targets, n.ID, n.Assigned.assignment())
		g.put(n)
	}
	g.MetadataHash = metadataHash(s.Image, keys(g.names))
	g.writeAll(s)
	for id, m := range all(g.members) {
		s.setTimer(classic.MemberSession, g, id, ms(m.Classic.SessionTimeoutMs))
	}
	s.note("group %s: it becomes a consumer group", g.ID)
	return g, nil
}

// Why a member's embedded protocol cannot be read: it ends within a number, which
// Kafka has an error for, or a length in it is wrong, on which Kafka fails.
const (
	malformed = "the embedded consumer protocol is malformed"
	broken    = "the embedded consumer protocol is broken"
)

func whyUnreadable(b []byte) string {
	if len(b) < 6 { // version, length of the topics
		return malformed
	}
	return broken
}

// upgraded is a member of a classic group, or why it cannot be one any more. Nobody
// has checked the assignment, which is the leader's: partitions that do not exist,
// and those of taken, to which it adds, are left out.
func upgraded(s *Step, m *classic.Member, protocol string, generation int32, taken map[image.PartitionID]bool) (n *Member, why string) {
	sub, version := subscriptionOf(m.Metadata(protocol))
	if version < 0 {
		return nil, whyUnreadable(m.Metadata(protocol))
	}
	n = newMember(m.ID)
	n.Epoch, n.PreviousEpoch, n.Assigned = generation, generation, Owned{}
	if len(m.Assignment) > 0 { // else it has not got any yet
		var a records.ConsumerProtocolAssignment
		version, body := protocolVersion(m.Assignment)
		if version < 0 {
			return nil, whyUnreadable(m.Assignment)
		}
		if _, err := a.ReadPrefix(body, min(version, newestProtocol)); err != nil {
			return nil, whyUnreadable(m.Assignment)
		}
		if len(a.UserData) > 0 {
			return nil, "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default assignor before re-attempting the upgrade"
		}
		for _, t := range a.AssignedPartitions {
			topic, ok := s.Image.Topic(t.Topic)
			if !ok {
				continue
			}
			for _, p := range t.Partitions {
				id := image.PartitionID{Topic: topic.ID, Partition: p}
				if p >= 0 && p < int32(topic.NumPartitions()) && !taken[id] {
					taken[id] = true
					n.Assigned.add(topic.ID, p, generation)
				}
			}
		}
	}
	n.InstanceID, n.ClientID, n.ClientHost = m.InstanceID, m.ClientID, m.ClientHost
	if sub.RackID != nil && *sub.RackID != "" {
		n.RackID = sub.RackID
	}
	n.RebalanceTimeout, n.Topics = m.RebalanceTimeout, unique(sub.Topics)
	n.Classic = classicMetadata(m.SessionTimeout, m.Protocols)
	return n, ""
}

// writeAll writes a whole group down.
func (g *Group) writeAll(s *Step) {
	ids := g.tableOrder()
	for _, id := range ids {
		s.write(g.Member(id).metadataRecord(g.ID))
	}
	v := records.NewConsumerGroupMetadataValue()
	v.Epoch, v.MetadataHash = g.Epoch, g.MetadataHash
	s.write(Record{Kind: KindGroup, Group: g.ID, Value: &v})
	for _, id := range ids {
		s.write(targetRecord(g.ID, id, g.Target(id)))
	}
	s.write(g.targetEpochRecord(g.AssignmentEpoch, g.AssignmentMs))
	for _, id := range ids {
		s.write(g.Member(id).currentRecord(g.ID))
	}
}

// Classic is the group that this one becomes when the members out are gone, and
// writes the tombstones of what it was. The record of the classic group is written
// after them by whoever calls.
func (g *Group) Classic(s *Step, out []*Member, d *Downgrade) *classic.Group {
	dead := g.Tombstones()
	for i := range dead {
		// Records of this step have given the replaced member its new id.
		if d.Joining != nil && dead[i].Kind != KindRegex && dead[i].Of == d.Replaced.ID {
			dead[i].Of = d.Joining.ID
		}
	}
	s.write(dead...)
	var members []*classic.Member
	for _, id := range g.tableOrder() {
		m := g.Member(id)
		if !slices.Contains(out, m) && (d.Joining == nil || m != d.Replaced) {
			members = append(members, m.classic())
		}
	}
	if d.Joining != nil {
		members = append(members, d.Joining.classic())
	}
	g.CancelTimers(s)
	s.note("group %s: it becomes a classic group", g.ID)
	return classic.Converted(g.ID, s.Now, g.Epoch, members, func(m *classic.Member, protocol string) []byte {
		id := m.ID
		if d.Joining != nil && id == d.Joining.ID {
			id = d.Replaced.ID
		}
		return assignmentOf(s, g.Target(id), m.Metadata(protocol))
	})
}

func (m *Member) classic() *classic.Member {
	c := &classic.Member{
		ID: m.ID, InstanceID: m.InstanceID, ClientID: m.ClientID, ClientHost: m.ClientHost,
		RebalanceTimeout: m.RebalanceTimeout, SessionTimeout: m.Classic.SessionTimeoutMs,
	}
	for _, p := range m.Classic.SupportedProtocols {
		c.Protocols = append(c.Protocols, classic.Protocol{Name: p.Name, Metadata: p.Metadata})
	}
	return c
}
