package assignor

import (
	"cmp"
	"slices"

	"weir/internal/group/hashorder"
	"weir/internal/uuid"
)

// assignRanges cuts each topic into one piece for each of its subscribers. These
// are ranked by byInstance, the same for all topics: those who subscribe
// to the same topics get the same partitions of topics that are equally large.
func assignRanges(g *Group) map[string]Assignment {
	ms := slices.Clone(g.Members)
	slices.SortStableFunc(ms, byInstance)
	subscribers := map[uuid.UUID]int32{}
	ranks := make([][]int32, len(ms)) // of each member, for each of its topics
	for i, m := range ms {
		for _, id := range m.Topics {
			ranks[i] = append(ranks[i], subscribers[id])
			subscribers[id]++
		}
	}
	out := make(map[string]Assignment, len(ms))
	for i, m := range ms {
		a, size := Assignment{}, hashorder.Sized(int(float32(len(m.Topics))/0.75)+1)
		for j, id := range m.Topics {
			if ps := piece(g.Partitions(id), subscribers[id], ranks[i][j]); len(ps) > 0 {
				a = append(a, Partitions{id, ps})
				size.Put(1)
			}
		}
		out[m.ID] = hashorder.Order(size, a, func(t Partitions) int32 { return hashorder.UUID(t.Topic) })
	}
	return out
}

// byInstance compares two members: static ones, by instance id, come before the
// others, by member id.
func byInstance(a, b Member) int {
	x, y := a.InstanceID, b.InstanceID
	if x != nil && y != nil {
		return cmp.Compare(*x, *y)
	}
	if x == nil && y == nil {
		return cmp.Compare(a.ID, b.ID)
	}
	if x != nil {
		return -1
	}
	return 1
}

// piece is the k-th of m pieces of n partitions, of which the first n%m are one
// larger than the others.
func piece(n, m, k int32) []int32 {
	q, r := n/m, n%m
	from, to := k*q+min(k, r), (k+1)*q+min(k+1, r)
	ps := make([]int32, 0, to-from)
	for p := from; p < to; p++ {
		ps = append(ps, p)
	}
	return ps
}
