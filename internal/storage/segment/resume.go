package segment

import (
	"errors"
	"fmt"
	"io/fs"
)

// Resume takes the segment as a process that died left it, when it is known that nothing it wrote has been lost since:
// only its last write may be in part there, and index entries that it had in memory are missing. The log file is walked
// and checked: offsets everywhere, CRCs behind the last entry of the offset index, since what is before had been written
// whole. Missing index entries are added in memory, as Append adds them. visit is called as by Recover.
//
// It returns the offset behind the last batch. *CorruptError and *CorruptIndexError say that something is torn and Recover
// has to mend it; nothing has been written until then. After success the files count as written to, so that the next
// Flush syncs them.
func (s *Segment) Resume(visit func(Entry) error) (int64, error) {
	if err := s.SanityCheck(true); err != nil {
		return 0, err
	}
	if err := s.noAborted(); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	offsets, err := s.offsets.load()
	if err != nil {
		return 0, err
	}
	times, err := s.times.load()
	if err != nil {
		return 0, err
	}
	next, largest, err := s.walkResumed(visit, &offsets, &times)
	if err != nil {
		return 0, err
	}
	s.largest.Store(&largest)
	s.mu.last = next - 1
	s.mu.torn = false
	for _, h := range [...]*handle{&s.log, &s.offsets.h, &s.times.h} {
		h.dirty.Store(true)
	}
	return next, nil
}

// noAborted fails when the segment has a transaction index, whose last entry may be missing: Recover makes it anew.
func (s *Segment) noAborted() error {
	info, err := s.fs.Stat(s.txns.h.pathNow())
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	return &CorruptIndexError{File: s.txns.h.pathNow(), Reason: "its last entry may be missing"}
}

func (s *Segment) walkResumed(visit func(Entry) error, offsets, times **view) (int64, TimestampOffset, error) {
	largest := TimestampOffset{Timestamp: -1, Offset: s.base}
	f, err := s.log.acquire(false)
	if err != nil {
		return 0, largest, err
	}
	defer f.Release()
	w := newLargeWindow(s, f)
	defer w.free()
	indexed := (*offsets).last.value
	pos, end, next := int64(0), s.size.Load(), s.base
	s.mu.sinceIndex = 0
	for {
		e, ok, err := w.entry(pos, end)
		if err != nil || !ok {
			if err == nil && pos != end {
				err = s.corruptLog(pos, fmt.Errorf("the file ends within it, after %d bytes", end-pos))
			}
			return next, largest, err
		}
		if err := s.checkOffsets(e, next); err != nil {
			return 0, largest, err
		}
		if pos >= indexed && !e.CheckCRC() {
			return 0, largest, s.corruptLog(pos, errors.New("the CRC is wrong"))
		}
		if err := visit(e); err != nil {
			return 0, largest, err
		}
		largest = s.indexResumed(e, offsets, times, largest)
		next = e.LastOffset() + 1
		pos += int64(e.Len())
	}
}

// indexResumed is indexOne for a batch that may have its entries already.
func (s *Segment) indexResumed(e Entry, offsets, times **view, largest TimestampOffset) TimestampOffset {
	last := e.LastOffset()
	if ts := e.MaxTimestamp(); ts > largest.Timestamp {
		largest = TimestampOffset{Timestamp: ts, Offset: last}
	}
	if s.mu.sinceIndex > int64(s.interval.Load()) {
		if last > (*offsets).last.key && e.Pos > (*offsets).last.value {
			*offsets = s.offsets.add(*offsets, pair{last, e.Pos})
		}
		if largest.Offset > (*times).last.value || (*times).entries(timeEntry) == 0 {
			*times = s.addTime(*times, largest)
		}
		s.mu.sinceIndex = 0
	}
	s.mu.sinceIndex += int64(e.Len())
	return largest
}
