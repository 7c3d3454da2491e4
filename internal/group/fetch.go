package group

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Fetch fills in the committed offsets that a group asks for. With stable set,
// an offset that an open transaction is about to replace is not told: the reader
// comes back. Ids of topics were turned into names before.
func (s *State) Fetch(q *kmsg.OffsetFetchRequestGroup, stable bool) kmsg.OffsetFetchResponseGroup {
	out := kmsg.NewOffsetFetchResponseGroup()
	out.Group = q.Group
	if q.Topics == nil {
		out.Topics = s.fetchAll(q.Group, stable)
		return out
	}
	for _, t := range q.Topics {
		row := kmsg.NewOffsetFetchResponseGroupTopic()
		row.Topic, row.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			tp := TopicPartition{t.Topic, p}
			o := s.Offset(q.Group, tp)
			if o != nil && t.TopicID != [16]byte{} && o.TopicID != [16]byte{} && t.TopicID != o.TopicID {
				o = nil // of an earlier topic of that name
			}
			row.Partitions = append(row.Partitions, s.row(q.Group, tp, o, stable))
		}
		out.Topics = append(out.Topics, row)
	}
	return out
}

func (s *State) fetchAll(group string, stable bool) []kmsg.OffsetFetchResponseGroupTopic {
	out := []kmsg.OffsetFetchResponseGroupTopic{}
	for tp, o := range s.Offsets(group) {
		if n := len(out); n == 0 || out[n-1].Topic != tp.Topic {
			row := kmsg.NewOffsetFetchResponseGroupTopic()
			row.Topic = tp.Topic
			out = append(out, row)
		}
		row := &out[len(out)-1]
		row.Partitions = append(row.Partitions, s.row(group, tp, o, stable))
	}
	return out
}

func (s *State) row(group string, tp TopicPartition, o *Offset, stable bool) kmsg.OffsetFetchResponseGroupTopicPartition {
	r := kmsg.NewOffsetFetchResponseGroupTopicPartition()
	none := ""
	r.Partition, r.Offset, r.LeaderEpoch, r.Metadata = tp.Partition, -1, -1, &none
	switch {
	case stable && s.Unstable(group, tp):
		r.ErrorCode = kerr.UnstableOffsetCommit.Code
	case o != nil:
		text := o.Metadata
		r.Offset, r.LeaderEpoch, r.Metadata = o.Offset, o.LeaderEpoch, &text
	}
	return r
}
