package wire

import (
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func groupOffsetCases() []testCase {
	return []testCase{
		{name: "offset-commit-versions", run: commitVersions},
		{name: "offset-commit-errors", run: commitErrors},
		{name: "offset-commit-topic-ids", run: commitTopicIDs},
		{name: "K27-offset-fetch", run: offsetFetchShapes},
		{name: "offset-fetch-errors", run: offsetFetchErrors},
		{name: "offset-fetch-topic-ids", run: offsetFetchTopicIDs},
		{name: "offset-delete", run: offsetDelete},
		{name: "offsets-of-deleted-topics", run: offsetsOfDeletedTopics},
		{name: "old-groups", run: oldGroups, weirOnly: notServed},
	}
}

// spot is one committed offset.
type spot struct {
	topic    string
	id       [16]byte
	n        int32
	offset   int64
	metadata *string
}

// commitSpots commits without a member: a simple consumer's.
func commitSpots(group string, spots ...spot) *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation, req.RetentionTimeMillis = group, -1, -1
	for _, p := range spots {
		if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != p.topic || req.Topics[n-1].TopicID != p.id {
			t := kmsg.NewOffsetCommitRequestTopic()
			t.Topic, t.TopicID = p.topic, p.id
			req.Topics = append(req.Topics, t)
		}
		q := kmsg.NewOffsetCommitRequestTopicPartition()
		q.Partition, q.Offset, q.LeaderEpoch, q.Metadata, q.Timestamp = p.n, p.offset, -1, p.metadata, -1
		t := &req.Topics[len(req.Topics)-1]
		t.Partitions = append(t.Partitions, q)
	}
	return req
}

// commitOf is a member's commit of one offset.
func commitOf(group string, generation int32, member, topic string, p int32, offset int64) *kmsg.OffsetCommitRequest {
	req := commitSpots(group, spot{topic: topic, n: p, offset: offset, metadata: ptr("")})
	req.Generation, req.MemberID = generation, member
	return req
}

// offsetsOf asks for the offsets of groups; without spots for all there are.
func offsetsOf(group string, spots ...spot) *kmsg.OffsetFetchRequest {
	req := kmsg.NewPtrOffsetFetchRequest()
	g := kmsg.NewOffsetFetchRequestGroup()
	req.Group, g.Group, g.MemberEpoch = group, group, -1
	for _, p := range spots {
		if n := len(g.Topics); n == 0 || g.Topics[n-1].Topic != p.topic || g.Topics[n-1].TopicID != p.id {
			t, o := kmsg.NewOffsetFetchRequestGroupTopic(), kmsg.NewOffsetFetchRequestTopic()
			t.Topic, t.TopicID, o.Topic = p.topic, p.id, p.topic
			g.Topics, req.Topics = append(g.Topics, t), append(req.Topics, o)
		}
		t, o := &g.Topics[len(g.Topics)-1], &req.Topics[len(req.Topics)-1]
		t.Partitions, o.Partitions = append(t.Partitions, p.n), append(o.Partitions, p.n)
	}
	req.Groups = append(req.Groups, g)
	return req
}

func commitVersions(s *session) {
	t := s.topic("t")
	id := s.create(t, 3)
	for v := int16(2); v <= 10; v++ {
		g := s.group(fmt.Sprint("v", v))
		some := commitSpots(g, spot{t, id, 0, 5, ptr("five")}, spot{t, id, 2, 7, nil})
		for i := range some.Topics[0].Partitions {
			some.Topics[0].Partitions[i].LeaderEpoch = int32(i) + 3
		}
		s.do("a consumer without membership", some, v)
		s.do("all of it", offsetsOf(g), min(v, 9))
		a, n := s.alone(g)
		member := commitSpots(g, spot{t, id, 0, 6, ptr("")})
		member.Generation, member.MemberID = n, a
		s.do("a member", member, v)
		s.do("one that is no member", commitSpots(g, spot{t, id, 0, 1, nil}), v)
		s.do("partition 0", offsetsOf(g, spot{t, id, 0, 0, nil}, spot{t, id, 1, 0, nil}), min(v, 9))
	}
	g := s.group("retention")
	kept := commitSpots(g, spot{t, id, 0, 5, nil})
	kept.RetentionTimeMillis = 86_400_000
	s.do("with a retention of its own", kept, 4)
	s.do("all of it", offsetsOf(g), 5)
}

func commitErrors(s *session) {
	t := s.topic("t")
	id := s.create(t, 2)
	const unknown = "no-such-topic"
	for v := int16(2); v <= 9; v++ {
		g := s.group(fmt.Sprint("v", v))
		s.do("no group id", commitSpots("", spot{t, id, 0, 1, nil}), v)
		s.do("nothing", commitSpots(g), v)
		s.do("an unknown topic and partition", commitSpots(g, spot{unknown, id, 0, 1, nil}, spot{t, id, 9, 1, nil}, spot{t, id, 0, 1, nil}), v)
		s.do("metadata of 4096 and 4097 bytes", commitSpots(g, spot{t, id, 0, 1, ptr(strings.Repeat("x", 4096))}, spot{t, id, 1, 1, ptr(strings.Repeat("x", 4097))}), v)
		s.do("offsets below 0", commitSpots(g, spot{t, id, 0, -1, nil}, spot{t, id, 1, -7, nil}), v)
		s.do("a partition twice", commitSpots(g, spot{t, id, 0, 3, nil}, spot{t, id, 0, 4, nil}), v)
		s.hiding("Metadata").do("all of it", offsetsOf(g), min(v, 9))
		delete(s.hide, "Metadata")
		s.do("a generation in a group without members", commitOf(g, 3, "x", t, 0, 1), v)
		s.do("a member without a generation in a group without members", commitOf(g, -1, "x", t, 0, 1), v)
		s.do("a generation in a group that is not there", commitOf("no-such-group", 3, "x", t, 0, 1), v)
		a, n := s.alone(g)
		s.do("an unknown member", commitOf(g, n, "x", t, 0, 1), v)
		s.do("an older generation", commitOf(g, n-1, a, t, 0, 1), v)
		s.do("a member without a generation", commitOf(g, -1, a, t, 0, 1), v)
		s.do("a generation without a member", commitOf(g, n, "", t, 0, 1), v)
		s.do("unknown topic of an unknown member", commitOf(g, n, "x", unknown, 0, 1), v)
		if v >= 7 {
			req := commitOf(g, n, a, t, 0, 1)
			req.InstanceID = ptr("i-1")
			s.do("an unknown instance", req, v)
		}
	}
	wide := s.group("wide")
	s.do("4096 letters of two bytes", commitSpots(wide, spot{t, id, 0, 1, ptr(strings.Repeat("ä", 4096))}, spot{t, id, 1, 1, ptr(strings.Repeat("ä", 4097))}), 8)
	s.do("the group without an id goes", deleteGroups(""), 2) // other cases look at it
}

func commitTopicIDs(s *session) {
	t := s.topic("t")
	id := s.create(t, 2)
	g := s.group("g")
	never := [16]byte{1, 2, 3}
	s.do("by id", commitSpots(g, spot{"", id, 0, 5, nil}), 10)
	s.do("an id that is none, and the zero id", commitSpots(g, spot{"", never, 0, 5, nil}, spot{"", [16]byte{}, 1, 5, nil}, spot{"", id, 1, 6, nil}), 10)
	s.do("an unknown partition", commitSpots(g, spot{"", id, 7, 5, nil}), 10)
	s.do("no group id", commitSpots("", spot{"", id, 0, 5, nil}), 10)
	s.do("the group without an id goes", deleteGroups(""), 2)
	s.do("no member", commitOf(g, 3, "x", "", 0, 5), 10)
	s.do("all by name", offsetsOf(g), 9)
}

// offsetFetchShapes is K27.
func offsetFetchShapes(s *session) {
	t, u := s.topic("t"), s.topic("u")
	id, uid := s.create(t, 3), s.create(u, 1)
	g, unknown := s.group("g"), s.group("unknown")
	s.naming(id, uid)
	s.do("commit", commitSpots(g, spot{t, id, 0, 5, ptr("text")}, spot{t, id, 1, 7, nil}, spot{u, uid, 0, 9, ptr("")}), 9)
	for v := int16(1); v <= 10; v++ {
		if v >= 2 {
			s.do("all topics", offsetsOf(g), v)
			s.do("all topics of an unknown group", offsetsOf(unknown), v)
		}
		s.do("some", offsetsOf(g, spot{t, id, 1, 0, nil}, spot{t, id, 2, 0, nil}, spot{u, uid, 0, 0, nil}), v)
		s.do("of an unknown group", offsetsOf(unknown, spot{t, id, 1, 0, nil}), v)
		s.do("an unknown partition", offsetsOf(g, spot{t, id, 9, 0, nil}, spot{t, id, 0, 0, nil}), v)
		none := offsetsOf(g)
		none.Topics, none.Groups[0].Topics = []kmsg.OffsetFetchRequestTopic{}, []kmsg.OffsetFetchRequestGroupTopic{}
		s.do("no topic", none, v)
		if v >= 7 {
			stable := offsetsOf(g, spot{t, id, 1, 0, nil})
			stable.RequireStable = true
			s.do("stable ones", stable, v)
			stable = offsetsOf(g)
			stable.RequireStable = true
			s.do("all stable ones", stable, v)
			stable = offsetsOf(unknown)
			stable.RequireStable = true
			s.do("all stable ones of an unknown group", stable, v)
		}
		if v >= 8 {
			two := offsetsOf(g, spot{t, id, 0, 0, nil})
			two.Groups = append(two.Groups, offsetsOf(unknown, spot{t, id, 0, 0, nil}).Groups[0], offsetsOf(g).Groups[0])
			s.do("two groups, one of them twice", two, v)
			two.Groups = nil
			s.do("no group", two, v)
		}
	}
}

func offsetFetchErrors(s *session) {
	t := s.topic("t")
	id := s.create(t, 1)
	g := s.group("g")
	a, n := s.alone(g)
	s.ask(commitOf(g, n, a, t, 0, 5), 9)
	for v := int16(1); v <= 10; v++ {
		s.do("no group id", offsetsOf("", spot{t, id, 0, 0, nil}), v)
		if v >= 2 {
			s.do("no group id, all topics", offsetsOf(""), v)
		}
		if v < 10 {
			s.do("an unknown topic", offsetsOf(g, spot{"no-such-topic", id, 0, 0, nil}, spot{t, id, 0, 0, nil}), v)
			s.do("a topic twice", offsetsOf(g, spot{t, id, 0, 0, nil}, spot{"u", id, 0, 0, nil}, spot{t, id, 0, 0, nil}), v)
		}
		if v >= 9 {
			for _, m := range []struct {
				id    *string
				epoch int32
			}{{&a, n}, {&a, -1}, {&a, n + 1}, {ptr("x"), n}, {nil, n}, {ptr(""), -1}} {
				for _, name := range []string{g, "no-such-group"} {
					req := offsetsOf(name, spot{t, id, 0, 0, nil})
					req.Groups[0].MemberID, req.Groups[0].MemberEpoch = m.id, m.epoch
					s.do(fmt.Sprintf("member %s epoch %d of %s", s.names.text(str(m.id)), m.epoch, name), req, v)
				}
			}
		}
	}
}

func offsetFetchTopicIDs(s *session) {
	t, u := s.topic("t"), s.topic("u")
	id, uid := s.create(t, 2), s.create(u, 1)
	g := s.group("g")
	never := [16]byte{1, 2, 3}
	s.naming(id, uid, never)
	s.ask(commitSpots(g, spot{"", id, 0, 5, nil}, spot{"", uid, 0, 6, nil}), 10)
	for _, name := range []string{g, s.group("unknown")} {
		s.do("an id that is none", offsetsOf(name, spot{"", never, 0, 0, nil}), 10)
		s.do("one that is none, the zero id and two that are", offsetsOf(name, spot{"", never, 0, 0, nil}, spot{"", id, 0, 0, nil}, spot{"", [16]byte{}, 0, 0, nil}, spot{"", uid, 0, 0, nil}), 10)
		s.do("an unknown partition", offsetsOf(name, spot{"", id, 7, 0, nil}), 10)
		s.do("all", offsetsOf(name), 10)
	}
	// A topic that is made anew is another one.
	s.deleteTopic(u)
	again := s.create(u, 1)
	s.do("the new topic", offsetsOf(g, spot{"", again, 0, 0, nil}), 10)
	s.do("the old topic", offsetsOf(g, spot{"", uid, 0, 0, nil}), 10)
	s.do("all by id", offsetsOf(g), 10)
	s.do("all by name", offsetsOf(g), 9)
}

// naming gives ids their names in the transcript in an order of ours: in answers
// they come in that of a hash table.
func (s *session) naming(ids ...[16]byte) {
	p := printer{names: s.names}
	for i, id := range ids {
		s.note("id %d is %s", i+1, p.id(id))
	}
}

// deleteTopic deletes a topic and waits until the broker knows.
func (s *session) deleteTopic(name string) {
	s.Helper()
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.TopicNames, req.TimeoutMillis = []string{name}, 10_000
	if r := s.ask(req, 5).(*kmsg.DeleteTopicsResponse); r.Topics[0].ErrorCode != 0 {
		s.Fatalf("cannot delete %s: %d", name, r.Topics[0].ErrorCode)
	}
	s.eventually(name+" is gone", func() bool {
		know := metadata(name)
		know.AllowAutoTopicCreation = false
		return s.ask(know, 9).(*kmsg.MetadataResponse).Topics[0].ErrorCode != 0
	})
}

// deleteOffsets is OffsetDelete.
func deleteOffsets(group string, spots ...spot) *kmsg.OffsetDeleteRequest {
	req := kmsg.NewPtrOffsetDeleteRequest()
	req.Group = group
	for _, p := range spots {
		if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != p.topic {
			t := kmsg.NewOffsetDeleteRequestTopic()
			t.Topic = p.topic
			req.Topics = append(req.Topics, t)
		}
		q := kmsg.NewOffsetDeleteRequestTopicPartition()
		q.Partition = p.n
		t := &req.Topics[len(req.Topics)-1]
		t.Partitions = append(t.Partitions, q)
	}
	return req
}

func offsetDelete(s *session) {
	t, u := s.topic("t"), s.topic("u")
	id, uid := s.create(t, 3), s.create(u, 1)
	g := s.group("g")
	s.ask(commitSpots(g, spot{t, id, 0, 5, nil}, spot{t, id, 1, 6, nil}, spot{u, uid, 0, 6, nil}), 9)
	s.do("no group id", deleteOffsets("", spot{topic: t}), 0)
	s.do("an unknown group", deleteOffsets("no-such-group", spot{topic: t}), 0)
	s.do("nothing of an unknown group", deleteOffsets("no-such-group"), 0)
	s.do("nothing", deleteOffsets(g), 0)
	s.do("an unknown topic and an unknown partition", deleteOffsets(g, spot{topic: "no-such-topic"}, spot{topic: t, n: 9}, spot{topic: t}), 0)
	s.do("one that has none", deleteOffsets(g, spot{topic: t, n: 2}, spot{topic: t, n: 0}), 0)
	s.do("what is left", offsetsOf(g), 9)
	a, n := s.newMember(joinGroup(g, "", protocol{"range", subscription(t)}), 9)
	s.do("subscribed while it assigns", deleteOffsets(g, spot{topic: t, n: 1}, spot{topic: u}), 0)
	s.ask(syncGroup(g, n, a, a, "all"), 5)
	s.do("what is left", offsetsOf(g), 9)
	s.ask(commitOf(g, n, a, u, 0, 7), 9)
	s.do("subscribed", deleteOffsets(g, spot{topic: t, n: 1}, spot{topic: u}), 0)
	s.do("what is left", offsetsOf(g), 9)
	s.ask(leaveGroup(g, leaver{member: a}), 5)
	s.do("all have left", deleteOffsets(g, spot{topic: t, n: 1}), 0)
	s.do("what is left", offsetsOf(g), 9)
	s.do("the group is still there", describeGroups(g), 6)
	// Protocols that are no consumer's.
	connect := s.group("connect")
	req := joinGroup(connect, "")
	req.ProtocolType = "connect"
	s.newMember(req, 9)
	s.do("a group of another type", deleteOffsets(connect, spot{topic: t}), 0)
	// Subscriptions that cannot be read.
	odd := s.group("odd")
	s.newMember(joinGroup(odd, "", protocol{"range", []byte("?")}), 9)
	s.do("a subscription that is none", deleteOffsets(odd, spot{topic: t}), 0)
}

func offsetsOfDeletedTopics(s *session) {
	t, u := s.topic("t"), s.topic("u")
	id, uid := s.create(t, 1), s.create(u, 1)
	g, only := s.group("g"), s.group("only")
	s.ask(commitSpots(g, spot{t, id, 0, 5, nil}, spot{u, uid, 0, 6, nil}), 9)
	s.ask(commitSpots(only, spot{t, id, 0, 5, nil}), 9)
	s.deleteTopic(t)
	s.eventually("its offsets are gone", func() bool {
		return len(s.ask(offsetsOf(g), 9).(*kmsg.OffsetFetchResponse).Groups[0].Topics) == 1
	})
	s.do("what is left", offsetsOf(g), 9)
	s.do("a group that had no other", offsetsOf(only), 9)
	s.do("it is there", describeGroups(only), 6)
}

// oldGroups: the versions that Apache Kafka 4 does not serve. v1 is what Apache
// Kafka 3.9.2 answers. OffsetCommit and OffsetFetch v0 kept offsets in ZooKeeper,
// and without it 3.9.2 refuses them; here they are served like the others, since
// clients as old as that do not ask for anything else: a commit of v0 names no
// member, so that a group with members refuses it.
func oldGroups(s *session) {
	t := s.topic("t")
	id := s.create(t, 2)
	for v := int16(0); v <= 1; v++ {
		g := s.group(fmt.Sprint("v", v))
		joined := s.do("join", joinGroup(g, ""), v).(*kmsg.JoinGroupResponse)
		a, n := joined.MemberID, joined.Generation
		s.do("sync", syncGroup(g, n, a, a, "all"), v)
		s.do("an empty group id", joinGroup("", ""), v)
		s.do("commit", commitOf(g, n, a, t, 0, 5), v)
		s.do("commit of nobody", commitOf(g, -1, "", t, 1, 6), v)
		s.do("commit of an unknown member", commitOf(g, n, "x", t, 1, 7), v)
		s.do("an unknown topic and partition", commitSpots(g, spot{"no-such-topic", id, 0, 1, nil}, spot{t, id, 9, 1, nil}), v)
		s.do("fetch", offsetsOf(g, spot{t, id, 0, 0, nil}, spot{t, id, 1, 0, nil}, spot{t, id, 9, 0, nil}, spot{"no-such-topic", id, 0, 0, nil}), v)
		s.do("the same, now", offsetsOf(g), 9)
		s.do("leave", leaveGroup(g, leaver{member: a}), v)
	}
	g := s.group("dated")
	req := commitSpots(g, spot{t, id, 0, 5, nil})
	req.Topics[0].Partitions[0].Timestamp = 1000
	s.do("a commit with a time of its own", req, 1)
	s.do("fetch", offsetsOf(g, spot{t, id, 0, 0, nil}), 0)
	s.do("no group id", offsetsOf("", spot{t, id, 0, 0, nil}), 0)
}
