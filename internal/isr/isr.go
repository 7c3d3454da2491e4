// Package isr holds the rules by which the leader of one partition decides what
// is committed.
//
// The leader of a partition keeps, for each follower, how far it has copied the
// log. From that follow three decisions, and nothing else in Weir takes them:
//
//   - the high watermark: the offset below which every member of the maximal
//     ISR holds every record. Consumers see only records below it.
//   - who should leave the in-sync replicas (ISR) because it has not caught up
//     within replica.lag.time.max.ms, and who may join them.
//   - whether the ISR is large enough to accept a write with acks=all.
//
// The ISR itself is owned by the controller. The leader proposes a change
// (AlterPartition) and, while the proposal is in flight, assumes the worst of
// both outcomes: the maximal ISR is the committed ISR together with the
// replicas that a pending proposal would add. A change comes back by two roads,
// the answer to the proposal and the cluster image; both carry a partition
// epoch, and only a higher one is taken.
//
// A Leader is a plain value that is stepped: time is an argument, proposals are
// return values. It has no lock; its owner (package partition) guards it.
package isr

import (
	"cmp"
	"slices"
	"time"

	"weir/internal/invariant"
)

// Assignment is what the controller has decided about a partition, as far as
// its leader needs it. Slices are shared with the cluster image and read-only.
type Assignment struct {
	Replicas       []int32
	ISR            []int32
	LeaderEpoch    int32
	PartitionEpoch int32
	// Recovering is set after an unclean election (leaderRecoveryState 1) until
	// the leader proposes an ISR in the state RECOVERED.
	Recovering bool
}

// Broker tells what the image knows of a broker that wants to join an ISR.
type Broker struct {
	Epoch        int64
	Fenced       bool
	ShuttingDown bool
}

// Brokers looks a broker up in the leader's image; ok is false for an unknown
// one.
type Brokers func(id int32) (b Broker, ok bool)

// Member is one replica named in a proposal, with the broker epoch under which
// it was seen in sync (KIP-903); -1 when unknown.
type Member struct {
	ID    int32
	Epoch int64
}

// Proposal is an ISR the leader asks the controller to commit.
type Proposal struct {
	ISR            []Member
	LeaderEpoch    int32
	PartitionEpoch int32
	Recovered      bool
	// Changes says who joins and who leaves, for people.
	Changes []Change
}

// Change is one replica that joins the ISR, or leaves it because it has lacked
// records for so long.
type Change struct {
	ID      int32
	Joins   bool
	LogEnd  int64 // the follower's, -1 when it has not fetched from this leader
	Lacking time.Duration
}

// progress is how far one follower has come.
//
// Invariant: start <= end <= the leader's log end at the time of the last fetch,
// or both are -1 when the follower has not fetched in this leader epoch.
type progress struct {
	start int64 // the follower's log start offset
	end   int64 // the follower's log end offset
	epoch int64 // broker epoch of the last fetch, -1 for fetches that carry none

	// caughtUp is the last time at which the follower held everything that the
	// leader held; Kafka's lastCaughtUpTimeMs.
	caughtUp time.Time
	// lastFetch and leaderEndAtLastFetch serve the rule that a follower whose
	// fetch reaches what was the end at its previous fetch was caught up then.
	lastFetch            time.Time
	leaderEndAtLastFetch int64
}

// Leader is the leader's view of one partition in one leader epoch.
//
// Invariants: highWatermark <= logEnd; committed ISR ⊆ maximal ISR ⊆ replicas;
// the partition epoch never goes back.
type Leader struct {
	self int32
	a    Assignment

	// pending is the proposal in flight, nil when there is none.
	pending *Proposal
	maximal []int32 // committed ISR ∪ additions of pending

	followers     map[int32]*progress
	logStart      int64
	logEnd        int64
	epochStart    int64 // log end when this leader epoch began
	highWatermark int64
	minISR        int32
}

// Start is the state in which a replica takes over leadership.
type Start struct {
	Self          int32
	Assignment    Assignment
	LogStart      int64
	LogEnd        int64
	HighWatermark int64
	MinISR        int32 // min.insync.replicas
	Now           time.Time
}

// NewLeader begins a leader epoch: the followers' positions are unknown, and
// each is given a full replica.lag.time.max.ms to show that it is in sync.
func NewLeader(s Start) *Leader {
	l := &Leader{
		self: s.Self, a: s.Assignment,
		followers: make(map[int32]*progress, len(s.Assignment.Replicas)),
		logStart:  s.LogStart, logEnd: s.LogEnd, epochStart: s.LogEnd,
		highWatermark: min(s.HighWatermark, s.LogEnd), minISR: s.MinISR,
	}
	l.trackFollowers(s.Now)
	l.recomputeMaximal()
	l.advance()
	return l
}

// trackFollowers makes the followers map agree with the replica list.
func (l *Leader) trackFollowers(now time.Time) {
	for _, id := range l.a.Replicas {
		if id != l.self && l.followers[id] == nil {
			p := &progress{start: -1, end: -1, epoch: -1}
			if slices.Contains(l.a.ISR, id) {
				p.caughtUp = now
			}
			l.followers[id] = p
		}
	}
	for id := range l.followers {
		if !slices.Contains(l.a.Replicas, id) {
			delete(l.followers, id)
		}
	}
}

func (l *Leader) recomputeMaximal() {
	l.maximal = append(l.maximal[:0], l.a.ISR...)
	if l.pending != nil {
		for _, m := range l.pending.ISR {
			if !slices.Contains(l.maximal, m.ID) {
				l.maximal = append(l.maximal, m.ID)
			}
		}
	}
}

// HighWatermark is the offset below which records are committed.
func (l *Leader) HighWatermark() int64 { return l.highWatermark }

// EpochStart is the leader's log end offset when its epoch began. Until the
// high watermark has reached it, the latest offset is not known to consumers
// (KIP-207, OFFSET_NOT_AVAILABLE).
func (l *Leader) EpochStart() int64 { return l.epochStart }

// ISR is the committed ISR; shared and read-only.
func (l *Leader) ISR() []int32 { return l.a.ISR }

// Assignment is what the controller last committed.
func (l *Leader) Assignment() Assignment { return l.a }

// InFlight tells whether p is the proposal that waits for the controller.
func (l *Leader) InFlight(p *Proposal) bool { return p != nil && l.pending == p }

// Need is how many replicas must be in sync for a write with acks=all:
// min(min.insync.replicas, replication factor).
func (l *Leader) Need() int { return min(int(l.minISR), len(l.a.Replicas)) }

// Enough tells whether the committed ISR satisfies Need.
func (l *Leader) Enough() bool { return len(l.a.ISR) >= l.Need() }

// SetMinISR takes a changed min.insync.replicas; the high watermark may move.
func (l *Leader) SetMinISR(n int32) (moved bool) {
	l.minISR = n
	return l.advance()
}

// Appended notes the leader's own log after an append, and tells whether the
// high watermark moved. Followers that had everything until now were caught up
// until now: an idle partition is not mentioned in fetches, so the last fetch
// says nothing about it.
func (l *Leader) Appended(logEnd int64, now time.Time) (moved bool) {
	invariant.Check(logEnd >= l.logEnd, "log end went back from %d to %d", l.logEnd, logEnd)
	if logEnd > l.logEnd {
		for _, p := range l.followers {
			if p.end >= l.logEnd {
				p.caughtUp = later(p.caughtUp, now)
			}
		}
	}
	l.logEnd = logEnd
	return l.advance()
}

// LogStart notes the leader's log start offset.
func (l *Leader) LogStart(off int64) { l.logStart = max(l.logStart, off) }

// LowWatermark is the lowest log start offset among the live followers that
// have fetched and the leader itself: what DeleteRecords waits for and answers.
func (l *Leader) LowWatermark(brokers Brokers) int64 {
	low := l.logStart
	for id, p := range l.followers {
		if b, ok := brokers(id); ok && !b.Fenced && p.start < low {
			low = p.start
		}
	}
	return low
}

// advance moves the high watermark to the smallest log end of the maximal ISR,
// as far as the ISR is large enough. It never moves back.
func (l *Leader) advance() bool {
	if !l.Enough() {
		return false
	}
	to := l.logEnd
	for _, id := range l.maximal {
		if id == l.self {
			continue
		}
		p := l.followers[id]
		if p == nil {
			return false
		}
		to = min(to, p.end)
	}
	if to <= l.highWatermark {
		return false
	}
	l.highWatermark = to
	return true
}

// Fetch is one fetch of a follower, already validated against the log.
type Fetch struct {
	Follower    int32
	LeaderEpoch int32 // in which it was validated: truncations may lie between that and another one
	BrokerEpoch int64 // -1 for fetch versions that carry none
	Offset      int64 // the follower's log end: it asks for this offset next
	LogStart    int64
	Now         time.Time
}

// Fetched notes a follower's fetch and tells whether the high watermark moved.
// ok is false when the fetch comes from no replica of the partition, from a
// stale incarnation of it, or was validated in another leader epoch.
func (l *Leader) Fetched(f Fetch) (moved, ok bool) {
	p := l.followers[f.Follower]
	if p == nil || f.LeaderEpoch != l.a.LeaderEpoch || (f.BrokerEpoch >= 0 && f.BrokerEpoch < p.epoch) {
		return false, false
	}
	switch {
	case f.Offset >= l.logEnd:
		p.caughtUp = later(p.caughtUp, f.Now)
	case !p.lastFetch.IsZero() && f.Offset >= p.leaderEndAtLastFetch:
		p.caughtUp = later(p.caughtUp, p.lastFetch)
	}
	p.start, p.end, p.epoch = f.LogStart, f.Offset, f.BrokerEpoch
	p.lastFetch, p.leaderEndAtLastFetch = f.Now, l.logEnd
	return l.advance(), true
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// Holders lists the in-sync followers whose logs reach to offset, the furthest
// first: those that a consumer at offset may read from (KIP-392).
func (l *Leader) Holders(offset int64) []int32 {
	var out []int32
	for _, id := range l.a.ISR {
		if p := l.followers[id]; p != nil && p.start <= offset && offset <= p.end {
			out = append(out, id)
		}
	}
	slices.SortStableFunc(out, func(a, b int32) int { return cmp.Compare(l.followers[b].end, l.followers[a].end) })
	return out
}

// Propose returns the ISR change that is due, or nil. The caller sends it and
// reports the outcome with Committed or Refused; until then Propose is silent.
func (l *Leader) Propose(now time.Time, maxLag time.Duration, brokers Brokers) *Proposal {
	if l.pending != nil {
		return nil
	}
	keep := make([]Member, 0, len(l.a.Replicas))
	changed := l.a.Recovering
	var changes []Change
	for _, id := range l.a.ISR {
		if id != l.self && l.outOfSync(id, now, maxLag) {
			changed = true
			changes = append(changes, l.change(id, false, now))
			continue
		}
		keep = append(keep, l.member(id, brokers))
	}
	for _, id := range l.a.Replicas {
		if id != l.self && !slices.Contains(l.a.ISR, id) && l.mayJoin(id, brokers) {
			changed = true
			changes = append(changes, l.change(id, true, now))
			keep = append(keep, l.member(id, brokers))
		}
	}
	if !changed {
		return nil
	}
	slices.SortFunc(keep, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
	l.pending = &Proposal{ISR: keep, LeaderEpoch: l.a.LeaderEpoch, PartitionEpoch: l.a.PartitionEpoch, Recovered: true, Changes: changes}
	l.recomputeMaximal()
	return l.pending
}

func (l *Leader) change(id int32, joins bool, now time.Time) Change {
	c := Change{ID: id, Joins: joins, LogEnd: -1}
	if p := l.followers[id]; p != nil {
		c.LogEnd, c.Lacking = p.end, now.Sub(p.caughtUp)
	}
	return c
}

func (l *Leader) member(id int32, brokers Brokers) Member {
	if id == l.self {
		if b, ok := brokers(id); ok {
			return Member{ID: id, Epoch: b.Epoch}
		}
		return Member{ID: id, Epoch: -1}
	}
	return Member{ID: id, Epoch: l.followers[id].epoch}
}

// outOfSync: the follower lacks records and has lacked some for too long.
func (l *Leader) outOfSync(id int32, now time.Time, maxLag time.Duration) bool {
	p := l.followers[id]
	return p == nil || (p.end != l.logEnd && now.Sub(p.caughtUp) > maxLag)
}

// mayJoin: log end ≥ high watermark and ≥ the epoch's start, so that no
// committed record can be missing; and the very incarnation that fetched is the
// one registered, unfenced and staying.
func (l *Leader) mayJoin(id int32, brokers Brokers) bool {
	if !l.reached(id) {
		return false
	}
	b, ok := brokers(id)
	epoch := l.followers[id].epoch
	return ok && !b.Fenced && !b.ShuttingDown && (epoch < 0 || epoch == b.Epoch)
}

func (l *Leader) reached(id int32) bool {
	p := l.followers[id]
	return p != nil && p.end >= l.highWatermark && p.end >= l.epochStart
}

// Wants tells whether a follower outside the ISR has come far enough to join it,
// so that Propose should be called soon.
func (l *Leader) Wants(follower int32) bool {
	return l.pending == nil && !slices.Contains(l.a.ISR, follower) && l.reached(follower)
}

// Committed takes a state committed by the controller, from the answer to a
// proposal or from the image. A stale one is ignored (false). The leader epoch
// must be this Leader's: a new leader epoch needs a new Leader.
//
// The answer to a proposal that ends a reassignment comes before the image that
// tells the new replica list, with the same partition epoch: then only the list is
// taken.
func (l *Leader) Committed(a Assignment, now time.Time) (taken, moved bool) {
	invariant.Check(a.LeaderEpoch == l.a.LeaderEpoch, "state of leader epoch %d given to the leader of epoch %d", a.LeaderEpoch, l.a.LeaderEpoch)
	switch {
	case a.PartitionEpoch > l.a.PartitionEpoch:
		l.a, l.pending = a, nil
	case a.PartitionEpoch == l.a.PartitionEpoch && !slices.Equal(a.Replicas, l.a.Replicas):
		l.a.Replicas = a.Replicas
	default:
		return false, false
	}
	l.trackFollowers(now)
	l.recomputeMaximal()
	return true, l.advance()
}

// Refused ends a proposal that the controller has not committed and never will. A
// proposal whose outcome is unknown (time-out) must be sent again, not refused: it
// may have been committed.
func (l *Leader) Refused() {
	l.pending = nil
	l.recomputeMaximal()
}
