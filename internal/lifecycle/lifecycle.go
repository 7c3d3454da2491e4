// Package lifecycle keeps a broker's place in the cluster: it registers with the
// active controller, sends heartbeats, is unfenced once it has caught up with
// the metadata log, and leaves by controlled shutdown, which moves its
// leaderships away first.
//
//	registering ─▶ fenced ─▶ running ─▶ stopping ─▶ stopped
//	     ▲           │          │
//	     └───────────┴──────────┘ STALE_BROKER_EPOCH: somebody else registered the id, or we were forgotten
//
// Heartbeats have their own goroutine and wait for nothing else, so a broker
// that is busy opening logs is not taken for dead.
//
// # A broker that was killed and is back at once
//
// The controller refuses a new incarnation of a broker while the session of the
// registered one lasts (DUPLICATE_BROKER_REGISTRATION), since that one may live. The
// one who can know is the new process: it holds the lock of the metadata directory,
// and a file there names the incarnations that held it before ([Options.Before]).
// Those have ended, because a process lets go of the lock only at its end. When the
// registered incarnation is one of them, this broker says for it what it could not
// say any more: a heartbeat with its epoch that wants to be fenced and to shut down.
// A Weir controller ends the session then. Apache Kafka's takes the leaderships away
// and lets the session run out.
//
// An incarnation that is not named there may be alive: the same id on another
// machine, on a copy of the directory (the file does not count in a copy), or of an
// Apache Kafka. It is not displaced. When it answers at one of its addresses, this
// process ends with an error that names both; when it is silent, its session decides.
package lifecycle

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/clock"
	"weir/internal/image"
	"weir/internal/uuid"
)

// Controller carries a request to the active controller.
type Controller interface {
	Do(ctx context.Context, req kmsg.Request) (kmsg.Response, error)
}

// Images gives the cluster as applied on this node.
type Images interface {
	Image() *image.Image
	// Current tells whether img holds everything that this node knows to be committed.
	Current(img *image.Image) bool
	WaitFor(ctx context.Context, ok func(*image.Image) bool) *image.Image
}

// Options is what a Lifecycle is made of.
type Options struct {
	NodeID      int32
	ClusterID   string
	Incarnation uuid.UUID // new at each start of the process
	// Before are incarnations of this broker whose processes have ended for sure.
	Before    []uuid.UUID
	Endpoints []image.Endpoint
	Features  func() []image.FeatureRange // what it supports, asked at each registration
	Rack      *string
	Dirs      []uuid.UUID // online log directories
	// Cordoned lists those of Dirs that take no new replicas; told by heartbeats (KIP-1066).
	Cordoned func() []uuid.UUID
	// PreviousEpoch is the broker epoch in .kafka_cleanshutdown, -1 when the last
	// stop was not clean (KIP-966).
	PreviousEpoch int64
	Controller    Controller
	Images        Images
	Interval      time.Duration // broker.heartbeat.interval.ms
	Clock         clock.Clock
	Logger        *slog.Logger
	// GiveUp tells that a controller that answers a request with err will go on to:
	// a broker that is stopping then leaves without its consent. Nil: never.
	GiveUp func(err error) bool
	// Answers tells whether a broker's process answers at an address with which it
	// is registered; nil: never.
	Answers func(ctx context.Context, b *image.Broker) bool
	// OfflineDirs lists log directories that have failed since the start.
	OfflineDirs func() []uuid.UUID
}

// Phase is where a broker is in its life.
type Phase uint8

// The phases.
const (
	Registering Phase = iota
	Fenced
	Running
	Stopping
	Stopped
)

func (p Phase) String() string {
	return [...]string{"registering", "fenced", "running", "stopping", "stopped"}[p]
}

// Lifecycle is one broker's. Its methods may be called from any goroutine.
type Lifecycle struct {
	o     Options
	epoch atomic.Int64 // registered broker epoch, -1 before
	phase atomic.Int32
	wake  chan struct{}
	// reported is the epoch of an earlier incarnation whose end the controller knows of;
	// used by Run alone.
	reported int64

	mu       sync.Mutex
	running  chan struct{} // closed when first unfenced
	stopped  chan struct{} // closed when the controller lets us go
	stopping bool
}

// New makes a Lifecycle; nothing happens before Run.
func New(o Options) *Lifecycle {
	l := &Lifecycle{o: o, wake: make(chan struct{}, 1), running: make(chan struct{}), stopped: make(chan struct{})}
	l.epoch.Store(-1)
	l.reported = -1
	return l
}

// Epoch is the registered broker epoch, -1 before the first registration.
func (l *Lifecycle) Epoch() int64 { return l.epoch.Load() }

// Phase tells where the broker is.
func (l *Lifecycle) Phase() Phase { return Phase(l.phase.Load()) }

// Running is closed when the broker is unfenced for the first time.
func (l *Lifecycle) Running() <-chan struct{} { return l.running }

// Wake sends a heartbeat at once: something that it tells has changed.
func (l *Lifecycle) Wake() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Shutdown asks the controller to move leaderships away and waits until it has,
// or until ctx ends: then the broker leaves all the same.
func (l *Lifecycle) Shutdown(ctx context.Context) error {
	l.mu.Lock()
	l.stopping = true
	l.mu.Unlock()
	if l.Phase() == Registering {
		return nil // the controller does not know us: nothing to move
	}
	l.Wake()
	select {
	case <-l.stopped:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("controlled shutdown not finished: %w", context.Cause(ctx))
	}
}

// Run registers and sends heartbeats until ctx ends. It returns an error only
// when this broker may not join: another cluster, or its id in use.
func (l *Lifecycle) Run(ctx context.Context) error {
	alarm := clock.NewAlarm(l.o.Clock, 0)
	defer alarm.Stop()
	var watch sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	watch.Go(func() { l.followLeavers(ctx) })
	defer watch.Wait()
	defer cancel()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-alarm.C:
		case <-l.wake:
		}
		again, err := l.step(ctx)
		if err != nil {
			return err
		}
		alarm.Set(again)
	}
}

// followLeavers sends a heartbeat at each change of the image while another broker
// shuts down in order: the controller lets that one go once all others have told
// that they know of the new leaders, and would else wait for their next heartbeat.
func (l *Lifecycle) followLeavers(ctx context.Context) {
	leaves := func(i *image.Image) bool {
		for b := range i.Brokers() {
			if b.InControlledShutdown && !b.Fenced && b.ID != l.o.NodeID {
				return true
			}
		}
		return false
	}
	for told := int64(-1); ctx.Err() == nil; {
		img := l.o.Images.WaitFor(ctx, func(i *image.Image) bool { return i.Provenance.Offset > told && leaves(i) })
		told = img.Provenance.Offset
		if ctx.Err() == nil && l.Phase() == Running {
			l.Wake()
		}
	}
}

// retryAfter is the pause after an answer that says to try again.
const retryAfter = 50 * time.Millisecond

// step sends what is due and returns the time to the next step.
func (l *Lifecycle) step(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, max(l.o.Interval, time.Second))
	defer cancel()
	switch l.Phase() {
	case Registering:
		return l.register(ctx)
	case Stopped:
		return l.o.Interval, nil
	}
	return l.heartbeat(ctx)
}

func (l *Lifecycle) register(ctx context.Context) (time.Duration, error) {
	// What we support is judged against what the cluster has finalized, so know that first, and all of it: a level may have
	// been raised by the last record of the log.
	known := func(i *image.Image) bool { return i.Features().Metadata > 0 && l.o.Images.Current(i) }
	if !known(l.o.Images.WaitFor(ctx, known)) {
		return retryAfter, nil
	}
	req := kmsg.NewPtrBrokerRegistrationRequest()
	req.Version = req.MaxVersion()
	req.BrokerID, req.ClusterID, req.IncarnationID = l.o.NodeID, l.o.ClusterID, l.o.Incarnation
	req.Rack, req.PreviousBrokerEpoch = l.o.Rack, l.o.PreviousEpoch
	for _, e := range l.o.Endpoints {
		n := kmsg.NewBrokerRegistrationRequestListener()
		n.Name, n.Host, n.Port, n.SecurityProtocol = e.Name, e.Host, e.Port, e.Protocol
		req.Listeners = append(req.Listeners, n)
	}
	for _, f := range l.o.Features() {
		n := kmsg.NewBrokerRegistrationRequestFeature()
		n.Name, n.MinSupportedVersion, n.MaxSupportedVersion = f.Name, f.Min, f.Max
		req.Features = append(req.Features, n)
	}
	for _, d := range l.o.Dirs {
		req.LogDirs = append(req.LogDirs, d)
	}
	r, err := l.o.Controller.Do(ctx, req)
	if err != nil {
		return retryAfter, nil // no controller yet
	}
	res := r.(*kmsg.BrokerRegistrationResponse)
	switch err := kerr.ErrorForCode(res.ErrorCode); {
	case err == nil:
	case res.ErrorCode == kerr.InconsistentClusterID.Code:
		return 0, fmt.Errorf("registration refused: this node belongs to cluster %s, the controller to another one", l.o.ClusterID)
	case res.ErrorCode == kerr.DuplicateBrokerRegistration.Code:
		return l.duplicate(ctx)
	case kerr.IsRetriable(err):
		return retryAfter, nil
	default:
		return 0, fmt.Errorf("registration of node %d refused: %w", l.o.NodeID, err)
	}
	l.epoch.Store(res.BrokerEpoch)
	l.phase.Store(int32(Fenced))
	l.o.Logger.Info("registered with the controller", "node", l.o.NodeID, "broker epoch", res.BrokerEpoch)
	// Kafka unfences a broker that has applied its own registration: wait for it rather than for the next interval.
	l.o.Images.WaitFor(ctx, func(i *image.Image) bool { return i.Provenance.Offset >= res.BrokerEpoch })
	return 0, nil
}

// duplicate judges a refusal because the session of an earlier incarnation is
// valid. One that is known to be dead is reported as gone. One that answers at its
// address is alive, and this broker must not take its place; of one that does not,
// the session ends some time.
func (l *Lifecycle) duplicate(ctx context.Context) (time.Duration, error) {
	other, ok := l.o.Images.Image().Broker(l.o.NodeID)
	if !ok { // this node's image is behind
		return retryAfter, nil
	}
	if slices.Contains(l.o.Before, other.Incarnation) && l.reported != other.Epoch {
		return l.reportGone(ctx, other), nil
	}
	if other.Incarnation != l.o.Incarnation && l.o.Answers != nil && l.o.Answers(ctx, other) {
		return 0, fmt.Errorf("registration refused: node id %d is in use by a broker that is alive: incarnation %s at %s, this one is %s at %s",
			l.o.NodeID, other.Incarnation, places(other.Endpoints), l.o.Incarnation, places(l.o.Endpoints))
	}
	l.o.Logger.Warn("another broker with this node id is registered, and its session has not ended: waiting for that", "node", l.o.NodeID,
		"registered", other.Incarnation, "at", places(other.Endpoints), "this", l.o.Incarnation)
	return retryDuplicate, nil
}

// reportGone tells the controller that an earlier incarnation has ended (see the
// package comment) and returns when to register again, which shows whether it was
// understood.
func (l *Lifecycle) reportGone(ctx context.Context, dead *image.Broker) time.Duration {
	req := kmsg.NewPtrBrokerHeartbeatRequest()
	req.Version = req.MaxVersion()
	req.BrokerID, req.BrokerEpoch = dead.ID, dead.Epoch
	req.CurrentMetadataOffset = l.o.Images.Image().Provenance.Offset
	req.WantFence, req.WantShutdown = true, true
	for _, d := range dead.CordonedDirs {
		req.CordonedLogDirs = append(req.CordonedLogDirs, d)
	}
	r, err := l.o.Controller.Do(ctx, req)
	if err != nil {
		l.o.Logger.Debug("the end of an earlier process could not be told", "err", err)
		return retryAfter
	}
	code := r.(*kmsg.BrokerHeartbeatResponse).ErrorCode
	if code != 0 && code != kerr.StaleBrokerEpoch.Code { // with that, its session has ended meanwhile
		l.o.Logger.Debug("the end of an earlier process was not taken note of", "err", kerr.ErrorForCode(code))
		return retryAfter
	}
	l.reported = dead.Epoch
	l.o.Logger.Info("told the controller that the process before this one has ended", "incarnation", dead.Incarnation, "broker epoch", dead.Epoch, "answer", code)
	return 0
}

// retryDuplicate is the pause before a registration is tried again that met the
// session of an earlier incarnation.
const retryDuplicate = 500 * time.Millisecond

func places(list []image.Endpoint) string {
	var out []string
	for _, e := range list {
		out = append(out, e.Name+"://"+net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port))))
	}
	return strings.Join(out, ",")
}

func (l *Lifecycle) heartbeat(ctx context.Context) (time.Duration, error) {
	l.mu.Lock()
	stopping := l.stopping
	l.mu.Unlock()
	req := kmsg.NewPtrBrokerHeartbeatRequest()
	req.Version = req.MaxVersion()
	req.BrokerID, req.BrokerEpoch = l.o.NodeID, l.epoch.Load()
	req.CurrentMetadataOffset = l.o.Images.Image().Provenance.Offset
	req.WantShutdown = stopping
	for _, d := range l.o.OfflineDirs() {
		req.OfflineLogDirs = append(req.OfflineLogDirs, d)
	}
	for _, d := range l.o.Cordoned() {
		req.CordonedLogDirs = append(req.CordonedLogDirs, d)
	}
	r, err := l.o.Controller.Do(ctx, req)
	if err != nil && stopping && l.Phase() != Stopped && l.o.GiveUp != nil && l.o.GiveUp(err) {
		l.o.Logger.Warn("leaving without the controller's consent", "err", err)
		l.leave()
	}
	if err != nil {
		return retryAfter, nil
	}
	res := r.(*kmsg.BrokerHeartbeatResponse)
	switch err := kerr.ErrorForCode(res.ErrorCode); {
	case err == nil:
	case res.ErrorCode == kerr.StaleBrokerEpoch.Code || res.ErrorCode == kerr.BrokerIDNotRegistered.Code:
		l.o.Logger.Warn("the controller no longer knows this broker epoch: registering again", "broker epoch", req.BrokerEpoch)
		l.phase.Store(int32(Registering))
		return 0, nil
	default:
		return retryAfter, nil
	}
	return l.heard(ctx, res, req.CurrentMetadataOffset), nil
}

// heard takes the controller's view of this broker.
func (l *Lifecycle) heard(ctx context.Context, res *kmsg.BrokerHeartbeatResponse, told int64) time.Duration {
	switch {
	case res.ShouldShutdown:
		if l.Phase() != Stopped {
			l.leave()
		}
		return l.o.Interval
	case l.Phase() == Stopping || l.isStopping():
		l.phase.Store(int32(Stopping))
	case res.IsFenced:
		l.phase.Store(int32(Fenced))
	case l.Phase() == Fenced && l.appliedUnfenced():
		l.phase.Store(int32(Running))
		l.mu.Lock()
		select {
		case <-l.running:
		default:
			close(l.running)
		}
		l.mu.Unlock()
	}
	if l.Phase() == Running {
		return l.o.Interval
	}
	if l.Phase() == Stopping { // what the controller waits for does not show in the image
		return retryAfter
	}
	// Fenced: the controller waits for our offset, so tell it as soon as it changes.
	wait, cancel := context.WithTimeout(ctx, l.o.Interval)
	defer cancel()
	if l.o.Images.WaitFor(wait, func(i *image.Image) bool { return i.Provenance.Offset > told }).Provenance.Offset > told {
		return 0
	}
	return retryAfter
}

// leave ends Shutdown's wait; once.
func (l *Lifecycle) leave() {
	l.phase.Store(int32(Stopped))
	close(l.stopped)
}

// appliedUnfenced tells whether this node's own image has the unfencing, and with
// it the leaders that were elected because of it. The controller answers when it
// is committed, which is a moment before it is applied here; a client that came
// in between would be told that partitions have no leader.
func (l *Lifecycle) appliedUnfenced() bool {
	b, ok := l.o.Images.Image().Broker(l.o.NodeID)
	return ok && b.Epoch == l.epoch.Load() && !b.Fenced
}

func (l *Lifecycle) isStopping() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stopping
}
