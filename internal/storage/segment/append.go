package segment

import (
	"errors"
	"fmt"
	"io/fs"
	"math"

	"weir/internal/batch"
)

// Append writes b, whole batches with their final offsets, at the end with one write, and returns where they begin.
// largestOffset is the last offset in b. Index entries are added as Kafka's LogSegment.append does, batch by batch.
//
// When it fails the segment is as before: *OverflowError says that b needs a new segment, *UsageError and *CorruptError
// that b is not what it should be; everything else comes from the disk. b is not kept.
func (s *Segment) Append(b []byte, largestOffset int64) (pos int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return 0, &fs.PathError{Op: "append", Path: s.log.pathNow(), Err: fs.ErrClosed}
	}
	pos = s.size.Load()
	if len(b) == 0 {
		return pos, nil
	}
	offsets, times, largest, err := s.loadForAppend()
	if err != nil {
		return 0, err
	}
	if pos == 0 && (offsets.entries(offsetEntry) > 0 || times.entries(timeEntry) > 0) {
		return 0, s.offsets.corrupt("it or the time index has entries, but the log file is empty")
	}
	if err := s.checkAppend(b, largestOffset, pos, max(offsets.last.key, times.last.value)); err != nil {
		return 0, err
	}
	// Index groups that are full go to disk first: when that fails nothing has happened yet.
	if err := errors.Join(s.offsets.spill(group), s.times.spill(group)); err != nil {
		return 0, err
	}
	offsets, times = s.offsets.view.Load(), s.times.view.Load()
	if s.mu.torn {
		if err := s.log.truncate(pos); err != nil {
			return 0, err
		}
		s.mu.torn = false
	}
	if err := s.log.writeAt(b, pos, false); err != nil {
		// Part of b may be in the file. A reader never looks there; the next append or start cuts it off if this fails.
		s.mu.torn = s.log.truncate(pos) != nil
		return 0, err
	}
	s.size.Store(pos + int64(len(b)))
	s.mu.last = largestOffset
	s.index(b, pos, offsets, times, largest)
	return pos, nil
}

// loadForAppend makes sure that both indexes and the largest timestamp are known.
func (s *Segment) loadForAppend() (offsets, times *view, largest TimestampOffset, err error) {
	if offsets, err = s.offsets.load(); err != nil {
		return nil, nil, TimestampOffset{}, err
	}
	if times, err = s.times.load(); err != nil {
		return nil, nil, TimestampOffset{}, err
	}
	largest, err = s.LargestTimestamp()
	return offsets, times, largest, err
}

// checkAppend checks lengths and offsets of b; indexed is the largest offset in the indexes.
func (s *Segment) checkAppend(b []byte, largestOffset, pos, indexed int64) error {
	if !s.inRange(largestOffset) || int64(len(b)) > math.MaxInt32-pos {
		return &OverflowError{File: s.log.pathNow(), Offset: largestOffset, Bytes: int64(len(b))}
	}
	if s.mu.last >= s.base {
		indexed = max(indexed, s.mu.last)
	} else if pos == 0 {
		indexed = s.base - 1
	}
	for rest := b; len(rest) > 0; {
		e, tail, err := batch.NextEntry(rest)
		if err != nil {
			return &CorruptError{File: s.log.pathNow(), Pos: pos + int64(len(b)-len(rest)), Reason: "to be appended: " + err.Error()}
		}
		if e.LastOffset() <= indexed {
			return &UsageError{File: s.log.pathNow(), Reason: fmt.Sprintf("offset %d is not above %d, which is there already", e.LastOffset(), indexed)}
		}
		indexed, rest = e.LastOffset(), tail
	}
	if indexed != largestOffset {
		return &UsageError{File: s.log.pathNow(), Reason: fmt.Sprintf("the last offset is %d, not %d", indexed, largestOffset)}
	}
	return nil
}

// index notes timestamps and index entries of batches that were written at pos. Nothing in it can fail.
func (s *Segment) index(b []byte, pos int64, offsets, times *view, largest TimestampOffset) {
	before := largest
	for len(b) > 0 {
		// checkAppend has walked the same bytes.
		e, rest, _ := batch.NextEntry(b)
		largest = s.indexOne(e, pos, &offsets, &times, largest)
		s.recent.add(e, pos)
		pos, b = pos+int64(e.Len()), rest
	}
	if largest != before {
		kept := largest // so that only a new one is allocated
		s.largest.Store(&kept)
	}
}

// indexOne is index for one batch; it returns the largest timestamp after it.
func (s *Segment) indexOne(e batch.Entry, pos int64, offsets, times **view, largest TimestampOffset) TimestampOffset {
	last := e.LastOffset()
	if ts := e.MaxTimestamp(); ts > largest.Timestamp {
		largest = TimestampOffset{Timestamp: ts, Offset: last}
	}
	if s.mu.sinceIndex > int64(s.interval.Load()) {
		*offsets = s.offsets.add(*offsets, pair{last, pos})
		*times = s.addTime(*times, largest)
		s.mu.sinceIndex = 0
	}
	s.mu.sinceIndex += int64(e.Len())
	return largest
}

// addTime puts the largest timestamp into the time index, unless it is there.
func (s *Segment) addTime(v *view, t TimestampOffset) *view {
	if t.Timestamp <= v.last.key {
		return v
	}
	return s.times.add(v, pair{t.Timestamp, t.Offset})
}

// RollParams is what decides about a new segment before an append.
type RollParams struct {
	MaxSegmentMs, JitterMs int64 // segment.ms, and the jitter drawn for this segment
	MaxSegmentBytes        int32 // segment.bytes
	MaxTimestamp           int64 // of the batches to append; -1 when they have none
	MaxOffset              int64 // of the batches to append
	Bytes                  int64 // to append
	NowMs                  int64
}

// ShouldRoll is Kafka's LogSegment.shouldRoll: the batches would make the segment too large or too old, an index is
// full, or the offset does not fit. Called by the goroutine that appends.
func (s *Segment) ShouldRoll(p RollParams) (bool, error) {
	size := s.size.Load()
	if size > int64(p.MaxSegmentBytes)-p.Bytes || !s.inRange(p.MaxOffset) {
		return true, nil
	}
	if size > 0 {
		waited, err := s.waited(p.NowMs, p.MaxTimestamp)
		if err != nil {
			return false, err
		}
		if waited > p.MaxSegmentMs-p.JitterMs {
			return true, nil
		}
	}
	return s.IndexFull()
}

// waited is how old the segment is in ms: by the batches' own times when they have any, else by its creation.
func (s *Segment) waited(nowMs, maxTimestamp int64) (int64, error) {
	first, ok, err := s.FirstTimestamp()
	if err != nil {
		return 0, err
	}
	if ok && first >= 0 {
		return maxTimestamp - first, nil
	}
	return nowMs - s.created.Load(), nil
}

// IndexFull says that one of the indexes has no room within segment.index.bytes. The time index keeps one entry free
// for the one that is written at the roll.
func (s *Segment) IndexFull() (bool, error) {
	offsets, err := s.offsets.load()
	if err != nil {
		return false, err
	}
	times, err := s.times.load()
	if err != nil {
		return false, err
	}
	limit := int(s.maxIndex.Load())
	return offsets.entries(offsetEntry) >= limit/offsetEntry.size() ||
		times.entries(timeEntry) >= limit/timeEntry.size()-1, nil
}
