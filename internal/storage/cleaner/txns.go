package cleaner

import (
	"cmp"
	"encoding/binary"
	"slices"

	"weir/internal/batch"
	"weir/internal/storage/segment"
)

// transactions follows the transactions of a log while its batches are read in order (Kafka's
// CleanedTransactionMetadata).
type transactions struct {
	pending   []segment.AbortedTxn // aborted ones that have not begun yet, by first offset
	aborted   map[int64]*aborted   // those that have begun, by producer
	committed map[int64]bool       // producers with records of a transaction that is not known to be aborted
	// index takes the aborted transactions of which something is left. nil: nobody wants to know.
	index func(segment.AbortedTxn) error
}

type aborted struct {
	txn  segment.AbortedTxn
	seen bool // a batch of it was read
}

func newTransactions() *transactions {
	return &transactions{aborted: map[int64]*aborted{}, committed: map[int64]bool{}}
}

// add takes aborted transactions of a stretch of the log; those that reach over several are added for each.
func (t *transactions) add(txns []segment.AbortedTxn) {
	t.pending = append(t.pending, txns...)
	slices.SortStableFunc(t.pending, func(a, b segment.AbortedTxn) int { return cmp.Compare(a.FirstOffset, b.FirstOffset) })
}

// begin moves on to an offset.
func (t *transactions) begin(offset int64) {
	n := 0
	for ; n < len(t.pending) && t.pending[n].FirstOffset <= offset; n++ {
		p := t.pending[n]
		if t.aborted[p.ProducerID] == nil {
			t.aborted[p.ProducerID] = &aborted{txn: p}
		}
	}
	t.pending = t.pending[n:]
}

// data is told of a batch of records and says whether they are of an aborted transaction.
func (t *transactions) data(b batch.Batch) bool {
	t.begin(b.LastOffset())
	if !b.IsTransactional() {
		return false
	}
	if a := t.aborted[b.ProducerID()]; a != nil {
		a.seen = true
		return true
	}
	t.committed[b.ProducerID()] = true
	return false
}

// Control record types of transaction markers, in a control record's key behind its version.
const (
	markerAbort  = 0
	markerCommit = 1
)

// control is told of a control batch and says whether it may go: it marks a transaction of which nothing is left, or
// was emptied before.
func (t *transactions) control(b batch.Batch, buf *batch.Buffers) (bool, error) {
	t.begin(b.LastOffset())
	for r, err := range b.Records(buf) {
		if err != nil {
			return false, err
		}
		if len(r.Key) < 4 {
			return false, nil
		}
		switch binary.BigEndian.Uint16(r.Key[2:]) {
		case markerAbort:
			a := t.aborted[b.ProducerID()]
			delete(t.aborted, b.ProducerID())
			if a == nil || !a.seen {
				return true, nil
			}
			if t.index != nil {
				return false, t.index(a.txn)
			}
			return false, nil
		case markerCommit:
			was := t.committed[b.ProducerID()]
			delete(t.committed, b.ProducerID())
			return !was, nil
		}
		return false, nil
	}
	return true, nil
}
