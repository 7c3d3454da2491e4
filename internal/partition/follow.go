package partition

import (
	"weir/internal/batch"
	"weir/internal/storage"
	"weir/internal/storage/producer"
)

// Place is where a follower's log stands.
type Place struct {
	Offset    int64 // the log's end: what to fetch next
	LastEpoch int32 // leader epoch of the record before it, None when unknown
	LogStart  int64
}

// FollowerAppend is what a leader sent.
type FollowerAppend struct {
	Records     []byte // whole batches; a cut one at the end is left out
	LeaderEpoch int32  // of the leadership they were asked in
	// The leader's.
	HighWatermark, LogStart int64
}

// StartFollowing prepares the log for a leader of leaderEpoch and returns where
// to fetch from. A log that knows no leader epochs cannot be compared with the
// leader's, so it is cut to what it knows to be committed.
// *EpochError when the replica's role has changed.
func (r *Replica) StartFollowing(leaderEpoch int32) (Place, error) {
	return r.following(leaderEpoch, func(log *storage.Log) error {
		if _, ok := log.LatestEpoch(); ok {
			return nil
		}
		_, err := log.Truncate(log.HighWatermark())
		return err
	})
}

// following does something with the log of a replica that follows in leaderEpoch, with
// role read-held, so that the replica cannot become leader in the middle of it.
func (r *Replica) following(leaderEpoch int32, f func(*storage.Log) error) (at Place, err error) {
	r.role.RLock()
	if err = r.followsLocked(leaderEpoch); err == nil {
		err = f(r.Log())
	}
	if err == nil {
		at = r.Place()
	}
	r.role.RUnlock()
	if err != nil {
		r.report(err) // the owner may retire the replica, which takes role
		return Place{}, err
	}
	return at, nil
}

// AppendAsFollower appends what the leader sent, takes over its high watermark
// as far as the log reaches, and its log start. *EpochError when the replica's
// role has changed since; storage errors.
func (r *Replica) AppendAsFollower(q FollowerAppend) (Place, error) {
	return r.following(q.LeaderEpoch, func(log *storage.Log) error {
		if err := r.appendFetched(log, q); err != nil {
			return err
		}
		before := log.Offsets()
		if hw := min(q.HighWatermark, before.LogEnd); hw > before.HighWatermark {
			log.SetHighWatermark(hw)
		}
		if start := min(q.LogStart, log.HighWatermark()); start > before.LogStart {
			if _, err := log.SetLogStart(start); err != nil {
				return err
			}
		}
		r.notify(Readable)
		return nil
	})
}

func (r *Replica) appendFetched(log *storage.Log, q FollowerAppend) error {
	for rest := q.Records; len(rest) > 0; {
		n := fit(rest, int(log.Config().SegmentBytes))
		_, err := log.Append(rest[:n], storage.Append{LeaderEpoch: q.LeaderEpoch, Origin: producer.OriginReplication, TxnVersion: -1})
		if err != nil {
			return err
		}
		r.stats.ReplicationBytesIn.Add(int64(n))
		rest = rest[n:]
	}
	return nil
}

// fit is the length of the longest prefix of whole batches within limit; at least
// the first batch, all of a cut one at the end.
func fit(raw []byte, limit int) int {
	if len(raw) <= limit {
		return len(raw)
	}
	n := 0
	for n < len(raw) {
		e, _, err := batch.NextEntry(raw[n:])
		if err != nil || n > 0 && n+e.Len() > limit {
			break
		}
		n += e.Len()
	}
	if n == 0 {
		return len(raw)
	}
	return n
}

// TruncateToLeader cuts the log to where it agrees with the leader's, which says
// that the epoch end.Epoch, the last that it shares with us, ended at
// end.EndOffset there (KIP-101, KIP-595; AbstractFetcherThread.getOffsetTruncationState).
// A reply about an epoch that this log does not know leaves a guess, which the
// next fetch corrects. lost is how many committed records, as far as this replica
// knew, went with it: not zero only after an unclean election.
func (r *Replica) TruncateToLeader(leaderEpoch int32, end storage.EpochEnd) (at Place, lost int64, err error) {
	return r.cut(leaderEpoch, func(log *storage.Log) error {
		to := min(end.EndOffset, log.LogEnd())
		if ours := log.EndOffsetForEpoch(end.Epoch); end.Epoch != None && ours.EndOffset >= 0 {
			to = min(ours.EndOffset, log.LogEnd())
			if ours.Epoch == end.Epoch {
				to = min(to, end.EndOffset)
			}
		}
		_, err := log.Truncate(max(to, 0))
		return err
	})
}

// TruncateTo cuts the log to offset, where the leader's ends.
func (r *Replica) TruncateTo(leaderEpoch int32, offset int64) (at Place, lost int64, err error) {
	return r.cut(leaderEpoch, func(log *storage.Log) error {
		_, err := log.Truncate(offset)
		return err
	})
}

// StartAt empties the log and lets it begin at offset, where the leader's does:
// the leader no longer has what would come next here.
func (r *Replica) StartAt(leaderEpoch int32, offset int64) (at Place, lost int64, err error) {
	return r.cut(leaderEpoch, func(log *storage.Log) error { return log.TruncateFullyAndStartAt(offset) })
}

// cut runs a truncation.
func (r *Replica) cut(leaderEpoch int32, f func(*storage.Log) error) (at Place, lost int64, err error) {
	at, err = r.following(leaderEpoch, func(log *storage.Log) error {
		hw := log.HighWatermark()
		if err := f(log); err != nil {
			return err
		}
		lost = max(hw-log.LogEnd(), 0)
		r.notify(Readable)
		return nil
	})
	return at, lost, err
}

// followsLocked checks that the replica still follows in this leader epoch; role
// is read-held.
func (r *Replica) followsLocked(leaderEpoch int32) error {
	s := r.status.Load()
	if s.Leading || s.Leader == None || s.LeaderEpoch != leaderEpoch { // None: also one that has retired
		return &EpochError{Topic: r.topic, Partition: r.id, Asked: leaderEpoch, Have: s.LeaderEpoch}
	}
	return nil
}

// Place is where the log stands.
func (r *Replica) Place() Place {
	log := r.Log()
	epoch, ok := log.LatestEpoch()
	if !ok {
		epoch = None
	}
	o := log.Offsets()
	return Place{Offset: o.LogEnd, LastEpoch: epoch, LogStart: o.LogStart}
}
