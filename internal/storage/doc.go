// Package storage keeps one replica's log in one directory, byte for byte as
// Apache Kafka keeps it (UnifiedLog), so that either may open what the other
// has left.
//
// # A directory
//
//	TOPIC-PARTITION/            .UUIDhex-delete, -future, -stray: see dirname.go
//	  OFFSET.log                record batches from OFFSET on        storage/segment
//	  OFFSET.index .timeindex   offset → position, time → offset     storage/segment
//	  OFFSET.txnindex           aborted transactions                 storage/segment
//	  OFFSET.snapshot           producer state below OFFSET          storage/producer
//	  leader-epoch-checkpoint   where each leader epoch starts       storage/epoch
//	  partition.metadata        the topic id
//	  *.deleted                 waiting for file.delete.delay.ms
//
// # Offsets
//
//	logStart <= highWatermark <= logEnd
//	logStart <= lastStable    <= highWatermark
//	recoveryPoint <= what is fsynced in log, indexes, snapshots, epoch file
//
// logStart and the recovery point are checkpointed by storage/dirs, which hands
// them back to Open. The high watermark is set by the partition.
//
// # Locks
//
// mu (the append lock) is held for memory work and page-cache writes: append,
// roll, truncate, retention. flushMu is held for fsyncs, never while mu is
// wanted by an append: a flush captures what to sync under mu, syncs without
// it, and takes mu again to publish the recovery point. Order: flushMu, mu.
// Reads take neither: they load one immutable view.
//
// A Log starts no goroutine and no timer. What must happen later (flush.ms,
// deletion of renamed files, expiry of producers) is done by methods that the
// owner's ticker calls with the time.
package storage
