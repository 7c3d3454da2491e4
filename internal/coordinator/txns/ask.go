package txns

import (
	"context"
	"slices"
	"strconv"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/txn"
)

// asks brings questions about transactions to their coordinators
// (AddPartitionsToTxnManager).
type asks struct {
	c *Coordinator

	mu    sync.Mutex
	nodes map[int32]*asked
	ended bool
	work  sync.WaitGroup
}

// asked is one coordinator on another broker.
type asked struct {
	node    Node
	waiting []*question
	busy    bool // a request is on its way
}

type question struct {
	t          kmsg.AddPartitionsToTxnRequestTransaction
	partitions []txn.TopicPartition
	answer     chan []*kerr.Error
}

func newAsks(c *Coordinator) *asks { return &asks{c: c, nodes: map[int32]*asked{}} }

// Ask asks the coordinator of a transactional id, on whatever broker it is, whether
// partitions are part of the producer's transaction, or with add makes them part of
// it. The errors are those of the partitions, nil where all is well; when the
// coordinator cannot be asked, it is COORDINATOR_NOT_AVAILABLE or NETWORK_EXCEPTION.
func (c *Coordinator) Ask(ctx context.Context, id string, producerID int64, epoch int16, partitions []txn.TopicPartition, add bool) []*kerr.Error {
	leader, exists := leaderOf(c.o.Image(), txn.TopicPartition{Topic: Topic, Partition: c.Partition(id)})
	switch {
	case !exists || leader < 0:
		return all(partitions, kerr.CoordinatorNotAvailable)
	case leader == c.o.NodeID && add:
		return all(partitions, c.Add(ctx, id, producerID, epoch, partitions, 2))
	case leader == c.o.NodeID:
		rows, err := c.Verify(ctx, id, producerID, epoch, partitions)
		if err != nil {
			return all(partitions, err)
		}
		return rows
	}
	q := &question{t: kmsg.NewAddPartitionsToTxnRequestTransaction(), partitions: partitions, answer: make(chan []*kerr.Error, 1)}
	q.t.TransactionalID, q.t.ProducerID, q.t.ProducerEpoch, q.t.VerifyOnly = id, producerID, epoch, !add
	for _, p := range partitions {
		i := slices.IndexFunc(q.t.Topics, func(t kmsg.AddPartitionsToTxnRequestTransactionTopic) bool { return t.Topic == p.Topic })
		if i < 0 {
			t := kmsg.NewAddPartitionsToTxnRequestTransactionTopic()
			t.Topic = p.Topic
			q.t.Topics, i = append(q.t.Topics, t), len(q.t.Topics)
		}
		q.t.Topics[i].Partitions = append(q.t.Topics[i].Partitions, p.Partition)
	}
	if !c.asks.enqueue(leader, q) {
		return all(partitions, kerr.CoordinatorNotAvailable)
	}
	select {
	case rows := <-q.answer:
		return rows
	case <-ctx.Done():
		return all(partitions, kerr.NetworkException)
	}
}

// all is the same error for each partition.
func all(partitions []txn.TopicPartition, err *kerr.Error) []*kerr.Error {
	out := make([]*kerr.Error, len(partitions))
	for i := range out {
		out[i] = err
	}
	return out
}

func (a *asks) enqueue(leader int32, q *question) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		return false
	}
	n := a.nodes[leader]
	if n == nil {
		n = &asked{node: a.c.o.Connect(leader, "broker-"+strconv.Itoa(int(a.c.o.NodeID))+"-txn-partitions")}
		a.nodes[leader] = n
	}
	n.waiting = append(n.waiting, q)
	if !n.busy {
		n.busy = true
		a.work.Go(func() { a.run(n) })
	}
	return true
}

// run asks what has come until nothing is left. A request names a transactional id
// once: what else is asked of it goes with the next one.
func (a *asks) run(n *asked) {
	for {
		var qs []*question
		named := map[string]bool{}
		a.mu.Lock()
		later := n.waiting[:0:0]
		for _, q := range n.waiting {
			if named[q.t.TransactionalID] {
				later = append(later, q)
				continue
			}
			named[q.t.TransactionalID] = true
			qs = append(qs, q)
		}
		n.waiting = later
		n.busy = len(qs) > 0
		a.mu.Unlock()
		if len(qs) == 0 {
			return
		}
		a.deliver(n.node, qs)
	}
}

func (a *asks) deliver(n Node, qs []*question) {
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	for _, q := range qs {
		req.Transactions = append(req.Transactions, q.t)
	}
	ctx, cancel := context.WithTimeout(a.c.life, a.c.o.Timeout)
	defer cancel()
	r, err := n.Do(ctx, req)
	if err != nil {
		a.c.o.Logger.Warn("a transaction's coordinator cannot be asked", "err", err)
		for _, q := range qs {
			q.answer <- all(q.partitions, kerr.NetworkException)
		}
		return
	}
	res := r.(*kmsg.AddPartitionsToTxnResponse)
	for _, q := range qs {
		q.answer <- q.rows(res)
	}
}

// rows finds the answer to a question.
func (q *question) rows(res *kmsg.AddPartitionsToTxnResponse) []*kerr.Error {
	whole := kindOfCode(res.ErrorCode)
	if whole == kerr.ClusterAuthorizationFailed {
		whole = kerr.InvalidTxnState
	}
	if whole != nil {
		return all(q.partitions, whole)
	}
	out := all(q.partitions, kerr.NetworkException) // what is not in the answer
	for _, t := range res.Transactions {
		if t.TransactionalID != q.t.TransactionalID {
			continue
		}
		for _, topic := range t.Topics {
			for _, p := range topic.Partitions {
				if i := slices.Index(q.partitions, txn.TopicPartition{Topic: topic.Topic, Partition: p.Partition}); i >= 0 {
					out[i] = kindOfCode(p.ErrorCode)
				}
			}
		}
	}
	return out
}

func kindOfCode(code int16) *kerr.Error {
	if code == 0 {
		return nil
	}
	if e, ok := kerr.ErrorForCode(code).(*kerr.Error); ok {
		return e
	}
	return kerr.UnknownServerError
}

func (a *asks) stop() {
	a.mu.Lock()
	a.ended = true
	nodes := a.nodes
	a.nodes = nil
	a.mu.Unlock()
	for _, n := range nodes {
		n.node.Close()
	}
	a.work.Wait()
}
