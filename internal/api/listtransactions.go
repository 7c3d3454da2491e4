package api

import (
	"context"
	"regexp"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/txn"
	"weir/internal/wire"
)

// ListTransactions lists the transactional ids that this broker coordinates (API
// key 66), versions 0–2 (KIP-664).
//
//	v1  those that have been open for longer than a time (KIP-994)
//	v2  those that match a regular expression (KIP-1152)
//
// Not implemented: look-around and back references in the regular expression are
// refused with INVALID_REGULAR_EXPRESSION.
type ListTransactions struct {
	Txns TxnViews
}

// Key is ListTransactions.
func (*ListTransactions) Key() kmsg.Key { return kmsg.ListTransactions }

// Handle passes the filters on.
func (h *ListTransactions) Handle(ctx context.Context, _ *Call, r kmsg.Request) wire.Response {
	req := as[*kmsg.ListTransactionsRequest](r)
	res := responseTo[*kmsg.ListTransactionsResponse](r)
	f := txn.Filter{ProducerIDs: req.ProducerIDFilters, States: req.StateFilters, LongerThanMs: -1}
	if req.Version >= 1 {
		f.LongerThanMs = req.DurationFilterMillis
	}
	if p := req.TransactionalIDPattern; req.Version >= 2 && p != nil && *p != "" {
		re, err := regexp.Compile(`^(?:` + *p + `)$`)
		if err != nil {
			res.ErrorCode = kerr.InvalidRegularExpression.Code
			return reply(res)
		}
		f.Match = re.MatchString
	}
	list, err := h.Txns.List(ctx, &f)
	if err != nil {
		res.ErrorCode = err.Code
		return reply(res)
	}
	res.UnknownStateFilters = f.UnknownStates()
	for _, t := range list {
		row := kmsg.NewListTransactionsResponseTransactionState()
		row.TransactionalID, row.ProducerID, row.TransactionState = t.ID, t.ProducerID, t.Status.String()
		res.TransactionStates = append(res.TransactionStates, row)
	}
	return reply(res)
}
