package group

import (
	"io"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/group/classic"
	"weir/internal/group/consumer"
	"weir/internal/group/deadline"
	"weir/internal/image"
	"weir/internal/records"
)

// Config is what the core depends on.
type Config struct {
	Classic classic.Config
	// MinSession and MaxSession are group.min/max.session.timeout.ms.
	MinSession, MaxSession time.Duration
	// Retention is offsets.retention.minutes, CheckEvery
	// offsets.retention.check.interval.ms.
	Retention, CheckEvery time.Duration
	// MaxMetadata is offset.metadata.max.bytes: characters of a commit's metadata.
	MaxMetadata int
	Consumer    consumer.Config
	// Settings are those of a consumer group, by an image of the cluster.
	Settings func(img *image.Image, group string) consumer.Settings
}

// Core is the requests of one partition, with its soft state. One goroutine uses it.
type Core struct {
	config *Config
	rand   io.Reader
	soft   soft
	stats  Stats
}

// soft is what no record holds. It is lost when another node takes the partition
// over, as in Kafka. State.Apply never sees it.
type soft struct {
	// groups are those that differ from what is stored, or did: they have members
	// with sessions, or somebody is about to join.
	groups map[string]*classic.Group
	// consumers has what is not stored of consumer groups that have been used.
	consumers map[string]*consumer.Soft
	timers    deadline.Queue[classic.Timer]
}

// Stats counts what the core did since it was made.
type Stats struct {
	Commits, Deletions, Expirations, Rebalances int64 // offsets committed, deleted, expired; rebalances of classic groups completed
	Bumps                                       int64 // rebalances of consumer groups begun
}

// New makes a core without any group. The configuration is shared and not
// changed; the dice, for member ids, are its own.
func New(c *Config, rand io.Reader) *Core {
	return &Core{config: c, rand: rand, soft: noSoft()}
}

func noSoft() soft {
	return soft{groups: map[string]*classic.Group{}, consumers: map[string]*consumer.Soft{}}
}

// Step is the moment at which a method is called.
type Step struct {
	Now   time.Time
	State *State // all that has been appended, committed or not
	Image *image.Image
	// NewTopicsAt is the offset of the newest image in which a topic was created.
	NewTopicsAt int64
}

// Result is what a method decided.
type Result struct {
	Records []Record
	// Atomic demands that all of Records take effect or none. Together they must then
	// fit into a batch.
	Atomic bool
	// Answers are given when all that the step has seen, and Records, is committed.
	// Should that fail, they are given as [Refuse] makes them.
	Answers []classic.Answer
	// Then, when set, is called when Records are committed (failed is nil) or were
	// refused. What it returns is to be carried out like any other Result.
	Then func(s Step, failed *kerr.Error) Result
	// Notes are lines for the log, and so are Waits: rebalances that wait for somebody.
	Notes []string
	Waits []*classic.Missing
	// Resolve, when set, are regular expressions to look up; see Core.RegexResolved.
	Resolve *consumer.Resolve
}

// Stats is what the core did so far.
func (c *Core) Stats() Stats { return c.stats }

// Activate begins to lead: sessions of all members start anew.
func (c *Core) Activate(s Step) Result {
	var r Result
	for id, v := range s.State.Groups() {
		if len(v.Members) == 0 {
			continue
		}
		st := c.step(s)
		c.soft.groups[id] = classic.Load(st, id, v)
		r.take(c, id, st)
	}
	c.activateConsumers(s, &r)
	if s.State.NumGroups() > 0 {
		c.scheduleExpiry(s.Now)
	}
	return r
}

// Lost ends leading: all who wait are told to look for the new coordinator.
func (c *Core) Lost() []classic.Answer {
	var out []classic.Answer
	for _, g := range c.soft.groups {
		out = append(out, g.Waiters(kerr.NotCoordinator)...)
	}
	c.soft = noSoft()
	return out
}

// Next is when Due has something to do; zero for never.
func (c *Core) Next() time.Time { return c.soft.timers.Next() }

// Due does the first thing whose time has come.
func (c *Core) Due(s Step) Result {
	t, ok := c.soft.timers.Pop(s.Now)
	if !ok {
		return Result{}
	}
	if t.Kind == classic.Expiry {
		if s.State.NumGroups() == 0 {
			return Result{} // the next group sets it again
		}
		c.scheduleExpiry(s.Now)
		return c.expire(s)
	}
	if t.Kind >= classic.MemberSession {
		return c.memberDue(s, t)
	}
	g := c.soft.groups[t.Group]
	if g == nil || s.State.Group(t.Group) == nil {
		return Result{}
	}
	st := c.step(s)
	switch t.Kind {
	case classic.Session:
		g.SessionDue(st, t.Member)
	case classic.Join:
		g.JoinDue(st)
	case classic.Sync:
		g.SyncDue(st)
	case classic.Overdue:
		g.OverdueDue(st)
	}
	var r Result
	r.take(c, g.ID, st)
	return r
}

func (c *Core) scheduleExpiry(now time.Time) {
	c.soft.timers.Set(classic.Timer{Kind: classic.Expiry}, now.Add(c.config.CheckEvery))
}

func (c *Core) step(s Step) *classic.Step {
	return &classic.Step{Now: s.Now, Rand: c.rand, Config: &c.config.Classic, Timers: &c.soft.timers}
}

// take makes a group's step part of the result.
func (r *Result) take(c *Core, id string, s *classic.Step) {
	r.Answers = append(r.Answers, s.Answers...)
	r.Notes, r.Waits = append(r.Notes, s.Notes...), append(r.Waits, s.Waits...)
	if s.Record != nil {
		r.Records = append(r.Records, Record{Producer: noProducer, Group: &GroupRecord{ID: id, Value: s.Record}})
	}
	if then := s.Then; then != nil {
		r.Then = func(now Step, failed *kerr.Error) Result {
			var out Result
			st := c.step(now)
			then(st, failed)
			if failed == nil {
				c.stats.Rebalances++
			}
			out.take(c, id, st)
			return out
		}
	}
}

// find returns a group with its soft state, nil when there is no such group.
func (c *Core) find(s Step, id string) *classic.Group {
	v := s.State.Group(id)
	if v == nil {
		return nil
	}
	if g := c.soft.groups[id]; g != nil {
		return g
	}
	g := classic.Load(c.step(s), id, v)
	c.soft.groups[id] = g
	return g
}

// peek is find without keeping what was made: for reading alone.
func (c *Core) peek(s Step, id string) *classic.Group {
	v := s.State.Group(id)
	if v == nil {
		return nil
	}
	if g := c.soft.groups[id]; g != nil {
		return g
	}
	if len(v.Members) > 0 {
		return c.find(s, id)
	}
	return classic.Load(c.step(s), id, v)
}

// drop forgets the soft state of a group that was deleted.
func (c *Core) drop(s Step, id string) {
	if g := c.soft.groups[id]; g != nil {
		g.CancelTimers(c.step(s))
		delete(c.soft.groups, id)
	}
}

// Join answers JoinGroup.
func (c *Core) Join(s Step, q *kmsg.JoinGroupRequest, from classic.Client, to classic.Waiter) Result {
	refuse := func(id string, err *kerr.Error) Result {
		return Result{Answers: []classic.Answer{{To: to, Response: classic.RefusedJoin(q.Version, id, err)}}}
	}
	if q.Group == "" {
		return refuse(q.MemberID, kerr.InvalidGroupID)
	}
	if d := time.Duration(q.SessionTimeoutMillis) * time.Millisecond; d < c.config.MinSession || d > c.config.MaxSession {
		return refuse(q.MemberID, kerr.InvalidSessionTimeout)
	}
	old := s.State.Consumer(q.Group)
	if old != nil && old.Size() > 0 {
		return c.joinConsumer(s, old, q, from, to)
	}
	g := c.find(s, q.Group)
	created := g == nil
	if created {
		if q.MemberID != "" {
			return refuse(q.MemberID, kerr.UnknownMemberID)
		}
		g = classic.New(q.Group, s.Now)
		c.drop(s, q.Group) // what a deletion that is not committed yet has left
		c.soft.groups[q.Group] = g
	}
	st := c.step(s)
	g.Join(st, q, from, &classic.Waiting{To: to, Version: q.Version})
	var r Result
	r.take(c, q.Group, st)
	if created {
		c.create(s, g, &r)
	}
	if old != nil { // without members: it makes room
		c.bury(s, old, &r)
	}
	return r
}

// create stores a group that was just made.
func (c *Core) create(s Step, g *classic.Group, r *Result) {
	if len(r.Records) == 0 {
		r.Records = append(r.Records, Record{Producer: noProducer, Group: &GroupRecord{ID: g.ID, Value: g.Created()}})
	}
	if _, ok := c.soft.timers.Get(classic.Timer{Kind: classic.Expiry}); !ok {
		c.scheduleExpiry(s.Now)
	}
	r.Then = func(s Step, failed *kerr.Error) Result {
		if failed == nil || c.soft.groups[g.ID] != g {
			return Result{}
		}
		if s.State.Group(g.ID) == nil { // else it is only late, and may be committed yet
			c.drop(s, g.ID)
		}
		return Result{Answers: g.Waiters(failed)}
	}
}

// Sync answers SyncGroup.
func (c *Core) Sync(s Step, q *kmsg.SyncGroupRequest, to classic.Waiter) Result {
	w := &classic.Waiting{To: to, Version: q.Version}
	var r Result
	if g := s.State.Consumer(q.Group); g != nil {
		return c.syncConsumer(s, g, q, to)
	}
	g := c.find(s, q.Group)
	if q.Group == "" || g == nil {
		err := kerr.UnknownMemberID
		if q.Group == "" {
			err = kerr.InvalidGroupID
		}
		m := q.ResponseKind().(*kmsg.SyncGroupResponse)
		m.ErrorCode, m.MemberAssignment = err.Code, []byte{}
		r.Answers = append(r.Answers, classic.Answer{To: to, Response: m})
		return r
	}
	st := c.step(s)
	g.Sync(st, q, w)
	r.take(c, q.Group, st)
	return r
}

// Heartbeat answers Heartbeat.
func (c *Core) Heartbeat(s Step, q *kmsg.HeartbeatRequest, to classic.Waiter) Result {
	m := q.ResponseKind().(*kmsg.HeartbeatResponse)
	var r Result
	if g := s.State.Consumer(q.Group); g != nil {
		return c.heartbeatConsumer(s, g, q, to)
	}
	switch g := c.find(s, q.Group); {
	case q.Group == "":
		m.ErrorCode = kerr.InvalidGroupID.Code
	case g == nil:
		m.ErrorCode = kerr.UnknownMemberID.Code
	default:
		st := c.step(s)
		if err := g.Heartbeat(st, q); err != nil {
			m.ErrorCode = err.Code
		}
		r.take(c, q.Group, st)
	}
	r.Answers = append(r.Answers, classic.Answer{To: to, Response: m})
	return r
}

// Leave answers LeaveGroup.
func (c *Core) Leave(s Step, q *kmsg.LeaveGroupRequest, to classic.Waiter) Result {
	m := q.ResponseKind().(*kmsg.LeaveGroupResponse)
	var r Result
	members := q.Members
	if q.Version < 3 {
		one := kmsg.NewLeaveGroupRequestMember()
		one.MemberID = q.MemberID
		members = []kmsg.LeaveGroupRequestMember{one}
	}
	consumers := s.State.Consumer(q.Group)
	switch g := c.find(s, q.Group); {
	case q.Group == "":
		m.ErrorCode = kerr.InvalidGroupID.Code
	case consumers != nil:
		m.Members = c.leaveConsumer(s, consumers, members, &r)
	case g == nil:
		for _, one := range members {
			e := kmsg.NewLeaveGroupResponseMember()
			e.MemberID, e.InstanceID, e.ErrorCode = one.MemberID, one.InstanceID, kerr.UnknownMemberID.Code
			m.Members = append(m.Members, e)
		}
	default:
		st := c.step(s)
		m.Members = g.Leave(st, members)
		r.take(c, q.Group, st)
	}
	if q.Version < 3 && m.ErrorCode == 0 {
		m.ErrorCode = m.Members[0].ErrorCode
	}
	r.Answers = append(r.Answers, classic.Answer{To: to, Response: m})
	return r
}

// Describe tells of one group. A group that waits for a rebalance is told of in
// the log, too, with those it waits for.
func (c *Core) Describe(s Step, id string, version int16) (kmsg.DescribeGroupsResponseGroup, *classic.Missing) {
	d := kmsg.NewDescribeGroupsResponseGroup()
	d.Group = id
	g := c.peek(s, id)
	if g == nil {
		d.State = "Dead"
		if version >= 6 {
			text := "Group " + id + " not found."
			if s.State.Consumer(id) != nil {
				text = "Group " + id + " is not a classic group."
			}
			d.ErrorCode, d.ErrorMessage = kerr.GroupIDNotFound.Code, &text
		}
		return d, nil
	}
	g.Describe(&d)
	return d, g.DescribeMissing(c.step(s))
}

// Missing tells of every rebalance that waits for somebody.
func (c *Core) Missing(now time.Time) []*classic.Missing {
	var out []*classic.Missing
	st := c.step(Step{Now: now})
	for _, g := range c.soft.groups {
		if m := g.Missing(st); m != nil {
			out = append(out, m)
		}
	}
	return out
}

// States counts the groups in each state.
func (c *Core) States(s Step) map[classic.State]int {
	out := map[classic.State]int{}
	for id, v := range s.State.Groups() {
		out[c.stateOf(id, v)]++
	}
	return out
}

func (c *Core) stateOf(id string, v *records.GroupMetadataValue) classic.State {
	switch g := c.soft.groups[id]; {
	case g != nil:
		return g.State()
	case len(v.Members) > 0:
		return classic.Stable // as it will be when it is looked at
	}
	return classic.Empty
}

// List yields the groups in any of the given states and of any of the given
// types; an empty filter takes all. Filters are compared without regard to case.
func (c *Core) List(s Step, states, types []string) []kmsg.ListGroupsResponseGroup {
	const kind = "classic"
	out := c.listConsumers(s, states, types)
	if !matches(types, kind) {
		return out
	}
	for id, v := range s.State.Groups() {
		e := kmsg.NewListGroupsResponseGroup()
		e.Group, e.ProtocolType, e.GroupType, e.GroupState = id, v.ProtocolType, kind, c.stateOf(id, v).String()
		if g := c.soft.groups[id]; g != nil {
			e.ProtocolType = g.ProtocolType()
		}
		if matches(states, e.GroupState) {
			out = append(out, e)
		}
	}
	return out
}

func matches(filter []string, value string) bool {
	for _, f := range filter {
		if strings.EqualFold(strings.TrimSpace(f), value) {
			return true
		}
	}
	return len(filter) == 0
}
