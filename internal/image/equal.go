package image

import (
	"maps"
	"slices"

	"weir/internal/records"
)

// Equal reports whether two partitions are in the same state.
func (p *Partition) Equal(q *Partition) bool {
	if p == q {
		return true
	}
	if p == nil || q == nil {
		return false
	}
	return p.Leader == q.Leader && p.LeaderEpoch == q.LeaderEpoch && p.PartitionEpoch == q.PartitionEpoch && p.Recovering == q.Recovering &&
		slices.Equal(p.Replicas, q.Replicas) && slices.Equal(p.Directories, q.Directories) && slices.Equal(p.ISR, q.ISR) &&
		slices.Equal(p.ELR, q.ELR) && slices.Equal(p.LastKnownELR, q.LastKnownELR) && slices.Equal(p.Adding, q.Adding) && slices.Equal(p.Removing, q.Removing)
}

// Equal reports whether two registrations say the same.
func (b *Broker) Equal(c *Broker) bool {
	return b == c || b.ID == c.ID && b.Epoch == c.Epoch && b.Incarnation == c.Incarnation && b.MigratingZk == c.MigratingZk &&
		b.Fenced == c.Fenced && b.InControlledShutdown == c.InControlledShutdown && equalPtr(b.Rack, c.Rack) &&
		slices.Equal(b.Endpoints, c.Endpoints) && slices.Equal(b.Features, c.Features) && slices.Equal(b.Dirs, c.Dirs) &&
		slices.Equal(b.CordonedDirs, c.CordonedDirs) && (b.CordonedDirs == nil) == (c.CordonedDirs == nil)
}

// Equal reports whether two registrations say the same.
func (c *Controller) Equal(o *Controller) bool {
	return c == o || c.ID == o.ID && c.Incarnation == o.Incarnation && c.ZkMigrationReady == o.ZkMigrationReady &&
		slices.Equal(c.Endpoints, o.Endpoints) && slices.Equal(c.Features, o.Features)
}

// Equal reports whether the same levels are finalized.
func (f Features) Equal(g Features) bool {
	return f.Metadata == g.Metadata && maps.Equal(f.levels, g.levels)
}

// Equal reports whether two images hold the same state, wherever in the log they stand. It costs O(n): for tests and assertions.
func (i *Image) Equal(j *Image) bool {
	same := i.features.Equal(j.features) && i.nextProducerID == j.nextProducerID && i.partitions == j.partitions &&
		i.brokers.Len() == j.brokers.Len() && i.controllers.Len() == j.controllers.Len() && i.topics.Len() == j.topics.Len() &&
		i.topicNames.Len() == j.topicNames.Len() && i.configs.Len() == j.configs.Len() && i.placed.Len() == j.placed.Len() &&
		i.kept.records.Len() == j.kept.records.Len()
	if !same {
		return false
	}
	differs := func() { same = false }
	diff(i.brokers, j.brokers, func(int32) { differs() }, (*Broker).Equal)
	diff(i.controllers, j.controllers, func(int32) { differs() }, (*Controller).Equal)
	diff(i.configs, j.configs, func(Resource) { differs() }, maps.Equal[map[string]string])
	diff(i.topics, j.topics, func(string) { differs() }, func(t, u *Topic) bool {
		ok := t.ID == u.ID && t.Name == u.Name && t.NumPartitions() == u.NumPartitions()
		diff(t.partitions, u.partitions, func(int32) { ok = false }, (*Partition).Equal)
		return ok
	})
	return same && i.equalIndex(j) && equalKept(i, j)
}

func (i *Image) equalIndex(j *Image) bool {
	for it := i.placed.Iterator(); !it.Done(); {
		set, s, _ := it.Next()
		t, ok := j.placed.Get(set)
		if !ok || s.Len() != t.Len() {
			return false
		}
		same := true
		diff(s, t, func(PartitionID) { same = false }, func(struct{}, struct{}) bool { return true })
		if !same {
			return false
		}
	}
	return true
}

func equalKept(i, j *Image) bool {
	var a, b [][]byte
	i.Kept(func(v records.Versioned) bool { a = append(a, records.AppendMetadata(nil, v)); return true })
	j.Kept(func(v records.Versioned) bool { b = append(b, records.AppendMetadata(nil, v)); return true })
	return slices.EqualFunc(a, b, func(x, y []byte) bool { return string(x) == string(y) })
}

func equalPtr[T comparable](a, b *T) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

// checkIndex compares the index with the partitions it was made from; "" when it is right. For tests.
func (i *Image) checkIndex() string {
	want := map[int32]map[PartitionID]bool{}
	add := func(set int32, id PartitionID) {
		if want[set] == nil {
			want[set] = map[PartitionID]bool{}
		}
		want[set][id] = true
	}
	n := 0
	for t := range i.Topics() {
		if u, ok := i.TopicByID(t.ID); !ok || u != t {
			return "topic " + t.Name + " is not found by its id"
		}
		for p, part := range t.Partitions() {
			n++
			id := PartitionID{t.ID, p}
			for _, b := range part.Replicas {
				add(b, id)
			}
			for _, set := range []int32{setLeaderless, setImbalanced, setReassigning} {
				if member(set, part) {
					add(set, id)
				}
			}
		}
	}
	if n != i.partitions || len(want) != i.placed.Len() {
		return "counts differ"
	}
	for set, ids := range want {
		s, ok := i.placed.Get(set)
		if !ok || s.Len() != len(ids) {
			return "a set has the wrong size"
		}
		for id := range ids {
			if _, ok := s.Get(id); !ok {
				return "a set lacks a partition"
			}
		}
	}
	return ""
}
