package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/wire"
)

// OffsetForLeaderEpoch tells where a leader epoch ends (API key 23), versions 0–4.
//
//	v1  the epoch that the end offset belongs to
//	v2  current leader epoch (KIP-320)
//	v3  replica id; v4 flexible
type OffsetForLeaderEpoch struct {
	Images   Images
	Replicas Replicas
}

// Key is OffsetForLeaderEpoch.
func (*OffsetForLeaderEpoch) Key() kmsg.Key { return kmsg.OffsetForLeaderEpoch }

// Handle answers each partition on its own.
func (o *OffsetForLeaderEpoch) Handle(_ context.Context, _ *Call, r kmsg.Request) wire.Response {
	req := as[*kmsg.OffsetForLeaderEpochRequest](r)
	res := responseTo[*kmsg.OffsetForLeaderEpochResponse](r)
	img := o.Images.Image()
	for i := range req.Topics {
		t := &req.Topics[i]
		rt := kmsg.NewOffsetForLeaderEpochResponseTopic()
		rt.Topic = t.Topic
		for j := range t.Partitions {
			q := &t.Partitions[j]
			rp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			rp.Partition, rp.LeaderEpoch, rp.EndOffset = q.Partition, -1, -1
			err := error(errUnknownPartition)
			if topic, ok := img.Topic(t.Topic); ok {
				rp.LeaderEpoch, rp.EndOffset, err = o.one(topic.ID, q)
				if _, exists := topic.Partition(q.Partition); !exists {
					err = errUnknownPartition
				}
			}
			rp.ErrorCode = code(err)
			rt.Partitions = append(rt.Partitions, rp)
		}
		res.Topics = append(res.Topics, rt)
	}
	return reply(res)
}

func (o *OffsetForLeaderEpoch) one(topic [16]byte, q *kmsg.OffsetForLeaderEpochRequestTopicPartition) (int32, int64, error) {
	replica, err := o.Replicas.Replica(topic, q.Partition)
	if err != nil {
		return -1, -1, err
	}
	end, err := replica.EndOffsetForEpoch(q.CurrentLeaderEpoch, q.LeaderEpoch)
	return end.Epoch, end.EndOffset, err
}
