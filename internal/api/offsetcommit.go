package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/wire"
)

// OffsetCommit stores the offsets of a group (API key 8), versions 0–10.
//
//	v0   kept offsets in ZooKeeper once; here they are stored like all others
//	v1   generation and member, and a time of the commit for each partition
//	v2   a retention of its own instead (until v4)
//	v6   leader epochs; v7 static members (KIP-345)
//	v9   GROUP_ID_NOT_FOUND and the members of KIP-848
//	v10  topics by id
type OffsetCommit struct {
	Images Images
	Groups Offsets
}

// Key is OffsetCommit.
func (*OffsetCommit) Key() kmsg.Key { return kmsg.OffsetCommit }

// Handle refuses what does not exist and passes the rest on.
func (h *OffsetCommit) Handle(ctx context.Context, _ *Call, r kmsg.Request) wire.Response {
	req := as[*kmsg.OffsetCommitRequest](r)
	res := responseTo[*kmsg.OffsetCommitResponse](r)
	res.Topics = []kmsg.OffsetCommitResponseTopic{}
	img := h.Images.Image()
	known := req.Topics[:0:0]
	for i := range req.Topics {
		t := req.Topics[i]
		topic, err := named(img, req.Version >= 10, &t.Topic, &t.TopicID)
		row := kmsg.NewOffsetCommitResponseTopic()
		row.Topic, row.TopicID = t.Topic, t.TopicID
		exist := t.Partitions[:0:0]
		for _, p := range t.Partitions {
			if err := partitionError(topic, err, p.Partition); err != nil {
				e := kmsg.NewOffsetCommitResponseTopicPartition()
				e.Partition, e.ErrorCode = p.Partition, err.Code
				row.Partitions = append(row.Partitions, e)
			} else {
				exist = append(exist, p)
			}
		}
		if len(row.Partitions) > 0 {
			mergeCommit(res, row)
		}
		if len(exist) > 0 {
			t.Partitions = exist
			known = append(known, t)
		}
	}
	if len(known) > 0 {
		req.Topics = known // the request is ours alone
		for _, row := range h.Groups.Commit(ctx, req).Topics {
			mergeCommit(res, row)
		}
	}
	return reply(res)
}

// mergeCommit adds rows to the answer: each topic stands in it once.
func mergeCommit(res *kmsg.OffsetCommitResponse, row kmsg.OffsetCommitResponseTopic) {
	for i := range res.Topics {
		if t := &res.Topics[i]; t.Topic == row.Topic && t.TopicID == row.TopicID {
			t.Partitions = append(t.Partitions, row.Partitions...)
			return
		}
	}
	res.Topics = append(res.Topics, row)
}
