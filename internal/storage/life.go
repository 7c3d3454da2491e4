package storage

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"weir/internal/uuid"
)

// TopicID is the topic's id, Zero when it is not known.
func (l *Log) TopicID() uuid.UUID {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.topicID
}

// AssignTopicID gives a log the id of its topic, and stores it in
// partition.metadata when the log had none. *TopicIDError: the directory belongs to
// another topic.
func (l *Log) AssignTopicID(id uuid.UUID) error {
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	l.mu.Lock()
	err := l.mu.view.gone
	before := l.mu.topicID
	if err == nil && before.IsZero() {
		l.mu.topicID, l.mu.topicIDUnsaved = id, true
	}
	l.mu.Unlock()
	switch {
	case err != nil:
		return err
	case before == id:
		return nil
	case !before.IsZero():
		return &TopicIDError{Dir: l.Dir(), Stored: before.String(), Assigned: id.String()}
	}
	return l.saveTopicID(l.Dir(), id)
}

// Rename moves the directory to its name of another kind, within the same log
// directory; rand gives the unique part of the name. Regions and reads under
// way go on. The caller syncs the log directory.
func (l *Log) Rename(kind Kind, rand io.Reader) error {
	name := DirName(l.topic, l.partition)
	if kind != Current {
		name = RenamedDirName(l.topic, l.partition, kind, rand)
	}
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.mu.view.gone; err != nil && !errors.Is(err, ErrClosed) {
		return err
	}
	to := filepath.Join(filepath.Dir(l.Dir()), name)
	if to == l.Dir() {
		return nil
	}
	if err := l.dir.Rename(l.fs, to); err != nil {
		return l.diskLocked(fmt.Sprintf("rename to %s", name), err)
	}
	l.mu.producers.SetDir(to)
	return nil
}

// Delete closes the log and removes its directory. Regions in flight stay
// readable. A power cut may bring the directory back, under the name that the
// caller gave it before and synced.
func (l *Log) Delete() error {
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.dropLocked()
	dir := l.Dir()
	return l.diskLocked("delete", errors.Join(err, l.fs.RemoveAll(dir)))
}

// Close ends the log cleanly: when it returns without error everything is
// fsynced, a producer snapshot at the log end is written and the next Open with
// HadCleanShutdown needs no recovery. RecoveryPoint is the log end then.
func (l *Log) Close() error {
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	if err := l.settle(); err != nil {
		if errors.Is(err, ErrClosed) {
			return nil
		}
		return errors.Join(err, l.drop())
	}
	err := l.flushHeld(l.LogEnd(), true)
	if err == nil {
		err = l.syncRest()
	}
	return errors.Join(err, l.drop())
}

// settle brings what is in memory only to the files.
func (l *Log) settle() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := &l.mu.view
	if v.gone != nil {
		return v.gone
	}
	p := l.mu.producers
	p.SetMapEnd(max(p.MapEnd(), v.logEnd))
	wrote, err := p.Snapshot()
	if err != nil {
		return l.diskLocked("close", err)
	}
	if wrote {
		l.mu.unsyncedSnapshots = append(l.mu.unsyncedSnapshots, p.MapEnd())
		l.mu.unsyncedNames = true
	}
	return l.diskLocked("close", v.active().Deactivate())
}

// syncRest makes durable what a flush that had no new records has passed over:
// trimmed indexes, a last snapshot, epochs assigned since.
func (l *Log) syncRest() error {
	w := l.captureAll()
	err := l.sync(w)
	if err == nil {
		l.synced(w)
	}
	return storageError(w.dir, "close", err)
}

func (l *Log) captureAll() *flushWork {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := &l.mu.view
	w := &flushWork{dir: l.Dir(), end: v.logEnd, names: l.mu.unsyncedNames, snapshots: l.mu.unsyncedSnapshots}
	for _, s := range v.segments {
		if s.Dirty() {
			w.segments = append(w.segments, s)
		}
	}
	w.epochs, w.version, w.epochsDue = l.epochs.Unsaved(v.logEnd)
	w.topicID, w.newDir = l.unsecuredLocked()
	return w
}

// CloseIdle closes the files that the log holds open; the next use opens them
// again.
func (l *Log) CloseIdle() error {
	v := l.view.Load()
	var err error
	for _, s := range v.segments {
		l.files.closed(s)
		err = errors.Join(err, s.CloseHandles())
	}
	return storageError(l.Dir(), "close files", err)
}

// OpenFiles is the number of files that the log holds open.
func (l *Log) OpenFiles() int {
	n := 0
	for _, s := range l.view.Load().segments {
		n += s.OpenFiles()
	}
	return n
}

// Abandon closes the files and writes nothing, as a killed process does: for a
// log directory that has failed, and for tests.
func (l *Log) Abandon() { _ = l.drop() }

func (l *Log) drop() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dropLocked()
}

// dropLocked lets go of all files and refuses every later call. A read under way that would open a file again fails,
// and finds then that the log is gone.
func (l *Log) dropLocked() error {
	v := &l.mu.view
	var errs []error
	for _, s := range v.segments {
		l.files.closed(s)
		errs = append(errs, s.Abandon())
	}
	for _, d := range l.mu.doomed {
		for _, s := range d.segments {
			l.files.closed(s)
			errs = append(errs, s.Abandon())
		}
	}
	v.gone = ErrClosed
	gone := *v
	l.view.Store(&gone)
	l.nextTick.Store(never)
	return errors.Join(errs...)
}
