package dirs

import (
	"errors"
	"fmt"

	"weir/internal/checkpoint"
	"weir/internal/storage"
	"weir/internal/uuid"
)

// rivalError is why a log is not served at first: another directory has one of the same name, of another topic. Which of
// the two topics exists is only known from the image, see Settle.
type rivalError struct {
	topicID uuid.UUID
	other   string // the log that was found first
}

func (e *rivalError) Error() string {
	return fmt.Sprintf("a log of another topic of that name stands in %s; this one is of topic %s", e.other, e.topicID)
}

// Settle decides between logs of several topics that had one name, of which Load serves the first that it has found. The
// one of the topic that the image holds is served from now on, and the others are kept as stray. topicID says which topic
// of that name this node has a replica of, uuid.Zero when none. The error tells of those that could not be settled.
func (s *Set) Settle(topicID func(p checkpoint.TopicPartition) uuid.UUID) error {
	var errs []error
	for _, f := range s.takeRivals() {
		var rival *rivalError
		id := topicID(f.Partition)
		served, _ := s.Log(f.Partition)
		if errors.As(f.Err, &rival) && rival.topicID == id && (served == nil || served.TopicID() != id) {
			errs = append(errs, s.serveRival(f))
		} else {
			errs = append(errs, s.renameFailed(f, storage.Stray))
		}
	}
	return errors.Join(errs...)
}

// takeRivals takes the rivals out of the failures.
func (s *Set) takeRivals() (rivals []Failure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var others []Failure
	for _, f := range s.failures {
		if f.Dir.failed == nil && errors.As(f.Err, new(*rivalError)) {
			rivals = append(rivals, f)
		} else {
			others = append(others, f)
		}
	}
	s.failures = others
	return rivals
}

// serveRival puts a rival in the place of the log that was served so far.
func (s *Set) serveRival(f Failure) error {
	err := s.MarkStray(f.Partition, false)
	if err == nil {
		err = s.reopen(f)
	}
	if err != nil {
		s.mu.Lock()
		s.failures = append(s.failures, f)
		s.mu.Unlock()
		return fmt.Errorf("serving %s: %w", f.Path, s.judge(f.Dir, err))
	}
	s.log.Info("log is that of the present topic", "partition", f.Partition.String(), "dir", f.Path)
	return nil
}

// reopen opens a rival again, which enter has closed.
func (s *Set) reopen(f Failure) error {
	o := s.logOptions(f.Partition, f.Dir, f.Path)
	o.HadCleanShutdown = true
	s.mu.Lock()
	o.RecoveryPoint = f.Dir.kept[checkpoint.RecoveryPointFile][f.Partition]
	o.LogStart = f.Dir.kept[checkpoint.LogStartFile][f.Partition]
	o.Cleaned = f.Dir.kept[checkpoint.CleanerOffsetFile][f.Partition]
	high := f.Dir.kept[checkpoint.HighWatermarkFile][f.Partition]
	s.mu.Unlock()
	log, err := storage.Open(o)
	if err != nil {
		return err
	}
	log.SetHighWatermark(high)
	s.mu.Lock()
	defer s.mu.Unlock()
	f.Dir.forgetKeptLocked(f.Partition)
	s.current[f.Partition] = &entry{log, f.Dir}
	return nil
}

// forgetKeptLocked drops the checkpoint entries that were kept for a log that could not be served.
func (d *Dir) forgetKeptLocked(p checkpoint.TopicPartition) {
	for _, offsets := range d.kept {
		delete(offsets, p)
	}
}
