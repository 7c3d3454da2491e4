package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/txn"
	"weir/internal/wire"
)

// EndTxn commits or aborts a producer's transaction (API key 26), versions 0–5. The
// answer says that the outcome stands; the partitions hear of it afterwards.
//
//	v2  PRODUCER_FENCED; before, INVALID_PRODUCER_EPOCH
//	v3  flexible; v4 TRANSACTION_ABORTABLE
//	v5  the epoch, and perhaps the producer id, that the producer goes on with (KIP-890)
type EndTxn struct {
	Txns TxnProducers
}

// Key is EndTxn.
func (*EndTxn) Key() kmsg.Key { return kmsg.EndTxn }

// Handle passes the request on.
func (h *EndTxn) Handle(ctx context.Context, _ *Call, r kmsg.Request) wire.Response {
	req := as[*kmsg.EndTxnRequest](r)
	res := responseTo[*kmsg.EndTxnResponse](r)
	version := int16(0)
	if req.Version >= 5 {
		version = 2
	}
	is, err := h.Txns.End(ctx, req.TransactionalID, txn.Identity{ProducerID: req.ProducerID, Epoch: req.ProducerEpoch}, req.Commit, version)
	res.ErrorCode = fencedBefore(err, req.Version, 2)
	res.ProducerID, res.ProducerEpoch = is.ProducerID, is.Epoch
	return reply(res)
}
