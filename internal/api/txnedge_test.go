package api

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/txn"
	"weir/internal/wire"
)

// slowTxns is a coordinator that takes a second for each transaction.
type slowTxns struct {
	TxnProducers
	mu        sync.Mutex
	now, most int
	added     []txn.TopicPartition
}

func (s *slowTxns) Add(_ context.Context, _ string, _ int64, _ int16, ps []txn.TopicPartition, _ int16) *kerr.Error {
	s.mu.Lock()
	s.now++
	s.most = max(s.most, s.now)
	s.added = append(s.added, ps...)
	s.mu.Unlock()
	time.Sleep(time.Second)
	s.mu.Lock()
	s.now--
	s.mu.Unlock()
	return nil
}

// A request with many transactions does not start them all at once.
func TestAddManyTransactions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, 1)
		txns := &slowTxns{}
		req := kmsg.NewPtrAddPartitionsToTxnRequest()
		req.Version = 5
		for i := range 3 * addAtOnce {
			x := kmsg.NewAddPartitionsToTxnRequestTransaction()
			x.TransactionalID = fmt.Sprint(i)
			x.Topics = []kmsg.AddPartitionsToTxnRequestTransactionTopic{{Topic: "t", Partitions: []int32{0}}}
			req.Transactions = append(req.Transactions, x)
		}
		res := (&AddPartitionsToTxn{r.images, txns}).Handle(t.Context(), r.call(), req).(wire.Message).Response.(*kmsg.AddPartitionsToTxnResponse)
		if txns.most != addAtOnce || len(txns.added) != len(req.Transactions) {
			t.Errorf("%d at once, %d in all", txns.most, len(txns.added))
		}
		for i, x := range res.Transactions {
			if x.TransactionalID != req.Transactions[i].TransactionalID || len(x.Topics) != 1 || x.Topics[0].Partitions[0].ErrorCode != 0 {
				t.Fatalf("%d: %+v", i, x)
			}
		}
	})
}

// A partition that is named twice counts once, in both forms of the request.
func TestAddRepeatedPartitions(t *testing.T) {
	r := newRig(t, 3, 1)
	for _, version := range []int16{3, 5} {
		txns := &slowTxns{}
		req := kmsg.NewPtrAddPartitionsToTxnRequest()
		req.Version = version
		var got []int32
		synctest.Test(t, func(t *testing.T) {
			h := &AddPartitionsToTxn{r.images, txns}
			if version < 4 {
				req.Topics = []kmsg.AddPartitionsToTxnRequestTopic{{Topic: "t", Partitions: []int32{1, 1, 2}}, {Topic: "t", Partitions: []int32{2, 0}}}
			} else {
				x := kmsg.NewAddPartitionsToTxnRequestTransaction()
				x.Topics = []kmsg.AddPartitionsToTxnRequestTransactionTopic{{Topic: "t", Partitions: []int32{1, 1, 2}}, {Topic: "t", Partitions: []int32{2, 0}}}
				req.Transactions = append(req.Transactions, x)
			}
			res := h.Handle(t.Context(), r.call(), req).(wire.Message).Response.(*kmsg.AddPartitionsToTxnResponse)
			for _, x := range res.Topics {
				for _, p := range x.Partitions {
					got = append(got, p.Partition)
				}
			}
			for _, x := range res.Transactions {
				for _, y := range x.Topics {
					for _, p := range y.Partitions {
						got = append(got, p.Partition)
					}
				}
			}
		})
		if !slices.Equal(got, []int32{1, 2, 0}) || len(txns.added) != 3 {
			t.Errorf("version %d: rows of %v, added %v", version, got, txns.added)
		}
	}
}

// A marker that names a partition twice is written once.
func TestRepeatedMarkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, 1)
		w := &Markers{Images: r.images, Replicas: r.replicas, Timeout: time.Second, Clock: r.clock}
		req := kmsg.NewPtrWriteTxnMarkersRequest()
		req.Version = 1
		m := kmsg.NewWriteTxnMarkersRequestMarker()
		m.ProducerID, m.Committed = 7, true
		m.Topics = []kmsg.WriteTxnMarkersRequestMarkerTopic{{Topic: "t", Partitions: []int32{0, 0}}, {Topic: "t", Partitions: []int32{0}}}
		req.Markers = append(req.Markers, m)
		before := r.replica(0).Log().LogEnd()
		res := w.Write(t.Context(), req)
		if p := res.Markers[0].Topics[0].Partitions; len(p) != 1 || p[0].ErrorCode != 0 {
			t.Errorf("%+v", p)
		}
		if n := r.replica(0).Log().LogEnd() - before; n != 1 {
			t.Errorf("%d markers", n)
		}
	})
}
