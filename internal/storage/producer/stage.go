package producer

// Batch is what producer state needs of one record batch.
type Batch struct {
	ProducerID    int64
	Epoch         int16
	Transactional bool
	Control       bool

	FirstSequence, LastSequence int32
	FirstOffset, LastOffset     int64
	MaxTimestamp                int64

	// Of a transaction marker (Control with a commit or abort record; Marker
	// is false for control batches that compaction has emptied).
	Marker           bool
	Abort            bool
	CoordinatorEpoch int32
	MarkerTimestamp  int64

	// TxnVersion is 2 for markers written under transaction.version 2, whose
	// epoch must be above the last one; -1 when unknown.
	TxnVersion int16
	// Unverified: the batch may begin a transaction without a guard.
	Unverified bool
}

// stage collects the batches of one append until it is known to be on disk.
type stage struct {
	origin    Origin
	entries   []staged
	byID      map[int64]int
	started   []txn
	completed []CompletedTxn
}

// staged is one producer during an append: current as before the append (its
// batches are not copied, see checkSequence), next with this append's batches
// only.
type staged struct {
	currentEpoch   int16
	currentEmpty   bool
	currentLastSeq int32
	known          bool
	next           Entry
}

// Begin starts an append and forgets what an earlier one may have staged.
func (s *State) Begin(origin Origin) {
	s.stage.origin = origin
	s.stage.entries = s.stage.entries[:0]
	s.stage.started = s.stage.started[:0]
	s.stage.completed = s.stage.completed[:0]
	clear(s.stage.byID)
}

// Duplicate finds the remembered batch that b repeats.
func (s *State) Duplicate(b *Batch) (BatchMeta, bool) {
	e, ok := s.producers[b.ProducerID]
	if !ok {
		return BatchMeta{}, false
	}
	return e.duplicate(b.Epoch, b.FirstSequence, b.LastSequence)
}

// Stage checks one batch against the state and the batches staged before it.
// An *Error refuses the append.
func (s *State) Stage(b *Batch) error {
	st := s.stagedFor(b.ProducerID)
	var err error
	switch {
	case !b.Control:
		err = s.stageData(st, b)
	case b.Marker:
		err = s.stageMarker(st, b)
	}
	if err != nil {
		return err
	}
	if b.Transactional {
		s.finishVerification(b)
	}
	return nil
}

// Commit takes over what was staged: the batches are in the log. It returns
// the transactions that ended, to be entered in the transaction index
// (LastStable) and then to be completed (Complete), in order. The slice is
// valid until the next Begin.
func (s *State) Commit() []CompletedTxn {
	for i := range s.stage.entries {
		next := &s.stage.entries[i].next
		if e, ok := s.producers[next.ProducerID]; ok {
			e.merge(next)
		} else {
			e := *next
			s.producers[next.ProducerID] = &e
		}
	}
	for _, t := range s.stage.started {
		s.ongoing = putTxn(s.ongoing, t)
	}
	return s.stage.completed
}

func (s *State) stagedFor(id int64) *staged {
	if n := len(s.stage.entries); n > 0 {
		if last := &s.stage.entries[n-1]; last.next.ProducerID == id {
			return last
		}
		if i, ok := s.stage.byID[id]; ok {
			return &s.stage.entries[i]
		}
	}
	st := staged{currentEpoch: NoEpoch, currentEmpty: true, currentLastSeq: NoSequence, next: newEntry(id)}
	if e, ok := s.producers[id]; ok {
		st.known = true
		st.currentEpoch, st.currentEmpty, st.currentLastSeq = e.Epoch, e.Empty(), e.LastSequence()
		st.next.Epoch, st.next.CoordinatorEpoch = e.Epoch, e.CoordinatorEpoch
		st.next.LastTimestamp, st.next.TxnFirstOffset = e.LastTimestamp, e.TxnFirstOffset
	}
	s.stage.entries = append(s.stage.entries, st)
	if len(s.stage.entries) > 1 { // one producer, the common case, needs no map
		if s.stage.byID == nil {
			s.stage.byID = map[int64]int{}
		}
		if len(s.stage.entries) == 2 {
			s.stage.byID[s.stage.entries[0].next.ProducerID] = 0
		}
		s.stage.byID[id] = len(s.stage.entries) - 1
	}
	return &s.stage.entries[len(s.stage.entries)-1]
}

func (s *State) stageData(st *staged, b *Batch) error {
	if err := s.checkEpoch(st, b.Epoch, b.FirstOffset, -1); err != nil {
		return err
	}
	if s.stage.origin == OriginClient {
		if err := s.checkSequence(st, b); err != nil {
			return err
		}
	}
	open := st.next.TxnFirstOffset != NoOffset
	if open && !b.Transactional {
		return refuse(ErrInvalidTxnState, "Expected transactional write from producer %d at offset %d in partition %s", b.ProducerID, b.FirstOffset, s.name)
	}
	st.next.addBatch(b.Epoch, BatchMeta{
		LastSequence: b.LastSequence, OffsetDelta: int32(b.LastOffset - b.FirstOffset), LastOffset: b.LastOffset, Timestamp: b.MaxTimestamp,
	})
	if !open && b.Transactional {
		st.next.TxnFirstOffset = b.FirstOffset
		s.stage.started = append(s.stage.started, txn{b.ProducerID, b.FirstOffset, NoOffset})
	}
	return nil
}

func (s *State) stageMarker(st *staged, b *Batch) error {
	if err := s.checkEpoch(st, b.Epoch, b.FirstOffset, b.TxnVersion); err != nil {
		return err
	}
	if st.next.CoordinatorEpoch > b.CoordinatorEpoch {
		err := refuse(ErrCoordinatorFenced, "Invalid coordinator epoch for producerId %d at offset %d in partition %s: %d (zombie), %d (current)",
			b.ProducerID, b.FirstOffset, s.name, b.CoordinatorEpoch, st.next.CoordinatorEpoch)
		if s.stage.origin != OriginReplication {
			return err
		}
		s.logger.Info(err.Text)
	}
	if st.next.TxnFirstOffset != NoOffset {
		s.stage.completed = append(s.stage.completed, CompletedTxn{b.ProducerID, st.next.TxnFirstOffset, b.FirstOffset, b.Abort})
	}
	st.next.setEpoch(b.Epoch)
	st.next.CoordinatorEpoch = b.CoordinatorEpoch
	st.next.TxnFirstOffset = NoOffset
	st.next.LastTimestamp = b.MarkerTimestamp
	return nil
}

// checkEpoch refuses an epoch below the last one. Markers of transaction
// version 2 bump it, so an equal one is refused too, unless the marker repeats
// one that was already written. What a leader has accepted is only logged.
func (s *State) checkEpoch(st *staged, epoch int16, offset int64, txnVersion int16) error {
	current, sign := st.next.Epoch, "<"
	bad := epoch < current
	if txnVersion >= 2 {
		bad, sign = epoch <= current, "<="
		if epoch == current && (st.next.TxnFirstOffset == NoOffset || epoch == maxEpoch) {
			return nil
		}
	}
	if !bad {
		return nil
	}
	err := refuse(ErrInvalidEpoch, "Epoch of producer %d at offset %d in %s is %d, which is %s the last seen epoch %d (TV%d)",
		st.next.ProducerID, offset, s.name, epoch, sign, current, txnVersion)
	if s.stage.origin == OriginReplication {
		s.logger.Warn(err.Text)
		return nil
	}
	return err
}

const maxEpoch = 32767

func (s *State) checkSequence(st *staged, b *Batch) error {
	first := b.FirstSequence
	if v, ok := s.verifying[b.ProducerID]; ok {
		if v.epochBump && first != 0 && st.currentEmpty {
			return refuse(ErrOutOfOrderSequence, "Invalid sequence number for producer %d at offset %d in partition %s: %d (incoming seq. number). Expected sequence 0 for transactions v2 idempotent producer with no existing state.",
				b.ProducerID, b.FirstOffset, s.name, first)
		}
		if first > v.lowestSequence {
			return refuse(ErrOutOfOrderSequence, "Out of order sequence number for producer %d at offset %d in partition %s: %d (incoming seq. number), %d (earliest seen sequence)",
				b.ProducerID, b.FirstOffset, s.name, first, v.lowestSequence)
		}
	}
	if b.Epoch != st.next.Epoch {
		if first != 0 && st.next.Epoch != NoEpoch {
			return refuse(ErrOutOfOrderSequence, "Invalid sequence number for new epoch of producer %d at offset %d in partition %s: %d (request epoch), %d (seq. number), %d (current producer epoch)",
				b.ProducerID, b.FirstOffset, s.name, b.Epoch, first, st.next.Epoch)
		}
		return nil
	}
	last := NoSequence
	if !st.next.Empty() {
		last = st.next.LastSequence()
	} else if b.Epoch == st.currentEpoch {
		last = st.currentLastSeq
	}
	// Nothing known of the producer (its records may have been deleted): any
	// sequence is accepted.
	if st.currentEpoch == NoEpoch || inSequence(last, first) {
		return nil
	}
	return refuse(ErrOutOfOrderSequence, "Out of order sequence number for producer %d at offset %d in partition %s: %d (incoming seq. number), %d (current end sequence number)",
		b.ProducerID, b.FirstOffset, s.name, first, last)
}
