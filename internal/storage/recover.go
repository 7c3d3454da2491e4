package storage

import (
	"errors"
	"math"
	"slices"

	"weir/internal/batch"
	"weir/internal/storage/producer"
	"weir/internal/storage/segment"
)

// recover checks the segments. Those at and above the recovery point are read
// whole after an unclean stop; of the others only the indexes are looked at,
// and made anew when they are broken.
func (ld *loader) recover() error {
	if ld.o.Intact && !ld.o.HadCleanShutdown {
		done, err := ld.resume()
		if done || err != nil {
			return err
		}
	}
	unsafe := ld.firstUnsafe()
	failed := make([]bool, len(ld.segments))
	remaining := len(ld.segments) - unsafe
	for i, s := range ld.segments[:unsafe] {
		err := s.SanityCheck(!ld.o.HadCleanShutdown || i == len(ld.segments)-1)
		var bad *segment.CorruptIndexError
		if errors.As(err, &bad) {
			ld.l.logger.Warn("rebuilding the indexes of a segment", "partition", ld.l.name, "err", err)
			failed[i] = true
			remaining++
			continue
		}
		if err != nil {
			return err
		}
	}
	for i := 0; i < len(ld.segments); i++ {
		if i < unsafe && !failed[i] {
			continue
		}
		torn, err := ld.recoverSegment(i, i >= unsafe, remaining)
		if err != nil {
			return err
		}
		remaining--
		if torn {
			return ld.dropFrom(i + 1)
		}
	}
	return nil
}

// firstUnsafe is the index of the first segment that an unclean stop may have
// torn: the one that holds the recovery point.
func (ld *loader) firstUnsafe() int {
	if ld.o.HadCleanShutdown || len(ld.segments) == 0 {
		return len(ld.segments)
	}
	v := view{segments: ld.segments}
	return v.floor(ld.o.RecoveryPoint)
}

// recoverSegment makes the indexes of one segment anew and replays its batches
// into producer state and, in the unsafe part, has the epochs agree with them. torn says that records
// are missing at its end, so that those of later segments must go.
func (ld *loader) recoverSegment(i int, unsafe bool, remaining int) (torn bool, err error) {
	l, s := ld.l, ld.segments[i]
	base := s.BaseOffset()
	l.logger.Info("recovering a segment", "partition", l.name, "segment", base, "bytes", s.Size(), "remaining", remaining)
	ld.progress(Progress{Dir: ld.o.Dir, Remaining: remaining, Segment: base, Size: s.Size(), Offset: base})
	if err := ld.verify(s, i, unsafe); err != nil {
		return false, err
	}
	if err := l.rebuildProducersLocked(ld.segments[:i], ld.o.LogStart, base); err != nil {
		return false, err
	}
	next := base
	visit := func(e segment.Entry) error {
		if b, ok := e.Batch(); ok {
			ld.holes = ld.holes || next > base && b.BaseOffset() > next
		}
		next = e.LastOffset() + 1
		if unsafe {
			l.agreeOnEpoch(e.Entry)
		}
		return l.replayOne(e.Entry, s)
	}
	size := s.Size()
	r, err := s.Recover(visit)
	if err != nil {
		return false, l.segmentError(ld.o.Dir, "recover", s, base, err)
	}
	l.mu.producers.SetMapEnd(r.NextOffset)
	l.snapshotLocked()
	if r.Cut > 0 {
		l.logger.Warn("cut the torn end of a segment", "partition", l.name, "segment", base, "bytes", r.Cut, "logEnd", r.NextOffset, "reason", r.Reason)
		ld.changed = true
	}
	if !unsafe {
		return false, nil
	}
	// The process that made the files may have died before it synced their names.
	l.mu.unsyncedNames = true
	ld.progress(Progress{Dir: ld.o.Dir, Remaining: remaining - 1, Segment: base, Size: s.Size(), Offset: r.NextOffset, Read: size})
	if r.Cut > 0 {
		return true, nil
	}
	// A cut may also fall between two batches: then the next segment starts
	// above the end of this one. Compaction makes such holes too, and
	// the topic's own configuration is not known yet when logs are loaded.
	if i+1 == len(ld.segments) || l.cfg.Load().CleanupCompact || ld.holes {
		return false, nil
	}
	next = ld.segments[i+1].BaseOffset()
	if next <= ld.o.Cleaned {
		return false, nil
	}
	if r.NextOffset >= next || next-base > math.MaxInt32 { // so far apart they had to be in two segments
		return false, nil
	}
	l.logger.Warn("records are missing between two segments", "partition", l.name, "from", r.NextOffset, "to", next)
	return true, nil
}

// verify reads, before anything is cut, what must be whole: in a segment below
// the recovery point everything, in the one that holds it the records below.
func (ld *loader) verify(s *segment.Segment, i int, unsafe bool) error {
	below := ld.o.RecoveryPoint
	if !unsafe {
		below = s.BaseOffset()
		if i+1 < len(ld.segments) {
			below = ld.segments[i+1].BaseOffset()
		}
	}
	next, size := s.BaseOffset(), s.Size()
	if below <= next {
		return nil
	}
	var pos int64
	for e, err := range s.Batches(0, size) {
		if next >= below { // from here on a torn end is no wonder
			return nil
		}
		if err != nil {
			return ld.l.segmentError(ld.o.Dir, "recover", s, next, err)
		}
		if !e.CheckCRC() {
			err := &segment.CorruptError{File: s.LogPath(), Pos: e.Pos, Reason: "the CRC is wrong"}
			return ld.l.segmentError(ld.o.Dir, "recover", s, next, err)
		}
		next, pos = e.LastOffset()+1, e.Pos+int64(e.Len())
	}
	if pos < size && next < below {
		err := &segment.CorruptError{File: s.LogPath(), Pos: pos, Reason: "the file ends within it"}
		return ld.l.segmentError(ld.o.Dir, "recover", s, next, err)
	}
	return nil
}

func (ld *loader) progress(p Progress) {
	if ld.o.Progress != nil {
		ld.o.Progress(p)
	}
}

// dropFrom removes the segments from index i on: what lies behind missing
// records is not the log any more.
func (ld *loader) dropFrom(i int) error {
	if i >= len(ld.segments) {
		return nil
	}
	ld.changed = true
	removed := ld.segments[i:]
	ld.segments = slices.Clone(ld.segments[:i])
	ld.l.logger.Warn("removing segments behind missing records", "partition", ld.l.name, "segments", len(removed))
	return ld.l.doomLocked(removed, noSnapshot)
}

// rebuildProducersLocked brings the producer state to offset end: from the
// newest good snapshot, and from there by replaying batches.
func (l *Log) rebuildProducersLocked(segs []*segment.Segment, logStart, end int64) error {
	p := l.mu.producers
	// Without producers there is nothing that a replay could bring back.
	nothing := p.IsEmpty() && p.MapEnd() >= end
	if err := p.Reload(logStart, end, l.nowMs()); err != nil {
		return err
	}
	if end > p.MapEnd() && !nothing && len(segs) > 0 {
		v := view{segments: segs}
		snapshots := l.snapshotOffsets(segs, end)
		for _, s := range segs[v.floor(p.MapEnd()):] {
			if s.BaseOffset() >= end {
				break
			}
			start := max(s.BaseOffset(), p.MapEnd(), logStart)
			p.SetMapEnd(start)
			if slices.Contains(snapshots, s.BaseOffset()) {
				l.snapshotLocked()
			}
			if err := l.replay(s, start, end); err != nil {
				return l.segmentError(l.Dir(), "load producers", s, start, err)
			}
		}
	}
	p.SetMapEnd(end)
	l.snapshotLocked()
	return nil
}

// snapshotOffsets are the places where Kafka takes snapshots while loading: at
// the last two segments and at the end.
func (l *Log) snapshotOffsets(segs []*segment.Segment, end int64) []int64 {
	var out []int64
	for _, s := range segs[max(0, len(segs)-2):] {
		out = append(out, s.BaseOffset())
	}
	return append(out, end)
}

// replay takes the batches of a segment from start to end into the producer state.
func (l *Log) replay(s *segment.Segment, start, end int64) error {
	at, ok, err := s.Position(start)
	if err != nil || !ok {
		return err
	}
	for e, err := range s.Batches(at.Pos, s.Size()) {
		if err != nil {
			return err
		}
		if e.LastOffset() >= end {
			return nil
		}
		if err := l.replayOne(e.Entry, nil); err != nil {
			return err
		}
	}
	return nil
}

// replayOne takes one batch that is in the log into the producer state; with a
// segment it also enters an aborted transaction in that segment's index.
func (l *Log) replayOne(e batch.Entry, s *segment.Segment) error {
	b, ok := e.Batch()
	if !ok || !b.HasProducerID() {
		return nil
	}
	p := l.mu.producers
	pb := producerBatch(b)
	p.Begin(producer.OriginReplication)
	if err := p.Stage(&pb); err != nil {
		// A leader has accepted it; what it says of the producer is not used.
		l.logger.Warn("a batch in the log contradicts its producer's state", "partition", l.name, "offset", b.BaseOffset(), "err", err)
		return nil
	}
	for _, t := range p.Commit() {
		if s == nil {
			p.Complete(t)
		} else if err := l.endTxnLocked(s, t); err != nil {
			return err
		}
	}
	return nil
}

// agreeOnEpoch makes the epochs agree with one batch of a log that an unclean
// stop has left. What the file tells stays where it is not refuted: compaction
// may have removed the record that an epoch begins with.
func (l *Log) agreeOnEpoch(e batch.Entry) {
	b, ok := e.Batch()
	if !ok || b.LeaderEpoch() < 0 {
		return
	}
	first, known := l.epochs.At(b.BaseOffset())
	last, _ := l.epochs.At(b.LastOffset())
	if !known || first != b.LeaderEpoch() || last != b.LeaderEpoch() {
		l.epochs.TruncateFromEnd(b.BaseOffset())
		l.noteEpoch(e)
	}
}

// noteEpoch notes the leader epoch of one batch.
func (l *Log) noteEpoch(e batch.Entry) {
	b, ok := e.Batch()
	if !ok || b.LeaderEpoch() < 0 {
		return
	}
	if last, known := l.epochs.Latest(); !known || last.Epoch != b.LeaderEpoch() {
		l.epochs.Assign(b.LeaderEpoch(), b.BaseOffset())
	}
}
