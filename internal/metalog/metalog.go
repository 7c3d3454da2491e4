package metalog

import (
	"context"
	"iter"
	"log/slog"
	"time"

	"weir/internal/clock"
	"weir/internal/kraft"
	"weir/internal/records"
	"weir/internal/rng"
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
// goroutine except where they say otherwise.
type Log struct {
	o Options
}

// Open loads the log, repairs it after a crash and takes up the role that
// quorum-state allows. It starts no goroutine.
func Open(o Options) (*Log, error) { panic("not built yet") }

// Register adds a listener. It is called before the first Poll.
func (l *Log) Register(li Listener) { panic("not built yet") }

// Run polls until ctx ends or an error stops the log.
func (l *Log) Run(ctx context.Context) error { panic("not built yet") }

// Poll does everything that is due and returns when to call it again at the
// latest. One goroutine calls it; Run does.
func (l *Log) Poll() (next time.Time, err error) { panic("not built yet") }

// Append writes recs at the log's end, if this node leads in epoch, and returns
// the offset of the last one. They are not committed yet: a Listener is told.
// With atomic all go into one batch, or *TooLargeError; without, into as many
// as the batch limit asks for. *NotLeaderError says that the epoch is over.
func (l *Log) Append(epoch int32, recs []records.Versioned, atomic bool) (last int64, err error) {
	panic("not built yet")
}

// Resign gives up leadership in epoch.
func (l *Log) Resign(epoch int32) { panic("not built yet") }

// Request hands in a request of another replica; reply is called once, from any
// goroutine, perhaps before Request returns.
func (l *Log) Request(from int32, body kraft.RequestBody, reply func(kraft.ResponseBody, []vfs.Region)) {
	panic("not built yet")
}

// Response hands in what came of a Transport.Send.
func (l *Log) Response(r kraft.Response) { panic("not built yet") }

// Leader is who leads, as far as this node knows.
func (l *Log) Leader() kraft.LeaderAndEpoch { panic("not built yet") }

// HighWatermark is the offset below which all is committed, -1 while unknown.
func (l *Log) HighWatermark() int64 { panic("not built yet") }

// LogEnd is the offset that the next record gets.
func (l *Log) LogEnd() int64 { panic("not built yet") }

// Quorum describes the quorum as its leader sees it; ok is false elsewhere.
func (l *Log) Quorum() (q kraft.Quorum, ok bool) { panic("not built yet") }

// Bootstrap returns the records of bootstrap.checkpoint, which the first active
// controller of a cluster writes into the empty log; nil when there is no file.
func (l *Log) Bootstrap() ([]records.Versioned, error) { panic("not built yet") }

// WriteSnapshot makes a snapshot of the state that the records up to and with
// offset last made; timestampMs is that record's. It does nothing when there is
// one of that offset or a later one. It blocks for the writing.
func (l *Log) WriteSnapshot(last int64, epoch int32, timestampMs int64, recs iter.Seq[records.Versioned]) error {
	panic("not built yet")
}

// Close flushes and closes. Run has returned before.
func (l *Log) Close() error { panic("not built yet") }
