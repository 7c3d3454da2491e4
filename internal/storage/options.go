package storage

import (
	"log/slog"
	"time"

	"weir/internal/clock"
	"weir/internal/config"
	"weir/internal/storage/producer"
	"weir/internal/storage/segment"
	"weir/internal/uuid"
	"weir/internal/vfs"
)

// Dice is the randomness a log needs: the jitter of segment.ms.
type Dice interface {
	Int64N(n int64) int64
}

// Options opens one log.
type Options struct {
	FS        vfs.FS
	Dir       string // the log's directory; created when missing
	Topic     string
	Partition int32
	TopicID   uuid.UUID // Zero when unknown; else stored in, or compared with, partition.metadata
	Config    *config.Topic

	// Checkpointed by storage/dirs; 0 when the checkpoint has no entry.
	RecoveryPoint int64
	LogStart      int64
	// Cleaned is the cleaner's checkpoint: below it offsets may be missing
	// between segments.
	Cleaned int64
	// HadCleanShutdown: the directory's clean-shutdown marker was there, so
	// nothing needs recovery.
	HadCleanShutdown bool
	// Intact: no write of the process that had the log before has been lost (vfs.FS.Session), so that after an unclean stop
	// only its last one may be torn. It makes recovery faster and changes nothing else.
	Intact bool

	Clock    clock.Clock
	Rand     Dice // nil: no jitter
	Logger   *slog.Logger
	Producer producer.Config
	Files    *FileLimiter // open files shared by all logs; nil: files stay open until CloseIdle

	// Lowered is told, before Truncate returns, that the recovery point has
	// fallen: the checkpoint must not stay above it, or records that are appended
	// next would be believed to be fsynced. May be nil.
	Lowered func(recoveryPoint int64) error
	// Buffers is scratch memory shared by all logs; nil: this log has its own.
	Buffers *segment.Buffers

	// Progress is told during recovery, from the goroutine that opens.
	Progress func(Progress)
}

// Progress is a step of recovery.
type Progress struct {
	Dir       string
	Remaining int // segments still to recover, the one beginning now included
	Segment   int64
	Size      int64 // bytes of that segment
	Offset    int64 // reached within it
	Read      int64 // bytes that have been read since the last step, of those that RecoverySize counts
}

// Append says how bytes enter the log.
type Append struct {
	LeaderEpoch int32
	Origin      producer.Origin
	// Assign is true on a leader: the batches get the next offsets and
	// LeaderEpoch, patched in place (they lie outside the CRC), and, under
	// message.timestamp.type=LogAppendTime, the timestamp was set by the
	// validation before. Offsets of a follower's batches are taken as they are.
	Assign bool
	// Guard is the verification of a transactional batch (StartVerification).
	Guard producer.Guard
	// TxnVersion is the transaction.version under which markers are written; -1 when none are.
	TxnVersion int16
	// Unverified lets transactional batches in that have no Guard.
	Unverified bool
}

// Appended is what an append did.
type Appended struct {
	FirstOffset, LastOffset int64
	MaxTimestamp            int64 // of the batches, or of the original when Duplicate
	LogStart                int64
	LogAppendTimeMs         int64 // -1 unless message.timestamp.type is LogAppendTime
	// Duplicate: the batch repeats one of the producer's last five; nothing
	// was written and the offsets are the original's.
	Duplicate bool
}

// ReadResult is what a read found. The caller owns the regions and releases
// each of them (Release does).
type ReadResult struct {
	Regions []vfs.Region
	// FirstBatchOffset is the base offset of the first batch in Regions; with
	// no regions it is the offset that was asked for.
	FirstBatchOffset int64
	Size             int64 // bytes in Regions
	// FirstBatchCut: the first batch is larger than maxBytes, and minOne was not
	// set: Regions hold only a part of it, or none. Fetch v3 and later answers
	// nothing then, older ones the part.
	FirstBatchCut bool
	// SegmentBase and Position locate the asked offset in the log, for
	// counting the bytes between two offsets.
	SegmentBase, Position int64
}

// Release gives up all regions.
func (r *ReadResult) Release() {
	for _, g := range r.Regions {
		g.Release()
	}
	r.Regions = nil
}

// Offsets is one consistent set of the log's offsets.
type Offsets struct {
	LogStart, HighWatermark, LastStable, LogEnd int64
	// FirstUnstable is the first offset of the oldest undecided transaction, -1 when none.
	FirstUnstable int64
}

// EpochEnd answers OffsetForLeaderEpoch: the largest epoch at or below the
// asked one, and where it ends. Both are -1 when unknown.
type EpochEnd struct {
	Epoch     int32
	EndOffset int64
}

// TimestampOffset is the answer to a time lookup. LeaderEpoch is -1 when unknown.
type TimestampOffset struct {
	Timestamp   int64
	Offset      int64
	LeaderEpoch int32
}

// AbortedTxn is an aborted transaction that overlaps a read.
type AbortedTxn struct {
	ProducerID  int64
	FirstOffset int64
}

// ProducerState is one active producer, as DescribeProducers answers.
type ProducerState struct {
	ProducerID       int64
	ProducerEpoch    int32
	LastSequence     int32
	LastTimestamp    int64
	CoordinatorEpoch int32
	TxnStartOffset   int64 // -1 when no transaction is open
}

// PendingDelete is a set of renamed files that may be removed from Due on.
type PendingDelete struct {
	Due   time.Time
	Paths []string
}
