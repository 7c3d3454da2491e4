package dirs

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"

	"weir/internal/checkpoint"
	"weir/internal/storage"
)

// Cleaned is the cleaner's checkpoint of a partition's log: the first offset that compaction has not seen. false: none.
func (s *Set) Cleaned(p checkpoint.TopicPartition) (int64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.current[p]
	if e == nil {
		return 0, false
	}
	offset, known := e.dir.cleaned[p]
	return offset, known
}

// SetCleaned moves the cleaner's checkpoint of a log and writes cleaner-offset-checkpoint. A log that is not the
// partition's any more is passed over. The error is for the caller's log: the directory was taken offline.
func (s *Set) SetCleaned(p checkpoint.TopicPartition, log *storage.Log, offset int64) error {
	s.mu.Lock()
	e := s.current[p]
	if e == nil || e.log != log || s.closed {
		s.mu.Unlock()
		return nil
	}
	if e.dir.cleaned == nil {
		e.dir.cleaned = checkpoint.Offsets{}
	}
	e.dir.cleaned[p] = offset
	s.mu.Unlock()
	return s.judgeWrite(e.dir, s.writeCleaned(e.dir))
}

// SaveRecoveryPoint sees to it that the recovery point on disk is offset or more, which the log's own is already. The
// cleaner asks for it before it replaces what lies below: recovery never looks at compacted segments then.
func (s *Set) SaveRecoveryPoint(p checkpoint.TopicPartition, offset int64) error {
	s.mu.Lock()
	e, closed := s.current[p], s.closed
	s.mu.Unlock()
	if e == nil || closed {
		return storage.ErrClosed
	}
	s.writeMu.Lock()
	saved := e.dir.onDisk[checkpoint.RecoveryPointFile][p] >= offset
	s.writeMu.Unlock()
	if saved {
		return nil
	}
	return s.judgeWrite(e.dir, s.write(e.dir, checkpoint.RecoveryPointFile))
}

// judgeWrite takes a directory offline whose checkpoint cannot be written, unless it is only full.
func (s *Set) judgeWrite(d *Dir, err error) error {
	if err != nil {
		s.Fail(d, err)
	}
	return err
}

// writeCleaned replaces cleaner-offset-checkpoint of d.
func (s *Set) writeCleaned(d *Dir) error {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	offsets := checkpoint.Offsets{}
	s.mu.Lock()
	kept := d.kept[checkpoint.CleanerOffsetFile]
	maps.DeleteFunc(d.cleaned, func(p checkpoint.TopicPartition, _ int64) bool {
		_, failed := kept[p]
		e := s.current[p]
		return !failed && (e == nil || e.dir != d)
	})
	maps.Copy(offsets, kept)
	maps.Copy(offsets, d.cleaned)
	s.mu.Unlock()
	if err := checkpoint.WriteOffsets(s.o.FS, filepath.Join(d.Path, checkpoint.CleanerOffsetFile), offsets); err != nil {
		return fmt.Errorf("writing %s of %s: %w", checkpoint.CleanerOffsetFile, d.Path, err)
	}
	return nil
}

// dropCleaned forgets the checkpoint of a log that is in d no more. Apache Kafka's cleaner ends for good when two
// directories have one of the same partition, so it may not stay until something else is written. When it cannot be
// written (the disk is full) the next time does it.
func (s *Set) dropCleaned(p checkpoint.TopicPartition, d *Dir) {
	if err := s.judgeWrite(d, s.forgetCleaned(p, d)); err != nil {
		s.log.Warn("the cleaner's checkpoint of a log that has gone is still in the file", "partition", p.String(), "dir", d.Path, "err", err)
	}
}

// tidyCleaned drops what a crash has left of logs that are elsewhere, once the logs of d are open.
func (s *Set) tidyCleaned(d *Dir) error {
	s.mu.Lock()
	stale := false
	for p := range d.cleaned {
		_, failed := d.kept[checkpoint.CleanerOffsetFile][p]
		e := s.current[p]
		stale = stale || !failed && (e == nil || e.dir != d)
	}
	s.mu.Unlock()
	if !stale {
		return nil
	}
	return s.writeCleaned(d)
}

// forgetCleaned drops what the file still says of an earlier log in d: a new one of the same name starts anew.
func (s *Set) forgetCleaned(p checkpoint.TopicPartition, d *Dir) error {
	s.mu.Lock()
	_, known := d.cleaned[p]
	delete(d.cleaned, p)
	s.mu.Unlock()
	if !known {
		return nil
	}
	return s.writeCleaned(d)
}

// lowerCleaned keeps the cleaner's checkpoint at or below the recovery point, which a truncation has lowered: records
// that are appended next were not seen by compaction.
func (s *Set) lowerCleaned(p checkpoint.TopicPartition, d *Dir, point int64) error {
	s.mu.Lock()
	offset, known := d.cleaned[p]
	above := known && offset > point
	if above {
		d.cleaned[p] = point
	}
	s.mu.Unlock()
	if !above {
		return nil
	}
	return s.writeCleaned(d)
}

// joinLowered is what a truncation makes of both checkpoints.
func (s *Set) joinLowered(p checkpoint.TopicPartition, d *Dir, point int64) error {
	return errors.Join(s.lowered(p, d, point), s.lowerCleaned(p, d, point))
}
