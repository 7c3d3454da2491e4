package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/coordinator"
	"weir/internal/txn"
	"weir/internal/wire"
)

// AddOffsetsToTxn makes the offsets of a group part of a producer's transaction,
// which is the group's partition of __consumer_offsets (API key 25), versions 0–4.
//
//	v2  PRODUCER_FENCED; before, INVALID_PRODUCER_EPOCH
//	v3  flexible; v4 TRANSACTION_ABORTABLE
type AddOffsetsToTxn struct {
	Txns   TxnProducers
	Groups TxnGroups
}

// Key is AddOffsetsToTxn.
func (*AddOffsetsToTxn) Key() kmsg.Key { return kmsg.AddOffsetsToTxn }

// Handle passes the request on.
func (h *AddOffsetsToTxn) Handle(ctx context.Context, _ *Call, r kmsg.Request) wire.Response {
	req := as[*kmsg.AddOffsetsToTxnRequest](r)
	res := responseTo[*kmsg.AddOffsetsToTxnResponse](r)
	p := txn.TopicPartition{Topic: coordinator.OffsetsTopic, Partition: h.Groups.Partition(req.Group)}
	err := h.Txns.Add(ctx, req.TransactionalID, req.ProducerID, req.ProducerEpoch, []txn.TopicPartition{p}, 0)
	res.ErrorCode = fencedBefore(err, req.Version, 2)
	return reply(res)
}
