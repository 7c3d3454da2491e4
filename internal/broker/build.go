package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"weir/internal/api"
	"weir/internal/checkpoint"
	"weir/internal/config"
	"weir/internal/image"
	"weir/internal/lifecycle"
	"weir/internal/loggers"
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
		Clock: b.clock, Rand: rng.System(), Logger: b.log(loggers.Storage),
		Log: func(checkpoint.TopicPartition) storage.Options {
			now, expiration := defaults, s.Long("producer.id.expiration.ms")
			if b.replicas != nil { // dynamic values are known by now, and none was while logs were loaded
				now, expiration = b.replicas.TopicDefaults(), b.eff().Long("producer.id.expiration.ms")
			}
			return storage.Options{
				Config: now, Files: files, Buffers: buffers, Rand: rng.System(),
				Producer: producer.Config{ExpirationMs: expiration, MaxTxnTimeoutMs: s.Long("transaction.max.timeout.ms")},
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

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// openReplicas makes the replica manager follow the image.
func (b *Broker) openReplicas() {
	b.replicas = replication.New(b.replicaOptions())
	b.configs = b.replicas
	b.quorum.Subscribe(b.replicas)
	b.openMarkers()
	b.quorum.Subscribe(b.groups)
	b.quorum.Subscribe(dynamic{b, map[string]string{}})
}

func (b *Broker) replicaOptions() replication.Options {
	s := b.o.Static
	return replication.Options{
		NodeID: b.o.Node.NodeID, FS: b.o.FS, Dirs: b.dirs, Clock: b.clock, Logger: b.log(loggers.Replication), Buffers: b.buffers, Static: s,
		Controller: b.quorum, Epoch: func() int64 { return b.lifecycle.Epoch() }, Leaderships: leaderships{b.groups, b.txns},
		Connect: b.connectToLeader, Fetch: fetchSettings(s), MaxLag: ms(s.Long("replica.lag.time.max.ms")),
		Intervals: replication.Intervals{
			InitialDelay: ms(s.Long("log.initial.task.delay.ms")), Retention: ms(s.Long("log.retention.check.interval.ms")),
			HighWatermarks: ms(s.Long("replica.high.watermark.checkpoint.interval.ms")),
			RecoveryPoints: ms(s.Long("log.flush.offset.checkpoint.interval.ms")),
			LogStarts:      ms(s.Long("log.flush.start.offset.checkpoint.interval.ms")),
			Producers:      ms(s.Long("producer.id.expiration.check.interval.ms")),
		},
	}
}

// fetchSettings are those of followers.
func fetchSettings(s *config.Static) replication.FetchSettings {
	return replication.FetchSettings{
		Fetchers: int(s.Int("num.replica.fetchers")), MaxWait: ms(int64(s.Int("replica.fetch.wait.max.ms"))),
		MinBytes: s.Int("replica.fetch.min.bytes"), MaxBytes: s.Int("replica.fetch.response.max.bytes"), PartitionMax: s.Int("replica.fetch.max.bytes"),
		Backoff: ms(int64(s.Int("replica.fetch.backoff.ms"))), Timeout: ms(int64(s.Int("replica.socket.timeout.ms"))),
	}
}

// nearRacks reads replica.selector.class, of which Kafka brings two.
func nearRacks(s *config.Static) (bool, error) {
	const near, leader = "org.apache.kafka.common.replica.RackAwareReplicaSelector", "org.apache.kafka.common.replica.LeaderSelector"
	if s.Null("replica.selector.class") {
		return false, nil
	}
	switch c := s.String("replica.selector.class"); c {
	case near:
		return true, nil
	case leader, "":
		return false, nil
	default:
		return false, fmt.Errorf("replica.selector.class=%s: Weir runs no Java classes, it knows %s and %s", c, near, leader)
	}
}

// openNetwork binds the listeners of this node's roles. Those of controllers accept at once.
func (b *Broker) openNetwork() error {
	n, s := b.o.Node, b.o.Static
	node := &api.Node{
		NodeID: n.NodeID, ClusterID: b.dirs.ClusterID(), Images: b.quorum.Images(), Controller: b.quorum, Here: b.quorum.Here(), Raft: b.quorum,
		Configs: b.configs, Quorum: b.quorum, Leader: func() int32 { return b.quorum.Leader().ID },
		Supported: b.served(), KRaft: b.kraftVersion, Clock: b.clock, Buffers: b.buffers, Logger: b.log(loggers.Network), Loggers: b.o.Loggers,
	}
	var err error
	if n.Controller {
		if b.control, err = b.listen(controllerListeners(n), "", node.ControllerTable()); err != nil {
			return err
		}
	}
	if !n.Broker {
		return nil
	}
	node.Replicas, node.LogDirs, node.Epoch = b.replicas, b.replicas, func() int64 { return b.lifecycle.Epoch() }
	node.Groups, node.GroupTopic = b.groups, b.groupTopic()
	b.wireTxns(node)
	node.Gone, node.Doubted, node.Throttle = b.replicas.Gone, b.replicas.Doubted, b.replicas.LeaderThrottle()
	node.Starts = b.replicas
	if node.NearRacks, err = nearRacks(s); err != nil {
		return err
	}
	node.CreatedTopics = createdTopics(s)
	node.AutoCreateTopics, node.FetchMaxBytes = s.Bool("auto.create.topics.enable"), int(s.Int("fetch.max.bytes"))
	node.SessionSlots, node.MaxPartitions = int(s.Int("max.incremental.fetch.session.cache.slots")), s.Int("max.request.partition.size.limit")
	b.clients, err = b.listen(n.DataListeners(), n.InterBroker, node.BrokerTable())
	return err
}

// createdTopics is the form of topics that this broker creates for its clients:
// what its own file says, else what the active controller's says.
func createdTopics(s *config.Static) api.NewTopic {
	t := api.NewTopic{Partitions: -1, Replicas: -1}
	if _, set := s.Raw("num.partitions"); set {
		t.Partitions = s.Int("num.partitions")
	}
	if _, set := s.Raw("default.replication.factor"); set {
		t.Replicas = int16(s.Int("default.replication.factor"))
	}
	return t
}

// openLifecycle prepares the registration.
func (b *Broker) openLifecycle(previousEpoch int64) {
	n := b.o.Node
	var ids []uuid.UUID
	for _, d := range b.dirs.Dirs() {
		ids = append(ids, d.ID)
	}
	incarnation := uuid.Random(rng.System())
	b.lifecycle = lifecycle.New(lifecycle.Options{
		NodeID: n.NodeID, ClusterID: b.dirs.ClusterID(), Incarnation: incarnation, Before: b.dirs.TakeOver(incarnation),
		Endpoints: reachable(n.Advertised, b.clients), Features: b.registered, Rack: n.Rack,
		Dirs: ids, Cordoned: b.dirs.Cordoned, PreviousEpoch: previousEpoch,
		Controller: b.quorum, Images: b.quorum.Images(), Interval: ms(b.o.Static.Long("broker.heartbeat.interval.ms")),
		Clock: b.clock, Logger: b.log(loggers.Lifecycle), OfflineDirs: b.offlineDirs, Answers: b.answers,
		GiveUp: func(err error) bool { return errors.Is(err, storage.ErrNoSpace) },
	})
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

// served are the feature levels that this node serves in full.
func (b *Broker) served() []image.FeatureRange {
	return format.Served(b.o.Static.Bool("unstable.feature.versions.enable"))
}
