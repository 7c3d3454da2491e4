package api

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/image"
	"weir/internal/partition"
	"weir/internal/wire"
)

// DescribeTopicPartitions describes topics page by page, with ELR (API key 75),
// version 0 (KIP-966).
type DescribeTopicPartitions struct {
	Images Images
	// MaxPartitions is max.request.partition.size.limit.
	MaxPartitions int32
}

// Key is DescribeTopicPartitions.
func (*DescribeTopicPartitions) Key() kmsg.Key { return kmsg.DescribeTopicPartitions }

// Handle lists topics in the order of their names from the cursor on.
func (h *DescribeTopicPartitions) Handle(_ context.Context, c *Call, r kmsg.Request) wire.Response {
	req := as[*kmsg.DescribeTopicPartitionsRequest](r)
	res := responseTo[*kmsg.DescribeTopicPartitionsResponse](r)
	img := h.Images.Image()
	d := describing{img: img, listener: c.Conn.Listener(), version: 13}
	if badCursor(req) {
		for _, t := range req.Topics {
			row := kmsg.NewDescribeTopicPartitionsResponseTopic()
			row.Topic, row.ErrorCode = &t.Topic, kerr.InvalidRequest.Code
			res.Topics = append(res.Topics, row)
		}
		return reply(res)
	}
	left := max(min(h.MaxPartitions, req.ResponsePartitionLimit), 1)
	for _, name := range h.names(req, img) {
		from := int32(0)
		if req.Cursor != nil {
			if name < req.Cursor.Topic {
				continue
			}
			if name == req.Cursor.Topic {
				from = max(req.Cursor.Partition, 0)
			}
		}
		if left <= 0 {
			res.NextCursor = &kmsg.DescribeTopicPartitionsResponseNextCursor{Topic: name, Partition: from}
			break
		}
		row, next := d.page(name, from, left)
		left -= int32(len(row.Partitions))
		res.Topics = append(res.Topics, row)
		if next >= 0 {
			res.NextCursor = &kmsg.DescribeTopicPartitionsResponseNextCursor{Topic: name, Partition: next}
			break
		}
	}
	return reply(res)
}

// badCursor refuses a cursor that names no partition, or no topic of the request.
func badCursor(req *kmsg.DescribeTopicPartitionsRequest) bool {
	c := req.Cursor
	return c != nil && (c.Partition < 0 || len(req.Topics) > 0 && !slices.ContainsFunc(req.Topics, func(t kmsg.DescribeTopicPartitionsRequestTopic) bool { return t.Topic == c.Topic }))
}

func (h *DescribeTopicPartitions) names(req *kmsg.DescribeTopicPartitionsRequest, img *image.Image) []string {
	var names []string
	if len(req.Topics) == 0 {
		for t := range img.Topics() {
			names = append(names, t.Name)
		}
		return names
	}
	for _, t := range req.Topics {
		names = append(names, t.Topic)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// page describes at most limit partitions of a topic; next is the first that
// did not fit, -1 when all did.
func (d *describing) page(name string, from, limit int32) (row kmsg.DescribeTopicPartitionsResponseTopic, next int32) {
	row = kmsg.NewDescribeTopicPartitionsResponseTopic()
	row.Topic, row.IsInternal, row.AuthorizedOperations = &name, internal(name), topicOperations
	t, ok := d.img.Topic(name)
	if !ok {
		row.ErrorCode = kerr.UnknownTopicOrPartition.Code
		if !validTopicName(name) {
			row.ErrorCode = kerr.InvalidTopicException.Code
		}
		return row, -1
	}
	row.TopicID = t.ID
	for id, p := range t.Partitions() {
		if id < from {
			continue
		}
		if int32(len(row.Partitions)) == limit {
			return row, id
		}
		n := kmsg.NewDescribeTopicPartitionsResponseTopicPartition()
		n.Partition, n.LeaderID, n.LeaderEpoch = id, p.Leader, p.LeaderEpoch
		n.Replicas, n.ISR, n.OfflineReplicas = p.Replicas, p.ISR, d.offline(p)
		n.EligibleLeaderReplicas, n.LastKnownELR = notNil(p.ELR), notNil(p.LastKnownELR)
		if b, ok := d.img.Broker(p.Leader); p.Leader == partition.None || !ok || b.Fenced {
			n.ErrorCode, n.LeaderID = kerr.LeaderNotAvailable.Code, partition.None
		}
		row.Partitions = append(row.Partitions, n)
	}
	return row, -1
}

func notNil(ids []int32) []int32 {
	if ids == nil {
		return []int32{}
	}
	return ids
}
