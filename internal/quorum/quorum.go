// Package quorum joins the metadata log with those who use it on one node:
//
//	                 ┌─▶ statemachine ─▶ controller.Core     (controllers: decide)
//	metalog ─────────┤
//	  committed      └─▶ feed ─▶ image.Loader ─▶ subscribers ─▶ Images   (all: follow)
//
// A Node runs the controller core while this node leads the quorum, turns
// requests into its steps, and publishes every committed image to the broker. It
// writes snapshots of the image when the log has grown.
package quorum

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/internal/clock"
	"weir/internal/controller"
	"weir/internal/image"
	"weir/internal/kraft"
	"weir/internal/metalog"
	"weir/internal/peer"
	"weir/internal/records"
	"weir/internal/rng"
	"weir/internal/statemachine"
)

// Options is what a Node is made of.
type Options struct {
	NodeID    int32
	ClusterID string
	// Join keeps this controller's place among the voters; nil for a broker alone.
	Join *JoinOptions
	Log  *metalog.Log
	Book *Book
	Core *controller.Core // nil: a broker alone, which follows and never decides
	// Transport is what the log was opened with; nil: a quorum of this node alone.
	Transport *Transport
	// Dial opens connections to controllers; nil: TCP.
	Dial DialFunc
	// Activated is told that this node has become the active controller; it must not
	// block. Nil: nobody is.
	Activated func()
	// RequestTimeout bounds a dial of a controller.
	RequestTimeout time.Duration
	Rand           *rng.Source // owned by the Node from now on
	Clock          clock.Clock
	Logger         *slog.Logger
	// Snapshots are written after so many bytes of records, or so much time.
	SnapshotBytes    int64         // metadata.log.max.record.bytes.between.snapshots
	SnapshotInterval time.Duration // metadata.log.max.snapshot.interval.ms; 0: no limit
	// AtomicBytes is how many bytes of records that must become visible together go
	// into one batch; more are wrapped in a metadata transaction. 0: 1 MiB, which is
	// below every batch limit that Kafka accepts for its log.
	AtomicBytes int
}

// Node is the quorum side of one node.
type Node struct {
	o       Options
	machine *statemachine.Machine[*image.Image, records.Versioned]
	images  *Images
	subs    []Subscriber
	feed    feed
	loader  *image.Loader // used by the applying goroutine alone

	peers struct { // connections to other controllers
		sync.Mutex
		m      map[controllerKey]*peer.Client
		closed bool
	}

	leader  atomic.Pointer[kraft.LeaderAndEpoch]
	changes struct { // closed and replaced when the leader, or who is active, changes
		sync.Mutex
		c chan struct{}
	}

	unclean atomic.Int64 // elections that may have lost records, decided here

	snapshot struct { // bytes and at belong to the applying goroutine
		bytes int64
		at    time.Time
		due   chan *image.Image // holds at most one: writing it is the next thing to do
	}
}

// New makes a Node and registers it with the metadata log, which must not have
// been polled yet.
func New(o Options) *Node {
	if o.AtomicBytes == 0 {
		o.AtomicBytes = 1 << 20
	}
	n := &Node{o: o, images: newImages(o.Log.HighWatermark), loader: image.NewLoader(image.New())}
	n.feed.wake = make(chan struct{}, 1)
	n.snapshot.due = make(chan *image.Image, 1)
	n.changes.c = make(chan struct{})
	n.leader.Store(&kraft.LeaderAndEpoch{ID: kraft.None, Epoch: -1})
	if o.Core != nil {
		n.machine = n.newMachine()
	}
	o.Log.Register(listener{n})
	return n
}

func (n *Node) newMachine() *statemachine.Machine[*image.Image, records.Versioned] {
	o := n.o
	return statemachine.New(statemachine.Options[*image.Image, records.Versioned]{
		Name: "__cluster_metadata-0", Log: appender{o.Log}, Initial: image.New(),
		Apply: apply, Visible: (*image.Image).Visible, Activate: n.activate, Lost: o.Core.Deactivate,
		Clock: o.Clock, Logger: o.Logger,
	})
}

// Images is the cluster as applied on this node.
func (n *Node) Images() *Images { return n.images }

// Subscribe adds a subscriber; before Run.
func (n *Node) Subscribe(s Subscriber) { n.subs = append(n.subs, s) }

// Leader is the quorum's leader as far as this node knows.
func (n *Node) Leader() kraft.LeaderAndEpoch { return *n.leader.Load() }

// Active tells whether this node is the active controller.
func (n *Node) Active() bool { return n.machine != nil && n.machine.Epoch() >= 0 }

// Resign hands the leadership on, when this node leads a quorum with others in
// it, and returns when another node leads. An error says that none does yet.
func (n *Node) Resign(ctx context.Context) error {
	l := n.o.Log.Leader()
	if set, _ := n.o.Log.Voters(); l.ID != n.o.NodeID || set.Len() < 2 {
		return nil
	}
	n.o.Log.Resign(l.Epoch)
	for {
		changed := n.leaderChanged()
		if now := n.Leader(); now.Epoch > l.Epoch && now.ID != kraft.None {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Close ends the connections to other controllers; requests to them fail.
func (n *Node) Close() { n.closePeers() }

// Quorum describes the quorum as its leader sees it; ok is false elsewhere.
func (n *Node) Quorum() (kraft.Quorum, bool) { return n.o.Log.Quorum() }

// Run runs the log, the controller and the applying of images until ctx ends or
// one of them fails.
func (n *Node) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return n.o.Log.Run(ctx) })
	if n.machine != nil {
		g.Go(func() error { return n.machine.Run(ctx) })
	}
	if n.o.Join != nil {
		g.Go(func() error { return n.keepPlace(ctx, *n.o.Join) })
	}
	if n.o.Transport != nil {
		g.Go(func() error {
			select {
			case err := <-n.o.Transport.Wrong():
				return err
			case <-ctx.Done():
				return nil
			}
		})
	}
	g.Go(func() error { return n.follow(ctx) })
	g.Go(func() error { return n.writeSnapshots(ctx) })
	return g.Wait()
}

// appender lets the state machine write to the metadata log.
type appender struct{ log *metalog.Log }

func (a appender) Append(epoch int32, recs []records.Versioned, atomic bool) (int64, error) {
	last, err := a.log.Append(epoch, recs, atomic)
	var large *metalog.TooLargeError
	if errors.As(err, &large) || errors.Is(err, metalog.ErrNoSpace) {
		return last, fmt.Errorf("%w: %w", statemachine.ErrRefused, err)
	}
	return last, err
}
func (a appender) LogEnd() int64      { return a.log.LogEnd() }
func (a appender) Resign(epoch int32) { a.log.Resign(epoch) }

// apply is the state machine's: the image after a batch.
func apply(img *image.Image, b statemachine.Batch[records.Versioned]) (*image.Image, error) {
	d := image.NewDelta(img)
	for _, v := range b.Records {
		if err := d.Replay(v); err != nil {
			return nil, err
		}
	}
	return d.Apply(image.Provenance{Offset: b.Last, Epoch: b.Epoch, TimestampMs: b.TimestampMs}), nil
}

// listener is told by the metadata log what is committed.
type listener struct{ n *Node }

// Committed passes a batch to the controller and to the feed.
func (l listener) Committed(b metalog.Batch) error {
	if l.n.machine != nil {
		l.n.machine.Commit(statemachine.Batch[records.Versioned]{Base: b.Base, Last: b.Last, Epoch: b.Epoch, TimestampMs: b.TimestampMs, Records: b.Records})
	}
	l.n.feed.put(committed{records: b.Records, bytes: b.Bytes, prov: image.Provenance{Offset: b.Last, Epoch: b.Epoch, TimestampMs: b.TimestampMs}})
	return nil
}

// LoadSnapshot replaces the state on both sides.
func (l listener) LoadSnapshot(s metalog.Snapshot) error {
	var recs []records.Versioned
	for v, err := range s.Records {
		if err != nil {
			return err
		}
		recs = append(recs, v)
	}
	prov := image.Provenance{Offset: s.ID.Offset - 1, Epoch: s.ID.Epoch, TimestampMs: s.TimestampMs}
	loader := image.NewLoader(image.New())
	if err := loader.LoadSnapshot(each(recs), prov); err != nil {
		return err
	}
	img, _, ok := loader.Publish()
	if !ok {
		return fmt.Errorf("snapshot %v ends inside a metadata transaction", s.ID)
	}
	if l.n.machine != nil {
		l.n.machine.Load(img, prov.Offset, prov.Epoch)
	}
	l.n.feed.put(committed{snapshot: true, records: recs, prov: prov})
	return nil
}

// LeaderChanged starts or ends the controller.
func (l listener) LeaderChanged(le kraft.LeaderAndEpoch) error {
	l.n.leader.Store(&le)
	switch {
	case l.n.machine == nil:
	case le.ID == l.n.o.NodeID:
		l.n.machine.Lead(le.Epoch)
	default:
		l.n.machine.Follow()
	}
	l.n.announce()
	return nil
}

// leaderChanged returns a channel that is closed at the next change.
func (n *Node) leaderChanged() <-chan struct{} {
	n.changes.Lock()
	defer n.changes.Unlock()
	return n.changes.c
}

func (n *Node) announce() {
	n.changes.Lock()
	close(n.changes.c)
	n.changes.c = make(chan struct{})
	n.changes.Unlock()
}

func each(recs []records.Versioned) func(func(records.Versioned) bool) {
	return func(yield func(records.Versioned) bool) {
		for _, v := range recs {
			if !yield(v) {
				return
			}
		}
	}
}

// follow applies what is committed, in the order of the log. What has queued up
// meanwhile is applied in one step.
func (n *Node) follow(ctx context.Context) error {
	for {
		if _, err := n.applyFed(); err != nil {
			return err
		}
		select {
		case <-n.feed.wake:
		case <-ctx.Done():
			return nil
		}
	}
}

// applyFed applies what has queued up; false: nothing had.
func (n *Node) applyFed() (some bool, err error) {
	for _, c := range n.feed.take() {
		if err := n.replay(c); err != nil {
			return true, err
		}
		some = true
	}
	if img, d, ok := n.loader.Publish(); ok {
		n.tellLeaders(img, d)
		for _, s := range n.subs {
			s.Apply(img, d)
		}
		n.images.publish(img)
		n.maybeSnapshot(img)
	}
	return some, nil
}

func (n *Node) replay(c committed) error {
	if c.snapshot {
		n.snapshot.bytes, n.snapshot.at = 0, time.UnixMilli(c.prov.TimestampMs)
		return n.loader.LoadSnapshot(each(c.records), c.prov)
	}
	n.snapshot.bytes += int64(c.bytes)
	return n.loader.Replay(c.records, c.prov)
}

// maybeSnapshot writes a snapshot when the log since the last one is long or
// old enough. It is written beside the applying of records: the image does not
// change.
func (n *Node) maybeSnapshot(img *image.Image) {
	now := n.o.Clock.Now()
	if n.snapshot.at.IsZero() {
		n.snapshot.at = now
	}
	due := n.snapshot.bytes >= n.o.SnapshotBytes ||
		(n.o.SnapshotInterval > 0 && n.snapshot.bytes > 0 && now.Sub(n.snapshot.at) >= n.o.SnapshotInterval)
	if !due {
		return
	}
	select {
	case n.snapshot.due <- img:
		n.snapshot.bytes, n.snapshot.at = 0, now
	default: // the last one is still being written
	}
}

func (n *Node) writeSnapshots(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case img := <-n.snapshot.due:
			n.writeSnapshot(img)
		}
	}
}

func (n *Node) writeSnapshot(img *image.Image) {
	p := img.Provenance
	if err := n.o.Log.WriteSnapshot(p.Offset, p.Epoch, p.TimestampMs, img.Records); err != nil {
		// The log still holds everything: only the next start takes longer.
		n.o.Logger.Error("cannot write a metadata snapshot", "offset", p.Offset, "err", err)
		return
	}
	n.o.Logger.Info("metadata snapshot written", "offset", p.Offset, "epoch", p.Epoch)
}
