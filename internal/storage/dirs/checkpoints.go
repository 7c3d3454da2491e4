package dirs

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"weir/internal/checkpoint"
	"weir/internal/storage"
)

// checkpointFiles are the files of a directory that hold an offset for each of its logs.
func checkpointFiles() [3]string {
	return [...]string{checkpoint.RecoveryPointFile, checkpoint.LogStartFile, checkpoint.HighWatermarkFile}
}

// WriteRecoveryPoints writes recovery-point-offset-checkpoint in every live directory.
func (s *Set) WriteRecoveryPoints() error { return s.writeAll(checkpoint.RecoveryPointFile) }

// WriteLogStarts writes log-start-offset-checkpoint in every live directory, without the logs that start at 0.
func (s *Set) WriteLogStarts() error { return s.writeAll(checkpoint.LogStartFile) }

// WriteHighWatermarks writes replication-offset-checkpoint in every live directory.
func (s *Set) WriteHighWatermarks() error { return s.writeAll(checkpoint.HighWatermarkFile) }

// offsetFor is what the file called name says about a log.
func offsetFor(name string, l *storage.Log) (offset int64, listed bool) {
	switch name {
	case checkpoint.RecoveryPointFile:
		return l.RecoveryPoint(), true
	case checkpoint.LogStartFile:
		start := l.LogStart()
		return start, start > 0
	}
	return l.HighWatermark(), true
}

// writeAll writes one kind of checkpoint. A failure takes that directory offline; the others are written. The error is
// for the caller's log only.
func (s *Set) writeAll(name string) error {
	s.mu.Lock()
	live, closed := s.liveLocked(), s.closed
	s.mu.Unlock()
	if closed {
		return storage.ErrClosed
	}
	var errs []error
	for _, d := range live {
		if err := s.write(d, name); err != nil {
			s.Fail(d, err)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// write replaces one checkpoint file of d.
func (s *Set) write(d *Dir, name string) error {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	return s.writeHeld(d, name, func(checkpoint.Offsets) {})
}

// writeHeld is write by the holder of writeMu; change may change the entries. It looks at every log: who writes on behalf of
// one asks onDisk first whether there is need to.
func (s *Set) writeHeld(d *Dir, name string, change func(checkpoint.Offsets)) error {
	offsets := checkpoint.Offsets{}
	s.mu.Lock()
	maps.Copy(offsets, d.kept[name])
	for _, m := range []map[checkpoint.TopicPartition]*entry{s.current, s.future} {
		for p, e := range m {
			if e.dir != d {
				continue
			}
			if o, listed := offsetFor(name, e.log); listed {
				offsets[p] = o
			}
		}
	}
	s.mu.Unlock()
	change(offsets)
	if err := checkpoint.WriteOffsets(s.o.FS, filepath.Join(d.Path, name), offsets); err != nil {
		return fmt.Errorf("writing %s of %s: %w", name, d.Path, err)
	}
	d.onDisk[name] = offsets
	return nil
}

// forget removes what the checkpoint files of d still say of a partition's earlier log: of a topic of the same name that
// was deleted, or of a move. After a crash the new log would be cut, or believed damaged, by the old one's offsets.
func (s *Set) forget(d *Dir, p checkpoint.TopicPartition) error {
	for _, name := range checkpointFiles() {
		if err := s.forgetIn(d, name, p); err != nil {
			return err
		}
	}
	return s.forgetCleaned(p, d)
}

func (s *Set) forgetIn(d *Dir, name string, p checkpoint.TopicPartition) error {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	if _, stale := d.onDisk[name][p]; !stale {
		return nil
	}
	return s.writeHeld(d, name, func(checkpoint.Offsets) {}) // p has no log yet
}

// lowered is called by a log whose recovery point has fallen: the file must not stay above it. The caller holds locks of
// its log, so a failure is only returned; the log's user reports it (Report).
func (s *Set) lowered(p checkpoint.TopicPartition, d *Dir, point int64) error {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	if d.onDisk[checkpoint.RecoveryPointFile][p] <= point {
		return nil
	}
	return s.writeHeld(d, checkpoint.RecoveryPointFile, func(offsets checkpoint.Offsets) { offsets[p] = point })
}

// Close stops cleanly: every log is flushed and closed, the checkpoints are written, and each directory gets its
// clean-shutdown marker with the broker epoch of this run (-1 when it never had one). A directory in which anything failed
// gets no marker, and the next start recovers it. The locks are given back in the end.
func (s *Set) Close(brokerEpoch int64) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	live := s.liveLocked()
	byDir := map[*Dir][]*storage.Log{}
	for _, m := range []map[checkpoint.TopicPartition]*entry{s.current, s.future} {
		for _, e := range m {
			byDir[e.dir] = append(byDir[e.dir], e.log)
		}
	}
	broken := map[*Dir]bool{}
	for _, f := range s.failures {
		broken[f.Dir] = true
	}
	doomed := s.doomed
	s.mu.Unlock()

	var g errgroup.Group
	results := make([]error, len(live))
	for i, d := range live {
		g.Go(func() error {
			results[i] = s.closeDir(d, byDir[d], brokerEpoch, broken[d])
			return nil
		})
	}
	err := g.Wait()
	for _, d := range doomed { // they stay as -delete and are removed by the next run
		if d.log != nil {
			d.log.Abandon()
		}
	}
	return errors.Join(append(results, err, s.unlock())...)
}

func (s *Set) closeDir(d *Dir, logs []*storage.Log, brokerEpoch int64, broken bool) error {
	err := storage.CloseAll(s.o.FS, d.Path, logs, s.o.RecoveryThreads)
	for _, name := range checkpointFiles() {
		if err == nil {
			err = s.write(d, name) // closed logs still tell their offsets
		}
	}
	if err == nil {
		err = s.removeHint(d)
	}
	switch {
	case err != nil:
		s.log.Error("log directory was not closed cleanly; the next start recovers it", "dir", d.Path, "err", err)
		return err
	case broken:
		s.log.Warn("no clean-shutdown marker: a partition of the directory is offline", "dir", d.Path)
		return nil
	}
	s.log.Info("clean shutdown", "dir", d.Path, "logs", len(logs), "broker epoch", brokerEpoch)
	return checkpoint.WriteCleanShutdown(s.o.FS, filepath.Join(d.Path, checkpoint.CleanShutdownFile), checkpoint.CleanShutdown{BrokerEpoch: brokerEpoch})
}

// Crash lets go of everything as a killed process does, writing nothing. For tests and for a stop that must be unclean.
func (s *Set) Crash() error {
	s.mu.Lock()
	s.closed = true
	var logs []*storage.Log
	for _, m := range []map[checkpoint.TopicPartition]*entry{s.current, s.future} {
		for _, e := range m {
			logs = append(logs, e.log)
		}
	}
	for _, d := range s.doomed {
		if d.log != nil {
			logs = append(logs, d.log)
		}
	}
	s.mu.Unlock()
	for _, l := range logs {
		l.Abandon()
	}
	return s.unlock()
}
