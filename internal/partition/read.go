package partition

import (
	"weir/internal/isr"
	"weir/internal/storage"
)

// Isolation is how far a reader may see.
type Isolation uint8

// The three bounds of a read.
const (
	ReadUncommitted Isolation = iota // up to the high watermark
	ReadCommitted                    // up to the last stable offset
	ReadLogEnd                       // followers: up to the log end
)

// ReadRequest is one partition's part of a Fetch request.
type ReadRequest struct {
	Offset    int64
	MaxBytes  int
	MinOne    bool // return the first batch whole even when it exceeds MaxBytes
	Isolation Isolation
	// CurrentLeaderEpoch is the epoch the client believes in, None for no check.
	CurrentLeaderEpoch int32
	// LastFetchedEpoch is the leader epoch of the record before Offset, None for
	// no check. With it the leader finds logs that have diverged (KIP-595).
	LastFetchedEpoch int32
	// AnyReplica lets a follower answer too: a consumer may read what it knows to
	// be committed (KIP-392).
	AnyReplica bool
}

// Read is what a read found. The caller releases it.
type Read struct {
	storage.ReadResult
	HighWatermark, LastStable, LogStart, LogEnd int64
	// LeaderEpoch is the one in which the read was allowed: what is concluded from it
	// holds in no other.
	LeaderEpoch int32
	// Diverging is set when the reader's log does not agree with this one: no
	// records are returned, and the reader truncates to it.
	Diverging *storage.EpochEnd
	// Aborted are the aborted transactions in the range read, with ReadCommitted.
	Aborted []storage.AbortedTxn
}

// CheckEpoch compares the epoch a client believes in with the present one, and
// that this replica leads.
func (r *Replica) CheckEpoch(asked int32) error {
	_, err := r.checkRole(asked, false)
	return err
}

// checkRole also returns the epoch that it has compared with.
func (r *Replica) checkRole(asked int32, anyReplica bool) (epoch int32, err error) {
	s := r.status.Load()
	if asked != None && asked != s.LeaderEpoch {
		return s.LeaderEpoch, &EpochError{Topic: r.topic, Partition: r.id, Asked: asked, Have: s.LeaderEpoch}
	}
	if !s.Leading && !(anyReplica && s.Leader != None) {
		return s.LeaderEpoch, r.notLeader(s)
	}
	return s.LeaderEpoch, nil
}

// onLog reads from the present log. One that SwapLog replaces meanwhile is
// renamed and closed: what fails there is read from the new one.
func onLog[T any](r *Replica, read func(log *storage.Log) (T, error)) (T, error) {
	for {
		log := r.Log()
		out, err := read(log)
		if err == nil || r.Log() == log {
			return out, err
		}
	}
}

// Read reads from the leader's log, or a follower's with AnyReplica. Errors: *NotLeaderError, *EpochError,
// *storage.OutOfRangeError, storage errors.
func (r *Replica) Read(q ReadRequest) (Read, error) {
	epoch, err := r.checkRole(q.CurrentLeaderEpoch, q.AnyReplica)
	if err != nil {
		return Read{}, err
	}
	out, err := onLog(r, func(log *storage.Log) (Read, error) { return r.readLog(log, q) })
	out.LeaderEpoch = epoch
	if err != nil {
		r.report(err)
	}
	return out, err
}

func (r *Replica) readLog(log *storage.Log, q ReadRequest) (Read, error) {
	o := log.Offsets()
	out := Read{HighWatermark: o.HighWatermark, LastStable: o.LastStable, LogStart: o.LogStart, LogEnd: o.LogEnd}
	if q.LastFetchedEpoch != None {
		end, diverged, err := r.diverges(log, q, o)
		if err != nil {
			return Read{}, err
		}
		if diverged {
			out.Diverging = &end
			return out, nil
		}
	}
	upTo := o.HighWatermark
	switch q.Isolation {
	case ReadCommitted:
		upTo = o.LastStable
	case ReadLogEnd:
		upTo = o.LogEnd
	}
	if q.Offset < o.LogStart || q.Offset > o.LogEnd {
		return Read{}, &storage.OutOfRangeError{Name: r.String(), Offset: q.Offset, Start: o.LogStart, End: o.LogEnd}
	}
	if q.Offset >= upTo {
		return out, nil
	}
	var err error
	if out.ReadResult, err = log.Read(q.Offset, q.MaxBytes, upTo, q.MinOne); err != nil {
		return Read{}, err
	}
	if q.Isolation == ReadCommitted && out.Size > 0 {
		if out.Aborted, err = log.AbortedTransactions(q.Offset, upTo); err != nil {
			out.Release()
			return Read{}, err
		}
	}
	return out, nil
}

// diverges compares the reader's last epoch with this log.
func (r *Replica) diverges(log *storage.Log, q ReadRequest, o storage.Offsets) (storage.EpochEnd, bool, error) {
	end := log.EndOffsetForEpoch(q.LastFetchedEpoch)
	if end.Epoch == None || end.EndOffset < 0 {
		// Kafka answers OFFSET_OUT_OF_RANGE: the log was truncated below what the reader knows.
		return end, false, &storage.OutOfRangeError{Name: r.String(), Offset: q.Offset, Start: o.LogStart, End: o.LogEnd}
	}
	return end, end.Epoch < q.LastFetchedEpoch || end.EndOffset < q.Offset, nil
}

// Fetched notes a follower's fetch; see isr.Leader.Fetched. It is called after
// the fetch was validated by Read.
func (r *Replica) Fetched(f isr.Fetch) bool {
	r.mu.Lock()
	l := r.mu.leader
	if l == nil {
		r.mu.Unlock()
		return false
	}
	moved, ok := l.Fetched(f)
	if moved {
		r.publishLocked()
	}
	wants := ok && l.Wants(f.Follower)
	r.mu.Unlock()
	if moved {
		r.notify(Committed)
	}
	if wants && r.due != nil {
		r.due(r)
	}
	return ok
}

// Holders lists the in-sync followers that a consumer at offset may read from, the
// furthest first; nil when this replica does not lead.
func (r *Replica) Holders(offset int64) []int32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.leader == nil {
		return nil
	}
	return r.mu.leader.Holders(offset)
}
