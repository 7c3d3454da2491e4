package coordinator

import (
	"weir/internal/batch"
	"weir/internal/group"
	"weir/internal/records"
	"weir/internal/storage/producer"
)

// groupCodec is the records of __consumer_offsets.
type groupCodec struct{}

// Encode is Codec's.
func (groupCodec) Encode(r *group.Record) (key, value []byte) {
	if m := r.Marker; m != nil {
		e := records.EndTxn{Commit: m.Commit, CoordinatorEpoch: m.CoordinatorEpoch}
		return e.ControlKey(), e.ControlValue()
	}
	return r.Append(nil)
}

// Envelope is Codec's.
func (groupCodec) Envelope(r *group.Record) Envelope {
	e := Plain()
	if r.Producer == batch.NoProducerID {
		return e
	}
	e.ProducerID, e.Epoch, e.Guard, e.Unverified = r.Producer, r.Epoch, producer.Guard(r.Guard), r.Unverified
	if r.Marker != nil {
		e.Control, e.TxnVersion = true, r.Marker.Version
	}
	return e
}

// Decode is Codec's.
func (groupCodec) Decode(e batch.Entry, r *batch.Record, base int64) (group.Record, bool, error) {
	producer := batch.NoProducerID
	if b, ok := e.Batch(); ok {
		if b.IsTransactional() {
			producer = b.ProducerID()
		}
		if b.IsControl() {
			end, commit, err := ending(r)
			return group.Record{Producer: producer, Delta: int32(r.Offset - base), Marker: &group.Marker{Commit: commit}}, end, err
		}
	}
	out, err := group.ParseRecord(producer, r.Key, r.Value)
	out.Delta = int32(r.Offset - base)
	return out, err == nil, err
}

// ending reads a control record: whether it ends a transaction, and how.
func ending(r *batch.Record) (end, commit bool, err error) {
	m, err := records.ParseControl(r.Key, r.Value)
	if err != nil {
		return false, false, err
	}
	t, ok := m.(records.EndTxn)
	return ok, ok && t.Commit, nil
}
