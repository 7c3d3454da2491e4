package group

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/group/classic"
	"weir/internal/group/consumer"
	"weir/internal/image"
)

// TxnCommit answers TxnOffsetCommit: the offsets count once the transaction's
// marker says commit. Topics that do not exist were taken out before. guard is
// what the verification of the transaction gave.
func (c *Core) TxnCommit(s Step, q *kmsg.TxnOffsetCommitRequest, guard uint64, to classic.Waiter) Result {
	var r Result
	check, err := c.mayTxnCommit(s, q)
	if err != nil {
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
			} else if check != nil && check(topicID(s.Image, t.Topic), p.Partition) != nil {
				return Result{Answers: []classic.Answer{{To: to, Response: TxnCommitRefused(q, kerr.IllegalGeneration)}}}
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
	c.committed(s.Now, len(r.Records))
	r.Answers = []classic.Answer{{To: to, Response: m}}
	return r
}

// mayTxnCommit: a transactional commit need not come from a member. check, when set,
// is then asked for each partition.
func (c *Core) mayTxnCommit(s Step, q *kmsg.TxnOffsetCommitRequest) (check consumer.PartitionCheck, err *kerr.Error) {
	if q.Group == "" {
		return nil, kerr.InvalidGroupID
	}
	if g := s.State.Consumer(q.Group); g != nil {
		check, err := g.CheckCommit(q.MemberID, q.InstanceID, q.Generation, true, q.Version)
		if err == kerr.StaleMemberEpoch {
			err = kerr.IllegalGeneration // which TxnOffsetCommit knows
		}
		return check, err
	}
	g := c.find(s, q.Group)
	switch {
	case g != nil:
		return nil, g.CheckCommit(q.MemberID, q.InstanceID, q.Generation, true)
	case q.Generation < 0:
		return nil, nil // the commit itself makes the group
	}
	return nil, kerr.IllegalGeneration
}

// topicID is the id of a topic, zero when there is none of the name.
func topicID(img *image.Image, name string) [16]byte {
	t, ok := img.Topic(name)
	if !ok {
		return [16]byte{}
	}
	return t.ID
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
