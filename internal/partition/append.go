package partition

import (
	"container/heap"

	"weir/internal/batch"
	"weir/internal/config"
	"weir/internal/storage"
	"weir/internal/storage/producer"
)

// Acks is how many replicas must have a record before its producer is answered.
type Acks int16

// The values of acks.
const (
	AcksNone   Acks = 0
	AcksLeader Acks = 1
	AcksAll    Acks = -1
)

// AppendRequest is one partition's part of a Produce request.
type AppendRequest struct {
	// Records is one record batch v2, or a message set before Produce v3. It is
	// patched in place and must stay untouched until AppendAsLeader returns.
	Records []byte
	Version int16 // of Produce; coordinators use the highest
	Acks    Acks
	Origin  producer.Origin
	Guard   producer.Guard
	// TxnVersion is the transaction.version of a marker; see storage.Append.
	TxnVersion int16
	// Unverified lets transactional batches in without a guard
	// (transaction.partition.verification.enable=false).
	Unverified bool
	// Quiet leaves it to the caller to tell the watchers, with Tell: one that appends
	// to several replicas wakes readers once, who find all of it.
	Quiet bool
}

// Appended is what AppendAsLeader did.
type Appended struct {
	storage.Appended
	LeaderEpoch int32
}

// AppendAsLeader validates the batch by the topic's rules and appends it.
// Errors: *NotLeaderError, *NotEnoughReplicasError, *batch.InvalidRecordError,
// *batch.CorruptError, producer and storage errors. Nothing is appended with an
// error.
func (r *Replica) AppendAsLeader(q AppendRequest) (Appended, error) {
	if s := r.status.Load(); !s.Leading {
		return Appended{}, r.notLeader(s)
	}
	cfg := r.Log().Config()
	buf := r.buffers.Get()
	defer r.buffers.Put(buf)
	policy := r.policy(cfg, q)
	checked, err := r.check(q, &policy, buf)
	if err != nil {
		return Appended{}, err
	}
	out, err := r.append(q, checked)
	if err != nil {
		r.report(err)
		return Appended{}, err
	}
	return out, nil
}

// StartVerification begins the verification of a transactional batch; see
// storage.Log.StartVerification. *NotLeaderError where it cannot be appended.
func (r *Replica) StartVerification(id int64, sequence int32, epoch int16, epochBump bool) (producer.Guard, error) {
	if s := r.status.Load(); !s.Leading {
		return producer.NoGuard, r.notLeader(s)
	}
	return r.Log().StartVerification(id, sequence, epoch, epochBump)
}

// append writes a validated batch as the leader.
func (r *Replica) append(q AppendRequest, checked batch.Checked) (Appended, error) {
	r.role.RLock()
	defer r.role.RUnlock()
	s := r.status.Load()
	if !s.Leading {
		return Appended{}, r.notLeader(s)
	}
	if q.Acks == AcksAll {
		if err := r.enough(); err != nil {
			return Appended{}, err
		}
	}
	a, err := r.Log().Append(checked.Batch, storage.Append{LeaderEpoch: s.LeaderEpoch, Origin: q.Origin, Assign: true, Guard: q.Guard, TxnVersion: q.TxnVersion, Unverified: q.Unverified})
	if err != nil {
		return Appended{}, err
	}
	if !a.Duplicate {
		r.appended()
		if !q.Quiet {
			r.Tell()
		}
		r.stats.MessagesIn.Add(int64(checked.Count))
		r.stats.BytesIn.Add(int64(len(checked.Batch)))
		if checked.Recompressed {
			r.stats.Recompressed.Add(1)
		}
	}
	return Appended{Appended: a, LeaderEpoch: s.LeaderEpoch}, nil
}

// check validates what a client sent, as its version of Produce demands.
func (r *Replica) check(q AppendRequest, p *batch.Policy, buf *batch.Buffers) (batch.Checked, error) {
	if q.Version < 3 {
		r.stats.ProduceConversions.Add(1)
		return batch.UpConvert(q.Records, p, buf)
	}
	b, err := batch.Single(q.Records, q.Version)
	if err != nil {
		return batch.Checked{}, err
	}
	return batch.Validate(b, p, buf)
}

func (r *Replica) policy(c *config.Topic, q AppendRequest) batch.Policy {
	p := batch.Policy{
		Topic: r.topic, Partition: r.id, Now: r.clock.Now().UnixMilli(),
		BeforeMaxMs: c.TimestampBeforeMaxMs, AfterMaxMs: c.TimestampAfterMaxMs,
		Compacted: c.CleanupCompact, MaxBatch: c.MaxMessageBytes, Target: target(c),
	}
	if c.TimestampType == "LogAppendTime" {
		p.TimestampType = batch.LogAppendTime
	}
	if q.Origin == producer.OriginCoordinator {
		p.Origin = batch.Coordinator
	}
	return p
}

// target is the compression that the topic demands.
func target(c *config.Topic) batch.Target {
	codec, ok := batch.ParseCodec(c.CompressionType)
	if !ok { // "producer"
		return batch.Target{}
	}
	t := batch.Target{Recompress: true, Codec: codec, Level: batch.LevelDefault}
	switch codec {
	case batch.Gzip:
		t.Level = c.GzipLevel
	case batch.Lz4:
		t.Level = c.Lz4Level
	case batch.Zstd:
		t.Level = c.ZstdLevel
	}
	return t
}

func (r *Replica) notLeader(s *Status) error {
	return &NotLeaderError{Topic: r.topic, Partition: r.id, Leader: s.Leader, LeaderEpoch: s.LeaderEpoch}
}

// enough checks the ISR before an append with acks=all.
func (r *Replica) enough() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.leader.Enough() {
		return nil
	}
	return r.notEnoughLocked(false)
}

// Tell lets the watchers know that there is more to read.
func (r *Replica) Tell() { r.notify(Readable) }

// appended tells the core about the log's new end. The end is read under mu, so
// that concurrent appends report it in order.
func (r *Replica) appended() {
	r.mu.Lock()
	if l := r.mu.leader; l != nil && l.Appended(r.Log().LogEnd(), r.clock.Now()) {
		r.publishLocked()
	}
	r.mu.Unlock()
}

// Commit is the wait of one acks=all append.
type Commit struct {
	until int64 // high watermark at which it is committed
	index int
	done  chan struct{}
	err   error
}

// Done is closed when the outcome is known.
func (c *Commit) Done() <-chan struct{} { return c.done }

// Err is the outcome, valid after Done is closed: nil, *NotLeaderError or
// *NotEnoughReplicasError.
func (c *Commit) Err() error { return c.err }

// WaitCommitted returns nil when the records of a are committed already, else
// what to wait for. The caller gives up with Forget.
func (r *Replica) WaitCommitted(a Appended) (*Commit, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.mu.leader
	if s := r.status.Load(); l == nil || s.LeaderEpoch != a.LeaderEpoch {
		return nil, r.notLeader(s)
	}
	if l.HighWatermark() > a.LastOffset {
		if !l.Enough() {
			return nil, r.notEnoughLocked(true)
		}
		return nil, nil
	}
	c := &Commit{until: a.LastOffset + 1, done: make(chan struct{})}
	heap.Push(&r.mu.waits, c)
	return c, nil
}

// Forget ends a wait early (the producer's timeout has passed).
func (r *Replica) Forget(c *Commit) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.index >= 0 && c.index < len(r.mu.waits) && r.mu.waits[c.index] == c {
		heap.Remove(&r.mu.waits, c.index)
	}
}

// commitQueue is a heap by offset.
type commitQueue []*Commit

func (q commitQueue) Len() int           { return len(q) }
func (q commitQueue) Less(i, j int) bool { return q[i].until < q[j].until }
func (q commitQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

// Push is heap.Interface's.
func (q *commitQueue) Push(x any) {
	c := x.(*Commit)
	c.index = len(*q)
	*q = append(*q, c)
}

// Pop is heap.Interface's.
func (q *commitQueue) Pop() any {
	old := *q
	c := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	c.index = -1
	return c
}

func (q *commitQueue) pop() *Commit { return heap.Pop(q).(*Commit) }
