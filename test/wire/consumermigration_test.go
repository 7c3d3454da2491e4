package wire

import "github.com/twmb/franz-go/pkg/kmsg"

// assigned is a consumer's assignment of a topic, version 1.
func assigned(topic string, partitions ...int32) string {
	m := kmsg.NewConsumerMemberAssignment()
	m.Version = 1
	t := kmsg.NewConsumerMemberAssignmentTopic()
	t.Topic, t.Partitions = topic, partitions
	m.Topics = append(m.Topics, t)
	return string(m.AppendTo(nil))
}

// owner is a subscription that tells which partitions of its topic the member has.
func owner(topic string, partitions ...int32) []byte {
	m := kmsg.NewConsumerMemberMetadata()
	m.Version, m.Topics = 1, []string{topic}
	if len(partitions) > 0 {
		t := kmsg.NewConsumerMemberMetadataOwnedPartition()
		t.Topic, t.Partitions = topic, partitions
		m.OwnedPartitions = append(m.OwnedPartitions, t)
	}
	return m.AppendTo(nil)
}

func consumerUpgrade(s *session) {
	t := s.topic("t")
	s.create(t, 4)
	g := s.consumerGroup("g")
	join := func(member string, partitions ...int32) *kmsg.JoinGroupRequest {
		return joinGroup(g, member, protocol{"range", owner(t, partitions...)}, protocol{"cooperative-sticky", owner(t, partitions...)})
	}
	a, n := s.newMember(join(""), 9)
	s.ask(syncGroup(g, n, a, a, "unreadable"), 5)
	s.beats("while assignments cannot be read", entering(g, "new", t), 1)
	s.ask(join(a), 9)
	s.ask(syncGroup(g, n+1, a, a, assigned(t, 0, 1, 2, 3)), 5)
	s.ask(commitOf(g, n+1, a, t, 0, 5), 9)
	s.beats("the first member with the new protocol", entering(g, "new", t), 1)
	s.described("a consumer group", 1, g)
	s.do("it is no classic one any more", describeGroups(g), 6)
	s.do("the old member is told", heartbeat(g, n+1, a), 4)
	s.do("it may not ask for an assignment", syncGroup(g, n+1, a), 5)
	s.joins("it joins, and has to give up some", join(a, 0, 1, 2, 3))
	r := s.ask(syncGroup(g, n+1, a), 5).(*kmsg.SyncGroupResponse)
	kept := partitionsIn(r.MemberAssignment)
	s.note("it keeps %d partitions", len(kept))
	s.do("and to join again", heartbeat(g, n+1, a), 4)
	s.joins("it has given them up", join(a, kept...))
	s.do("its assignment", syncGroup(g, n+2, a), 5)
	s.do("it is well", heartbeat(g, n+2, a), 4)
	s.do("it commits", commitOf(g, n+2, a, t, kept[0], 6), 9)
	s.do("an older generation's commit", commitOf(g, n+1, a, t, 3, 6), 8)
	s.do("a newer generation's commit", commitOf(g, n+3, a, t, 3, 6), 9)
	s.do("another protocol", func() kmsg.Request { q := syncGroup(g, n+2, a); q.Protocol = ptr("other"); return q }(), 5)
	s.do("a member of the new protocol syncs", syncGroup(g, n+2, "new"), 5)
	s.do("a member of the new protocol beats", heartbeat(g, n+2, "new"), 4)
	s.joins("a newcomer gets an id", join(""))
	s.joins("a newcomer without a common protocol", joinGroup(g, "c", protocol{"other", owner(t)}))
	s.joins("a newcomer of another type", func() *kmsg.JoinGroupRequest { q := join("c"); q.ProtocolType = "connect"; return q }())
	s.beats("the new member gets the rest", beat(g, "new", n+2), 1)
	s.described("both", 1, g)
	s.do("the old one leaves", leaveGroup(g, leaver{member: a}, leaver{member: "nobody"}), 5)
	s.described("without it", 1, g)
	s.groupRecords(s.partitionOf(g), g)
}

// partitionsIn reads an assignment of one topic.
func partitionsIn(b []byte) []int32 {
	m := kmsg.NewConsumerMemberAssignment()
	if m.ReadFrom(b) != nil || len(m.Topics) == 0 {
		return nil
	}
	return m.Topics[0].Partitions
}

func consumerDowngrade(s *session) {
	t := s.topic("t")
	s.create(t, 2)
	g := s.consumerGroup("g")
	s.beats("a member of the new protocol", entering(g, "new", t), 1)
	id := s.joins("one of the classic protocol gets an id", joinGroup(g, "", protocol{"range", owner(t)})).MemberID
	n := s.joins("it joins", joinGroup(g, id, protocol{"range", owner(t)})).Generation
	s.do("it has nothing yet", syncGroup(g, n, id), 5)
	s.do("it waits", heartbeat(g, n, id), 4)
	s.described("both", 1, g)
	s.beats("the last of the new protocol leaves", beat(g, "new", -1), 1)
	s.awaitState(g, "PreparingRebalance", 1)
	s.described("it is none any more", 1, g)
	s.do("the classic member has to join again", heartbeat(g, n, id), 4)
	s.joins("it does", joinGroup(g, id, protocol{"range", owner(t)}))
	s.do("and assigns", syncGroup(g, n+1, id, id, assigned(t, 0, 1)), 5)
	s.groupRecords(s.partitionOf(g), g)

	g = s.consumerGroup("static")
	q := entering(g, "new", t)
	q.InstanceID = ptr("i")
	s.beats("a static member of the new protocol", q, 1)
	s.joins("the same with the classic protocol", staticJoin(g, "", "i", protocol{"range", owner(t)}))
	s.list("it is a classic group", listGroups(nil, nil), 5)
	s.groupRecords(s.partitionOf(g), g)
}

func consumerEmptied(s *session) {
	t := s.topic("t")
	id := s.create(t, 2)
	g := s.consumerGroup("g")
	s.ask(commitSpots(g, spot{t, id, 0, 5, nil}), 9)
	s.list("a group of offsets", listGroups(nil, nil), 5)
	s.beats("becomes a consumer group", entering(g, "a", t), 1)
	s.do("its offsets are there", offsetsOf(g), 9)
	s.beats("leave", beat(g, "a", -1), 1)
	s.do("a classic heartbeat to it", heartbeat(g, 1, "a"), 4)
	s.do("a classic sync to it", syncGroup(g, 1, "a"), 5)
	s.do("a classic leave of it", leaveGroup(g, leaver{member: "a"}), 5)
	c := s.memberID(g)
	s.list("a classic group", listGroups(nil, nil), 5)
	joined := s.joins("joins it", joinGroup(g, c, protocol{"range", owner(t)}))
	s.do("assigns", syncGroup(g, joined.Generation, c, c, "all"), 5)
	s.do("leaves", leaveGroup(g, leaver{member: c}), 5)
	s.beats("and back", entering(g, "a", t), 1)
	s.groupRecords(s.partitionOf(g), g)
}
