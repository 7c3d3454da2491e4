package wire

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// staticMemberCases are of members with an instance id (KIP-345).
func staticMemberCases() []testCase {
	return []testCase{
		{name: "group-static-versions", run: staticVersions},
		{name: "group-static-leader", run: staticLeader},
		{name: "group-static-follower", run: staticFollower},
		{name: "group-static-fenced", run: staticFenced},
		{name: "group-static-rebalances", run: staticRebalances},
		{name: "group-static-leave", run: staticLeave},
	}
}

// staticAlone makes a group of one static member that has its assignment.
func (s *session) staticAlone(group, instance string) (id string, generation int32) {
	s.Helper()
	id, generation = s.newMember(staticJoin(group, "", instance), 9)
	req := syncGroup(group, generation, id, id, "all")
	req.InstanceID = &instance
	if r := s.ask(req, 5).(*kmsg.SyncGroupResponse); r.ErrorCode != 0 {
		s.Fatalf("cannot sync %s: %d", group, r.ErrorCode)
	}
	return id, generation
}

func staticVersions(s *session) {
	for v := int16(5); v <= 9; v++ {
		g := s.group(fmt.Sprint("v", v))
		joined := s.do("join", staticJoin(g, "", "i-1"), v).(*kmsg.JoinGroupResponse)
		id, n := joined.MemberID, joined.Generation
		sync := syncGroup(g, n, id, id, "all")
		sync.InstanceID = ptr("i-1")
		s.do("sync", sync, min(v-2, 5))
		beat := heartbeat(g, n, id)
		beat.InstanceID = ptr("i-1")
		s.do("heartbeat", beat, min(v-2, 4))
		for d := int16(3); d <= 6; d++ {
			s.do("described", describeGroups(g), d)
		}
		s.do("leave", leaveGroup(g, leaver{instance: "i-1"}), min(v-2, 5))
	}
}

// staticLeader: the leader comes back without its member id.
func staticLeader(s *session) {
	for v := int16(5); v <= 9; v++ {
		g := s.group(fmt.Sprint("v", v))
		old, n := s.staticAlone(g, "i-1")
		back := s.do("it comes back", staticJoin(g, "", "i-1"), v).(*kmsg.JoinGroupResponse)
		s.do("the old id", heartbeat(g, n, old), 4)
		s.do("the new id", heartbeat(g, back.Generation, back.MemberID), 4)
		s.do("its assignment", syncGroup(g, back.Generation, back.MemberID), 5)
		s.do("described", describeGroups(g), 6)
		s.do("it joins with its id", staticJoin(g, back.MemberID, "i-1"), v)
		s.do("described", describeGroups(g), 6)
	}
	g := s.group("other")
	s.staticAlone(g, "i-1")
	s.do("it comes back with another subscription", staticJoin(g, "", "i-1", protocol{"range", subscription("u")}), 9)
	s.do("and with another protocol", staticJoin(g, "", "i-1", protocol{"sticky", subscription("u")}), 9)
	s.do("and with one more protocol", staticJoin(g, "", "i-1", protocol{"sticky", nil}, protocol{"range", nil}), 9)
	s.do("described", describeGroups(g), 6)
}

// staticFollower: a follower comes back, and nobody rebalances.
func staticFollower(s *session) {
	for _, v := range []int16{5, 8, 9} {
		g := s.group(fmt.Sprint("v", v))
		a, n := s.staticAlone(g, "i-1")
		joinB := s.begin("a second member", staticJoin(g, "", "i-2", protocol{"range", subscription("b")}), v)
		s.awaitState(g, "PreparingRebalance", 2)
		s.do("the leader joins again", staticJoin(g, a, "i-1"), v)
		b := joinB.answered().(*kmsg.JoinGroupResponse).MemberID
		n++
		syncB := s.begin("the follower's sync", syncGroup(g, n, b), 5)
		s.do("the leader's sync", syncGroup(g, n, a, a, "for a", b, "for b"), 5)
		syncB.answered()
		back := s.do("the follower comes back", staticJoin(g, "", "i-2", protocol{"range", subscription("b")}), v).(*kmsg.JoinGroupResponse)
		s.do("its assignment", syncGroup(g, n, back.MemberID), 5)
		s.do("the leader goes on", heartbeat(g, n, a), 4)
		s.do("the leader comes back", staticJoin(g, "", "i-1"), v)
		s.do("described", describeGroups(g), 6)
	}
}

func staticFenced(s *session) {
	g, t := s.group("g"), s.topic("t")
	s.create(t, 1)
	old, n := s.staticAlone(g, "i-1")
	r := s.do("another with the same instance", staticJoin(g, "", "i-1"), 9).(*kmsg.JoinGroupResponse)
	beat := heartbeat(g, n, old)
	beat.InstanceID = ptr("i-1")
	s.do("heartbeat of the old one", beat, 4)
	sync := syncGroup(g, n, old)
	sync.InstanceID = ptr("i-1")
	s.do("its sync", sync, 5)
	for v := int16(5); v <= 9; v++ {
		s.do("its join", staticJoin(g, old, "i-1"), v)
	}
	for v := int16(7); v <= 9; v++ {
		commit := commitOf(g, n, old, t, 0, 1)
		commit.InstanceID = ptr("i-1")
		s.do("its commit", commit, v)
	}
	s.do("it leaves", leaveGroup(g, leaver{old, "i-1"}), 5)
	s.do("it leaves without its instance", leaveGroup(g, leaver{old, ""}), 5)
	s.do("the new one without its instance", heartbeat(g, n, r.MemberID), 4)
	s.do("the new one with another instance", staticJoin(g, r.MemberID, "i-2"), 9)
	unknown := heartbeat(g, n, r.MemberID)
	unknown.InstanceID = ptr("i-2")
	s.do("its heartbeat with another instance", unknown, 4)
}

// staticRebalances: an instance comes back while its group is on its way.
func staticRebalances(s *session) {
	g := s.group("assigning")
	a, n := s.newMember(staticJoin(g, "", "i-1"), 9)
	back := s.begin("it comes back before it was assigned", staticJoin(g, "", "i-1"), 9)
	r := back.answered().(*kmsg.JoinGroupResponse)
	s.do("sync with the old id", syncGroup(g, n, a, a, "all"), 5)
	s.do("sync with the new id", syncGroup(g, r.Generation, r.MemberID, r.MemberID, "all"), 5)

	g = s.group("joining")
	a, _ = s.staticAlone(g, "i-1")
	join2 := s.begin("a second member", staticJoin(g, "", "i-2", protocol{"range", subscription("b")}), 9)
	s.awaitState(g, "PreparingRebalance", 2)
	again := s.begin("the second once more", staticJoin(g, "", "i-2", protocol{"range", subscription("b")}), 9)
	join2.answered()
	s.do("the first joins", staticJoin(g, a, "i-1"), 9)
	again.answered()

	// A static member that does not come to a rebalance stays a member.
	g = s.group("absent")
	first := staticJoin(g, "", "i-1")
	first.RebalanceTimeoutMillis = 2000
	a, n = s.newMember(first, 9)
	s.ask(syncGroup(g, n, a, a, "all"), 5)
	second := staticJoin(g, "", "i-2", protocol{"range", subscription("b")})
	second.RebalanceTimeoutMillis = 500
	s.do("the other goes on", second, 9)
	s.do("described", describeGroups(g), 6)
	s.do("the absent one", heartbeat(g, n, a), 4)
}

func staticLeave(s *session) {
	for v := int16(3); v <= 5; v++ {
		g := s.group(fmt.Sprint("v", v))
		a, n := s.staticAlone(g, "i-1")
		s.do("an unknown instance", leaveGroup(g, leaver{instance: "i-2"}), v)
		s.do("the right id with an unknown instance", leaveGroup(g, leaver{a, "i-2"}), v)
		s.do("an unknown id with the right instance", leaveGroup(g, leaver{"x", "i-1"}), v)
		s.do("it is there", heartbeat(g, n, a), 4)
		s.do("by instance, twice", leaveGroup(g, leaver{instance: "i-1"}, leaver{instance: "i-1"}), v)
		s.do("it is gone", heartbeat(g, n, a), 4)
	}
	g := s.group("by-id")
	a, _ := s.staticAlone(g, "i-1")
	s.do("v0 by id", leaveGroup(g, leaver{member: a}), 0)
	s.do("described", describeGroups(g), 6)
}
