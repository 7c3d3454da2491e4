package storage

import (
	"weir/internal/storage/epoch"
)

// LatestEpoch is the last leader epoch that the log knows; false when none.
func (l *Log) LatestEpoch() (int32, bool) {
	e, ok := l.epochs.Latest()
	return e.Epoch, ok
}

// AssignEpoch notes that a leader epoch starts at an offset, which a new leader
// does with its log end before its first append. Nothing is written: the file
// follows with the next flush, and batches carry their epoch.
func (l *Log) AssignEpoch(epoch int32, start int64) { l.epochs.Assign(epoch, start) }

// EndOffsetForEpoch is the answer to OffsetForLeaderEpoch.
func (l *Log) EndOffsetForEpoch(epoch int32) EpochEnd {
	e, end := l.epochs.EndOffsetFor(epoch, l.LogEnd())
	return EpochEnd{Epoch: e, EndOffset: end}
}

// EpochAt is the leader epoch of the record at offset.
func (l *Log) EpochAt(offset int64) (int32, bool) { return l.epochs.At(offset) }

// Epochs are the known leader epochs, in order.
func (l *Log) Epochs() []epoch.Entry { return l.epochs.Entries() }
