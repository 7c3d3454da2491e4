package cleaner

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"

	"weir/internal/batch"
	"weir/internal/config"
	"weir/internal/storage"
	"weir/internal/storage/segment"
)

// run is one run over one log.
type run struct {
	ctx      context.Context
	c        *storage.Compaction
	topic    *config.Topic
	cfg      Config
	throttle *throttle
	rate     func() float64 // log.cleaner.io.max.bytes.per.second, which counts from the moment it is changed
	offsets  *offsetMap
	plan     plan
	nowMs    int64
	durable  func(upTo int64) error // makes the recovery point on disk reach upTo

	buf batch.Buffers
	out []byte
	result
}

// pieces are the segments without timestamps.
func pieces(segs []*segment.Segment) []piece {
	out := make([]piece, len(segs))
	for i, s := range segs {
		out[i] = piece{base: s.BaseOffset(), size: s.Size(), largest: -1, first: -1}
	}
	return out
}

// clean does the run; r.end is the new checkpoint when it succeeds.
func (r *run) clean() error {
	segs := r.c.Segments()
	horizon, err := r.legacyHorizon(segs)
	if err != nil {
		return err
	}
	if err := r.buildMap(segs); err != nil {
		return err
	}
	r.end = r.offsets.latest + 1
	r.utilization = r.offsets.utilization()
	n := 0
	for n < len(segs) && segs[n].BaseOffset() < r.end {
		n++
	}
	if n == 0 || r.end <= r.plan.dirty {
		return nil
	}
	if err := r.durable(r.plan.upper); err != nil {
		return err
	}
	segs = segs[:n]
	index := func(i int) (int64, int64, error) {
		o, t, err := segs[i].IndexSizes()
		return o, t, r.c.Error(segs[i], segs[i].BaseOffset(), err)
	}
	gs, err := groups(pieces(segs), index, int64(r.topic.SegmentBytes), int64(r.topic.SegmentIndexBytes), r.plan.upper)
	if err != nil {
		return err
	}
	rd := &round{
		nowMs: r.nowMs, horizonMs: addMs(r.nowMs, r.topic.DeleteRetentionMs), upper: r.plan.upper,
		offsets: r.offsets, txns: newTransactions(),
	}
	for _, g := range gs {
		if err := r.cleanGroup(segs[g[0]:g[1]], rd, horizon); err != nil {
			return err
		}
	}
	r.unkeyed = rd.unkeyed
	return nil
}

func addMs(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// legacyHorizon is the modification time at or before which a segment's tombstones of message sets v0/v1 go:
// delete.retention.ms before that of the last clean segment.
func (r *run) legacyHorizon(segs []*segment.Segment) (int64, error) {
	last := -1
	for i, s := range segs {
		if s.BaseOffset() < r.plan.dirty {
			last = i
		}
	}
	if last < 0 {
		return 0, nil
	}
	ms, err := segs[last].LastModifiedMs()
	return ms - r.topic.DeleteRetentionMs, r.c.Error(segs[last], segs[last].BaseOffset(), err)
}

// batches walks over the batches of a segment, paying for their bytes and looking whether the run must end.
func (r *run) batches(s *segment.Segment, from int64) iter.Seq2[segment.Entry, error] {
	return func(yield func(segment.Entry, error) bool) {
		pos, size, unpaid := from, s.Size(), 0
		next := s.BaseOffset()
		for e, err := range s.Batches(from, size) {
			if err != nil {
				yield(e, r.c.Error(s, next, err))
				return
			}
			if unpaid += e.Len(); unpaid >= 1<<16 {
				if err := r.pay(unpaid); err != nil {
					yield(e, err)
					return
				}
				unpaid = 0
			}
			if !yield(e, nil) {
				return
			}
			pos, next = e.Pos+int64(e.Len()), e.LastOffset()+1
		}
		if err := r.pay(unpaid); err != nil {
			yield(segment.Entry{}, err)
		} else if pos < size {
			err := &segment.CorruptError{File: s.LogPath(), Pos: pos, Reason: "the file ends within it"}
			yield(segment.Entry{}, r.c.Error(s, next, err))
		}
	}
}

func (r *run) pay(n int) error {
	if err := r.throttle.take(r.ctx, n, r.rate); err != nil {
		return err
	}
	return r.c.Check()
}

// buildMap notes the last offset of each key from the first dirty to the first uncleanable offset, or until the map is
// full.
func (r *run) buildMap(segs []*segment.Segment) error {
	start, end := r.plan.dirty, r.plan.upper
	r.offsets.reset(r.cfg.mapBytes(), r.cfg.LoadFactor, end-start)
	r.offsets.saw(start - 1)
	txns := newTransactions()
	list, err := r.c.Aborted(start, end)
	if err != nil {
		return err
	}
	txns.add(list)
	for i := floor(pieces(segs), start); i < len(segs) && segs[i].BaseOffset() < end; i++ {
		next := end
		if i+1 < len(segs) {
			next = min(end, segs[i+1].BaseOffset())
		}
		full, err := r.mapSegment(segs[i], txns)
		if full || err != nil {
			return err
		}
		r.offsets.saw(next - 1) // a hole may end the segment
	}
	return nil
}

func (r *run) mapSegment(s *segment.Segment, txns *transactions) (full bool, err error) {
	start := r.plan.dirty
	at, found, err := s.Position(start)
	if err != nil {
		return false, r.c.Error(s, start, err)
	}
	if !found {
		return false, nil
	}
	for e, err := range r.batches(s, at.Pos) {
		if err != nil {
			return false, err
		}
		r.indexBytes += int64(e.Len())
		b, v2 := e.Batch()
		switch {
		case v2 && b.IsControl():
			if _, err := txns.control(b, &r.buf); err != nil {
				return false, r.broken(s, e, err)
			}
		case v2 && txns.data(b):
		default:
			for rec, err := range e.Records(&r.buf) {
				if err != nil {
					return false, r.broken(s, e, err)
				}
				if rec.Key != nil && rec.Offset >= start && !r.offsets.put(rec.Key, rec.Offset) {
					return true, nil
				}
			}
		}
		r.offsets.saw(e.LastOffset())
	}
	return false, nil
}

// broken is the error for a batch whose records cannot be read.
func (r *run) broken(s *segment.Segment, e segment.Entry, err error) error {
	return r.c.Error(s, e.LastOffset(), &segment.CorruptError{File: s.LogPath(), Pos: e.Pos, Reason: err.Error()})
}

// cleanGroup writes neighbouring segments anew as one and puts that in their place.
func (r *run) cleanGroup(group []*segment.Segment, rd *round, horizon int64) error {
	last := group[len(group)-1]
	modified, err := last.LastModifiedMs()
	if err != nil {
		return r.c.Error(last, last.BaseOffset(), err)
	}
	to, err := r.c.Create(group[0].BaseOffset())
	if err != nil {
		return err
	}
	if err := r.fill(to, group, rd, horizon); err != nil {
		return errors.Join(err, r.c.Discard(to))
	}
	if err := r.c.Check(); err != nil {
		return errors.Join(err, r.c.Discard(to))
	}
	return r.c.Replace(group, to, modified)
}

func (r *run) fill(to *segment.Segment, group []*segment.Segment, rd *round, horizon int64) error {
	rd.txns.index = func(t segment.AbortedTxn) error { return to.AppendAborted(t) }
	rd.producers = r.c.LastRecords()
	for i, s := range group {
		upper, err := r.upperOf(group, i)
		if err != nil {
			return err
		}
		list, err := r.c.Aborted(s.BaseOffset(), upper)
		if err != nil {
			return err
		}
		rd.txns.add(list)
		modified, err := s.LastModifiedMs()
		if err != nil {
			return r.c.Error(s, s.BaseOffset(), err)
		}
		rd.legacyDeletes = modified > horizon
		if err := r.copy(to, s, rd); err != nil {
			return err
		}
	}
	return nil
}

// upperOf is the offset behind the segment at i of a group.
func (r *run) upperOf(group []*segment.Segment, i int) (int64, error) {
	if i+1 < len(group) {
		return group[i+1].BaseOffset(), nil
	}
	next, err := group[i].NextOffset()
	return next, r.c.Error(group[i], group[i].BaseOffset(), err)
}

// copy filters the batches of a segment into another.
func (r *run) copy(to, s *segment.Segment, rd *round) error {
	r.out = r.out[:0]
	last := int64(-1)
	for e, err := range r.batches(s, 0) {
		if err != nil {
			return err
		}
		if !e.CheckCRC() {
			return r.broken(s, e, errors.New("the CRC is wrong"))
		}
		f, whole, err := rd.judge(e.Entry, &r.buf)
		if err != nil {
			return r.judgeError(s, e, err)
		}
		if whole {
			f.Keep = func(*batch.Record) bool { return true }
		}
		left, err := f.Apply(e.Entry, &r.buf)
		if err != nil {
			return r.broken(s, e, err)
		}
		r.bytesRead += int64(e.Len())
		r.messagesRead += int64(left.Read)
		r.messagesWritten += int64(left.Kept)
		if left.Bytes == nil {
			continue
		}
		r.out = append(r.out, left.Bytes...)
		last = left.Bytes.LastOffset()
		if len(r.out) >= r.cfg.IOBufferBytes {
			if err := r.write(to, last); err != nil {
				return err
			}
		}
	}
	return r.write(to, last)
}

// judgeError tells a damaged batch from a failing transaction index.
func (r *run) judgeError(s *segment.Segment, e segment.Entry, err error) error {
	var corrupt *batch.CorruptError
	var invalid *batch.InvalidRecordError
	if errors.As(err, &corrupt) || errors.As(err, &invalid) {
		return r.broken(s, e, err)
	}
	return r.c.Error(s, e.LastOffset(), err)
}

// write appends what has gathered.
func (r *run) write(to *segment.Segment, last int64) error {
	n := len(r.out)
	if n == 0 {
		return nil
	}
	_, err := to.Append(r.out, last)
	r.out = r.out[:0]
	var overflow *segment.OverflowError
	if errors.As(err, &overflow) {
		return fmt.Errorf("the compacted segment from offset %d: %w", to.BaseOffset(), err)
	}
	if err != nil {
		return r.c.Error(to, to.BaseOffset(), err)
	}
	r.bytesWritten += int64(n)
	return r.pay(n)
}
