package storage

import (
	"errors"
	"fmt"
	"slices"

	"weir/internal/storage/segment"
)

// ErrCompactionAborted ends a run of the cleaner: the log was truncated, renamed or closed, or segments of the run were
// deleted meanwhile. Nothing of the log was changed by the run since the last Replace.
var ErrCompactionAborted = errors.New("the log changed while it was compacted")

// Compaction is one run of the cleaner over a log. It reads segments, writes each group of them anew into a segment of
// its own (Create), and puts that in their place (Replace). Its user is one goroutine; the log goes on meanwhile.
type Compaction struct {
	l        *Log
	dir      string
	cuts     uint64
	segments []*segment.Segment // without the active one
	offsets  Offsets
	active   int64
}

// BeginCompaction takes a picture of the log for a run of the cleaner.
func (l *Log) BeginCompaction() (*Compaction, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := &l.mu.view
	if v.gone != nil {
		return nil, v.gone
	}
	n := len(v.segments) - 1
	return &Compaction{
		l: l, dir: l.Dir(), cuts: l.mu.cuts, segments: v.segments[:n:n], active: v.active().BaseOffset(),
		offsets: Offsets{LogStart: v.logStart, HighWatermark: v.hw, LastStable: v.lastStable(), LogEnd: v.logEnd, FirstUnstable: v.unstable},
	}, nil
}

// Segments are the segments that were not active when the run began, in order. Shared: read-only.
func (c *Compaction) Segments() []*segment.Segment { return c.segments }

// Offsets are the log's offsets when the run began.
func (c *Compaction) Offsets() Offsets { return c.offsets }

// ActiveBase is where the active segment began then.
func (c *Compaction) ActiveBase() int64 { return c.active }

// Check returns ErrCompactionAborted when the run must end.
func (c *Compaction) Check() error {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	return c.checkLocked()
}

func (c *Compaction) checkLocked() error {
	l := c.l
	switch {
	case l.mu.view.gone != nil:
		return fmt.Errorf("%w: %w", ErrCompactionAborted, l.mu.view.gone)
	case l.mu.cuts != c.cuts:
		return fmt.Errorf("%w: it was truncated", ErrCompactionAborted)
	case l.Dir() != c.dir:
		return fmt.Errorf("%w: it was renamed", ErrCompactionAborted)
	}
	return nil
}

// LastRecord is the newest batch of a producer, which compaction keeps, empty if need be.
type LastRecord struct {
	// LastDataOffset is the last offset of the producer's newest batch of records; -1: only markers are known.
	LastDataOffset int64
	Epoch          int16
}

// LastRecords are the newest batches of all known producers, by producer id.
func (c *Compaction) LastRecords() map[int64]LastRecord {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	out := make(map[int64]LastRecord, c.l.mu.producers.Len())
	for e := range c.l.mu.producers.All() {
		out[e.ProducerID] = LastRecord{LastDataOffset: e.LastOffset(), Epoch: e.Epoch}
	}
	return out
}

// Aborted lists the aborted transactions that overlap the offsets from (inclusive) to upTo (exclusive).
func (c *Compaction) Aborted(from, upTo int64) ([]segment.AbortedTxn, error) {
	var out []segment.AbortedTxn
	v := c.l.view.Load()
	if v.gone != nil {
		return nil, fmt.Errorf("%w: %w", ErrCompactionAborted, v.gone)
	}
	for _, seg := range v.segments[v.floor(from):] {
		txns, complete, err := seg.Aborted(from, upTo)
		if err != nil {
			return nil, c.l.readError(seg, from, err)
		}
		out = append(out, txns...)
		if complete {
			break
		}
	}
	return out, nil
}

// Create makes the segment that is to replace a group that begins at base. Whatever a failed run has left under its name
// is removed. The caller passes it to Replace or Discard.
func (c *Compaction) Create(base int64) (*segment.Segment, error) {
	if err := segment.Remove(c.l.fs, c.dir, base, segment.SuffixCleaned); err != nil {
		return nil, diskError(c.dir, "compact", err)
	}
	s, err := segment.Create(c.l.segmentOptions(base, segment.SuffixCleaned))
	return s, diskError(c.dir, "compact", err)
}

// Discard removes a segment made by Create.
func (c *Compaction) Discard(s *segment.Segment) error {
	c.l.files.closed(s)
	return diskError(c.dir, "compact", s.Delete())
}

// Error places an error of a method of one of the segments: ErrCompactionAborted when the log has changed, *CorruptError
// for damaged bytes, *DiskError for a failed operation.
func (c *Compaction) Error(seg *segment.Segment, offset int64, err error) error {
	if err == nil {
		return nil
	}
	if aborted := c.Check(); aborted != nil {
		return aborted // a renamed or closed log makes all kinds of errors
	}
	var usage *segment.UsageError
	var overflow *segment.OverflowError
	switch {
	case errors.As(err, &usage), errors.As(err, &overflow): // says nothing about the disk
		return err
	case seg.Suffix() == segment.SuffixDeleted: // by retention, and perhaps the file is gone by now
		return fmt.Errorf("%w: segments of it were deleted", ErrCompactionAborted)
	}
	return c.l.segmentError(c.dir, "compact", seg, offset, err)
}

// Replace puts a segment made by Create in the place of old, a run of neighbours the first of which has its base offset.
// A crash at any moment leaves either all of old or the replacement, which Open sees to:
//
//	NEW.cleaned synced → NEW.swap → OLD.deleted → NEW
//
// The old files are deleted by Tick after file.delete.delay.ms. modifiedMs becomes the modification time of the new log
// file. The new segment belongs to Replace from the call on. ErrCompactionAborted: the log is as it was.
func (c *Compaction) Replace(old []*segment.Segment, with *segment.Segment, modifiedMs int64) error {
	if err := errors.Join(with.Deactivate(), with.Flush(), with.SetLastModifiedMs(modifiedMs)); err != nil {
		return errors.Join(c.Error(with, with.BaseOffset(), err), c.Discard(with))
	}
	l := c.l
	// Truncation, renaming, closing and fsyncs of the log wait until all is done.
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	swapped, err := c.swapHeld(old, with)
	if err != nil && !swapped {
		return errors.Join(err, c.Discard(with))
	}
	if err != nil {
		return err
	}
	l.mu.Lock()
	if err = with.Rename(""); err != nil {
		err = l.failLocked("compact", err)
	}
	l.mu.Unlock()
	if err == nil {
		err = diskError(c.dir, "compact", l.fs.SyncDir(c.dir))
	}
	return err
}

// swapHeld does all but the last renaming. swapped: the new segment is part of the log.
func (c *Compaction) swapHeld(old []*segment.Segment, with *segment.Segment) (swapped bool, err error) {
	if err := c.Check(); err != nil {
		return false, err
	}
	if err := errors.Join(with.Rename(segment.SuffixSwap), c.l.fs.SyncDir(c.dir)); err != nil {
		return false, diskError(c.dir, "compact", err)
	}
	if swapped, err := c.replaceHeld(old, with); err != nil {
		return swapped, err
	}
	return true, diskError(c.dir, "compact", c.l.fs.SyncDir(c.dir))
}

// replaceHeld makes the new segment part of the log, still under its name as .swap.
func (c *Compaction) replaceHeld(old []*segment.Segment, with *segment.Segment) (swapped bool, err error) {
	l := c.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := c.checkLocked(); err != nil {
		return false, err
	}
	v := &l.mu.view
	at := slices.Index(v.segments, old[0])
	if at < 0 || at+len(old) >= len(v.segments) || !slices.Equal(v.segments[at:at+len(old)], old) {
		return false, fmt.Errorf("%w: segments of it were deleted", ErrCompactionAborted)
	}
	v.segments = slices.Concat(v.segments[:at], []*segment.Segment{with}, v.segments[at+len(old):])
	cfg := l.cfg.Load()
	with.SetConfig(cfg.IndexIntervalBytes, cfg.SegmentIndexBytes)
	if err := l.doomLocked(old, with.BaseOffset()); err != nil {
		return true, l.failLocked("compact", err)
	}
	c.segments = slices.DeleteFunc(slices.Clone(c.segments), func(s *segment.Segment) bool { return slices.Contains(old[1:], s) })
	if i := slices.Index(c.segments, old[0]); i >= 0 {
		c.segments[i] = with
	}
	l.publishLocked()
	l.wakeTickLocked()
	return true, nil
}
