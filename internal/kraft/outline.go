package kraft

import (
	"slices"

	"weir/internal/invariant"
)

// EpochStart says at which offset a leader epoch's records begin.
type EpochStart struct {
	Epoch int32
	Start int64
}

// Outline is what the core knows of the log. The zero value is an empty log.
//
// invariant: Start.Offset <= Flushed <= End; Epochs rise in both fields and lie
// within [Start.Offset, End).
type Outline struct {
	// Start is where the log begins: the id of the snapshot that it continues,
	// or zero.
	Start   Position
	End     int64
	Flushed int64
	Epochs  []EpochStart
	// Snapshot is the id of the newest snapshot, nil when there is none. 0-0.checkpoint
	// is none: it holds voters, no state.
	Snapshot *Position
}

func (l *Outline) check() {
	invariant.Check(l.Start.Offset <= l.Flushed && l.Flushed <= l.End,
		"kraft: log outline start %s, flushed %d, end %d", l.Start, l.Flushed, l.End)
}

// last is the position of the log's end.
func (l *Outline) last() Position { return Position{Offset: l.End, Epoch: l.lastEpoch()} }

func (l *Outline) lastEpoch() int32 {
	if n := len(l.Epochs); n > 0 {
		return l.Epochs[n-1].Epoch
	}
	return l.Start.Epoch
}

func (l *Outline) append(entries []Entry) {
	for _, e := range entries {
		invariant.Check(e.Next > l.End && e.Epoch >= l.lastEpoch(), "kraft: batch to %d@%d after %s", e.Next, e.Epoch, l.last())
		if len(l.Epochs) == 0 || l.Epochs[len(l.Epochs)-1].Epoch < e.Epoch {
			l.Epochs = append(l.Epochs, EpochStart{Epoch: e.Epoch, Start: l.End})
		}
		l.End = e.Next
	}
}

func (l *Outline) truncate(to int64) {
	invariant.Check(to >= l.Start.Offset && to <= l.End, "kraft: truncate to %d of log %s to %d", to, l.Start, l.End)
	l.End, l.Flushed = to, min(l.Flushed, to)
	l.Epochs = slices.DeleteFunc(l.Epochs, func(e EpochStart) bool { return e.Start >= to })
}

// startAt drops what lies before the end of the snapshot id. A log that does not
// reach that far, or holds other records there, is empty afterwards: replaced.
func (l *Outline) startAt(id Position) (replaced bool) {
	if l.End < id.Offset || l.last().Compare(id) < 0 {
		*l = Outline{Start: id, End: id.Offset, Flushed: id.Offset, Snapshot: l.Snapshot}
		return true
	}
	l.Start, l.Flushed = id, max(l.Flushed, id.Offset)
	for len(l.Epochs) > 1 && l.Epochs[1].Start <= id.Offset {
		l.Epochs = l.Epochs[1:]
	}
	if len(l.Epochs) > 0 {
		l.Epochs[0].Start = max(l.Epochs[0].Start, id.Offset)
		if l.Epochs[0].Start >= l.End {
			l.Epochs = nil
		}
	}
	l.Epochs = slices.Clone(l.Epochs)
	return false
}

// endOf is the largest epoch at or below epoch that the log has, and where it
// ends: what a log that claims epoch must be compared with. As Kafka's
// KafkaMetadataLog.endOffsetForEpoch.
func (l *Outline) endOf(epoch int32) Position {
	if epoch > l.lastEpoch() {
		return l.last()
	}
	i, found := slices.BinarySearchFunc(l.Epochs, epoch, func(e EpochStart, t int32) int { return int(e.Epoch) - int(t) })
	if !found {
		i-- // the entry below
	}
	if i < 0 { // before the first record: the log's start is all we know
		return l.Start
	}
	if i+1 < len(l.Epochs) {
		return Position{Offset: l.Epochs[i+1].Start, Epoch: l.Epochs[i].Epoch}
	}
	return Position{Offset: l.End, Epoch: l.Epochs[i].Epoch}
}

// agree is where this log has to end so that it does not contradict one whose
// end of epoch d.Epoch (the largest not above ours) is d.
func (l *Outline) agree(d Position) int64 {
	own := l.endOf(d.Epoch)
	if own.Epoch == d.Epoch {
		return min(own.Offset, d.Offset, l.End)
	}
	return min(own.Offset, l.End)
}

// has says how a reader's place relates to this log: fine (zero values),
// diverging (cut your log to d), or so far behind that only a snapshot helps.
func (l *Outline) has(p Position) (diverging, snapshot *Position) {
	if l.Snapshot != nil && (p.Offset < l.Start.Offset || p.Epoch < l.Start.Epoch ||
		p.Offset == l.Start.Offset && p.Epoch != l.Start.Epoch) {
		id := *l.Snapshot
		return nil, &id
	}
	if p.Offset == 0 && p.Epoch == 0 && l.Start.Offset == 0 {
		return nil, nil
	}
	if end := l.endOf(p.Epoch); end.Epoch != p.Epoch || end.Offset < p.Offset {
		return &end, nil
	}
	return nil, nil
}
