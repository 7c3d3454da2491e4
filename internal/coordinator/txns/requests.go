package txns

import (
	"context"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"weir/internal/clock"
	"weir/internal/txn"
)

// step is a method of a core with its answer.
type step[T any] func(m *member, s txn.Step) (txn.Result, T)

// ask has the partition of a transactional id take a step and waits until all that
// the step has seen is committed. The step is taken once more, with a producer id,
// when it wants one.
func ask[T any](ctx context.Context, c *Coordinator, id, name string, timeout time.Duration, f step[T]) (T, *kerr.Error) {
	part := c.Partition(id)
	answer, wanted, err := submit(ctx, c, part, name, timeout, txn.NoProducerID, f)
	if err == nil && wanted {
		fresh, failed := c.o.NewID(ctx)
		if failed != nil {
			return answer, kerr.CoordinatorLoadInProgress // Kafka's answer while it waits for a block of ids
		}
		answer, _, err = submit(ctx, c, part, name, timeout, fresh, f)
	}
	return answer, kindOf(err)
}

// submit is one attempt of ask, with a producer id or NoProducerID.
func submit[T any](ctx context.Context, c *Coordinator, part int32, name string, timeout time.Duration, fresh int64, f step[T]) (out T, wanted bool, err error) {
	type answer struct {
		value  T
		wanted bool
		err    error
	}
	done := make(chan answer, 1)
	c.rt.Submit(part, name, func(m *member, v view) (result, error) {
		var a answer
		r := c.decide(m, v, fresh, func(s txn.Step) (r txn.Result) {
			r, a.value = f(m, s)
			a.wanted, r.WantID = r.WantID, false // ask sees to it
			return r
		})
		r.Response = a
		return r, nil
	}, func(r any, err error) {
		a, _ := r.(answer)
		a.err = err
		done <- a
	})
	select {
	case a := <-done: // on a broker that waits for nobody it is there already
		return a.value, a.wanted, a.err
	default:
	}
	late, stop := clock.After(c.o.Clock, timeout)
	defer stop()
	select {
	case a := <-done:
		return a.value, a.wanted, a.err
	case <-late:
		return out, false, errNotCommitted
	case <-ctx.Done():
		return out, false, context.Cause(ctx)
	}
}

// identified is the answer to a producer.
type identified struct {
	is  txn.Identity
	err *kerr.Error
}

// first prefers the error of the log.
func first(log, own *kerr.Error) *kerr.Error {
	if log != nil {
		return log
	}
	return own
}

func (a identified) or(log *kerr.Error) (txn.Identity, *kerr.Error) {
	if err := first(log, a.err); err != nil {
		return txn.NoIdentity(), err
	}
	return a.is, nil
}

// Init answers InitProducerId for a transactional id.
func (c *Coordinator) Init(ctx context.Context, id string, timeoutMs int32, was txn.Identity) (txn.Identity, *kerr.Error) {
	timeout := c.o.Timeout
	if timeoutMs > 0 {
		timeout = time.Duration(timeoutMs) * time.Millisecond
	}
	a, err := ask(ctx, c, id, "init", timeout, func(m *member, s txn.Step) (txn.Result, identified) {
		r, is, err := m.core.Init(s, id, timeoutMs, was)
		return r, identified{is, err}
	})
	return a.or(err)
}

// Add answers AddPartitionsToTxn. version is the client's transaction.version.
func (c *Coordinator) Add(ctx context.Context, id string, producerID int64, epoch int16, partitions []txn.TopicPartition, version int16) *kerr.Error {
	if id == "" {
		return kerr.InvalidRequest
	}
	refused, err := ask(ctx, c, id, "add", c.o.Timeout, func(m *member, s txn.Step) (txn.Result, *kerr.Error) {
		return m.core.Add(s, id, producerID, epoch, partitions, version)
	})
	return first(err, refused)
}

// Verify answers AddPartitionsToTxn that only asks; see txn.Core.
func (c *Coordinator) Verify(ctx context.Context, id string, producerID int64, epoch int16, partitions []txn.TopicPartition) ([]*kerr.Error, *kerr.Error) {
	if id == "" {
		return nil, kerr.InvalidRequest
	}
	type answer struct {
		rows []*kerr.Error
		err  *kerr.Error
	}
	a, err := ask(ctx, c, id, "verify", c.o.Timeout, func(m *member, s txn.Step) (txn.Result, answer) {
		rows, err := m.core.Verify(s, id, producerID, epoch, partitions)
		return txn.Result{}, answer{rows, err}
	})
	return a.rows, first(err, a.err)
}

// End answers EndTxn. It waits for the outcome to be committed, not for the markers.
func (c *Coordinator) End(ctx context.Context, id string, was txn.Identity, commit bool, version int16) (txn.Identity, *kerr.Error) {
	if id == "" {
		return txn.NoIdentity(), kerr.InvalidRequest
	}
	a, err := ask(ctx, c, id, "end", c.o.Timeout, func(m *member, s txn.Step) (txn.Result, identified) {
		r, is, err := m.core.End(s, id, was, commit, version)
		return r, identified{is, err}
	})
	return a.or(err)
}

// look asks a core for what is committed, and waits for no commit.
func look[T any](ctx context.Context, c *Coordinator, part int32, f func(m *member, s txn.Step) T) (T, *kerr.Error) {
	type answer struct {
		value T
		err   error
	}
	done := make(chan answer, 2)
	c.rt.Submit(part, "look", func(m *member, v view) (result, error) {
		var a answer
		if v.State, a.err = c.rt.Committed(part); a.err == nil {
			a.value = f(m, c.step(v, txn.NoProducerID))
		}
		done <- a
		return result{}, nil
	}, func(_ any, err error) {
		if err != nil {
			done <- answer{err: err}
		}
	})
	select {
	case a := <-done:
		return a.value, kindOf(a.err)
	case <-ctx.Done():
		var none T
		return none, kerr.CoordinatorNotAvailable
	}
}

// Described is what is told of a transactional id. Of one whose outcome stands the
// partitions are those without a marker so far.
type Described struct {
	*txn.Txn
	Partitions []txn.TopicPartition
}

// Describe tells of a transactional id.
func (c *Coordinator) Describe(ctx context.Context, id string) (Described, *kerr.Error) {
	if id == "" {
		return Described{}, kerr.InvalidRequest
	}
	d, err := look(ctx, c, c.Partition(id), func(m *member, s txn.Step) Described {
		t := s.State.Txn(id)
		if t == nil {
			return Described{}
		}
		return Described{t, m.core.Unmarked(t)}
	})
	if err == nil && d.Txn == nil {
		err = kerr.TransactionalIDNotFound
	}
	return d, err
}

// List tells of the transactional ids of this broker; a partition that is being
// loaded makes the whole list fail.
func (c *Coordinator) List(ctx context.Context, f *txn.Filter) ([]*txn.Txn, *kerr.Error) {
	ids, loading := c.rt.Active()
	if loading > 0 {
		return nil, kerr.CoordinatorLoadInProgress
	}
	slices.Sort(ids)
	var out []*txn.Txn
	for _, id := range ids {
		some, err := look(ctx, c, id, func(m *member, s txn.Step) []*txn.Txn { return m.core.List(s, f) })
		if err != nil && err != kerr.NotCoordinator { // lost meanwhile: another broker tells of them
			return nil, err
		}
		out = append(out, some...)
	}
	return out, nil
}

// Summary is the transactional ids of this broker, for metrics.
type Summary struct {
	// Partitions of __transaction_state that this broker leads, and those of them
	// that are still being loaded.
	Partitions, Loading int
	IDs, Open, Marking  int      // transactional ids; those in a transaction; transactions that wait for markers
	Oldest              *txn.Txn // the transaction that has been open for longest, nil for none
	txn.Stats
}

// Summary asks every partition; it waits for no commit. What is not ours any more
// does not count.
func (c *Coordinator) Summary(ctx context.Context) Summary {
	var out Summary
	ids, loading := c.rt.Active()
	out.Partitions, out.Loading = len(ids)+loading, loading
	for _, id := range ids {
		one, err := look(ctx, c, id, func(m *member, s txn.Step) Summary {
			return Summary{IDs: s.State.Len(), Open: s.State.NumOpen(), Marking: m.core.Marking(), Oldest: s.State.Oldest(), Stats: m.core.Stats()}
		})
		if err != nil {
			continue
		}
		out.IDs, out.Open, out.Marking = out.IDs+one.IDs, out.Open+one.Open, out.Marking+one.Marking
		out.Commits, out.Aborts = out.Commits+one.Commits, out.Aborts+one.Aborts
		out.TimedOut, out.Expired, out.GivenUp = out.TimedOut+one.TimedOut, out.Expired+one.Expired, out.GivenUp+one.GivenUp
		if one.Oldest != nil && (out.Oldest == nil || one.Oldest.StartMs < out.Oldest.StartMs) {
			out.Oldest = one.Oldest
		}
	}
	return out
}
