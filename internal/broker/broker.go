// Package broker puts a node together: it builds every part in order, starts
// them, and stops them in reverse. It decides nothing about requests or data.
//
//	storage/dirs     locks the log directories and recovers the logs
//	metalog, quorum  the metadata log, the controller, the cluster image
//	replication      the replicas, as the image says
//	api, network     controller listeners, then the clients'
//	lifecycle        registration and heartbeats
//
// The listeners for clients accept connections only when the broker is unfenced
// and its image has caught up: no client is told that a topic does not exist
// because this node has not heard of it yet (pain P23).
package broker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/internal/api"
	"weir/internal/batch"
	"weir/internal/clock"
	"weir/internal/config"
	"weir/internal/coordinator"
	"weir/internal/coordinator/txns"
	"weir/internal/image"
	"weir/internal/kraft"
	"weir/internal/lifecycle"
	"weir/internal/liveness"
	"weir/internal/loggers"
	"weir/internal/metalog"
	"weir/internal/metrics"
	"weir/internal/network"
	"weir/internal/quorum"
	"weir/internal/replication"
	"weir/internal/storage/cleaner"
	"weir/internal/storage/dirs"
	"weir/internal/vfs"
)

// Options is what a Broker is made of.
type Options struct {
	Static *config.Static
	Node   *config.Node
	FS     vfs.FS
	Clock  clock.Clock
	// Loggers are those of the parts; their levels change while the node runs.
	Loggers *loggers.Set
	// OpenFiles bounds the files that logs keep open.
	OpenFiles int
}

// Broker is one running node. A node that is only a controller has no cleaner,
// replicas, groups, lifecycle and clients; one that is only a broker no control.
type Broker struct {
	o       Options
	clock   clock.Clock
	logger  *slog.Logger
	buffers *batch.Pool

	cleaner   *cleaner.Cleaner
	dirs      *dirs.Set
	metalog   *metalog.Log
	transport *quorum.Transport
	quorum    *quorum.Node
	configs   api.Configs
	replicas  *replication.Manager
	groups    *coordinator.Groups
	txns      *txns.Coordinator
	ids       *api.ProducerIDs
	markers   *api.Markers
	lifecycle *lifecycle.Lifecycle
	liveness  *liveness.Watch
	clients   *network.Server
	control   *network.Server
	metrics   *metrics.Server
	peers     peers

	cancel context.CancelFunc
	parts  *errgroup.Group
	failed chan struct{} // closed when a part has failed
}

func (b *Broker) eff() *config.Effective { return b.configs.Effective() }

// Start builds a node and returns when it serves clients, or cannot. The caller
// then waits on Failed and ends with Shutdown.
func Start(ctx context.Context, o Options) (*Broker, error) {
	b := &Broker{o: o, clock: o.Clock, logger: o.Loggers.Logger(loggers.Broker), buffers: new(batch.Pool), failed: make(chan struct{})}
	err := b.start(ctx)
	if err != nil {
		return nil, errors.Join(err, b.abandon())
	}
	return b, nil
}

func (b *Broker) start(ctx context.Context) error {
	previousEpoch, err := b.openDirs(ctx)
	if err != nil {
		return err
	}
	if err := b.useReserve(); err != nil {
		return err
	}
	if err := b.openQuorum(); err != nil {
		return err
	}
	if err := b.openRoles(); err != nil {
		return err
	}
	if err := b.openNetwork(); err != nil {
		return err
	}
	if b.o.Node.Broker {
		b.openLifecycle(previousEpoch)
	}
	if err := b.openMetrics(); err != nil {
		return err
	}
	b.run()
	if b.o.Node.Broker {
		select {
		case <-b.lifecycle.Running():
		case <-b.failed:
			return b.parts.Wait()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		// The registration told the controller that we have caught up: the image holds every topic there is.
		b.unserved()
		b.fragile()
	}
	b.keepReserve()
	if b.o.Node.Broker {
		b.clients.Start()
	}
	return nil
}

// openRoles makes what a broker has and a controller alone has not.
func (b *Broker) openRoles() error {
	if !b.o.Node.Broker {
		c := newNodeConfigs(b.o.Static, b.o.Node.NodeID)
		b.configs = c
		b.quorum.Subscribe(c)
		b.quorum.Subscribe(dynamic{b, map[string]string{}})
		return nil
	}
	b.openTxns()
	if err := b.openGroups(); err != nil {
		return err
	}
	b.openReplicas()
	b.openCleaner()
	return nil
}

// run starts the parts, and lets other nodes in that speak to the controller.
func (b *Broker) run() {
	run, cancel := context.WithCancel(context.Background())
	b.cancel = cancel
	b.parts, run = errgroup.WithContext(run)
	b.parts.Go(func() error { return b.quorum.Run(run) })
	if b.o.Node.Broker {
		b.parts.Go(func() error { return b.replicas.Run(run) })
		b.parts.Go(func() error { return b.runCleaner(run) })
		b.parts.Go(func() error { return b.lifecycle.Run(run) })
	}
	if b.o.Node.Controller {
		b.parts.Go(func() error { return lifecycle.RegisterController(run, b.controllerRegistration()) })
		b.parts.Go(func() error { return b.liveness.Run(run) })
		b.control.Start()
	}
	context.AfterFunc(run, func() { close(b.failed) })
}

// Failed is closed when a part of the node has failed, or after Shutdown.
func (b *Broker) Failed() <-chan struct{} { return b.failed }

// Addresses are where clients connect, by listener; none for a controller alone.
func (b *Broker) Addresses() []image.Endpoint {
	if b.clients == nil {
		return nil
	}
	return reachable(b.o.Node.Advertised, b.clients)
}

// ClusterID is the id of the cluster.
func (b *Broker) ClusterID() string { return b.dirs.ClusterID() }

// Shutdown leaves the cluster and stops everything in reverse order: the broker
// first, while there is a controller to ask, then the leadership of the quorum.
// When ctx ends early the rest is done without waiting for others. The error is
// that of a part that had failed, or of what could not be closed.
func (b *Broker) Shutdown(ctx context.Context) error {
	epoch := int64(-1)
	var errs []error
	if b.o.Node.Broker {
		if b.o.Static.Bool("controlled.shutdown.enable") {
			b.leave(ctx)
		}
		errs = append(errs, b.clients.Shutdown(ctx))
		b.txns.Stop()
		b.groups.Stop()
		epoch = b.lifecycle.Epoch()
	}
	if b.o.Node.Controller {
		b.resign(ctx)
	}
	b.cancel()
	errs = append(errs, b.parts.Wait())
	errs = append(errs, b.closeNetwork(ctx)...)
	// The directories last: closing them gives back their locks, under which the metadata log still writes.
	errs = append(errs, b.metalog.Close(), b.dirs.Close(epoch))
	return errors.Join(errs...)
}

// closeNetwork ends what speaks to other nodes and to the log of metadata.
func (b *Broker) closeNetwork(ctx context.Context) []error {
	var errs []error
	for _, s := range b.servers() {
		errs = append(errs, s.Shutdown(ctx))
	}
	if b.metrics != nil {
		errs = append(errs, b.metrics.Shutdown(ctx))
	}
	if b.quorum != nil {
		b.quorum.Close()
	}
	if b.transport != nil {
		b.transport.Close()
	}
	return errs
}

// leave asks the controller to move leaderships away, for as long as there is a
// node that can.
func (b *Broker) leave(ctx context.Context) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go b.watchLeaving(ctx, cancel)
	if err := b.lifecycle.Shutdown(ctx); err != nil {
		b.logger.Warn("leaving without the controller's consent", "err", err)
	}
}

// leaderlessFor is how long a broker that stops waits for a controller while there
// is none: the last nodes of a cluster that is stopped never get one.
const leaderlessFor = 5 * time.Second

// watchLeaving ends the wait for the controller's consent when nothing can come of it.
func (b *Broker) watchLeaving(ctx context.Context, cancel context.CancelCauseFunc) {
	const look = 250 * time.Millisecond
	for leaderless := time.Duration(0); ; leaderless += look {
		if b.quorum.Leader().ID != kraft.None {
			leaderless = 0
		}
		if leaderless >= leaderlessFor {
			cancel(errors.New("the metadata quorum has no leader"))
			return
		}
		over, stop := clock.After(b.clock, look)
		select {
		case <-b.failed:
			stop()
			cancel(errors.New("a part of the node has failed"))
			return
		case <-ctx.Done():
			stop()
			return
		case <-over:
		}
	}
}

// abandon closes what a failed start has opened, without marking anything clean.
func (b *Broker) abandon() error {
	ctx, cancel := context.WithTimeout(context.Background(), abandonTimeout)
	defer cancel()
	var errs []error
	if b.cancel != nil {
		b.cancel()
		if err := b.parts.Wait(); err != nil {
			b.logger.Debug("stopped", "err", err)
		}
	}
	errs = append(errs, b.closeNetwork(ctx)...)
	if b.txns != nil {
		b.txns.Stop()
	}
	if b.groups != nil {
		b.groups.Stop()
	}
	if b.metalog != nil {
		errs = append(errs, b.metalog.Close())
	}
	if b.dirs != nil {
		errs = append(errs, b.dirs.Crash())
	}
	return errors.Join(errs...)
}

const abandonTimeout = 5 * time.Second

// unserved says which finalized features this node does not serve yet. Their
// records are kept.
func (b *Broker) unserved() {
	served := b.served()
	for name, level := range b.quorum.Images().Image().Features().All() {
		high := int16(0)
		for _, f := range served {
			if f.Name == name {
				high = f.Max
			}
		}
		if level > high {
			b.logger.Warn("the cluster has finalized a feature level that this node does not serve yet; its records are kept as they are",
				"feature", name, "level", level, "served", high)
		}
	}
}
