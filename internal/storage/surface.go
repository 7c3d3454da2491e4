package storage

import (
	"io"
	"time"

	"weir/internal/config"
	"weir/internal/storage/epoch"
	"weir/internal/storage/producer"
	"weir/internal/uuid"
)

// Log is one replica's log.
type Log struct{}

// FileLimiter bounds the files that logs keep open.
type FileLimiter struct{}

func NewFileLimiter(capacity int) *FileLimiter { panic("not built yet") }

func Open(o Options) (*Log, error) { panic("not built yet") }

func (l *Log) Append(b []byte, a Append) (Appended, error) { panic("not built yet") }
func (l *Log) Read(from int64, maxBytes int, upTo int64, minOne bool) (ReadResult, error) {
	panic("not built yet")
}

// lock-free
func (l *Log) Offsets() Offsets      { panic("not built yet") }
func (l *Log) LogStart() int64       { panic("not built yet") }
func (l *Log) LogEnd() int64         { panic("not built yet") }
func (l *Log) HighWatermark() int64  { panic("not built yet") }
func (l *Log) FirstUnstable() int64  { panic("not built yet") } // -1 none
func (l *Log) LastStable() int64     { panic("not built yet") }
func (l *Log) RecoveryPoint() int64  { panic("not built yet") }
func (l *Log) Size() int64           { panic("not built yet") }
func (l *Log) NumSegments() int      { panic("not built yet") }
func (l *Log) Config() *config.Topic { panic("not built yet") }
func (l *Log) Dir() string           { panic("not built yet") }
func (l *Log) TopicID() uuid.UUID    { panic("not built yet") }
func (l *Log) ActiveBase() int64     { panic("not built yet") }

func (l *Log) SetHighWatermark(hw int64) int64         { panic("not built yet") } // clamps to [logStart, logEnd], returns what it became
func (l *Log) SetConfig(c *config.Topic)               { panic("not built yet") }
func (l *Log) AssignTopicID(id uuid.UUID) error        { panic("not built yet") }
func (l *Log) SetLogStart(off int64) (bool, error)     { panic("not built yet") } // DeleteRecords; *OutOfRangeError above HW
func (l *Log) Truncate(to int64) (bool, error)         { panic("not built yet") }
func (l *Log) TruncateFullyAndStartAt(off int64) error { panic("not built yet") }
func (l *Log) Roll() error                             { panic("not built yet") }

// Flush makes everything below upTo durable (upTo < 0: LogEnd).
func (l *Log) Flush(upTo int64) error { panic("not built yet") }

// Tick is the owner's ticker: flush.ms, due deletions, expired producers. Idle logs cost one atomic load.
func (l *Log) Tick(now time.Time) error                       { panic("not built yet") }
func (l *Log) Retain(now time.Time) (segments int, err error) { panic("not built yet") }
func (l *Log) PendingDeletes() []PendingDelete                { panic("not built yet") }
func (l *Log) RunDeletes(now time.Time) error                 { panic("not built yet") }
func (l *Log) ExpireProducers(now time.Time) int              { panic("not built yet") }

// epochs
func (l *Log) LatestEpoch() (int32, bool)                 { panic("not built yet") }
func (l *Log) AssignEpoch(epoch int32, start int64) error { panic("not built yet") }
func (l *Log) EndOffsetForEpoch(epoch int32) EpochEnd     { panic("not built yet") }
func (l *Log) EpochAt(offset int64) (int32, bool)         { panic("not built yet") }
func (l *Log) Epochs() []epoch.Entry                      { panic("not built yet") }

// times
func (l *Log) OffsetForTimestamp(ts int64) (TimestampOffset, bool, error) { panic("not built yet") }
func (l *Log) MaxTimestamp() (TimestampOffset, bool, error)               { panic("not built yet") }

// OffsetsBefore answers ListOffsets v0.
func (l *Log) OffsetsBefore(ts int64, max int) ([]int64, error) { panic("not built yet") }

// producers
func (l *Log) AbortedTransactions(from, to int64) ([]AbortedTxn, error) { panic("not built yet") }
func (l *Log) ActiveProducers() []ProducerState                         { panic("not built yet") }
func (l *Log) HasLateTransaction(nowMs int64) bool                      { panic("not built yet") }
func (l *Log) StartVerification(id int64, sequence int32, epoch int16, epochBump bool) (producer.Guard, error) {
	panic("not built yet")
}
func (l *Log) HasOpenTransaction(id int64, epoch int16) bool { panic("not built yet") }

// life
// Rename moves the directory to its name of this kind within the same log dir (Deleted, Stray, Future, Current).
func (l *Log) Rename(kind Kind, rand io.Reader) error { panic("not built yet") }
func (l *Log) Delete() error                          { panic("not built yet") } // removes the directory
func (l *Log) Close() error                           { panic("not built yet") } // clean: flush, snapshot, trim indexes
func (l *Log) CloseIdle() error                       { panic("not built yet") } // closes the open files until the next use
func (l *Log) Crash()                                 { panic("not built yet") } // closes files as a killed process does, writing nothing
