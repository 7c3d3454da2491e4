package image

import (
	"maps"
	"slices"

	"github.com/benbjohnson/immutable"

	"weir/internal/uuid"
)

// Delta takes records one after another and becomes the next image. It is used by one goroutine and dropped after Apply.
type Delta struct {
	base    *Image
	next    *Image // the working copy; only its own struct is written to, what it points to is shared
	changed changes
	atBegin *changes // what had changed when the open metadata transaction began in this delta
}

// changes says what differs between a delta's base and its working copy.
type changes struct {
	topics      map[uuid.UUID]map[int32]struct{} // topics created or changed, with the partitions that did
	deleted     map[uuid.UUID]*Topic             // topics of the base that are gone
	configs     map[Resource]struct{}
	brokers     map[int32]struct{}
	controllers map[int32]struct{}
	features    bool
	producerIDs bool
	kept        bool
}

func newChanges() changes {
	return changes{
		topics:  map[uuid.UUID]map[int32]struct{}{},
		deleted: map[uuid.UUID]*Topic{},
		configs: map[Resource]struct{}{}, brokers: map[int32]struct{}{}, controllers: map[int32]struct{}{},
	}
}

func (c *changes) clone() *changes {
	n := *c
	n.topics = make(map[uuid.UUID]map[int32]struct{}, len(c.topics))
	for id, m := range c.topics {
		n.topics[id] = maps.Clone(m)
	}
	n.deleted, n.configs = maps.Clone(c.deleted), maps.Clone(c.configs)
	n.brokers, n.controllers = maps.Clone(c.brokers), maps.Clone(c.controllers)
	return &n
}

// NewDelta starts a delta on an image.
func NewDelta(base *Image) *Delta {
	next := *base
	return &Delta{base: base, next: &next, changed: newChanges()}
}

// NewSnapshotDelta starts a delta that builds the state of a snapshot from nothing, with what differs from base reported as changed
// when FinishSnapshot has been called.
func NewSnapshotDelta(base *Image) *Delta {
	return &Delta{base: base, next: New(), changed: newChanges()}
}

// FinishSnapshot works out what differs from the base after all records of a snapshot have been replayed. What the snapshot
// does not mention is gone.
func (d *Delta) FinishSnapshot() {
	c := newChanges()
	for t := range d.base.Topics() {
		if _, ok := d.next.TopicByID(t.ID); !ok {
			c.deleted[t.ID] = t
		}
	}
	for t := range d.next.Topics() {
		old, existed := d.base.TopicByID(t.ID)
		for i, p := range t.Partitions() {
			if existed {
				if q, ok := old.Partition(i); ok && q.Equal(p) {
					continue
				}
			}
			c.touch(t.ID, i)
		}
		if !existed && t.NumPartitions() == 0 {
			c.touchTopic(t.ID)
		}
	}
	diff(d.base.configs, d.next.configs, func(r Resource) { c.configs[r] = struct{}{} }, maps.Equal[map[string]string])
	diff(d.base.brokers, d.next.brokers, func(id int32) { c.brokers[id] = struct{}{} }, (*Broker).Equal)
	diff(d.base.controllers, d.next.controllers, func(id int32) { c.controllers[id] = struct{}{} }, (*Controller).Equal)
	c.features = !d.base.features.Equal(d.next.features)
	c.producerIDs = d.base.nextProducerID != d.next.nextProducerID
	c.kept = true
	d.changed = c
}

// diff calls changed for each key whose value differs between two maps or is missing in one.
func diff[K, V any](a, b *immutable.SortedMap[K, V], changed func(K), equal func(V, V) bool) {
	for it := a.Iterator(); !it.Done(); {
		k, v, _ := it.Next()
		if w, ok := b.Get(k); !ok || !equal(v, w) {
			changed(k)
		}
	}
	for it := b.Iterator(); !it.Done(); {
		k, _, _ := it.Next()
		if _, ok := a.Get(k); !ok {
			changed(k)
		}
	}
}

// Base returns the image the delta started from.
func (d *Delta) Base() *Image { return d.base }

// Image returns the state after the records replayed so far, with the base's provenance. It stays as it is when more are replayed.
func (d *Delta) Image() *Image { return d.Apply(d.base.Provenance) }

// Apply returns the next image, which reaches up to the given place of the log.
func (d *Delta) Apply(p Provenance) *Image {
	n := *d.next
	n.Provenance = p
	return &n
}

// IsEmpty reports whether nothing changed.
func (d *Delta) IsEmpty() bool {
	c := &d.changed
	return len(c.topics)+len(c.deleted)+len(c.configs)+len(c.brokers)+len(c.controllers) == 0 && !c.features && !c.producerIDs && !c.kept
}

// ChangedTopics returns the ids of topics that were created or that have a changed partition, ordered by id.
func (d *Delta) ChangedTopics() []uuid.UUID {
	return slices.SortedFunc(maps.Keys(d.changed.topics), uuid.UUID.Compare)
}

// ChangedPartitions returns the partitions of a topic that were created or changed, ascending.
func (d *Delta) ChangedPartitions(id uuid.UUID) []int32 {
	return slices.Sorted(maps.Keys(d.changed.topics[id]))
}

// DeletedTopics returns the topics of the base image that are gone, ordered by id.
func (d *Delta) DeletedTopics() []*Topic {
	return slices.SortedFunc(maps.Values(d.changed.deleted), func(a, b *Topic) int { return a.ID.Compare(b.ID) })
}

// ChangedConfigs returns the resources of which a value was set or removed, ordered by type and name.
func (d *Delta) ChangedConfigs() []Resource {
	return slices.SortedFunc(maps.Keys(d.changed.configs), resourceOrder{}.Compare)
}

// ChangedBrokers returns the ids of brokers that were registered, changed or unregistered, ascending.
func (d *Delta) ChangedBrokers() []int32 { return slices.Sorted(maps.Keys(d.changed.brokers)) }

// ChangedControllers returns the ids of controllers that registered, ascending.
func (d *Delta) ChangedControllers() []int32 { return slices.Sorted(maps.Keys(d.changed.controllers)) }

// FeaturesChanged reports whether a finalized level changed.
func (d *Delta) FeaturesChanged() bool { return d.changed.features }

// ProducerIDsChanged reports whether a block of producer ids was handed out.
func (d *Delta) ProducerIDsChanged() bool { return d.changed.producerIDs }

func (c *changes) touchTopic(id uuid.UUID) map[int32]struct{} {
	m, ok := c.topics[id]
	if !ok {
		m = map[int32]struct{}{}
		c.topics[id] = m
	}
	return m
}

func (c *changes) touch(id uuid.UUID, partition int32) { c.touchTopic(id)[partition] = struct{}{} }

// setPartition puts a partition's new state into the working copy.
func (d *Delta) setPartition(t *Topic, i int32, p *Partition) {
	before, existed := t.Partition(i)
	if !existed {
		d.next.partitions++
	}
	d.next.topics = d.next.topics.Set(t.Name, t.with(i, p))
	d.next.reindex(PartitionID{t.ID, i}, before, p)
	d.changed.touch(t.ID, i)
}

// begin, end and abort handle metadata transactions (KIP-868).
func (d *Delta) begin() {
	before := *d.next
	before.Provenance = d.base.Provenance
	d.next.beforeTxn = &before
	d.atBegin = d.changed.clone()
}

func (d *Delta) end() {
	d.next.beforeTxn = nil
	d.atBegin = nil
}

func (d *Delta) abort() {
	restored := *d.next.beforeTxn
	d.next = &restored
	if d.atBegin != nil {
		d.changed = *d.atBegin
	} else {
		// The transaction began before this delta: what the delta's own records changed is undone, and readers never saw it.
		d.changed = newChanges()
	}
	d.atBegin = nil
}
