package storage

import (
	"errors"

	"weir/internal/storage/segment"
)

// errControl ends a resumption: markers may have to be entered in a transaction index.
var errControl = errors.New("there are transaction markers")

// resume takes the log as a process that died left it, whose writes are all there (Options.Intact). It reports false when
// something is torn or not simple: then the log is recovered as after a power cut.
func (ld *loader) resume() (bool, error) {
	l, unsafe := ld.l, ld.firstUnsafe()
	for _, s := range ld.segments[:unsafe] {
		if err := s.SanityCheck(false); err != nil {
			return ld.notResumed(err)
		}
	}
	if unsafe == len(ld.segments) {
		return true, nil
	}
	base := ld.segments[unsafe].BaseOffset()
	if err := l.rebuildProducersLocked(ld.segments[:unsafe], ld.o.LogStart, base); err != nil {
		return false, err
	}
	next := base
	for i, s := range ld.segments[unsafe:] {
		if i > 0 { // as at the roll; Reload has removed the one that was there
			l.mu.producers.SetMapEnd(s.BaseOffset())
			l.snapshotLocked()
		}
		if s.BaseOffset() < next {
			return ld.notResumed(&segment.CorruptError{File: s.LogPath(), Reason: "it begins below the end of the one before"})
		}
		var err error
		if next, err = s.Resume(ld.visitResumed); err != nil {
			return ld.notResumed(err)
		}
	}
	if next < ld.o.RecoveryPoint {
		return ld.notResumed(&segment.CorruptError{File: ld.segments[len(ld.segments)-1].LogPath(), Reason: "it ends below the recovery point"})
	}
	l.mu.producers.SetMapEnd(next)
	// Neither files nor names were synced by the process that died.
	l.mu.unsyncedNames = true
	ld.resumed = true
	return true, nil
}

func (ld *loader) visitResumed(e segment.Entry) error {
	if b, ok := e.Batch(); ok && (b.IsControl() || b.IsTransactional()) {
		return errControl
	}
	ld.l.agreeOnEpoch(e.Entry)
	return ld.l.replayOne(e.Entry, nil)
}

// notResumed leaves the log to recovery, unless the disk has failed.
func (ld *loader) notResumed(err error) (bool, error) {
	var torn *segment.CorruptError
	var index *segment.CorruptIndexError
	if !errors.Is(err, errControl) && !errors.As(err, &torn) && !errors.As(err, &index) {
		return false, err
	}
	ld.l.logger.Info("recovering a log in full", "partition", ld.l.name, "reason", err)
	// What was replayed is forgotten: the state is read anew for any end.
	ld.l.mu.producers.SetMapEnd(-1)
	return false, nil
}
