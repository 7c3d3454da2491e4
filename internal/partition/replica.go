// Package partition is one replica of one partition on this broker: the log on
// its disk (package storage) joined with the rules of leadership (package isr).
//
// A Replica is a leader, a follower, or neither yet; the cluster image says
// which, through Lead and Follow. Around that are four walks, a file each:
//
//   - append.go: a producer's batches are validated and appended by the leader,
//     and an acks=all producer waits until the high watermark has passed them;
//   - read.go: consumers read below the high watermark (or the last stable
//     offset), followers up to the log's end, and each follower's fetch moves
//     the high watermark;
//   - follow.go: a follower appends what the leader sent, and truncates to it;
//   - offsets.go: offsets by time and by leader epoch, and deletion of records.
//
// A Replica has no goroutine and no timer. Who waits for something to change
// registers a Watcher.
//
// # Locks
//
//	role   (RWMutex) read-held by an append, written by a change of role, so that
//	       no append straddles one.
//	mu     the isr core and those who wait for a commit.
//	watch  the watchers.
//
// Order: role, then mu, then the log's own locks; watch last. Reads take none
// of them on their way to the data: the log's offsets and the role are loaded
// from immutable views.
package partition

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/batch"
	"weir/internal/clock"
	"weir/internal/config"
	"weir/internal/invariant"
	"weir/internal/isr"
	"weir/internal/storage"
	"weir/internal/uuid"
)

// None is the leader of a partition that has none, and the epoch of one that
// has never had any.
const None int32 = -1

// Options is what a Replica is made of.
type Options struct {
	Topic   string
	TopicID uuid.UUID
	ID      int32 // partition number
	Self    int32 // this broker's node id
	Log     *storage.Log
	Clock   clock.Clock
	Buffers *batch.Pool // shared by all replicas
	// Failed is told of errors of the log's disk or data, with no lock held.
	Failed func(r *Replica, err error)
	// Due is told that an ISR change may be due now, with no lock held; nil: nobody.
	Due func(r *Replica)
}

// Stats counts what happened to one replica since it was opened.
type Stats struct {
	MessagesIn, BytesIn, BytesOut        atomic.Int64
	ProduceRequests, FailedProduce       atomic.Int64
	FetchRequests, FailedFetch           atomic.Int64
	ProduceConversions, FetchConversions atomic.Int64 // batches
	Recompressed                         atomic.Int64 // batches
	ReplicationBytesIn                   atomic.Int64 // as a follower
	ReplicationBytesOut                  atomic.Int64 // to followers
}

// Replica is one replica. Its methods may be called from any goroutine.
type Replica struct {
	topic   string
	topicID uuid.UUID
	id      int32
	self    int32
	log     atomic.Pointer[storage.Log] // replaced by SwapLog, under role and mu
	clock   clock.Clock
	buffers *batch.Pool
	stats   Stats
	failed  func(*Replica, error)
	due     func(*Replica)

	// Whether replication throttles hold for this replica, as leader and as follower.
	throttledLeader, throttledFollower atomic.Bool

	role   sync.RWMutex
	status atomic.Pointer[Status] // written under role and mu, read anywhere

	mu struct {
		sync.Mutex
		leader *isr.Leader // nil unless this replica leads
		waits  commitQueue
	}
	watch struct {
		sync.Mutex
		set []Watcher
	}
}

// Status is the role of a replica; immutable.
type Status struct {
	// Leader is the node id of the partition's leader, None when there is none
	// or none is known yet.
	Leader int32
	// LeaderEpoch rises with each change of leader, None before the first.
	LeaderEpoch    int32
	PartitionEpoch int32
	// Leading is set when this replica leads.
	Leading bool
	// EpochStart is the log end at which this leadership began; only with Leading.
	EpochStart int64
}

// Watcher is told what has changed. Changed is called with locks held: it must
// only take a note.
type Watcher interface {
	Changed(r *Replica, n News)
}

// News is what has changed of a replica.
type News uint8

const (
	// Readable: there may be more to read, for anybody, or the role is another.
	Readable News = iota
	// Committed: only the high watermark has moved, so there is more to read for
	// consumers, but not for followers.
	Committed
)

// New makes a replica whose role is not known yet.
func New(o Options) *Replica {
	r := &Replica{
		topic: o.Topic, topicID: o.TopicID, id: o.ID, self: o.Self,
		clock: o.Clock, buffers: o.Buffers, failed: o.Failed, due: o.Due,
	}
	r.log.Store(o.Log)
	r.status.Store(&Status{Leader: None, LeaderEpoch: None, PartitionEpoch: None})
	return r
}

// Topic is the topic's name.
func (r *Replica) Topic() string { return r.topic }

// TopicID is the topic's id.
func (r *Replica) TopicID() uuid.UUID { return r.topicID }

// ID is the partition number.
func (r *Replica) ID() int32 { return r.id }

// Stats counts what happened to the replica.
func (r *Replica) Stats() *Stats { return &r.stats }

// Log is the replica's log.
func (r *Replica) Log() *storage.Log { return r.log.Load() }

// Status is the replica's present role.
func (r *Replica) Status() Status { return *r.status.Load() }

func (r *Replica) String() string { return fmt.Sprintf("%s-%d", r.topic, r.id) }

// Lead makes this replica the leader in a.LeaderEpoch, or takes a newer
// partition epoch of the same leadership (another ISR, another replica list).
// An older state is ignored.
func (r *Replica) Lead(a isr.Assignment, now time.Time) {
	r.role.Lock()
	defer r.role.Unlock()
	was := r.status.Load()
	if was.Leading && a.LeaderEpoch == was.LeaderEpoch {
		r.take(a, now)
		return
	}
	if a.LeaderEpoch < was.LeaderEpoch || (a.LeaderEpoch == was.LeaderEpoch && a.PartitionEpoch <= was.PartitionEpoch) {
		return
	}
	end := r.Log().LogEnd()
	r.Log().AssignEpoch(a.LeaderEpoch, end)
	leader := isr.NewLeader(isr.Start{
		Self: r.self, Assignment: a, LogStart: r.Log().LogStart(), LogEnd: end,
		HighWatermark: r.Log().HighWatermark(), MinISR: r.Log().Config().MinInsyncReplicas, Now: now,
	})
	r.mu.Lock()
	r.mu.leader = leader
	r.failWaitsLocked(&NotLeaderError{Topic: r.topic, Partition: r.id, Leader: r.self, LeaderEpoch: a.LeaderEpoch})
	r.status.Store(&Status{Leader: r.self, LeaderEpoch: a.LeaderEpoch, PartitionEpoch: a.PartitionEpoch, Leading: true, EpochStart: end})
	r.Log().SetHighWatermark(leader.HighWatermark())
	r.mu.Unlock()
	r.notify(Readable)
}

// take hands a newer partition epoch to the running leader; role is held.
func (r *Replica) take(a isr.Assignment, now time.Time) {
	r.mu.Lock()
	if taken, _ := r.mu.leader.Committed(a, now); taken {
		s := *r.status.Load()
		s.PartitionEpoch = a.PartitionEpoch
		r.status.Store(&s)
		r.publishLocked()
	}
	r.mu.Unlock()
	r.notify(Readable)
}

// Follow makes this replica a follower of leader (None: of nobody for now).
func (r *Replica) Follow(leader, leaderEpoch, partitionEpoch int32) {
	r.role.Lock()
	defer r.role.Unlock()
	was := r.status.Load()
	if leaderEpoch < was.LeaderEpoch || (leaderEpoch == was.LeaderEpoch && partitionEpoch <= was.PartitionEpoch) {
		return
	}
	r.mu.Lock()
	r.mu.leader = nil
	r.status.Store(&Status{Leader: leader, LeaderEpoch: leaderEpoch, PartitionEpoch: partitionEpoch})
	r.failWaitsLocked(&NotLeaderError{Topic: r.topic, Partition: r.id, Leader: leader, LeaderEpoch: leaderEpoch})
	r.mu.Unlock()
	r.notify(Readable)
}

// Retire ends the replica's life here: the topic was deleted, the partition
// moved away, or its directory failed. Those who wait are told err.
func (r *Replica) Retire(err error) {
	r.role.Lock()
	defer r.role.Unlock()
	r.mu.Lock()
	r.mu.leader = nil
	s := *r.status.Load()
	s.Leading, s.Leader = false, None
	r.status.Store(&s)
	r.failWaitsLocked(err)
	r.mu.Unlock()
	r.notify(Readable)
}

// SwapLog puts a copy of the log, made in another log directory, in the place
// of the present one. promote is called while nothing can be appended; it
// returns the new log, which must hold all that the old one does, or nil when
// it has fallen behind meanwhile.
func (r *Replica) SwapLog(promote func(old *storage.Log) (*storage.Log, error)) (swapped bool, err error) {
	r.role.Lock()
	defer r.role.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	next, err := promote(r.Log())
	if err != nil || next == nil {
		return false, err
	}
	invariant.Check(next.LogEnd() == r.Log().LogEnd(), "%s: swapping a log that ends at %d for one that ends at %d", r, r.Log().LogEnd(), next.LogEnd())
	next.SetHighWatermark(r.Log().HighWatermark())
	next.SetConfig(r.Log().Config())
	if s := r.status.Load(); s.Leading { // no batch may have told the copy of this epoch yet
		next.AssignEpoch(s.LeaderEpoch, s.EpochStart)
	}
	r.log.Store(next)
	return true, nil
}

// SetConfig takes a topic's changed configuration.
func (r *Replica) SetConfig(c *config.Topic) {
	r.role.RLock() // or SwapLog might take the old configuration over
	defer r.role.RUnlock()
	r.Log().SetConfig(c)
	r.mu.Lock()
	moved := r.mu.leader != nil && r.mu.leader.SetMinISR(c.MinInsyncReplicas)
	if moved {
		r.publishLocked()
	}
	r.mu.Unlock()
	if moved {
		r.notify(Readable)
	}
}

// SetThrottled tells whether replication throttles hold for this replica, as
// leader and as follower (KIP-73).
func (r *Replica) SetThrottled(leader, follower bool) {
	r.throttledLeader.Store(leader)
	r.throttledFollower.Store(follower)
}

// ThrottledFollower tells whether the limit for followers holds for this replica.
func (r *Replica) ThrottledFollower() bool { return r.throttledFollower.Load() }

// ThrottledFor tells whether the limit for leaders holds for what a follower gets
// from this one: it does until the follower is in sync.
func (r *Replica) ThrottledFor(follower int32) bool {
	return r.throttledLeader.Load() && !slices.Contains(r.ISR(), follower)
}

// Propose returns the ISR change that is due, or nil. Its outcome goes to
// Committed or Refused.
func (r *Replica) Propose(now time.Time, maxLag time.Duration, brokers isr.Brokers) *isr.Proposal {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.leader == nil {
		return nil
	}
	return r.mu.leader.Propose(now, maxLag, brokers)
}

// Committed takes what the controller has made of a proposal: the ISR and the
// epochs. The answer does not tell the replica list, which comes with the image.
func (r *Replica) Committed(p *isr.Proposal, a isr.Assignment, now time.Time) {
	r.role.Lock()
	defer r.role.Unlock()
	r.mu.Lock()
	l := r.mu.leader
	ours := l != nil && l.InFlight(p) && a.LeaderEpoch == p.LeaderEpoch
	if ours {
		a.Replicas = l.Assignment().Replicas
	}
	r.mu.Unlock()
	if ours {
		r.take(a, now)
	}
}

// InFlight tells whether p is the proposal whose outcome this replica waits for.
func (r *Replica) InFlight(p *isr.Proposal) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.leader != nil && r.mu.leader.InFlight(p)
}

// Refused ends a proposal that the controller turned down.
func (r *Replica) Refused(p *isr.Proposal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l := r.mu.leader; l != nil && l.InFlight(p) {
		l.Refused()
	}
}

// ISR is the committed ISR as the leader knows it, nil when not leading.
func (r *Replica) ISR() []int32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.leader == nil {
		return nil
	}
	return r.mu.leader.ISR()
}

// Health is how many replicas a partition has, how many are in sync, and how many
// must be for acks=all.
type Health struct{ Replicas, InSync, Need int }

// Health is known to the leader alone.
func (r *Replica) Health() (h Health, leads bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.mu.leader
	if l == nil {
		return h, false
	}
	return Health{Replicas: len(l.Assignment().Replicas), InSync: len(l.ISR()), Need: l.Need()}, true
}

// Watch registers w until Unwatch. A watcher is registered at most once.
func (r *Replica) Watch(w Watcher) {
	r.watch.Lock()
	r.watch.set = append(r.watch.set, w)
	r.watch.Unlock()
}

// Unwatch removes w.
func (r *Replica) Unwatch(w Watcher) {
	r.watch.Lock()
	defer r.watch.Unlock()
	for i, x := range r.watch.set {
		if x == w {
			last := len(r.watch.set) - 1
			r.watch.set[i] = r.watch.set[last]
			r.watch.set[last] = nil
			r.watch.set = r.watch.set[:last]
			return
		}
	}
}

func (r *Replica) notify(n News) {
	r.watch.Lock()
	for _, w := range r.watch.set {
		w.Changed(r, n)
	}
	r.watch.Unlock()
}

// publishLocked carries the core's high watermark into the log, and answers
// the producers that waited for it. mu is held.
func (r *Replica) publishLocked() {
	hw := r.mu.leader.HighWatermark()
	r.Log().SetHighWatermark(hw)
	for r.mu.waits.Len() > 0 && r.mu.waits[0].until <= hw {
		w := r.mu.waits.pop()
		if !r.mu.leader.Enough() {
			w.err = r.notEnoughLocked(true)
		}
		close(w.done)
	}
}

func (r *Replica) failWaitsLocked(err error) {
	for _, w := range r.mu.waits {
		w.err = err
		close(w.done)
	}
	r.mu.waits = nil
}

func (r *Replica) notEnoughLocked(after bool) error {
	return &NotEnoughReplicasError{
		Topic: r.topic, Partition: r.id, ISR: r.mu.leader.ISR(), Need: r.mu.leader.Need(), AfterAppend: after,
	}
}

// report passes errors of the disk on to the owner; others are the caller's
// own business. No lock is held.
func (r *Replica) report(err error) {
	var disk *storage.DiskError
	var corrupt *storage.CorruptError
	if errors.As(err, &disk) || errors.As(err, &corrupt) {
		r.failed(r, err)
	}
}
