package assignor

import (
	"cmp"
	"slices"
)

// balancer tells who of a topic's subscribers has the least and who the most
// partitions while these are dealt out or moved. The subscribers are sorted by
// what they have at first; a range of those with the least grows from the left, a
// range of those with the most from the right:
//
//	                        ┌─ most ──┐
//	partitions              [ ####### ]##  ← have none to give
//	of each    [ ..... ]  ##[ ####### ]##
//	member     [ ##### ]####[ ####### ]##
//	           └ least ┘
//
// The members of a range are level. It is gone through, one partition for each
// member, and then its level changes by one and those who are on that level now
// come in.
type balancer struct {
	sizes   []int // partitions of each member, kept by the caller
	members []int // sorted

	leastEnd, leastLevel, nextLeast           int
	mostStart, mostEnd, mostLevel, nextToGive int // [mostStart, mostEnd)
}

// begin starts with a topic's subscribers, at least one, and returns by how much
// what they have differs.
func (b *balancer) begin(sizes, members []int) (imbalance int) {
	b.sizes, b.members = sizes, slices.Clone(members)
	slices.SortFunc(b.members, func(x, y int) int { return cmp.Or(cmp.Compare(sizes[x], sizes[y]), cmp.Compare(x, y)) })
	n := len(b.members)
	low, high := sizes[b.members[0]], sizes[b.members[n-1]]
	b.leastEnd, b.leastLevel, b.nextLeast = 0, low-1, 0
	b.mostStart, b.mostEnd, b.mostLevel, b.nextToGive = n, n, high+1, n-1
	return high - low
}

// least is who gets the next partition.
func (b *balancer) least() int {
	if b.nextLeast >= b.leastEnd {
		b.leastLevel++
		for b.leastEnd < len(b.members) && b.sizes[b.members[b.leastEnd]] == b.leastLevel {
			b.leastEnd++
		}
		b.nextLeast = 0
	}
	b.nextLeast++
	return b.members[b.nextLeast-1]
}

// most is who gives the next partition, -1 when nobody can.
func (b *balancer) most() int {
	if b.nextToGive < b.mostStart {
		if b.mostEnd <= b.mostStart && b.mostStart > 0 {
			// All of the range were excluded: the next level is that of the next member.
			b.mostLevel = b.sizes[b.members[b.mostStart-1]]
		} else {
			b.mostLevel--
		}
		for b.mostStart > 0 && b.sizes[b.members[b.mostStart-1]] == b.mostLevel {
			b.mostStart--
		}
		b.nextToGive = b.mostEnd - 1
	}
	if b.nextToGive < 0 {
		return -1
	}
	b.nextToGive--
	return b.members[b.nextToGive+1]
}

// exclude takes the member that most has just returned out of the range.
func (b *balancer) exclude() {
	i, end := b.nextToGive+1, b.mostEnd-1
	b.members[i], b.members[end] = b.members[end], b.members[i]
	b.mostEnd--
}

func (b *balancer) balanced() bool { return b.mostLevel-b.leastLevel <= 1 }
