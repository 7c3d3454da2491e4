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

// WriteRecoveryPoints writes recovery-point-offset-checkpoint in every live directory.
func (s *Set) WriteRecoveryPoints() error {
	return s.writeAll(checkpoint.RecoveryPointFile, func(l *storage.Log) (int64, bool) { return l.RecoveryPoint(), true })
}

// WriteLogStarts writes log-start-offset-checkpoint in every live directory, without the logs that start at 0.
func (s *Set) WriteLogStarts() error {
	return s.writeAll(checkpoint.LogStartFile, func(l *storage.Log) (int64, bool) { start := l.LogStart(); return start, start > 0 })
}

// WriteHighWatermarks writes replication-offset-checkpoint in every live directory.
func (s *Set) WriteHighWatermarks() error {
	return s.writeAll(checkpoint.HighWatermarkFile, func(l *storage.Log) (int64, bool) { return l.HighWatermark(), true })
}

// writeAll writes one kind of checkpoint. A failure takes that directory offline; the others are written. The error is
// for the caller's log only.
func (s *Set) writeAll(name string, offset func(*storage.Log) (int64, bool)) error {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	byDir := map[*Dir]checkpoint.Offsets{}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return storage.ErrClosed
	}
	for _, d := range s.liveLocked() {
		byDir[d] = maps.Clone(d.kept[name])
		if byDir[d] == nil {
			byDir[d] = checkpoint.Offsets{}
		}
	}
	for _, m := range []map[checkpoint.TopicPartition]*entry{s.current, s.future} {
		for p, e := range m {
			if o, want := offset(e.log); want && byDir[e.dir] != nil {
				byDir[e.dir][p] = o
			}
		}
	}
	s.mu.Unlock()
	var errs []error
	for d, offsets := range byDir {
		if err := checkpoint.WriteOffsets(s.o.FS, filepath.Join(d.Path, name), offsets); err != nil {
			err = fmt.Errorf("writing %s of %s: %w", name, d.Path, err)
			s.Fail(d, err)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Close stops cleanly: every log is flushed and closed, the checkpoints are written, and each directory gets its
// clean-shutdown marker with the broker epoch of this run (-1 when it never had one). A directory in which anything failed
// gets no marker, and the next start recovers it. The locks are given back in the end.
func (s *Set) Close(brokerEpoch int64) error {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	live := s.liveLocked()
	byDir := map[*Dir][]closing{}
	for _, m := range []map[checkpoint.TopicPartition]*entry{s.current, s.future} {
		for p, e := range m {
			byDir[e.dir] = append(byDir[e.dir], closing{p: p, log: e.log})
		}
	}
	broken := map[*Dir]bool{}
	for _, f := range s.failures {
		broken[f.Dir] = true
	}
	doomed := s.doomed
	s.mu.Unlock()

	var errs []error
	var g errgroup.Group
	results := make([]error, len(live))
	for i, d := range live {
		g.Go(func() error {
			results[i] = s.closeDir(d, byDir[d], brokerEpoch, broken[d])
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		errs = append(errs, err)
	}
	for _, d := range doomed { // they stay as -delete and are removed by the next run
		if d.log != nil {
			d.log.Abandon()
		}
	}
	return errors.Join(append(append(errs, results...), s.unlock())...)
}

type closing struct {
	p                     checkpoint.TopicPartition
	log                   *storage.Log
	recovery, start, high int64
}

func (s *Set) closeDir(d *Dir, logs []closing, brokerEpoch int64, broken bool) error {
	var g errgroup.Group
	g.SetLimit(max(1, s.o.RecoveryThreads))
	for i := range logs {
		c := &logs[i]
		g.Go(func() error {
			err := c.log.Close() // flushes; the recovery point is the log end then
			c.recovery, c.start, c.high = c.log.RecoveryPoint(), c.log.LogStart(), c.log.HighWatermark()
			return err
		})
	}
	if err := g.Wait(); err != nil {
		s.log.Error("log directory was not closed cleanly; the next start recovers it", "dir", d.Path, "err", err)
		return err
	}
	offsets := map[string]checkpoint.Offsets{}
	for _, name := range []string{checkpoint.RecoveryPointFile, checkpoint.LogStartFile, checkpoint.HighWatermarkFile} {
		if offsets[name] = maps.Clone(d.kept[name]); offsets[name] == nil {
			offsets[name] = checkpoint.Offsets{}
		}
	}
	for _, c := range logs {
		offsets[checkpoint.RecoveryPointFile][c.p] = c.recovery
		offsets[checkpoint.HighWatermarkFile][c.p] = c.high
		if c.start > 0 {
			offsets[checkpoint.LogStartFile][c.p] = c.start
		}
	}
	for name, o := range offsets {
		if err := checkpoint.WriteOffsets(s.o.FS, filepath.Join(d.Path, name), o); err != nil {
			return fmt.Errorf("writing %s of %s: %w", name, d.Path, err)
		}
	}
	if broken {
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
