package segment

import "errors"

// Flush makes everything appended before the call survive a power cut: log and indexes. The files' names are the
// owner's business (vfs.FS.SyncDir). After an error nothing is known about what is on disk, and retrying does not help:
// the directory has to be given up.
func (s *Segment) Flush() error {
	s.flushMu.Lock()
	defer s.flushMu.Unlock()
	if err := s.WriteOut(); err != nil {
		return err
	}
	for _, h := range s.handles() {
		if err := h.sync(); err != nil {
			return err
		}
	}
	return nil
}

// WriteOut writes index entries that are only in memory, and syncs nothing.
func (s *Segment) WriteOut() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.offsets.spill(0), s.times.spill(0))
}

// Dirty says that Flush has something to do.
func (s *Segment) Dirty() bool {
	for _, h := range s.handles() {
		if h.dirty.Load() {
			return true
		}
	}
	return false
}

// Deactivate is called when the log is rolled: the largest timestamp goes into the time index, and both indexes are
// written and trimmed. Appending stays possible, for a log that is truncated back into this segment.
func (s *Segment) Deactivate() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, _, _, err := s.loadForAppend(); err != nil {
		return err
	}
	return s.settleLocked()
}

// settleLocked writes what is only in memory. What was never loaded has not changed.
func (s *Segment) settleLocked() error {
	if t, v := s.largest.Load(), s.times.view.Load(); t != nil && v != nil {
		s.addTime(v, *t)
	}
	return errors.Join(s.offsets.spill(0), s.times.spill(0), s.offsets.trim(), s.times.trim())
}

// Rename gives the files another suffix; open files and regions stay valid. Index files that are missing are passed
// over. After an error some files may have the new suffix and some the old one.
func (s *Segment) Rename(suffix string) error {
	if err := s.log.rename(suffix, false); err != nil {
		return err
	}
	indexes := s.handles()
	for _, h := range indexes[1:] {
		if err := h.rename(suffix, true); err != nil {
			return err
		}
	}
	return nil
}

// Close writes what is in memory, as Deactivate does, and closes the files for good. It does not sync: call Flush
// before. Regions in flight stay readable. Closing again does nothing.
func (s *Segment) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return nil
	}
	s.mu.closed = true
	err := s.settleLocked()
	if s.mu.torn {
		err = errors.Join(err, s.log.truncate(s.size.Load()))
	}
	return errors.Join(err, s.retire())
}

// Abandon closes the files for good and writes nothing. Regions in flight stay readable.
func (s *Segment) Abandon() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.closed = true
	return s.retire()
}

func (s *Segment) retire() error {
	var err error
	for _, h := range s.handles() {
		err = errors.Join(err, h.retire())
	}
	return err
}

// Delete closes the files for good and removes them. Regions in flight stay readable.
func (s *Segment) Delete() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.closed = true
	var err error
	// The log file goes last: without it the others are litter, and it without them can be recovered.
	hs := s.handles()
	for _, h := range [...]*handle{hs[1], hs[2], hs[3], hs[0]} {
		err = errors.Join(err, h.remove())
	}
	return err
}
