package coordinator

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
	"weir/internal/group"
	"weir/internal/group/classic"
	"weir/internal/group/hashorder"
	"weir/internal/image"
	"weir/internal/partition"
	"weir/internal/rng"
	"weir/internal/statemachine"
	"weir/internal/storage"
)

// OffsetsTopic is where groups and committed offsets are kept.
const OffsetsTopic = "__consumer_offsets"

// GroupsOptions is what Groups is made of.
type GroupsOptions struct {
	Config     *group.Config
	Partitions int32 // offsets.topic.num.partitions: until the topic exists
	// Timeout is offsets.commit.timeout.ms: how long a write may wait for its commit.
	Timeout     time.Duration
	LoadBuffer  int         // offsets.load.buffer.size
	Compression batch.Codec // offsets.topic.compression.codec
	Image       func() *image.Image
	Txns        Verifier
	Buffers     *batch.Pool
	Clock       clock.Clock
	Rand        *rng.Source
	Logger      *slog.Logger
}

// Groups is the group coordinator of this broker: the groups whose partition of
// __consumer_offsets it leads.
type Groups struct {
	o  GroupsOptions
	rt *Runtime[*member, *group.State, group.Record]
	// seen is the image that Apply was given last: consumer groups are told of what
	// has changed in it, and then must not see an older one. newTopics is the offset
	// of the newest image in which a topic was created.
	seen      atomic.Pointer[image.Image]
	newTopics atomic.Int64
	// resolving is held while regular expressions are looked up: those of one group at
	// a time, as each may take much memory.
	resolving chan struct{}
}

// NewGroups makes a coordinator that leads nothing yet.
func NewGroups(o GroupsOptions) *Groups {
	g := &Groups{o: o, resolving: make(chan struct{}, 1)}
	dice := make(chan *rng.Source, 1) // whoever starts a partition takes its own dice out of it
	dice <- o.Rand
	g.rt = New(Options[*member, *group.State, group.Record]{
		Topic: OffsetsTopic, Codec: groupCodec{}, LoadBuffer: o.LoadBuffer, Compression: o.Compression,
		Buffers: o.Buffers, Clock: o.Clock, Logger: o.Logger,
		Program: func(post func(string, groupWrite)) Program[*member, *group.State, group.Record] {
			source := <-dice
			own := source.Split()
			dice <- source
			return g.program(&member{core: group.New(o.Config, own), post: post})
		},
	})
	return g
}

// member is the core of one partition.
type member struct {
	core *group.Core
	post func(name string, w groupWrite)
	// waiting are the writes that are not known to be committed, oldest first.
	// Those that have been told of their fate may stand in it, too.
	waiting []*awaited
}

// awaited is a write that waits for its commit, for offsets.commit.timeout.ms at
// most. What it has appended stays: it may be committed yet (Kafka's
// CoordinatorRuntime does the same).
type awaited struct {
	until time.Time
	told  bool
	fate  func(err error)
}

func (w *awaited) end(err error) {
	if !w.told {
		w.told = true
		w.fate(err)
	}
}

// await has fate called once: when the write is committed (nil), has failed, or
// has waited for too long. What it returns is the write's Done.
func (g *Groups) await(m *member, v groupView, fate func(err error)) func(error) {
	w := &awaited{until: v.Now.Add(g.o.Timeout), fate: fate}
	m.waiting = append(m.waiting, w)
	return w.end
}

// next is when the oldest write will have waited for too long, zero when none waits.
func (m *member) next() time.Time {
	for len(m.waiting) > 0 && m.waiting[0].told {
		m.waiting[0] = nil
		m.waiting = m.waiting[1:]
	}
	if len(m.waiting) == 0 {
		m.waiting = nil
		return time.Time{}
	}
	return m.waiting[0].until
}

// giveUp ends the writes that have waited for too long.
func (m *member) giveUp(now time.Time) {
	for !m.next().IsZero() && !m.next().After(now) {
		m.waiting[0].end(errNotCommitted)
	}
}

// errNotCommitted ends a write that has waited for offsets.commit.timeout.ms.
var errNotCommitted = errors.New("not committed in time")

type (
	groupWrite  = statemachine.Write[*group.State, group.Record]
	groupView   = statemachine.View[*group.State]
	groupResult = statemachine.Result[group.Record]
)

func (g *Groups) program(m *member) Program[*member, *group.State, group.Record] {
	return Program[*member, *group.State, group.Record]{
		Core: m, Initial: group.NewState(),
		Apply: func(s *group.State, b statemachine.Batch[group.Record]) (*group.State, error) {
			return s.Apply(b.Base, b.Records), nil
		},
		Activate: func(v groupView) (groupResult, error) { return g.decide(m, v, m.core.Activate) },
		Lost:     func() { give(m.core.Lost()) },
		Due: func() (time.Time, string, groupWrite) {
			at := m.core.Next()
			if w := m.next(); !w.IsZero() && (at.IsZero() || w.Before(at)) {
				return w, "commit timeout", func(v groupView) (groupResult, error) { m.giveUp(v.Now); return groupResult{}, nil }
			}
			return at, "deadline", func(v groupView) (groupResult, error) { return g.decide(m, v, m.core.Due) }
		},
	}
}

// decide takes one step of a core. When its records are committed, or are not in
// time, the answers are given and the step that follows is taken.
func (g *Groups) decide(m *member, v groupView, step func(group.Step) group.Result) (groupResult, error) {
	r := step(g.step(v))
	if r.Resolve != nil {
		g.resolve(r.Resolve)
	}
	for _, line := range r.Notes {
		g.o.Logger.Info("group coordinator: " + line)
	}
	for _, w := range r.Waits {
		g.logWaiting(w)
	}
	for i := range r.Records {
		r.Records[i].Delta = int32(i)
	}
	return groupResult{Records: r.Records, Atomic: r.Atomic, Done: g.await(m, v, func(err error) {
		refused := kindOf(err)
		for _, a := range r.Answers {
			if refused != nil {
				a = group.Refuse(a, refused)
			}
			a.To(a.Response)
		}
		if r.Then == nil {
			return
		}
		m.post("follow-up", func(v groupView) (groupResult, error) {
			return g.decide(m, v, func(s group.Step) group.Result {
				out := r.Then(s, refused)
				if refused != nil {
					// What tells of a failure has nothing to wait for.
					give(out.Answers)
					out.Answers = nil
				}
				return out
			})
		})
	})}, nil
}

// step is the moment of a view.
func (g *Groups) step(v groupView) group.Step {
	return group.Step{Now: v.Now, State: v.State, Image: g.image(), NewTopicsAt: g.newTopics.Load()}
}

// image is the cluster as consumer groups see it.
func (g *Groups) image() *image.Image {
	if img := g.seen.Load(); img != nil {
		return img
	}
	return g.o.Image()
}

// logWaiting says whom a rebalance waits for, since when and until when.
func (g *Groups) logWaiting(w *classic.Missing) {
	attrs := []any{"group", w.Group, "state", w.State.String(), "generation", w.Generation, "members", w.Names(), "since", w.Since, "for", w.For.Round(time.Millisecond)}
	if !w.Until.IsZero() {
		attrs = append(attrs, "until", w.Until)
	}
	if w.Why != "" {
		attrs = append(attrs, "reason", w.Why)
	}
	g.o.Logger.Info("group coordinator: a rebalance waits for members", attrs...)
}

func give(answers []classic.Answer) {
	for _, a := range answers {
		a.To(a.Response)
	}
}

// kindOf is what a group's member is told of an error of the log, as Kafka's
// coordinator translates them; nil for none.
func kindOf(err error) *kerr.Error {
	var (
		known   *kerr.Error
		few     *partition.NotEnoughReplicasError
		disk    *storage.DiskError
		damaged *storage.CorruptError
	)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return known
	case errors.Is(err, ErrLoading):
		return kerr.CoordinatorLoadInProgress
	case errors.Is(err, ErrNotCoordinator), errors.Is(err, statemachine.ErrNotLeader), errors.Is(err, statemachine.ErrStopped),
		errors.As(err, &disk), errors.As(err, &damaged), errors.Is(err, storage.ErrNoSpace), errors.Is(err, storage.ErrClosed):
		return kerr.NotCoordinator
	case errors.Is(err, storage.ErrInvalidEpoch):
		return kerr.InvalidProducerEpoch
	case errors.Is(err, storage.ErrInvalidTxnState):
		return kerr.InvalidTxnState
	case errors.Is(err, storage.ErrCoordinatorFenced):
		return kerr.TransactionCoordinatorFenced
	case errors.As(err, &few), errors.Is(err, errNotCommitted), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return kerr.CoordinatorNotAvailable
	}
	return kerr.UnknownServerError
}

// Leads and LeadsNot follow the leaderships of __consumer_offsets.
func (g *Groups) Leads(r *partition.Replica, epoch int32) { g.rt.Leads(r, epoch) }

// LeadsNot ends what Leads began.
func (g *Groups) LeadsNot(r *partition.Replica) { g.rt.LeadsNot(r) }

// Stop ends everything.
func (g *Groups) Stop() { g.rt.Stop() }

// Partition is the partition of __consumer_offsets that a group belongs to.
func (g *Groups) Partition(id string) int32 {
	n := g.o.Partitions
	if t, ok := g.o.Image().Topic(OffsetsTopic); ok {
		n = int32(t.NumPartitions())
	}
	return PartitionOf(id, n)
}

// PartitionOf is the partition, of n, that Kafka gives to a group or transactional id.
func PartitionOf(id string, n int32) int32 {
	h := hashorder.String(id)
	if h == -1<<31 {
		return 0 // Java's abs of it is negative; Kafka takes 0
	}
	return max(h, -h) % n
}

// ask has a group's partition take a step, and waits for the answer to it. A
// request that is parked in the group is answered whenever its time comes.
func (g *Groups) ask(ctx context.Context, id, name string, step func(c *group.Core, s group.Step, to classic.Waiter) group.Result) (kmsg.Response, *kerr.Error) {
	answer := make(chan kmsg.Response, 1)
	to := func(r kmsg.Response) {
		select {
		case answer <- r:
		default: // it has been answered
		}
	}
	failed := make(chan error, 1)
	g.rt.Submit(g.Partition(id), name, func(m *member, v groupView) (groupResult, error) {
		return g.decide(m, v, func(s group.Step) group.Result { return step(m.core, s, to) })
	}, func(_ any, err error) {
		if err != nil {
			failed <- err
		}
	})
	// An answer that is there already is taken before an error of the same step:
	// it is in the shape of the request.
	select {
	case r := <-answer:
		return r, nil
	default:
	}
	select {
	case r := <-answer:
		return r, nil
	case err := <-failed:
		select {
		case r := <-answer:
			return r, nil
		default:
		}
		return nil, kindOf(err)
	case <-ctx.Done():
		return nil, kerr.CoordinatorNotAvailable
	}
}
