package assignor

import (
	"slices"

	"weir/internal/group/hashorder"
	"weir/internal/uuid"
)

type topicPartition struct {
	topic     uuid.UUID
	partition int32
}

// nobody is the owner of a partition that has none.
const nobody = -1

// unowned is a list of owners, by partition, for a topic of n partitions.
func unowned(n int32) []int {
	return slices.Repeat([]int{nobody}, int(n))
}

// claim makes a member the owner of a partition that it says it had. The word of
// a member is not enough: the partition has to exist (a topic that is not dealt out
// has no owners) and nobody may have claimed it before.
func claim(owners []int, p int32, member int) bool {
	if p < 0 || int(p) >= len(owners) || owners[p] != nobody {
		return false
	}
	owners[p] = member
	return true
}

// table is an assignment while it is made: Kafka's HashMap of it.
type table struct {
	size    hashorder.Table
	order   []uuid.UUID // as they were put in
	sets    map[uuid.UUID]*set
	changed bool // it is not what it was copied from
}

// set is partitions while they are put together: Kafka's HashSet of them.
type set struct {
	size  hashorder.Table
	order []int32 // as they were put in
}

// copyOf begins with an assignment.
func copyOf(a Assignment) *table {
	t := &table{size: hashorder.Sized(len(a)), sets: make(map[uuid.UUID]*set, len(a))}
	for _, x := range a {
		s := t.sets[x.Topic]
		if s == nil {
			s = &set{size: hashorder.SizedLike(len(x.Partitions))}
			t.size.Put(1)
			t.order, t.sets[x.Topic] = append(t.order, x.Topic), s
		} else {
			t.changed = true // a topic that was listed twice is listed once
		}
		s.size.Put(len(x.Partitions))
		s.order = append(s.order, x.Partitions...)
	}
	return t
}

// filter takes out all for which keep is false and lists the others.
func (t *table) filter(keep func(id uuid.UUID, p int32) bool) (kept []topicPartition) {
	for _, id := range slices.Clone(t.order) {
		s := t.sets[id]
		before := len(s.order)
		s.order = slices.DeleteFunc(s.order, func(p int32) bool { return !keep(id, p) })
		if gone := before - len(s.order); gone > 0 {
			t.changed = true
			s.size.Remove(gone)
		}
		if len(s.order) == 0 {
			t.remove(id)
		}
		for _, p := range s.order {
			kept = append(kept, topicPartition{id, p})
		}
	}
	return kept
}

// add gives a partition to whose assignment this is.
func (t *table) add(id uuid.UUID, p int32) {
	t.changed = true
	s := t.sets[id]
	t.size.Compute(s == nil)
	if s == nil {
		s = &set{}
		t.order, t.sets[id] = slices.Insert(t.order, 0, id), s
	}
	s.size.Put(1)
	s.order = append(s.order, p)
}

// take takes a partition away, and its topic when it was the last.
func (t *table) take(id uuid.UUID, p int32) {
	t.changed = true
	s := t.sets[id]
	i := slices.Index(s.order, p)
	s.order = slices.Delete(s.order, i, i+1)
	if s.size.Remove(1); len(s.order) == 0 {
		t.remove(id)
	}
}

// remove takes a topic out.
func (t *table) remove(id uuid.UUID) {
	t.changed = true
	delete(t.sets, id)
	t.size.Remove(1)
	t.order = slices.DeleteFunc(t.order, func(x uuid.UUID) bool { return x == id })
}

func (t *table) assignment() Assignment {
	out := make(Assignment, 0, len(t.order))
	for _, id := range hashorder.Order(t.size, t.order, hashorder.UUID) {
		s := t.sets[id]
		out = append(out, Partitions{id, hashorder.Order(s.size, s.order, hashorder.Int)})
	}
	return out
}
