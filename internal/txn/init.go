package txn

import (
	"math"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Identity is a producer id with its epoch; both -1 for none.
type Identity struct {
	ProducerID int64
	Epoch      int16
}

// NoIdentity is that of a producer that has none yet, and of answers that fail.
func NoIdentity() Identity { return Identity{NoProducerID, NoEpoch} }

// Init answers InitProducerId: whoever used the transactional id before is fenced.
// was is what the producer has already (KIP-360), NoIdentity when it is new. An
// open transaction is aborted first, and the producer told to come again.
func (c *Core) Init(s Step, id string, timeoutMs int32, was Identity) (Result, Identity, *kerr.Error) {
	var r Result
	if id == "" {
		return r, NoIdentity(), kerr.InvalidRequest
	}
	if timeoutMs <= 0 || int64(timeoutMs) > c.config.MaxTimeout.Milliseconds() {
		return r, NoIdentity(), kerr.InvalidTransactionTimeout
	}
	t := s.State.Txn(id)
	if t == nil {
		if s.NewID < 0 {
			r.WantID = true
			return r, NoIdentity(), nil
		}
		t = &Txn{ID: id, ProducerID: s.NewID, Previous: NoProducerID, Next: NoProducerID, Epoch: NoEpoch, LastEpoch: NoEpoch, StartMs: noTime}
		return c.initialized(s, t, timeoutMs, Identity{s.NewID, 0}, NoEpoch)
	}
	if was != NoIdentity() && was.ProducerID != t.ProducerID && !(was.ProducerID == t.Previous && exhausted(was.Epoch)) {
		return r, NoIdentity(), kerr.ProducerFenced
	}
	switch {
	case t.Status.ending():
		return r, NoIdentity(), kerr.ConcurrentTransactions
	case t.Status == Ongoing:
		n, ok := fence(s, t)
		if !ok {
			r.WantID = true
			return r, NoIdentity(), nil
		}
		r.store(s, n)
		r.note("transaction of %q aborted: another producer begins with this transactional id; producer id %d epoch %d is fenced", t.ID, t.ProducerID, t.Epoch)
		return r, NoIdentity(), kerr.ConcurrentTransactions
	}
	return c.bump(s, t, timeoutMs, was)
}

// bump gives a producer without an open transaction its next epoch, or its next
// producer id.
func (c *Core) bump(s Step, t *Txn, timeoutMs int32, was Identity) (Result, Identity, *kerr.Error) {
	known := was != NoIdentity()
	if exhausted(t.Epoch) {
		switch {
		case known && was.Epoch != t.Epoch:
			// Kafka fails on an assertion here.
			return Result{}, NoIdentity(), kerr.UnknownServerError
		case s.NewID < 0:
			return Result{WantID: true}, NoIdentity(), nil
		}
		last := NoEpoch
		if known {
			last = t.Epoch
		}
		return c.initialized(s, t, timeoutMs, Identity{s.NewID, 0}, last)
	}
	switch {
	case !known:
		return c.initialized(s, t, timeoutMs, Identity{t.ProducerID, t.Epoch + 1}, NoEpoch)
	case was.Epoch == t.Epoch:
		return c.initialized(s, t, timeoutMs, Identity{t.ProducerID, t.Epoch + 1}, t.Epoch)
	case was.Epoch == t.LastEpoch:
		// A repeat whose answer was lost: a new producer would have cleared LastEpoch.
		return c.initialized(s, t, timeoutMs, Identity{t.ProducerID, t.Epoch}, t.LastEpoch)
	}
	return Result{}, NoIdentity(), kerr.ProducerFenced
}

func (c *Core) initialized(s Step, t *Txn, timeoutMs int32, is Identity, last int16) (Result, Identity, *kerr.Error) {
	n := *t
	n.Previous = t.ProducerID
	n.ProducerID, n.Epoch, n.LastEpoch, n.TimeoutMs = is.ProducerID, is.Epoch, last, timeoutMs
	n.Status, n.Partitions, n.StartMs, n.UpdateMs = Empty, nil, noTime, s.ms()
	var r Result
	r.store(s, &n)
	if _, ok := c.soft.timers.Get(timer{kind: expirySweep}); !ok {
		c.soft.timers.Set(timer{kind: expirySweep}, s.Now.Add(c.config.ExpireEvery))
	}
	return r, is, nil
}

// fence aborts an open transaction for its producer, whose epoch ends with it. ok
// is false when the step lacks a new producer id that is needed.
func fence(s Step, t *Txn) (n *Txn, ok bool) {
	if s.Level < 2 {
		f := *t
		if f.Epoch < math.MaxInt16 {
			f.Epoch++
		}
		f.LastEpoch = NoEpoch
		return prepare(s, &f, t, PrepareAbort, 0, NoProducerID), true
	}
	next := NoProducerID
	if exhausted(t.Epoch) {
		if s.NewID < 0 {
			return nil, false
		}
		next = s.NewID
	}
	return prepare(s, t, t, PrepareAbort, 2, next), true // which bumps the epoch by itself
}
