package metalog

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/internal/kraft"
)

const (
	snapshotSuffix = ".checkpoint"
	partSuffix     = ".part"
	deletedSuffix  = ".deleted"
)

// fileName is OFFSET-EPOCH.checkpoint.
func fileName(id kraft.Position) string {
	return fmt.Sprintf("%020d-%010d%s", id.Offset, id.Epoch, snapshotSuffix)
}

// parseFileName is the opposite; what is not a snapshot's name gives false.
func parseFileName(name string) (id kraft.Position, ok bool) {
	stem, ok := strings.CutSuffix(name, snapshotSuffix)
	if !ok || len(stem) != 31 || stem[20] != '-' {
		return id, false
	}
	offset, err1 := strconv.ParseUint(stem[:20], 10, 63)
	epoch, err2 := strconv.ParseUint(stem[21:], 10, 31)
	return kraft.Position{Offset: int64(offset), Epoch: int32(epoch)}, err1 == nil && err2 == nil
}

// dueDelete is a renamed file that goes when its time has come.
type dueDelete struct {
	at   time.Time
	path string
}

// listSnapshots returns the ids of the snapshots in dir in order, and removes
// what a crash left: half-written and half-deleted ones.
func (l *Log) listSnapshots() ([]kraft.Position, error) {
	entries, err := l.o.FS.ReadDir(l.dir)
	if err != nil {
		return nil, err
	}
	var ids []kraft.Position
	for _, e := range entries {
		name := e.Name()
		if id, ok := parseFileName(name); ok {
			ids = append(ids, id)
			continue
		}
		stem := strings.TrimSuffix(strings.TrimSuffix(name, partSuffix), deletedSuffix)
		if stem != name && strings.Contains(stem, snapshotSuffix) {
			if err := l.o.FS.Remove(filepath.Join(l.dir, name)); err != nil {
				return nil, err
			}
		}
	}
	slices.SortFunc(ids, func(a, b kraft.Position) int { return cmp.Compare(a.Offset, b.Offset) })
	return ids, nil
}

// retainSnapshots drops old snapshots, and the log below the oldest one that is
// kept: by the age of what they contain, then while log and snapshots together
// are too big. The newest always stays.
func (l *Log) retainSnapshots(now time.Time) error {
	for {
		l.mu.Lock()
		ids := slices.Clone(l.snapshots)
		l.mu.Unlock()
		if len(ids) < 2 {
			return nil
		}
		why, err := l.expired(ids, now)
		if err != nil {
			return err
		}
		if why == "" {
			return nil
		}
		if err := l.dropSnapshot(ids[0], ids[1], why, now); err != nil {
			return err
		}
	}
}

// expired says why the first of ids may go, "" when it may not.
func (l *Log) expired(ids []kraft.Position, now time.Time) (string, error) {
	lim := l.o.Limits
	if lim.RetentionMs >= 0 {
		head, err := readFile(l.o.FS, l.path(ids[0]), ids[0].Offset-1, nil)
		if err != nil {
			return "", err
		}
		if age := now.UnixMilli() - head.timestampMs; age > lim.RetentionMs {
			return fmt.Sprintf("its records are %d ms old, metadata.max.retention.ms is %d", age, lim.RetentionMs), nil
		}
	}
	if lim.RetentionBytes >= 0 {
		total := l.store.Size()
		for _, id := range ids {
			info, err := l.o.FS.Stat(l.path(id))
			if err != nil {
				return "", err
			}
			total += info.Size()
		}
		if total > lim.RetentionBytes {
			return fmt.Sprintf("log and snapshots have %d bytes, metadata.max.retention.bytes is %d", total, lim.RetentionBytes), nil
		}
	}
	return "", nil
}

// dropSnapshot starts the log at next and renames id for deletion.
func (l *Log) dropSnapshot(id, next kraft.Position, why string, now time.Time) error {
	l.mu.Lock()
	defer l.unlock()
	if l.core.HighWatermark() < next.Offset {
		return nil
	}
	if _, err := l.store.SetLogStart(next.Offset); err != nil {
		return err
	}
	if _, err := l.store.Retain(now); err != nil {
		return err
	}
	l.snapshots = slices.DeleteFunc(l.snapshots, func(p kraft.Position) bool { return p == id })
	if err := l.step(kraft.Snapshotted{ID: next, Start: &next}); err != nil {
		return err
	}
	gone := l.path(id) + deletedSuffix
	if err := l.o.FS.Rename(l.path(id), gone); err != nil {
		return err
	}
	l.deletes = append(l.deletes, dueDelete{at: now.Add(time.Duration(l.o.Limits.DeleteDelayMs) * time.Millisecond), path: gone})
	l.o.Logger.Info("snapshot dropped", "dir", l.dir, "snapshot", fileName(id), "log start", next.Offset, "why", why)
	return nil
}

// runDeletes removes the renamed files whose time has come.
func (l *Log) runDeletes(now time.Time) error {
	l.mu.Lock()
	var due []string
	l.deletes = slices.DeleteFunc(l.deletes, func(d dueDelete) bool {
		if d.at.After(now) {
			return false
		}
		due = append(due, d.path)
		return true
	})
	l.mu.Unlock()
	for _, path := range due {
		if err := l.o.FS.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (l *Log) path(id kraft.Position) string { return filepath.Join(l.dir, fileName(id)) }
