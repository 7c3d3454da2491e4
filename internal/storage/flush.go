package storage

import (
	"errors"
	"math"
	"path/filepath"
	"time"

	"weir/internal/checkpoint"
	"weir/internal/storage/epoch"
	"weir/internal/storage/producer"
	"weir/internal/storage/segment"
	"weir/internal/uuid"
)

// never is a time that Tick does not reach.
const never = math.MaxInt64

// Flush makes everything below upTo survive a power cut, and raises the
// recovery point; upTo < 0 or above the log end means the log end. Many callers
// at once share one fsync.
func (l *Log) Flush(upTo int64) error {
	if end := l.LogEnd(); upTo < 0 || upTo > end {
		upTo = end
	}
	return l.flush(upTo, false)
}

// flush waits for its turn and then finds that the one before has often
// already done its work. group flushes all there is and not only what was asked
// for, so that those who wait behind have nothing left to do.
func (l *Log) flush(upTo int64, group bool) error {
	if l.recovery.Load() >= upTo {
		return nil
	}
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	return l.flushHeld(upTo, group)
}

// flushWork is what a flush has to sync, captured under mu.
type flushWork struct {
	dir       string
	end       int64
	segments  []*segment.Segment
	snapshots []int64
	names     bool
	epochs    []epoch.Entry
	version   uint64
	epochsDue bool
	topicID   uuid.UUID // to be written; Zero when it is
	newDir    bool      // the directory's own name is to be synced
}

// flushHeld is flush by the holder of flushMu.
func (l *Log) flushHeld(upTo int64, group bool) error {
	w, err := l.captureFlush(upTo, group)
	if err != nil || w == nil {
		return err
	}
	if err := l.sync(w); err != nil {
		l.restoreFlush(w)
		if gone := l.view.Load().gone; gone != nil {
			return gone // given up meanwhile, its files with it
		}
		return storageError(w.dir, "flush", err)
	}
	l.synced(w)
	l.mu.Lock()
	defer l.mu.Unlock()
	// Nobody cuts the log while flushMu is held.
	if w.end > l.recovery.Load() {
		l.recovery.Store(w.end)
	}
	l.lastFlushMs.Store(l.nowMs())
	l.wakeTickLocked()
	return nil
}

func (l *Log) captureFlush(upTo int64, group bool) (*flushWork, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := &l.mu.view
	if v.gone != nil {
		return nil, v.gone
	}
	from := l.recovery.Load()
	if group {
		upTo = v.logEnd
	}
	upTo = min(upTo, v.logEnd)
	if from >= upTo {
		return nil, nil
	}
	w := &flushWork{dir: l.Dir(), end: upTo, names: l.mu.unsyncedNames}
	for _, s := range v.segments[v.floor(from):] {
		if s.BaseOffset() < upTo {
			w.segments = append(w.segments, s)
		}
	}
	w.snapshots, l.mu.unsyncedSnapshots = l.mu.unsyncedSnapshots, nil
	w.topicID, w.newDir = l.unsecuredLocked()
	l.mu.unsyncedNames = false
	w.epochs, w.version, w.epochsDue = l.epochs.Unsaved(upTo)
	return w, nil
}

// restoreFlush gives back what a failed flush has not synced.
func (l *Log) restoreFlush(w *flushWork) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.unsyncedSnapshots = append(w.snapshots, l.mu.unsyncedSnapshots...)
	l.mu.unsyncedNames = l.mu.unsyncedNames || w.names
}

// synced notes what sync has made sure.
func (l *Log) synced(w *flushWork) {
	if w.epochsDue {
		l.epochs.Saved(w.version)
	}
	l.secured(w.topicID, w.newDir)
}

// sync does the fsyncs of a flush: whose log it is, the data, then what describes
// it, and the directory that names it all.
func (l *Log) sync(w *flushWork) error {
	if !w.topicID.IsZero() {
		if err := l.saveTopicID(w.dir, w.topicID); err != nil {
			return err
		}
	}
	if w.newDir {
		if err := l.fs.SyncDir(filepath.Dir(w.dir)); err != nil {
			return err
		}
	}
	for _, s := range w.segments {
		if err := s.Flush(); err != nil {
			return err
		}
	}
	for _, o := range w.snapshots {
		if err := producer.SyncSnapshot(l.fs, w.dir, o); err != nil {
			return err
		}
	}
	if w.epochsDue {
		if err := writeEpochs(l, w.dir, w.epochs); err != nil {
			return err
		}
	}
	if w.names {
		return l.fs.SyncDir(w.dir)
	}
	return nil
}

func writeEpochs(l *Log, dir string, entries []epoch.Entry) error {
	return checkpoint.WriteEpochs(l.fs, filepath.Join(dir, checkpoint.LeaderEpochFile), epochLines(entries))
}

func epochLines(entries []epoch.Entry) []checkpoint.EpochEntry {
	out := make([]checkpoint.EpochEntry, len(entries))
	for i, e := range entries {
		out[i] = checkpoint.EpochEntry{Epoch: e.Epoch, StartOffset: e.StartOffset}
	}
	return out
}

// wakeTickLocked plans the next time Tick has something to do: at once when a
// rolled segment is not flushed, after flush.ms when there are unflushed
// records, and when renamed files are due for deletion.
func (l *Log) wakeTickLocked() {
	v := &l.mu.view
	at := int64(never)
	switch from := l.recovery.Load(); {
	case v.gone != nil:
	case from < min(v.active().BaseOffset(), v.logEnd):
		at = 0
	case from < v.logEnd:
		if ms := l.cfg.Load().FlushMs; ms < never-l.lastFlushMs.Load() {
			at = l.lastFlushMs.Load() + ms
		}
	}
	for _, p := range l.mu.doomed {
		at = min(at, p.due.UnixMilli())
	}
	l.nextTick.Store(at)
}

// Tick does what is due at now: it flushes rolled segments and, by flush.ms,
// the active one, and deletes renamed files after file.delete.delay.ms. The
// owner calls it for all its logs, once in a while; when nothing is due it
// costs one atomic load.
func (l *Log) Tick(now time.Time) error {
	if now.UnixMilli() < l.nextTick.Load() {
		return nil
	}
	var err error
	if upTo := l.flushDue(now); upTo > 0 {
		err = l.flush(upTo, false)
	}
	return errors.Join(err, l.RunDeletes(now)) // deletions are what a full disk needs
}

// flushDue is the offset up to which Tick is to flush.
func (l *Log) flushDue(now time.Time) int64 {
	v, from := l.view.Load(), l.recovery.Load()
	if v.gone != nil {
		return 0
	}
	if ms := l.cfg.Load().FlushMs; from < v.logEnd && now.UnixMilli()-l.lastFlushMs.Load() >= ms {
		return v.logEnd
	}
	return min(v.active().BaseOffset(), v.logEnd)
}
