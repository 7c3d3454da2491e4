package wire

import (
	"bytes"
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/coordinator"
	"weir/internal/group/consumer"
	"weir/internal/records"
)

// consumerCases are those of consumer groups of KIP-848.
func consumerCases() []testCase {
	return []testCase{
		{name: "consumer-errors", run: consumerErrors},
		{name: "consumer-life", run: consumerLife},
		{name: "K26-repeated-heartbeats", run: consumerEpochs},
		{name: "consumer-static", run: consumerStatic},
		{name: "consumer-regex", run: consumerRegex},
		{name: "consumer-offsets", run: consumerOffsets},
		{name: "consumer-assignors", run: consumerAssignors},
		{name: "consumer-upgrade", run: consumerUpgrade},
		{name: "consumer-downgrade", run: consumerDowngrade},
		{name: "consumer-emptied", run: consumerEmptied},
	}
}

// beat is a heartbeat that tells nothing but who sends it.
func beat(group, member string, epoch int32) *kmsg.ConsumerGroupHeartbeatRequest {
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Group, req.MemberID, req.MemberEpoch, req.RebalanceTimeoutMillis = group, member, epoch, -1
	return req
}

// entering is the heartbeat of a member that joins and reads topics.
func entering(group, member string, topics ...string) *kmsg.ConsumerGroupHeartbeatRequest {
	req := beat(group, member, 0)
	req.RebalanceTimeoutMillis, req.Topics, req.SubscribedTopicNames = 60_000, []kmsg.ConsumerGroupHeartbeatRequestTopic{}, append([]string{}, topics...)
	return req
}

// owning is a heartbeat that tells which partitions of a topic the member has.
func owning(group, member string, epoch int32, topic [16]byte, partitions ...int32) *kmsg.ConsumerGroupHeartbeatRequest {
	req := beat(group, member, epoch)
	req.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	if len(partitions) > 0 {
		req.Topics = append(req.Topics, kmsg.ConsumerGroupHeartbeatRequestTopic{TopicID: topic, Partitions: partitions})
	}
	return req
}

// ownID is the form of the member ids that a coordinator makes up for consumer groups.
var ownID = regexp.MustCompile(`^[A-Za-z0-9_-]{22}$`)

func (s *session) memberName(id string) string {
	if ownID.MatchString(id) {
		return s.names.of("member", id)
	}
	return s.names.text(id)
}

// beats sends a heartbeat and writes the answer down.
func (s *session) beats(what string, req *kmsg.ConsumerGroupHeartbeatRequest, v int16) *kmsg.ConsumerGroupHeartbeatResponse {
	s.Helper()
	r := s.ask(req, v).(*kmsg.ConsumerGroupHeartbeatResponse)
	shown := *r
	if r.MemberID != nil {
		shown.MemberID = ptr(s.memberName(*r.MemberID))
	}
	if ownID.MatchString(req.MemberID) && r.ErrorMessage != nil {
		shown.ErrorMessage = ptr(strings.ReplaceAll(*r.ErrorMessage, req.MemberID, s.memberName(req.MemberID)))
	}
	if r.Assignment != nil {
		slices.SortFunc(r.Assignment.Topics, func(a, b kmsg.ConsumerGroupHeartbeatResponseAssignmentTopic) int {
			return cmp.Compare(len(a.Partitions), len(b.Partitions))
		})
	}
	s.show(what, &shown)
	return r
}

// joins sends a JoinGroup of a member of the classic protocol and writes the answer down.
func (s *session) joins(what string, req *kmsg.JoinGroupRequest) *kmsg.JoinGroupResponse {
	s.Helper()
	r := s.ask(req, 9).(*kmsg.JoinGroupResponse)
	shown := *r
	shown.MemberID, shown.LeaderID = s.memberName(r.MemberID), s.memberName(r.LeaderID)
	shown.Members = slices.Clone(r.Members)
	for i := range shown.Members {
		shown.Members[i].MemberID = s.memberName(shown.Members[i].MemberID)
	}
	s.show(what, &shown)
	return r
}

// described writes down what is told of consumer groups. Members stand by what they
// subscribe to and by id.
func (s *session) described(what string, v int16, groups ...string) {
	s.Helper()
	req := kmsg.NewPtrConsumerGroupDescribeRequest()
	req.Groups = groups
	r := s.ask(req, v).(*kmsg.ConsumerGroupDescribeResponse)
	slices.SortStableFunc(r.Groups, func(a, b kmsg.ConsumerGroupDescribeResponseGroup) int { return cmp.Compare(a.Group, b.Group) })
	for _, g := range r.Groups {
		for i := range g.Members {
			m := &g.Members[i]
			slices.Sort(m.SubscribedTopics)
			for _, a := range []kmsg.Assignment{m.Assignment, m.TargetAssignment} {
				slices.SortFunc(a.TopicPartitions, func(x, y kmsg.AssignmentTopicPartition) int { return cmp.Compare(x.Topic, y.Topic) })
			}
		}
		slices.SortFunc(g.Members, func(a, b kmsg.ConsumerGroupDescribeResponseGroupMember) int {
			return cmp.Or(cmp.Compare(len(a.MemberID), len(b.MemberID)), cmp.Compare(a.MemberID, b.MemberID))
		})
		for i := range g.Members {
			g.Members[i].MemberID = s.memberName(g.Members[i].MemberID)
		}
	}
	s.show(what, r)
	for _, g := range r.Groups {
		for _, m := range g.Members {
			s.note("  %s of %s has %s, shall have %s", m.MemberID, g.Group, s.partitions(m.Assignment), s.partitions(m.TargetAssignment))
		}
	}
}

// partitions shows an assignment.
func (s *session) partitions(a kmsg.Assignment) string {
	p := printer{out: new(strings.Builder), names: s.names, hide: map[string]bool{}, since: s.since}
	rows := []string{}
	for _, t := range a.TopicPartitions {
		rows = append(rows, fmt.Sprintf("%s %s %v", t.Topic, p.id(t.TopicID), t.Partitions))
	}
	return fmt.Sprint(rows)
}

// consumerGroup is a group whose target is computed at once when it changes.
func (s *session) consumerGroup(suffix string) string {
	s.Helper()
	g := s.group(suffix)
	if r := s.ask(incremental(32, g, change{"consumer.assignment.interval.ms", 0, "0"}), 1).(*kmsg.IncrementalAlterConfigsResponse); r.Resources[0].ErrorCode != 0 {
		s.Fatalf("cannot configure %s: %d", g, r.Resources[0].ErrorCode)
	}
	s.eventually(g+" has its configuration", func() bool {
		r := s.ask(describeConfigs(32, g, "consumer.assignment.interval.ms"), 4).(*kmsg.DescribeConfigsResponse)
		return str(r.Resources[0].Configs[0].Value) == "0"
	})
	return g
}

func consumerErrors(s *session) {
	t := s.topic("t")
	s.create(t, 2)
	g, offsets, old := s.consumerGroup("g"), s.consumerGroup("offsets"), s.group("classic")
	s.alone(old)
	for v := int16(0); v <= 1; v++ {
		s.beats("no group id", entering("", "a", t), v)
		s.beats("no member id, joining", entering(offsets, "", t), v)
		s.beats("no member id, later", beat(g, "", 1), v)
		s.beats("no member id, leaving", beat(g, "", -1), v)
		q := entering(g, "a", t)
		q.InstanceID = ptr(" ")
		s.beats("blank instance id", q, v)
		q = entering(g, "a", t)
		q.RackID = ptr("")
		s.beats("empty rack", q, v)
		q = entering(g, "a", t)
		q.RebalanceTimeoutMillis = -1
		s.beats("no rebalance timeout", q, v)
		q = entering(g, "a", t)
		q.Topics = nil
		s.beats("no partitions", q, v)
		q = entering(g, "a", t)
		q.Topics = append(q.Topics, kmsg.ConsumerGroupHeartbeatRequestTopic{Partitions: []int32{0}})
		s.beats("partitions", q, v)
		q = entering(g, "a", t)
		q.SubscribedTopicNames = nil
		s.beats("no subscription", q, v)
		q = entering(g, "a", t)
		q.ServerAssignor = ptr("mine")
		s.beats("an unknown assignor", q, v)
		s.beats("a static member's leave without instance", beat(g, "a", -2), v)
		s.beats("epoch -3", beat(g, "a", -3), v)
		s.beats("a group that is not there", beat(g, "a", 1), v)
		s.beats("leaving a group that is not there", beat(g, "a", -1), v)
		s.beats("a classic group", beat(old, "a", 1), v)
		s.beats("leaving a classic group", beat(old, "a", -1), v)
		s.described("none of these", v, g, old, "", "no-such-group")
		s.described("one twice, none", v, g, g)
	}
	bad := entering(g, "a", t)
	bad.SubscribedTopicRegex = ptr("a[")
	s.beats("an expression that is none", bad, 1)
}

func consumerLife(s *session) {
	t := s.topic("t")
	id := s.create(t, 3)
	for v := int16(0); v <= 1; v++ {
		g := s.consumerGroup(fmt.Sprint("v", v))
		member := ""
		if v == 1 {
			member = "a"
		}
		req := entering(g, member, t, "no-such-topic", t)
		req.RackID = ptr("rack")
		first := s.beats("join", req, v)
		member = *first.MemberID
		s.beats("nothing new", beat(g, member, first.MemberEpoch), v)
		full := owning(g, member, first.MemberEpoch, id, 0, 1, 2)
		full.RebalanceTimeoutMillis, full.SubscribedTopicNames = 60_000, []string{t, "no-such-topic"}
		s.beats("all again", full, v)
		s.described("described", v, g)
		s.do("described as a classic group", describeGroups(g), 6)
		s.list("listed", listGroups([]string{"stable"}, []string{"Consumer"}), 5)
		changed := owning(g, member, first.MemberEpoch, id, 0, 1, 2)
		changed.SubscribedTopicNames = []string{}
		s.beats("it reads nothing any more", changed, v)
		s.described("it has to give up all", v, g)
		s.beats("it has", owning(g, member, first.MemberEpoch, id), v)
		s.do("deleted with a member", deleteGroups(g), 2)
		s.beats("leave", beat(g, member, -1), v)
		s.beats("leave again", beat(g, member, -1), v)
		s.described("described without members", v, g)
		s.list("listed without members", listGroups(nil, []string{"consumer"}), 5)
		s.groupRecords(s.partitionOf(g), g)
		s.do("deleted", deleteGroups(g), 2)
		s.described("described when it is gone", v, g)
		s.groupRecords(s.partitionOf(g), g)
	}
}

func consumerEpochs(s *session) {
	t := s.topic("t")
	id := s.create(t, 4)
	g := s.consumerGroup("g")
	s.beats("a joins", entering(g, "a", t), 1)
	s.beats("a stranger", beat(g, "x", 2), 1)
	s.beats("a higher epoch", owning(g, "a", 3, id, 0, 1, 2, 3), 1)
	s.beats("b joins", entering(g, "b", t), 1)
	s.described("a has not heard of it", 1, g)
	r := s.beats("a", owning(g, "a", 2, id, 0, 1, 2, 3), 1)
	kept := r.Assignment.Topics[0].Partitions
	s.beats("b waits", owning(g, "b", 3, id), 1)
	s.beats("a has not given up anything", owning(g, "a", 2, id, 0, 1, 2, 3), 1)
	s.beats("a has", owning(g, "a", 2, id, kept...), 1)
	// K26: the answer was lost.
	s.beats("a again, at the epoch before", owning(g, "a", 2, id, kept...), 1)
	s.beats("with a part of it", owning(g, "a", 2, id, kept[0]), 1)
	s.beats("with none of it", owning(g, "a", 2, id), 1)
	s.beats("without telling", beat(g, "a", 2), 1)
	s.beats("with a foreign partition", owning(g, "a", 2, id, 0, 1, 2, 3), 1)
	s.beats("with a foreign topic", owning(g, "a", 2, [16]byte{1}, 0), 1)
	s.beats("an epoch long ago", owning(g, "a", 1, id, kept...), 1)
	s.beats("b gets its own", owning(g, "b", 3, id), 1)
	s.described("both have all", 1, g)
	s.beats("a begins anew", entering(g, "a", t), 1)
	s.beats("a leaves", beat(g, "a", -1), 1)
	s.beats("b gets all", beat(g, "b", 3), 1)
	s.groupRecords(s.partitionOf(g), g)
}

func consumerStatic(s *session) {
	t := s.topic("t")
	id := s.create(t, 2)
	g := s.consumerGroup("g")
	static := func(req *kmsg.ConsumerGroupHeartbeatRequest, instance string) *kmsg.ConsumerGroupHeartbeatRequest {
		req.InstanceID = &instance
		return req
	}
	s.beats("join", static(entering(g, "a", t), "i"), 1)
	s.beats("another with its instance", static(entering(g, "b", t), "i"), 1)
	s.beats("another's heartbeat", static(beat(g, "b", 2), "i"), 1)
	s.beats("an unknown instance", static(beat(g, "a", 2), "j"), 1)
	s.beats("an unknown instance leaves", static(beat(g, "a", -1), "j"), 1)
	s.beats("another one leaves", static(beat(g, "b", -2), "i"), 1)
	s.beats("it goes for a while", static(beat(g, "a", -2), "i"), 1)
	s.described("while it is away", 1, g)
	s.beats("it comes back", static(entering(g, "b", t), "i"), 1)
	s.beats("the one before", static(beat(g, "a", 2), "i"), 1)
	s.described("as before", 1, g)
	s.beats("it reads something else", func() *kmsg.ConsumerGroupHeartbeatRequest {
		q := static(owning(g, "b", 2, id, 0, 1), "i")
		q.SubscribedTopicNames = []string{"other"}
		return q
	}(), 1)
	s.beats("it goes for a while, again", static(beat(g, "b", -2), "i"), 1)
	s.beats("it comes back with what it read at first", static(entering(g, "c", t), "i"), 1)
	s.beats("it leaves for good", static(beat(g, "c", -1), "i"), 1)
	s.groupRecords(s.partitionOf(g), g)
}

func consumerRegex(s *session) {
	one, two := s.topic("r1"), s.topic("other")
	s.create(one, 2)
	s.create(two, 2)
	g := s.consumerGroup("g")
	by := func(member, regex string) *kmsg.ConsumerGroupHeartbeatRequest {
		q := entering(g, member)
		q.SubscribedTopicNames, q.SubscribedTopicRegex = nil, &regex
		return q
	}
	pattern := regexp.QuoteMeta(s.topic("")) + "r."
	s.beats("join", by("a", pattern), 1)
	s.eventually("the expression is resolved", func() bool { return s.groupEpoch(g) == 2 })
	r := s.beats("it gets the topics", beat(g, "a", 1), 1)
	s.described("described", 1, g)
	s.beats("another member, the same expression", by("b", pattern), 1)
	s.beats("a member without any topic", entering(g, "c"), 1)
	s.beats("it names a topic, too", func() *kmsg.ConsumerGroupHeartbeatRequest {
		q := beat(g, "a", r.MemberEpoch)
		q.SubscribedTopicNames = []string{"other"}
		return q
	}(), 1)
	s.beats("not an expression", by("d", "x{2,1}"), 1)
	s.beats("what RE2 does not know", by("d", "(?=x)"), 1)
	for _, m := range []string{"a", "b", "c"} {
		s.ask(beat(g, m, -1), 1)
	}
	s.described("all have left", 1, g)
	s.hiding("batch").groupRecords(s.partitionOf(g), g) // Kafka may put two writes into one
}

// groupEpoch is the group epoch of a consumer group.
func (s *session) groupEpoch(g string) int32 {
	s.Helper()
	req := kmsg.NewPtrConsumerGroupDescribeRequest()
	req.Groups = []string{g}
	return s.ask(req, 1).(*kmsg.ConsumerGroupDescribeResponse).Groups[0].Epoch
}

func consumerOffsets(s *session) {
	t, u := s.topic("t"), s.topic("u")
	id, uid := s.create(t, 2), s.create(u, 1)
	g := s.consumerGroup("g")
	s.ask(entering(g, "a", t), 1)
	for v := int16(2); v <= 10; v++ {
		for _, c := range []struct {
			what, member string
			epoch        int32
		}{{"its epoch", "a", 2}, {"an epoch to come", "a", 3}, {"an epoch before", "a", 1}, {"a stranger", "x", 2}, {"nobody", "", -1}} {
			q := commitSpots(g, spot{t, id, 0, int64(v), nil}, spot{t, id, 1, int64(v), nil})
			q.MemberID, q.Generation = c.member, c.epoch
			s.do("commit: "+c.what, q, v)
		}
	}
	for _, v := range []int16{1, 5, 8, 9, 10} {
		s.do("fetch: nobody", offsetsOf(g, spot{t, id, 0, 0, nil}), v)
	}
	for _, c := range []struct {
		member *string
		epoch  int32
	}{{ptr("a"), 2}, {ptr("a"), 1}, {ptr("x"), 2}, {ptr(""), -1}, {nil, 2}} {
		q := offsetsOf(g, spot{t, id, 0, 0, nil})
		q.Groups[0].MemberID, q.Groups[0].MemberEpoch = c.member, c.epoch
		s.do(fmt.Sprintf("fetch: %s at %d", str(c.member), c.epoch), q, 9)
		q.RequireStable = true
		s.do(fmt.Sprintf("fetch stable: %s at %d", str(c.member), c.epoch), q, 9)
		q.Groups[0].Topics = nil
		s.do(fmt.Sprintf("fetch all: %s at %d", str(c.member), c.epoch), q, 9)
	}
	s.ask(entering(g, "b", t), 1)
	r := s.ask(owning(g, "a", 2, id, 0, 1), 1).(*kmsg.ConsumerGroupHeartbeatResponse)
	kept := r.Assignment.Topics[0].Partitions[0]
	old := func(p int32) *kmsg.OffsetCommitRequest {
		q := commitSpots(g, spot{t, id, p, 40, nil})
		q.MemberID, q.Generation = "a", 2
		return q
	}
	s.do("while it gives up a partition: what it keeps", old(kept), 9)
	s.do("what it gives up", old(1-kept), 9)
	s.ask(owning(g, "a", 2, id, kept), 1)
	s.do("at the epoch before: what it kept", old(kept), 9)
	s.do("what it has given up", old(1-kept), 9)
	s.do("offsets of what is read", deleteOffsets(g, spot{topic: t, n: 0}, spot{topic: t, n: 1}), 0)
	s.ask(commitSpots(g, spot{u, uid, 0, 1, nil}), 9)
	s.do("offsets of what nobody reads", deleteOffsets(g, spot{topic: u, n: 0}), 0)
	s.ask(beat(g, "a", -1), 1)
	s.ask(beat(g, "b", -1), 1)
	s.do("nobody is left: commit", commitSpots(g, spot{t, id, 0, 99, nil}), 9)
	s.do("deleted", deleteGroups(g), 2)
	s.do("its offsets", offsetsOf(g), 9)
	s.groupRecords(s.partitionOf(g), g)
}

// partitionOf is the partition of __consumer_offsets that a group belongs to.
func (s *session) partitionOf(group string) int32 { return coordinator.PartitionOf(group, 50) }

func consumerAssignors(s *session) {
	t, u := s.topic("t"), s.topic("u")
	s.create(t, 5)
	s.create(u, 3)
	for _, name := range []string{"range", "uniform"} {
		g := s.consumerGroup(name)
		with := func(req *kmsg.ConsumerGroupHeartbeatRequest) *kmsg.ConsumerGroupHeartbeatRequest {
			req.ServerAssignor = &name
			return req
		}
		s.ask(with(entering(g, "a", t)), 1)
		s.ask(entering(g, "b", t), 1)
		s.described("two that read the same", 1, g)
		s.ask(with(entering(g, "c", t, u)), 1)
		s.described("one that reads more", 1, g)
		s.ask(with(entering(g, "d", u)), 1)
		s.described("one that reads less", 1, g)
		s.ask(beat(g, "a", -1), 1)
		s.ask(entering(g, "e", t, u), 1)
		s.described("one for one", 1, g)
	}
}

// consumerRecord reads a record of a consumer group; ok is false for that of another.
func (s *session) consumerRecord(kind int16, key, value []byte, version int16, groups []string) (text string, ok bool) {
	s.Helper()
	r, err := consumer.Parse(consumer.Kind(kind), key, value, version)
	if err != nil {
		s.Fatalf("record of type %d: %v", kind, err)
	}
	if !slices.Contains(groups, r.Group) {
		return "", false
	}
	p := printer{out: new(strings.Builder), names: s.names, hide: map[string]bool{}, since: s.since}
	head := fmt.Sprintf("%T", r.Value)
	if r.Value == nil {
		head = fmt.Sprintf("type %d", kind)
	}
	head = strings.TrimPrefix(head, "*records.ConsumerGroup") + " of " + r.Group
	if r.Of != "" {
		head += " " + s.memberName(r.Of)
	}
	switch v := r.Value.(type) {
	case nil:
		return head + " is gone", true
	case *records.ConsumerGroupMetadataValue:
		return head + fmt.Sprintf(" v%d: epoch=%d hash=%t", version, v.Epoch, v.MetadataHash != 0), true
	case *records.ConsumerGroupMemberMetadataValue:
		head += fmt.Sprintf(" v%d: instance=%s rack=%s client=%s host=%s topics=%q regex=%s rebalance=%d assignor=%s", version, str(v.InstanceID), str(v.RackID),
			v.ClientID, v.ClientHost, v.SubscribedTopicNames, str(v.SubscribedTopicRegex), v.RebalanceTimeoutMs, str(v.ServerAssignor))
		if c := v.ClassicMemberMetadata; c != nil {
			head += fmt.Sprintf(" session=%d", c.SessionTimeoutMs)
			for _, x := range c.SupportedProtocols {
				head += fmt.Sprintf(" %s=%q", x.Name, x.Metadata)
			}
		}
		return head, true
	case *records.ConsumerGroupTargetAssignmentMetadataValue:
		return head + fmt.Sprintf(" v%d: epoch=%d at=%s", version, v.AssignmentEpoch, p.number("", v.AssignmentTimestamp)), true
	case *records.ConsumerGroupTargetAssignmentMemberValue:
		var rows []string
		for _, t := range v.TopicPartitions {
			rows = append(rows, fmt.Sprintf(" %s=%v", p.id(t.TopicID), t.Partitions))
		}
		slices.Sort(rows)
		return head + fmt.Sprintf(" v%d:%s", version, strings.Join(rows, "")), true
	case *records.ConsumerGroupCurrentMemberAssignmentValue:
		show := func(in []records.ConsumerGroupCurrentMemberAssignmentValueTopicPartitions) string {
			var rows []string
			for _, t := range in {
				rows = append(rows, fmt.Sprintf(" %s=%v@%v", p.id(t.TopicID), t.Partitions, t.AssignmentEpochs))
			}
			slices.Sort(rows)
			return strings.Join(rows, "")
		}
		return head + fmt.Sprintf(" v%d: epoch=%d before=%d state=%d has:%s gives up:%s", version, v.MemberEpoch, v.PreviousMemberEpoch, v.State,
			show(v.AssignedPartitions), show(v.PartitionsPendingRevocation)), true
	case *records.ConsumerGroupRegularExpressionValue:
		return head + fmt.Sprintf(" v%d: topics=%q at=%s", version, v.Topics, p.number("", v.Timestamp)), true
	}
	return head + fmt.Sprintf(" v%d: %d bytes", version, len(bytes.Clone(value))), true
}
