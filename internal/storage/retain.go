package storage

import (
	"errors"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"time"

	"weir/internal/storage/producer"
	"weir/internal/storage/segment"
)

// doomed are renamed files that are removed when file.delete.delay.ms has
// passed, so that reads under way can end.
type doomed struct {
	due       time.Time
	segments  []*segment.Segment
	snapshots []int64
}

func (d *doomed) paths(dir string) []string {
	var out []string
	for _, s := range d.segments {
		out = append(out, s.LogPath())
	}
	for _, o := range d.snapshots {
		out = append(out, filepath.Join(dir, producer.SnapshotName(o)+producer.DeletedSuffix))
	}
	return out
}

// Retain removes segments that lie below the log start and, when the cleanup
// policy has delete, those that retention.bytes or retention.ms let go; the
// active one too when all of it is old enough. Nothing above the high watermark
// goes. It returns the number of segments; their files are renamed now and
// deleted by Tick later.
func (l *Log) Retain(now time.Time) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := &l.mu.view
	if v.gone != nil {
		return 0, v.gone
	}
	n, err := l.retainLocked("below the log start", l.belowStart())
	cfg := l.cfg.Load()
	if err == nil && cfg.CleanupDelete && cfg.RetentionBytes >= 0 {
		var more int
		more, err = l.retainLocked("retention.bytes", l.overSize(cfg.RetentionBytes))
		n += more
	}
	if err == nil && cfg.CleanupDelete && cfg.RetentionMs >= 0 {
		var more int
		more, err = l.retainLocked("retention.ms", l.overTime(now.UnixMilli(), cfg.RetentionMs))
		n += more
	}
	return n, err
}

// expendable says whether the segment at an index may go, when all before it go.
type expendable func(i int) (bool, error)

func (l *Log) belowStart() expendable {
	v := &l.mu.view
	return func(i int) (bool, error) {
		return i+1 < len(v.segments) && v.segments[i+1].BaseOffset() <= v.logStart, nil
	}
}

func (l *Log) overSize(limit int64) expendable {
	v := &l.mu.view
	over := v.size() - limit
	return func(i int) (bool, error) {
		size := v.end(i)
		if over-size < 0 {
			return false, nil
		}
		over -= size
		return true, nil
	}
}

func (l *Log) overTime(nowMs, limit int64) expendable {
	v := &l.mu.view
	return func(i int) (bool, error) {
		ts, err := v.segments[i].LargestTimestamp()
		if err == nil && ts.Timestamp < 0 {
			ts.Timestamp, err = v.segments[i].LastModifiedMs()
		}
		return err == nil && nowMs-ts.Timestamp > limit, err
	}
}

// retainLocked removes the longest expendable run of oldest segments.
func (l *Log) retainLocked(why string, goes expendable) (int, error) {
	v := &l.mu.view
	n := 0
	for ; n < len(v.segments); n++ {
		last := n == len(v.segments)-1
		upper := v.logEnd
		if !last {
			upper = v.segments[n+1].BaseOffset()
		}
		if v.hw < upper || last && v.activeEnd == 0 {
			break
		}
		ok, err := goes(n)
		if err != nil {
			return 0, l.segmentError(l.Dir(), "retention", v.segments[n], v.segments[n].BaseOffset(), err)
		}
		if !ok {
			break
		}
	}
	if n == 0 {
		return 0, nil
	}
	if n == len(v.segments) { // a log has at least one segment
		if err := l.rollLocked(v.logEnd); err != nil {
			return 0, err
		}
	}
	removed := v.segments[:n]
	v.segments = slices.Clone(v.segments[n:])
	if _, err := l.setLogStartLocked(v.segments[0].BaseOffset()); err != nil {
		return 0, err
	}
	l.publishLocked()
	l.logger.Info("deleting old segments", "partition", l.name, "segments", n, "reason", why, "logStart", v.logStart)
	if err := l.doomLocked(removed, noSnapshot); err != nil {
		return 0, l.failLocked("retention", err)
	}
	l.wakeTickLocked()
	return n, nil
}

// noSnapshot is for doomLocked: no snapshot is to be kept.
const noSnapshot = -1

// doomLocked renames segments and the snapshots at their base to be deleted, but for the snapshot at offset keep.
func (l *Log) doomLocked(segs []*segment.Segment, keep int64) error {
	if len(segs) == 0 {
		return nil
	}
	delay := l.cfg.Load().FileDeleteDelayMs
	d := doomed{due: l.clock.Now().Add(time.Duration(min(delay, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond)}
	l.mu.unsyncedNames = true
	for _, s := range segs {
		if err := s.Rename(segment.SuffixDeleted); err != nil {
			return err
		}
		d.segments = append(d.segments, s)
		base := s.BaseOffset()
		if base == keep {
			continue
		}
		marked, err := l.mu.producers.MarkSnapshotDeleted(base)
		if err != nil {
			return err
		}
		if marked {
			d.snapshots = append(d.snapshots, base)
			l.mu.unsyncedSnapshots = slices.DeleteFunc(l.mu.unsyncedSnapshots, func(o int64) bool { return o == base })
		}
	}
	l.mu.doomed = append(l.mu.doomed, d)
	return nil
}

// PendingDeletes are the renamed files that wait for their deletion.
func (l *Log) PendingDeletes() []PendingDelete {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]PendingDelete, len(l.mu.doomed))
	for i := range l.mu.doomed {
		out[i] = PendingDelete{Due: l.mu.doomed[i].due, Paths: l.mu.doomed[i].paths(l.Dir())}
	}
	return out
}

// RunDeletes deletes the renamed files that are due at now. Tick calls it.
func (l *Log) RunDeletes(now time.Time) error {
	dir, due := l.takeDue(now)
	if len(due) == 0 {
		return nil
	}
	// A flush under way may have captured them before they were renamed.
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	var errs []error
	for i := range due {
		errs = append(errs, l.remove(dir, &due[i]))
	}
	return storageError(dir, "delete", errors.Join(errs...))
}

func (l *Log) takeDue(now time.Time) (dir string, due []doomed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.doomed = slices.DeleteFunc(l.mu.doomed, func(d doomed) bool {
		if d.due.After(now) {
			return false
		}
		due = append(due, d)
		return true
	})
	l.wakeTickLocked()
	return l.Dir(), due
}

func (l *Log) remove(dir string, d *doomed) error {
	var errs []error
	for _, s := range d.segments {
		l.files.closed(s)
		errs = append(errs, s.Delete())
	}
	for _, o := range d.snapshots {
		err := l.fs.Remove(filepath.Join(dir, producer.SnapshotName(o)+producer.DeletedSuffix))
		if !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
