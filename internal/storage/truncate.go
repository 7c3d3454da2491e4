package storage

import (
	"fmt"
	"slices"

	"weir/internal/storage/segment"
)

// Truncate removes every batch that holds offset to or a later one, and
// reports whether there were any. When the log starts above to it is emptied
// and starts there.
//
// The cut is durable when Truncate returns, and Options.Lowered was told when
// the recovery point fell with it. The caller sees to it that nothing is
// appended meanwhile. An error leaves the log unusable until it is opened
// again.
func (l *Log) Truncate(to int64) (bool, error) {
	if to < 0 {
		return false, fmt.Errorf("cannot truncate partition %s to a negative offset (%d)", l.name, to)
	}
	return l.cut(func() (bool, error) { return l.truncateLocked(to) })
}

// TruncateFullyAndStartAt removes everything; the next record gets offset at.
// It holds for Truncate's terms.
func (l *Log) TruncateFullyAndStartAt(at int64) error {
	_, err := l.cut(func() (bool, error) { return true, l.restartLocked(at) })
	return err
}

// cut runs a truncation and makes it durable before anything is appended: new
// batches must not be able to survive a power cut together with parts of the
// old ones.
func (l *Log) cut(truncate func() (bool, error)) (bool, error) {
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	before := l.recovery.Load()
	active, dir, done, err := l.cutLocked(truncate)
	if err != nil || !done {
		return done, err
	}
	err = active.Flush()
	if err == nil {
		err = l.fs.SyncDir(dir)
	}
	if after := l.recovery.Load(); err == nil && after < before && l.lowered != nil {
		err = l.lowered(after)
	}
	if err == nil {
		return true, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return true, l.failLocked("truncate", err)
}

func (l *Log) cutLocked(truncate func() (bool, error)) (*segment.Segment, string, bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.mu.view.gone; err != nil {
		return nil, "", false, err
	}
	l.mu.cuts++
	done, err := truncate()
	if err != nil {
		err = l.failLocked("truncate", err)
	}
	return l.mu.view.active(), l.Dir(), done, err
}

// failLocked makes the log unusable: what is in memory and what is on disk may
// differ.
func (l *Log) failLocked(op string, err error) error {
	err = l.diskLocked(op, err)
	l.mu.view.gone = err
	v := l.mu.view
	l.view.Store(&v)
	return err
}

func (l *Log) truncateLocked(to int64) (bool, error) {
	v := &l.mu.view
	if to >= v.logEnd {
		// The epochs may still conflict with those of the leader.
		l.epochs.TruncateFromEnd(to)
		return false, nil
	}
	l.logger.Info("truncating", "partition", l.name, "from", v.logEnd, "to", to)
	if v.segments[0].BaseOffset() > to {
		return true, l.restartLocked(to)
	}
	keep := v.floor(to) + 1
	removed := v.segments[keep:]
	v.segments = slices.Clone(v.segments[:keep])
	if err := l.doomLocked(removed, noSnapshot); err != nil {
		return true, err
	}
	if _, err := v.active().TruncateTo(to); err != nil {
		return true, err
	}
	if v.activeEnd = v.active().Size(); v.activeEnd == 0 {
		v.active().ResetCreated(l.nowMs())
	}
	l.epochs.TruncateFromEnd(to)
	l.endsAtLocked(to)
	v.logStart = min(v.logStart, to)
	if err := l.rebuildProducersLocked(v.segments, v.logStart, to); err != nil {
		return true, err
	}
	l.afterCutLocked()
	return true, nil
}

// restartLocked empties the log.
func (l *Log) restartLocked(at int64) error {
	v := &l.mu.view
	l.logger.Info("truncating fully", "partition", l.name, "start", at)
	removed := v.segments
	if err := l.doomLocked(removed, noSnapshot); err != nil {
		return err
	}
	fresh, err := l.createSegment(at)
	if err != nil {
		return err
	}
	v.segments, v.activeEnd = []*segment.Segment{fresh}, 0
	l.epochs.Clear()
	if err := l.mu.producers.Reset(at); err != nil {
		return err
	}
	l.mu.unsyncedSnapshots = nil
	l.endsAtLocked(at)
	v.logStart, v.hw = at, at
	l.mu.jitterMs = l.dice()
	l.afterCutLocked()
	return nil
}

// endsAtLocked moves the log end and what must not lie above it.
func (l *Log) endsAtLocked(end int64) {
	v := &l.mu.view
	v.logEnd = end
	v.hw = min(v.hw, end)
	if l.recovery.Load() > end {
		l.recovery.Store(end)
	}
}

func (l *Log) afterCutLocked() {
	l.mu.producers.OnHighWatermark(l.mu.view.hw)
	l.updateUnstableLocked()
	l.publishLocked()
	l.wakeTickLocked()
}
