package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/wire"
)

// DescribeTransactions tells of transactional ids at their coordinator (API key
// 65), version 0 (KIP-664). Of a transaction that is ending it names the partitions
// that have no marker yet.
type DescribeTransactions struct {
	Txns TxnViews
}

// Key is DescribeTransactions.
func (*DescribeTransactions) Key() kmsg.Key { return kmsg.DescribeTransactions }

// Handle looks each id up.
func (h *DescribeTransactions) Handle(ctx context.Context, _ *Call, r kmsg.Request) wire.Response {
	req := as[*kmsg.DescribeTransactionsRequest](r)
	res := responseTo[*kmsg.DescribeTransactionsResponse](r)
	for _, id := range req.TransactionalIDs {
		row := kmsg.NewDescribeTransactionsResponseTransactionState()
		row.TransactionalID = id
		if d, err := h.Txns.Describe(ctx, id); err != nil {
			row.ErrorCode = err.Code
		} else {
			row.State, row.TimeoutMillis, row.StartTimestamp = d.Status.String(), d.TimeoutMs, d.StartMs
			row.ProducerID, row.ProducerEpoch = d.ProducerID, d.Epoch
			for _, p := range d.Partitions {
				if n := len(row.Topics); n == 0 || row.Topics[n-1].Topic != p.Topic {
					t := kmsg.NewDescribeTransactionsResponseTransactionStateTopic()
					t.Topic = p.Topic
					row.Topics = append(row.Topics, t)
				}
				t := &row.Topics[len(row.Topics)-1]
				t.Partitions = append(t.Partitions, p.Partition)
			}
		}
		res.TransactionStates = append(res.TransactionStates, row)
	}
	return reply(res)
}
