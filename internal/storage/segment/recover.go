package segment

import (
	"errors"
	"fmt"
	"math"
)

// TruncateTo removes every batch that holds offset or a later one, and their index entries, and returns how many bytes
// that were. The batch that holds offset goes whole.
func (s *Segment) TruncateTo(offset int64) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok, err := s.Position(offset)
	if err != nil {
		return 0, err
	}
	cut, size := int64(0), s.size.Load()
	if ok {
		cut, size = size-p.Pos, p.Pos
	}
	// Index entries first, then the size, then the bytes: a reader never follows an entry beyond the size.
	s.recent.forget()
	if err := s.truncateIndexes(offset, size); err != nil {
		return 0, err
	}
	s.size.Store(size)
	if err := s.txns.truncate(offset); err != nil {
		return 0, err
	}
	if ok {
		if err := s.log.truncate(size); err != nil {
			return 0, err
		}
	}
	s.mu.sinceIndex = 0
	s.mu.torn = false
	s.mu.last = s.base - 1
	if size == 0 {
		s.first.Store(nil)
	}
	return cut, s.reloadLargest()
}

func (s *Segment) truncateIndexes(offset, size int64) error {
	offsets, err := s.offsets.load()
	if err != nil {
		return err
	}
	n, _, err := s.offsets.upTo(offsets, offset-1, byKey)
	if err != nil {
		return err
	}
	// Entries of old versions may name a later offset than that of the batch they lead to, but no later position.
	m, _, err := s.offsets.upTo(offsets, size-1, byValue)
	if err != nil {
		return err
	}
	if err := s.offsets.keep(offsets, min(n, m)); err != nil {
		return err
	}
	times, err := s.times.load()
	if err != nil {
		return err
	}
	if n, _, err = s.times.upTo(times, offset-1, byValue); err != nil {
		return err
	}
	return s.times.keep(times, n)
}

// reloadLargest finds the largest timestamp after a truncation: the last index entry, or a batch behind it.
func (s *Segment) reloadLargest() error {
	v, err := s.times.load()
	if err != nil {
		return err
	}
	t := TimestampOffset{Timestamp: v.last.key, Offset: v.last.value}
	f, err := s.log.acquire(false)
	if err != nil {
		return err
	}
	defer f.Release()
	w := newWindow(s, f)
	defer w.free()
	end := s.size.Load()
	start, err := s.offsets.floor(t.Offset)
	if err != nil {
		return err
	}
	if err := w.lead(start, end); err != nil {
		return err
	}
	for pos := start.value; ; {
		p, ok, err := w.header(pos, end)
		if err != nil {
			return err
		}
		if !ok {
			s.largest.Store(&t)
			return nil
		}
		if ts := w.last.MaxTimestamp(); ts > t.Timestamp {
			t = TimestampOffset{Timestamp: ts, Offset: p.LastOffset}
		}
		pos = p.End()
	}
}

// ResetCreated sets the time from which the age of a segment without timestamps is reckoned; Kafka does so when a
// truncation empties the segment.
func (s *Segment) ResetCreated(nowMs int64) { s.created.Store(nowMs) }

// Recovered is the outcome of Recover.
type Recovered struct {
	Batches    int
	NextOffset int64 // behind the last good batch; the base offset when there is none
	Cut        int64 // bytes removed at the end
	Reason     error // why they were: a *CorruptError; nil when nothing was
}

// Recover reads the whole log file, checks every batch (length, magic, CRC, offsets that rise and are in the
// segment's range), cuts the file before the first that is broken, and makes both indexes anew. The transaction index
// is emptied; visit, called for each good batch in order, fills it again through AppendAborted. The Entry is only valid
// during the call. An error of visit, or of the disk, ends the recovery: it has to be run again.
//
// Nothing is synced: call Flush.
func (s *Segment) Recover(visit func(Entry) error) (Recovered, error) {
	size, err := s.startRecovery()
	if err != nil {
		return Recovered{}, err
	}
	r := Recovered{NextOffset: s.base}
	f, err := s.log.acquire(false)
	if err != nil {
		return r, err
	}
	defer f.Release()
	w := newLargeWindow(s, f)
	defer w.free()
	pos, end := int64(0), min(size, math.MaxInt32)
	for {
		e, ok, err := w.entry(pos, end)
		if err == nil && ok {
			err = s.checkRecovered(e, r.NextOffset)
		}
		var broken *CorruptError
		if errors.As(err, &broken) {
			r.Reason = err
			break
		}
		if err != nil {
			return r, err
		}
		if !ok {
			break
		}
		if err := s.takeRecovered(e); err != nil {
			return r, err
		}
		if err := visit(e); err != nil {
			return r, err
		}
		pos += int64(e.Len())
		r.Batches++
		r.NextOffset = e.LastOffset() + 1
	}
	r.Cut = size - pos
	if r.Cut > 0 && r.Reason == nil {
		r.Reason = &CorruptError{File: s.log.pathNow(), Pos: pos, Reason: fmt.Sprintf("the file ends within it, after %d bytes", r.Cut)}
	}
	return r, s.endRecovery(pos, r)
}

// startRecovery forgets everything but the log file, and returns its size.
func (s *Segment) startRecovery() (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	info, err := s.log.stat()
	if err != nil {
		return 0, err
	}
	s.recent.forget()
	s.size.Store(0)
	// What a dead process wrote may not be on disk yet: the next Flush has to sync the bytes that are found.
	s.log.dirty.Store(true)
	s.mu.sinceIndex = 0
	s.largest.Store(&TimestampOffset{Timestamp: -1, Offset: s.base})
	s.first.Store(nil)
	if err := errors.Join(s.offsets.reset(), s.times.reset(), s.txns.reset()); err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// checkRecovered says why a batch that is whole cannot be the next one. The CRC does not cover the base offset, so a
// torn write can leave any number there.
func (s *Segment) checkRecovered(e Entry, next int64) error {
	if !e.CheckCRC() {
		return s.corruptLog(e.Pos, errors.New("the CRC is wrong"))
	}
	return s.checkOffsets(e, next)
}

func (s *Segment) checkOffsets(e Entry, next int64) error {
	first, last := e.LastOffset(), e.LastOffset()
	if b, ok := e.Batch(); ok {
		first = b.BaseOffset()
	}
	if first < next || last < first || !s.inRange(last) {
		return s.corruptLog(e.Pos, fmt.Errorf("offsets %d to %d cannot follow %d in a segment from %d", first, last, next-1, s.base))
	}
	return nil
}

// takeRecovered raises the size over a good batch and indexes it.
func (s *Segment) takeRecovered(e Entry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := errors.Join(s.offsets.spill(group), s.times.spill(group)); err != nil {
		return err
	}
	s.size.Store(e.Pos + int64(e.Len()))
	s.index(e.Entry, e.Pos, s.offsets.view.Load(), s.times.view.Load(), *s.largest.Load())
	s.mu.last = e.LastOffset()
	return nil
}

// endRecovery completes the time index and cuts the file.
func (s *Segment) endRecovery(size int64, r Recovered) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.torn = false
	s.mu.last = r.NextOffset - 1
	// As Kafka does, so that the largest timestamp is known again when the segment is opened the next time.
	s.addTime(s.times.view.Load(), *s.largest.Load())
	if r.Cut == 0 {
		return nil
	}
	return s.log.truncate(size)
}

// SanityCheck looks for index files that are missing or broken: *CorruptIndexError, which Recover mends. Without deep
// it only looks at names and sizes and opens no file.
func (s *Segment) SanityCheck(deep bool) error {
	if err := s.offsets.check(deep, s.size.Load()); err != nil {
		return err
	}
	if err := s.times.check(deep, s.size.Load()); err != nil {
		return err
	}
	if err := s.txns.check(s.base, deep); err != nil {
		return err
	}
	if !deep {
		return nil
	}
	// The last offset entry has to lead to a batch.
	v, err := s.offsets.load()
	if err != nil || v.entries(offsetEntry) == 0 {
		return err
	}
	f, err := s.log.acquire(false)
	if err != nil {
		return err
	}
	defer f.Release()
	w := newWindow(s, f)
	defer w.free()
	return w.lead(v.last, s.size.Load())
}
