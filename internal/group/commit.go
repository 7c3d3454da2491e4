package group

import (
	"time"
	"unicode/utf16"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/group/classic"
	"weir/internal/group/consumer"
)

// Commit answers OffsetCommit. Topics that do not exist were taken out before;
// topic ids and names are both filled in. The answer has the rows of q.
func (c *Core) Commit(s Step, q *kmsg.OffsetCommitRequest, to classic.Waiter) Result {
	var r Result
	check, err := c.mayCommit(s, q)
	if err != nil {
		r.Answers = []classic.Answer{{To: to, Response: CommitRefused(q, err)}}
		return r
	}
	m := q.ResponseKind().(*kmsg.OffsetCommitResponse)
	for i := range q.Topics {
		t := &q.Topics[i]
		row := kmsg.NewOffsetCommitResponseTopic()
		row.Topic, row.TopicID = t.Topic, t.TopicID
		for j := range t.Partitions {
			p := &t.Partitions[j]
			e := kmsg.NewOffsetCommitResponseTopicPartition()
			e.Partition = p.Partition
			if p.Metadata != nil && longer(*p.Metadata, c.config.MaxMetadata) {
				e.ErrorCode = kerr.OffsetMetadataTooLarge.Code
			} else if err := check(t.TopicID, p.Partition); err != nil {
				return Result{Answers: []classic.Answer{{To: to, Response: CommitRefused(q, err)}}}
			} else {
				r.Records = append(r.Records, Record{
					Producer: noProducer, Delta: int32(len(r.Records)),
					Offset: &OffsetRecord{Key: OffsetKey{q.Group, TopicPartition{t.Topic, p.Partition}}, Value: commitOf(s.Now, q, t, p)},
				})
			}
			row.Partitions = append(row.Partitions, e)
		}
		m.Topics = append(m.Topics, row)
	}
	c.committed(s.Now, len(r.Records))
	r.Answers = []classic.Answer{{To: to, Response: m}}
	return r
}

// committed counts offsets that a request stores, and has them expire some time.
func (c *Core) committed(now time.Time, offsets int) {
	c.stats.Commits += int64(offsets)
	if _, ok := c.soft.timers.Get(classic.Timer{Kind: classic.Expiry}); !ok && offsets > 0 {
		c.scheduleExpiry(now)
	}
}

// mayCommit is whether a commit may be stored; check is then asked for each partition.
func (c *Core) mayCommit(s Step, q *kmsg.OffsetCommitRequest) (check consumer.PartitionCheck, err *kerr.Error) {
	if g := s.State.Consumer(q.Group); g != nil {
		return g.CheckCommit(q.MemberID, q.InstanceID, q.Generation, false, q.Version)
	}
	g := c.find(s, q.Group)
	switch {
	case g != nil:
		if err := g.CheckCommit(q.MemberID, q.InstanceID, q.Generation, false); err != nil {
			return nil, err
		}
		g.Committed(c.step(s), q.MemberID)
	case q.Generation < 0: // the commit itself makes the group
	case q.Version >= 9:
		return nil, kerr.GroupIDNotFound
	default:
		return nil, kerr.IllegalGeneration
	}
	return consumer.Any, nil
}

func commitOf(now time.Time, q *kmsg.OffsetCommitRequest, t *kmsg.OffsetCommitRequestTopic, p *kmsg.OffsetCommitRequestTopicPartition) *Offset {
	o := &Offset{Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, CommitMs: now.UnixMilli(), ExpireMs: -1, TopicID: t.TopicID}
	if p.Metadata != nil {
		o.Metadata = *p.Metadata
	}
	if q.Version == 1 && p.Timestamp != -1 {
		o.CommitMs = p.Timestamp
	}
	if q.Version >= 2 && q.Version <= 4 && q.RetentionTimeMillis != -1 {
		o.ExpireMs = now.UnixMilli() + q.RetentionTimeMillis
	}
	return o
}

// CommitRefused is the answer to an OffsetCommit that failed as a whole.
func CommitRefused(q *kmsg.OffsetCommitRequest, err *kerr.Error) *kmsg.OffsetCommitResponse {
	m := q.ResponseKind().(*kmsg.OffsetCommitResponse)
	for i := range q.Topics {
		row := kmsg.NewOffsetCommitResponseTopic()
		row.Topic, row.TopicID = q.Topics[i].Topic, q.Topics[i].TopicID
		for _, p := range q.Topics[i].Partitions {
			e := kmsg.NewOffsetCommitResponseTopicPartition()
			e.Partition, e.ErrorCode = p.Partition, err.Code
			row.Partitions = append(row.Partitions, e)
		}
		m.Topics = append(m.Topics, row)
	}
	return m
}

// longer compares a text's length in Java's characters.
func longer(s string, limit int) bool {
	if len(s) <= limit {
		return false
	}
	n := 0
	for _, r := range s {
		n += utf16.RuneLen(r)
	}
	return n > limit
}

// DeleteOffsets answers OffsetDelete. Topics that do not exist were taken out before.
func (c *Core) DeleteOffsets(s Step, q *kmsg.OffsetDeleteRequest, to classic.Waiter) Result {
	m := q.ResponseKind().(*kmsg.OffsetDeleteResponse)
	var r Result
	g, consumers := c.peek(s, q.Group), s.State.Consumer(q.Group)
	switch {
	case q.Group == "":
		m.ErrorCode = kerr.InvalidGroupID.Code
	case consumers != nil:
		for _, t := range q.Topics {
			m.Topics = append(m.Topics, c.deleteOffsets(s, q.Group, consumers, t, &r))
		}
	case g == nil:
		m.ErrorCode = kerr.GroupIDNotFound.Code
	case g.State() != classic.Empty && g.ProtocolType() != classic.Consumer:
		m.ErrorCode = kerr.NonEmptyGroup.Code
	default:
		for _, t := range q.Topics {
			m.Topics = append(m.Topics, c.deleteOffsets(s, q.Group, g, t, &r))
		}
	}
	c.stats.Deletions += int64(len(r.Records))
	r.Answers = []classic.Answer{{To: to, Response: m}}
	return r
}

// reader is a group of either kind.
type reader interface{ Subscribed(topic string) bool }

func (c *Core) deleteOffsets(s Step, id string, g reader, t kmsg.OffsetDeleteRequestTopic, r *Result) kmsg.OffsetDeleteResponseTopic {
	row := kmsg.NewOffsetDeleteResponseTopic()
	row.Topic = t.Topic
	for _, p := range t.Partitions {
		e := kmsg.NewOffsetDeleteResponseTopicPartition()
		e.Partition = p.Partition
		tp := TopicPartition{t.Topic, p.Partition}
		switch {
		case g.Subscribed(t.Topic):
			e.ErrorCode = kerr.GroupSubscribedToTopic.Code
		case s.State.Offset(id, tp) != nil, s.State.Unstable(id, tp):
			r.tombstone(id, tp)
		}
		row.Partitions = append(row.Partitions, e)
	}
	return row
}

func (r *Result) tombstone(group string, tp TopicPartition) {
	r.Records = append(r.Records, Record{
		Producer: noProducer, Delta: int32(len(r.Records)), Offset: &OffsetRecord{Key: OffsetKey{group, tp}},
	})
}

func (r *Result) tombstoneGroup(id string) {
	r.Records = append(r.Records, Record{Producer: noProducer, Delta: int32(len(r.Records)), Group: &GroupRecord{ID: id}})
}

// DeleteGroup deletes one group with its offsets, or says why it must not be.
func (c *Core) DeleteGroup(s Step, id string) (Result, *kerr.Error) {
	if g := s.State.Consumer(id); g != nil {
		return c.deleteConsumer(s, g)
	}
	g := c.peek(s, id)
	switch {
	case g == nil:
		return Result{}, kerr.GroupIDNotFound
	case g.State() != classic.Empty:
		return Result{}, kerr.NonEmptyGroup
	}
	var r Result
	r.deleteOffsets(s, id)
	r.tombstoneGroup(id)
	soft := c.soft.groups[id]
	r.Then = func(s Step, failed *kerr.Error) Result {
		if failed == nil && soft != nil && c.soft.groups[id] == soft {
			c.drop(s, id)
		}
		return Result{}
	}
	return r, nil
}

func (r *Result) deleteOffsets(s Step, id string) {
	for tp := range s.State.Offsets(id) {
		r.tombstone(id, tp)
	}
	for _, tp := range s.State.unstableIn(id) {
		if s.State.Offset(id, tp) == nil {
			r.tombstone(id, tp)
		}
	}
}

// expire forgets offsets that are too old, and groups without members whose
// offsets are all gone.
func (c *Core) expire(s Step) Result {
	var r Result
	var gone []string
	more := c.expireConsumers(s, &r)
	for id, v := range s.State.Groups() {
		if more = more || len(r.Records) >= expireAtOnce; more {
			break
		}
		g := c.soft.groups[id]
		if g == nil {
			g = c.peek(s, id)
		}
		before := len(r.Records)
		left := c.expireOffsets(s, g, &r)
		c.stats.Expirations += int64(len(r.Records) - before)
		if !left && g.State() == classic.Empty && len(v.Members) == 0 {
			r.tombstoneGroup(id)
			gone = append(gone, id)
		}
	}
	kept := map[string]*classic.Group{}
	for _, id := range gone {
		kept[id] = c.soft.groups[id]
	}
	r.Then = func(s Step, failed *kerr.Error) Result {
		if more && failed == nil {
			// The rest follows at once, in another step: a batch has a limit. After a
			// refusal it has to wait for the next check, else nothing else would be done.
			c.soft.timers.Set(classic.Timer{Kind: classic.Expiry}, s.Now)
		}
		for id, g := range kept {
			if failed == nil && g != nil && c.soft.groups[id] == g {
				c.drop(s, id)
			}
		}
		return Result{}
	}
	return r
}

// expireAtOnce bounds the records of one step of expiry.
const expireAtOnce = 1000

// expireOffsets writes tombstones for a group's old offsets and tells whether some are left.
func (c *Core) expireOffsets(s Step, g *classic.Group, r *Result) (left bool) {
	left = len(s.State.unstableIn(g.ID)) > 0
	fromState := false // the age counts from when the group became empty
	switch {
	case g.ProtocolType() == "":
	case g.State() == classic.Empty:
		fromState = g.SinceMs() >= 0
	case g.ProtocolType() == classic.Consumer && g.SubscriptionKnown() && g.State() == classic.Stable:
	default:
		return true
	}
	now := s.Now.UnixMilli()
	for tp, o := range s.State.Offsets(g.ID) {
		base := o.CommitMs
		if fromState {
			base = g.SinceMs()
		}
		old := now-base >= c.config.Retention.Milliseconds()
		if o.ExpireMs >= 0 {
			old = now >= o.ExpireMs
		}
		if old && !g.Subscribed(tp.Topic) && !s.State.Unstable(g.ID, tp) {
			r.tombstone(g.ID, tp)
		} else {
			left = true
		}
	}
	return left
}

// DeletedTopic is a topic that is no more.
type DeletedTopic struct {
	Name string
	ID   [16]byte
}

// TopicsDeleted forgets the offsets of topics that were deleted.
func (c *Core) TopicsDeleted(s Step, topics []DeletedTopic) Result {
	var r Result
	for id := range all(s.State.offsets) {
		for tp, o := range s.State.Offsets(id) {
			for _, t := range topics {
				if tp.Topic == t.Name && (o.TopicID == [16]byte{} || o.TopicID == t.ID) {
					r.tombstone(id, tp)
					break
				}
			}
		}
	}
	c.stats.Deletions += int64(len(r.Records))
	return r
}
