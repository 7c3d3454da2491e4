package dirs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/internal/checkpoint"
	"weir/internal/storage"
	"weir/internal/uuid"
)

// Failure is a partition that could not be opened. Its directory is untouched.
type Failure struct {
	Partition checkpoint.TopicPartition
	Dir       *Dir
	Path      string // of the log's directory
	Err       error
}

// loading is what Load knows of one directory.
type loading struct {
	set   *Set
	dir   *Dir
	clean bool
	// session is vfs.FS.Session of the directory now, "" when it is not known; resumed says that the process before died in
	// the same one. See hintFile.
	session string
	resumed bool
	// Entries of the checkpoint files; read-only once loaded.
	recovery, starts, highs checkpoint.Offsets
	cleaned                 checkpoint.Offsets
	found                   []found
	progress
}

type found struct {
	p    checkpoint.TopicPartition
	kind storage.Kind
	path string
}

// Load opens every log, all directories at once and RecoveryThreads logs of each. It consumes the clean-shutdown
// markers: from here on a crash means recovery. A log that fails takes its partition offline (Failures), a disk that
// fails its directory. It returns an error when no directory is left, or ctx ends.
func (s *Set) Load(ctx context.Context) error {
	start := s.o.Clock.Now()
	var g errgroup.Group
	for _, d := range s.Dirs() {
		g.Go(func() error {
			err := s.loadDir(ctx, d)
			if err != nil && ctx.Err() == nil {
				s.Fail(d, err)
				return nil
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	s.mu.Lock()
	logs, failed, live := len(s.current)+len(s.future), len(s.failures), len(s.liveLocked())
	s.mu.Unlock()
	if live == 0 {
		return ErrNoDirectory
	}
	s.log.Info("loaded all logs", "logs", logs, "failed", failed, "took", s.o.Clock.Now().Sub(start).Round(time.Millisecond))
	return nil
}

func (s *Set) loadDir(ctx context.Context, d *Dir) error {
	l := &loading{set: s, dir: d, progress: progress{started: s.o.Clock.Now()}}
	if err := l.consumeMarker(); err != nil {
		return err
	}
	l.readSession()
	l.resumed = !l.clean && l.intact()
	l.recovery = l.readOffsets(checkpoint.RecoveryPointFile, "every log is recovered from its start")
	l.starts = l.readOffsets(checkpoint.LogStartFile, "logs start at their first segment")
	l.highs = l.readOffsets(checkpoint.HighWatermarkFile, "high watermarks start at the log start")
	s.writeMu.Lock()
	d.onDisk = map[string]checkpoint.Offsets{
		checkpoint.RecoveryPointFile: l.recovery, checkpoint.LogStartFile: l.starts, checkpoint.HighWatermarkFile: l.highs,
	}
	s.writeMu.Unlock()
	if err := l.scan(); err != nil {
		return err
	}
	l.cleaned = l.readOffsets(checkpoint.CleanerOffsetFile, "compaction starts again")
	s.mu.Lock()
	d.cleaned = maps.Clone(l.cleaned)
	s.mu.Unlock()
	how := "no clean shutdown, recovering from the recovery points"
	switch {
	case len(l.found) == 0:
		how = "no logs here yet"
	case l.clean:
		how = "clean shutdown, no recovery needed"
	case l.resumed:
		how = "no clean shutdown, but the machine has run on: only the ends of logs are checked"
	}
	s.log.Info("loading logs", "dir", d.Path, "logs", len(l.found), "state", how)
	if !l.clean && !l.resumed {
		l.measure()
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(max(1, s.o.RecoveryThreads))
	for _, f := range l.found {
		g.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return l.open(f)
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if err := s.tidyCleaned(d); err != nil {
		return err
	}
	// A process that was killed may not have come to Secure.
	if err := s.o.FS.SyncDir(d.Path); err != nil {
		return err
	}
	return l.leaveHint()
}

// consumeMarker notes whether the last stop was clean and removes the marker for good before any log is opened.
func (l *loading) consumeMarker() error {
	fsys, path := l.set.o.FS, filepath.Join(l.dir.Path, checkpoint.CleanShutdownFile)
	_, err := fsys.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	l.clean = true
	if err := fsys.Remove(path); err != nil {
		return err
	}
	return fsys.SyncDir(l.dir.Path)
}

// readOffsets reads a checkpoint; a damaged or missing one costs time, not data.
func (l *loading) readOffsets(name, consequence string) checkpoint.Offsets {
	o, err := checkpoint.ReadOffsets(l.set.o.FS, filepath.Join(l.dir.Path, name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.set.log.Warn("checkpoint cannot be read: "+consequence, "dir", l.dir.Path, "err", err)
	}
	if o == nil {
		o = checkpoint.Offsets{}
	}
	return o
}

// scan lists what stands in the directory. Nothing that is not known to be a log is touched.
func (l *loading) scan() error {
	s := l.set
	list, err := s.o.FS.ReadDir(l.dir.Path)
	if err != nil {
		return err
	}
	for _, e := range list {
		if !e.IsDir() || e.Name() == metadataLogDir || e.Name() == "remote-log-index-cache" {
			continue
		}
		path := filepath.Join(l.dir.Path, e.Name())
		topic, partition, kind, err := storage.ParseDirName(e.Name())
		if err != nil {
			s.log.Warn("leaving alone a directory that is no log", "dir", path, "reason", err)
			continue
		}
		p := checkpoint.TopicPartition{Topic: topic, Partition: partition}
		switch kind {
		case storage.Deleted:
			s.doom(doomed{path: path, dir: l.dir, due: s.o.Clock.Now().Add(s.deleteDelay(p))})
		case storage.Stray:
			s.log.Warn("keeping a stray log; remove it by hand when it is not wanted", "dir", path)
		default:
			l.found = append(l.found, found{p, kind, path})
		}
	}
	return nil
}

// open opens one log. An error means that the directory has failed.
func (l *loading) open(f found) error {
	s := l.set
	o := s.logOptions(f.p, l.dir, f.path)
	o.RecoveryPoint, o.LogStart, o.HadCleanShutdown, o.Intact = l.recovery[f.p], l.starts[f.p], l.clean, l.resumed
	if f.kind == storage.Current {
		o.Cleaned = l.cleaned[f.p]
	}
	o.Progress = l.recovered
	log, err := storage.Open(o)
	if isDiskFailure(err) {
		return err
	}
	if err == nil {
		if high, ok := l.highs[f.p]; ok {
			log.SetHighWatermark(high)
		}
		if err = s.enter(f, log, l.dir); err != nil {
			err = giveUp(log, err)
		}
	}
	if err != nil {
		s.log.Error("partition is offline: its log cannot be opened", "partition", f.p.String(), "dir", f.path, "err", err)
		s.mu.Lock()
		s.failures = append(s.failures, Failure{f.p, l.dir, f.path, err})
		l.keepLocked(f.p)
		s.mu.Unlock()
	}
	l.count()
	return nil
}

// enter puts a loaded log into the registry. A topic's partition may be found in two directories when the node died
// between the two renames of Promote: both hold the same then, or after a power cut the log that was moved away lacks a
// tail. The one that holds more is taken, and the other one is kept as stray, so that later starts do not take that one.
// Between logs of two topics of the same name the image decides, see Settle; without topic ids, from before 2.8, the
// operator does, as in Kafka.
func (s *Set) enter(f found, log *storage.Log, d *Dir) error {
	s.mu.Lock()
	into := s.slotsLocked(f.kind == storage.Future)
	e := &entry{log, d}
	other := into[f.p]
	switch {
	case other == nil:
		into[f.p] = e
		if log.Unsecured() {
			s.fresh = append(s.fresh, fresh{f.p, e})
		}
		s.mu.Unlock()
		return nil
	case other.log.TopicID() != log.TopicID() && log.TopicID() != uuid.Zero && other.log.TopicID() != uuid.Zero && f.kind == storage.Current:
		s.mu.Unlock()
		return &rivalError{log.TopicID(), other.log.Dir()}
	case other.log.TopicID() != log.TopicID() || log.TopicID() == uuid.Zero || f.kind == storage.Future:
		s.mu.Unlock()
		return fmt.Errorf("a log of it stands in %s too: remove one of the two directories by hand", other.log.Dir())
	}
	if more := cmp.Or(cmp.Compare(log.LogEnd(), other.log.LogEnd()), cmp.Compare(other.dir.Path, d.Path)); more > 0 {
		into[f.p], e, other = e, other, e // e is the one that goes
	}
	s.mu.Unlock()
	s.log.Warn("a partition stands in two directories: the log that holds more is used", "partition", f.p.String(),
		"dir", other.log.Dir(), "end", other.log.LogEnd(), "other", e.log.Dir(), "other end", e.log.LogEnd())
	if err := e.log.Rename(storage.Stray, s.o.Rand); err != nil {
		e.log.Abandon()
		return fmt.Errorf("keeping the log in %s as stray: %w", e.dir.Path, s.judge(e.dir, err))
	}
	return s.retired(f.p, e, storage.Stray)
}

// giveUp closes a log that cannot be served: cleanly when it may be later.
func giveUp(log *storage.Log, err error) error {
	if !errors.As(err, new(*rivalError)) {
		log.Abandon()
		return err
	}
	if cerr := log.Close(); cerr != nil {
		return cerr // no rival any more, but a log that failed
	}
	return err
}

// keepLocked keeps the checkpoint entries of a partition that failed, so that writing the files does not lose them.
func (l *loading) keepLocked(p checkpoint.TopicPartition) {
	for name, from := range map[string]checkpoint.Offsets{
		checkpoint.RecoveryPointFile: l.recovery, checkpoint.LogStartFile: l.starts, checkpoint.HighWatermarkFile: l.highs,
		checkpoint.CleanerOffsetFile: l.cleaned,
	} {
		if offset, ok := from[p]; ok {
			if l.dir.kept[name] == nil {
				l.dir.kept[name] = checkpoint.Offsets{}
			}
			l.dir.kept[name][p] = offset
		}
	}
}

// logOptions are the owner's options for a partition with the Set's part filled in.
func (s *Set) logOptions(p checkpoint.TopicPartition, d *Dir, path string) storage.Options {
	o := s.options(p)
	o.FS, o.Dir, o.Topic, o.Partition, o.Clock, o.Logger = s.o.FS, path, p.Topic, p.Partition, s.o.Clock, s.log
	o.Lowered = func(point int64) error { return s.joinLowered(p, d, point) }
	return o
}

func (s *Set) options(p checkpoint.TopicPartition) storage.Options {
	if s.o.Log == nil {
		return storage.Options{}
	}
	return s.o.Log(p)
}

// deleteDelay is file.delete.delay.ms of the partition's topic.
func (s *Set) deleteDelay(p checkpoint.TopicPartition) time.Duration {
	if c := s.options(p).Config; c != nil {
		return time.Duration(c.FileDeleteDelayMs) * time.Millisecond
	}
	return time.Minute
}
