package partition

import (
	"errors"

	"weir/internal/isr"
	"weir/internal/storage"
)

// DeleteToHighWatermark asks DeleteRecords for everything that is committed.
const DeleteToHighWatermark int64 = -1

// Latest is the offset that ListOffsets(latest) answers to a consumer of the
// given isolation, ReadLogEnd being a follower or a debugging client.
// *OffsetNotAvailableError while a new leader does not know it (KIP-207).
func (r *Replica) Latest(currentEpoch int32, i Isolation) (int64, error) {
	if err := r.CheckEpoch(currentEpoch); err != nil {
		return 0, err
	}
	o := r.Log().Offsets()
	if i == ReadLogEnd {
		return o.LogEnd, nil
	}
	if s := r.status.Load(); o.HighWatermark < s.EpochStart {
		return 0, &OffsetNotAvailableError{Topic: r.topic, Partition: r.id}
	}
	if i == ReadCommitted {
		return o.LastStable, nil
	}
	return o.HighWatermark, nil
}

// OffsetForTimestamp finds the first record whose timestamp is at least ts (ms).
// ok is false when there is none below the bound of the isolation.
func (r *Replica) OffsetForTimestamp(ts int64, currentEpoch int32, i Isolation) (t storage.TimestampOffset, ok bool, err error) {
	return r.below(currentEpoch, i, func(log *storage.Log) (storage.TimestampOffset, bool, error) { return log.OffsetForTimestamp(ts) })
}

// MaxTimestamp finds the (first) record with the largest timestamp; false when
// no record has one, or it is not below the bound of the isolation.
func (r *Replica) MaxTimestamp(currentEpoch int32, i Isolation) (t storage.TimestampOffset, ok bool, err error) {
	return r.below(currentEpoch, i, (*storage.Log).MaxTimestamp)
}

// below finds a record below the bound of the isolation. A new leader that does not
// know the bound yet finds what is certainly below it (KIP-207).
func (r *Replica) below(currentEpoch int32, i Isolation, find func(log *storage.Log) (storage.TimestampOffset, bool, error)) (t storage.TimestampOffset, ok bool, err error) {
	bound, err := r.Latest(currentEpoch, i)
	var notYet *OffsetNotAvailableError
	if errors.As(err, &notYet) {
		o := r.Log().Offsets()
		if bound = o.HighWatermark; i == ReadCommitted {
			bound = o.LastStable
		}
	} else if err != nil {
		return t, false, err
	}
	t, ok, failed := r.lookUp(find)
	if failed != nil {
		return t, false, failed
	}
	if ok && t.Offset < bound {
		return t, true, nil
	}
	return t, false, err
}

func (r *Replica) lookUp(find func(log *storage.Log) (storage.TimestampOffset, bool, error)) (storage.TimestampOffset, bool, error) {
	type found struct {
		t  storage.TimestampOffset
		ok bool
	}
	f, err := onLog(r, func(log *storage.Log) (found, error) {
		t, ok, err := find(log)
		return found{t, ok}, err
	})
	if err != nil {
		r.report(err)
		return storage.TimestampOffset{}, false, err
	}
	return f.t, f.ok, nil
}

// OffsetsBefore answers ListOffsets v0, see storage.Log.OffsetsBefore.
func (r *Replica) OffsetsBefore(ts int64, limit int) ([]int64, error) {
	out, err := onLog(r, func(log *storage.Log) ([]int64, error) { return log.OffsetsBefore(ts, limit) })
	if err != nil {
		r.report(err)
	}
	return out, err
}

// EndOffsetForEpoch answers OffsetForLeaderEpoch (case K20).
func (r *Replica) EndOffsetForEpoch(currentEpoch, epoch int32) (storage.EpochEnd, error) {
	if err := r.CheckEpoch(currentEpoch); err != nil {
		return storage.EpochEnd{Epoch: None, EndOffset: -1}, err
	}
	return r.Log().EndOffsetForEpoch(epoch), nil
}

// DeleteRecords moves the log start offset to before, and returns what it is
// now. *storage.OutOfRangeError beyond the high watermark.
func (r *Replica) DeleteRecords(before int64) (logStart int64, err error) {
	r.role.RLock()
	defer r.role.RUnlock()
	if s := r.status.Load(); !s.Leading {
		return 0, r.notLeader(s)
	}
	o := r.Log().Offsets()
	if before == DeleteToHighWatermark {
		before = o.HighWatermark
	}
	if before < 0 || before > o.HighWatermark {
		return 0, &storage.OutOfRangeError{Name: r.String(), Offset: before, Start: o.LogStart, End: o.HighWatermark}
	}
	if _, err := r.Log().SetLogStart(before); err != nil {
		return 0, err
	}
	r.mu.Lock()
	r.mu.leader.LogStart(r.Log().LogStart())
	r.mu.Unlock()
	return r.Log().LogStart(), nil
}

// LowWatermark is what a DeleteRecords waits for: the lowest log start offset
// among the replicas that are alive.
func (r *Replica) LowWatermark(brokers isr.Brokers) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.leader == nil {
		return r.Log().LogStart()
	}
	return r.mu.leader.LowWatermark(brokers)
}
