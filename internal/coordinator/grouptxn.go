package coordinator

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/group"
	"weir/internal/group/classic"
	"weir/internal/partition"
	"weir/internal/storage"
	"weir/internal/storage/producer"
	"weir/internal/txn"
)

// Verifier asks the coordinator of a transactional id, on whatever broker it is,
// whether partitions are part of the producer's transaction (KIP-890), or with add
// makes them part of it. The errors are those of the partitions, nil where all is
// well.
type Verifier interface {
	Ask(ctx context.Context, id string, producerID int64, epoch int16, partitions []txn.TopicPartition, add bool) []*kerr.Error
}

// TxnCommit stores offsets as part of a transaction. The transaction is verified
// first: verify is false where the configuration waives that.
func (g *Groups) TxnCommit(ctx context.Context, q *kmsg.TxnOffsetCommitRequest, verify bool) *kmsg.TxnOffsetCommitResponse {
	if q.Group == "" {
		return group.TxnCommitRefused(q, kerr.InvalidGroupID)
	}
	// From v5 on the commit itself makes the partition part of the transaction.
	add := q.Version >= 5
	guard := producer.NoGuard
	if verify || add {
		var err *kerr.Error
		if guard, err = g.verify(ctx, q, add); err != nil {
			return group.TxnCommitRefused(q, err)
		}
	}
	r, err := g.ask(ctx, q.Group, "commit in transaction", func(c *group.Core, s group.Step, to classic.Waiter) group.Result {
		out := c.TxnCommit(s, q, uint64(guard), to)
		for i := range out.Records {
			out.Records[i].Unverified = !verify && !add
		}
		return out
	})
	if err != nil {
		return group.TxnCommitRefused(q, err)
	}
	return r.(*kmsg.TxnOffsetCommitResponse)
}

func (g *Groups) verify(ctx context.Context, q *kmsg.TxnOffsetCommitRequest, add bool) (producer.Guard, *kerr.Error) {
	id := g.Partition(q.Group)
	r, err := g.rt.Replica(id)
	if err != nil {
		return producer.NoGuard, kindOf(err)
	}
	guard, err := r.StartVerification(q.ProducerID, producer.NoSequence, q.ProducerEpoch, add)
	var moved *partition.NotLeaderError
	switch {
	case errors.As(err, &moved):
		return producer.NoGuard, kerr.NotCoordinator
	case err != nil:
		return producer.NoGuard, kindOf(err)
	case guard == producer.NoGuard:
		return guard, nil // the transaction is open here already
	}
	refused := g.o.Txns.Ask(ctx, q.TransactionalID, q.ProducerID, q.ProducerEpoch, []txn.TopicPartition{{Topic: OffsetsTopic, Partition: id}}, add)[0]
	switch {
	case refused == nil:
		return guard, nil
	case refused == kerr.ProducerFenced:
		return producer.NoGuard, kerr.InvalidProducerEpoch
	case refused == kerr.TransactionAbortable && q.Version < 4:
		return producer.NoGuard, kerr.InvalidTxnState // older clients do not know it
	case refused == kerr.NetworkException:
		// Clients come again after this one without looking for another coordinator.
		return producer.NoGuard, kerr.CoordinatorLoadInProgress
	}
	return producer.NoGuard, refused
}

// EndTxn writes a transaction's marker into a partition of __consumer_offsets: the
// offsets that the transaction has committed there count from now on, or never.
// done is called once and must not block; errors are those of Submit, of the log,
// and storage's of producers.
func (g *Groups) EndTxn(id int32, producerID int64, epoch int16, m group.Marker, done func(err error)) {
	g.rt.Submit(id, "marker", func(mem *member, v groupView) (groupResult, error) {
		return g.decide(mem, v, func(group.Step) group.Result { return mem.core.EndTxn(producerID, epoch, m) })
	}, func(_ any, err error) { done(err) })
}

// Refused maps an error of EndTxn to what the transaction coordinator understands.
func Refused(err error) *kerr.Error {
	var moved *partition.NotLeaderError
	switch k := kindOf(err); {
	case k == nil:
		return nil
	case errors.As(err, &moved), k == kerr.CoordinatorNotAvailable, k == kerr.CoordinatorLoadInProgress, k == kerr.NotCoordinator:
		return kerr.NotLeaderForPartition
	case errors.Is(err, storage.ErrClosed):
		return kerr.NotLeaderForPartition
	default:
		return k
	}
}

// KindOf is what a client is told of an error of Submit, Committed or Epoch; nil for none.
func KindOf(err error) *kerr.Error { return kindOf(err) }
