// Package txn is the transaction coordinator's core for one partition of
// __transaction_state: the transactional ids that fall on that partition.
//
// [State] is what is replicated: a value that is never changed, made anew by
// [State.Apply] from the partition's records, live and at restart alike. [Core]
// has the requests: each method looks at the state and returns a [Result]:
// records to append, and markers to send once they are committed. It changes
// nothing of the state itself.
//
//	          InitProducerId                    AddPartitionsToTxn
//	(none) ──────────────────▶ Empty ──────────────────────────────▶ Ongoing
//	                            ▲  ▲                                  │    │
//	             InitProducerId │  │ AddPartitionsToTxn ┌─────────────┘    │
//	                            │  └──▶ Ongoing         │ EndTxn commit    │ EndTxn abort, timeout,
//	                            │                       ▼                  ▼ InitProducerId of another
//	                            │                 PrepareCommit      PrepareAbort
//	                            │                       │ all markers      │ all markers
//	                            │                       ▼ are written      ▼ are written
//	                            └──────────────── CompleteCommit     CompleteAbort
//
// Once PrepareCommit or PrepareAbort is committed the outcome stands, whoever
// leads: every partition of the transaction gets a marker, and then the
// transaction is complete. Which markers are still missing is not replicated:
// a new leader sends all of them again, which partitions take as repeats.
//
// # Epochs
//
// A producer writes with an epoch; each one below the current is fenced.
// InitProducerId bumps it, a transaction that is aborted for its producer bumps
// it, and under transaction.version 2 (KIP-890) each end of a transaction does.
// When it is used up (32766), the id gets a new producer id and epoch 0.
//
// # Records
//
// Keys and values begin with their type and version, both int16:
//
//	key                    value
//	0  TransactionLogKey   TransactionLogValue v1, v0 below transaction.version 1; null: no such id any more
package txn
