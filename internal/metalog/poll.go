package metalog

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"weir/internal/kraft"
	"weir/internal/records"
	"weir/internal/storage"
)

// Poll does everything that is due and returns when to call it again at the
// latest. One goroutine calls it; Run does.
func (l *Log) Poll() (next time.Time, err error) {
	work := []func() (bool, error){l.resume, l.tick, l.retryFetch, l.flush, l.finishInstall, l.deliver, l.tellLeader, l.clean}
	for busy := true; busy; {
		busy = false
		for _, do := range work {
			more, err := do()
			if err != nil {
				l.mu.Lock()
				if l.err == nil {
					l.err = err
				}
				l.release()
				return time.Time{}, err
			}
			busy = busy || more
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return time.Time{}, l.err
	}
	next = l.cleanAt
	switch ms := l.core.Deadline(); {
	case l.stall != nil:
		if l.stall.at.Before(next) {
			next = l.stall.at
		}
		return next, nil
	case ms < next.UnixMilli():
		next = time.UnixMilli(ms)
	}
	if again := l.fullAt.Add(spaceInterval); !l.fullAt.IsZero() && again.Before(next) {
		next = again
	}
	l.fullAt = time.Time{}
	if !l.retryAt.IsZero() && l.retryAt.Before(next) {
		next = l.retryAt
	}
	return next, nil
}

// spaceInterval is how often a full disk is tried again.
const spaceInterval = time.Second

// waitForSpace notes that the disk is full: that is waited out.
func (l *Log) waitForSpace(err error) {
	l.fullAt = l.o.Clock.Now()
	l.noSpace(err)
}

func (l *Log) noSpace(err error) {
	l.o.Logger.Error("no space for the metadata log: nothing can be committed here until there is", "dir", l.dir, "err", err)
}

// retryFetch asks the leader again for what found no space.
func (l *Log) retryFetch() (bool, error) {
	l.mu.Lock()
	defer l.release()
	if l.retryAt.IsZero() || l.stall != nil || l.o.Clock.Now().Before(l.retryAt) {
		return false, nil
	}
	l.retryAt = time.Time{}
	if l.retryInstall {
		l.retryInstall = false
		return true, l.step(kraft.Installing{Failed: true})
	}
	return true, l.step(kraft.Appended{Base: l.core.Log().End})
}

// tick tells the core the time.
func (l *Log) tick() (bool, error) {
	l.mu.Lock()
	defer l.release()
	if l.err != nil {
		return false, l.err
	}
	if l.stall != nil || l.started && l.core.Deadline() > l.nowMs() {
		return false, nil
	}
	l.started = true
	return true, l.step(kraft.Tick{})
}

// flush makes what is in the log durable and reports it. Appends go on
// meanwhile; the next flush takes them all.
func (l *Log) flush() (bool, error) {
	l.mu.Lock()
	must, end, cuts := l.core.MustFlush() && l.stall == nil, l.core.Log().End, l.cuts
	l.release()
	if !must {
		return false, nil
	}
	switch err := l.store.Flush(end); {
	case errors.Is(err, ErrNoSpace): // nothing is committed meanwhile
		l.waitForSpace(err)
		return false, nil
	case err != nil:
		return false, err
	}
	l.mu.Lock()
	defer l.release()
	if l.cuts != cuts || l.stall != nil { // what we flushed may have been replaced, or is going to be
		return true, nil
	}
	return true, l.step(kraft.Flushed{Offset: end})
}

// deliver tells the listeners what was committed since.
func (l *Log) deliver() (busy bool, err error) {
	if l.load != nil {
		if err := l.deliverSnapshot(*l.load); err != nil {
			return false, err
		}
		l.load, busy = nil, true
	}
	for hw := l.hw.Load(); l.delivered < hw; busy = true {
		if b, ok := l.takeFresh(hw); ok {
			if err := l.tell(b); err != nil {
				return busy, err
			}
			continue
		}
		if err := l.deliverRead(hw); err != nil {
			return busy, err
		}
	}
	return busy, nil
}

// takeFresh returns the next batch when it was appended here.
func (l *Log) takeFresh(hw int64) (Batch, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fresh = slices.DeleteFunc(l.fresh, func(b Batch) bool { return b.Last < l.delivered })
	if len(l.fresh) == 0 || l.fresh[0].Base != l.delivered || l.fresh[0].Last >= hw {
		return Batch{}, false
	}
	b := l.fresh[0]
	l.fresh[0] = Batch{}
	l.fresh = l.fresh[1:]
	return b, true
}

// deliverRead reads on from the disk.
func (l *Log) deliverRead(hw int64) error {
	from := l.delivered
	raw, err := l.read(from, hw)
	if err != nil {
		return err
	}
	for b, err := range split(raw) {
		if err != nil {
			return &storage.CorruptError{Dir: l.dir, File: "log", Offset: l.delivered, Err: err}
		}
		if b.LastOffset() < l.delivered {
			continue
		}
		if b.LastOffset() >= hw {
			break
		}
		c := Batch{Base: b.BaseOffset(), Last: b.LastOffset(), Epoch: b.LeaderEpoch(), TimestampMs: b.MaxTimestamp(), Bytes: b.Len()}
		if !b.IsControl() {
			if c.Records, err = parse(b, &l.buf); err != nil {
				return &storage.CorruptError{Dir: l.dir, File: "log", Offset: l.delivered, Err: err}
			}
		}
		if err := l.tell(c); err != nil {
			return err
		}
	}
	if l.delivered == from {
		return &storage.CorruptError{Dir: l.dir, File: "log", Offset: from, Err: fmt.Errorf("no batch below the high watermark %d", hw)}
	}
	return nil
}

func (l *Log) tell(b Batch) error {
	for _, li := range l.listeners {
		if err := li.Committed(b); err != nil {
			return fmt.Errorf("metadata log: offsets %d to %d: %w", b.Base, b.Last, err)
		}
	}
	l.delivered = b.Last + 1
	return nil
}

func (l *Log) deliverSnapshot(id kraft.Position) error {
	head, err := readFile(l.o.FS, l.path(id), id.Offset-1, nil)
	if err != nil {
		return err
	}
	for _, li := range l.listeners {
		if err := li.LoadSnapshot(Snapshot{ID: id, TimestampMs: head.timestampMs, Records: l.snapshotRecords(id)}); err != nil {
			return fmt.Errorf("metadata log: snapshot %s: %w", fileName(id), err)
		}
	}
	return nil
}

func (l *Log) snapshotRecords(id kraft.Position) iter.Seq2[records.Versioned, error] {
	return func(yield func(records.Versioned, error) bool) {
		stopped := false
		_, err := readFile(l.o.FS, l.path(id), id.Offset-1, func(r records.Versioned) bool {
			stopped = !yield(r, nil)
			return !stopped
		})
		if err != nil && !stopped {
			yield(records.Versioned{}, err)
		}
	}
}

// tellLeader tells of a new leader or epoch: of others at once, of ourselves
// when everything before our epoch, and our LeaderChange record, was told.
func (l *Log) tellLeader() (bool, error) {
	l.mu.Lock()
	news := l.news
	if news != nil && news.ID == l.o.Self.ID && l.delivered <= l.core.EpochStart() {
		news = nil
	}
	if news != nil {
		l.news = nil
	}
	l.release()
	if news == nil {
		return false, nil
	}
	for _, li := range l.listeners {
		if err := li.LeaderChanged(*news); err != nil {
			return false, fmt.Errorf("metadata log: leader %d of epoch %d: %w", news.ID, news.Epoch, err)
		}
	}
	return true, nil
}

// clean applies retention now and then.
func (l *Log) clean() (bool, error) {
	now := l.o.Clock.Now()
	if now.Before(l.cleanAt) {
		return false, nil
	}
	l.cleanAt = now.Add(time.Duration(l.o.Limits.CleanIntervalMs) * time.Millisecond)
	if err := l.retainSnapshots(now); err != nil {
		return false, err
	}
	if err := l.store.Tick(now); err != nil && !errors.Is(err, ErrNoSpace) { // what is not flushed is at the next commit
		return false, err
	}
	return false, l.runDeletes(now)
}

// WriteSnapshot makes a snapshot of the state that the records up to and with
// offset last made: last is that of a committed Batch, epoch and timestampMs
// are the batch's. It does nothing when there is a snapshot of that offset or a
// later one. It blocks for the writing; appends go on.
func (l *Log) WriteSnapshot(last int64, epoch int32, timestampMs int64, recs iter.Seq[records.Versioned]) error {
	id := kraft.Position{Offset: last + 1, Epoch: epoch}
	l.mu.Lock()
	latest, hw := l.latest(), l.core.HighWatermark()
	set, version := l.core.VotersAt(id.Offset)
	l.release()
	if latest != nil && latest.Offset >= id.Offset {
		return nil
	}
	if id.Offset > hw || last < 0 {
		return fmt.Errorf("metadata log: snapshot at %s, only offsets below %d are committed", id, hw)
	}
	began := l.o.Clock.Now()
	if err := writeFile(l.o.FS, l.path(id), Content{ID: id, TimestampMs: timestampMs, Version: version, Voters: &set, Records: recs},
		l.nowMs(), l.o.Limits.MaxBatchBytes); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.unlock()
	l.addSnapshot(id)
	l.o.Logger.Info("snapshot written", "dir", l.dir, "snapshot", fileName(id), "took", l.o.Clock.Now().Sub(began))
	return l.step(kraft.Snapshotted{ID: id})
}

func (l *Log) addSnapshot(id kraft.Position) {
	i, found := slices.BinarySearchFunc(l.snapshots, id, func(a, b kraft.Position) int { return int(min(max(a.Offset-b.Offset, -1), 1)) })
	if !found {
		l.snapshots = slices.Insert(l.snapshots, i, id)
	}
}
