package storage

import (
	"errors"
	"path/filepath"

	"weir/internal/checkpoint"
	"weir/internal/uuid"
	"weir/internal/vfs"
)

// A new log is made without waiting for the disk: neither its directory's name nor
// partition.metadata survives a power cut at first. Nothing is lost by that, since a
// log that is missing is made anew, and one without topic id is given its own; Apache
// Kafka writes partition.metadata later too. Once it has records and they are flushed,
// the flush makes both sure before. Whoever makes logs calls SecureAll soon, so that
// they need no flush.
//
// Until then the id stands in partition.metadata.tmp, where a killed process finds it
// again.

// manyFresh is from how many new logs on their volume is synced as a whole, see manyLogs.
const manyFresh = 64

// stageTopicID takes the id of a new log, whose file is put in place later. A full disk
// does not keep a log from being made.
func (l *Log) stageTopicID(id uuid.UUID) error {
	l.mu.topicID, l.mu.topicIDUnsaved = id, true
	err := checkpoint.StagePartitionMetadata(l.fs, filepath.Join(l.Dir(), checkpoint.PartitionFile), checkpoint.PartitionMetadata{TopicID: id})
	if err = l.diskLocked("create", err); errors.Is(err, ErrNoSpace) {
		l.logger.Warn("no room for partition.metadata; it is written later", "partition", l.name, "err", err)
		return nil
	}
	return err
}

// saveTopicID writes partition.metadata so that it survives a power cut; flushMu is held.
func (l *Log) saveTopicID(dir string, id uuid.UUID) error {
	err := checkpoint.WritePartitionMetadata(l.fs, filepath.Join(dir, checkpoint.PartitionFile), checkpoint.PartitionMetadata{TopicID: id})
	if err != nil {
		return storageError(dir, "write topic id", err)
	}
	l.secured(id, false)
	return nil
}

// unsecuredLocked tells what is not sure yet: the topic id, Zero when it is, and the
// directory's name.
func (l *Log) unsecuredLocked() (topicID uuid.UUID, newDir bool) {
	if l.mu.topicIDUnsaved {
		topicID = l.mu.topicID
	}
	return topicID, l.mu.unsyncedDir
}

// secured notes that the topic id, unless it is Zero, and the directory's name are sure.
func (l *Log) secured(topicID uuid.UUID, dir bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if topicID != uuid.Zero && topicID == l.mu.topicID {
		l.mu.topicIDUnsaved = false
	}
	if dir {
		l.mu.unsyncedDir = false
	}
}

// Unsecured tells whether SecureAll has something to do for this log.
func (l *Log) Unsecured() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	id, dir := l.unsecuredLocked()
	return l.mu.view.gone == nil && (id != uuid.Zero || dir)
}

// SecureAll makes new logs whose directories stand in dir survive a power cut, and all
// other names in dir. Of many logs it syncs the volume twice instead of several files of
// each. The logs are used meanwhile. After an error some of them are not sure yet, and
// their next flush sees to it.
func SecureAll(fsys vfs.FS, dir string, logs []*Log) error {
	if len(logs) >= manyFresh {
		if err := secureTogether(fsys, dir, logs); !errors.Is(err, errors.ErrUnsupported) {
			return err
		}
	}
	for _, l := range logs {
		if err := l.secureID((*Log).saveTopicID); err != nil {
			return err
		}
	}
	if err := fsys.SyncDir(dir); err != nil {
		return diskError(dir, "create", err)
	}
	for _, l := range logs {
		l.secured(uuid.Zero, true)
	}
	return nil
}

// secureTogether is SecureAll of many logs.
func secureTogether(fsys vfs.FS, dir string, logs []*Log) error {
	if err := fsys.SyncVolume(dir); errors.Is(err, errors.ErrUnsupported) {
		return err
	} else if err != nil {
		return diskError(dir, "create", err)
	}
	// What was staged is complete on disk.
	for _, l := range logs {
		if err := l.secureID((*Log).commitTopicID); err != nil {
			return err
		}
	}
	if err := fsys.SyncVolume(dir); err != nil {
		return diskError(dir, "create", err)
	}
	for _, l := range logs {
		l.secured(l.TopicID(), true)
	}
	return nil
}

// commitTopicID puts a staged partition.metadata in place; flushMu is held.
func (l *Log) commitTopicID(dir string, id uuid.UUID) error {
	file := filepath.Join(dir, checkpoint.PartitionFile)
	there, err := vfs.Exists(l.fs, vfs.StagedName(file))
	switch {
	case err != nil:
	case !there: // there was no room for it
		return l.saveTopicID(dir, id)
	default:
		err = vfs.CommitStaged(l.fs, file)
	}
	return storageError(dir, "write topic id", err)
}

// secureID lets save put the topic id of a log in place that is not, while nobody
// renames or closes the log.
func (l *Log) secureID(save func(l *Log, dir string, id uuid.UUID) error) error {
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	l.mu.Lock()
	id, _ := l.unsecuredLocked()
	gone := l.mu.view.gone != nil
	l.mu.Unlock()
	if gone || id == uuid.Zero {
		return nil
	}
	return save(l, l.Dir(), id)
}
