package interop

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// club is a classic group whose members this test plays through all legs, with sessions that outlive them: what the one
// system has promised to a member the other one keeps.
type club struct {
	name       string
	generation int32
	protocol   *string // that the last rebalance has chosen
	members    []*clubMember
}

type clubMember struct {
	id       string
	instance string // group.instance.id; "" of a dynamic member
}

// clubs has the members of two groups go on where the last system has left them, and join anew. The group "halted" is
// stopped in the midst of a rebalance (halted).
func clubs(s *scene) {
	for _, name := range []string{"club", "halted"} {
		c := s.clubs[name]
		if c == nil {
			c = &club{name: name, members: []*clubMember{{instance: "static one"}, {}}}
			s.clubs[name] = c
			// A group with neither members nor offsets may be removed between a member's two first requests.
			s.commit(name, kadm.Offset{Topic: "read", At: 0, LeaderEpoch: -1})
		} else {
			s.goOn(c)
		}
		s.rebalance(c, fmt.Sprint("leg ", s.leg))
		s.goOn(c)
	}
	// A member that leaves, and a static one that comes back under another member id.
	c := s.clubs["club"]
	s.leave(c.name, c.members[1])
	c.members[1] = &clubMember{}
	c.members[0].id = ""
	s.rebalance(c, fmt.Sprint("again in leg ", s.leg))
	s.goOn(c)
}

// goOn has every member say that it is there, and one commit for all: the group must be as it was.
func (s *scene) goOn(c *club) {
	s.Helper()
	client := s.client()
	for _, m := range c.members {
		req := kmsg.NewPtrHeartbeatRequest()
		req.Group, req.Generation, req.MemberID, req.InstanceID = c.name, c.generation, m.id, m.static()
		res := ask(s.T, s.n, client, req, func(r *kmsg.HeartbeatResponse) int16 { return r.ErrorCode })
		s.answered(res.ErrorCode, fmt.Sprintf("heartbeat of %q in generation %d of %s", m.id, c.generation, c.name))
	}
	m := c.members[s.leg%len(c.members)]
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation, req.MemberID, req.InstanceID = c.name, c.generation, m.id, m.static()
	s.commitWith(client, req, []kadm.Offset{{Topic: "read", Partition: int32(s.leg % 3), At: int64(c.generation), LeaderEpoch: 0, Metadata: m.instance}})
	stale := kmsg.NewPtrHeartbeatRequest()
	stale.Group, stale.Generation, stale.MemberID = c.name, c.generation-1, m.id
	stale.InstanceID = m.static()
	if got := kerr.ErrorForCode(ask(s.T, s.n, client, stale, func(r *kmsg.HeartbeatResponse) int16 { return r.ErrorCode }).ErrorCode); !errors.Is(got, kerr.IllegalGeneration) {
		s.Errorf("leg %d (%s): a heartbeat of the generation before: %v", s.leg, s.n.System(), got)
	}
}

func (m *clubMember) static() *string {
	if m.instance == "" {
		return nil
	}
	return &m.instance
}

// joinRequest is how a member joins; sessions last longer than any test.
func (c *club) joinRequest(m *clubMember, topics string) *kmsg.JoinGroupRequest {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Group, req.MemberID, req.InstanceID, req.ProtocolType = c.name, m.id, m.static(), "test"
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = 1_700_000, 1_700_000
	for _, name := range []string{"first", "second"} {
		p := kmsg.NewJoinGroupRequestProtocol()
		p.Name, p.Metadata = name, []byte(topics+" by "+name)
		req.Protocols = append(req.Protocols, p)
	}
	return req
}

// joined is a JoinGroup that has come back.
type joined struct {
	m   *clubMember
	res *kmsg.JoinGroupResponse
	err error
}

// startJoin sends a JoinGroup from a connection of its own, for it waits for other members.
func (s *scene) startJoin(client *kgo.Client, c *club, m *clubMember, topics string, back chan<- joined) {
	req := c.joinRequest(m, topics)
	go func() {
		raw, err := client.Broker(int(s.n.ID)).Request(s.Context(), req)
		res, _ := raw.(*kmsg.JoinGroupResponse)
		back <- joined{m, res, err}
	}()
}

// rebalance has all members join, with something new, and take an assignment.
func (s *scene) rebalance(c *club, topics string) {
	s.Helper()
	for _, m := range c.members {
		if m.id == "" && m.instance == "" { // a dynamic member asks for its id first
			first := ask(s.T, s.n, s.client(), c.joinRequest(m, topics), func(r *kmsg.JoinGroupResponse) int16 {
				return r.ErrorCode - kerr.MemberIDRequired.Code
			})
			m.id = first.MemberID
		}
	}
	for try := range 20 {
		topics := fmt.Sprintf("%s, try %d", topics, try)
		if s.sync(c, s.join(c, topics), topics) {
			return
		}
	}
	s.Fatalf("leg %d (%s): the members of %s do not get together", s.leg, s.n.System(), c.name)
}

// join has all members join until all are of one generation, and returns the leader.
func (s *scene) join(c *club, topics string) (leader string) {
	s.Helper()
	back := make(chan joined, 100)
	generation, waiting := map[*clubMember]int32{}, map[*clubMember]bool{}
	for _, m := range c.members {
		waiting[m] = true
		s.startJoin(s.client(), c, m, topics, back)
	}
	for range 100 {
		idle := false
		select {
		case j := <-back:
			s.must(j.err, "join "+c.name)
			s.answered(j.res.ErrorCode, "join "+c.name)
			delete(waiting, j.m)
			generation[j.m], c.generation = j.res.Generation, max(c.generation, j.res.Generation)
			j.m.id, leader, c.protocol = j.res.MemberID, j.res.LeaderID, j.res.Protocol
		case <-time.After(300 * time.Millisecond): // somebody waits for those who were through before
			idle = true
		}
		together := len(waiting) == 0
		for _, m := range c.members {
			together = together && generation[m] == c.generation
		}
		if together {
			return leader
		}
		for _, m := range c.members {
			if idle && !waiting[m] {
				waiting[m] = true
				s.startJoin(s.client(), c, m, topics, back)
			}
		}
	}
	s.Fatalf("leg %d (%s): the members of %s are in the generations %v", s.leg, s.n.System(), c.name, generation)
	return ""
}

// sync has the members get their assignments, the leader first; false: there is another rebalance.
func (s *scene) sync(c *club, leader, topics string) bool {
	s.Helper()
	members := slices.Clone(c.members)
	slices.SortFunc(members, func(a, b *clubMember) int {
		switch leader {
		case a.id:
			return -1
		case b.id:
			return 1
		}
		return 0
	})
	for _, m := range members {
		req := kmsg.NewPtrSyncGroupRequest()
		req.Group, req.Generation, req.MemberID, req.InstanceID = c.name, c.generation, m.id, m.static()
		req.ProtocolType, req.Protocol = kmsg.StringPtr("test"), c.protocol
		if m.id == leader {
			for i, o := range c.members {
				a := kmsg.NewSyncGroupRequestGroupAssignment()
				a.MemberID, a.MemberAssignment = o.id, fmt.Appendf(nil, "share %d of %s", i, topics)
				req.GroupAssignment = append(req.GroupAssignment, a)
			}
		}
		res := ask(s.T, s.n, s.client(), req, func(r *kmsg.SyncGroupResponse) int16 {
			if r.ErrorCode == kerr.RebalanceInProgress.Code {
				return 0
			}
			return r.ErrorCode
		})
		if res.ErrorCode == kerr.RebalanceInProgress.Code {
			return false
		}
		s.answered(res.ErrorCode, "sync "+c.name)
	}
	return true
}

func (s *scene) leave(group string, m *clubMember) {
	s.Helper()
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group = group
	l := kmsg.NewLeaveGroupRequestMember()
	l.MemberID, l.InstanceID = m.id, m.static()
	req.Members = append(req.Members, l)
	res := ask(s.T, s.n, s.client(), req, func(r *kmsg.LeaveGroupResponse) int16 { return r.ErrorCode })
	s.answered(res.ErrorCode, "leave "+group)
	s.answered(res.Members[0].ErrorCode, "leave "+group)
}

// halted begins a rebalance that the stop of the node cuts off: in even legs one member waits for the other, in odd ones all
// have joined and nobody has an assignment. The group goes on in the generation that was complete.
func halted(s *scene) {
	c := s.clubs["halted"]
	back := make(chan joined, len(c.members))
	state := "PreparingRebalance"
	s.startJoin(s.client(), c, c.members[1], "cut off", back)
	if s.leg%2 == 1 {
		state = "CompletingRebalance"
		s.startJoin(s.client(), c, c.members[0], "cut off", back)
	}
	s.until("the rebalance of "+c.name, func() error {
		if got := (&looker{t: s.T, n: s.n, client: s.client(), adm: s.admin()}).group(c.name).State; got != state {
			return fmt.Errorf("it is %s", got)
		}
		return nil
	})
}

// groupView is all that can be seen of a group.
type groupView struct {
	State, Type, Protocol string
	Members               []string
	Offsets               []string
}

// groups looks at all groups.
func (l *looker) groups() map[string]groupView {
	l.t.Helper()
	out := map[string]groupView{}
	for _, g := range ask(l.t, l.n, l.client, kmsg.NewPtrListGroupsRequest(), func(r *kmsg.ListGroupsResponse) int16 { return r.ErrorCode }).Groups {
		out[g.Group] = l.group(g.Group)
	}
	return out
}

func (l *looker) group(name string) groupView {
	l.t.Helper()
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Groups = []string{name}
	g := ask(l.t, l.n, l.client, req, func(r *kmsg.DescribeGroupsResponse) int16 { return r.Groups[0].ErrorCode }).Groups[0]
	l.must(kerr.ErrorForCode(g.ErrorCode), "describe group "+name)
	v := groupView{State: g.State, Type: g.ProtocolType, Protocol: g.Protocol}
	for _, m := range g.Members {
		v.Members = append(v.Members, fmt.Sprintf("%s (instance %s, client %s at %s) has said %q and got %q", m.MemberID, orNull(m.InstanceID), m.ClientID, m.ClientHost, m.ProtocolMetadata, m.MemberAssignment))
	}
	offsets, err := l.adm.FetchOffsets(l.ctx(), name)
	l.must(errors.Join(err, offsets.Error()), "offsets of "+name)
	offsets.Each(func(o kadm.OffsetResponse) {
		v.Offsets = append(v.Offsets, fmt.Sprintf("%s-%d at %d of epoch %d, %q", o.Topic, o.Partition, o.At, o.LeaderEpoch, o.Metadata))
	})
	slices.Sort(v.Members)
	slices.Sort(v.Offsets)
	return v
}
