package api

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/batch"
	"weir/internal/clock"
	"weir/internal/image"
	"weir/internal/partition"
	"weir/internal/storage/producer"
	"weir/internal/txn"
)

// verificationKey waives verification when it is false, except where it is also how
// a partition becomes part of its transaction.
const verificationKey = "transaction.partition.verification.enable"

// Verification is how the partitions of a transactional Produce are verified, or
// from Produce v12 on added to their transaction, before anything is appended
// (KIP-890).
type Verification struct {
	Txns    TxnAsks
	Configs Configs
	// Backoff and BackoffMax are add.partitions.to.txn.retry.backoff.ms and …max.ms:
	// how often, and for how long, a transaction that is still ending is asked again.
	Backoff, BackoffMax time.Duration
	Clock               clock.Clock
}

// verified is what became of the verification of one partition.
type verified struct {
	guard producer.Guard
	err   error
	text  string // for the answer's row, empty for none
}

// verification is the verification of one request.
type verification struct {
	d     *produced
	v     *Verification
	id    string
	is    txn.Identity
	add   bool
	parts []verifying
	rows  map[*kmsg.ProduceRequestTopicPartition]*verified
}

// verifying is one partition with a transactional batch.
type verifying struct {
	tp       txn.TopicPartition
	topic    *image.Topic
	sequence int32
	row      *verified
}

// verify is called before the appends of a request with a transactional id. An
// error is of the whole request.
func (d *produced) verify(ctx context.Context) error {
	x := &verification{d: d, v: &d.p.Verification, id: *d.req.TransactionID, is: txn.NoIdentity(), add: d.req.Version >= 12,
		rows: map[*kmsg.ProduceRequestTopicPartition]*verified{}}
	if err := x.collect(); err != nil {
		return err
	}
	enabled := x.v.Configs.Effective().Bool(verificationKey)
	d.unverified = !enabled && !x.add
	if len(x.parts) == 0 || d.unverified {
		return nil
	}
	began := x.v.Clock.Now()
	for x.round(ctx) && x.add && ctx.Err() == nil && x.v.Clock.Now().Sub(began) < x.v.BackoffMax {
		clock.Sleep(ctx, x.v.Clock, x.v.Backoff)
	}
	for i := range x.parts {
		x.parts[i].row.explain(x.add, d.req.Version)
	}
	d.verified = x.rows
	return nil
}

// collect finds the partitions with transactional batches.
func (x *verification) collect() error {
	for i := range x.d.req.Topics {
		t := &x.d.req.Topics[i]
		topic, err := x.d.lookup(t)
		if err != nil {
			continue // its rows say so
		}
		for j := range t.Partitions {
			q := &t.Partitions[j]
			b, err := batch.Single(q.Records, x.d.req.Version)
			if err != nil || !b.IsTransactional() {
				continue
			}
			is := txn.Identity{ProducerID: b.ProducerID(), Epoch: b.ProducerEpoch()}
			if x.is != txn.NoIdentity() && x.is != is {
				return kerr.InvalidProducerIDMapping // of the whole request, as in Kafka
			}
			x.is = is
			row := &verified{}
			x.rows[q] = row
			x.parts = append(x.parts, verifying{tp: txn.TopicPartition{Topic: topic.Name, Partition: q.Partition}, topic: topic, sequence: b.BaseSequence(), row: row})
		}
	}
	return nil
}

// round starts the verification of each partition and asks the coordinator for
// those that need it. It tells whether an earlier transaction is in the way.
func (x *verification) round(ctx context.Context) (concurrent bool) {
	var ask []txn.TopicPartition
	var rows []*verified
	for i := range x.parts {
		p := &x.parts[i]
		*p.row = verified{}
		var replica *partition.Replica
		if replica, p.row.err = find(x.d.img, x.d.p.Replicas, p.topic, p.tp.Partition); p.row.err == nil {
			p.row.guard, p.row.err = replica.StartVerification(x.is.ProducerID, p.sequence, x.is.Epoch, x.add)
		}
		if p.row.err == nil && p.row.guard != producer.NoGuard {
			ask, rows = append(ask, p.tp), append(rows, p.row)
		}
	}
	if len(ask) == 0 {
		return false
	}
	for i, err := range x.v.Txns.Ask(ctx, x.id, x.is.ProducerID, x.is.Epoch, ask, x.add) {
		if err == nil {
			continue
		}
		rows[i].err = err
		concurrent = concurrent || err == kerr.ConcurrentTransactions
	}
	return concurrent
}

// explain turns what the coordinator said into what the producer is told: errors
// that it would not come again after become one that it does.
func (r *verified) explain(add bool, version int16) {
	k, ok := r.err.(*kerr.Error)
	if !ok {
		return
	}
	switch k {
	case kerr.ProducerFenced:
		r.err = kerr.InvalidProducerEpoch
	case kerr.TransactionAbortable:
		if version > 10 {
			return
		}
		r.err, r.text = kerr.InvalidTxnState, "Partition was not added to the transaction"
	case kerr.InvalidTxnState:
		r.text = "Partition was not added to the transaction"
	case kerr.ConcurrentTransactions:
		if !add {
			r.again(k)
		}
	case kerr.NetworkException, kerr.CoordinatorLoadInProgress, kerr.CoordinatorNotAvailable, kerr.NotCoordinator:
		r.again(k)
	}
}

func (r *verified) again(k *kerr.Error) {
	r.err = kerr.NotEnoughReplicas
	r.text = "Unable to verify the partition has been added to the transaction. Underlying error: " + k.Message
}
