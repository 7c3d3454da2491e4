package assignor

import (
	"cmp"
	"slices"

	"weir/internal/group/hashorder"
	"weir/internal/uuid"
)

// ranged is how far a topic has been dealt out.
type ranged struct {
	partitions, members int32
	next, extra         int32
}

// assignRanges gives each member of a topic, in the order of instance ids and then
// of member ids, the next range of its partitions.
func assignRanges(g *Group) map[string]Assignment {
	ms := slices.Clone(g.Members)
	slices.SortStableFunc(ms, func(a, b Member) int {
		switch {
		case a.InstanceID != nil && b.InstanceID != nil:
			return cmp.Compare(*a.InstanceID, *b.InstanceID)
		case a.InstanceID != nil:
			return -1
		case b.InstanceID != nil:
			return 1
		}
		return cmp.Compare(a.ID, b.ID)
	})
	topics := map[uuid.UUID]*ranged{}
	for i := range ms {
		for _, id := range ms[i].Topics {
			t := topics[id]
			if t == nil {
				t = &ranged{partitions: g.Partitions(id)}
				topics[id] = t
			}
			t.members++
		}
	}
	for _, t := range topics {
		t.extra = t.partitions % t.members
	}
	out := make(map[string]Assignment, len(ms))
	for i := range ms {
		a, size := Assignment{}, hashorder.Sized(int(float32(len(ms[i].Topics))/0.75)+1)
		for _, id := range ms[i].Topics {
			if ps := topics[id].deal(); len(ps) > 0 {
				a = append(a, Partitions{id, ps})
				size.Put(1)
			}
		}
		out[ms[i].ID] = hashorder.Order(size, a, func(t Partitions) int32 { return hashorder.UUID(t.Topic) })
	}
	return out
}

func (t *ranged) deal() []int32 {
	n := t.partitions / t.members
	if t.extra > 0 {
		n, t.extra = n+1, t.extra-1
	}
	var ps []int32
	for end := min(t.next+n, t.partitions); t.next < end; t.next++ {
		ps = append(ps, t.next)
	}
	return ps
}
