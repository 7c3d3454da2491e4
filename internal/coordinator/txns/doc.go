// Package txns is the transaction coordinator of a broker: it runs the core of
// package txn over the partitions of __transaction_state that this broker leads.
//
//	InitProducerId, AddPartitionsToTxn, EndTxn ─▶ Coordinator (requests.go) ─▶ txn.Core ─▶ record
//	                                                                               │ committed
//	partitions' leaders ◀─ WriteTxnMarkers ◀─ a queue for each broker (markers.go) ◀┘
//	        │ all have their marker
//	        └────────────▶ txn.Core ─▶ the record that completes the transaction
//
// The other direction is [Coordinator.Ask] (ask.go): a leader of partitions asks
// the coordinator of a transactional id, on whatever broker it is, whether a
// partition is part of a transaction before it appends the first batch (KIP-890).
//
// A marker is sent until its partition has it, or is deleted; who leads the
// partition is looked up for each attempt. Requests to one broker go one at a
// time and carry all that has come meanwhile. What a coordinator has not brought to
// its end when it loses its partition, the next one does: it finds the outcome in
// the log.
//
// # Locks
//
// A queue's lock is a leaf: nothing is called under it.
package txns
