package assignor

import (
	"cmp"
	"container/heap"
	"slices"
)

// seats are a topic's subscribers while partitions are dealt to them or moved
// between them. Who has the fewest partitions is the next to get one, who has the
// most the next to give one; between members who have as many as each other the
// seat decides, the first gets and the last gives.
//
//	seat     0  1  2  3
//	has      2  2  4  4     seat 0 gets from seat 3
//	         3  2  4  3     seat 1 gets from seat 2
//	         3  3  3  3
//
// The seats are taken in the order of what the members have at first, and kept
// while that changes.
type seats struct {
	sizes   []int // partitions by member, which the caller keeps
	members []int // by seat
	getters turns
	givers  turns
}

// newSeats starts with members, given by ascending number.
func newSeats(sizes, members []int) *seats {
	s := &seats{sizes: sizes, members: slices.Clone(members)}
	slices.SortStableFunc(s.members, func(a, b int) int { return cmp.Compare(sizes[a], sizes[b]) })
	for _, q := range []*turns{&s.getters, &s.givers} {
		q.seats, q.sign = s, 1
		for i := range members {
			q.queue, q.place = append(q.queue, i), append(q.place, i)
		}
	}
	s.givers.sign = -1
	heap.Init(&s.getters)
	heap.Init(&s.givers)
	return s
}

// getter is the seat that is next to get a partition.
func (s *seats) getter() int { return s.getters.queue[0] }

// next is between which seats a partition should move, unless levels differ by at
// most 1 or nobody is left.
func (s *seats) next() (from, to int, ok bool) {
	if len(s.members) == 0 {
		return 0, 0, false
	}
	from, to = s.givers.queue[0], s.getter()
	return from, to, s.sizes[s.members[from]]-s.sizes[s.members[to]] > 1
}

// resized is to be called whenever the member in a seat has got or given a
// partition, before that happens to another one.
func (s *seats) resized(seat int) {
	heap.Fix(&s.getters, s.getters.place[seat])
	heap.Fix(&s.givers, s.givers.place[seat])
}

// leave sends the member in a seat away, who is the next to give but has nothing of
// the topic. It would not get anything either: nobody has more than it. Who sits in
// the last seat moves to the one that is empty now, so that its turn to give comes
// later than before.
func (s *seats) leave(seat int) {
	last := len(s.members) - 1
	heap.Remove(&s.getters, s.getters.place[last])
	heap.Remove(&s.givers, s.givers.place[last])
	if seat != last {
		s.members[seat] = s.members[last]
		s.resized(seat)
	}
	s.members = s.members[:last]
}

// turns is a heap of seats.
type turns struct {
	seats *seats
	sign  int   // 1: the fewest partitions and the first seat on top; -1: the reverse
	queue []int // seats
	place []int // of each seat in the queue
}

func (t *turns) Len() int { return len(t.queue) }

func (t *turns) Less(i, j int) bool {
	a, b := t.queue[i], t.queue[j]
	has := func(seat int) int { return t.seats.sizes[t.seats.members[seat]] }
	return t.sign*cmp.Or(cmp.Compare(has(a), has(b)), cmp.Compare(a, b)) < 0
}

func (t *turns) Swap(i, j int) {
	t.queue[i], t.queue[j] = t.queue[j], t.queue[i]
	t.place[t.queue[i]], t.place[t.queue[j]] = i, j
}

// Push is part of [heap.Interface].
func (t *turns) Push(seat any) {
	t.place[seat.(int)] = len(t.queue)
	t.queue = append(t.queue, seat.(int))
}

// Pop is part of [heap.Interface].
func (t *turns) Pop() any {
	last := len(t.queue) - 1
	seat := t.queue[last]
	t.queue = t.queue[:last]
	return seat
}
