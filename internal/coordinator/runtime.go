package coordinator

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/batch"
	"weir/internal/clock"
	"weir/internal/partition"
	"weir/internal/statemachine"
	"weir/internal/storage/producer"
)

var (
	// ErrNotCoordinator refuses what belongs to a partition that this broker does
	// not lead, or no longer.
	ErrNotCoordinator = errors.New("this broker is not the coordinator")
	// ErrLoading refuses what belongs to a partition that is being loaded.
	ErrLoading = errors.New("the coordinator is loading its state")
)

// Program is a core for one partition.
type Program[C, S, R any] struct {
	// Core is handed to every write; it is used in the loop alone.
	Core     C
	Initial  S
	Apply    func(S, statemachine.Batch[R]) (S, error)
	Activate statemachine.Write[S, R]
	// Lost drops soft state; it is called in the loop.
	Lost func()
	// Due is the core's next deadline; see statemachine.Options.
	Due func() (time.Time, string, statemachine.Write[S, R])
}

// Codec turns records into bytes and back.
type Codec[R any] interface {
	// Encode gives a record's key and value; a nil value is a tombstone.
	Encode(r *R) (key, value []byte)
	// Decode reads one record of a batch, control records included. With ok false
	// there is nothing to apply. It keeps no reference to the record.
	Decode(e batch.Entry, r *batch.Record, base int64) (out R, ok bool, err error)
	// Envelope is what the batch of a record says beside it.
	Envelope(r *R) Envelope
}

// Envelope is the header of a batch, as far as its records decide on it. Records
// with different ones do not share a batch.
type Envelope struct {
	ProducerID int64 // of a transaction, batch.NoProducerID for none
	Epoch      int16
	Control    bool           // the record is a transaction's marker
	Guard      producer.Guard // of a transaction's first batch
	Unverified bool           // the batch needs no guard
	TxnVersion int16          // by whose rules a marker is checked
}

// Plain is the envelope of a record outside of transactions.
func Plain() Envelope {
	return Envelope{ProducerID: batch.NoProducerID, Epoch: batch.NoProducerEpoch, TxnVersion: -1}
}

// Options is what a Runtime is made of.
type Options[C, S, R any] struct {
	Topic string
	// Program makes the core of one partition, anew for each load. post queues a
	// further write of that core; it is for use in the loop.
	Program func(post func(name string, w statemachine.Write[S, R])) Program[C, S, R]
	Codec   Codec[R]
	// LoadBuffer is how many bytes are read at a time.
	LoadBuffer int
	// Codec of what is written.
	Compression batch.Codec
	// BaseSequence of batches outside of transactions: Kafka's coordinators differ.
	BaseSequence int32
	Buffers      *batch.Pool
	Clock        clock.Clock
	Logger       *slog.Logger
}

// Runtime is all partitions of one internal topic that this broker leads. Its
// methods may be called from any goroutine.
type Runtime[C, S, R any] struct {
	o    Options[C, S, R]
	stop context.CancelFunc
	ctx  context.Context
	work sync.WaitGroup // loads

	mu     sync.RWMutex
	shards map[int32]*shard[C, S, R]
	ended  bool
}

// New makes a runtime that leads nothing.
func New[C, S, R any](o Options[C, S, R]) *Runtime[C, S, R] {
	rt := &Runtime[C, S, R]{o: o, shards: map[int32]*shard[C, S, R]{}}
	rt.ctx, rt.stop = context.WithCancel(context.Background())
	return rt
}

// Leads tells that this broker leads the partition of r in an epoch; once for
// each epoch suffices, more is harmless. Other topics are ignored.
func (rt *Runtime[C, S, R]) Leads(r *partition.Replica, epoch int32) {
	if r.Topic() != rt.o.Topic {
		return
	}
	rt.mu.Lock()
	old := rt.shards[r.ID()]
	if rt.ended || old != nil && old.replica == r && old.epoch >= epoch {
		rt.mu.Unlock()
		return
	}
	rt.startLocked(r, epoch)
	rt.mu.Unlock()
	if old != nil {
		old.close()
	}
}

// startLocked begins to load a partition.
func (rt *Runtime[C, S, R]) startLocked(r *partition.Replica, epoch int32) {
	s := newShard(rt, r, epoch)
	rt.shards[r.ID()] = s
	rt.work.Go(s.load)
}

// LeadsNot tells that this broker does not lead the partition of r, or no longer.
func (rt *Runtime[C, S, R]) LeadsNot(r *partition.Replica) {
	if r.Topic() != rt.o.Topic {
		return
	}
	rt.mu.Lock()
	s := rt.shards[r.ID()]
	if s == nil || s.replica != r {
		rt.mu.Unlock()
		return
	}
	delete(rt.shards, r.ID())
	rt.mu.Unlock()
	s.close()
}

// again loads a partition anew after its machine has given up the epoch.
func (rt *Runtime[C, S, R]) again(s *shard[C, S, R]) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if rt.ended || rt.shards[s.id] != s {
		return
	}
	delete(rt.shards, s.id)
	// After a pause: should the reason still be there, this must not spin.
	rt.o.Clock.AfterFunc(reloadPause, func() {
		if st := s.replica.Status(); st.Leading {
			rt.Leads(s.replica, st.LeaderEpoch)
		}
	})
}

// reloadPause is how long a partition whose machine has failed stays without one.
const reloadPause = 100 * time.Millisecond

// Stop ends everything; what waits is answered with ErrNotCoordinator.
func (rt *Runtime[C, S, R]) Stop() {
	rt.mu.Lock()
	rt.ended = true
	shards := rt.shards
	rt.shards = map[int32]*shard[C, S, R]{}
	rt.mu.Unlock()
	rt.stop()
	for _, s := range shards {
		s.close()
	}
	rt.work.Wait()
}

func (rt *Runtime[C, S, R]) shard(id int32) (*shard[C, S, R], error) {
	rt.mu.RLock()
	s := rt.shards[id]
	rt.mu.RUnlock()
	if s == nil {
		return nil, ErrNotCoordinator
	}
	return s, s.ready()
}

// Write decides on a request; see statemachine.Write.
type Write[C, S, R any] func(core C, v statemachine.View[S]) (statemachine.Result[R], error)

// Submit runs a write on a partition. done is called once, in the partition's
// loop, and must not block. Errors: ErrNotCoordinator, ErrLoading, and what the
// log refused (partition and storage errors).
func (rt *Runtime[C, S, R]) Submit(id int32, name string, w Write[C, S, R], done func(response any, err error)) {
	s, err := rt.shard(id)
	if err != nil {
		done(nil, err)
		return
	}
	s.submit(name, w, done)
}

// Committed is the committed state of a partition. Errors as Submit.
func (rt *Runtime[C, S, R]) Committed(id int32) (S, error) {
	s, err := rt.shard(id)
	if err != nil {
		var none S
		return none, err
	}
	return s.machine.Committed().State, nil
}

// Epoch is the leader epoch in which a partition is coordinated here. Errors as Submit.
func (rt *Runtime[C, S, R]) Epoch(id int32) (int32, error) {
	s, err := rt.shard(id)
	if err != nil {
		return -1, err
	}
	return s.epoch, nil
}

// Replica is the log of a partition. Errors as Submit.
func (rt *Runtime[C, S, R]) Replica(id int32) (*partition.Replica, error) {
	s, err := rt.shard(id)
	if err != nil {
		return nil, err
	}
	return s.replica, nil
}

// Active lists the partitions that have been loaded; loading counts the others
// that this broker leads.
func (rt *Runtime[C, S, R]) Active() (ids []int32, loading int) {
	rt.mu.RLock()
	defer rt.mu.RUnlock()
	for id, s := range rt.shards {
		switch s.phase.Load() {
		case phaseActive:
			ids = append(ids, id)
		case phaseLoading:
			loading++
		}
	}
	return ids, loading
}

// phase of a shard.
type phase = atomic.Int32

const (
	phaseLoading int32 = iota
	phaseActive
	phaseGone
)
