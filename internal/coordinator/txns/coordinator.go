package txns

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/batch"
	"weir/internal/clock"
	"weir/internal/coordinator"
	"weir/internal/image"
	"weir/internal/partition"
	"weir/internal/statemachine"
	"weir/internal/txn"
)

// Topic is where transactional ids are kept.
const Topic = "__transaction_state"

// Node is another broker.
type Node interface {
	Do(ctx context.Context, req kmsg.Request) (kmsg.Response, error)
	Close()
}

// Options is what a Coordinator is made of.
type Options struct {
	Config     *txn.Config
	NodeID     int32
	Partitions int32         // transaction.state.log.num.partitions: until the topic exists
	LoadBuffer int           // transaction.state.log.load.buffer.size
	Timeout    time.Duration // request.timeout.ms: of requests to other brokers, and of commits
	Image      func() *image.Image
	// NewID gives a producer id that nobody has.
	NewID func(ctx context.Context) (int64, error)
	// Connect makes a connection to another broker; who is the client id.
	Connect func(node int32, who string) Node
	// Write writes markers into partitions that this broker leads.
	Write   func(ctx context.Context, q *kmsg.WriteTxnMarkersRequest) *kmsg.WriteTxnMarkersResponse
	Buffers *batch.Pool
	Clock   clock.Clock
	Logger  *slog.Logger
}

// Coordinator is the transactional ids whose partition of __transaction_state this
// broker leads. Its methods may be called from any goroutine.
type Coordinator struct {
	o       Options
	rt      *coordinator.Runtime[*member, *txn.State, txn.Record]
	life    context.Context // ends with Stop
	end     context.CancelFunc
	markers *markers
	asks    *asks
}

// member is the core of one partition.
type member struct {
	core *txn.Core
	// over: the partition is not led any more, or has been loaded anew, be it in the
	// same epoch. Set in the loop, read anywhere.
	over atomic.Bool
	// spare is a producer id that nobody has, -1 for none; wanting: one is on its way.
	spare   int64
	wanting bool
}

type (
	write  = statemachine.Write[*txn.State, txn.Record]
	view   = statemachine.View[*txn.State]
	result = statemachine.Result[txn.Record]
)

// New makes a coordinator that leads nothing yet.
func New(o Options) *Coordinator {
	c := &Coordinator{o: o}
	c.life, c.end = context.WithCancel(context.Background())
	c.markers, c.asks = newMarkers(c), newAsks(c)
	c.rt = coordinator.New(coordinator.Options[*member, *txn.State, txn.Record]{
		Topic: Topic, Codec: codec{}, LoadBuffer: o.LoadBuffer, Compression: batch.None, BaseSequence: batch.NoSequence,
		Buffers: o.Buffers, Clock: o.Clock, Logger: o.Logger,
		Program: func(func(string, write)) coordinator.Program[*member, *txn.State, txn.Record] {
			return c.program(&member{core: txn.New(o.Config), spare: txn.NoProducerID})
		},
	})
	return c
}

func (c *Coordinator) program(m *member) coordinator.Program[*member, *txn.State, txn.Record] {
	return coordinator.Program[*member, *txn.State, txn.Record]{
		Core: m, Initial: txn.NewState(),
		Apply: func(s *txn.State, b statemachine.Batch[txn.Record]) (*txn.State, error) {
			return s.Apply(b.Records), nil
		},
		Activate: func(v view) (result, error) {
			return c.decide(m, v, m.spare, m.core.Activate), nil
		},
		Lost: func() { m.over.Store(true); m.core.Lost() },
		Due: func() (time.Time, string, write) {
			return m.core.Next(), "deadline", func(v view) (result, error) { return c.decide(m, v, m.spare, m.core.Due), nil }
		},
	}
}

// decide takes one step of a core with a producer id that it may use, -1 for none.
// When its records are committed, the markers of what has ended are sent.
func (c *Coordinator) decide(m *member, v view, id int64, take func(txn.Step) txn.Result) result {
	r := take(c.step(v, id))
	if r.WantID {
		c.want(m, c.Partition(v.State.Oldest().ID)) // some transaction is late
	}
	if c.unused(&r, id) {
		m.spare = id
	} else if m.spare == id {
		m.spare = txn.NoProducerID
	}
	return result{Records: r.Records, Done: func(err error) {
		if err != nil {
			return
		}
		for _, line := range r.Notes {
			c.o.Logger.Info("transaction coordinator: " + line)
		}
		for _, e := range r.Ended {
			m.core.Begin(c.step(v, txn.NoProducerID), e)
			c.markers.send(marker{mem: m, epoch: v.Epoch, e: e})
		}
		m.core.Committed(&r)
	}}
}

func (c *Coordinator) step(v view, id int64) txn.Step {
	return txn.Step{Now: c.o.Clock.Now(), State: v.State, Level: c.o.Image().Features().Level(image.FeatureTransaction), NewID: id}
}

// unused tells that a step had a producer id and did not take it.
func (c *Coordinator) unused(r *txn.Result, id int64) bool {
	if id == txn.NoProducerID {
		return false
	}
	for i := range r.Records {
		if t := r.Records[i].Txn; t != nil && (t.ProducerID == id || t.Next == id) {
			return false
		}
	}
	return true
}

// want gets a producer id for the next step of m, which is of a partition.
func (c *Coordinator) want(m *member, part int32) {
	if m.wanting {
		return
	}
	m.wanting = true
	go func() {
		ctx, cancel := context.WithTimeout(c.life, c.o.Timeout)
		defer cancel()
		id, err := c.o.NewID(ctx)
		if err != nil {
			c.o.Logger.Warn("transaction coordinator: no producer id", "err", err)
			id = txn.NoProducerID
		}
		c.rt.Submit(part, "producer id", func(now *member, _ view) (result, error) {
			if now != m {
				return result{}, nil // loaded anew: that one asks for itself
			}
			m.wanting = false
			if m.spare == txn.NoProducerID {
				m.spare = id
			}
			return result{}, nil
		}, func(_ any, err error) {
			if err != nil {
				c.o.Logger.Debug("transaction coordinator: a producer id came too late", "err", err)
			}
		})
	}()
}

// Leads and LeadsNot follow the leaderships of __transaction_state.
func (c *Coordinator) Leads(r *partition.Replica, epoch int32) { c.rt.Leads(r, epoch) }

// LeadsNot ends what Leads began.
func (c *Coordinator) LeadsNot(r *partition.Replica) { c.rt.LeadsNot(r) }

// Stop ends everything.
func (c *Coordinator) Stop() {
	c.end()
	c.rt.Stop()
	c.markers.stop()
	c.asks.stop()
}

// Partition is the partition of __transaction_state that a transactional id belongs to.
func (c *Coordinator) Partition(id string) int32 {
	n := c.o.Partitions
	if t, ok := c.o.Image().Topic(Topic); ok {
		n = int32(t.NumPartitions())
	}
	return coordinator.PartitionOf(id, n)
}

// errNotCommitted ends the wait for a commit that has taken too long. What was
// appended stays: it may be committed yet, and a repeat then finds it done.
var errNotCommitted = errors.New("not committed in time")

// kindOf is what a producer is told of an error of the log.
func kindOf(err error) *kerr.Error {
	if errors.Is(err, errNotCommitted) {
		return kerr.CoordinatorNotAvailable
	}
	return coordinator.KindOf(err)
}
