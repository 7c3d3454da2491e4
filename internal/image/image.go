package image

import (
	"iter"
	"maps"
	"slices"

	"github.com/benbjohnson/immutable"

	"weir/internal/records"
	"weir/internal/uuid"
)

// Resource types of a ConfigRecord (Kafka's ConfigResource.Type) that Weir meets in metadata.
const (
	ResourceTopic         int8 = 2
	ResourceBroker        int8 = 4
	ResourceBrokerLogger  int8 = 8
	ResourceClientMetrics int8 = 16
	ResourceGroup         int8 = 32
)

// NoLeader is the leader of a partition that nobody leads.
const NoLeader int32 = -1

// Resource names one owner of configuration values. The cluster-wide default of brokers has type ResourceBroker and an empty name.
type Resource struct {
	Type int8
	Name string
}

// Provenance says up to where in the metadata log an image reaches.
type Provenance struct {
	Offset      int64 // of the last record contained; -1 when nothing is
	Epoch       int32 // quorum leader epoch of that record's batch
	TimestampMs int64 // append time of that batch, milliseconds since 1970
}

// Image is the state of the cluster after one offset of the metadata log. Nothing reachable from it ever changes; maps and
// slices it hands out are shared and must not be written to.
type Image struct {
	Provenance

	features    Features
	brokers     *immutable.SortedMap[int32, *Broker]
	controllers *immutable.SortedMap[int32, *Controller]
	topics      *immutable.SortedMap[string, *Topic]
	topicNames  *immutable.Map[uuid.UUID, string]
	configs     *immutable.SortedMap[Resource, map[string]string]
	placed      *immutable.Map[int32, *partitionSet]
	partitions  int

	nextProducerID int64 // -1 until a block has been handed out
	kept           kept

	beforeTxn *Image // non-nil while a metadata transaction is open: the state that readers still see
}

// New returns the image of an empty log: offset -1, no features.
func New() *Image {
	return &Image{
		Provenance:     Provenance{Offset: -1, Epoch: -1, TimestampMs: -1},
		brokers:        immutable.NewSortedMap[int32, *Broker](int32Order{}),
		controllers:    immutable.NewSortedMap[int32, *Controller](int32Order{}),
		topics:         immutable.NewSortedMap[string, *Topic](stringOrder{}),
		topicNames:     immutable.NewMap[uuid.UUID, string](uuidHash{}),
		configs:        immutable.NewSortedMap[Resource, map[string]string](resourceOrder{}),
		placed:         immutable.NewMap[int32, *partitionSet](int32Hash{}),
		nextProducerID: -1,
		kept:           newKept(),
	}
}

// Features returns the finalized feature levels.
func (i *Image) Features() Features { return i.features }

// IsEmpty reports whether no record has been replayed that a snapshot would contain, as in a log that was never written.
func (i *Image) IsEmpty() bool {
	for range i.Records {
		return false
	}
	return true
}

// InTransaction reports whether a metadata transaction has begun and not ended.
func (i *Image) InTransaction() bool { return i.beforeTxn != nil }

// Visible returns the image that readers may see: itself, or the one before the metadata transaction that is open.
func (i *Image) Visible() *Image {
	if i.beforeTxn != nil {
		return i.beforeTxn
	}
	return i
}

// Broker returns a registered broker, fenced or not.
func (i *Image) Broker(id int32) (*Broker, bool) { return i.brokers.Get(id) }

// NumBrokers counts the registered brokers.
func (i *Image) NumBrokers() int { return i.brokers.Len() }

// Brokers yields the registered brokers by ascending id.
func (i *Image) Brokers() iter.Seq[*Broker] { return values(i.brokers) }

// Controller returns a registered controller.
func (i *Image) Controller(id int32) (*Controller, bool) { return i.controllers.Get(id) }

// Controllers yields the registered controllers by ascending id.
func (i *Image) Controllers() iter.Seq[*Controller] { return values(i.controllers) }

// Topic returns a topic by name.
func (i *Image) Topic(name string) (*Topic, bool) { return i.topics.Get(name) }

// TopicByID returns a topic by id.
func (i *Image) TopicByID(id uuid.UUID) (*Topic, bool) {
	name, ok := i.topicNames.Get(id)
	if !ok {
		return nil, false
	}
	return i.topics.Get(name)
}

// NumTopics and NumPartitions count what exists.
func (i *Image) NumTopics() int     { return i.topics.Len() }
func (i *Image) NumPartitions() int { return i.partitions }

// Topics yields the topics in name order.
func (i *Image) Topics() iter.Seq[*Topic] { return values(i.topics) }

// TopicsFrom yields the topics whose name is at least start, in name order.
func (i *Image) TopicsFrom(start string) iter.Seq[*Topic] {
	return func(yield func(*Topic) bool) {
		it := i.topics.Iterator()
		for it.Seek(start); !it.Done(); {
			if _, t, ok := it.Next(); !ok || !yield(t) {
				return
			}
		}
	}
}

// Partition returns one partition by topic id, or nil.
func (i *Image) Partition(id PartitionID) *Partition {
	t, ok := i.TopicByID(id.Topic)
	if !ok {
		return nil
	}
	p, _ := t.Partition(id.Partition)
	return p
}

// Configs returns the values set on a resource, by key; nil when there are none. The map is shared: do not write to it.
func (i *Image) Configs(resType int8, name string) map[string]string {
	m, _ := i.configs.Get(Resource{resType, name})
	return m
}

// ConfigResources yields each resource that has values, ordered by type and name.
func (i *Image) ConfigResources() iter.Seq2[Resource, map[string]string] {
	return func(yield func(Resource, map[string]string) bool) {
		for it := i.configs.Iterator(); !it.Done(); {
			r, m, ok := it.Next()
			if !ok || !yield(r, m) {
				return
			}
		}
	}
}

// NextProducerID is the first producer id of the next block; 0 when none has been handed out yet.
func (i *Image) NextProducerID() int64 { return max(i.nextProducerID, 0) }

// PartitionsOn yields the partitions that have a replica on the broker, ordered by topic id and partition.
func (i *Image) PartitionsOn(broker int32) iter.Seq2[PartitionID, *Partition] {
	return i.partitionsOf(broker)
}

// Leaderless yields the partitions without a leader.
func (i *Image) Leaderless() iter.Seq2[PartitionID, *Partition] { return i.partitionsOf(setLeaderless) }

// Imbalanced yields the partitions that have a leader other than their preferred one (the first replica).
func (i *Image) Imbalanced() iter.Seq2[PartitionID, *Partition] { return i.partitionsOf(setImbalanced) }

// Reassigning yields the partitions that are being moved.
func (i *Image) Reassigning() iter.Seq2[PartitionID, *Partition] {
	return i.partitionsOf(setReassigning)
}

// NumReplicasOn counts the replicas placed on a broker. O(1).
func (i *Image) NumReplicasOn(broker int32) int {
	if s, ok := i.placed.Get(broker); ok {
		return s.Len()
	}
	return 0
}

func (i *Image) partitionsOf(set int32) iter.Seq2[PartitionID, *Partition] {
	return func(yield func(PartitionID, *Partition) bool) {
		s, ok := i.placed.Get(set)
		if !ok {
			return
		}
		for it := s.Iterator(); !it.Done(); {
			id, _, ok := it.Next()
			if !ok {
				return
			}
			if p := i.Partition(id); p != nil && !yield(id, p) {
				return
			}
		}
	}
}

// values iterates the values of a sorted map in key order.
func values[K, V any](m *immutable.SortedMap[K, V]) iter.Seq[V] {
	return func(yield func(V) bool) {
		for it := m.Iterator(); !it.Done(); {
			if _, v, ok := it.Next(); !ok || !yield(v) {
				return
			}
		}
	}
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

// recordSink is where snapshot writing puts its records; it returns false to stop.
type recordSink func(records.Versioned) bool
