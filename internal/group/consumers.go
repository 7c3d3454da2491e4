package group

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/group/classic"
	"weir/internal/group/consumer"
)

// consumerStep begins a step of a consumer group.
func (c *Core) consumerStep(s Step, id string) *consumer.Step {
	return &consumer.Step{
		Now: s.Now, Rand: c.rand, Config: &c.config.Consumer, Settings: c.config.Settings(s.Image, id),
		Image: s.Image, NewTopicsAt: s.NewTopicsAt, Timers: &c.soft.timers,
	}
}

// takeConsumer makes a step of a consumer group part of the result. Its records belong
// together: half a target assignment may give a partition to two members.
func (r *Result) takeConsumer(c *Core, st *consumer.Step) {
	r.Atomic = r.Atomic || len(st.Records) > 0
	r.Records = append(r.Records, wrap(st.Records)...)
	r.Notes, r.Resolve = append(r.Notes, st.Notes...), st.Resolve
	c.stats.Bumps += int64(st.Rebalances)
}

func wrap(recs []consumer.Record) []Record {
	out := make([]Record, 0, len(recs))
	for i := range recs {
		out = append(out, Record{Producer: noProducer, Consumer: &recs[i]})
	}
	return out
}

func (c *Core) softOf(id string) *consumer.Soft {
	f := c.soft.consumers[id]
	if f == nil {
		f = &consumer.Soft{}
		c.soft.consumers[id] = f
	}
	return f
}

// activateConsumers starts the sessions of the members of all consumer groups.
func (c *Core) activateConsumers(s Step, r *Result) {
	for id, g := range s.State.Consumers() {
		if g.Size() > 0 {
			st := c.consumerStep(s, id)
			g.Load(st)
			r.takeConsumer(c, st)
		}
	}
}

// ConsumerHeartbeat answers ConsumerGroupHeartbeat.
func (c *Core) ConsumerHeartbeat(s Step, q *kmsg.ConsumerGroupHeartbeatRequest, from classic.Client, to classic.Waiter) Result {
	var r Result
	st := c.consumerStep(s, q.Group)
	var m *kmsg.ConsumerGroupHeartbeatResponse
	var err *consumer.Error
	if q.MemberEpoch < 0 {
		m, err = c.leaveByHeartbeat(s, st, q, &r)
	} else {
		m, err = c.beat(s, st, q, from, &r)
	}
	if err != nil {
		// Nothing of the step counts, but what was said of it, and looks begun.
		st.Records = nil
		r.Records, r.Then, m = nil, nil, consumer.Refused(q.Version, err)
		c.prune(s, q.Group)
	}
	r.takeConsumer(c, st)
	r.Answers = append(r.Answers, classic.Answer{To: to, Response: m})
	return r
}

// prune forgets what is not stored of a consumer group that is not there.
func (c *Core) prune(s Step, id string) {
	if s.State.Consumer(id) == nil {
		delete(c.soft.consumers, id)
	}
}

func (c *Core) beat(s Step, st *consumer.Step, q *kmsg.ConsumerGroupHeartbeatRequest, from classic.Client, r *Result) (*kmsg.ConsumerGroupHeartbeatResponse, *consumer.Error) {
	g, err := c.consumerFor(s, st, q.Group, q.MemberEpoch == 0, r)
	if err != nil {
		return nil, err
	}
	m, err := g.Heartbeat(st, c.softOf(q.Group), q, from)
	if err != nil {
		return nil, err
	}
	if old := c.soft.groups[q.Group]; old != nil { // a classic group that it was
		r.Answers = append(r.Answers, old.Waiters(kerr.RebalanceInProgress)...)
		c.drop(s, q.Group)
	}
	if s.State.Consumer(q.Group) == nil {
		r.Then = func(s Step, failed *kerr.Error) Result {
			if failed != nil {
				c.prune(s, q.Group)
				c.find(s, q.Group) // a classic one still is: its sessions begin anew
			}
			return Result{}
		}
	}
	if _, ok := c.soft.timers.Get(classic.Timer{Kind: classic.Expiry}); !ok {
		c.scheduleExpiry(s.Now)
	}
	return m, nil
}

// consumerFor finds a consumer group. With create set it makes one, also of a classic
// group of that id.
func (c *Core) consumerFor(s Step, st *consumer.Step, id string, create bool, r *Result) (*consumer.Group, *consumer.Error) {
	if g := s.State.Consumer(id); g != nil {
		return g, nil
	}
	old := c.find(s, id)
	switch {
	case old == nil && !create:
		return nil, &consumer.Error{Kind: kerr.GroupIDNotFound, Text: "Consumer group " + id + " not found."}
	case old == nil:
		return consumer.New(id), nil
	case !create:
		return nil, notConsumer(id)
	}
	r.tombstoneGroup(id)
	if old.State() == classic.Empty {
		st.Notes = append(st.Notes, "group "+id+": it was an empty classic group")
		return consumer.New(id), nil
	}
	return consumer.Upgrade(st, old)
}

func notConsumer(id string) *consumer.Error {
	return &consumer.Error{Kind: kerr.GroupIDNotFound, Text: "Group " + id + " is not a consumer group."}
}

// consumerOf finds a consumer group that has to be there.
func (s *State) consumerOf(id string) (*consumer.Group, *consumer.Error) {
	if g := s.Consumer(id); g != nil {
		return g, nil
	}
	if s.Group(id) != nil {
		return nil, notConsumer(id)
	}
	return nil, &consumer.Error{Kind: kerr.GroupIDNotFound, Text: "Group " + id + " not found."}
}

func (c *Core) leaveByHeartbeat(s Step, st *consumer.Step, q *kmsg.ConsumerGroupHeartbeatRequest, r *Result) (*kmsg.ConsumerGroupHeartbeatResponse, *consumer.Error) {
	g, err := s.State.consumerOf(q.Group)
	if err != nil {
		return nil, err
	}
	m, out, err := g.Leave(st, q)
	if err == nil {
		c.fence(s, st, g, out, r)
	}
	return m, err
}

// fenceAgain is how long after a refused append a member is fenced again.
const fenceAgain = 500 * time.Millisecond

// fence takes members out of a group, which may become a classic one by that. Should
// the append fail they are still there, and are taken out soon after.
func (c *Core) fence(s Step, st *consumer.Step, g *consumer.Group, out []*consumer.Member, r *Result) {
	if len(out) == 0 {
		return
	}
	if !g.Downgrades(st, out) {
		g.Fence(st, out)
		r.Then = func(s Step, failed *kerr.Error) Result {
			if failed != nil {
				for _, m := range out {
					c.soft.timers.Set(classic.Timer{Kind: classic.MemberSession, Group: g.ID, Member: m.ID}, s.Now.Add(fenceAgain))
				}
			}
			return Result{}
		}
		return
	}
	c.downgrade(s, st, g, out, &consumer.Downgrade{Why: "Downgrade group " + g.ID + " from consumer to classic for member leaving."}, r)
}

// downgrade makes a group a classic one.
func (c *Core) downgrade(s Step, st *consumer.Step, g *consumer.Group, out []*consumer.Member, d *consumer.Downgrade, r *Result) {
	now := g.Classic(st, out, d)
	r.Records, r.Atomic = append(r.Records, wrap(st.Records)...), true
	st.Records = nil
	r.Records = append(r.Records, Record{Producer: noProducer, Group: &GroupRecord{ID: g.ID, Value: now.Stored()}})
	c.soft.groups[g.ID] = now
	delete(c.soft.consumers, g.ID)
	cs := c.step(s)
	now.Start(cs, d.Why)
	r.take(c, g.ID, cs)
	r.Then = func(s Step, failed *kerr.Error) Result {
		if failed == nil || c.soft.groups[g.ID] != now {
			return Result{}
		}
		if old := s.State.Consumer(g.ID); old != nil { // else it is only late, and may be committed yet
			c.drop(s, g.ID)
			old.Load(c.consumerStep(s, g.ID))
		}
		return Result{Answers: now.Waiters(failed)}
	}
}

// memberDue is a timer of a member that has come.
func (c *Core) memberDue(s Step, t classic.Timer) Result {
	var r Result
	g := s.State.Consumer(t.Group)
	if g == nil {
		return r
	}
	st := c.consumerStep(s, t.Group)
	c.fence(s, st, g, g.Due(st, t.Kind, t.Member), &r)
	r.takeConsumer(c, st)
	return r
}

// joinConsumer is a JoinGroup to a consumer group with members.
func (c *Core) joinConsumer(s Step, g *consumer.Group, q *kmsg.JoinGroupRequest, from classic.Client, to classic.Waiter) Result {
	var r Result
	st := c.consumerStep(s, q.Group)
	j, err := g.Join(st, c.softOf(q.Group), q, from)
	var m kmsg.Response = j.Response
	switch {
	case err != nil:
		st.Records = nil
		m = classic.RefusedJoin(q.Version, "", err.Kind)
	case j.Downgrade != nil:
		c.downgrade(s, st, g, nil, j.Downgrade, &r)
	}
	r.takeConsumer(c, st)
	r.Answers = append(r.Answers, classic.Answer{To: to, Response: m})
	return r
}

func (c *Core) syncConsumer(s Step, g *consumer.Group, q *kmsg.SyncGroupRequest, to classic.Waiter) Result {
	var r Result
	st := c.consumerStep(s, q.Group)
	m, err := g.Sync(st, q)
	if err != nil {
		m = q.ResponseKind().(*kmsg.SyncGroupResponse)
		m.ErrorCode, m.MemberAssignment = err.Kind.Code, []byte{}
	}
	r.takeConsumer(c, st)
	r.Answers = append(r.Answers, classic.Answer{To: to, Response: m})
	return r
}

func (c *Core) heartbeatConsumer(s Step, g *consumer.Group, q *kmsg.HeartbeatRequest, to classic.Waiter) Result {
	var r Result
	st := c.consumerStep(s, q.Group)
	m := q.ResponseKind().(*kmsg.HeartbeatResponse)
	if err := g.ClassicHeartbeat(st, q); err != nil {
		m.ErrorCode = err.Kind.Code
	}
	r.takeConsumer(c, st)
	r.Answers = append(r.Answers, classic.Answer{To: to, Response: m})
	return r
}

func (c *Core) leaveConsumer(s Step, g *consumer.Group, members []kmsg.LeaveGroupRequestMember, r *Result) []kmsg.LeaveGroupResponseMember {
	st := c.consumerStep(s, g.ID)
	rows, out := g.ClassicLeave(st, members)
	c.fence(s, st, g, out, r)
	r.takeConsumer(c, st)
	return rows
}

// bury puts the tombstones of a consumer group without members before the records
// of the group that takes its place.
func (c *Core) bury(s Step, g *consumer.Group, r *Result) {
	r.Records, r.Atomic = append(wrap(g.Tombstones()), r.Records...), true
	delete(c.soft.consumers, g.ID)
}

// deleteConsumer deletes a consumer group with its offsets.
func (c *Core) deleteConsumer(s Step, g *consumer.Group) (Result, *kerr.Error) {
	if g.Size() > 0 {
		return Result{}, kerr.NonEmptyGroup
	}
	var r Result
	r.deleteOffsets(s, g.ID)
	r.Records = append(r.Records, wrap(g.Tombstones())...)
	delete(c.soft.consumers, g.ID)
	return r, nil
}

// expireConsumers forgets the offsets of consumer groups that are too old and of
// topics that nobody reads, and the groups without members that are left with none.
// more tells that it has not looked at all groups.
func (c *Core) expireConsumers(s Step, r *Result) (more bool) {
	now := s.Now.UnixMilli()
	for id, g := range s.State.Consumers() {
		left := len(s.State.unstableIn(id)) > 0
		for tp, o := range s.State.Offsets(id) {
			old := now-o.CommitMs >= c.config.Retention.Milliseconds()
			if o.ExpireMs >= 0 {
				old = now >= o.ExpireMs
			}
			if old && !g.Subscribed(tp.Topic) && !s.State.Unstable(id, tp) {
				r.tombstone(id, tp)
				c.stats.Expirations++
			} else {
				left = true
			}
		}
		if !left && g.Size() == 0 {
			r.Records = append(r.Records, wrap(g.Tombstones())...)
			delete(c.soft.consumers, id)
		}
		if len(r.Records) >= expireAtOnce {
			return true
		}
	}
	return false
}

// DescribeConsumer tells of one consumer group.
func (c *Core) DescribeConsumer(s Step, id string) kmsg.ConsumerGroupDescribeResponseGroup {
	g, err := s.State.consumerOf(id)
	if err != nil {
		d := kmsg.NewConsumerGroupDescribeResponseGroup()
		d.Group, d.ErrorCode, d.ErrorMessage = id, err.Kind.Code, &err.Text
		return d
	}
	return g.Describe(s.Image, c.config.Consumer.Assignors[0])
}

// listConsumers is List of the consumer groups.
func (c *Core) listConsumers(s Step, states, types []string) []kmsg.ListGroupsResponseGroup {
	out := []kmsg.ListGroupsResponseGroup{}
	if !matches(types, classic.Consumer) {
		return out
	}
	for id, g := range s.State.Consumers() {
		e := kmsg.NewListGroupsResponseGroup()
		e.Group, e.ProtocolType, e.GroupType, e.GroupState = id, classic.Consumer, classic.Consumer, g.State().String()
		if matches(states, e.GroupState) {
			out = append(out, e)
		}
	}
	return out
}

// ConsumerStates counts the consumer groups in each state.
func (c *Core) ConsumerStates(s Step) map[consumer.State]int {
	out := map[consumer.State]int{}
	for _, g := range s.State.Consumers() {
		out[g.State()]++
	}
	return out
}

// TopicsChanged has the consumer groups that read any of the topics look at them
// again when a member's next heartbeat comes.
func (c *Core) TopicsChanged(s Step, topics []string) {
	for id, f := range c.soft.consumers {
		g := s.State.Consumer(id)
		if g == nil {
			delete(c.soft.consumers, id) // a change of the group that ended it does not tell
			continue
		}
		for _, t := range topics {
			if g.Subscribed(t) {
				f.TopicsChanged()
				break
			}
		}
	}
}

// RegexResolved takes what became of Result.Resolve; found is nil when it failed.
func (c *Core) RegexResolved(s Step, id string, found map[string]*consumer.Resolved) Result {
	var r Result
	f := c.softOf(id)
	f.ResolveEnded()
	g := s.State.Consumer(id)
	if g == nil {
		c.prune(s, id)
		return r
	}
	st := c.consumerStep(s, id)
	g.RegexResolved(st, f, found)
	r.takeConsumer(c, st)
	return r
}

// MayFetch is whether a member may read the group's offsets.
func (s *State) MayFetch(q *kmsg.OffsetFetchRequestGroup) *kerr.Error {
	if g := s.Consumer(q.Group); g != nil {
		return g.CheckFetch(q.MemberID, q.MemberEpoch)
	}
	return nil
}
