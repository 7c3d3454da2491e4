// Package cleaner compacts logs: of each key it keeps the last record. It is Apache Kafka 4.3.1's LogCleaner.
//
// A log that is compacted has a clean head, a dirty part, and a tail that is not touched:
//
//	log start        first dirty offset       first uncleanable offset                 log end
//	   │  compacted before  │   not seen by the cleaner   │  active segment, above the LSO,  │
//	   │                    │                             │  too young, not yet durable      │
//
// One run over a log reads the dirty part once and notes each key's last offset (offsetMap, of bounded size: when it is
// full the run ends earlier). Then it writes all segments below that anew, group by group, and puts the new segments in
// the place of the old ones (storage.Compaction). The first offset that it has not seen is the log's checkpoint, in
// cleaner-offset-checkpoint of the directory.
//
// # What stays
//
//   - the last record of a key, and all that lies above what the offset map has seen
//   - a tombstone until its delete horizon: the first run that sees it writes now + delete.retention.ms into its batch
//     (KIP-534). Message sets v0/v1 become v2 batches, as in Kafka 4; those that the run reads as message sets lose their
//     tombstones when their segment is delete.retention.ms older than the last clean one
//   - the marker of a transaction while records of the transaction stay, and until a horizon of its own after that
//   - nothing of an aborted transaction; its entry in the transaction index stays as long as its marker
//   - the newest batch of each producer, and the last batch of a run, empty if need be: sequences and offsets go on
//   - offsets: no record ever gets another one
//
// Records without a key go: produce refuses them on a compacted topic, but a topic may have become one.
//
// # Which log is next
//
// The one with the largest share of dirty bytes, if that is above min.cleanable.dirty.ratio or a record is older than
// max.compaction.lag.ms (plan.go). A log that cannot be cleaned is named, passed over until it is opened anew, and
// counted; the others go on.
//
// Files by subject: plan.go which log and which offsets, keep.go what stays of a batch, txns.go transactions, offsetmap.go
// (all pure); run.go one run over a log; cleaner.go the runtime, throttle.go, stats.go.
package cleaner
