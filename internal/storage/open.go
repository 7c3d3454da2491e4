package storage

import (
	"errors"
	"io/fs"
	"log/slog"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"weir/internal/checkpoint"
	"weir/internal/storage/epoch"
	"weir/internal/storage/producer"
	"weir/internal/storage/segment"
	"weir/internal/vfs"
)

// Open opens the log in o.Dir, or makes an empty one. Unless the last stop was
// clean, segments at and above the recovery point are recovered: each batch is
// checked, a torn tail is cut, indexes, epochs and producer state are made
// anew. Errors: *CorruptError (data below the recovery point), *DiskError,
// *TopicIDError.
//
// A full disk does not keep a log from being opened.
func Open(o Options) (*Log, error) {
	l := &Log{
		fs: o.FS, dir: segment.NewDir(o.Dir), topic: o.Topic, partition: o.Partition, name: DirName(o.Topic, o.Partition),
		clock: o.Clock, rand: o.Rand, logger: o.Logger, buffers: o.Buffers, files: o.Files, lowered: o.Lowered,
	}
	if l.logger == nil {
		l.logger = slog.New(slog.DiscardHandler)
	}
	if l.buffers == nil {
		l.buffers = segment.NewBuffers()
	}
	l.cfg.Store(o.Config)
	l.lastFlushMs.Store(l.nowMs())
	ld := &loader{l: l, o: &o}
	if err := ld.load(); err != nil {
		for _, s := range ld.segments {
			l.files.closed(s)
			err = errors.Join(err, s.Abandon())
		}
		return nil, diskError(o.Dir, "open", err)
	}
	// Many logs are opened and few are used at once.
	if err := l.CloseIdle(); err != nil {
		return nil, err
	}
	return l, nil
}

// loader builds a Log; nobody else knows it yet, so no lock is taken.
type loader struct {
	l        *Log
	o        *Options
	segments []*segment.Segment // ascending
	changed  bool               // recovery cut or removed something
	holes    bool               // recovery has found offsets missing within a segment
	resumed  bool               // the producer state is that of the log end already
	made     bool               // the directory is new: there is nothing to be read
}

func (ld *loader) load() error {
	l, o := ld.l, ld.o
	if err := ld.openDir(); err != nil {
		return err
	}
	if err := ld.loadTopicID(); err != nil {
		return err
	}
	if err := ld.openSegments(); err != nil {
		return err
	}
	var err error
	if l.mu.producers, err = producer.New(l.fs, o.Dir, l.name, o.Producer, l.logger); err != nil {
		return err
	}
	rebuildEpochs, err := ld.loadEpochs()
	if err != nil {
		return err
	}
	if err := ld.recover(); err != nil {
		return err
	}
	end, err := ld.findEnd()
	if err != nil {
		return err
	}
	return ld.finish(end, rebuildEpochs)
}

func (ld *loader) openDir() error {
	there, err := vfs.Exists(ld.l.fs, ld.o.Dir)
	if err != nil || there {
		return err
	}
	ld.l.mu.unsyncedDir, ld.made = true, true
	return ld.l.fs.MkdirAll(ld.o.Dir, 0o755)
}

// loadTopicID reads partition.metadata, or prepares it when the id is known.
func (ld *loader) loadTopicID() error {
	l, id := ld.l, ld.o.TopicID
	if ld.made && !id.IsZero() {
		return l.stageTopicID(id)
	}
	file := filepath.Join(ld.o.Dir, checkpoint.PartitionFile)
	m, err := checkpoint.ReadPartitionMetadata(l.fs, file)
	switch {
	case errors.Is(err, fs.ErrNotExist) && id.IsZero():
		// The process before may have died before it put the file in place. Whole, it is right.
		if m, err = checkpoint.ReadPartitionMetadata(l.fs, vfs.StagedName(file)); err == nil {
			l.mu.topicID, l.mu.topicIDUnsaved = m.TopicID, true
		}
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return l.stageTopicID(id)
	case err != nil:
		var bad *checkpoint.Error
		if errors.As(err, &bad) {
			return &CorruptError{Dir: ld.o.Dir, File: checkpoint.PartitionFile, Offset: -1, Err: err}
		}
		return err
	case !id.IsZero() && id != m.TopicID:
		return &TopicIDError{Dir: ld.o.Dir, Stored: m.TopicID.String(), Assigned: id.String()}
	}
	l.mu.topicID = m.TopicID
	return nil
}

// openSegments cleans up what an interrupted deletion or compaction has left
// and opens the segments. Files of names that no log has are left alone.
func (ld *loader) openSegments() error {
	if ld.made {
		return nil
	}
	if err := ld.removeLeftovers(); err != nil {
		return err
	}
	files, err := ld.l.fs.ReadDir(ld.o.Dir)
	if err != nil {
		return err
	}
	logs := map[int64]bool{}
	for _, f := range files {
		if base, ext, suffix, ok := segment.ParseName(f.Name()); ok && ext == segment.ExtLog && suffix == "" {
			logs[base] = true
		}
	}
	for _, f := range files {
		base, ext, suffix, ok := segment.ParseName(f.Name())
		switch {
		case !ok || suffix != "" || ext == segment.ExtSnapshot:
		case ext == segment.ExtLog:
			s, err := segment.Open(ld.l.segmentOptions(base, ""))
			if err != nil {
				return err
			}
			ld.segments = append(ld.segments, s)
		case !logs[base]:
			ld.l.logger.Warn("removing an index without its log file", "partition", ld.l.name, "file", f.Name())
			if err := ld.l.fs.Remove(filepath.Join(ld.o.Dir, f.Name())); err != nil {
				return err
			}
		}
	}
	slices.SortFunc(ld.segments, func(a, b *segment.Segment) int {
		if a.BaseOffset() < b.BaseOffset() {
			return -1
		}
		return 1
	})
	return nil
}

// removeLeftovers removes files marked as deleted and unfinished output of the
// cleaner, and puts finished output (.swap) in the place of the segments it was
// made from.
func (ld *loader) removeLeftovers() error {
	files, err := ld.l.fs.ReadDir(ld.o.Dir)
	if err != nil {
		return err
	}
	firstCleaned := int64(math.MaxInt64)
	var swaps, gone []string
	for _, f := range files {
		base, _, suffix, ok := segment.ParseName(f.Name())
		if !ok {
			continue
		}
		switch suffix {
		case segment.SuffixDeleted:
			gone = append(gone, f.Name())
		case segment.SuffixCleaned:
			firstCleaned = min(firstCleaned, base)
			gone = append(gone, f.Name())
		case segment.SuffixSwap:
			swaps = append(swaps, f.Name())
		}
	}
	// Output at or above an unfinished segment belongs to the same, unfinished run.
	swaps = slices.DeleteFunc(swaps, func(name string) bool {
		base, _, _, _ := segment.ParseName(name)
		if base >= firstCleaned {
			gone = append(gone, name)
		}
		return base >= firstCleaned
	})
	for _, name := range gone {
		if err := ld.l.fs.Remove(filepath.Join(ld.o.Dir, name)); err != nil {
			return err
		}
	}
	if len(swaps) == 0 {
		return nil
	}
	return ld.completeSwap(swaps)
}

func (ld *loader) completeSwap(swaps []string) error {
	from, to := int64(math.MaxInt64), int64(-1)
	for _, name := range swaps {
		base, ext, _, _ := segment.ParseName(name)
		if ext != segment.ExtLog {
			continue
		}
		s, err := segment.Open(ld.l.segmentOptions(base, segment.SuffixSwap))
		if err != nil {
			return err
		}
		next, err := s.NextOffset()
		ld.l.files.closed(s)
		if err = errors.Join(err, s.CloseHandles()); err != nil {
			return err
		}
		from, to = min(from, base), max(to, next, base+1)
	}
	files, err := ld.l.fs.ReadDir(ld.o.Dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		base, ext, suffix, ok := segment.ParseName(f.Name())
		if ok && suffix == "" && ext != segment.ExtSnapshot && base >= from && base < to {
			ld.l.logger.Info("removing a segment that was compacted", "partition", ld.l.name, "file", f.Name())
			if err := ld.l.fs.Remove(filepath.Join(ld.o.Dir, f.Name())); err != nil {
				return err
			}
		}
	}
	for _, name := range swaps {
		path := filepath.Join(ld.o.Dir, name)
		if err := ld.l.fs.Rename(path, strings.TrimSuffix(path, segment.SuffixSwap)); err != nil {
			return err
		}
	}
	return ld.l.fs.SyncDir(ld.o.Dir)
}

// loadEpochs reads the epoch file and reports whether it has to be made anew
// from all batches: it is damaged, or missing although there are records.
func (ld *loader) loadEpochs() (rebuild bool, err error) {
	entries, err := checkpoint.ReadEpochs(ld.l.fs, filepath.Join(ld.o.Dir, checkpoint.LeaderEpochFile))
	var bad *checkpoint.Error
	switch {
	case errors.Is(err, fs.ErrNotExist):
		rebuild = true
	case errors.As(err, &bad):
		ld.l.logger.Warn("the leader epoch file is damaged and made anew", "partition", ld.l.name, "err", err)
		rebuild = true
	case err != nil:
		return false, err
	}
	list := make([]epoch.Entry, len(entries))
	for i, e := range entries {
		list[i] = epoch.Entry{Epoch: e.Epoch, StartOffset: e.StartOffset}
	}
	ld.l.epochs = epoch.New(list)
	return rebuild, nil
}

// findEnd is the log end. A log start beyond it means that the records between
// are lost (or were deleted everywhere): the log starts anew there.
func (ld *loader) findEnd() (int64, error) {
	l, start := ld.l, ld.o.LogStart
	if n := len(ld.segments); n > 0 {
		end, err := ld.segments[n-1].NextOffset()
		if err != nil {
			return 0, l.segmentError(ld.o.Dir, "open", ld.segments[n-1], ld.segments[n-1].BaseOffset(), err)
		}
		if end >= start {
			return end, nil
		}
		l.logger.Warn("the log start lies beyond the log end: all segments go", "partition", l.name, "logStart", start, "logEnd", end)
		if err := l.doomLocked(ld.segments, noSnapshot); err != nil {
			return 0, err
		}
		ld.segments, ld.changed = nil, true
		l.epochs.Clear()
		if err := l.mu.producers.Reset(start); err != nil {
			return 0, err
		}
	}
	s, err := l.createSegment(start)
	if err != nil {
		return 0, err
	}
	ld.segments = []*segment.Segment{s}
	l.mu.unsyncedNames = true
	return start, nil
}

// finish makes the view and brings epochs and producer state to the log end.
func (ld *loader) finish(end int64, rebuildEpochs bool) error {
	l := ld.l
	v := &l.mu.view
	v.segments = ld.segments
	v.activeEnd = v.active().Size()
	v.logEnd = end
	v.logStart = max(ld.o.LogStart, v.segments[0].BaseOffset())
	v.hw = v.logStart
	point := min(ld.o.RecoveryPoint, end)
	if ld.o.HadCleanShutdown && !ld.changed {
		point = end
	}
	l.recovery.Store(point)
	if rebuildEpochs {
		if err := ld.scanEpochs(); err != nil {
			return err
		}
	}
	l.epochs.TruncateFromEnd(end)
	l.epochs.TruncateFromStart(v.logStart)
	if err := ld.finishProducers(end); err != nil {
		return err
	}
	l.mu.jitterMs = l.dice()
	l.updateUnstableLocked()
	l.publishLocked()
	l.wakeTickLocked()
	return nil
}

// finishProducers brings the producer state to the log end. As in Kafka a
// cleanly closed log without any snapshot has no producers.
func (ld *loader) finishProducers(end int64) error {
	l, v := ld.l, &ld.l.mu.view
	bases := make([]int64, len(ld.segments))
	for i, s := range ld.segments {
		bases[i] = s.BaseOffset()
	}
	if err := l.mu.producers.RemoveStray(bases); err != nil {
		return err
	}
	if ld.resumed {
		return nil
	}
	if _, some := l.mu.producers.NewestSnapshot(); !some && ld.o.HadCleanShutdown && end > 0 {
		for _, o := range l.snapshotOffsets(v.segments, end) {
			l.mu.producers.SetMapEnd(o)
			l.snapshotLocked()
		}
		return nil
	}
	return l.rebuildProducersLocked(v.segments, v.logStart, end)
}

// scanEpochs makes the epochs anew from every batch.
func (ld *loader) scanEpochs() error {
	ld.l.epochs.Clear()
	for _, s := range ld.segments {
		for e, err := range s.Batches(0, s.Size()) {
			if err != nil {
				return ld.l.segmentError(ld.o.Dir, "open", s, s.BaseOffset(), err)
			}
			ld.l.noteEpoch(e.Entry)
		}
	}
	ld.l.epochs.Touch()
	return nil
}
