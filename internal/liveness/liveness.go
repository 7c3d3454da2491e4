// Package liveness notices within milliseconds that a broker's process has ended.
//
// Every controller keeps a connection to each unfenced broker. When it closes,
// the broker is dialed again. The one proof of death is a refused connection
// (ECONNREFUSED) at an address that has answered in the same broker epoch: the
// operating system says that nobody listens there any more. Silence, an
// unreachable host or a name that does not resolve prove nothing, and the session
// timeout decides, as in Apache Kafka.
//
// The active controller fences what is dead, all of it in one batch. A broker
// that was fenced so and comes back in the same epoch was alive: for a while only
// timeouts decide about it (availability C3, (a) to (c)).
package liveness

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/clock"
	"weir/internal/controller"
	"weir/internal/image"
	"weir/internal/peer"
)

// Options is what a Watch is made of.
type Options struct {
	NodeID int32 // this controller's, whose own broker is not watched
	// Addresses lists where other brokers reach b, as host:port.
	Addresses func(b *image.Broker) []string
	// Active tells whether this node is the active controller.
	Active func() bool
	// Fence fences brokers as the active controller, and returns when that is
	// committed.
	Fence  func(ctx context.Context, dead []controller.BrokerRef) error
	Dial   func(ctx context.Context, address string) (net.Conn, error) // nil: TCP
	Clock  clock.Clock
	Logger *slog.Logger
}

const (
	// trustAgain is how long only timeouts decide about a broker that was taken for
	// dead and was not.
	trustAgain = 5 * time.Minute
	// The pauses between attempts to reach a broker that is silent.
	firstPause, lastPause = 100 * time.Millisecond, 5 * time.Second
	// gather is how long the first of a batch of the dead waits for others: nodes of
	// one machine end together, and each batch costs a commit.
	gather = 2 * time.Millisecond
	// fenceTimeout bounds one batch's commit; it is tried again.
	fenceTimeout = 5 * time.Second
)

// Watch watches all brokers. Its methods may be called from any goroutine.
type Watch struct {
	o      Options
	wrong  atomic.Int64
	wake   chan struct{}
	probes sync.WaitGroup

	mu       sync.Mutex
	brokers  map[int32]*watched
	fenced   map[int32]int64     // id → epoch that was fenced as dead
	distrust map[int32]time.Time // no proof counts before
	fencing  bool
	goneAt   time.Time // when the first of a batch was found; zero: none
}

// watched is one unfenced broker in one epoch.
type watched struct {
	ref     controller.BrokerRef
	client  *peer.Client
	up      bool // connected, as far as is known
	gone    bool // its process has ended
	probing bool
	next    time.Time
	pause   time.Duration
}

// New makes a Watch that knows no broker.
func New(o Options) *Watch {
	if o.Dial == nil {
		o.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", address)
		}
	}
	return &Watch{o: o, wake: make(chan struct{}, 1), brokers: map[int32]*watched{}, fenced: map[int32]int64{}, distrust: map[int32]time.Time{}}
}

// Wrong counts brokers that were fenced as dead and were alive.
func (w *Watch) Wrong() int64 { return w.wrong.Load() }

func (w *Watch) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Apply takes a new image; see quorum.Subscriber.
func (w *Watch) Apply(img *image.Image, d *image.Delta) {
	ids := d.ChangedBrokers()
	if len(ids) == 0 {
		return
	}
	w.mu.Lock()
	var closed []*peer.Client
	for _, id := range ids {
		if id == w.o.NodeID {
			continue
		}
		b, ok := img.Broker(id)
		if old := w.brokers[id]; old != nil && (!ok || b.Fenced || b.Epoch != old.ref.Epoch) {
			closed = append(closed, old.client)
			delete(w.brokers, id)
		}
		if !ok || b.Epoch != w.fenced[id] {
			delete(w.fenced, id)
			delete(w.distrust, id)
		}
		if ok && !b.Fenced && w.brokers[id] == nil {
			w.watchLocked(b)
		}
	}
	w.mu.Unlock()
	for _, c := range closed {
		c.Close()
	}
	w.poke()
}

func (w *Watch) watchLocked(b *image.Broker) {
	ref := controller.BrokerRef{ID: b.ID, Epoch: b.Epoch}
	if epoch, ok := w.fenced[b.ID]; ok && epoch == b.Epoch {
		delete(w.fenced, b.ID)
		w.distrust[b.ID] = w.o.Clock.Now().Add(trustAgain)
		w.wrong.Add(1)
		w.o.Logger.Warn("a broker was fenced because it refused connections, and is alive: for now only its session timeout decides", "broker", b.ID, "broker epoch", b.Epoch, "for", trustAgain)
	}
	x := &watched{ref: ref}
	addresses := w.o.Addresses(b)
	x.client = peer.New(peer.Options{
		Node: b.ID, ClientID: "liveness", Addresses: func() []string { return addresses }, Clock: w.o.Clock, Logger: w.o.Logger,
		Dial: func(ctx context.Context, address string) (net.Conn, error) {
			c, err := w.o.Dial(ctx, address)
			if err != nil {
				return nil, err
			}
			return &told{Conn: c, closed: func() { w.lost(x) }}, nil
		},
	})
	w.brokers[b.ID] = x
}

// told is a connection whose end is told.
type told struct {
	net.Conn
	once   sync.Once
	closed func()
}

// Close closes the connection and tells.
func (c *told) Close() error {
	err := c.Conn.Close()
	c.once.Do(c.closed)
	return err
}

// lost notes that a connection has ended.
func (w *Watch) lost(x *watched) {
	w.mu.Lock()
	if x.up {
		x.up, x.next, x.pause = false, time.Time{}, 0
	}
	w.mu.Unlock()
	w.poke()
}

// Lead lets everything that is not connected be looked at anew: this node has
// become the active controller. What it found dead may be so long ago, and found so
// by it alone.
func (w *Watch) Lead() {
	w.mu.Lock()
	for _, x := range w.brokers {
		if !x.up {
			x.gone, x.next, x.pause = false, time.Time{}, 0
		}
	}
	w.mu.Unlock()
	w.poke()
}

// Run watches until ctx ends.
func (w *Watch) Run(ctx context.Context) error {
	defer w.close()
	for {
		over, stop := clock.After(w.o.Clock, w.step(ctx))
		select {
		case <-ctx.Done():
			stop()
			return nil
		case <-w.wake:
		case <-over:
		}
		stop()
	}
}

func (w *Watch) close() {
	w.mu.Lock()
	clients := make([]*peer.Client, 0, len(w.brokers))
	for _, x := range w.brokers {
		clients = append(clients, x.client)
	}
	w.mu.Unlock()
	for _, c := range clients {
		c.Close()
	}
	w.probes.Wait()
}

// step starts what is due and returns when to look again.
func (w *Watch) step(ctx context.Context) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.o.Clock.Now()
	next := time.Duration(math.MaxInt64)
	var dead []controller.BrokerRef
	for _, x := range w.brokers {
		if wait := w.distrust[x.ref.ID].Sub(now); wait > 0 {
			next = min(next, wait)
			continue
		}
		if !x.up && !x.probing && !x.gone {
			if wait := x.next.Sub(now); wait > 0 {
				next = min(next, wait)
			} else {
				x.probing = true
				w.probes.Go(func() { w.probe(ctx, x) })
			}
		}
		if x.gone {
			dead = append(dead, x.ref)
		}
	}
	switch {
	case len(dead) == 0:
		w.goneAt = time.Time{}
	case w.fencing || !w.o.Active():
	case now.Sub(w.goneAt) < gather:
		next = min(next, gather-now.Sub(w.goneAt))
	default:
		w.fencing = true
		for _, ref := range dead { // before the image can say so, and that they are back
			w.fenced[ref.ID] = ref.Epoch
		}
		slices.SortFunc(dead, func(a, b controller.BrokerRef) int { return int(a.ID) - int(b.ID) })
		w.probes.Go(func() { w.fence(ctx, dead) })
	}
	return next
}

// probe connects to a broker, if it can.
func (w *Watch) probe(ctx context.Context, x *watched) {
	_, err := x.client.Version(ctx, int16(kmsg.ApiVersions), 0)
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.poke()
	x.probing = false
	switch now := w.o.Clock.Now(); {
	case err == nil && x.client.Connected():
		x.up = true
	case peer.IsGone(err):
		x.gone = true
		if w.goneAt.IsZero() {
			w.goneAt = now
		}
		w.o.Logger.Info("a broker's process has ended", "broker", x.ref.ID, "broker epoch", x.ref.Epoch, "err", err)
	default:
		x.pause = min(max(x.pause*2, firstPause), lastPause)
		x.next = now.Add(x.pause)
	}
}

// fence has the dead fenced. When that fails, as while another controller takes
// over, it is tried again by who is active then.
func (w *Watch) fence(ctx context.Context, dead []controller.BrokerRef) {
	limited, cancel := context.WithTimeout(ctx, fenceTimeout)
	defer cancel()
	err := w.o.Fence(limited, dead)
	if err != nil && ctx.Err() == nil && !errors.Is(err, context.Canceled) {
		w.o.Logger.Info("brokers that are dead could not be fenced yet", "brokers", dead, "err", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.poke()
	w.fencing = false
	for _, ref := range dead {
		x := w.brokers[ref.ID]
		if err != nil && w.fenced[ref.ID] == ref.Epoch {
			delete(w.fenced, ref.ID)
		}
		if x != nil && x.ref == ref { // look again before it is said a second time
			x.gone, x.pause = false, firstPause
			x.next = w.o.Clock.Now().Add(firstPause)
		}
	}
}
