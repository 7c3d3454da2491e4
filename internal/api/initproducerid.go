package api

import (
	"context"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/image"
	"weir/internal/txn"
	"weir/internal/wire"
)

// InitProducerID hands out producer ids (API key 22), versions 0–5.
//
//	v2  flexible
//	v3  the client's present id and epoch (KIP-360)
//	v4  PRODUCER_FENCED; before, INVALID_PRODUCER_EPOCH
//	v5  TRANSACTION_ABORTABLE
type InitProducerID struct {
	IDs  *ProducerIDs
	Txns TxnProducers
}

// Key is InitProducerId.
func (*InitProducerID) Key() kmsg.Key { return kmsg.InitProducerID }

// Handle gives an idempotent producer a fresh id with epoch 0, whatever it had before,
// and one with a transactional id what its coordinator says.
func (h *InitProducerID) Handle(ctx context.Context, _ *Call, r kmsg.Request) wire.Response {
	req := as[*kmsg.InitProducerIDRequest](r)
	res := responseTo[*kmsg.InitProducerIDResponse](r)
	res.ProducerID, res.ProducerEpoch = -1, -1
	switch {
	case req.Version >= 3 && (req.ProducerID < 0) != (req.ProducerEpoch < 0),
		req.TransactionalID != nil && *req.TransactionalID == "":
		res.ErrorCode = kerr.InvalidRequest.Code
	case req.TransactionalID != nil:
		was := txn.NoIdentity()
		if req.Version >= 3 {
			was = txn.Identity{ProducerID: req.ProducerID, Epoch: req.ProducerEpoch}
		}
		is, err := h.Txns.Init(ctx, *req.TransactionalID, req.TransactionTimeoutMillis, was)
		res.ProducerID, res.ProducerEpoch, res.ErrorCode = is.ProducerID, is.Epoch, fencedBefore(err, req.Version, 4)
	default:
		id, err := h.IDs.Next(ctx)
		if err != nil {
			res.ErrorCode = kerr.CoordinatorLoadInProgress.Code // Kafka's answer while it waits for a block
			break
		}
		res.ProducerID, res.ProducerEpoch = id, 0
	}
	return reply(res)
}

// ProducerIDs hands out single producer ids from blocks that the controller
// allocates to this broker (RPCProducerIdManager).
type ProducerIDs struct {
	Controller Controller
	NodeID     int32
	// Epoch is this broker's registered epoch.
	Epoch  func() int64
	Images Images

	mu         sync.Mutex
	next, last int64 // [next, last) is left of the block
}

// Next returns an id that no other producer has. It asks the controller for a
// new block when the present one is used up.
func (p *ProducerIDs) Next(ctx context.Context) (int64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next == p.last {
		if err := p.refill(ctx); err != nil {
			return 0, err
		}
	}
	id := p.next
	p.next++
	return id, nil
}

func (p *ProducerIDs) refill(ctx context.Context) error {
	req := kmsg.NewPtrAllocateProducerIDsRequest()
	req.BrokerID, req.BrokerEpoch = p.NodeID, p.Epoch()
	r, err := p.Controller.Do(ctx, req)
	if err != nil {
		return err
	}
	res := r.(*kmsg.AllocateProducerIDsResponse)
	if err := kerr.ErrorForCode(res.ErrorCode); err != nil {
		return err
	}
	// The block is used only once this broker has seen it committed, so that an id is never given out twice.
	end := res.ProducerIDStart + int64(res.ProducerIDLen)
	img := p.Images.WaitFor(ctx, func(i *image.Image) bool { return i.NextProducerID() >= end })
	if img.NextProducerID() < end {
		return context.Cause(ctx)
	}
	p.next, p.last = res.ProducerIDStart, end
	return nil
}
