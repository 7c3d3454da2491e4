package group

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/group/classic"
)

// TxnCommit answers TxnOffsetCommit: the offsets count once the transaction's
// marker says commit. Topics that do not exist were taken out before. guard is
// what the verification of the transaction gave.
func (c *Core) TxnCommit(s Step, q *kmsg.TxnOffsetCommitRequest, guard uint64, to classic.Waiter) Result {
	var r Result
	if err := c.mayTxnCommit(s, q); err != nil {
		r.Answers = []classic.Answer{{To: to, Response: TxnCommitRefused(q, err)}}
		return r
	}
	m := q.ResponseKind().(*kmsg.TxnOffsetCommitResponse)
	for i := range q.Topics {
		t := &q.Topics[i]
		row := kmsg.NewTxnOffsetCommitResponseTopic()
		row.Topic = t.Topic
		for j := range t.Partitions {
			p := &t.Partitions[j]
			e := kmsg.NewTxnOffsetCommitResponseTopicPartition()
			e.Partition = p.Partition
			if p.Metadata != nil && longer(*p.Metadata, c.config.MaxMetadata) {
				e.ErrorCode = kerr.OffsetMetadataTooLarge.Code
			} else {
				o := &Offset{Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, CommitMs: s.Now.UnixMilli(), ExpireMs: -1}
				if p.Metadata != nil {
					o.Metadata = *p.Metadata
				}
				r.Records = append(r.Records, Record{
					Producer: q.ProducerID, Epoch: q.ProducerEpoch, Guard: guard, Delta: int32(len(r.Records)),
					Offset: &OffsetRecord{Key: OffsetKey{q.Group, TopicPartition{t.Topic, p.Partition}}, Value: o},
				})
			}
			row.Partitions = append(row.Partitions, e)
		}
		m.Topics = append(m.Topics, row)
	}
	c.stats.Commits += int64(len(r.Records))
	if _, ok := c.soft.timers.Get(classic.Timer{Kind: classic.Expiry}); !ok && len(r.Records) > 0 {
		c.scheduleExpiry(s.Now)
	}
	r.Answers = []classic.Answer{{To: to, Response: m}}
	return r
}

// mayTxnCommit: a transactional commit need not come from a member.
func (c *Core) mayTxnCommit(s Step, q *kmsg.TxnOffsetCommitRequest) *kerr.Error {
	if q.Group == "" {
		return kerr.InvalidGroupID
	}
	g := c.find(s, q.Group)
	if g == nil {
		if q.Generation < 0 {
			return nil // the commit itself makes the group
		}
		return kerr.IllegalGeneration
	}
	return g.CheckCommit(q.MemberID, q.InstanceID, q.Generation, true)
}

// TxnCommitRefused is the answer to a TxnOffsetCommit that failed as a whole.
func TxnCommitRefused(q *kmsg.TxnOffsetCommitRequest, err *kerr.Error) *kmsg.TxnOffsetCommitResponse {
	m := q.ResponseKind().(*kmsg.TxnOffsetCommitResponse)
	for i := range q.Topics {
		row := kmsg.NewTxnOffsetCommitResponseTopic()
		row.Topic = q.Topics[i].Topic
		for _, p := range q.Topics[i].Partitions {
			e := kmsg.NewTxnOffsetCommitResponseTopicPartition()
			e.Partition, e.ErrorCode = p.Partition, err.Code
			row.Partitions = append(row.Partitions, e)
		}
		m.Topics = append(m.Topics, row)
	}
	return m
}

// EndTxn applies or drops the offsets that a producer's transaction has committed
// here, if any: the marker is written in any case.
func (c *Core) EndTxn(producerID int64, epoch int16, m Marker) Result {
	return Result{Records: []Record{{Producer: producerID, Epoch: epoch, Marker: &m}}}
}
