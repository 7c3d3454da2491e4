package storage

import (
	"errors"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"weir/internal/checkpoint"
	"weir/internal/vfs"
)

// manyLogs is from how many logs on their volume is synced as a whole. With fewer the files are synced one by one: a
// sync of the volume also waits for what others have written there.
const manyLogs = 500

// CloseAll closes logs whose directories stand in dir, as Close does each; threads of them are worked on at a time. Of
// many logs it syncs the volume two or three times instead of several files of each: with thousands of logs that is what
// a clean stop consists of. Where a volume cannot be synced as a whole, each log is closed by itself.
func CloseAll(fsys vfs.FS, dir string, logs []*Log, threads int) error {
	c := closing{fs: fsys, dir: dir, threads: max(1, threads)}
	if len(logs) < manyLogs {
		return c.each(len(logs), func(i int) error { return logs[i].Close() })
	}
	return c.together(logs)
}

// together is CloseAll of many logs.
func (c *closing) together(logs []*Log) error {
	fsys, dir := c.fs, c.dir
	if err := fsys.SyncVolume(dir); errors.Is(err, errors.ErrUnsupported) {
		return c.each(len(logs), func(i int) error { return logs[i].Close() })
	} else if err != nil {
		for _, l := range logs {
			l.Abandon()
		}
		return diskError(dir, "close", err)
	}
	for _, l := range logs {
		l.flushMu.Lock()
		defer l.flushMu.Unlock()
	}
	err := c.run(logs)
	for _, l := range logs {
		err = errors.Join(err, l.drop())
	}
	return err
}

// closing is CloseAll at work. The logs' flushMu is held.
type closing struct {
	fs      vfs.FS
	dir     string
	threads int
}

// each runs work for every index and joins the errors.
func (c *closing) each(n int, work func(i int) error) error {
	var g errgroup.Group
	g.SetLimit(c.threads)
	errs := make([]error, n)
	for i := range n {
		g.Go(func() error {
			errs[i] = work(i)
			return nil
		})
	}
	return errors.Join(g.Wait(), errors.Join(errs...))
}

func (c *closing) run(logs []*Log) error {
	works := make([]*flushWork, len(logs)) // nil: closed already
	staged := make([][]string, len(logs))
	err := c.each(len(logs), func(i int) (err error) {
		works[i], staged[i], err = logs[i].writeOut()
		return err
	})
	if err != nil {
		return err
	}
	if err := c.fs.SyncVolume(c.dir); err != nil {
		return diskError(c.dir, "close", err)
	}
	// The staged files are complete on disk: now they may take the place of the old ones.
	renamed := false
	for i, w := range works {
		for _, name := range staged[i] {
			renamed = true
			if err := vfs.CommitStaged(c.fs, filepath.Join(w.dir, name)); err != nil {
				return logs[i].closeError(w, err)
			}
		}
	}
	if renamed {
		if err := c.fs.SyncVolume(c.dir); err != nil {
			return diskError(c.dir, "close", err)
		}
	}
	for i, w := range works {
		if w != nil {
			logs[i].synced(w)
			logs[i].recovery.Store(max(logs[i].recovery.Load(), w.end))
		}
	}
	return nil
}

// writeOut brings what is in memory only to the files; staged ones wait in a file beside the old one. It returns nil for
// a log that is closed.
func (l *Log) writeOut() (w *flushWork, staged []string, err error) {
	if err := l.settle(); errors.Is(err, ErrClosed) {
		return nil, nil, nil
	} else if err != nil {
		return nil, nil, err
	}
	w = l.captureAll()
	for _, s := range w.segments {
		if err := s.WriteOut(); err != nil {
			return w, nil, l.closeError(w, err)
		}
	}
	if !w.topicID.IsZero() {
		err = checkpoint.StagePartitionMetadata(l.fs, filepath.Join(w.dir, checkpoint.PartitionFile), checkpoint.PartitionMetadata{TopicID: w.topicID})
		staged = append(staged, checkpoint.PartitionFile)
	}
	if err == nil && w.epochsDue {
		var apart bool
		if apart, err = checkpoint.StageEpochs(l.fs, filepath.Join(w.dir, checkpoint.LeaderEpochFile), epochLines(w.epochs)); apart {
			staged = append(staged, checkpoint.LeaderEpochFile)
		}
	}
	return w, staged, l.closeError(w, err)
}

func (l *Log) closeError(w *flushWork, err error) error { return storageError(w.dir, "close", err) }
