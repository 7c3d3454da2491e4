package txns

import (
	"weir/internal/batch"
	"weir/internal/coordinator"
	"weir/internal/txn"
)

// codec is the records of __transaction_state.
type codec struct{}

// Encode is coordinator.Codec's.
func (codec) Encode(r *txn.Record) (key, value []byte) { return r.Append(nil) }

// Envelope is coordinator.Codec's.
func (codec) Envelope(*txn.Record) coordinator.Envelope { return coordinator.Plain() }

// Decode is coordinator.Codec's.
func (codec) Decode(_ batch.Entry, r *batch.Record, _ int64) (txn.Record, bool, error) {
	return txn.ParseRecord(r.Key, r.Value)
}
