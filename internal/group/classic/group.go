package classic

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/invariant"
	"weir/internal/records"
)

// State is where a group stands.
type State uint8

// The states.
const (
	Empty State = iota
	PreparingRebalance
	CompletingRebalance
	Stable
)

var stateNames = [...]string{"Empty", "PreparingRebalance", "CompletingRebalance", "Stable"}

// String is Kafka's name of the state.
func (s State) String() string { return stateNames[s] }

// Consumer is the protocol type of consumer groups: their subscriptions can be read.
const Consumer = "consumer"

// Protocol is one assignor that a member supports, with its subscription.
type Protocol struct {
	Name     string
	Metadata []byte
}

// Member is one member of a group.
type Member struct {
	ID                   string
	InstanceID           *string // of a static member
	ClientID, ClientHost string
	RebalanceTimeout     int32 // ms
	SessionTimeout       int32 // ms
	Protocols            []Protocol
	Assignment           []byte

	isNew bool // joins for the first time: its session is the join timeout
	join  *Waiting
	sync  *Waiting
}

// Group is one classic group. One goroutine uses it.
//
// invariant: joining is the number of members whose join is not nil; votes counts
// for each protocol name the members that support it; every entry of static and
// unsynced names a member; no id of pending does.
type Group struct {
	ID string

	state, previous State
	sinceMs         int64 // when the state was entered, -1 when that is not known
	generation      int32
	protocolType    *string
	protocol        *string
	leader          *string
	subscribed      map[string]bool // topics, nil when not known
	members         map[string]*Member
	order           []*Member         // the members in the order in which they came
	static          map[string]string // instance id → member id
	votes           map[string]int
	joining         int
	pending         map[string]bool // ids that were handed out and have not come back
	unsynced        map[string]bool // members that have not asked for their assignment
	newMember       bool            // somebody joined during the initial delay
	why             string          // the reason of the last rebalance
	rebalancing     time.Time       // when the running rebalance began
	tellAfter       time.Duration   // it is told of again when it has lasted as long
	told            time.Time       // when the log was told whom it waits for
	// delay and remaining are those of the running initial rebalance.
	initial          bool
	delay, remaining time.Duration
}

// New makes an empty group.
func New(id string, now time.Time) *Group {
	g := blank(id)
	g.sinceMs = now.UnixMilli()
	return g
}

func blank(id string) *Group {
	return &Group{
		ID: id, sinceMs: -1, members: map[string]*Member{}, static: map[string]string{}, votes: map[string]int{},
		pending: map[string]bool{}, unsynced: map[string]bool{},
	}
}

// Load makes the group again that v tells of, and starts its members' sessions.
// A group larger than it may be is rebalanced.
func Load(s *Step, id string, v *records.GroupMetadataValue) *Group {
	g := blank(id)
	g.sinceMs, g.generation, g.protocol, g.leader = v.CurrentStateTimestamp, v.Generation, v.Protocol, v.Leader
	if v.ProtocolType != "" {
		g.protocolType = &v.ProtocolType
	}
	if len(v.Members) > 0 {
		g.state = Stable
	}
	for i := range v.Members {
		r := &v.Members[i]
		m := &Member{
			ID: r.MemberID, InstanceID: r.GroupInstanceID, ClientID: r.ClientID, ClientHost: r.ClientHost,
			RebalanceTimeout: r.RebalanceTimeout, SessionTimeout: r.SessionTimeout, Assignment: r.Assignment,
		}
		if m.RebalanceTimeout == -1 {
			m.RebalanceTimeout = m.SessionTimeout
		}
		if v.Protocol != nil {
			m.Protocols = []Protocol{{Name: *v.Protocol, Metadata: r.Subscription}}
		}
		g.add(m)
	}
	g.leader = v.Leader
	g.subscribed = g.computeSubscribed()
	for _, m := range g.order {
		g.expectHeartbeat(s, m)
	}
	if len(g.order) > s.Config.MaxSize {
		g.prepare(s, "freshly loaded group is larger than group.max.size")
	}
	return g
}

// Record is the group's stored state with the given assignments.
func (g *Group) record(assignment func(m *Member) []byte) *records.GroupMetadataValue {
	v := records.NewGroupMetadataValue()
	v.Protocol, v.Generation, v.Leader, v.CurrentStateTimestamp = g.protocol, g.generation, g.leader, g.sinceMs
	if g.protocolType != nil {
		v.ProtocolType = *g.protocolType
	}
	for _, m := range g.order {
		r := records.NewGroupMetadataValueMemberMetadata()
		r.MemberID, r.GroupInstanceID, r.ClientID, r.ClientHost = m.ID, m.InstanceID, m.ClientID, m.ClientHost
		r.RebalanceTimeout, r.SessionTimeout = m.RebalanceTimeout, m.SessionTimeout
		r.Subscription, r.Assignment = m.metadata(g.protocol), assignment(m)
		v.Members = append(v.Members, r)
	}
	return &v
}

// Created is the stored state of a group that was just made.
func (g *Group) Created() *records.GroupMetadataValue {
	v := records.NewGroupMetadataValue()
	v.CurrentStateTimestamp = g.sinceMs
	return &v
}

// State is where the group stands.
func (g *Group) State() State { return g.state }

// ProtocolType is "consumer" for consumer groups, "" for a group that only stores offsets.
func (g *Group) ProtocolType() string {
	if g.protocolType == nil {
		return ""
	}
	return *g.protocolType
}

// Size is the number of members.
func (g *Group) Size() int { return len(g.order) }

// Subscribed tells whether the members read a topic, as far as can be known: a
// consumer group whose subscriptions cannot be read counts as subscribed.
func (g *Group) Subscribed(topic string) bool {
	if g.subscribed == nil {
		return g.ProtocolType() == Consumer
	}
	return g.subscribed[topic]
}

// SubscriptionKnown tells whether Subscribed knows what the members read.
func (g *Group) SubscriptionKnown() bool { return g.subscribed != nil }

// SinceMs is when the group entered its state, -1 when that is not known.
func (g *Group) SinceMs() int64 { return g.sinceMs }

// Valid checks what Group says of its fields. It is costly, for tests.
func (g *Group) Valid() error {
	joining, votes := 0, map[string]int{}
	for _, m := range g.order {
		if g.members[m.ID] != m {
			return fmt.Errorf("member %s stands under another id", m.ID)
		}
		if m.join != nil {
			joining++
		}
		if m.InstanceID != nil && g.static[*m.InstanceID] != m.ID {
			return fmt.Errorf("instance %s of member %s belongs to %q", *m.InstanceID, m.ID, g.static[*m.InstanceID])
		}
		for _, p := range m.Protocols {
			votes[p.Name]++
		}
		if g.pending[m.ID] {
			return fmt.Errorf("member %s is still pending", m.ID)
		}
	}
	for id := range g.unsynced {
		if g.members[id] == nil {
			return fmt.Errorf("%s, who is no member, has to sync", id)
		}
	}
	switch {
	case len(g.members) != len(g.order):
		return fmt.Errorf("%d members in a list of %d", len(g.members), len(g.order))
	case joining != g.joining:
		return fmt.Errorf("%d members are joining, counted as %d", joining, g.joining)
	case !maps.Equal(votes, g.votes):
		return fmt.Errorf("votes are %v, counted as %v", votes, g.votes)
	case (g.state == Empty) != (len(g.order) == 0) && g.state != PreparingRebalance:
		return fmt.Errorf("%v with %d members", g.state, len(g.order))
	case len(g.order) > 0 && g.members[g.leaderID()] == nil:
		return fmt.Errorf("the leader %q is no member", g.leaderID())
	}
	return nil
}

func (g *Group) enter(s *Step, to State) {
	g.previous, g.state, g.sinceMs = g.state, to, s.nowMs()
	g.watch(s)
}

func (g *Group) add(m *Member) {
	if len(g.order) == 0 && g.protocolType == nil {
		invariant.Check(g.leader == nil || g.members[*g.leader] == nil, "group %s: a leader in an empty group", g.ID)
	}
	if m.InstanceID != nil {
		g.static[*m.InstanceID] = m.ID
	}
	if g.leader == nil {
		g.leader = &m.ID
	}
	g.members[m.ID] = m
	g.order = append(g.order, m)
	g.vote(m, 1)
	if m.join != nil {
		g.joining++
	}
	delete(g.pending, m.ID)
}

func (g *Group) vote(m *Member, by int) {
	for _, p := range m.Protocols {
		if g.votes[p.Name] += by; g.votes[p.Name] == 0 {
			delete(g.votes, p.Name)
		}
	}
}

// remove takes a member, or an id that was handed out, out of the group.
func (g *Group) remove(s *Step, id string) {
	delete(g.pending, id)
	delete(g.unsynced, id)
	s.Timers.Cancel(Timer{Session, g.ID, id})
	m, ok := g.members[id]
	if !ok {
		return
	}
	g.vote(m, -1)
	if m.join != nil {
		g.joining--
	}
	if m.InstanceID != nil && g.static[*m.InstanceID] == id {
		delete(g.static, *m.InstanceID)
	}
	delete(g.members, id)
	g.order = slices.DeleteFunc(g.order, func(x *Member) bool { return x == m })
	if g.leader != nil && *g.leader == id {
		g.leader = nil
		if len(g.order) > 0 {
			g.leader = &g.order[0].ID
		}
	}
}

func (g *Group) isLeader(id string) bool { return g.leader != nil && *g.leader == id }

func (g *Group) leaderID() string {
	if g.leader == nil {
		return ""
	}
	return *g.leader
}

// allJoined tells whether a rebalance waits for nobody.
func (g *Group) allJoined() bool { return len(g.order) == g.joining && len(g.pending) == 0 }

// supports tells whether somebody with these protocols may join.
func (g *Group) supports(protocolType string, ps []kmsg.JoinGroupRequestProtocol) bool {
	if g.state == Empty {
		return protocolType != "" && len(ps) > 0
	}
	return g.ProtocolType() == protocolType && slices.ContainsFunc(ps, func(p kmsg.JoinGroupRequestProtocol) bool {
		return g.votes[p.Name] == len(g.order)
	})
}

// selectProtocol is the protocol that most members prefer among those that all
// support; of equal ones that which was voted for first.
func (g *Group) selectProtocol() string {
	votes := map[string]int{}
	var names []string
	for _, m := range g.order {
		for _, p := range m.Protocols {
			if g.votes[p.Name] == len(g.order) {
				if votes[p.Name] == 0 {
					names = append(names, p.Name)
				}
				votes[p.Name]++
				break
			}
		}
	}
	best := ""
	for _, n := range names {
		if best == "" || votes[n] > votes[best] {
			best = n
		}
	}
	return best
}

// check is whether a request comes from a member.
func (g *Group) check(id string, instance *string) *kerr.Error {
	if instance != nil {
		known, ok := g.static[*instance]
		switch {
		case !ok:
			return kerr.UnknownMemberID
		case known != id:
			return kerr.FencedInstanceID
		}
	}
	if g.members[id] == nil {
		return kerr.UnknownMemberID
	}
	return nil
}

func (g *Group) expectHeartbeat(s *Step, m *Member) {
	s.Timers.Set(Timer{Session, g.ID, m.ID}, s.Now.Add(ms(m.SessionTimeout)))
}

// rebalanceTimeout is the longest of the members'.
func (g *Group) rebalanceTimeout() time.Duration {
	var longest int32
	for _, m := range g.order {
		longest = max(longest, m.RebalanceTimeout)
	}
	return ms(longest)
}

func (m *Member) metadata(protocol *string) []byte {
	if protocol != nil {
		for _, p := range m.Protocols {
			if p.Name == *protocol {
				return p.Metadata
			}
		}
	}
	return []byte{}
}

// matches tells whether the member joins again with what it had.
func (m *Member) matches(ps []kmsg.JoinGroupRequestProtocol) bool {
	return slices.EqualFunc(m.Protocols, ps, func(a Protocol, b kmsg.JoinGroupRequestProtocol) bool {
		return a.Name == b.Name && bytes.Equal(a.Metadata, b.Metadata)
	})
}

// computeSubscribed reads the members' subscriptions; nil when they cannot be read.
func (g *Group) computeSubscribed() map[string]bool {
	if g.ProtocolType() != Consumer {
		return nil
	}
	topics := map[string]bool{}
	if len(g.order) == 0 {
		return topics
	}
	if g.protocol == nil {
		return nil
	}
	for _, m := range g.order {
		if !subscription(m.metadata(g.protocol), topics) {
			return nil
		}
	}
	return topics
}
