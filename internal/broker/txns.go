package broker

import (
	"context"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/api"
	"weir/internal/config"
	"weir/internal/coordinator/txns"
	"weir/internal/image"
	"weir/internal/metrics"
	"weir/internal/partition"
	"weir/internal/replication"
	"weir/internal/txn"
)

// openTxns makes the transaction coordinator. It leads what package replication tells it.
func (b *Broker) openTxns() {
	s := b.o.Static
	b.ids = &api.ProducerIDs{
		Controller: b.quorum, NodeID: b.o.Node.NodeID, Epoch: func() int64 { return b.lifecycle.Epoch() }, Images: b.quorum.Images(),
	}
	b.txns = txns.New(txns.Options{
		Config: &txn.Config{
			MaxTimeout:  ms(int64(s.Int("transaction.max.timeout.ms"))),
			AbortEvery:  ms(int64(s.Int("transaction.abort.timed.out.transaction.cleanup.interval.ms"))),
			Expiration:  ms(int64(s.Int("transactional.id.expiration.ms"))),
			ExpireEvery: ms(int64(s.Int("transaction.remove.expired.transaction.cleanup.interval.ms"))),
		},
		NodeID: b.o.Node.NodeID, Partitions: s.Int("transaction.state.log.num.partitions"),
		LoadBuffer: int(s.Int("transaction.state.log.load.buffer.size")), Timeout: ms(int64(s.Int("request.timeout.ms"))),
		Image: func() *image.Image { return b.quorum.Images().Image() }, NewID: b.ids.Next,
		Connect: func(node int32, who string) txns.Node { return b.connect(node, who) },
		Write: func(ctx context.Context, q *kmsg.WriteTxnMarkersRequest) *kmsg.WriteTxnMarkersResponse {
			return b.markers.Write(ctx, q)
		},
		Buffers: b.buffers, Clock: b.clock, Logger: b.logger,
	})
}

// openMarkers makes what writes markers into this broker's partitions.
func (b *Broker) openMarkers() {
	b.markers = &api.Markers{
		Images: b.quorum.Images(), Replicas: b.replicas, Groups: b.groups, Timeout: ms(int64(b.o.Static.Int("request.timeout.ms"))), Clock: b.clock,
	}
}

// wireTxns gives the handlers what transactions need.
func (b *Broker) wireTxns(n *api.Node) {
	s := b.o.Static
	n.Txns, n.IDs, n.Markers, n.TxnTopic = b.txns, b.ids, b.markers, txnTopic(s)
	n.TxnBackoff = ms(int64(s.Int("add.partitions.to.txn.retry.backoff.ms")))
	n.TxnBackoffMax = min(ms(int64(s.Int("add.partitions.to.txn.retry.backoff.max.ms"))), ms(int64(s.Int("request.timeout.ms"))))
}

// txnTopic is how __transaction_state is created.
func txnTopic(s *config.Static) api.InternalTopic {
	t := api.InternalTopic{
		Name: txns.Topic, Partitions: s.Int("transaction.state.log.num.partitions"),
		Configs: map[string]string{
			"cleanup.policy": "compact", "compression.type": "uncompressed", "unclean.leader.election.enable": "false",
			"min.insync.replicas": strconv.Itoa(int(s.Int("transaction.state.log.min.isr"))),
			"segment.bytes":       strconv.Itoa(int(s.Int("transaction.state.log.segment.bytes"))),
		},
	}
	if _, set := s.Raw("transaction.state.log.replication.factor"); set {
		t.Replicas = int16(s.Int("transaction.state.log.replication.factor"))
	}
	return t
}

// leaderships tells every coordinator which replicas lead.
type leaderships []replication.Leaderships

// Leads is replication.Leaderships'.
func (l leaderships) Leads(r *partition.Replica, epoch int32) {
	for _, x := range l {
		x.Leads(r, epoch)
	}
}

// LeadsNot is replication.Leaderships'.
func (l leaderships) LeadsNot(r *partition.Replica) {
	for _, x := range l {
		x.LeadsNot(r)
	}
}

// txnMetrics tells of the transactions that this broker coordinates.
func (b *Broker) txnMetrics(r *metrics.Registry) {
	r.RegisterTxns(func() metrics.Txns {
		s := b.txns.Summary(context.Background())
		t := metrics.Txns{
			Partitions: s.Partitions - s.Loading, Loading: s.Loading, IDs: s.IDs, Open: s.Open, Marking: s.Marking,
			Commits: s.Commits, Aborts: s.Aborts, TimedOut: s.TimedOut, Expired: s.Expired, GivenUp: s.GivenUp,
		}
		now := b.clock.Now().UnixMilli()
		if s.Oldest != nil {
			t.OldestOpen = now - s.Oldest.StartMs
		}
		b.replicas.Each(func(r *partition.Replica) {
			if r.Log().HasLateTransaction(now) {
				t.Late++
			}
		})
		return t
	})
}
