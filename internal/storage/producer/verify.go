package producer

// Guard stands for one verification of a transaction (KIP-890): the partition
// asks the coordinator whether the transaction includes it, and the append that
// follows presents the guard. NoGuard is the sentinel of "no verification".
type Guard uint64

// NoGuard is presented by appends that were not verified.
const NoGuard Guard = 0

// verification is a producer whose first transactional write waits for the
// coordinator (VerificationStateEntry).
type verification struct {
	timestamp      int64
	guard          Guard
	lowestSequence int32
	epoch          int16
	epochBump      bool // the producer bumps its epoch per transaction (transaction version 2)
}

// StartVerification returns the guard for a transactional batch that does not
// continue an open transaction, NoGuard for one that does. A second batch
// meanwhile gets the same guard, and the lowest sequence seen must be appended
// first. ErrInvalidEpoch: a later epoch of the producer is known.
func (s *State) StartVerification(id int64, sequence int32, epoch int16, epochBump bool, nowMs int64) (Guard, error) {
	if e, ok := s.producers[id]; ok && epoch < e.Epoch {
		return NoGuard, staleEpoch(id, epoch, e.Epoch)
	}
	if s.HasOpenTransaction(id, epoch) {
		return NoGuard, nil
	}
	v, ok := s.verifying[id]
	if !ok {
		s.guards++
		v = &verification{timestamp: nowMs, guard: Guard(s.guards), lowestSequence: sequence, epoch: epoch, epochBump: epochBump}
		s.verifying[id] = v
	}
	if epoch == v.epoch && sequence < v.lowestSequence {
		v.lowestSequence = sequence
	}
	if epoch > v.epoch {
		v.epoch, v.lowestSequence = epoch, sequence
	}
	return v.guard, nil
}

func staleEpoch(id int64, epoch, known int16) error {
	return refuse(ErrInvalidEpoch, "Epoch of producer %d is %d, which is smaller than the last seen epoch %d", id, epoch, known)
}

// HasOpenTransaction reports an open transaction of exactly this epoch.
func (s *State) HasOpenTransaction(id int64, epoch int16) bool {
	e, ok := s.producers[id]
	return ok && e.TxnFirstOffset != NoOffset && e.Epoch == epoch
}

// CheckVerified refuses a transactional batch of a client or coordinator that
// neither continues an open transaction nor was verified.
func (s *State) CheckVerified(b *Batch, guard Guard) error {
	if !b.Transactional || s.HasOpenTransaction(b.ProducerID, b.Epoch) {
		return nil
	}
	if e, ok := s.producers[b.ProducerID]; ok && b.Epoch < e.Epoch {
		return staleEpoch(b.ProducerID, b.Epoch, e.Epoch)
	}
	if b.Unverified || b.Control {
		return nil
	}
	if v, ok := s.verifying[b.ProducerID]; ok && guard != NoGuard && v.guard == guard {
		return nil
	}
	return refuse(ErrInvalidTxnState, "Record was not part of an ongoing transaction")
}

// finishVerification forgets the verification once a batch of the transaction
// is accepted. A marker of the same epoch does not end one under transaction
// version 2: the bumped epoch is still to come.
func (s *State) finishVerification(b *Batch) {
	v, ok := s.verifying[b.ProducerID]
	if ok && !(v.epochBump && b.Control && b.Epoch == v.epoch) {
		delete(s.verifying, b.ProducerID)
	}
}
