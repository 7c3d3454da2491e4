package consumer

import (
	"cmp"
	"iter"

	"github.com/benbjohnson/immutable"

	"weir/internal/image"
)

// Persistent maps, of which nil is the empty one.
type (
	table[V any] = immutable.SortedMap[string, V]
	// owners has for each partition the epoch of the member that has it.
	owners = immutable.SortedMap[image.PartitionID, int32]
)

func get[K, V any](m *immutable.SortedMap[K, V], k K) (v V, ok bool) {
	if m == nil {
		return v, false
	}
	return m.Get(k)
}

func set[V any](m *table[V], k string, v V) *table[V] {
	if m == nil {
		m = immutable.NewSortedMap[string, V](nameOrder{})
	}
	return m.Set(k, v)
}

func setOwner(m *owners, k image.PartitionID, epoch int32) *owners {
	if m == nil {
		m = immutable.NewSortedMap[image.PartitionID, int32](partitionOrder{})
	}
	return m.Set(k, epoch)
}

func remove[K, V any](m *immutable.SortedMap[K, V], k K) *immutable.SortedMap[K, V] {
	if m == nil {
		return nil
	}
	if m = m.Delete(k); m.Len() == 0 {
		return nil
	}
	return m
}

func size[K, V any](m *immutable.SortedMap[K, V]) int {
	if m == nil {
		return 0
	}
	return m.Len()
}

// all yields a map in the order of its keys.
func all[K, V any](m *immutable.SortedMap[K, V]) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		if m == nil {
			return
		}
		for it := m.Iterator(); !it.Done(); {
			if k, v, ok := it.Next(); !ok || !yield(k, v) {
				return
			}
		}
	}
}

// count adds to a counter, which is gone when it is zero.
func count(m *table[int], k string, by int) *table[int] {
	n, _ := get(m, k)
	if n += by; n <= 0 {
		return remove(m, k)
	}
	return set(m, k, n)
}

type (
	nameOrder      struct{}
	partitionOrder struct{}
)

func (nameOrder) Compare(a, b string) int { return cmp.Compare(a, b) }
func (partitionOrder) Compare(a, b image.PartitionID) int {
	return cmp.Or(a.Topic.Compare(b.Topic), cmp.Compare(a.Partition, b.Partition))
}

func same[K, V comparable](a, b *immutable.SortedMap[K, V]) bool {
	if size(a) != size(b) {
		return false
	}
	for k, v := range all(a) {
		if w, ok := get(b, k); !ok || v != w {
			return false
		}
	}
	return true
}
