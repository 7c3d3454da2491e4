package metalog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"weir/internal/kraft"
	"weir/internal/vfs"
)

// installBit marks the ids of our own requests among those of the core.
const installBit = 1 << 63

// install is the download of a snapshot from the leader (FetchSnapshot).
type install struct {
	id     kraft.Position
	leader int32
	file   vfs.File // OFFSET-EPOCH.checkpoint.part
	at     int64
	req    uint64 // in flight
	whole  bool
}

func (l *Log) partPath(id kraft.Position) string { return l.path(id) + partSuffix }

// startInstall begins a download; mu is held.
func (l *Log) startInstall(id kraft.Position) error {
	l.dropInstall()
	f, err := l.o.FS.Open(l.partPath(id), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if noRoom(err) {
		l.installLater(err)
		return nil
	}
	if err != nil {
		return err
	}
	l.o.Logger.Info("fetching a snapshot: the leader no longer has the records we need", "dir", l.dir, "snapshot", fileName(id), "log end", l.store.LogEnd())
	l.install = &install{id: id, leader: l.core.State().Leader, file: f}
	l.askSnapshot()
	return nil
}

func (l *Log) askSnapshot() {
	in := l.install
	l.nextRef++
	in.req = installBit | l.nextRef
	l.send(kraft.Send{To: in.leader, ID: in.req, Body: kraft.SnapshotRequest{Replica: l.o.Self, Epoch: l.core.State().Epoch,
		ID: in.id, Offset: in.at, MaxBytes: l.o.Timeouts.MaxFetch}})
}

// dropInstall forgets a download; mu is held. The part file goes at the next start.
func (l *Log) dropInstall() {
	if l.install == nil {
		return
	}
	if err := l.install.file.Close(); err != nil {
		l.o.Logger.Warn("closing a snapshot part", "file", l.partPath(l.install.id), "err", err)
	}
	l.install = nil
}

// installLater begins a download anew when there may be room.
func (l *Log) installLater(err error) {
	l.noSpace(err)
	l.retryAt, l.retryInstall = l.o.Clock.Now().Add(spaceInterval), true
}

// installed takes a piece; mu is held.
func (l *Log) installed(r kraft.Response) error {
	in := l.install
	if in == nil || in.req != r.ID || in.whole {
		return nil
	}
	s, ok := r.Body.(kraft.SnapshotResponse)
	if !ok || s.Code != kraft.OK || s.ID != in.id || s.Offset != in.at || len(s.Bytes) == 0 {
		l.o.Logger.Warn("snapshot not fetched", "snapshot", fileName(in.id), "offset", in.at, "code", s.Code, "answered", ok)
		l.dropInstall()
		return l.step(kraft.Installing{Failed: true})
	}
	switch _, err := in.file.WriteAt(s.Bytes, in.at); {
	case noRoom(err):
		l.dropInstall()
		l.installLater(err)
		return nil
	case err != nil:
		l.dropInstall()
		l.err = fmt.Errorf("metadata log %s: snapshot part: %w", l.dir, err)
		return l.err
	}
	in.at += int64(len(s.Bytes))
	if in.at < s.Size {
		l.askSnapshot()
	} else {
		in.whole = true
	}
	return l.step(kraft.Installing{})
}

// finishInstall puts a downloaded snapshot in place and starts the log at its end.
func (l *Log) finishInstall() (bool, error) {
	l.mu.Lock()
	in := l.install
	whole := in != nil && in.whole
	l.release()
	if !whole {
		return false, nil
	}
	// A whole download is not dropped any more: file belongs to this goroutine.
	if err := errors.Join(in.file.Sync(), in.file.Close()); err != nil {
		return false, err
	}
	head, err := readFile(l.o.FS, l.partPath(in.id), in.id.Offset-1, nil)
	if err != nil {
		l.o.Logger.Warn("fetched snapshot is unusable", "err", err)
		l.mu.Lock()
		defer l.release()
		l.install = nil
		return true, l.step(kraft.Installing{Failed: true})
	}
	if err := l.o.FS.Rename(l.partPath(in.id), l.path(in.id)); err != nil {
		return false, err
	}
	if err := l.o.FS.SyncDir(l.dir); err != nil {
		return false, err
	}
	l.mu.Lock()
	defer l.release()
	l.install = nil
	return true, l.adopt(in.id, head)
}

// adopt makes a snapshot that is durable the beginning of the log; mu is held.
func (l *Log) adopt(id kraft.Position, head snapshotHead) error {
	l.addSnapshot(id)
	last, _ := l.store.LatestEpoch()
	end := kraft.Position{Offset: l.store.LogEnd(), Epoch: last}
	if end.Offset < id.Offset || end.Compare(id) < 0 {
		l.cuts++
		if err := l.store.TruncateFullyAndStartAt(id.Offset); err != nil {
			return err
		}
	} else {
		l.store.SetHighWatermark(id.Offset)
		if _, err := l.store.SetLogStart(id.Offset); err != nil {
			return err
		}
	}
	l.fresh, l.load, l.delivered = nil, &id, id.Offset
	for len(l.snapshots) > 0 && l.snapshots[0].Offset < id.Offset {
		old := l.snapshots[0]
		gone := l.path(old) + deletedSuffix
		if err := l.o.FS.Rename(l.path(old), gone); err != nil {
			return err
		}
		l.snapshots = l.snapshots[1:]
		l.deletes = append(l.deletes, dueDelete{at: l.o.Clock.Now().Add(time.Duration(l.o.Limits.DeleteDelayMs) * time.Millisecond), path: gone})
	}
	return l.step(kraft.Snapshotted{ID: id, Start: &id, Control: head.control})
}

// withSnapshot adds the bytes to the core's answer to a SnapshotRequest.
func (l *Log) withSnapshot(q kraft.SnapshotRequest, body kraft.ResponseBody) kraft.ResponseBody {
	r, ok := body.(kraft.SnapshotResponse)
	if !ok || r.Code != kraft.OK {
		return body
	}
	r.Bytes, r.Size, r.Code = l.readSnapshot(q)
	return r
}

func (l *Log) readSnapshot(q kraft.SnapshotRequest) (piece []byte, size int64, code kraft.Code) {
	f, err := l.o.FS.Open(l.path(q.ID), os.O_RDONLY, 0)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			l.o.Logger.Warn("snapshot asked for cannot be read", "err", err)
		}
		return nil, 0, kraft.SnapshotNotFound
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		l.o.Logger.Warn("snapshot asked for cannot be read", "err", err)
		return nil, 0, kraft.SnapshotNotFound
	}
	if q.Offset < 0 || q.Offset >= info.Size() {
		return nil, info.Size(), kraft.PositionOutOfRange
	}
	piece = make([]byte, min(info.Size()-q.Offset, int64(max(q.MaxBytes, 1)), int64(l.o.Timeouts.MaxFetch)))
	if n, err := f.ReadAt(piece, q.Offset); n < len(piece) && err != io.EOF {
		l.o.Logger.Warn("snapshot asked for cannot be read", "err", err)
		return nil, 0, kraft.SnapshotNotFound
	}
	return piece, info.Size(), kraft.OK
}
