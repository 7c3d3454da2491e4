package broker

import (
	"errors"
	"fmt"
	"iter"
	"time"

	"weir/internal/kraft"
	"weir/internal/lifecycle"
	"weir/internal/metrics"
	"weir/internal/network"
	"weir/internal/partition"
	"weir/internal/wire"
)

// openMetrics serves /metrics, /livez and /readyz when weir.metrics.listener is set.
func (b *Broker) openMetrics() error {
	l := b.o.Node.MetricsListener
	if l == nil {
		return nil
	}
	r := metrics.New()
	r.Register(metrics.Sources{
		State: b.state, Topics: b.topics(), Traffic: b.traffic, Replicas: b.replicaCounts, Controller: b.controllerCounts,
		Logs: b.logs(), Dirs: b.logDirs(), Requests: b.requestCounts(), Listeners: b.connections(), Network: b.networkCounts,
	})
	if b.o.Node.Broker {
		b.cleanerMetrics(r)
		b.groupMetrics(r)
		b.txnMetrics(r)
	}
	var err error
	b.metrics, err = metrics.Serve(l.String(), r, b.live, b.ready)
	return err
}

func (b *Broker) live() error {
	select {
	case <-b.failed:
		return errors.New("a part of the node has failed")
	default:
		return nil
	}
}

func (b *Broker) ready() error {
	if !b.o.Node.Broker {
		if b.quorum.Leader().ID == kraft.None {
			return errors.New("the metadata quorum has no leader")
		}
		return nil
	}
	if p := b.lifecycle.Phase(); p != lifecycle.Running {
		return fmt.Errorf("broker is %s", p)
	}
	return nil
}

func (b *Broker) state() metrics.BrokerState {
	if !b.o.Node.Broker {
		return metrics.Running
	}
	switch b.lifecycle.Phase() {
	case lifecycle.Registering:
		return metrics.Starting
	case lifecycle.Fenced:
		return metrics.Recovery
	case lifecycle.Running:
		return metrics.Running
	case lifecycle.Stopping:
		return metrics.PendingControlledShutdown
	}
	return metrics.ShuttingDown
}

// topics sums the counters of each topic's replicas.
func (b *Broker) topics() iter.Seq2[string, metrics.Topic] {
	return func(yield func(string, metrics.Topic) bool) {
		if b.replicas == nil {
			return
		}
		sums := map[string]metrics.Topic{}
		b.replicas.Each(func(r *partition.Replica) {
			s, t := r.Stats(), sums[r.Topic()]
			t.MessagesIn += s.MessagesIn.Load()
			t.BytesIn += s.BytesIn.Load()
			t.BytesOut += s.BytesOut.Load()
			t.ProduceRequests += s.ProduceRequests.Load()
			t.FailedProduceRequests += s.FailedProduce.Load()
			t.FetchRequests += s.FetchRequests.Load()
			t.FailedFetchRequests += s.FailedFetch.Load()
			t.ProduceConversions += s.ProduceConversions.Load()
			t.FetchConversions += s.FetchConversions.Load()
			sums[r.Topic()] = t
		})
		for name, t := range sums {
			if t.ProduceRequests+t.FetchRequests > 0 && !yield(name, t) {
				return
			}
		}
	}
}

func (b *Broker) replicaCounts() metrics.Replicas {
	if b.replicas == nil {
		return metrics.Replicas{}
	}
	c := b.replicas.Counts()
	return metrics.Replicas{
		Partitions: int64(c.Partitions), Leaders: int64(c.Leaders), Offline: int64(c.Offline),
		UnderReplicated: int64(c.UnderReplicated), UnderMinISR: int64(c.UnderMinISR), AtMinISR: int64(c.AtMinISR), Reassigning: int64(c.Reassigning),
		ISRShrinks: c.ISRShrinks, ISRExpands: c.ISRExpands, FailedISRUpdates: c.ISRRefused, Truncated: c.Truncated,
	}
}

func (b *Broker) traffic() metrics.Traffic {
	if b.replicas == nil {
		return metrics.Traffic{}
	}
	var t metrics.Traffic
	b.replicas.Each(func(r *partition.Replica) {
		t.ReplicationBytesIn += r.Stats().ReplicationBytesIn.Load()
		t.ReplicationBytesOut += r.Stats().ReplicationBytesOut.Load()
	})
	return t
}

func (b *Broker) controllerCounts() metrics.Controller {
	img := b.quorum.Images().Image()
	c := metrics.Controller{
		Active: b.quorum.Active(), Topics: int64(img.NumTopics()), Partitions: int64(img.NumPartitions()),
		LastAppliedOffset: img.Provenance.Offset, LastAppliedMs: img.Provenance.TimestampMs, LastCommitted: b.metalog.HighWatermark() - 1,
		UncleanElections: b.quorum.UncleanElections(),
	}
	for q := range img.Brokers() {
		if q.Fenced {
			c.FencedBrokers++
		} else {
			c.ActiveBrokers++
		}
	}
	for range img.Leaderless() {
		c.OfflinePartitions++
	}
	for range img.Imbalanced() {
		c.PreferredBehind++
	}
	return c
}

func (b *Broker) logs() iter.Seq[metrics.Log] {
	return func(yield func(metrics.Log) bool) {
		if b.replicas == nil {
			return
		}
		more := true
		b.replicas.Each(func(r *partition.Replica) {
			l := r.Log()
			more = more && yield(metrics.Log{
				Topic: r.Topic(), Partition: r.ID(), Size: l.Size(), StartOffset: l.LogStart(), EndOffset: l.LogEnd(), Num: int64(l.NumSegments()),
			})
		})
	}
}

// servers are those of this node's roles.
func (b *Broker) servers() []*network.Server {
	var out []*network.Server
	for _, s := range []*network.Server{b.clients, b.control} {
		if s != nil {
			out = append(out, s)
		}
	}
	return out
}

// logDirs tells of each log directory whether it is offline.
func (b *Broker) logDirs() iter.Seq2[string, bool] {
	return func(yield func(string, bool) bool) {
		for _, d := range b.dirs.Dirs() {
			if !yield(d.Path, false) {
				return
			}
		}
		for _, d := range b.dirs.OfflineDirs() {
			if !yield(d.Path, true) {
				return
			}
		}
	}
}

// requestCounts sums what both servers counted of each API that was asked for.
func (b *Broker) requestCounts() iter.Seq[metrics.Request] {
	return func(yield func(metrics.Request) bool) {
		for key := int16(0); key < 127; key++ {
			r := metrics.Request{API: wire.Name(key)}
			var total, local []*network.Latency
			for _, s := range b.servers() {
				if a := s.Stats().API(key); a != nil {
					r.Count += a.Requests.Load()
					r.Bytes += a.InBytes.Load()
					total, local = append(total, &a.Total), append(local, &a.Local)
				}
			}
			r.Total, r.Local = distribution(total), distribution(local)
			if r.Count > 0 && !yield(r) {
				return
			}
		}
	}
}

// distribution adds up histograms, which all have the same buckets. The counts
// are read once: a scrape reads a distribution more than once.
func distribution(parts []*network.Latency) metrics.Distribution {
	var d metrics.Distribution
	var bounds []time.Duration
	var counts []int64
	for _, p := range parts {
		d.Sum += time.Duration(p.Sum.Load())
		i := 0
		for below, n := range p.Buckets {
			if i == len(bounds) {
				bounds, counts = append(bounds, below), append(counts, 0)
			}
			counts[i] += n
			i++
		}
	}
	d.Buckets = func(yield func(time.Duration, int64) bool) {
		for i, below := range bounds {
			if !yield(below, counts[i]) {
				return
			}
		}
	}
	return d
}

// connections are the open connections of each listener.
func (b *Broker) connections() iter.Seq2[string, int] {
	return func(yield func(string, int) bool) {
		for _, s := range b.servers() {
			for _, name := range s.Listeners() {
				if !yield(name, s.Connections(name)) {
					return
				}
			}
		}
	}
}

func (b *Broker) networkCounts() metrics.Network {
	var n metrics.Network
	for _, srv := range b.servers() {
		s := srv.Stats()
		n.Accepted += s.Accepted.Load()
		n.Closed += s.Closed.Load()
		n.IdleClosed += s.IdleClosed.Load()
		n.Refused += s.RefusedPerIP.Load()
		n.BadFrames += s.BadFrames.Load()
		n.SlowClosed += s.SlowClosed.Load()
		n.Failed += s.Failed.Load()
		n.BytesIn += s.BytesIn.Load()
		n.BytesOut += s.BytesOut.Load()
		n.SendfileBytes += s.SendfileBytes.Load()
		n.MemoryUsed += s.BudgetUsed.Load()
		n.MemoryWaits += s.BudgetWaits.Load()
		n.Pending += s.Pending.Load()
		n.Throttle += s.Throttled.Load()
	}
	return n
}
