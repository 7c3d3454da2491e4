// Package deadline is the timers of a core: what is to happen, and when, as a
// value that is stepped. It knows no clock; whoever steps the core asks Next and
// comes back then.
package deadline

import (
	"container/heap"
	"time"
)

// Queue is a set of deadlines, at most one for each key. The zero value is
// empty. It is soft state: nothing of it is replicated.
type Queue[K comparable] struct {
	byKey map[K]*entry[K]
	order entries[K]
	seq   uint64
}

type entry[K comparable] struct {
	key   K
	at    time.Time
	seq   uint64 // deadlines of one moment come in the order in which they were set
	index int
}

// Set makes key due at a time, in the place of the one it had.
func (q *Queue[K]) Set(key K, at time.Time) {
	q.seq++
	if e, ok := q.byKey[key]; ok {
		e.at, e.seq = at, q.seq
		heap.Fix(&q.order, e.index)
		return
	}
	if q.byKey == nil {
		q.byKey = map[K]*entry[K]{}
	}
	e := &entry[K]{key: key, at: at, seq: q.seq}
	q.byKey[key] = e
	heap.Push(&q.order, e)
}

// Cancel forgets a key.
func (q *Queue[K]) Cancel(key K) {
	if e, ok := q.byKey[key]; ok {
		heap.Remove(&q.order, e.index)
		delete(q.byKey, key)
	}
}

// Get is when a key is due.
func (q *Queue[K]) Get(key K) (time.Time, bool) {
	e, ok := q.byKey[key]
	if !ok {
		return time.Time{}, false
	}
	return e.at, true
}

// Next is the earliest deadline, zero when there is none.
func (q *Queue[K]) Next() time.Time {
	if len(q.order) == 0 {
		return time.Time{}
	}
	return q.order[0].at
}

// Pop takes the earliest key whose time has come.
func (q *Queue[K]) Pop(now time.Time) (key K, ok bool) {
	if len(q.order) == 0 || q.order[0].at.After(now) {
		return key, false
	}
	e := heap.Pop(&q.order).(*entry[K])
	delete(q.byKey, e.key)
	return e.key, true
}

// Len is the number of deadlines.
func (q *Queue[K]) Len() int { return len(q.order) }

type entries[K comparable] []*entry[K]

func (h entries[K]) Len() int { return len(h) }
func (h entries[K]) Less(i, j int) bool {
	if h[i].at.Equal(h[j].at) {
		return h[i].seq < h[j].seq
	}
	return h[i].at.Before(h[j].at)
}
func (h entries[K]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push is heap.Interface's.
func (h *entries[K]) Push(x any) {
	e := x.(*entry[K])
	e.index = len(*h)
	*h = append(*h, e)
}

// Pop is heap.Interface's.
func (h *entries[K]) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return e
}

// Keys lists what is due sometime, in no order.
func (q *Queue[K]) Keys() []K {
	out := make([]K, 0, len(q.order))
	for _, e := range q.order {
		out = append(out, e.key)
	}
	return out
}
