package coordinator

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/batch"
	"weir/internal/clock"
	"weir/internal/partition"
	"weir/internal/statemachine"
	"weir/internal/storage"
	"weir/internal/storage/producer"
)

// shard is one partition in one load.
type shard[C, S, R any] struct {
	rt      *Runtime[C, S, R]
	id      int32
	replica *partition.Replica
	epoch   int32
	core    C
	machine *statemachine.Machine[S, R]
	phase   phase
	closing atomic.Bool
	token   atomic.Int32 // idle, running or again; see kick

	// moved is poked when the replica changed; the load waits on it.
	moved chan struct{}
	once  sync.Once // unwatch

	// The rest belongs to whoever holds the token; during the load, to it.

	end    int64  // the log's end as the machine knows it
	spans  []span // what was appended and is not known to be committed
	resign bool   // the machine has given up the epoch
	timer  clock.Timer
	build  *batch.Builder
}

// span is one batch of ours.
type span struct{ base, last int64 }

// States of the token.
const (
	idle int32 = iota
	running
	again
)

func newShard[C, S, R any](rt *Runtime[C, S, R], r *partition.Replica, epoch int32) *shard[C, S, R] {
	s := &shard[C, S, R]{rt: rt, id: r.ID(), replica: r, epoch: epoch, moved: make(chan struct{}, 1)}
	p := rt.o.Program(s.post)
	s.core = p.Core
	s.machine = statemachine.New(statemachine.Options[S, R]{
		Name: r.String(), Log: s, Initial: p.Initial, Apply: p.Apply, Activate: p.Activate, Lost: p.Lost, Due: p.Due,
		Clock: rt.o.Clock, Logger: rt.o.Logger,
	})
	r.Watch(s)
	return s
}

// post queues a write from within the loop.
func (s *shard[C, S, R]) post(name string, w statemachine.Write[S, R]) {
	s.machine.Submit(name, w, func(_ any, err error) {
		if err != nil && !errors.Is(err, statemachine.ErrNotLeader) && !errors.Is(err, statemachine.ErrStopped) {
			s.rt.o.Logger.Error("coordinator: a write failed", "partition", s.replica.String(), "write", name, "err", err)
		}
	})
}

func (s *shard[C, S, R]) ready() error {
	switch s.phase.Load() {
	case phaseLoading:
		return ErrLoading
	case phaseActive:
		return nil
	}
	return ErrNotCoordinator
}

// Changed is partition.Watcher: the high watermark or the role has moved.
func (s *shard[C, S, R]) Changed(*partition.Replica, partition.News) {
	select {
	case s.moved <- struct{}{}:
	default:
	}
	if s.phase.Load() == phaseActive {
		s.kick(false)
	}
}

// close ends the shard: it is told to whoever waits. It does not wait for that.
func (s *shard[C, S, R]) close() {
	s.closing.Store(true)
	select {
	case s.moved <- struct{}{}: // ends a load
	default:
	}
	if s.phase.Load() != phaseLoading {
		s.kick(false)
	}
}

func (s *shard[C, S, R]) submit(name string, w Write[C, S, R], done func(any, error)) {
	bound := func(v statemachine.View[S]) (statemachine.Result[R], error) { return w(s.core, v) }
	s.machine.Submit(name, bound, func(r any, err error) {
		if errors.Is(err, statemachine.ErrStopped) || errors.Is(err, statemachine.ErrNotLeader) {
			err = ErrNotCoordinator
		}
		done(r, err)
	})
	s.kick(true)
}

// kick has the machine run. If somebody runs it already, that one goes round once
// more; else the caller runs it, or a goroutine does when the caller may not
// (inline is false).
func (s *shard[C, S, R]) kick(inline bool) {
	for {
		switch s.token.Load() {
		case idle:
			if s.token.CompareAndSwap(idle, running) {
				if inline {
					s.run(true)
				} else {
					go s.run(false)
				}
				return
			}
		case running:
			if s.token.CompareAndSwap(running, again) {
				return
			}
		case again:
			return
		}
	}
}

// roundsInline bounds what one request does for others before it hands over.
const roundsInline = 16

func (s *shard[C, S, R]) run(inline bool) {
	for n := 0; ; n++ {
		s.step()
		if s.token.CompareAndSwap(running, idle) {
			return
		}
		s.token.Store(running)
		if inline && n >= roundsInline {
			go s.run(false)
			return
		}
		runtime.Gosched()
	}
}

// step does all there is to do now.
func (s *shard[C, S, R]) step() {
	if s.phase.Load() == phaseGone {
		return
	}
	if s.closing.Load() || s.resign {
		s.finish()
		return
	}
	for {
		s.commit()
		next, err := s.machine.Poll()
		if err != nil {
			s.rt.o.Logger.Error("coordinator: the partition's state cannot be kept: loading it again", "partition", s.replica.String(), "err", err)
			s.resign = true
		}
		if s.resign {
			s.finish()
			return
		}
		if len(s.spans) > 0 && s.replica.Log().HighWatermark() > s.spans[0].last {
			continue // committed while it was appended
		}
		if !next.IsZero() {
			s.wakeAt(next.Sub(s.rt.o.Clock.Now()))
		}
		return
	}
}

// commit tells the machine which of its batches are committed.
func (s *shard[C, S, R]) commit() {
	hw := s.replica.Log().HighWatermark()
	for len(s.spans) > 0 && s.spans[0].last < hw {
		p := s.spans[0]
		s.spans = s.spans[1:]
		s.machine.Commit(statemachine.Batch[R]{Base: p.base, Last: p.last, Epoch: s.epoch})
	}
	if len(s.spans) == 0 {
		s.spans = nil
	}
}

// finish answers all who wait, and gives the shard up.
func (s *shard[C, S, R]) finish() {
	s.phase.Store(phaseGone)
	s.once.Do(func() { s.replica.Unwatch(s) })
	if s.timer != nil {
		s.timer.Stop()
	}
	s.machine.Follow()
	if _, err := s.machine.Poll(); err != nil {
		s.rt.o.Logger.Debug("coordinator: a machine that is given up", "partition", s.replica.String(), "err", err)
	}
	s.machine.Stop()
	if s.resign && !s.closing.Load() {
		s.rt.again(s)
	}
}

// LogEnd is statemachine.Log's.
func (s *shard[C, S, R]) LogEnd() int64 { return s.end }

// Resign is statemachine.Log's.
func (s *shard[C, S, R]) Resign(int32) { s.resign = true }

// Append is statemachine.Log's: records go into one batch, or, unless atomic, into
// as many as their size demands.
func (s *shard[C, S, R]) Append(_ int32, recs []R, atomic bool) (int64, error) {
	limit := int(s.replica.Log().Config().MaxMessageBytes)
	for first := true; len(recs) > 0; first = false {
		e := s.rt.o.Codec.Envelope(&recs[0])
		b, n := s.pack(recs, e, limit, atomic)
		if err := s.append(b, e, first); err != nil {
			return 0, err
		}
		recs = recs[n:]
	}
	return s.end - 1, nil
}

// pack makes a batch of as many records with envelope e as fit; at least one.
func (s *shard[C, S, R]) pack(recs []R, e Envelope, limit int, atomic bool) (batch.Batch, int) {
	o := batch.NewOptions()
	o.ProducerID, o.ProducerEpoch, o.Transactional, o.Control = e.ProducerID, e.Epoch, e.ProducerID != batch.NoProducerID, e.Control
	if !e.Control {
		o.Codec, o.BaseSequence = s.rt.o.Compression, s.rt.o.BaseSequence
	}
	if s.build == nil {
		s.build = batch.NewBuilder(o)
	} else {
		s.build.Reset(o)
	}
	now := s.rt.o.Clock.Now().UnixMilli()
	n := 0
	for i := range recs {
		if i > 0 && s.rt.o.Codec.Envelope(&recs[i]) != e {
			break
		}
		key, value := s.rt.o.Codec.Encode(&recs[i])
		if n > 0 && !atomic && s.build.RawLen()+len(key)+len(value)+recordOverhead > limit {
			break
		}
		s.build.Append(now, key, value, nil)
		n++
	}
	return s.build.Build(), n
}

// recordOverhead is more than a record needs beside its key and value.
const recordOverhead = 32

// append writes one batch. An error of the first says that nothing was written.
func (s *shard[C, S, R]) append(b batch.Batch, e Envelope, first bool) error {
	a, err := s.replica.AppendAsLeader(partition.AppendRequest{
		Records: b, Version: produceVersion, Acks: partition.AcksAll, Origin: producer.OriginCoordinator,
		Guard: e.Guard, Unverified: e.Unverified, TxnVersion: e.TxnVersion,
	})
	var moved *partition.NotLeaderError
	switch {
	case errors.As(err, &moved), errors.Is(err, storage.ErrClosed), err != nil && !first:
		return err
	case err != nil:
		return fmt.Errorf("%w: %w", statemachine.ErrRefused, err)
	case a.FirstOffset != s.end || a.LeaderEpoch != s.epoch:
		// Somebody else has written to the topic: our state is not what it tells.
		return fmt.Errorf("appended at offset %d in epoch %d instead of offset %d in epoch %d", a.FirstOffset, a.LeaderEpoch, s.end, s.epoch)
	}
	s.end = a.LastOffset + 1
	s.spans = append(s.spans, span{base: a.FirstOffset, last: a.LastOffset})
	return nil
}

// produceVersion is the version of Produce by whose rules batches are checked.
const produceVersion = 12

// wakeAt has the shard run when its next deadline comes.
func (s *shard[C, S, R]) wakeAt(d time.Duration) {
	if s.timer == nil {
		s.timer = s.rt.o.Clock.AfterFunc(d, func() { s.kick(true) })
		return
	}
	s.timer.Reset(d)
}
