package wire

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// groupCases come last: the first of them finds a node without __consumer_offsets.
func groupCases() []testCase {
	return slices.Concat([]testCase{
		{name: "K35-first-coordinator", run: firstCoordinator},
		{name: "K35-find-coordinator", run: findCoordinatorCase},
		{name: "K25-first-join", run: firstJoin},
		{name: "group-member-versions", run: memberVersions},
		{name: "group-join-errors", run: joinErrors},
		{name: "group-rebalance", run: rebalanceCase},
		{name: "group-sync-errors", run: syncErrors},
		{name: "group-heartbeat-leave-errors", run: heartbeatAndLeaveErrors},
		{name: "group-session-ends", run: sessionEnds},
		{name: "group-max-size", run: groupMaxSize},
	}, staticMemberCases(), groupOffsetCases(), groupAdminCases(), consumerCases())
}

// subscription is a consumer's: version 1, topics, no user data, nothing owned.
func subscription(topics ...string) []byte {
	b := binary.BigEndian.AppendUint16(nil, 1)
	b = binary.BigEndian.AppendUint32(b, uint32(len(topics)))
	for _, t := range topics {
		b = binary.BigEndian.AppendUint16(b, uint16(len(t)))
		b = append(b, t...)
	}
	b = binary.BigEndian.AppendUint32(b, 0xffffffff)
	return binary.BigEndian.AppendUint32(b, 0)
}

// protocol is one assignor of a join.
type protocol struct {
	name     string
	metadata []byte
}

// joinGroup is a consumer's join with timeouts that no case reaches.
func joinGroup(group, member string, protocols ...protocol) *kmsg.JoinGroupRequest {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Group, req.MemberID, req.ProtocolType = group, member, "consumer"
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = 30_000, 60_000
	if len(protocols) == 0 {
		protocols = []protocol{{"range", subscription("t")}}
	}
	for _, p := range protocols {
		q := kmsg.NewJoinGroupRequestProtocol()
		q.Name, q.Metadata = p.name, p.metadata
		req.Protocols = append(req.Protocols, q)
	}
	return req
}

// staticJoin is joinGroup of a static member.
func staticJoin(group, member, instance string, protocols ...protocol) *kmsg.JoinGroupRequest {
	req := joinGroup(group, member, protocols...)
	req.InstanceID = &instance
	return req
}

// syncGroup asks for an assignment; assign are member id and assignment by turns,
// from the leader alone.
func syncGroup(group string, generation int32, member string, assign ...string) *kmsg.SyncGroupRequest {
	req := kmsg.NewPtrSyncGroupRequest()
	req.Group, req.Generation, req.MemberID = group, generation, member
	req.ProtocolType, req.Protocol = ptr("consumer"), ptr("range")
	for i := 0; i+1 < len(assign); i += 2 {
		a := kmsg.NewSyncGroupRequestGroupAssignment()
		a.MemberID, a.MemberAssignment = assign[i], []byte(assign[i+1])
		req.GroupAssignment = append(req.GroupAssignment, a)
	}
	return req
}

func heartbeat(group string, generation int32, member string) *kmsg.HeartbeatRequest {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.Generation, req.MemberID = group, generation, member
	return req
}

// leaver names who leaves; an instance of "" is none.
type leaver struct{ member, instance string }

func leaveGroup(group string, who ...leaver) *kmsg.LeaveGroupRequest {
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group = group
	for _, w := range who {
		m := kmsg.NewLeaveGroupRequestMember()
		m.MemberID, m.Reason = w.member, ptr("the case is over")
		if w.instance != "" {
			m.InstanceID = &w.instance
		}
		req.Members = append(req.Members, m)
		req.MemberID = w.member
	}
	return req
}

func describeGroups(groups ...string) *kmsg.DescribeGroupsRequest {
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Groups = groups
	return req
}

func findCoordinator(kind int8, keys ...string) *kmsg.FindCoordinatorRequest {
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorType, req.CoordinatorKeys = kind, keys
	if len(keys) > 0 {
		req.CoordinatorKey = keys[0]
	}
	return req
}

// group is the name of a group that no other case uses, once it has a coordinator.
func (s *session) group(suffix string) string {
	s.Helper()
	g := s.topic(suffix)
	s.eventually("group "+g+" has a coordinator", func() bool {
		if s.ask(findCoordinator(0, g), 4).(*kmsg.FindCoordinatorResponse).Coordinators[0].ErrorCode != 0 {
			return false
		}
		return s.ask(heartbeat(g, 0, "nobody"), 4).(*kmsg.HeartbeatResponse).ErrorCode == 25 // UNKNOWN_MEMBER_ID: it is loaded
	})
	return g
}

// awaitState waits until a group is in a state with a number of members.
func (s *session) awaitState(group, state string, members int) {
	s.Helper()
	s.eventually(fmt.Sprintf("%s is %s with %d members", group, state, members), func() bool {
		g := s.ask(describeGroups(group), 5).(*kmsg.DescribeGroupsResponse).Groups[0]
		return g.State == state && len(g.Members) == members
	})
}

// parked is a request whose answer has to wait.
type parked struct {
	s    *session
	c    *conn
	what string
	req  kmsg.Request
	id   int32
}

// begin sends a request on a connection of its own and goes on.
func (s *session) begin(what string, req kmsg.Request, version int16) *parked {
	s.Helper()
	p := &parked{s: s, c: s.dial(), what: what, req: req}
	req.SetVersion(version)
	var err error
	if p.id, err = p.c.send(req); err != nil {
		s.Fatal(err)
	}
	return p
}

// answered writes down what came.
func (p *parked) answered() kmsg.Response {
	p.s.Helper()
	res, err := p.c.receive(p.req, p.id)
	if err != nil {
		p.s.Fatalf("%s: %v", p.what, err)
	}
	p.s.show(p.what, res)
	return res
}

// newMember joins a group that waits for nobody else, and returns id and generation.
func (s *session) newMember(req *kmsg.JoinGroupRequest, version int16) (id string, generation int32) {
	s.Helper()
	r := s.ask(req, version).(*kmsg.JoinGroupResponse)
	if r.ErrorCode == 79 { // MEMBER_ID_REQUIRED
		req.MemberID = r.MemberID
		r = s.ask(req, version).(*kmsg.JoinGroupResponse)
	}
	if r.ErrorCode != 0 {
		s.Fatalf("cannot join %s: %d", req.Group, r.ErrorCode)
	}
	s.names.text(r.MemberID) // the order of answers is that of a hash table: the name is given here
	return r.MemberID, r.Generation
}

// memberID is what a join v4 and later gets first.
func (s *session) memberID(group string) string {
	s.Helper()
	id := s.ask(joinGroup(group, ""), 9).(*kmsg.JoinGroupResponse).MemberID
	s.names.text(id)
	return id
}

// alone makes a group of one member that has its assignment.
func (s *session) alone(group string) (id string, generation int32) {
	s.Helper()
	id, generation = s.newMember(joinGroup(group, ""), 9)
	if r := s.ask(syncGroup(group, generation, id, id, "all"), 5).(*kmsg.SyncGroupResponse); r.ErrorCode != 0 {
		s.Fatalf("cannot sync %s: %d", group, r.ErrorCode)
	}
	return id, generation
}

// firstCoordinator: the topic of groups is created by the first who asks.
func firstCoordinator(s *session) {
	know := metadata("__consumer_offsets")
	know.AllowAutoTopicCreation = false
	if s.ask(know, 9).(*kmsg.MetadataResponse).Topics[0].ErrorCode == 0 {
		s.Skip("the node has __consumer_offsets already: another case made it")
	}
	s.do("the first request", findCoordinator(0, "a", "b"), 4)
	s.eventually("there is a coordinator", func() bool {
		return s.ask(findCoordinator(0, "a"), 4).(*kmsg.FindCoordinatorResponse).Coordinators[0].ErrorCode == 0
	})
	s.do("later", findCoordinator(0, "a", "b"), 4)
	s.eventually("all partitions lead", func() bool { return s.leads("__consumer_offsets", 50) })
	s.hiding("Partitions").do("the topic", know, 9)
	configs := describeConfigs(kmsg.ConfigResourceTypeTopic, "__consumer_offsets", "cleanup.policy", "compression.type", "segment.bytes")
	s.do("its configuration", configs, 4)
}

func findCoordinatorCase(s *session) {
	g := s.group("g")
	for v := int16(0); v <= 6; v++ {
		s.do("a group", findCoordinator(0, g), v)
		s.do("an empty group id", findCoordinator(0, ""), v)
		if v < 1 {
			continue
		}
		for _, kind := range []int8{2, 3, -1} {
			s.do(fmt.Sprintf("key type %d", kind), findCoordinator(kind, g), v)
		}
		if v >= 4 {
			s.do("three keys", findCoordinator(0, g, "other", g), v)
			s.do("none", findCoordinator(0), v)
			s.do("share keys that are none", findCoordinator(2, g, g+":x", "a:b:c"), v)
			s.do("key type 9, two keys", findCoordinator(9, g, "other"), v)
		}
	}
}

func firstJoin(s *session) {
	for v := int16(2); v <= 9; v++ {
		g := s.group(fmt.Sprint("v", v))
		first := s.do("first join", joinGroup(g, ""), v).(*kmsg.JoinGroupResponse)
		if v < 4 {
			continue
		}
		second := s.do("again without the id", joinGroup(g, ""), v).(*kmsg.JoinGroupResponse)
		s.awaitState(g, "Empty", 0)
		s.do("the group meanwhile", describeGroups(g), 6)
		s.do("an id that was not given out", joinGroup(g, "wire-0"), v)
		a := second.MemberID
		n := s.do("the second id", joinGroup(g, a), v).(*kmsg.JoinGroupResponse).Generation
		s.do("its assignment", syncGroup(g, n, a, a, "all"), 5)
		b := s.begin("the first id", joinGroup(g, first.MemberID, protocol{"range", subscription("u")}), v)
		s.awaitState(g, "PreparingRebalance", 2)
		s.do("the second joins again", joinGroup(g, a), v)
		b.answered()
	}
	// An id that is not used holds a rebalance up no longer than a session.
	g := s.group("unused")
	a, _ := s.alone(g)
	req := joinGroup(g, "")
	req.SessionTimeoutMillis = 1500
	s.do("an id that will not be used", req, 9)
	began := time.Now()
	s.do("the leader joins again", joinGroup(g, a), 9)
	s.note("it has waited: %t", time.Since(began) > time.Second)
}

// memberVersions is the life of one member in every version.
func memberVersions(s *session) {
	for v := int16(2); v <= 9; v++ {
		g := s.group(fmt.Sprint("v", v))
		req := joinGroup(g, "", protocol{"range", subscription("t")}, protocol{"roundrobin", subscription("u")})
		req.Reason = ptr("a reason")
		if v >= 4 {
			req.MemberID = s.do("its id", req, v).(*kmsg.JoinGroupResponse).MemberID
		}
		joined := s.do("join", req, v).(*kmsg.JoinGroupResponse)
		id, n := joined.MemberID, joined.Generation
		s.do("described while it assigns", describeGroups(g), 5)
		s.do("sync", syncGroup(g, n, id, id, "all"), min(v, 5))
		s.do("sync again", syncGroup(g, n, id), min(v, 5))
		s.do("heartbeat", heartbeat(g, n, id), min(v, 4))
		s.do("described", describeGroups(g), min(v, 6))
		s.do("leave", leaveGroup(g, leaver{member: id}), min(v, 5))
		s.do("leave again", leaveGroup(g, leaver{member: id}), min(v, 5))
		s.do("described when it is empty", describeGroups(g), 5)
		if v <= 3 {
			again := s.do("join again", req, v).(*kmsg.JoinGroupResponse)
			s.do("sync v0", syncGroup(g, again.Generation, again.MemberID, again.MemberID, "all"), v-2)
			s.do("heartbeat v0", heartbeat(g, again.Generation, again.MemberID), v-2)
			s.do("described v0", describeGroups(g), v-2)
			s.do("leave v0", leaveGroup(g, leaver{member: again.MemberID}), v-2)
		}
	}
}

func joinErrors(s *session) {
	g := s.group("g")
	for _, v := range []int16{2, 3, 4, 5, 6, 7, 8, 9} {
		s.do("no group id", joinGroup("", ""), v)
		for _, ms := range []int32{-1, 0, 999, 1_800_001} {
			req := joinGroup(g, "")
			req.SessionTimeoutMillis = ms
			s.do(fmt.Sprintf("session timeout %d", ms), req, v)
		}
		s.do("a member id in a group that is not there", joinGroup(g, "wire-0"), v)
		s.do("no member id in a group that is not there, static", staticJoin(s.group("gone"), "wire-0", "i-1"), v)
	}
	for _, v := range []int16{2, 9} {
		g := s.group(fmt.Sprint("protocols-v", v))
		none := joinGroup(g, "")
		none.Protocols = nil
		s.do("no protocols", none, v)
		s.awaitState(g, "Empty", 0) // Kafka answers before the group is stored
		s.do("the group after it", describeGroups(g), 6)
		untyped := joinGroup(g, "")
		untyped.ProtocolType = ""
		s.do("no protocol type", untyped, v)
		s.alone(g)
		s.do("no protocols in a group with members", none, v)
		other := joinGroup(g, "")
		other.ProtocolType = "connect"
		s.do("another protocol type", other, v)
		s.do("another protocol", joinGroup(g, "", protocol{"sticky", nil}), v)
		s.do("an unknown member id", joinGroup(g, "wire-0"), v)
		s.do("an unknown instance id with a member id", staticJoin(g, "wire-0", "i-1"), max(v, 5))
	}
}

// rebalanceCase: a second member comes, and goes.
func rebalanceCase(s *session) {
	g, t := s.group("g"), s.topic("t")
	s.create(t, 2)
	a, n := s.alone(g)
	b := s.memberID(g)
	s.do("nobody rebalances for an id", heartbeat(g, n, a), 4)
	joinB := s.begin("the second member's join", joinGroup(g, b, protocol{"range", subscription("b")}), 9)
	s.awaitState(g, "PreparingRebalance", 2)
	s.do("heartbeat of the first", heartbeat(g, n, a), 4)
	s.do("its sync", syncGroup(g, n, a), 5)
	s.do("its commit is taken", commitOf(g, n, a, t, 0, 5), 8)
	s.do("heartbeat of one who joins", heartbeat(g, n, b), 4)
	s.do("commit of one who joins", commitOf(g, n+1, b, t, 0, 5), 8)
	s.do("described", describeGroups(g), 6)
	s.do("the first joins again", joinGroup(g, a), 9)
	joinB.answered()
	n++
	s.do("both have joined: heartbeat", heartbeat(g, n, b), 4)
	s.do("heartbeat of the old generation", heartbeat(g, n-1, b), 4)
	s.do("commit", commitOf(g, n, b, t, 0, 6), 8)
	s.do("described", describeGroups(g), 6)
	s.do("a follower joins again with the same", joinGroup(g, b, protocol{"range", subscription("b")}), 9)
	s.do("the leader joins again with the same", joinGroup(g, a), 9)
	syncB := s.begin("the follower's sync", syncGroup(g, n, b), 5)
	s.do("the leader's sync", syncGroup(g, n, a, a, "for a", b, "for b", "nobody", "for nobody"), 5)
	syncB.answered()
	s.do("described", describeGroups(g), 6)
	s.do("a follower joins again with the same", joinGroup(g, b, protocol{"range", subscription("b")}), 9)
	s.do("the group has not moved", heartbeat(g, n, a), 4)
	// The leader joins again: all have to.
	joinA := s.begin("the leader joins again with the same", joinGroup(g, a), 9)
	s.awaitState(g, "PreparingRebalance", 2)
	s.do("the follower leaves", leaveGroup(g, leaver{member: b}), 5)
	joinA.answered()
	n++
	// A new member while the leader assigns.
	syncing := s.memberID(g)
	joinC := s.begin("a third member's join", joinGroup(g, syncing), 9)
	s.awaitState(g, "PreparingRebalance", 2)
	s.do("the leader's sync is too late", syncGroup(g, n, a, a, "all"), 5)
	s.do("the leader leaves", leaveGroup(g, leaver{member: a}), 5)
	joinC.answered()
	n++
	s.do("the new leader leaves", leaveGroup(g, leaver{member: syncing}), 5)
	s.do("the group is empty", describeGroups(g), 6)
	s.do("heartbeat", heartbeat(g, n, syncing), 4)
	again := s.do("another generation follows", joinGroup(g, ""), 3).(*kmsg.JoinGroupResponse)
	s.do("sync without assignments", syncGroup(g, again.Generation, again.MemberID), 5)
	s.do("described", describeGroups(g), 6)
}

func syncErrors(s *session) {
	g := s.group("g")
	for v := int16(0); v <= 5; v++ {
		s.do("no group id", syncGroup("", 1, "x"), v)
		s.do("an unknown group", syncGroup("no-such-group", 1, "x"), v)
	}
	a, n := s.newMember(joinGroup(g, ""), 9)
	for v := int16(0); v <= 5; v++ {
		s.do("an unknown member", syncGroup(g, n, "x"), v)
		s.do("an older generation", syncGroup(g, n-1, a), v)
		s.do("a later generation", syncGroup(g, n+1, a), v)
	}
	for _, p := range [][2]*string{{nil, ptr("range")}, {ptr("consumer"), nil}, {ptr("connect"), ptr("range")}, {ptr("consumer"), ptr("sticky")}, {ptr(""), ptr("")}} {
		req := syncGroup(g, n, a)
		req.ProtocolType, req.Protocol = p[0], p[1]
		s.do(fmt.Sprintf("protocol type %s, protocol %s", str(p[0]), str(p[1])), req, 5)
	}
	s.do("the right one", syncGroup(g, n, a, a, "all"), 5)
	unknown := syncGroup(g, n, a)
	unknown.InstanceID = ptr("i-1")
	s.do("with an instance id that is unknown", unknown, 5)
}

func heartbeatAndLeaveErrors(s *session) {
	g := s.group("g")
	a, n := s.alone(g)
	empty := s.group("empty")
	id, k := s.alone(empty)
	s.ask(leaveGroup(empty, leaver{member: id}), 5)
	for v := int16(0); v <= 4; v++ {
		s.do("no group id", heartbeat("", 1, "x"), v)
		s.do("an unknown group", heartbeat("no-such-group", 1, "x"), v)
		s.do("a group without members", heartbeat(empty, k, id), v)
		s.do("an unknown member", heartbeat(g, n, "x"), v)
		s.do("an older generation", heartbeat(g, n-1, a), v)
		s.do("generation -1", heartbeat(g, -1, a), v)
		s.do("the right one", heartbeat(g, n, a), v)
	}
	unknown := heartbeat(g, n, a)
	unknown.InstanceID = ptr("i-1")
	s.do("an unknown instance", unknown, 4)
	for v := int16(0); v <= 5; v++ {
		s.do("no group id", leaveGroup("", leaver{member: "x"}), v)
		s.do("an unknown group", leaveGroup("no-such-group", leaver{member: "x"}), v)
		s.do("a group without members", leaveGroup(empty, leaver{member: "x"}), v)
		s.do("an unknown member", leaveGroup(g, leaver{member: "x"}), v)
		if v >= 3 {
			s.do("nobody", leaveGroup(g), v)
			s.do("several unknown ones", leaveGroup(g, leaver{member: "x"}, leaver{instance: "i-1"}, leaver{"x", "i-1"}, leaver{}), v)
			s.do("several of an unknown group", leaveGroup("no-such-group", leaver{member: "x"}, leaver{instance: "i-1"}), v)
			pending := s.memberID(g)
			s.do("one that was about to join", leaveGroup(g, leaver{member: pending}), v)
			s.do("it is gone", joinGroup(g, pending), 9)
		}
	}
	s.do("the member is still there", heartbeat(g, n, a), 4)
	s.do("one that leaves twice at once", leaveGroup(g, leaver{member: a}, leaver{member: a}), 5)
}

func sessionEnds(s *session) {
	g := s.group("g")
	short := joinGroup(g, "")
	short.SessionTimeoutMillis = 1000
	a, n := s.newMember(short, 9)
	s.ask(syncGroup(g, n, a, a, "all"), 5)
	s.awaitState(g, "Empty", 0)
	s.do("the member is gone", heartbeat(g, n, a), 4)
	s.do("its group is not", describeGroups(g), 6)
	// One who does not come back to a rebalance is left behind.
	late := joinGroup(g, "")
	late.RebalanceTimeoutMillis = 2000
	b, n := s.newMember(late, 9)
	s.ask(syncGroup(g, n, b, b, "all"), 5)
	other := joinGroup(g, "")
	other.RebalanceTimeoutMillis = 500
	other.MemberID = s.memberID(g)
	s.do("the other goes on alone", other, 9)
	s.do("the late one", heartbeat(g, n, b), 4)
	// One who does not fetch its assignment is taken out when the rebalance timeout has passed.
	s.awaitState(g, "Empty", 0)
	s.do("nobody has synced", describeGroups(g), 6)
}

// groupMaxSize: the nodes allow four members.
func groupMaxSize(s *session) {
	g := s.group("g")
	var joins []*parked
	for range 4 {
		joins = append(joins, s.begin("one of four", joinGroup(g, s.memberID(g)), 9))
	}
	s.hiding("LeaderID", "MemberID", "Members")
	for _, j := range joins {
		j.answered()
	}
	delete(s.hide, "MemberID")
	for _, v := range []int16{2, 5, 9} {
		s.do("a fifth", joinGroup(g, ""), v)
		s.do("a fifth with an id", joinGroup(g, "wire-0"), v)
	}
}
