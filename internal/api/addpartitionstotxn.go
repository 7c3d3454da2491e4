package api

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"weir/internal/txn"
	"weir/internal/wire"
)

// AddPartitionsToTxn makes partitions part of a producer's transaction (API key
// 24), versions 0–5. Either all of them become part of it or none. A partition that is
// named twice has one row in the answer.
//
//	v2  PRODUCER_FENCED; before, INVALID_PRODUCER_EPOCH
//	v3  flexible
//	v4  from brokers: several transactions, which may be to verify only (KIP-890)
//	v5  of clients under transaction.version 2
type AddPartitionsToTxn struct {
	Images Images
	Txns   TxnProducers
}

// Key is AddPartitionsToTxn.
func (*AddPartitionsToTxn) Key() kmsg.Key { return kmsg.AddPartitionsToTxn }

// Handle asks the coordinator for each transaction, for all at once.
func (h *AddPartitionsToTxn) Handle(ctx context.Context, _ *Call, r kmsg.Request) wire.Response {
	req := as[*kmsg.AddPartitionsToTxnRequest](r)
	res := responseTo[*kmsg.AddPartitionsToTxnResponse](r)
	if req.Version < 4 {
		var ps []txn.TopicPartition
		once := once{}
		for i := range req.Topics {
			t := &req.Topics[i]
			t.Partitions = once.of(t.Topic, t.Partitions)
			for _, p := range t.Partitions {
				ps = append(ps, txn.TopicPartition{Topic: t.Topic, Partition: p})
			}
		}
		rows := h.answer(ctx, req.Version, &kmsg.AddPartitionsToTxnRequestTransaction{
			TransactionalID: req.TransactionalID, ProducerID: req.ProducerID, ProducerEpoch: req.ProducerEpoch,
		}, ps)
		for _, t := range req.Topics {
			row := kmsg.NewAddPartitionsToTxnResponseTopic()
			row.Topic = t.Topic
			for _, p := range t.Partitions {
				e := kmsg.NewAddPartitionsToTxnResponseTopicPartition()
				e.Partition, e.ErrorCode = p, rows[0]
				rows = rows[1:]
				row.Partitions = append(row.Partitions, e)
			}
			res.Topics = append(res.Topics, row)
		}
		return reply(res)
	}
	res.Transactions = make([]kmsg.AddPartitionsToTxnResponseTransaction, len(req.Transactions))
	var work errgroup.Group
	work.SetLimit(addAtOnce)
	for i := range req.Transactions {
		work.Go(func() error {
			res.Transactions[i] = h.transaction(ctx, req.Version, &req.Transactions[i])
			return nil
		})
	}
	_ = work.Wait() // errors stand in the rows
	return reply(res)
}

// addAtOnce is how many transactions of one request are asked for at a time.
const addAtOnce = 64

func (h *AddPartitionsToTxn) transaction(ctx context.Context, version int16, q *kmsg.AddPartitionsToTxnRequestTransaction) kmsg.AddPartitionsToTxnResponseTransaction {
	var ps []txn.TopicPartition
	once := once{}
	for i := range q.Topics {
		t := &q.Topics[i]
		t.Partitions = once.of(t.Topic, t.Partitions)
		for _, p := range t.Partitions {
			ps = append(ps, txn.TopicPartition{Topic: t.Topic, Partition: p})
		}
	}
	rows := h.answer(ctx, version, q, ps)
	out := kmsg.NewAddPartitionsToTxnResponseTransaction()
	out.TransactionalID = q.TransactionalID
	for _, t := range q.Topics {
		row := kmsg.NewAddPartitionsToTxnResponseTransactionTopic()
		row.Topic = t.Topic
		for _, p := range t.Partitions {
			e := kmsg.NewAddPartitionsToTxnResponseTransactionTopicPartition()
			e.Partition, e.ErrorCode = p, rows[0]
			rows = rows[1:]
			row.Partitions = append(row.Partitions, e)
		}
		out.Topics = append(out.Topics, row)
	}
	return out
}

// once is the partitions that a request has named.
type once map[txn.TopicPartition]struct{}

// of drops those partitions of a topic that were named before, in place.
func (o once) of(topic string, partitions []int32) []int32 {
	return slices.DeleteFunc(partitions, func(p int32) bool {
		tp := txn.TopicPartition{Topic: topic, Partition: p}
		_, again := o[tp]
		o[tp] = struct{}{}
		return again
	})
}

// answer gives the code of each partition.
func (h *AddPartitionsToTxn) answer(ctx context.Context, version int16, q *kmsg.AddPartitionsToTxnRequestTransaction, ps []txn.TopicPartition) []int16 {
	out := make([]int16, len(ps))
	img, missing := h.Images.Image(), false
	for i, p := range ps {
		if !existing(img, p) {
			out[i], missing = kerr.UnknownTopicOrPartition.Code, true
		}
	}
	if missing {
		for i := range out {
			if out[i] == 0 {
				out[i] = kerr.OperationNotAttempted.Code
			}
		}
		return out
	}
	fill := func(err *kerr.Error) {
		for i := range out {
			out[i] = fencedBefore(err, version, 2)
		}
	}
	if q.VerifyOnly {
		rows, err := h.Txns.Verify(ctx, q.TransactionalID, q.ProducerID, q.ProducerEpoch, ps)
		fill(err)
		for i, row := range rows {
			if row != nil {
				out[i] = row.Code
			}
		}
		return out
	}
	clientVersion := int16(0)
	if version >= 5 {
		clientVersion = 2
	}
	fill(h.Txns.Add(ctx, q.TransactionalID, q.ProducerID, q.ProducerEpoch, ps, clientVersion))
	return out
}
