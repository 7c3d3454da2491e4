package txns

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/coordinator"
	"weir/internal/image"
	"weir/internal/txn"
)

// marker is the outcome of a transaction on its way to some of its partitions.
type marker struct {
	mem   *member // the load of the coordinator's partition that decided on it
	epoch int32   // of the coordinator: the leader epoch of its partition
	e     txn.Ended
	tries int
}

// markers brings markers to the leaders of partitions.
type markers struct {
	c *Coordinator

	mu     sync.Mutex
	queues map[int32]*queue
	ended  bool
	work   sync.WaitGroup
}

// queue is what is to go to one broker.
type queue struct {
	node    Node // nil for this broker
	waiting []marker
	busy    bool // a goroutine sends
}

func newMarkers(c *Coordinator) *markers { return &markers{c: c, queues: map[int32]*queue{}} }

// present tells whether a marker is still this coordinator's to bring: a later load
// of the partition sends its own, and the producer may be in its next transaction
// under the same epoch when one of an earlier load arrives.
func (k *markers) present(m *marker) bool {
	epoch, err := k.c.rt.Epoch(k.c.Partition(m.e.ID))
	return err == nil && epoch == m.epoch && !m.mem.over.Load()
}

// send looks up who leads the partitions and queues the marker for each leader. It
// is called in the loop of the coordinator's partition.
func (k *markers) send(m marker) {
	if !k.present(&m) {
		return
	}
	img := k.c.o.Image()
	var gone, nobody []txn.TopicPartition
	leaders := map[int32][]txn.TopicPartition{}
	for _, p := range m.e.Partitions {
		switch leader, exists := leaderOf(img, p); {
		case !exists:
			gone = append(gone, p)
		case leader < 0:
			nobody = append(nobody, p)
		default:
			leaders[leader] = append(leaders[leader], p)
		}
	}
	if len(gone) > 0 {
		k.c.o.Logger.Info("transaction coordinator: partitions of a transaction are deleted", "id", m.e.ID, "partitions", gone)
		k.marked(m.of(gone))
	}
	if len(nobody) > 0 {
		k.again(m.of(nobody))
	}
	for leader, ps := range leaders {
		k.enqueue(leader, m.of(ps))
	}
}

// of is the marker for some of its partitions.
func (m marker) of(ps []txn.TopicPartition) marker {
	m.e.Partitions = ps
	return m
}

// leaderOf finds the broker that leads a partition, -1 while there is none.
func leaderOf(img *image.Image, p txn.TopicPartition) (leader int32, exists bool) {
	t, ok := img.Topic(p.Topic)
	if !ok {
		return -1, false
	}
	x, ok := t.Partition(p.Partition)
	if !ok {
		return -1, false
	}
	if b, ok := img.Broker(x.Leader); !ok || b.Fenced {
		return -1, true
	}
	return x.Leader, true
}

// The first wait before another attempt, and the longest.
const (
	retryFirst = 20 * time.Millisecond
	retryMost  = time.Second
)

// again sends a marker after a while, to those partitions that then still lack it.
func (k *markers) again(m marker) {
	wait := retryMost
	if m.tries < 6 {
		wait = retryFirst << m.tries
	}
	m.tries++
	if m.tries%30 == 0 {
		k.c.o.Logger.Warn("transaction coordinator: markers cannot be written", "id", m.e.ID, "partitions", m.e.Partitions, "attempts", m.tries)
	}
	k.c.o.Clock.AfterFunc(wait, func() {
		if k.c.life.Err() != nil {
			return
		}
		k.tell(m, "markers", func(mem *member, _ txn.Step) txn.Result {
			if left := mem.core.Missing(m.e); len(left) > 0 {
				k.send(m.of(left))
			}
			return txn.Result{}
		})
	})
}

func (k *markers) enqueue(leader int32, m marker) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ended {
		return
	}
	q := k.queues[leader]
	if q == nil {
		q = &queue{}
		if leader != k.c.o.NodeID {
			q.node = k.c.o.Connect(leader, "broker-"+strconv.Itoa(int(k.c.o.NodeID))+"-txn-markers")
		}
		k.queues[leader] = q
	}
	q.waiting = append(q.waiting, m)
	if !q.busy {
		q.busy = true
		k.work.Go(func() { k.run(q) })
	}
}

// run sends what has come until nothing is left. A request may have waited for the
// one before it for long: what is out of date by then is dropped.
func (k *markers) run(q *queue) {
	for {
		k.mu.Lock()
		ms := q.waiting
		q.waiting = nil
		q.busy = len(ms) > 0
		k.mu.Unlock()
		if len(ms) == 0 {
			return
		}
		if ms = slices.DeleteFunc(ms, func(m marker) bool { return !k.present(&m) }); len(ms) > 0 {
			k.deliver(q.node, ms)
		}
	}
}

func (k *markers) deliver(n Node, ms []marker) {
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	for i := range ms {
		req.Markers = append(req.Markers, row(&ms[i]))
	}
	ctx, cancel := context.WithTimeout(k.c.life, k.c.o.Timeout)
	defer cancel()
	var res *kmsg.WriteTxnMarkersResponse
	if n == nil {
		req.Version = req.MaxVersion()
		res = k.c.o.Write(ctx, req)
	} else if r, err := n.Do(ctx, req); err == nil {
		res = r.(*kmsg.WriteTxnMarkersResponse)
	} else {
		k.c.o.Logger.Debug("transaction coordinator: markers are sent again", "err", err)
	}
	told := codes(res, ms)
	for i, m := range ms {
		k.outcome(m, told[i])
	}
}

func row(m *marker) kmsg.WriteTxnMarkersRequestMarker {
	r := kmsg.NewWriteTxnMarkersRequestMarker()
	r.ProducerID, r.ProducerEpoch, r.Committed = m.e.ProducerID, m.e.Epoch, m.e.Commit
	r.CoordinatorEpoch, r.TransactionVersion = m.epoch, int8(m.e.Version)
	for _, p := range m.e.Partitions {
		if n := len(r.Topics); n == 0 || r.Topics[n-1].Topic != p.Topic {
			t := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
			t.Topic = p.Topic
			r.Topics = append(r.Topics, t)
		}
		t := &r.Topics[len(r.Topics)-1]
		t.Partitions = append(t.Partitions, p.Partition)
	}
	return r
}

// place is a partition of the answer for one producer.
type place struct {
	producerID int64
	txn.TopicPartition
}

// codes is what became of each marker, by partition: of ms[i] at i. Rows of an answer
// have no epoch: what belongs to two markers of one producer is told apart by their
// order. Apache Kafka's answers have one row for each producer, in any order: then a
// partition that was named twice is not told of.
func codes(res *kmsg.WriteTxnMarkersResponse, ms []marker) []map[txn.TopicPartition]int16 {
	out := make([]map[txn.TopicPartition]int16, len(ms))
	if res == nil {
		return out
	}
	inOrder := len(res.Markers) == len(ms)
	named := map[place]int{}
	for i := range ms {
		e := &ms[i].e
		inOrder = inOrder && res.Markers[i].ProducerID == e.ProducerID
		for _, p := range e.Partitions {
			named[place{e.ProducerID, p}]++
		}
	}
	for i := range ms {
		out[i] = map[txn.TopicPartition]int16{}
		if inOrder {
			addCodes(out[i], &res.Markers[i])
			continue
		}
		id := ms[i].e.ProducerID
		for j := range res.Markers {
			if res.Markers[j].ProducerID == id {
				addCodes(out[i], &res.Markers[j])
			}
		}
		maps.DeleteFunc(out[i], func(p txn.TopicPartition, _ int16) bool { return named[place{id, p}] > 1 })
	}
	return out
}

func addCodes(out map[txn.TopicPartition]int16, row *kmsg.WriteTxnMarkersResponseMarker) {
	for _, t := range row.Topics {
		for _, p := range t.Partitions {
			out[txn.TopicPartition{Topic: t.Topic, Partition: p.Partition}] = p.ErrorCode
		}
	}
}

// outcome looks at what became of each partition of a marker.
func (k *markers) outcome(m marker, told map[txn.TopicPartition]int16) {
	var done, again []txn.TopicPartition
	for _, p := range m.e.Partitions {
		code, ok := told[p]
		if !ok {
			again = append(again, p)
			continue
		}
		switch kerr.ErrorForCode(code) {
		case nil, kerr.UnsupportedForMessageFormat, kerr.UnsupportedVersion:
			done = append(done, p)
		case kerr.InvalidProducerEpoch, kerr.TransactionCoordinatorFenced:
			k.c.o.Logger.Warn("transaction coordinator: a marker is refused for good: a newer coordinator or producer has been there", "id", m.e.ID, "partition", p, "error", kerr.ErrorForCode(code))
			k.giveUp(m)
			return
		case kerr.UnknownTopicOrPartition, kerr.NotLeaderForPartition, kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend, kerr.RequestTimedOut, kerr.KafkaStorageError:
			again = append(again, p)
		default:
			k.c.o.Logger.Error("transaction coordinator: a marker is refused: it is sent again", "id", m.e.ID, "partition", p, "error", kerr.ErrorForCode(code))
			again = append(again, p)
		}
	}
	if len(done) > 0 {
		k.marked(m.of(done))
	}
	if len(again) > 0 {
		k.again(m.of(again))
	}
}

// marked tells the core that partitions have their marker.
func (k *markers) marked(m marker) {
	k.tell(m, "marked", func(mem *member, s txn.Step) txn.Result { return mem.core.Marked(s, m.e) })
}

func (k *markers) giveUp(m marker) {
	k.tell(m, "give up", func(mem *member, _ txn.Step) txn.Result {
		mem.core.GiveUp(m.e)
		return txn.Result{}
	})
}

func (k *markers) tell(m marker, name string, f func(mem *member, s txn.Step) txn.Result) {
	k.c.rt.Submit(k.c.Partition(m.e.ID), name, func(mem *member, v view) (result, error) {
		if mem != m.mem {
			return result{}, nil // a later load sends its own
		}
		return k.c.decide(mem, v, txn.NoProducerID, func(s txn.Step) txn.Result { return f(mem, s) }), nil
	}, func(_ any, err error) {
		if err != nil && !errors.Is(err, coordinator.ErrNotCoordinator) && !errors.Is(err, coordinator.ErrLoading) {
			k.c.o.Logger.Info("transaction coordinator: the end of a transaction is written again", "id", m.e.ID, "err", err)
		}
	})
}

// stop ends what is under way.
func (k *markers) stop() {
	k.mu.Lock()
	k.ended = true
	queues := k.queues
	k.queues = nil
	for _, q := range queues {
		q.waiting = nil
	}
	k.mu.Unlock()
	for _, q := range queues {
		if q.node != nil {
			q.node.Close()
		}
	}
	k.work.Wait()
}
