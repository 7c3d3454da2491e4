// Package producer keeps what a replica's log knows about idempotent and
// transactional producers: Kafka's ProducerStateManager.
//
// For every producer id it holds the epoch, the last five batches (sequence
// and offset ranges), the coordinator epoch and the first offset of an open
// transaction. With that it answers three questions of an append:
//
//   - is this batch a repeat of one of the last five? Then the original
//     offsets are the answer and nothing is written;
//   - does it follow the last one (sequence + 1) in a current epoch?
//   - which offset is the first one that belongs to an undecided transaction
//     (the last stable offset ends there)?
//
// # Use
//
// A State has no lock and starts no goroutine: its log calls it under the
// append lock. One append is Begin, Stage for every batch, then either Commit
// (after the bytes are in the log) or nothing: the next Begin forgets what was
// staged, so a failed write leaves the state as it was.
//
// # Snapshot file
//
// "OFFSET.snapshot" (20 digits) holds the state of all producers after every
// record below OFFSET. Big endian, schema ProducerSnapshot version 1:
//
//	offset  size
//	0       2     version = 1
//	2       4     CRC-32C of everything from offset 6
//	6       4     number of entries
//	10      8     producer id          ┐
//	18      2     producer epoch       │
//	20      4     last sequence        │
//	24      8     last offset          │ 46 bytes an entry
//	32      4     offset delta         │
//	36      8     last timestamp (ms)  │
//	44      4     coordinator epoch    │
//	48      8     first offset of the  │
//	              open transaction, -1 ┘
//
// Only the last batch of each producer is stored, so after a restart duplicates
// of older ones are known only as far as the log itself is replayed.
package producer
