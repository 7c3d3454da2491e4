package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/coordinator/txns"
	"weir/internal/image"
	"weir/internal/txn"
)

// TxnProducers is the coordinator of transactional ids, for their producers.
type TxnProducers interface {
	Init(ctx context.Context, id string, timeoutMs int32, was txn.Identity) (txn.Identity, *kerr.Error)
	Add(ctx context.Context, id string, producerID int64, epoch int16, partitions []txn.TopicPartition, version int16) *kerr.Error
	Verify(ctx context.Context, id string, producerID int64, epoch int16, partitions []txn.TopicPartition) ([]*kerr.Error, *kerr.Error)
	End(ctx context.Context, id string, was txn.Identity, commit bool, version int16) (txn.Identity, *kerr.Error)
}

// TxnViews is the coordinator of transactional ids, for those who look.
type TxnViews interface {
	Describe(ctx context.Context, id string) (txns.Described, *kerr.Error)
	List(ctx context.Context, f *txn.Filter) ([]*txn.Txn, *kerr.Error)
}

// TxnAsks asks the coordinator of a transactional id, on whatever broker it is; see
// txns.Coordinator.
type TxnAsks interface {
	Ask(ctx context.Context, id string, producerID int64, epoch int16, partitions []txn.TopicPartition, add bool) []*kerr.Error
}

// Transactions is all of it.
type Transactions interface {
	TxnProducers
	TxnViews
	TxnAsks
	// Partition is the partition of __transaction_state that an id belongs to.
	Partition(id string) int32
}

// TxnGroups is the group coordinator's part in transactions.
type TxnGroups interface {
	TxnCommit(ctx context.Context, q *kmsg.TxnOffsetCommitRequest, verify bool) *kmsg.TxnOffsetCommitResponse
	Partition(id string) int32
}

// fencedBefore gives an answer of an older version the code that its clients know
// for a fenced producer.
func fencedBefore(err *kerr.Error, version, first int16) int16 {
	switch {
	case err == nil:
		return 0
	case err == kerr.ProducerFenced && version < first:
		return kerr.InvalidProducerEpoch.Code
	}
	return err.Code
}

// existing tells whether a topic with that partition exists.
func existing(img *image.Image, p txn.TopicPartition) bool {
	t, ok := img.Topic(p.Topic)
	if ok {
		_, ok = t.Partition(p.Partition)
	}
	return ok
}
