package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/wire"
)

// TxnOffsetCommit stores offsets of a group as part of a producer's transaction
// (API key 28), versions 0–5.
//
//	v2  leader epochs; COORDINATOR_LOAD_IN_PROGRESS, before COORDINATOR_NOT_AVAILABLE
//	v3  flexible; generation and member (KIP-447)
//	v4  TRANSACTION_ABORTABLE
//	v5  the commit itself makes the offsets part of the transaction (KIP-890)
type TxnOffsetCommit struct {
	Images  Images
	Groups  TxnGroups
	Configs Configs
}

// Key is TxnOffsetCommit.
func (*TxnOffsetCommit) Key() kmsg.Key { return kmsg.TxnOffsetCommit }

// Handle refuses what does not exist and passes the rest on.
func (h *TxnOffsetCommit) Handle(ctx context.Context, _ *Call, r kmsg.Request) wire.Response {
	req := as[*kmsg.TxnOffsetCommitRequest](r)
	res := responseTo[*kmsg.TxnOffsetCommitResponse](r)
	res.Topics = []kmsg.TxnOffsetCommitResponseTopic{}
	img := h.Images.Image()
	known := req.Topics[:0:0]
	for _, t := range req.Topics {
		topic, ok := img.Topic(t.Topic)
		row := kmsg.NewTxnOffsetCommitResponseTopic()
		row.Topic = t.Topic
		exist := t.Partitions[:0:0]
		for _, p := range t.Partitions {
			if ok && hasPartition(topic, p.Partition) {
				exist = append(exist, p)
				continue
			}
			e := kmsg.NewTxnOffsetCommitResponseTopicPartition()
			e.Partition, e.ErrorCode = p.Partition, kerr.UnknownTopicOrPartition.Code
			row.Partitions = append(row.Partitions, e)
		}
		if len(row.Partitions) > 0 {
			mergeTxnCommit(res, row)
		}
		if len(exist) > 0 {
			t.Partitions = exist
			known = append(known, t)
		}
	}
	if len(known) > 0 {
		req.Topics = known // the request is ours alone
		for _, row := range h.Groups.TxnCommit(ctx, req, h.Configs.Effective().Bool(verificationKey)).Topics {
			mergeTxnCommit(res, row)
		}
	}
	if req.Version < 2 {
		for i := range res.Topics {
			for j := range res.Topics[i].Partitions {
				if c := &res.Topics[i].Partitions[j].ErrorCode; *c == kerr.CoordinatorLoadInProgress.Code {
					*c = kerr.CoordinatorNotAvailable.Code
				}
			}
		}
	}
	return reply(res)
}

// mergeTxnCommit adds rows to the answer: each topic stands in it once.
func mergeTxnCommit(res *kmsg.TxnOffsetCommitResponse, row kmsg.TxnOffsetCommitResponseTopic) {
	for i := range res.Topics {
		if t := &res.Topics[i]; t.Topic == row.Topic {
			t.Partitions = append(t.Partitions, row.Partitions...)
			return
		}
	}
	res.Topics = append(res.Topics, row)
}
