package broker

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"weir/internal/api"
	"weir/internal/checkpoint"
	"weir/internal/config"
	"weir/internal/controller"
	"weir/internal/image"
	"weir/internal/kraft"
	"weir/internal/lifecycle"
	"weir/internal/metalog"
	"weir/internal/quorum"
	"weir/internal/replication"
	"weir/internal/rng"
	"weir/internal/storage"
	"weir/internal/storage/dirs"
	"weir/internal/storage/format"
	"weir/internal/storage/producer"
	"weir/internal/storage/segment"
	"weir/internal/uuid"
)

// openDirs locks the log directories and opens every log.
func (b *Broker) openDirs(ctx context.Context) (previousEpoch int64, err error) {
	s, n := b.o.Static, b.o.Node
	defaults, err := config.NewEffective(s, nil, nil).Topic(nil)
	if err != nil {
		return -1, err
	}
	files, buffers := storage.NewFileLimiter(b.o.OpenFiles), segment.NewBuffers()
	b.dirs, err = dirs.Open(dirs.Options{
		FS: b.o.FS, LogDirs: n.LogDirs, MetadataDir: n.MetadataDir, NodeID: n.NodeID,
		RecoveryThreads: int(s.Int("num.recovery.threads.per.data.dir")), Cordoned: s.List("cordoned.log.dirs"),
		Clock: b.clock, Rand: rng.System(), Logger: b.logger,
		Log: func(checkpoint.TopicPartition) storage.Options {
			return storage.Options{
				Config: defaults, Files: files, Buffers: buffers, Rand: rng.System(),
				Producer: producer.Config{
					ExpirationMs:    s.Long("producer.id.expiration.ms"),
					MaxTxnTimeoutMs: s.Long("transaction.max.timeout.ms"),
				},
			}
		},
		Offline: b.dirOffline,
	})
	if err != nil {
		return -1, err
	}
	previousEpoch = b.dirs.PreviousBrokerEpoch()
	return previousEpoch, b.dirs.Load(ctx)
}

func (b *Broker) dirOffline(d *dirs.Dir, logs []*storage.Log, err error) {
	if b.replicas != nil {
		b.replicas.DirOffline(d, logs, err)
	}
	if b.lifecycle != nil {
		b.lifecycle.Wake()
	}
}

// openQuorum opens the metadata log and joins the controller to it.
func (b *Broker) openQuorum() error {
	s, n := b.o.Static, b.o.Node
	if !n.Controller {
		return errors.New("process.roles=broker: a broker without a controller in the same process is not served yet; use process.roles=broker,controller")
	}
	meta := b.dirs.MetadataDir()
	voters, err := b.staticVoters()
	if err != nil {
		return err
	}
	b.metalog, err = metalog.Open(metalog.Options{
		FS: b.o.FS, Dir: meta.Path, Self: kraft.Replica{ID: n.NodeID, Dir: meta.ID},
		Endpoints: controllerEndpoints(n), Voters: voters, Timeouts: timeouts(s), Limits: metadataLimits(s),
		Clock: b.clock, Rand: rng.System(), Logger: b.logger,
	})
	if err != nil {
		return fmt.Errorf("metadata log in %s: %w", filepath.Join(meta.Path, metalog.PartitionDir), err)
	}
	bootstrap, err := b.metalog.Bootstrap()
	if err != nil {
		return err
	}
	set, _ := b.metalog.Voters()
	var ids []int32
	for _, v := range set.Voters() {
		ids = append(ids, v.ID)
	}
	core := controller.New(controller.Options{
		NodeID: n.NodeID, ClusterID: b.dirs.ClusterID(), BrokerHere: n.Broker,
		SessionTimeoutMs: s.Long("broker.session.timeout.ms"), NoOpIntervalMs: s.Long("metadata.max.idle.interval.ms"),
		UncleanIntervalMs: s.Long("unclean.leader.election.interval.ms"), RebalanceIntervalMs: rebalanceEvery(s), RebalanceAfterReturnMs: 10_000,
		DefaultPartitions: s.Int("num.partitions"), DefaultReplicationFactor: int16(s.Int("default.replication.factor")),
		NoTopicDeletion: !s.Bool("delete.topic.enable"),
		Supported:       b.served(), QuorumNodes: ids, Bootstrap: bootstrap, BootstrapSource: "bootstrap.checkpoint",
		Config: quorum.NewConfigRules(s),
	})
	b.quorum = quorum.New(quorum.Options{
		NodeID: n.NodeID, Log: b.metalog, Core: core, Rand: rng.System(), Clock: b.clock, Logger: b.logger,
		SnapshotBytes: s.Long("metadata.log.max.record.bytes.between.snapshots"), SnapshotInterval: ms(s.Long("metadata.log.max.snapshot.interval.ms")),
	})
	return nil
}

// staticVoters is controller.quorum.voters.
func (b *Broker) staticVoters() ([]kraft.Voter, error) {
	n := b.o.Node
	var out []kraft.Voter
	for _, v := range n.QuorumVoters {
		out = append(out, kraft.Voter{
			Replica:   kraft.Replica{ID: v.ID},
			Endpoints: []kraft.Endpoint{{Name: n.ControllerListeners[0], Host: v.Host, Port: uint16(v.Port)}},
		})
	}
	if len(out) > 1 {
		return nil, fmt.Errorf("controller.quorum.voters names %d voters: a quorum of more than one is not served yet", len(out))
	}
	return out, nil
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

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// openReplicas makes the replica manager follow the image.
func (b *Broker) openReplicas() {
	s := b.o.Static
	b.replicas = replication.New(replication.Options{
		NodeID: b.o.Node.NodeID, FS: b.o.FS, Dirs: b.dirs, Clock: b.clock, Logger: b.logger, Buffers: b.buffers, Static: s,
		Controller: b.quorum, Epoch: func() int64 { return b.lifecycle.Epoch() }, Leaderships: b.groups,
		Connect: b.connect, Fetch: fetchSettings(s), MaxLag: ms(s.Long("replica.lag.time.max.ms")),
		Intervals: replication.Intervals{
			InitialDelay: ms(s.Long("log.initial.task.delay.ms")), Retention: ms(s.Long("log.retention.check.interval.ms")),
			HighWatermarks: ms(s.Long("replica.high.watermark.checkpoint.interval.ms")),
			RecoveryPoints: ms(s.Long("log.flush.offset.checkpoint.interval.ms")),
			LogStarts:      ms(s.Long("log.flush.start.offset.checkpoint.interval.ms")),
			Producers:      ms(s.Long("producer.id.expiration.check.interval.ms")),
		},
	})
	b.quorum.Subscribe(b.replicas)
	b.quorum.Subscribe(b.groups)
	b.quorum.Subscribe(dynamic{b, map[string]string{}})
}

// fetchSettings are those of followers.
func fetchSettings(s *config.Static) replication.FetchSettings {
	return replication.FetchSettings{
		Fetchers: int(s.Int("num.replica.fetchers")), MaxWait: ms(int64(s.Int("replica.fetch.wait.max.ms"))),
		MinBytes: s.Int("replica.fetch.min.bytes"), MaxBytes: s.Int("replica.fetch.response.max.bytes"), PartitionMax: s.Int("replica.fetch.max.bytes"),
		Backoff: ms(int64(s.Int("replica.fetch.backoff.ms"))), Timeout: ms(int64(s.Int("replica.socket.timeout.ms"))),
	}
}

// openNetwork binds the listeners. Those of controllers accept at once.
func (b *Broker) openNetwork() error {
	n, s := b.o.Node, b.o.Static
	node := &api.Node{
		NodeID: n.NodeID, ClusterID: b.dirs.ClusterID(), Images: b.quorum.Images(), Replicas: b.replicas, Controller: b.quorum,
		Configs: b.replicas, Quorum: b.quorum, Leader: func() int32 { return b.quorum.Leader().ID }, LogDirs: b.replicas,
		Epoch: func() int64 { return b.lifecycle.Epoch() }, Supported: b.served(), KRaft: b.kraftVersion, Clock: b.clock, Buffers: b.buffers,
		Logger: b.logger, Groups: b.groups, GroupTopic: b.groupTopic(),
		AutoCreateTopics: s.Bool("auto.create.topics.enable"), FetchMaxBytes: int(s.Int("fetch.max.bytes")),
		SessionSlots: int(s.Int("max.incremental.fetch.session.cache.slots")), MaxPartitions: s.Int("max.request.partition.size.limit"),
	}
	var err error
	if b.control, err = b.listen(controllerListeners(n), "", node.ControllerTable()); err != nil {
		return err
	}
	b.clients, err = b.listen(n.DataListeners(), n.InterBroker, node.BrokerTable())
	return err
}

// openLifecycle prepares the registration.
func (b *Broker) openLifecycle(previousEpoch int64) {
	n := b.o.Node
	var ids []uuid.UUID
	for _, d := range b.dirs.Dirs() {
		ids = append(ids, d.ID)
	}
	b.lifecycle = lifecycle.New(lifecycle.Options{
		NodeID: n.NodeID, ClusterID: b.dirs.ClusterID(), Incarnation: uuid.Random(rng.System()),
		Endpoints: reachable(n.Advertised, b.clients), Features: b.registered, Rack: n.Rack,
		Dirs: ids, Cordoned: b.dirs.Cordoned, PreviousEpoch: previousEpoch,
		Controller: b.quorum, Images: b.quorum.Images(), Interval: ms(b.o.Static.Long("broker.heartbeat.interval.ms")),
		Clock: b.clock, Logger: b.logger, OfflineDirs: b.offlineDirs,
		GiveUp: func(err error) bool { return errors.Is(err, storage.ErrNoSpace) },
	})
}

// controllerRegistration is what this node's controller tells of itself.
func (b *Broker) controllerRegistration() lifecycle.ControllerOptions {
	return lifecycle.ControllerOptions{
		NodeID: b.o.Node.NodeID, Incarnation: uuid.Random(rng.System()), Endpoints: reachable(b.o.Node.ControllerAddresses, b.control),
		Features: b.served(), Controller: b.quorum, Images: b.quorum.Images(), Clock: b.clock, Logger: b.logger,
	}
}

func (b *Broker) offlineDirs() []uuid.UUID {
	var out []uuid.UUID
	for _, d := range b.dirs.OfflineDirs() {
		if d.ID != uuid.Zero {
			out = append(out, d.ID)
		}
	}
	return out
}

// registered are the levels that this broker registers with: those it serves,
// and those that the cluster has finalized already. What Weir does not serve of
// them is said at start (see unserved); the records are kept as they are.
func (b *Broker) registered() []image.FeatureRange {
	out := b.served()
	for name, level := range b.quorum.Images().Image().Features().All() {
		i := slices.IndexFunc(out, func(f image.FeatureRange) bool { return f.Name == name })
		switch {
		case i < 0:
			out = append(out, image.FeatureRange{Name: name, Min: 0, Max: level})
		case out[i].Max < level:
			out[i].Max = level
		}
	}
	return out
}

func (b *Broker) kraftVersion() int16 {
	_, level := b.metalog.Voters()
	return level
}

// served are the feature levels that this node serves in full.
func (b *Broker) served() []image.FeatureRange {
	return format.Served(b.o.Static.Bool("unstable.feature.versions.enable"))
}
