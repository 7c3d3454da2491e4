package storage

import (
	"slices"
	"time"

	"weir/internal/storage/producer"
)

// AbortedTransactions lists the aborted transactions that overlap offsets
// from (inclusive) to upTo (exclusive), by their markers' order, for a
// read-committed fetch. Takes no lock.
func (l *Log) AbortedTransactions(from, upTo int64) ([]AbortedTxn, error) {
	return onView(l, func(v *view) ([]AbortedTxn, error) { return l.abortedIn(v, from, upTo) })
}

func (l *Log) abortedIn(v *view, from, upTo int64) ([]AbortedTxn, error) {
	var out []AbortedTxn
	for _, seg := range v.segments[v.floor(from):] {
		txns, complete, err := seg.Aborted(from, upTo)
		if err != nil {
			return nil, l.readError(seg, from, err)
		}
		for _, t := range txns {
			out = append(out, AbortedTxn{ProducerID: t.ProducerID, FirstOffset: t.FirstOffset})
		}
		if complete {
			break
		}
	}
	return out, nil
}

// ActiveProducers lists the known producers in producer id order.
func (l *Log) ActiveProducers() []ProducerState {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]ProducerState, 0, l.mu.producers.Len())
	for e := range l.mu.producers.All() {
		out = append(out, ProducerState{
			ProducerID: e.ProducerID, ProducerEpoch: int32(e.Epoch), LastSequence: e.LastSequence(), LastTimestamp: e.LastTimestamp,
			CoordinatorEpoch: e.CoordinatorEpoch, TxnStartOffset: e.TxnFirstOffset,
		})
	}
	slices.SortFunc(out, func(a, b ProducerState) int {
		if a.ProducerID < b.ProducerID {
			return -1
		}
		return 1
	})
	return out
}

// ProducerCount is the number of known producer ids.
func (l *Log) ProducerCount() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.producers.Len()
}

// HasLateTransaction reports a transaction that has been open for longer than
// transaction.max.timeout.ms and five minutes.
func (l *Log) HasLateTransaction(nowMs int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.producers.HasLateTransaction(nowMs)
}

// HasOpenTransaction reports an open transaction of exactly this epoch.
func (l *Log) HasOpenTransaction(id int64, epoch int16) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.producers.HasOpenTransaction(id, epoch)
}

// StartVerification begins the verification of a transactional batch and
// returns the guard that its append presents; NoGuard when the transaction is
// open here already. ErrInvalidEpoch: the producer was fenced.
func (l *Log) StartVerification(id int64, sequence int32, epoch int16, epochBump bool) (producer.Guard, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.producers.StartVerification(id, sequence, epoch, epochBump, l.nowMs())
}

// ExpireProducers forgets producers that have been silent for afterMs
// (producer.id.expiration.ms, which may have changed since the log was opened)
// and returns how many. The owner calls it every
// producer.id.expiration.check.interval.ms.
func (l *Log) ExpireProducers(now time.Time, afterMs int64) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.producers.SetExpiration(afterMs)
	return l.mu.producers.Expire(now.UnixMilli())
}
