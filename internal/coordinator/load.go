package coordinator

import (
	"errors"
	"fmt"
	"time"

	"weir/internal/batch"
	"weir/internal/statemachine"
	"weir/internal/storage"
)

// load replays the partition and then leads it. It holds the token: nobody runs
// the machine before it is active.
func (s *shard[C, S, R]) load() {
	s.token.Store(running)
	began := s.rt.o.Clock.Now()
	n, err := s.replay()
	switch {
	case s.closing.Load(), s.rt.ctx.Err() != nil:
	case err != nil:
		s.rt.o.Logger.Error("coordinator: cannot load a partition: what belongs to it is not served", "partition", s.replica.String(), "epoch", s.epoch, "err", err)
		s.closing.Store(true)
	default:
		s.machine.Lead(s.epoch)
		if n > 0 {
			s.rt.o.Logger.Info("coordinator: loaded", "partition", s.replica.String(), "epoch", s.epoch, "records", n, "took", s.rt.o.Clock.Now().Sub(began).Round(time.Millisecond))
		}
		s.phase.Store(phaseActive)
	}
	if s.phase.Load() != phaseActive {
		s.closing.Store(true)
	}
	s.run(false)
}

// errEnded ends a load that is of no use any more.
var errEnded = errors.New("the leadership has ended")

// replay brings the machine to the log's end.
func (s *shard[C, S, R]) replay() (records int, err error) {
	log := s.replica.Log()
	s.end = log.LogEnd()
	if err := s.awaitCommitted(s.end); err != nil {
		return 0, err
	}
	buf := s.rt.o.Buffers.Get()
	defer s.rt.o.Buffers.Put(buf)
	var piece []byte
	for from := log.LogStart(); from < s.end; {
		if s.closing.Load() || s.rt.ctx.Err() != nil {
			return records, errEnded
		}
		r, err := log.Read(from, s.rt.o.LoadBuffer, s.end, true)
		var outside *storage.OutOfRangeError
		if errors.As(err, &outside) && log.LogStart() > from {
			from = log.LogStart() // retention or DeleteRecords was quicker
			continue
		}
		if err != nil {
			return records, err
		}
		if piece, err = bytesOf(piece[:0], r); err != nil {
			return records, err
		}
		next, n, err := s.apply(piece, from, buf)
		if err != nil {
			return records, err
		}
		if next == from {
			break // compaction has left nothing up to the end
		}
		from, records = next, records+n
	}
	// A position beyond the last record: there may be holes.
	s.machine.Commit(statemachine.Batch[R]{Base: s.end, Last: s.end - 1, Epoch: s.epoch})
	_, err = s.machine.Poll()
	return records, err
}

// awaitCommitted waits until all below offset is committed.
func (s *shard[C, S, R]) awaitCommitted(offset int64) error {
	for {
		st := s.replica.Status()
		switch {
		case s.closing.Load(), s.rt.ctx.Err() != nil, !st.Leading, st.LeaderEpoch != s.epoch:
			return errEnded
		case s.replica.Log().HighWatermark() >= offset:
			return nil
		}
		select {
		case <-s.moved:
		case <-s.rt.ctx.Done():
		}
	}
}

func bytesOf(dst []byte, r storage.ReadResult) ([]byte, error) {
	defer r.Release()
	var err error
	for _, g := range r.Regions {
		if dst, err = g.AppendTo(dst); err != nil {
			return dst, err
		}
	}
	return dst, nil
}

// apply gives the machine what a piece of the log holds, from offset from on, and
// returns the offset after it.
func (s *shard[C, S, R]) apply(piece []byte, from int64, buf *batch.Buffers) (next int64, records int, err error) {
	next = from
	for len(piece) > 0 {
		e, rest, err := batch.NextEntry(piece)
		if errors.Is(err, batch.ErrShort) {
			break // the piece ends within a batch: it comes with the next one
		}
		if err != nil {
			return next, records, err
		}
		piece = rest
		if e.LastOffset() >= from {
			n, err := s.applyEntry(e, from, buf)
			if err != nil {
				return next, records, fmt.Errorf("batch that ends at offset %d: %w", e.LastOffset(), err)
			}
			records += n
			if _, err := s.machine.Poll(); err != nil {
				return next, records, err
			}
		}
		next = max(next, e.LastOffset()+1)
	}
	return next, records, nil
}

func (s *shard[C, S, R]) applyEntry(e batch.Entry, from int64, buf *batch.Buffers) (int, error) {
	if !e.CheckCRC() {
		return 0, errors.New("its checksum does not match")
	}
	base, err := e.BaseOffset(buf)
	if err != nil {
		return 0, err
	}
	var recs []R
	for r, err := range e.Records(buf) {
		if err != nil {
			return 0, err
		}
		if r.Offset < from {
			continue
		}
		out, ok, err := s.rt.o.Codec.Decode(e, &r, base)
		if err != nil {
			// Kafka skips what it cannot read, too: one bad record must not take
			// all groups of the partition with it.
			s.rt.o.Logger.Error("coordinator: a record that cannot be read is passed over", "partition", s.replica.String(), "offset", r.Offset, "err", err)
			continue
		}
		if ok {
			recs = append(recs, out)
		}
	}
	s.machine.Commit(statemachine.Batch[R]{Base: base, Last: e.LastOffset(), Epoch: e.LeaderEpoch(), TimestampMs: e.MaxTimestamp(), Records: recs})
	return len(recs), nil
}
