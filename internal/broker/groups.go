package broker

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"weir/internal/api"
	"weir/internal/batch"
	"weir/internal/config"
	"weir/internal/coordinator"
	"weir/internal/group"
	"weir/internal/group/classic"
	"weir/internal/group/consumer"
	"weir/internal/image"
	"weir/internal/loggers"
	"weir/internal/metrics"
	"weir/internal/rng"
)

// openGroups makes the group coordinator. It leads what package replication tells it.
func (b *Broker) openGroups() error {
	s := b.o.Static
	codec, err := offsetsCodec(s.Int("offsets.topic.compression.codec"))
	if err != nil {
		return err
	}
	b.groups = coordinator.NewGroups(coordinator.GroupsOptions{
		Config: &group.Config{
			Classic: classic.Config{
				MaxSize: int(s.Int("group.max.size")), InitialDelay: ms(int64(s.Int("group.initial.rebalance.delay.ms"))),
			},
			MinSession: ms(int64(s.Int("group.min.session.timeout.ms"))), MaxSession: ms(int64(s.Int("group.max.session.timeout.ms"))),
			Retention:  time.Duration(s.Int("offsets.retention.minutes")) * time.Minute,
			CheckEvery: ms(s.Long("offsets.retention.check.interval.ms")), MaxMetadata: int(s.Int("offset.metadata.max.bytes")),
			Consumer: consumerConfig(s), Settings: b.consumerSettings,
		},
		Partitions: s.Int("offsets.topic.num.partitions"), Timeout: ms(int64(s.Int("offsets.commit.timeout.ms"))),
		LoadBuffer: int(s.Int("offsets.load.buffer.size")), Compression: codec,
		Image: func() *image.Image { return b.quorum.Images().Image() }, Txns: b.txns,
		Buffers: b.buffers, Clock: b.clock, Rand: rng.System(), Logger: b.log(loggers.Coordinator),
	})
	return nil
}

// consumerConfig is what consumer groups of KIP-848 depend on.
func consumerConfig(s *config.Static) consumer.Config {
	policy := strings.ToLower(s.String("group.consumer.migration.policy"))
	return consumer.Config{
		MaxSize: int(s.Int("group.consumer.max.size")), ClassicMaxSize: int(s.Int("group.max.size")),
		Assignors: s.List("group.consumer.assignors"), RegexRefresh: ms(int64(s.Int("group.consumer.regex.refresh.interval.ms"))),
		Upgrade: policy == "bidirectional" || policy == "upgrade", Downgrade: policy == "bidirectional" || policy == "downgrade",
	}
}

// consumerSettings are those of one consumer group: its own, or else the broker's.
func (b *Broker) consumerSettings(img *image.Image, group string) consumer.Settings {
	eff, own := b.eff(), img.Configs(image.ResourceGroup, group)
	return consumer.Settings{
		Session: eff.GroupMs("consumer.session.timeout.ms", own), Heartbeat: eff.GroupMs("consumer.heartbeat.interval.ms", own),
		AssignmentInterval: eff.GroupMs("consumer.assignment.interval.ms", own),
	}
}

// offsetsCodec reads offsets.topic.compression.codec, which names a codec by its number.
func offsetsCodec(n int32) (batch.Codec, error) {
	if c := batch.Codec(n); n >= 0 && n <= int32(batch.Zstd) {
		return c, nil
	}
	return batch.None, fmt.Errorf("offsets.topic.compression.codec=%d: there is no such codec, only 0 (none) to 4 (zstd)", n)
}

// groupTopic is how __consumer_offsets is created.
func (b *Broker) groupTopic() api.InternalTopic {
	s := b.o.Static
	t := api.InternalTopic{
		Name: coordinator.OffsetsTopic, Partitions: s.Int("offsets.topic.num.partitions"),
		Configs: map[string]string{
			"cleanup.policy": "compact", "compression.type": "producer",
			"segment.bytes": strconv.Itoa(int(s.Int("offsets.topic.segment.bytes"))),
		},
	}
	if _, set := s.Raw("offsets.topic.replication.factor"); set {
		t.Replicas = int16(s.Int("offsets.topic.replication.factor"))
	}
	return t
}

// groupMetrics tells of the groups that this broker coordinates.
func (b *Broker) groupMetrics(r *metrics.Registry) {
	r.RegisterGroups(func() metrics.Groups {
		s := b.groups.Summary(context.Background())
		g := metrics.Groups{
			Partitions: s.Partitions - s.Loading, Loading: s.Loading, Offsets: s.Offsets,
			Empty: s.States[classic.Empty], PreparingRebalance: s.States[classic.PreparingRebalance],
			CompletingRebalance: s.States[classic.CompletingRebalance], Stable: s.States[classic.Stable],
			ConsumerEmpty: s.Consumers[consumer.Empty], ConsumerAssigning: s.Consumers[consumer.Assigning],
			ConsumerReconciling: s.Consumers[consumer.Reconciling], ConsumerStable: s.Consumers[consumer.StableGroup], Bumps: s.Bumps,
			Commits: s.Commits, Expirations: s.Expirations, Deletions: s.Deletions, Rebalances: s.Rebalances,
		}
		for _, w := range s.Waiting {
			g.Waiting = append(g.Waiting, metrics.WaitingRebalance{Group: w.Group, Members: len(w.Members), For: w.For})
		}
		return g
	})
}
