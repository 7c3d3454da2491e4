package broker

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"weir/internal/config"
	"weir/internal/controller"
	"weir/internal/kraft"
	"weir/internal/lifecycle"
	"weir/internal/liveness"
	"weir/internal/loggers"
	"weir/internal/metalog"
	"weir/internal/quorum"
	"weir/internal/rng"
	"weir/internal/uuid"
)

// openQuorum opens the metadata log, which a broker alone only follows, and joins
// the controller to it where there is one.
func (b *Broker) openQuorum() error {
	s, n := b.o.Static, b.o.Node
	meta := b.dirs.MetadataDir()
	voters := staticVoters(n)
	book := quorum.NewBook(n.ControllerListeners[0], voters)
	b.transport = quorum.NewTransport(quorum.TransportOptions{
		NodeID: n.NodeID, ClusterID: b.dirs.ClusterID(), Book: book, Static: ids(voters), Bootstrap: bootstrapServers(n),
		RequestTimeout: ms(s.Long("controller.quorum.request.timeout.ms")), Clock: b.clock, Logger: b.log(loggers.Controller),
	})
	var err error
	b.metalog, err = metalog.Open(metalog.Options{
		FS: b.o.FS, Dir: meta.Path, Self: kraft.Replica{ID: n.NodeID, Dir: meta.ID},
		Endpoints: controllerEndpoints(n), Voters: voters, Timeouts: timeouts(s), Limits: metadataLimits(s),
		Clock: b.clock, Rand: rng.System(), Logger: b.log(loggers.Controller), Transport: b.transport,
	})
	if err != nil {
		return fmt.Errorf("metadata log in %s: %w", filepath.Join(meta.Path, metalog.PartitionDir), err)
	}
	b.transport.Bind(b.metalog)
	o := quorum.Options{
		NodeID: n.NodeID, ClusterID: b.dirs.ClusterID(), Log: b.metalog, Book: book, Transport: b.transport, RequestTimeout: ms(s.Long("controller.quorum.request.timeout.ms")),
		Rand: rng.System(), Clock: b.clock, Logger: b.log(loggers.Controller),
		SnapshotBytes: s.Long("metadata.log.max.record.bytes.between.snapshots"), SnapshotInterval: ms(s.Long("metadata.log.max.snapshot.interval.ms")),
	}
	if n.Controller {
		o.Join = &quorum.JoinOptions{
			Self: kraft.Replica{ID: n.NodeID, Dir: meta.ID}, Endpoints: controllerEndpoints(n),
			Auto: s.Bool("controller.quorum.auto.join.enable"), Every: ms(s.Long("controller.quorum.fetch.timeout.ms")),
		}
		if o.Core, err = b.controllerCore(); err != nil {
			return err
		}
		b.liveness = liveness.New(liveness.Options{
			NodeID: n.NodeID, Addresses: everyAddress, Active: func() bool { return b.quorum.Active() },
			Fence: func(ctx context.Context, dead []controller.BrokerRef) error { return b.quorum.FenceDead(ctx, dead) },
			Clock: b.clock, Logger: b.log(loggers.Lifecycle),
		})
		o.Activated = b.liveness.Lead
	}
	b.quorum = quorum.New(o)
	if b.liveness != nil {
		b.quorum.Subscribe(b.liveness)
	}
	return nil
}

func (b *Broker) controllerCore() (*controller.Core, error) {
	s, n := b.o.Static, b.o.Node
	bootstrap, err := b.metalog.Bootstrap()
	if err != nil {
		return nil, err
	}
	return controller.New(controller.Options{
		NodeID: n.NodeID, ClusterID: b.dirs.ClusterID(), BrokerHere: n.Broker,
		SessionTimeoutMs: s.Long("broker.session.timeout.ms"), NoOpIntervalMs: s.Long("metadata.max.idle.interval.ms"),
		UncleanIntervalMs: s.Long("unclean.leader.election.interval.ms"), RebalanceIntervalMs: rebalanceEvery(s), RebalanceAfterReturnMs: 10_000,
		DefaultPartitions: s.Int("num.partitions"), DefaultReplicationFactor: int16(s.Int("default.replication.factor")),
		NoTopicDeletion: !s.Bool("delete.topic.enable"),
		Supported:       b.served(), Bootstrap: bootstrap, BootstrapSource: "bootstrap.checkpoint",
		Raise:  raised(s),
		Config: quorum.NewConfigRules(s),
	}), nil
}

// raised lists the internal topics whose replication factor is not set in the
// file: they raise it themselves as brokers join.
func raised(s *config.Static) []controller.RaisedTopic {
	if !s.Bool("weir.internal.topics.auto.raise") {
		return nil
	}
	var out []controller.RaisedTopic
	for _, t := range internalTopics {
		if _, set := s.Raw(t.factor); !set {
			out = append(out, controller.RaisedTopic{Name: t.name, Target: 3})
		}
	}
	return out
}

// internalTopics are the topics that coordinators keep their state in, with the
// key of their replication factor. They are taken in this order.
var internalTopics = [...]struct{ name, factor string }{
	{"__consumer_offsets", "offsets.topic.replication.factor"},
	{"__share_group_state", "share.coordinator.state.topic.replication.factor"},
	{"__transaction_state", "transaction.state.log.replication.factor"},
}

// staticVoters is controller.quorum.voters.
func staticVoters(n *config.Node) []kraft.Voter {
	var out []kraft.Voter
	for _, v := range n.QuorumVoters {
		out = append(out, kraft.Voter{
			Replica:   kraft.Replica{ID: v.ID},
			Endpoints: []kraft.Endpoint{{Name: n.ControllerListeners[0], Host: v.Host, Port: uint16(v.Port)}},
		})
	}
	return out
}

func ids(voters []kraft.Voter) []int32 {
	var out []int32
	for _, v := range voters {
		out = append(out, v.ID)
	}
	return out
}

// bootstrapServers is controller.quorum.bootstrap.servers without this node's own
// address: there is nothing to learn from oneself.
func bootstrapServers(n *config.Node) []string {
	var out []string
	for _, a := range n.QuorumBootstrap {
		own := slices.ContainsFunc(n.ControllerAddresses, func(l config.Listener) bool { return l.Host == a.Host && l.Port == a.Port })
		if !own {
			out = append(out, a.String())
		}
	}
	return out
}

// resignFor is how long a leader of the quorum that stops waits for its successor.
const resignFor = 2 * time.Second

// resign hands the leadership of the quorum on, when this node has it and there
// is somebody to take it.
func (b *Broker) resign(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, resignFor)
	defer cancel()
	go func() {
		select {
		case <-b.failed:
			cancel()
		case <-ctx.Done():
		}
	}()
	if err := b.quorum.Resign(ctx); err != nil && !errors.Is(err, context.Canceled) {
		b.logger.Warn("leaving the quorum without a successor", "err", err)
	}
}

func controllerEndpoints(n *config.Node) []kraft.Endpoint {
	var out []kraft.Endpoint
	for _, l := range n.ControllerAddresses {
		host := l.Host
		if host == "" {
			host = hostName()
		}
		out = append(out, kraft.Endpoint{Name: l.Name, Host: host, Port: uint16(l.Port)})
	}
	return out
}

func timeouts(s *config.Static) kraft.Timeouts {
	return kraft.Timeouts{
		ElectionMs: s.Long("controller.quorum.election.timeout.ms"), FetchMs: s.Long("controller.quorum.fetch.timeout.ms"),
		RetryMs: s.Long("controller.quorum.retry.backoff.ms"), MaxWaitMs: 500,
		MaxFetch: s.Int("controller.quorum.fetch.max.bytes"), BackoffMaxMs: s.Long("controller.quorum.election.backoff.max.ms"),
	}
}

func metadataLimits(s *config.Static) metalog.Limits {
	segment := s.Int("metadata.log.segment.bytes")
	if !s.Null("internal.metadata.log.segment.bytes") {
		segment = s.Int("internal.metadata.log.segment.bytes")
	}
	return metalog.Limits{
		SegmentBytes: segment, SegmentMs: s.Long("metadata.log.segment.ms"),
		RetentionBytes: s.Long("metadata.max.retention.bytes"), RetentionMs: s.Long("metadata.max.retention.ms"),
		MaxBatchBytes: s.Int("internal.metadata.max.batch.size.in.bytes"), DeleteDelayMs: s.Long("internal.metadata.delete.delay.millis"),
	}
}

func rebalanceEvery(s *config.Static) int64 {
	if !s.Bool("auto.leader.rebalance.enable") {
		return 0
	}
	return s.Long("leader.imbalance.check.interval.seconds") * 1000
}

// controllerRegistration is what this node's controller tells of itself.
func (b *Broker) controllerRegistration() lifecycle.ControllerOptions {
	return lifecycle.ControllerOptions{
		NodeID: b.o.Node.NodeID, Incarnation: uuid.Random(rng.System()), Endpoints: reachable(b.o.Node.ControllerAddresses, b.control),
		Features: b.served(), Controller: b.quorum, Images: b.quorum.Images(), Clock: b.clock, Logger: b.log(loggers.Lifecycle),
	}
}

func (b *Broker) kraftVersion() int16 {
	_, level := b.metalog.Voters()
	return level
}
