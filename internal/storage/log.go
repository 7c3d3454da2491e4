package storage

import (
	"errors"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"

	"weir/internal/batch"
	"weir/internal/clock"
	"weir/internal/config"
	"weir/internal/invariant"
	"weir/internal/storage/epoch"
	"weir/internal/storage/producer"
	"weir/internal/storage/segment"
	"weir/internal/uuid"
	"weir/internal/vfs"
)

// Log is one replica's log. All methods are safe for concurrent use.
type Log struct {
	fs        vfs.FS
	dir       *segment.Dir // renamed by the holder of flushMu and mu
	topic     string
	partition int32
	name      string // topic-partition
	clock     clock.Clock
	rand      Dice // guarded by mu
	logger    *slog.Logger
	buffers   *segment.Buffers
	files     *FileLimiter
	lowered   func(recoveryPoint int64) error

	epochs *epoch.Cache

	// What readers load; replaced as a whole under mu.
	view atomic.Pointer[view]
	cfg  atomic.Pointer[config.Topic]
	// recovery is the recovery point: everything below it survives a power cut.
	// Written under mu, raised only by the holder of flushMu.
	recovery    atomic.Int64
	lastFlushMs atomic.Int64
	// nextTick is when Tick has something to do, in ms; far away when idle.
	nextTick atomic.Int64

	// flushMu is held while files are fsynced, and by all that must not race
	// with that: truncate, rename, delete, close. Taken before mu.
	flushMu sync.Mutex

	mu struct {
		sync.Mutex
		topicID uuid.UUID
		// topicIDUnsaved: partition.metadata is not there yet, or a power cut may take
		// it; unsyncedDir: the same of the directory's own name. See secure.go.
		topicIDUnsaved bool
		unsyncedDir    bool
		view           view // the working copy; publish makes it visible

		producers *producer.State
		jitterMs  int64  // taken off segment.ms of the active segment
		cuts      uint64 // truncations so far, see Compaction
		doomed    []doomed

		// unsyncedSnapshots are producer snapshots written since the last flush;
		// unsyncedNames says that files were created or renamed since then.
		unsyncedSnapshots []int64
		unsyncedNames     bool
	}
}

// view is one immutable picture of the log.
//
// Invariant: logStart <= hw <= logEnd; segments are in offset order and at
// least one; segments[0].BaseOffset() <= logStart unless the log was emptied.
type view struct {
	segments  []*segment.Segment // the last one is active
	logStart  int64
	hw        int64
	logEnd    int64
	unstable  int64 // first offset of the oldest undecided transaction, -1 when none
	activeEnd int64 // bytes of the active segment below logEnd
	gone      error // ErrClosed, or why the log cannot be used any more
}

func (v *view) active() *segment.Segment { return v.segments[len(v.segments)-1] }

// end is the number of bytes of segment i that belong to the view.
func (v *view) end(i int) int64 {
	if i == len(v.segments)-1 {
		return v.activeEnd
	}
	return v.segments[i].Size()
}

// floor is the index of the segment that may hold offset: the last one that
// starts at or below it, or the first.
func (v *view) floor(offset int64) int {
	lo, hi := 0, len(v.segments)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if v.segments[mid].BaseOffset() <= offset {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return max(lo-1, 0)
}

func (v *view) lastStable() int64 {
	if v.unstable >= 0 && v.unstable < v.hw {
		return v.unstable
	}
	return v.hw
}

func (v *view) size() int64 {
	var n int64
	for i := range v.segments {
		n += v.end(i)
	}
	return n
}

// publishLocked makes the working copy what readers see.
func (l *Log) publishLocked() {
	v := l.mu.view
	if !(v.logStart <= v.hw && v.hw <= v.logEnd && l.recovery.Load() <= v.logEnd && len(v.segments) > 0) {
		// Apart, so that the numbers are only made into arguments when they are needed.
		invariant.Check(false, "%s: log start %d <= high watermark %d <= log end %d, recovery point %d <= log end, segments %d > 0",
			l.name, v.logStart, v.hw, v.logEnd, l.recovery.Load(), len(v.segments))
	}
	l.view.Store(&v)
}

// updateUnstableLocked takes over the first unstable offset, which is never
// below the log start.
func (l *Log) updateUnstableLocked() {
	v := &l.mu.view
	v.unstable = -1
	if o, ok := l.mu.producers.FirstUnstable(); ok {
		v.unstable = max(o, v.logStart)
	}
}

// Name is TOPIC-PARTITION.
func (l *Log) Name() string { return l.name }

// Topic is the topic's name.
func (l *Log) Topic() string { return l.topic }

// Partition is the partition's number.
func (l *Log) Partition() int32 { return l.partition }

// Dir is the present directory.
func (l *Log) Dir() string { return l.dir.Path() }

// Offsets returns offsets that belong together. Takes no lock, as do the
// single ones below.
func (l *Log) Offsets() Offsets {
	v := l.view.Load()
	return Offsets{LogStart: v.logStart, HighWatermark: v.hw, LastStable: v.lastStable(), LogEnd: v.logEnd, FirstUnstable: v.unstable}
}

// LogStart is the first offset that may be read.
func (l *Log) LogStart() int64 { return l.view.Load().logStart }

// LogEnd is the offset that the next record gets.
func (l *Log) LogEnd() int64 { return l.view.Load().logEnd }

// HighWatermark is the offset below which every in-sync replica has the log.
func (l *Log) HighWatermark() int64 { return l.view.Load().hw }

// FirstUnstable is the first offset of the oldest undecided transaction, -1 when none.
func (l *Log) FirstUnstable() int64 { return l.view.Load().unstable }

// LastStable is the offset below which a read-committed consumer may read.
func (l *Log) LastStable() int64 { return l.view.Load().lastStable() }

// RecoveryPoint is the offset below which everything is fsynced.
func (l *Log) RecoveryPoint() int64 { return l.recovery.Load() }

// Size is the number of bytes of all segments.
func (l *Log) Size() int64 { return l.view.Load().size() }

// NumSegments is the number of segments.
func (l *Log) NumSegments() int { return len(l.view.Load().segments) }

// ActiveBase is the base offset of the active segment.
func (l *Log) ActiveBase() int64 { return l.view.Load().active().BaseOffset() }

// Segments returns the segments in order, the active one last, for the cleaner
// and tools; the slice is shared and must not be changed.
func (l *Log) Segments() []*segment.Segment { return l.view.Load().segments }

// Config is the topic's configuration; read-only.
func (l *Log) Config() *config.Topic { return l.cfg.Load() }

// SetConfig takes a new configuration; it holds from the next append, roll or
// retention run on.
func (l *Log) SetConfig(c *config.Topic) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cfg.Store(c)
	for _, s := range l.mu.view.segments {
		s.SetConfig(c.IndexIntervalBytes, c.SegmentIndexBytes)
	}
	l.wakeTickLocked()
}

// SetHighWatermark moves the high watermark, clamped to [log start, log end],
// and returns what it became. It may fall: a new leader or a follower after
// truncation knows less.
func (l *Log) SetHighWatermark(hw int64) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := &l.mu.view
	hw = min(max(hw, v.logStart), v.logEnd)
	if v.gone == nil && hw != v.hw {
		v.hw = hw
		l.mu.producers.OnHighWatermark(hw)
		l.updateUnstableLocked()
		l.publishLocked()
	}
	return v.hw
}

// SetLogStart raises the log start offset (DeleteRecords, or a follower that
// hears of its leader's) and reports whether it moved. Segments below it go
// with the next retention run. *OutOfRangeError: above the high watermark.
func (l *Log) SetLogStart(offset int64) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.mu.view.gone; err != nil {
		return false, err
	}
	return l.setLogStartLocked(offset)
}

func (l *Log) setLogStartLocked(offset int64) (bool, error) {
	v := &l.mu.view
	if offset > v.hw {
		return false, &OutOfRangeError{Name: l.name, Offset: offset, Start: v.logStart, End: v.hw}
	}
	if offset <= v.logStart {
		return false, nil
	}
	v.logStart = offset
	l.epochs.TruncateFromStart(offset)
	l.mu.producers.OnLogStart(offset)
	l.updateUnstableLocked()
	l.publishLocked()
	return true, nil
}

// nowMs is the clock in Kafka's unit.
func (l *Log) nowMs() int64 { return l.clock.Now().UnixMilli() }

// segmentError places an error of a segment's method: damaged bytes take the
// partition offline (*CorruptError), a failed operation its directory
// (*DiskError).
func (l *Log) segmentError(dir, op string, seg *segment.Segment, offset int64, err error) error {
	var inside *batch.CorruptError
	if file, bad := corruptFile(err); bad {
		return &CorruptError{Dir: dir, File: file, Offset: offset, Err: err}
	} else if errors.As(err, &inside) {
		return &CorruptError{Dir: dir, File: filepath.Base(seg.LogPath()), Offset: offset, Err: err}
	}
	return diskError(dir, op, err)
}

// storageError is segmentError where no single offset is to blame.
func storageError(dir, op string, err error) error {
	if file, bad := corruptFile(err); bad {
		return &CorruptError{Dir: dir, File: file, Offset: -1, Err: err}
	}
	return diskError(dir, op, err)
}

func (l *Log) diskLocked(op string, err error) error { return storageError(l.Dir(), op, err) }

// corruptFile is the name of the file that a segment found damaged.
func corruptFile(err error) (string, bool) {
	var bad *segment.CorruptError
	var index *segment.CorruptIndexError
	switch {
	case errors.As(err, &bad):
		return filepath.Base(bad.File), true
	case errors.As(err, &index):
		return filepath.Base(index.File), true
	}
	return "", false
}
