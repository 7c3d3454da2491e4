package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/wire"
)

// OffsetDelete forgets committed offsets of a group (API key 47), version 0. Topics
// that the group reads are refused.
type OffsetDelete struct {
	Images Images
	Groups Offsets
}

// Key is OffsetDelete.
func (*OffsetDelete) Key() kmsg.Key { return kmsg.OffsetDelete }

// Handle refuses what does not exist and passes the rest on.
func (h *OffsetDelete) Handle(ctx context.Context, _ *Call, r kmsg.Request) wire.Response {
	req := as[*kmsg.OffsetDeleteRequest](r)
	res := responseTo[*kmsg.OffsetDeleteResponse](r)
	res.Topics = []kmsg.OffsetDeleteResponseTopic{}
	img := h.Images.Image()
	known := req.Topics[:0:0]
	for _, t := range req.Topics {
		var id [16]byte
		topic, err := named(img, false, &t.Topic, &id)
		row := kmsg.NewOffsetDeleteResponseTopic()
		row.Topic = t.Topic
		exist := t.Partitions[:0:0]
		for _, p := range t.Partitions {
			if err := partitionError(topic, err, p.Partition); err != nil {
				e := kmsg.NewOffsetDeleteResponseTopicPartition()
				e.Partition, e.ErrorCode = p.Partition, err.Code
				row.Partitions = append(row.Partitions, e)
			} else {
				exist = append(exist, p)
			}
		}
		if len(row.Partitions) > 0 {
			mergeDelete(res, row)
		}
		if len(exist) > 0 {
			t.Partitions = exist
			known = append(known, t)
		}
	}
	req.Topics = known // even when there are none: the group has to be one
	done := h.Groups.DeleteOffsets(ctx, req)
	if done.ErrorCode != 0 {
		done.Topics = []kmsg.OffsetDeleteResponseTopic{}
		return reply(done)
	}
	for _, row := range done.Topics {
		mergeDelete(res, row)
	}
	return reply(res)
}

// mergeDelete adds rows to the answer: each topic stands in it once.
func mergeDelete(res *kmsg.OffsetDeleteResponse, row kmsg.OffsetDeleteResponseTopic) {
	for i := range res.Topics {
		if t := &res.Topics[i]; t.Topic == row.Topic {
			t.Partitions = append(t.Partitions, row.Partitions...)
			return
		}
	}
	res.Topics = append(res.Topics, row)
}
