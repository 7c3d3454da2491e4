package cleaner

import (
	"weir/internal/batch"
	"weir/internal/storage"
)

// round is what decides in one run over a log which records stay.
type round struct {
	nowMs     int64
	horizonMs int64 // the delete horizon of tombstones that are first seen: now + delete.retention.ms
	upper     int64 // the run ends here: the last batch below stays, if only empty
	offsets   *offsetMap
	producers map[int64]storage.LastRecord
	txns      *transactions
	// legacyDeletes: tombstones of message sets v0/v1 stay, for the segment is too young.
	legacyDeletes bool
	unkeyed       int64 // records without a key that were dropped
}

// judge says what is to stay of an entry; entries come in the order of the log. whole: all of it.
func (r *round) judge(e batch.Entry, buf *batch.Buffers) (f batch.Filter, whole bool, err error) {
	b, v2 := e.Batch()
	if !v2 {
		// No empty batch can be made of a message: the last one keeps its records.
		return batch.Filter{Keep: r.keepLegacy, HorizonMs: r.horizonMs}, e.LastOffset()+1 == r.upper, nil
	}
	var done bool // nothing of its transaction is left, or it was aborted
	if b.IsControl() {
		if done, err = r.txns.control(b, buf); err != nil {
			return batch.Filter{}, false, err
		}
	} else {
		done = r.txns.data(b)
	}
	drop := done
	if b.IsControl() {
		drop = done && b.HasDeleteHorizon() && b.BaseTimestamp() <= r.nowMs
	}
	f = batch.Filter{
		Empty:     r.isLastOfProducer(b) || b.NextOffset() == r.upper,
		Marker:    done && b.IsControl(),
		HorizonMs: r.horizonMs,
	}
	switch {
	case drop:
		f.Keep = func(*batch.Record) bool { return false }
	case b.IsControl():
		f.Keep = func(*batch.Record) bool { return true }
	default:
		// A tombstone stays until its horizon, and the first run that sees it sets that.
		deletes := !b.HasDeleteHorizon() || r.nowMs < b.BaseTimestamp()
		f.Keep = func(rec *batch.Record) bool { return r.keep(rec, deletes) }
	}
	return f, false, nil
}

// isLastOfProducer says that the batch is the newest of its producer, which has to stay for its sequence; of a producer
// with nothing but markers it is the marker.
func (r *round) isLastOfProducer(b batch.Batch) bool {
	if !b.HasProducerID() {
		return false
	}
	last, known := r.producers[b.ProducerID()]
	switch {
	case !known:
		return false
	case last.LastDataOffset >= 0:
		return b.LastOffset() == last.LastDataOffset
	}
	return b.IsControl() && b.ProducerEpoch() == last.Epoch
}

func (r *round) keepLegacy(rec *batch.Record) bool { return r.keep(rec, r.legacyDeletes) }

// keep says whether one record stays; deletes: tombstones do.
func (r *round) keep(rec *batch.Record, deletes bool) bool {
	switch {
	case rec.Offset > r.offsets.latest:
		return true
	case rec.Key == nil:
		r.unkeyed++
		return false
	case rec.Offset < r.offsets.get(rec.Key):
		return false
	}
	return rec.Value != nil || deletes
}
