package group

import (
	"cmp"
	"iter"
	"strings"

	"github.com/benbjohnson/immutable"

	"weir/internal/group/consumer"
	"weir/internal/records"
)

// State is the replicated groups and offsets of one partition. It never changes.
type State struct {
	// groups are the classic groups, consumers those of KIP-848; no id is in both.
	groups    *immutable.SortedMap[string, *records.GroupMetadataValue]
	consumers *immutable.SortedMap[string, *consumer.Group]
	offsets   *immutable.SortedMap[string, *offsets]
	// open are the offsets of transactions that have not ended, by producer id.
	open    *immutable.SortedMap[int64, *pending]
	foreign int64
}

// offsets are those of one group.
type offsets = immutable.SortedMap[TopicPartition, *Offset]

// pending are those of one transaction, of any group.
type pending = immutable.SortedMap[OffsetKey, *Offset]

// NewState is the state before the first record.
func NewState() *State {
	return &State{
		groups:    immutable.NewSortedMap[string, *records.GroupMetadataValue](stringOrder{}),
		consumers: immutable.NewSortedMap[string, *consumer.Group](stringOrder{}),
		offsets:   immutable.NewSortedMap[string, *offsets](stringOrder{}),
		open:      immutable.NewSortedMap[int64, *pending](int64Order{}),
	}
}

// Group returns the stored state of a classic group, nil when there is no such
// group. A group that only stores offsets has an empty one.
func (s *State) Group(id string) *records.GroupMetadataValue {
	v, _ := s.groups.Get(id)
	return v
}

// Consumer returns a consumer group, nil when there is no such group.
func (s *State) Consumer(id string) *consumer.Group {
	g, _ := s.consumers.Get(id)
	return g
}

// Consumers yields all consumer groups by id.
func (s *State) Consumers() iter.Seq2[string, *consumer.Group] { return all(s.consumers) }

// Groups yields all classic groups by id.
func (s *State) Groups() iter.Seq2[string, *records.GroupMetadataValue] { return all(s.groups) }

// NumGroups counts the groups of either kind.
func (s *State) NumGroups() int { return s.groups.Len() + s.consumers.Len() }

// NumOffsets counts the committed offsets.
func (s *State) NumOffsets() int {
	n := 0
	for _, o := range all(s.offsets) {
		n += o.Len()
	}
	return n
}

// Foreign counts the records of kinds that are not served.
func (s *State) Foreign() int64 { return s.foreign }

// Offset returns a committed offset, nil when there is none.
func (s *State) Offset(group string, tp TopicPartition) *Offset {
	o, ok := s.offsets.Get(group)
	if !ok {
		return nil
	}
	v, _ := o.Get(tp)
	return v
}

// Offsets yields the committed offsets of a group by topic and partition.
func (s *State) Offsets(group string) iter.Seq2[TopicPartition, *Offset] {
	o, ok := s.offsets.Get(group)
	if !ok {
		return func(func(TopicPartition, *Offset) bool) {}
	}
	return all(o)
}

// Unstable tells whether a transaction that has not ended commits this offset.
func (s *State) Unstable(group string, tp TopicPartition) bool {
	for _, p := range all(s.open) {
		if _, ok := p.Get(OffsetKey{group, tp}); ok {
			return true
		}
	}
	return false
}

// unstableIn lists the offsets of a group that open transactions commit.
func (s *State) unstableIn(group string) []TopicPartition {
	var out []TopicPartition
	for _, p := range all(s.open) {
		for k := range all(p) {
			if k.Group == group {
				out = append(out, k.TopicPartition)
			}
		}
	}
	return out
}

// Apply returns the state after the records of a batch that begins at offset base.
func (s *State) Apply(base int64, recs []Record) *State {
	n := *s
	for i := range recs {
		n.apply(&recs[i], base+int64(recs[i].Delta))
	}
	return &n
}

func (s *State) apply(r *Record, at int64) {
	switch {
	case r.Group != nil && r.Group.Value != nil:
		s.groups, s.consumers = s.groups.Set(r.Group.ID, r.Group.Value), s.consumers.Delete(r.Group.ID)
	case r.Group != nil:
		s.groups, s.consumers = s.groups.Delete(r.Group.ID), s.consumers.Delete(r.Group.ID)
	case r.Consumer != nil:
		s.applyConsumer(r.Consumer)
	case r.Offset != nil && r.Offset.Value == nil:
		s.forget(r.Offset.Key)
	case r.Offset != nil:
		r.Offset.Value.at = at
		if s.Group(r.Offset.Key.Group) == nil && s.Consumer(r.Offset.Key.Group) == nil {
			v := records.NewGroupMetadataValue()
			s.groups = s.groups.Set(r.Offset.Key.Group, &v)
		}
		if r.Producer == noProducer {
			s.commit(r.Offset.Key, r.Offset.Value)
			return
		}
		p, ok := s.open.Get(r.Producer)
		if !ok {
			p = immutable.NewSortedMap[OffsetKey, *Offset](offsetKeyOrder{})
		}
		s.open = s.open.Set(r.Producer, p.Set(r.Offset.Key, r.Offset.Value))
	case r.Marker != nil:
		s.end(r.Producer, r.Marker.Commit)
	case r.Foreign != nil:
		s.foreign++
	}
}

// applyConsumer applies a record of a consumer group. The offsets of such a group may
// stand before it in the log: then they have made a classic one, whose place it takes.
func (s *State) applyConsumer(r *consumer.Record) {
	old := s.Consumer(r.Group)
	g := consumer.Apply(old, r)
	switch {
	case g != nil:
		s.consumers, s.groups = s.consumers.Set(r.Group, g), s.groups.Delete(r.Group)
	case old != nil:
		s.consumers = s.consumers.Delete(r.Group)
	}
}

func (s *State) commit(k OffsetKey, v *Offset) {
	o, ok := s.offsets.Get(k.Group)
	if !ok {
		o = immutable.NewSortedMap[TopicPartition, *Offset](topicPartitionOrder{})
	}
	s.offsets = s.offsets.Set(k.Group, o.Set(k.TopicPartition, v))
}

// forget removes an offset, also from transactions that have not ended.
func (s *State) forget(k OffsetKey) {
	if o, ok := s.offsets.Get(k.Group); ok {
		if o = o.Delete(k.TopicPartition); o.Len() == 0 {
			s.offsets = s.offsets.Delete(k.Group)
		} else {
			s.offsets = s.offsets.Set(k.Group, o)
		}
	}
	for id, p := range all(s.open) {
		if _, ok := p.Get(k); !ok {
			continue
		}
		if p = p.Delete(k); p.Len() == 0 {
			s.open = s.open.Delete(id)
		} else {
			s.open = s.open.Set(id, p)
		}
	}
}

// end finishes a transaction. What was committed outside of it after it keeps
// its place.
func (s *State) end(producer int64, commit bool) {
	p, ok := s.open.Get(producer)
	if !ok {
		return
	}
	s.open = s.open.Delete(producer)
	if commit {
		for k, v := range all(p) {
			if old := s.Offset(k.Group, k.TopicPartition); old == nil || v.at > old.at {
				s.commit(k, v)
			}
		}
	}
}

func all[K, V any](m *immutable.SortedMap[K, V]) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for it := m.Iterator(); !it.Done(); {
			if k, v, ok := it.Next(); !ok || !yield(k, v) {
				return
			}
		}
	}
}

type (
	stringOrder         struct{}
	int64Order          struct{}
	topicPartitionOrder struct{}
	offsetKeyOrder      struct{}
)

func (stringOrder) Compare(a, b string) int { return strings.Compare(a, b) }
func (int64Order) Compare(a, b int64) int   { return cmp.Compare(a, b) }
func (topicPartitionOrder) Compare(a, b TopicPartition) int {
	return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
}
func (offsetKeyOrder) Compare(a, b OffsetKey) int {
	return cmp.Or(strings.Compare(a.Group, b.Group), topicPartitionOrder{}.Compare(a.TopicPartition, b.TopicPartition))
}
