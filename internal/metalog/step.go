package metalog

import (
	"errors"
	"fmt"
	"iter"
	"slices"

	"weir/internal/batch"
	"weir/internal/kraft"
	"weir/internal/records"
	"weir/internal/storage"
	"weir/internal/storage/producer"
	"weir/internal/vfs"
)

// recordOverhead bounds what a record takes in a batch beside its value: five
// varints and the attributes.
const recordOverhead = 32

// readBytes is how much of the log is read at a time.
const readBytes = 1 << 20

func (l *Log) nowMs() int64 { return l.o.Clock.Now().UnixMilli() }

// unlock lets go of mu, makes the calls that were collected and wakes Poll.
func (l *Log) unlock() {
	l.release()
	l.poke()
}

// release is unlock for Poll itself, which sees to the rest.
func (l *Log) release() {
	l.publish()
	calls := l.outbox
	l.outbox = nil
	l.mu.Unlock()
	for _, f := range calls {
		f()
	}
}

func (l *Log) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *Log) publish() {
	leader := l.leaderNow()
	if old := l.leader.Load(); old == nil || *old != leader {
		l.leader.Store(&leader)
	}
	if l.stall == nil {
		l.hw.Store(l.core.HighWatermark())
		l.end.Store(l.core.Log().End)
	}
}

// leaderNow is who leads as far as others may know.
func (l *Log) leaderNow() kraft.LeaderAndEpoch {
	s := l.core.State()
	if l.core.Role() == kraft.Resigned || l.stall != nil {
		s.Leader = kraft.None
	}
	return kraft.LeaderAndEpoch{ID: s.Leader, Epoch: s.Epoch}
}

// step feeds the core one event and does what it asks for. mu is held. An error
// is fatal for the log: the disk no longer does what the core was promised.
func (l *Log) step(ev kraft.Event) error {
	if l.err != nil {
		return l.err
	}
	if l.stall != nil {
		l.postpone(ev)
		return nil
	}
	return l.carryOut(l.core.Step(l.nowMs(), ev))
}

// carryOut is do, whose errors are kept.
func (l *Log) carryOut(r kraft.Ready) error {
	if err := l.do(r); err != nil && l.err == nil {
		l.err = fmt.Errorf("metadata log %s: %w", l.dir, err)
		l.o.Logger.Error("metadata log failed", "dir", l.dir, "err", err)
	}
	return l.err
}

// do carries out a Ready, in the order of its fields. On a full disk it leaves
// off, see stall.
func (l *Log) do(r kraft.Ready) error {
	if r.QuorumState != nil {
		switch err := l.writeState(*r.QuorumState); {
		case noRoom(err):
			l.stallOn(r, err)
			return nil
		case err != nil:
			return err
		}
		r.QuorumState = nil
	}
	if r.Truncate >= 0 {
		l.o.Logger.Info("truncating to the leader's log", "dir", l.dir, "to", r.Truncate, "log end", l.store.LogEnd())
		l.cuts++
		if _, err := l.store.Truncate(r.Truncate); err != nil {
			return err
		}
		r.Truncate = -1
	}
	if r.Install != nil {
		if err := l.startInstall(*r.Install); err != nil {
			return err
		}
		r.Install = nil
	}
	var unwritten error
	if r.Control != nil {
		switch err := l.writeControl(r.Control); {
		case noRoom(err) && r.Control.Within: // the epoch goes on without
			unwritten = err
		case noRoom(err):
			l.stallOn(r, err)
			return nil
		case err != nil:
			return err
		}
	}
	for _, s := range r.Send {
		l.send(s)
	}
	for _, rep := range r.Reply {
		if err := l.reply(rep); err != nil {
			return err
		}
	}
	if r.Leader != nil {
		l.o.Logger.Info("leader of the metadata quorum", "leader", r.Leader.ID, "epoch", r.Leader.Epoch, "role", l.core.Role().String())
		l.news = r.Leader
		if r.Leader.ID != l.o.Self.ID {
			l.fresh = nil
		}
	}
	l.store.SetHighWatermark(max(r.HighWatermark, 0))
	if unwritten != nil {
		l.noSpace(unwritten)
		return l.step(kraft.Unwritten{})
	}
	if r.Append != nil {
		return l.appendFetched(r.Append)
	}
	return nil
}

func (l *Log) writeControl(c *kraft.ControlBatch) error {
	b := controlBatch(c, l.nowMs())
	a, err := l.store.Append(b, storage.Append{LeaderEpoch: c.Epoch, Origin: producer.OriginRaftLeader, Assign: true, TxnVersion: -1})
	if err != nil {
		return err
	}
	if a.FirstOffset != c.Base || a.LastOffset != c.Base+c.Count()-1 {
		return fmt.Errorf("control batch of offset %d was written at %d to %d", c.Base, a.FirstOffset, a.LastOffset)
	}
	if !c.Within { // what is older was not appended by this leader
		l.fresh = nil
	}
	l.fresh = append(l.fresh, Batch{Base: a.FirstOffset, Last: a.LastOffset, Epoch: c.Epoch, TimestampMs: b.MaxTimestamp(), Bytes: b.Len()})
	return nil
}

func (l *Log) send(s kraft.Send) {
	if l.o.Transport == nil {
		l.outbox = append(l.outbox, func() { l.Response(kraft.Response{From: s.To, ID: s.ID}) })
		return
	}
	l.o.Transport.Send(s)
}

// reply answers a request, with the bytes that the answer refers to.
func (l *Log) reply(rep kraft.Reply) error {
	f, ok := rep.Body.(kraft.FetchResponse)
	if !ok || !f.Read {
		l.answer(rep.Ref, rep.Body, nil)
		return nil
	}
	res, err := l.store.Read(f.Offset, int(max(f.MaxBytes, 1)), l.store.LogEnd(), true)
	if err != nil {
		return err
	}
	l.answer(rep.Ref, f, res.Regions)
	return nil
}

func (l *Log) answer(ref uint64, body kraft.ResponseBody, regions []vfs.Region) {
	f, ok := l.requests[ref]
	delete(l.requests, ref)
	l.outbox = append(l.outbox, func() {
		if ok {
			f(body, regions)
			return
		}
		for _, r := range regions {
			r.Release()
		}
	})
}

// appendFetched takes the batches of a leader's answer, as far as they are whole
// and continue our log; a bad one is left out, and asked for again.
func (l *Log) appendFetched(raw []byte) error {
	ev := kraft.Appended{Base: l.core.Log().End}
	next, epoch := ev.Base, l.core.State().Epoch
	floor := int32(0)
	if es := l.core.Log().Epochs; len(es) > 0 {
		floor = es[len(es)-1].Epoch
	}
	good := 0
	for b, err := range split(raw) {
		if err != nil {
			l.o.Logger.Warn("bad batch from the leader of the metadata quorum", "offset", next, "err", err)
			break
		}
		if b.BaseOffset() != next || b.LeaderEpoch() < floor || b.LeaderEpoch() > epoch || b.LastOffsetDelta() < 0 {
			l.o.Logger.Warn("batch out of place from the leader of the metadata quorum", "offset", b.BaseOffset(), "expected", next, "epoch", b.LeaderEpoch())
			break
		}
		if b.IsControl() {
			cs, err := membership(b)
			if err != nil {
				l.o.Logger.Warn("bad control batch from the leader of the metadata quorum", "offset", next, "err", err)
				break
			}
			ev.Control = append(ev.Control, cs...)
		}
		next, floor = b.NextOffset(), b.LeaderEpoch()
		ev.Entries = append(ev.Entries, kraft.Entry{Next: next, Epoch: floor})
		good += b.Len()
	}
	if good > 0 {
		switch _, err := l.store.Append(raw[:good], storage.Append{LeaderEpoch: epoch, Origin: producer.OriginReplication, TxnVersion: -1}); {
		case errors.Is(err, ErrNoSpace): // the core asks for nothing before it is told; see retryFetch
			l.retryAt = l.o.Clock.Now().Add(spaceInterval)
			l.noSpace(err)
			return nil
		case err != nil:
			return err
		}
	}
	return l.step(ev)
}

// split walks over batches and checks each CRC. A cut last batch ends it.
func split(raw []byte) iter.Seq2[batch.Batch, error] {
	return func(yield func(batch.Batch, error) bool) {
		for len(raw) > 0 {
			b, rest, err := batch.Next(raw)
			if err == batch.ErrShort {
				return
			}
			if err == nil && !b.CheckCRC() {
				err = fmt.Errorf("batch at offset %d: wrong CRC", b.BaseOffset())
			}
			if !yield(b, err) || err != nil {
				return
			}
			raw = rest
		}
	}
}

// read returns whole batches from offset on, at least one, none at or above end.
func (l *Log) read(from, end int64) ([]byte, error) {
	res, err := l.store.Read(from, readBytes, end, true)
	if err != nil {
		return nil, err
	}
	defer res.Release()
	var raw []byte
	for _, r := range res.Regions {
		if raw, err = r.AppendTo(raw); err != nil {
			return nil, err
		}
	}
	if _, _, err := batch.Next(raw); err != nil {
		return nil, &storage.CorruptError{Dir: l.dir, File: "log", Offset: from, Err: err}
	}
	return raw, nil
}

// Append writes recs at the log's end, if this node leads in epoch, and returns
// the offset of the last one. They are not committed yet: a Listener is told.
// With atomic all go into one batch, or *TooLargeError; without, into as many
// as the batch limit asks for. *NotLeaderError says that the epoch is over.
// ErrNoSpace: the disk is full, nothing was written, and the epoch goes on. The
// records belong to the log from now on.
func (l *Log) Append(epoch int32, recs []records.Versioned, atomic bool) (last int64, err error) {
	pieces, err := l.encode(epoch, recs, atomic)
	if err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.unlock()
	if l.err != nil {
		return 0, l.err
	}
	if s := l.core.State(); l.core.Role() != kraft.Leader || s.Epoch != epoch || l.stall != nil {
		return 0, &NotLeaderError{Epoch: epoch, Leader: *l.leader.Load()}
	}
	ev := kraft.Appended{Base: l.core.Log().End}
	var raw []byte
	for _, p := range pieces {
		raw = append(raw, p.raw...)
	}
	a, err := l.store.Append(raw, storage.Append{LeaderEpoch: epoch, Origin: producer.OriginRaftLeader, Assign: true, TxnVersion: -1})
	if err != nil {
		return 0, l.handOn(err)
	}
	next := ev.Base
	for _, p := range pieces {
		p.Base, p.Last = next, next+int64(len(p.Records))-1
		next = p.Last + 1
		ev.Entries = append(ev.Entries, kraft.Entry{Next: next, Epoch: epoch})
		l.fresh = append(l.fresh, p.Batch)
	}
	if a.FirstOffset != ev.Base || a.LastOffset != next-1 {
		l.err = fmt.Errorf("metadata log %s: batches for offsets %d to %d were written at %d to %d", l.dir, ev.Base, next-1, a.FirstOffset, a.LastOffset)
		return 0, l.err
	}
	return next - 1, l.step(ev)
}

// piece is one batch about to be appended.
type piece struct {
	Batch
	raw batch.Batch
}

func (l *Log) encode(epoch int32, recs []records.Versioned, atomic bool) ([]piece, error) {
	if len(recs) == 0 {
		return nil, fmt.Errorf("metadata log: append of no records")
	}
	now, limit := l.nowMs(), int(l.o.Limits.MaxBatchBytes)
	var out []piece
	var value []byte
	b := newBuilder(0, epoch, false)
	first := 0
	end := func(i int) {
		raw := b.Build()
		out = append(out, piece{raw: raw, Batch: Batch{Epoch: epoch, TimestampMs: now, Bytes: raw.Len(), Records: slices.Clip(recs[first:i])}})
		b, first = newBuilder(0, epoch, false), i
	}
	for i, r := range recs {
		value = records.AppendMetadata(value[:0], r)
		if n := b.RawLen() + len(value) + recordOverhead; n > limit {
			if atomic || i == first {
				return nil, &TooLargeError{Size: n, Limit: limit}
			}
			end(i)
		}
		b.Append(now, nil, value, nil)
	}
	end(len(recs))
	return out, nil
}

// handOn gives up leadership when an append has found no room and there are other voters, who may have some; it returns why
// the append failed. mu is held.
func (l *Log) handOn(err error) error {
	if set, _ := l.core.Voters(); !noRoom(err) || set.Len() < 2 {
		return err
	}
	l.noSpace(err)
	return errors.Join(err, l.step(kraft.Resign{}))
}

// Resign gives up leadership in epoch.
func (l *Log) Resign(epoch int32) {
	l.mu.Lock()
	defer l.unlock()
	if l.core.Role() == kraft.Leader && l.core.State().Epoch == epoch {
		_ = l.step(kraft.Resign{}) // kept in l.err: Poll returns it
	}
}

// Request hands in a request of another replica or a tool. reply is called
// once, from any goroutine, perhaps before Request returns, with the answer (nil
// when the log was closed or waits for room on its disk) and, for a fetch, the batches; the receiver releases
// the regions.
func (l *Log) Request(from int32, body kraft.RequestBody, reply func(kraft.ResponseBody, []vfs.Region)) {
	l.mu.Lock()
	defer l.unlock()
	l.nextRef++
	ref := l.nextRef
	l.requests[ref] = reply
	if l.err != nil || l.stall != nil {
		l.answer(ref, nil, nil)
		return
	}
	if s, ok := body.(kraft.SnapshotRequest); ok {
		inner := reply
		l.requests[ref] = func(r kraft.ResponseBody, regions []vfs.Region) { inner(l.withSnapshot(s, r), regions) }
	}
	_ = l.step(kraft.Request{From: from, Ref: ref, Body: body}) // kept in l.err: Poll returns it
}

// Response hands in what came of a Transport.Send.
func (l *Log) Response(r kraft.Response) {
	l.mu.Lock()
	defer l.unlock()
	if l.err != nil {
		return
	}
	if r.ID&installBit != 0 {
		_ = l.installed(r) // kept in l.err: Poll returns it
		return
	}
	_ = l.step(r) // kept in l.err: Poll returns it
}

// Refused tells that node id refused a connection at an address of its own
// (availability C3(d)).
func (l *Log) Refused(id int32) {
	l.mu.Lock()
	defer l.unlock()
	_ = l.step(kraft.Refused{ID: id}) // kept in l.err: Poll returns it
}
