package txn

import (
	"math"

	"github.com/twmb/franz-go/pkg/kerr"
)

// End answers EndTxn. version is the client's transaction.version: from 2 on the
// epoch is bumped with each end, and the answer tells what to go on with.
func (c *Core) End(s Step, id string, is Identity, commit bool, version int16) (Result, Identity, *kerr.Error) {
	if version < 2 {
		r, err := c.endV1(s, id, is, commit)
		return r, NoIdentity(), err
	}
	return c.endV2(s, id, is, commit)
}

func (c *Core) endV1(s Step, id string, is Identity, commit bool) (Result, *kerr.Error) {
	var r Result
	t, err := known(s, id, is.ProducerID)
	switch {
	case err != nil:
		return r, err
	case is.Epoch != t.Epoch:
		return r, kerr.ProducerFenced
	case t.Status == Ongoing:
		r.store(s, prepare(s, t, t, outcome(commit), 0, NoProducerID))
		return r, nil
	}
	return r, repeated(t, commit)
}

// repeated is the answer to an end of what has ended before.
func repeated(t *Txn, commit bool) *kerr.Error {
	switch {
	case commit && t.Status == CompleteCommit, !commit && t.Status == CompleteAbort:
		return nil
	case commit && t.Status == PrepareCommit, !commit && t.Status == PrepareAbort:
		return kerr.ConcurrentTransactions
	}
	return kerr.InvalidTxnState
}

func outcome(commit bool) Status {
	if commit {
		return PrepareCommit
	}
	return PrepareAbort
}

// endV2 tells a repeat from a new end by the epoch: an end is a repeat iff its epoch
// is one below that of the transaction, since the end that came first has raised it;
// where it used up the epochs, the producer has gone on as another one, at epoch 0. A
// repeat gets the answer of that end, if it asks for the same outcome. A new end
// finds an open transaction, or is an abort of nothing, which raises the epoch too.
func (c *Core) endV2(s Step, id string, is Identity, commit bool) (Result, Identity, *kerr.Error) {
	var r Result
	if id == "" {
		return r, NoIdentity(), kerr.InvalidRequest
	}
	t := s.State.Txn(id)
	if t == nil {
		return r, NoIdentity(), kerr.InvalidProducerIDMapping
	}
	renamed := t.Previous == is.ProducerID && is.Epoch == math.MaxInt16-1 && t.Epoch == 0
	if t.ProducerID != is.ProducerID && !renamed {
		return r, NoIdentity(), kerr.InvalidProducerIDMapping
	}
	again := renamed || is.Epoch < math.MaxInt16 && is.Epoch+1 == t.Epoch
	fresh := is.Epoch == t.Epoch
	switch {
	case t.Status.ending():
		if !again || renamed {
			return r, NoIdentity(), kerr.ProducerFenced
		}
		return r, NoIdentity(), repeated(t, commit)
	case again && t.Status.complete() && t.Status != Empty:
		if err := repeated(t, commit); err != nil {
			return r, NoIdentity(), err
		}
		return r, Identity{t.ProducerID, t.Epoch}, nil
	case !fresh:
		return r, NoIdentity(), kerr.ProducerFenced
	case commit && t.Status != Ongoing:
		return r, NoIdentity(), kerr.InvalidTxnState
	}
	next := NoProducerID
	if exhausted(t.Epoch) {
		if s.NewID < 0 {
			r.WantID = true
			return r, NoIdentity(), nil
		}
		next = s.NewID
	}
	n := prepare(s, t, t, outcome(commit), 2, next)
	r.store(s, n)
	if next != NoProducerID {
		return r, Identity{next, 0}, nil
	}
	return r, Identity{n.ProducerID, n.Epoch}, nil
}

// prepare is the state after t, made from it or from f in its place, whose outcome
// stands.
func prepare(s Step, f, t *Txn, to Status, version int16, next int64) *Txn {
	n := *f
	n.Previous, n.Next = t.ProducerID, next
	if version >= 2 {
		n.LastEpoch = f.Epoch
		if f.Epoch < math.MaxInt16 || to != PrepareAbort {
			n.Epoch = f.Epoch + 1
		}
	}
	if t.Status != Ongoing {
		n.StartMs = s.ms() // a transaction without partitions, which version 2 lets abort
	}
	n.Status, n.UpdateMs, n.Version = to, s.ms(), version
	return &n
}
