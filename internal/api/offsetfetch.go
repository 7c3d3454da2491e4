package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/wire"
)

// OffsetFetch reads the committed offsets of groups (API key 9), versions 0–10.
//
//	v0   read ZooKeeper once; a partition without offset is UNKNOWN_TOPIC_OR_PARTITION
//	v2   null: all topics of the group; an error of the whole answer
//	v5   leader epochs; v7 require_stable (KIP-447)
//	v8   several groups
//	v9   member of KIP-848; v10 topics by id
type OffsetFetch struct {
	Images Images
	Groups Offsets
}

// Key is OffsetFetch.
func (*OffsetFetch) Key() kmsg.Key { return kmsg.OffsetFetch }

// Handle asks the coordinator for each group.
func (h *OffsetFetch) Handle(ctx context.Context, _ *Call, r kmsg.Request) wire.Response {
	req := as[*kmsg.OffsetFetchRequest](r)
	res := responseTo[*kmsg.OffsetFetchResponse](r)
	if req.Version >= 8 {
		res.Groups = make([]kmsg.OffsetFetchResponseGroup, 0, len(req.Groups))
		for i := range req.Groups {
			res.Groups = append(res.Groups, h.group(ctx, &req.Groups[i], req.RequireStable, req.Version))
		}
		return reply(res)
	}
	q := kmsg.NewOffsetFetchRequestGroup()
	q.Group = req.Group
	if req.Topics != nil {
		q.Topics = []kmsg.OffsetFetchRequestGroupTopic{}
	}
	for _, t := range req.Topics {
		one := kmsg.NewOffsetFetchRequestGroupTopic()
		one.Topic, one.Partitions = t.Topic, t.Partitions
		q.Topics = append(q.Topics, one)
	}
	g := h.group(ctx, &q, req.RequireStable, req.Version)
	res.ErrorCode = g.ErrorCode
	res.Topics = oldRows(req.Version, &g)
	return reply(res)
}

// oldRows is the answer to one group before v8.
func oldRows(version int16, g *kmsg.OffsetFetchResponseGroup) []kmsg.OffsetFetchResponseTopic {
	out := []kmsg.OffsetFetchResponseTopic{}
	for _, t := range g.Topics {
		row := kmsg.NewOffsetFetchResponseTopic()
		row.Topic = t.Topic
		for _, p := range t.Partitions {
			e := kmsg.NewOffsetFetchResponseTopicPartition()
			e.Partition, e.Offset, e.LeaderEpoch, e.Metadata, e.ErrorCode = p.Partition, p.Offset, p.LeaderEpoch, p.Metadata, p.ErrorCode
			if version == 0 && e.ErrorCode == 0 && e.Offset < 0 {
				e.ErrorCode = kerr.UnknownTopicOrPartition.Code
			}
			row.Partitions = append(row.Partitions, e)
		}
		out = append(out, row)
	}
	return out
}

func (h *OffsetFetch) group(ctx context.Context, q *kmsg.OffsetFetchRequestGroup, stable bool, version int16) kmsg.OffsetFetchResponseGroup {
	var unknown []kmsg.OffsetFetchResponseGroupTopic
	ask := *q
	if version >= 10 && q.Topics != nil {
		ask.Topics = []kmsg.OffsetFetchRequestGroupTopic{}
		for _, t := range q.Topics {
			if _, err := named(h.Images.Image(), true, &t.Topic, &t.TopicID); err != nil {
				unknown = append(unknown, failedRow(t, err))
			} else {
				ask.Topics = append(ask.Topics, t)
			}
		}
	}
	g, err := h.Groups.Fetch(ctx, &ask, stable)
	if err != nil {
		return failedFetch(q, err, version)
	}
	if version >= 10 && q.Topics == nil {
		g.Topics = h.identified(g.Topics)
	}
	g.Topics = append(g.Topics, unknown...)
	return g
}

// identified gives all topics of a group their ids; those that are no more have none.
func (h *OffsetFetch) identified(rows []kmsg.OffsetFetchResponseGroupTopic) []kmsg.OffsetFetchResponseGroupTopic {
	out := []kmsg.OffsetFetchResponseGroupTopic{}
	for _, t := range rows {
		if _, err := named(h.Images.Image(), false, &t.Topic, &t.TopicID); err == nil {
			out = append(out, t)
		}
	}
	return out
}

// failedFetch is the answer to a group that cannot be asked: before v2 there is
// no place for the error but the rows.
func failedFetch(q *kmsg.OffsetFetchRequestGroup, err *kerr.Error, version int16) kmsg.OffsetFetchResponseGroup {
	g := kmsg.NewOffsetFetchResponseGroup()
	g.Group, g.Topics = q.Group, []kmsg.OffsetFetchResponseGroupTopic{}
	if version >= 2 {
		g.ErrorCode = err.Code
		return g
	}
	for _, t := range q.Topics {
		g.Topics = append(g.Topics, failedRow(t, err))
	}
	return g
}

func failedRow(t kmsg.OffsetFetchRequestGroupTopic, err *kerr.Error) kmsg.OffsetFetchResponseGroupTopic {
	row := kmsg.NewOffsetFetchResponseGroupTopic()
	row.Topic, row.TopicID = t.Topic, t.TopicID
	for _, p := range t.Partitions {
		e := kmsg.NewOffsetFetchResponseGroupTopicPartition()
		none := ""
		e.Partition, e.Offset, e.LeaderEpoch, e.Metadata, e.ErrorCode = p, -1, -1, &none, err.Code
		row.Partitions = append(row.Partitions, e)
	}
	return row
}
