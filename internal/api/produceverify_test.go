package api

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"weir/internal/batch"
	"weir/internal/config"
	"weir/internal/txn"
)

// busyTxns is a coordinator with a transaction that is still ending. The first question
// ends the producer's connection.
type busyTxns struct {
	asked int
	leave context.CancelFunc
}

func (b *busyTxns) Ask(_ context.Context, _ string, _ int64, _ int16, ps []txn.TopicPartition, _ bool) []*kerr.Error {
	b.asked++
	b.leave()
	time.Sleep(10 * time.Millisecond) // in a bubble: without end this takes a second
	out := make([]*kerr.Error, len(ps))
	for i := range out {
		out[i] = kerr.ConcurrentTransactions
	}
	return out
}

type staticConfigs struct{ e *config.Effective }

func (c staticConfigs) Effective() *config.Effective { return c.e }

// A producer that has gone is not asked for again and again.
func TestVerificationEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		static, _, err := config.Load("test", []byte("process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=C\n"), nil)
		if err != nil {
			t.Fatal(err)
		}
		r := newRig(t, 1, 1)
		o := batch.NewOptions()
		o.ProducerID, o.ProducerEpoch, o.BaseSequence, o.Transactional = 7, 0, 0, true
		b := batch.NewBuilder(o)
		b.Append(time.Now().UnixMilli(), nil, []byte("v"), nil)
		req, id := produceRequest(-1, 0), "a"
		req.TransactionID, req.Topics[0].Partitions[0].Records = &id, b.Build()
		ctx, cancel := context.WithCancel(t.Context())
		txns := &busyTxns{leave: cancel}
		p := &Produce{Images: r.images, Replicas: r.replicas, Clock: r.clock, Verification: Verification{
			Txns: txns, Configs: staticConfigs{config.NewEffective(static, nil, nil)}, Backoff: 20 * time.Millisecond, BackoffMax: time.Second, Clock: r.clock,
		}}
		if row := r.rows(p.Handle(ctx, r.call(), req))[0]; row.ErrorCode != kerr.ConcurrentTransactions.Code {
			t.Errorf("%+v", row)
		}
		if txns.asked != 1 {
			t.Errorf("asked %d times", txns.asked)
		}
	})
}
