package storage

import (
	"encoding/binary"
	"errors"
	"fmt"

	"weir/internal/batch"
	"weir/internal/invariant"
	"weir/internal/storage/producer"
	"weir/internal/storage/segment"
)

// Append adds whole batches at the end.
//
// On a leader (a.Assign) b holds validated v2 batches; base offset and leader
// epoch are patched into b. On a follower b is what the leader sent: a cut last
// batch is left out, CRCs are checked, and batches of a leader epoch above
// a.LeaderEpoch end the append (the leader has been replaced meanwhile). The
// caller owns b again when Append returns.
//
// When flush.messages asks for it, Append returns after an fsync, which
// appends that wait at the same time share.
//
// Errors: *producer.Error and its kinds, *UnexpectedOffsetError,
// *BadBatchError, *TooLargeError: refused. *DiskError with ErrNoSpace: refused
// for want of room, the log is as before. *DiskError otherwise: the directory
// is to be taken offline.
func (l *Log) Append(b []byte, a Append) (Appended, error) {
	l.mu.Lock()
	r, err := l.appendLocked(b, a)
	// A duplicate too: its original may still wait for the fsync.
	sync := err == nil && r.LastOffset+1-l.recovery.Load() >= l.cfg.Load().FlushMessages
	l.mu.Unlock()
	if sync {
		err = l.flush(r.LastOffset+1, true)
	}
	return r, err
}

// incoming is what the scan of an append's bytes found.
type incoming struct {
	bytes       []byte // whole batches to write
	first, last int64
	maxTs       int64
	appendMs    int64 // LogAppendTime of the first batch, else -1
}

func (l *Log) appendLocked(b []byte, a Append) (Appended, error) {
	v := &l.mu.view
	if v.gone != nil {
		return Appended{}, v.gone
	}
	in, err := l.scan(b, a, v.logEnd)
	if err != nil {
		return Appended{}, err
	}
	out := Appended{FirstOffset: in.first, LastOffset: in.last, MaxTimestamp: in.maxTs, LogAppendTimeMs: in.appendMs, LogStart: v.logStart}
	if len(in.bytes) == 0 {
		out.FirstOffset, out.LastOffset = v.logEnd, v.logEnd-1
		return out, nil
	}
	cfg := l.cfg.Load()
	if len(in.bytes) > int(cfg.SegmentBytes) {
		return Appended{}, &TooLargeError{Name: l.name, Size: len(in.bytes), Limit: int(cfg.SegmentBytes)}
	}
	original, duplicate, err := l.stageLocked(in.bytes, a)
	if err != nil {
		return Appended{}, err
	}
	if duplicate {
		out.Duplicate = true
		out.FirstOffset, out.LastOffset, out.MaxTimestamp = original.FirstOffset(), original.LastOffset, original.Timestamp
		out.LogAppendTimeMs = original.Timestamp
		return out, nil
	}
	if err := l.maybeRollLocked(&in); err != nil {
		return Appended{}, err
	}
	if err := l.writeLocked(&in); err != nil {
		return Appended{}, err
	}
	return out, nil
}

// scan checks the batches, patches offsets and epochs on a leader, and leaves
// out what a follower must not take.
func (l *Log) scan(b []byte, a Append, logEnd int64) (incoming, error) {
	in := incoming{maxTs: batch.NoTimestamp, appendMs: batch.NoTimestamp}
	next := logEnd
	for rest := b; len(rest) > 0; {
		e, after, err := batch.NextEntry(rest)
		if errors.Is(err, batch.ErrShort) && !a.Assign {
			break
		}
		if err != nil {
			return in, &BadBatchError{l.name, err}
		}
		first, stop, err := l.admit(e, a, next)
		if err != nil {
			return in, err
		}
		if stop {
			break
		}
		if len(in.bytes) == 0 {
			in.first = first
			if e.TimestampType() == batch.LogAppendTime {
				in.appendMs = e.MaxTimestamp()
			}
		}
		in.last = e.LastOffset()
		in.maxTs = max(in.maxTs, e.MaxTimestamp())
		next = in.last + 1
		rest = after
		in.bytes = b[:len(b)-len(rest)]
	}
	return in, nil
}

// admit prepares one batch and returns its first offset; stop leaves it and
// all that follow out.
func (l *Log) admit(e batch.Entry, a Append, next int64) (first int64, stop bool, err error) {
	v2, ok := e.Batch()
	if a.Assign {
		if !ok {
			return 0, false, &BadBatchError{l.name, fmt.Errorf("magic %d in an append of a leader", e.Magic())}
		}
		v2.SetBaseOffset(next)
		v2.SetLeaderEpoch(a.LeaderEpoch)
		return next, false, nil
	}
	if e.LeaderEpoch() > a.LeaderEpoch {
		return 0, true, nil
	}
	first = e.LastOffset() // of a message set v0/v1 the first offset stands inside
	if ok {
		first = v2.BaseOffset()
	}
	if first < next || e.LastOffset() < first {
		return 0, false, &UnexpectedOffsetError{Name: l.name, First: first, Last: e.LastOffset(), Expected: next}
	}
	if !e.CheckCRC() {
		return 0, false, &BadBatchError{l.name, &batch.CorruptError{Offset: first, Reason: "stored CRC does not match the bytes"}}
	}
	return first, false, nil
}

// stageLocked checks every batch against the producer state. A duplicate ends
// it: nothing of the append is to be written.
func (l *Log) stageLocked(b []byte, a Append) (producer.BatchMeta, bool, error) {
	p := l.mu.producers
	p.Begin(a.Origin)
	for len(b) > 0 {
		e, rest, err := batch.NextEntry(b)
		if err != nil {
			return producer.BatchMeta{}, false, &BadBatchError{l.name, err}
		}
		b = rest
		v2, ok := e.Batch()
		if !ok || !v2.HasProducerID() {
			continue
		}
		pb := producerBatch(v2)
		pb.TxnVersion = a.TxnVersion
		if a.Origin == producer.OriginClient {
			if m, dup := p.Duplicate(&pb); dup {
				return m, true, nil
			}
		}
		if a.Origin == producer.OriginClient || a.Origin == producer.OriginCoordinator {
			pb.Unverified = a.Unverified
			if err := p.CheckVerified(&pb, a.Guard); err != nil {
				return producer.BatchMeta{}, false, err
			}
		}
		if err := p.Stage(&pb); err != nil {
			return producer.BatchMeta{}, false, err
		}
	}
	return producer.BatchMeta{}, false, nil
}

// writeLocked is the one write, and what follows from it.
func (l *Log) writeLocked(in *incoming) error {
	v := &l.mu.view
	seg := v.active()
	if _, err := seg.Append(in.bytes, in.last); err != nil {
		return l.diskLocked("append", err)
	}
	done := l.mu.producers.Commit()
	for _, t := range done {
		err := l.endTxnLocked(seg, t)
		if err != nil {
			return l.undoAppendLocked(in.first, err)
		}
	}
	l.mu.producers.SetMapEnd(in.last + 1)
	l.assignEpochs(in.bytes)
	v.logEnd = in.last + 1
	v.activeEnd = seg.Size()
	l.updateUnstableLocked()
	l.publishLocked()
	l.wakeTickLocked()
	return nil
}

// endTxnLocked enters an aborted transaction in the index and closes it.
func (l *Log) endTxnLocked(seg *segment.Segment, t producer.CompletedTxn) error {
	if t.Aborted {
		err := seg.AppendAborted(segment.AbortedTxn{
			ProducerID: t.ProducerID, FirstOffset: t.FirstOffset, LastOffset: t.LastOffset, LastStableOffset: l.mu.producers.LastStable(t),
		})
		if err != nil {
			return err
		}
	}
	l.mu.producers.Complete(t)
	return nil
}

// undoAppendLocked takes batches back that are written but whose transaction
// index entry failed, so that the log is as before. When that fails too, the
// log is unusable until it is opened again.
func (l *Log) undoAppendLocked(first int64, cause error) error {
	v := &l.mu.view
	_, err := v.active().TruncateTo(first)
	if err == nil {
		// The state reflects the append: let it be read again from a snapshot.
		l.mu.producers.SetMapEnd(v.logEnd + 1)
		err = l.rebuildProducersLocked(v.segments, v.logStart, v.logEnd)
	}
	if err != nil {
		err = l.diskLocked("append", errors.Join(cause, err))
		v.gone = err
		l.publishLocked()
		return err
	}
	// Read again, ended transactions are held to be above the high watermark: the last stable offset would fall to them.
	l.mu.producers.OnHighWatermark(v.hw)
	l.updateUnstableLocked()
	l.publishLocked()
	return l.diskLocked("append", cause)
}

// assignEpochs notes the leader epochs of the batches.
func (l *Log) assignEpochs(b []byte) {
	for len(b) > 0 {
		e, rest, err := batch.NextEntry(b)
		if err != nil {
			invariant.Check(false, "%s: batches that were scanned cannot be split: %v", l.name, err)
		}
		l.noteEpoch(e)
		b = rest
	}
}

// producerBatch reads what producer state needs of a batch.
func producerBatch(b batch.Batch) producer.Batch {
	pb := producer.Batch{
		ProducerID: b.ProducerID(), Epoch: b.ProducerEpoch(), Transactional: b.IsTransactional(), Control: b.IsControl(),
		FirstSequence: b.BaseSequence(), LastSequence: b.LastSequence(), FirstOffset: b.BaseOffset(), LastOffset: b.LastOffset(),
		MaxTimestamp: b.MaxTimestamp(), TxnVersion: -1,
	}
	if pb.Control {
		readMarker(b, &pb)
	}
	return pb
}

// Control record types of a transaction marker; the key is version and type,
// the value version and coordinator epoch.
const (
	markerAbort  = 0
	markerCommit = 1
)

// readMarker fills in the transaction marker of a control batch. A batch whose
// record compaction has removed, or of another control type, has none.
func readMarker(b batch.Batch, pb *producer.Batch) {
	for r, err := range b.Records(nil) {
		if err != nil || len(r.Key) < 4 || len(r.Value) < 6 {
			return
		}
		kind := binary.BigEndian.Uint16(r.Key[2:])
		if kind != markerAbort && kind != markerCommit {
			return
		}
		pb.Marker, pb.Abort = true, kind == markerAbort
		pb.CoordinatorEpoch = int32(binary.BigEndian.Uint32(r.Value[2:]))
		pb.MarkerTimestamp = r.Timestamp
		return
	}
}
