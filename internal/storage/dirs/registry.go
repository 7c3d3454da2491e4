package dirs

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"weir/internal/checkpoint"
	"weir/internal/storage"
	"weir/internal/uuid"
)

// doomed is a log on its way out: renamed to -delete, removed from due on.
type doomed struct {
	path string
	dir  *Dir
	log  *storage.Log // nil when it was found at start and never opened
	due  time.Time
}

// Log returns the partition's log and its directory; nil when this node has none that is online.
func (s *Set) Log(p checkpoint.TopicPartition) (*storage.Log, *Dir) { return s.find(s.current, p) }

// FutureLog returns the copy of the partition that is being made in another directory, or nil.
func (s *Set) FutureLog(p checkpoint.TopicPartition) (*storage.Log, *Dir) { return s.find(s.future, p) }

func (s *Set) find(in map[checkpoint.TopicPartition]*entry, p checkpoint.TopicPartition) (*storage.Log, *Dir) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := in[p]; e != nil {
		return e.log, e.dir
	}
	return nil, nil
}

// Logs calls f for every log that is online, in no order, until f returns false. f runs without the Set's lock.
func (s *Set) Logs(f func(p checkpoint.TopicPartition, log *storage.Log, d *Dir, future bool) bool) {
	type item struct {
		p      checkpoint.TopicPartition
		e      *entry
		future bool
	}
	s.mu.Lock()
	all := make([]item, 0, len(s.current)+len(s.future))
	for p, e := range s.current {
		all = append(all, item{p, e, false})
	}
	for p, e := range s.future {
		all = append(all, item{p, e, true})
	}
	s.mu.Unlock()
	for _, i := range all {
		if !f(i.p, i.e.log, i.e.dir, i.future) {
			return
		}
	}
}

// Failures returns the partitions that Load could not open.
func (s *Set) Failures() []Failure {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.failures)
}

// Create makes a partition's log in the directory with the id; with uuid.DirUnassigned or zero in the live directory that
// has the fewest logs and is not cordoned. With future it makes the partition's copy, whose directory must be named and
// another than the current one's. A partition that has the log already gets ErrExists. A power cut may take the log until
// Secure has been called.
func (s *Set) Create(p checkpoint.TopicPartition, topicID, dirID uuid.UUID, future bool) (*storage.Log, *Dir, error) {
	candidates, e, err := s.reserve(p, dirID, future)
	if e != nil {
		return e.log, e.dir, ErrExists
	}
	if err != nil {
		return nil, nil, err
	}
	// From here on the partition is in s.creating, and nobody else makes its log.
	e, err = s.createIn(candidates, p, topicID, future)
	s.mu.Lock()
	delete(s.creating, slot{p, future})
	if e != nil && (s.closed || e.dir.failed != nil) {
		err = &OfflineError{e.dir.Path, cmp.Or(e.dir.failed, storage.ErrClosed)}
	} else if e != nil {
		s.slotsLocked(future)[p] = e
		s.fresh = append(s.fresh, fresh{p, e})
	}
	s.created.Broadcast()
	s.mu.Unlock()
	switch {
	case err == nil:
		s.log.Info("created log", "partition", p.String(), "dir", e.log.Dir())
		return e.log, e.dir, nil
	case e != nil:
		e.log.Abandon()
	}
	return nil, nil, err
}

// slot is a place for a log: a partition has two.
type slot struct {
	p      checkpoint.TopicPartition
	future bool
}

// reserve takes the slot for the caller and says where the log may go, or returns the log that is there already. It
// waits for another Create of the same slot.
func (s *Set) reserve(p checkpoint.TopicPartition, dirID uuid.UUID, future bool) ([]*Dir, *entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.creating[slot{p, future}] != nil {
		s.created.Wait()
	}
	if s.closed {
		return nil, nil, storage.ErrClosed
	}
	if e := s.slotsLocked(future)[p]; e != nil {
		return nil, e, nil
	}
	for _, f := range s.failures {
		if f.Partition == p && f.Dir.failed == nil {
			return nil, nil, fmt.Errorf("partition %s is offline: %w", p, f.Err)
		}
	}
	candidates, err := s.candidatesLocked(p, dirID, future)
	if err != nil {
		return nil, nil, err
	}
	s.creating[slot{p, future}] = candidates[0]
	return candidates, nil, nil
}

// createIn makes the log in the first candidate whose disk works.
func (s *Set) createIn(candidates []*Dir, p checkpoint.TopicPartition, topicID uuid.UUID, future bool) (*entry, error) {
	name := storage.DirName(p.Topic, p.Partition)
	if future {
		name = storage.RenamedDirName(p.Topic, p.Partition, storage.Future, s.o.Rand)
	}
	var err error
	for _, d := range candidates {
		o := s.logOptions(p, d, filepath.Join(d.Path, name))
		o.TopicID, o.HadCleanShutdown = topicID, true
		if err = s.forget(d, p); err != nil {
			err = &storage.DiskError{Dir: o.Dir, Op: "create", Err: err}
		} else {
			var log *storage.Log
			if log, err = storage.Open(o); err == nil {
				return &entry{log, d}, nil
			}
		}
		if !isDiskFailure(err) {
			break
		}
		s.Fail(d, err)
	}
	return nil, err
}

func (s *Set) slotsLocked(future bool) map[checkpoint.TopicPartition]*entry {
	if future {
		return s.future
	}
	return s.current
}

// candidatesLocked lists the directories to try, best first.
func (s *Set) candidatesLocked(p checkpoint.TopicPartition, dirID uuid.UUID, future bool) ([]*Dir, error) {
	live := s.liveLocked()
	if len(live) == 0 {
		return nil, ErrNoDirectory
	}
	if dirID != uuid.Zero && !dirID.Reserved() {
		i := slices.IndexFunc(live, func(d *Dir) bool { return d.ID == dirID })
		switch {
		case i >= 0 && future && s.current[p] != nil && s.current[p].dir == live[i]:
			return nil, fmt.Errorf("the current log of %s is in %s already", p, live[i].Path)
		case i >= 0:
			return live[i : i+1], nil
		}
		for _, d := range s.dirs {
			if d.ID == dirID {
				return nil, &OfflineError{d.Path, d.failed}
			}
		}
		return nil, fmt.Errorf("no log directory has the id %s", dirID)
	}
	if future {
		return nil, errors.New("the directory of a future log must be named")
	}
	open := slices.DeleteFunc(slices.Clone(live), s.cordonedLocked)
	switch len(open) {
	case 0:
		return live[:1], nil // as Kafka: a replica that is already assigned to this node must go somewhere
	case 1:
		return open, nil
	}
	counts := map[*Dir]int{}
	for _, m := range []map[checkpoint.TopicPartition]*entry{s.current, s.future} {
		for _, e := range m {
			counts[e.dir]++
		}
	}
	for _, d := range s.creating {
		counts[d]++
	}
	slices.SortStableFunc(open, func(a, b *Dir) int { return counts[a] - counts[b] })
	return open, nil
}

// Delete takes the partition's log (or its future copy) out of the registry and renames its directory; the files are
// removed by Tick after file.delete.delay.ms. Without such a log it does nothing. After a power cut before Secure the log
// may be back, and is known to no metadata then.
func (s *Set) Delete(p checkpoint.TopicPartition, future bool) error {
	return s.retire(p, future, storage.Deleted)
}

// MarkStray takes a log (or a future copy) that no metadata knows out of the registry and renames its directory; it is kept.
func (s *Set) MarkStray(p checkpoint.TopicPartition, future bool) error {
	return s.retire(p, future, storage.Stray)
}

func (s *Set) retire(p checkpoint.TopicPartition, future bool, kind storage.Kind) error {
	from := s.current
	if future {
		from = s.future
	}
	s.mu.Lock()
	e := from[p]
	delete(from, p)
	s.mu.Unlock()
	if e == nil {
		return s.retireFailed(p, future, kind)
	}
	if err := e.log.Rename(kind, s.o.Rand); err != nil {
		err = s.judge(e.dir, err)
		s.putBack(from, p, e)
		return err
	}
	return s.retired(p, e, kind)
}

// putBack keeps a log that could not be renamed in the registry, so that it is closed with the others. In a directory
// that has failed it is closed at once.
func (s *Set) putBack(to map[checkpoint.TopicPartition]*entry, p checkpoint.TopicPartition, e *entry) {
	s.mu.Lock()
	failed := e.dir.failed != nil
	if !failed {
		to[p] = e
	}
	s.mu.Unlock()
	if failed {
		e.log.Abandon()
	}
}

// retireFailed does the same for a partition whose log could not be opened: only its directory is renamed.
func (s *Set) retireFailed(p checkpoint.TopicPartition, future bool, kind storage.Kind) error {
	s.mu.Lock()
	i := slices.IndexFunc(s.failures, func(f Failure) bool {
		_, _, found, err := storage.ParseDirName(filepath.Base(f.Path))
		return f.Partition == p && f.Dir.failed == nil && err == nil && future == (found == storage.Future)
	})
	if i < 0 {
		s.mu.Unlock()
		return nil
	}
	f := s.failures[i]
	s.failures = slices.Delete(s.failures, i, i+1)
	s.mu.Unlock()
	return s.renameFailed(f, kind)
}

// renameFailed renames the directory of a log that is not open and not among the failures any more.
func (s *Set) renameFailed(f Failure, kind storage.Kind) error {
	p := f.Partition
	s.mu.Lock()
	f.Dir.forgetKeptLocked(p)
	s.mu.Unlock()
	to := filepath.Join(f.Dir.Path, storage.RenamedDirName(p.Topic, p.Partition, kind, s.o.Rand))
	if err := errors.Join(s.o.FS.Rename(f.Path, to), s.o.FS.SyncDir(f.Dir.Path)); err != nil {
		return s.judge(f.Dir, &storage.DiskError{Dir: f.Path, Op: "rename", Err: err})
	}
	if kind == storage.Deleted {
		s.doom(doomed{path: to, dir: f.Dir, due: s.o.Clock.Now().Add(s.deleteDelay(p))})
	}
	s.log.Info("renamed the log of a partition that was offline", "partition", p.String(), "dir", to)
	return nil
}

// retired sees to a log that has been renamed and is in the registry no more.
func (s *Set) retired(p checkpoint.TopicPartition, e *entry, kind storage.Kind) error {
	s.mu.Lock()
	e.dir.renamed = true
	s.mu.Unlock()
	s.dropCleaned(p, e.dir)
	if kind == storage.Deleted {
		s.log.Info("log is to be deleted", "partition", p.String(), "dir", e.log.Dir())
		s.doom(doomed{path: e.log.Dir(), dir: e.dir, log: e.log, due: s.o.Clock.Now().Add(s.deleteDelay(p))})
		return nil
	}
	s.log.Warn("log is known to no metadata: kept as stray", "partition", p.String(), "dir", e.log.Dir())
	return s.judge(e.dir, e.log.Close())
}

// Promote makes the future copy of a partition its log, and dooms the old one. With an error the old one stays in use.
func (s *Set) Promote(p checkpoint.TopicPartition) error {
	s.mu.Lock()
	old, next := s.current[p], s.future[p]
	if next == nil {
		s.mu.Unlock()
		return fmt.Errorf("partition %s has no future log", p)
	}
	delete(s.future, p)
	s.current[p] = next
	s.mu.Unlock()
	err := next.log.Rename(storage.Current, s.o.Rand)
	if err == nil { // or a power cut might take both
		if serr := s.o.FS.SyncDir(next.dir.Path); serr != nil {
			err = &storage.DiskError{Dir: next.log.Dir(), Op: "rename", Err: serr}
		}
	}
	if err != nil {
		err = s.judge(next.dir, err)
		s.putBack(s.future, p, next)
		s.mu.Lock()
		delete(s.current, p)
		s.mu.Unlock()
		if old != nil {
			s.putBack(s.current, p, old)
		}
		return err
	}
	s.log.Info("partition moved to another log directory", "partition", p.String(), "dir", next.log.Dir())
	if old == nil {
		return nil
	}
	if err := old.log.Rename(storage.Deleted, s.o.Rand); err != nil {
		// The copy is in use already: the move stands.
		s.log.Error("cannot rename the log that was moved away: remove it by hand before the next start",
			"partition", p.String(), "dir", old.log.Dir(), "err", s.judge(old.dir, err))
		old.log.Abandon()
		return nil
	}
	return s.retired(p, old, storage.Deleted)
}

func (s *Set) doom(d doomed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.doomed = append(s.doomed, d)
}

// deleteFor is how long one Tick may remove logs; the others wait for the next.
const deleteFor = 200 * time.Millisecond

// Tick secures what was made and renamed, and removes the logs whose time has come. The owner calls it every second or so.
func (s *Set) Tick(now time.Time) {
	s.Secure()
	due, start := s.takeDue(now), s.o.Clock.Now()
	for i, d := range due {
		if s.o.Clock.Now().Sub(start) > deleteFor {
			s.mu.Lock()
			s.doomed = append(s.doomed, due[i:]...)
			s.mu.Unlock()
			return
		}
		s.remove(d)
	}
}

// takeDue takes the logs off the list whose time has come.
func (s *Set) takeDue(now time.Time) (due []doomed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.doomed = slices.DeleteFunc(s.doomed, func(d doomed) bool {
		switch {
		case d.dir.failed != nil:
			return true
		case d.due.After(now):
			return false
		}
		due = append(due, d)
		return true
	})
	return due
}

func (s *Set) remove(d doomed) {
	var err error
	if d.log != nil {
		err = d.log.Delete()
	} else {
		err = s.o.FS.RemoveAll(d.path)
	}
	switch {
	case errors.Is(err, storage.ErrClosed): // its directory failed meanwhile
	case err != nil:
		s.Fail(d.dir, fmt.Errorf("deleting %s: %w", d.path, err))
	default:
		s.log.Info("deleted log", "dir", d.path)
	}
}

// judge takes the directory offline when err says so, and returns err.
func (s *Set) judge(d *Dir, err error) error {
	if isDiskFailure(err) {
		s.Fail(d, err)
	}
	return err
}

// Report takes the directory of a log offline when err, returned by one of the log's methods, says that its disk has
// failed, and tells whether it did say so. The caller must not be inside a call of a log.
func (s *Set) Report(err error) bool {
	var disk *storage.DiskError
	if !errors.As(err, &disk) || noSpace(err) {
		return false
	}
	d := s.byPath(filepath.Dir(disk.Dir))
	if d == nil {
		return false
	}
	s.Fail(d, err)
	return true
}

// Fail takes a directory offline after a failed disk operation. The first call counts; a full disk never does.
func (s *Set) Fail(d *Dir, err error) {
	if noSpace(err) {
		s.log.Warn("disk is full", "dir", d.Path, "err", err)
		return
	}
	s.mu.Lock()
	if d.failed != nil {
		s.mu.Unlock()
		return
	}
	d.failed = err
	var logs []*storage.Log
	for _, m := range []map[checkpoint.TopicPartition]*entry{s.current, s.future} {
		for p, e := range m {
			if e.dir == d {
				logs = append(logs, e.log)
				delete(m, p)
			}
		}
	}
	s.mu.Unlock()
	s.log.Error("log directory is offline", "dir", d.Path, "logs", len(logs), "err", err)
	if err := s.removeHint(d); err != nil {
		s.log.Error("the hint of a faster recovery stays: remove it before the next start", "file", filepath.Join(d.Path, hintFile), "err", err)
	}
	if s.o.Offline != nil {
		s.o.Offline(d, logs, err)
	}
	for _, l := range logs {
		l.Abandon()
	}
}
