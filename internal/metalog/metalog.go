package metalog

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/batch"
	"weir/internal/clock"
	"weir/internal/kraft"
	"weir/internal/records"
	"weir/internal/rng"
	"weir/internal/storage"
	"weir/internal/vfs"
)

// Options is what a Log is made of. All fields without a stated default are required.
type Options struct {
	FS        vfs.FS
	Dir       string // the metadata log directory (metadata.log.dir or the first of log.dirs)
	Self      kraft.Replica
	Endpoints []kraft.Endpoint // this node's controller listeners
	Voters    []kraft.Voter    // controller.quorum.voters; empty with dynamic voters
	Timeouts  kraft.Timeouts
	Limits    Limits
	Clock     clock.Clock
	Rand      *rng.Source // owned by the Log from now on
	Logger    *slog.Logger
	Transport Transport // reaches the other replicas; may be nil when there are none
}

// Limits is the metadata log's share of the settings.
type Limits struct {
	SegmentBytes   int32 // internal.metadata.log.segment.bytes or metadata.log.segment.bytes
	SegmentMs      int64 // metadata.log.segment.ms
	RetentionBytes int64 // metadata.max.retention.bytes; negative: no limit
	RetentionMs    int64 // metadata.max.retention.ms; negative: no limit
	MaxBatchBytes  int32 // internal.metadata.max.batch.size.in.bytes
	DeleteDelayMs  int64 // internal.metadata.delete.delay.millis
	// CleanIntervalMs is how often retention looks at log and snapshots; 0: once a minute.
	CleanIntervalMs int64
}

// PartitionDir is the directory of the metadata partition within a log directory.
const PartitionDir = "__cluster_metadata-0"

// NotLeaderError refuses an append: this node does not lead in that epoch.
type NotLeaderError struct {
	Epoch  int32
	Leader kraft.LeaderAndEpoch // what is known instead
}

func (e *NotLeaderError) Error() string {
	return fmt.Sprintf("metadata log: not the leader of epoch %d: the leader is %d in epoch %d", e.Epoch, e.Leader.ID, e.Leader.Epoch)
}

// ErrNoSpace is wrapped by an Append's error when the disk is full.
var ErrNoSpace = storage.ErrNoSpace

// TooLargeError refuses records that do not fit into one batch. Nothing was written.
type TooLargeError struct{ Size, Limit int }

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("metadata log: a batch of %d bytes is over the limit of %d", e.Size, e.Limit)
}

// Transport carries the core's requests to other replicas. Send must not block
// and must not call back before it has returned; each request is answered once
// through Log.Response, with a nil body when no answer came.
type Transport interface {
	Send(s kraft.Send)
}

// Batch is one committed batch. Record i has offset Base+i. A batch of control
// records comes without Records: it only moves the position.
type Batch struct {
	Base, Last  int64
	Epoch       int32
	TimestampMs int64
	Bytes       int // on disk
	Records     []records.Versioned
}

// Snapshot is a committed state to start from. Records may be iterated once; an
// error ends it.
type Snapshot struct {
	ID          kraft.Position
	TimestampMs int64 // of the last record contained
	Records     iter.Seq2[records.Versioned, error]
}

// Listener learns what is committed, in order, from one goroutine. Its methods
// must not block for long and may call the Log. An error is fatal: Poll and Run
// return it.
type Listener interface {
	// Committed is called with each batch, in offset order, without holes after
	// the last snapshot loaded.
	Committed(b Batch) error
	// LoadSnapshot replaces everything told before.
	LoadSnapshot(s Snapshot) error
	// LeaderChanged tells of a leader or epoch. That this node itself leads is
	// told only once every record below its epoch has been.
	LeaderChanged(l kraft.LeaderAndEpoch) error
}

// Log is the metadata log of one node. Its methods may be called from any
// goroutine, Poll, Run and Close except: see there.
type Log struct {
	o         Options
	dir       string // of the partition
	store     *storage.Log
	listeners []Listener // fixed from the first Poll on
	wake      chan struct{}

	// mu orders everything that changes the log or the core. Under it there are
	// page-cache writes, and the fsync of quorum-state: until that is durable no
	// other step may be taken, so there is nothing that it could hold up. Never
	// under it: a flush of the log, a listener, a reply. store's locks come after.
	mu        sync.Mutex
	core      *kraft.Core
	err       error // fatal; every later call fails with it
	snapshots []kraft.Position
	deletes   []dueDelete
	fresh     []Batch // appended here and not delivered yet, so that they need not be parsed
	cuts      int     // truncations so far
	news      *kraft.LeaderAndEpoch
	requests  map[uint64]func(kraft.ResponseBody, []vfs.Region)
	nextRef   uint64
	outbox    []func() // calls out, made by unlock
	install   *install
	stall     *stall    // nil unless the disk is full; see there
	retryAt   time.Time // when the leader is asked again for what found no space; zero: all did
	// retryInstall: it is a snapshot that found none.
	retryInstall bool

	// What readers see without mu.
	leader  atomic.Pointer[kraft.LeaderAndEpoch]
	hw, end atomic.Int64

	// Of the goroutine that polls.
	started   bool
	delivered int64           // listeners were told everything below
	load      *kraft.Position // snapshot to be told to listeners first
	cleanAt   time.Time
	fullAt    time.Time // when the disk was found full in this Poll; zero: it was not
	buf       batch.Buffers
}

// Register adds a listener. It is called before the first Poll.
func (l *Log) Register(li Listener) { l.listeners = append(l.listeners, li) }

// Run polls until ctx ends or an error stops the log.
func (l *Log) Run(ctx context.Context) error {
	alarm := clock.NewAlarm(l.o.Clock, time.Hour)
	defer alarm.Stop()
	for {
		next, err := l.Poll()
		if err != nil {
			return err
		}
		alarm.Set(next.Sub(l.o.Clock.Now()))
		select {
		case <-ctx.Done():
			return nil
		case <-l.wake:
		case <-alarm.C:
		}
	}
}

// Leader is who leads, as far as this node knows.
func (l *Log) Leader() kraft.LeaderAndEpoch { return *l.leader.Load() }

// HighWatermark is the offset below which all is committed, -1 while unknown.
func (l *Log) HighWatermark() int64 { return l.hw.Load() }

// LogEnd is the offset that the next record gets.
func (l *Log) LogEnd() int64 { return l.end.Load() }

// Size is the bytes of the log's segments.
func (l *Log) Size() int64 { return l.store.Size() }

// Quorum describes the quorum as its leader sees it; ok is false elsewhere.
func (l *Log) Quorum() (q kraft.Quorum, ok bool) {
	l.mu.Lock()
	defer l.unlock()
	if l.step(kraft.Tick{}) != nil || l.stall != nil { // the leader's own times are those of the last step
		return q, false
	}
	return l.core.Quorum()
}

// Voters is the voter set in force and the kraft.version.
func (l *Log) Voters() (kraft.VoterSet, int16) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.core.Voters()
}

// Bootstrap returns the records of bootstrap.checkpoint, which the first active
// controller of a cluster writes into the empty log; nil when there is no file.
func (l *Log) Bootstrap() ([]records.Versioned, error) { return ReadBootstrap(l.o.FS, l.o.Dir) }

// Close flushes and closes. Run has returned before, and nothing is called after.
func (l *Log) Close() error {
	l.mu.Lock()
	l.dropInstall()
	if l.err == nil {
		l.err = storage.ErrClosed
	}
	for ref := range l.requests {
		l.answer(ref, nil, nil)
	}
	l.release()
	return l.store.Close()
}
