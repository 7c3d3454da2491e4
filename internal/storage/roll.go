package storage

import (
	"errors"
	"math"

	"weir/internal/config"
	"weir/internal/storage/segment"
)

// maybeRollLocked starts a new segment when the active one must not take the
// append.
func (l *Log) maybeRollLocked(in *incoming) error {
	cfg := l.cfg.Load()
	roll, err := l.mu.view.active().ShouldRoll(segment.RollParams{
		MaxSegmentMs: segmentMs(cfg), JitterMs: l.mu.jitterMs, MaxSegmentBytes: cfg.SegmentBytes,
		MaxTimestamp: in.maxTs, MaxOffset: in.last, Bytes: int64(len(in.bytes)), NowMs: l.nowMs(),
	})
	if err != nil {
		return l.diskLocked("roll", err)
	}
	if !roll {
		return nil
	}
	// A follower may get a first offset above the log end (its leader has holes
	// from compaction). The hole then lies within the new segment: a hole between
	// segments is what a power cut leaves, see recoverSegment.
	base := l.mu.view.logEnd
	if in.last-base > math.MaxInt32 {
		base = in.first
	}
	return l.rollLocked(base)
}

// segmentMs is segment.ms; a compacted log rolls early enough for max.compaction.lag.ms.
func segmentMs(cfg *config.Topic) int64 {
	if cfg.CleanupCompact && cfg.MaxCompactionLagMs > 0 {
		return min(cfg.SegmentMs, cfg.MaxCompactionLagMs)
	}
	return cfg.SegmentMs
}

// Roll starts a new segment at the log end, unless the active one is empty.
func (l *Log) Roll() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.mu.view.gone; err != nil {
		return err
	}
	return l.rollLocked(l.mu.view.logEnd)
}

// rollLocked starts a new segment at base (>= logEnd). An empty active segment
// that already starts there stays; one that starts lower is kept too, as
// Kafka does. The old one is flushed by the next Tick.
func (l *Log) rollLocked(base int64) error {
	v := &l.mu.view
	old := v.active()
	if old.BaseOffset() == base && v.activeEnd == 0 {
		return nil
	}
	next, err := l.createSegment(base)
	if err != nil {
		return l.diskLocked("roll", err)
	}
	if err := old.Deactivate(); err != nil {
		return l.diskLocked("roll", errors.Join(err, next.Delete()))
	}
	l.mu.producers.SetMapEnd(base)
	l.snapshotLocked()
	segs := make([]*segment.Segment, len(v.segments)+1)
	copy(segs, v.segments)
	segs[len(segs)-1] = next
	v.segments, v.activeEnd = segs, 0
	l.mu.unsyncedNames = true
	l.mu.jitterMs = l.dice()
	l.publishLocked()
	l.wakeTickLocked()
	l.logger.Info("rolled a new segment", "partition", l.name, "offset", base)
	return nil
}

// createSegment makes an empty segment, in place of files that a crash may
// have left under its name.
func (l *Log) createSegment(base int64) (*segment.Segment, error) {
	if err := segment.Remove(l.fs, l.Dir(), base, ""); err != nil {
		return nil, err
	}
	return segment.Create(l.segmentOptions(base, ""))
}

func (l *Log) segmentOptions(base int64, suffix string) segment.Options {
	cfg := l.cfg.Load()
	return segment.Options{
		FS: l.fs, Dir: l.dir, BaseOffset: base, Suffix: suffix,
		IndexIntervalBytes: cfg.IndexIntervalBytes, MaxIndexBytes: cfg.SegmentIndexBytes,
		CreatedMs: l.nowMs(), Buffers: l.buffers, Opened: l.files.opened,
	}
}

// snapshotLocked writes the producer state. A snapshot only shortens a later
// recovery, so a failure is logged and the log goes on (a full disk must not
// stop it from being opened).
func (l *Log) snapshotLocked() {
	wrote, err := l.mu.producers.Snapshot()
	if err != nil {
		l.logger.Warn("cannot write a producer snapshot", "partition", l.name, "dir", l.Dir(), "err", err)
		return
	}
	if wrote {
		l.mu.unsyncedSnapshots = append(l.mu.unsyncedSnapshots, l.mu.producers.MapEnd())
		l.mu.unsyncedNames = true
	}
}

// dice draws the jitter of a new active segment, so that the logs of a topic
// do not all roll at once.
func (l *Log) dice() int64 {
	cfg := l.cfg.Load()
	if j := min(cfg.SegmentJitterMs, segmentMs(cfg)); l.rand != nil && j > 0 {
		return l.rand.Int64N(j)
	}
	return 0
}
