// Package hashorder is the orders in which the hash tables of Kafka's group
// coordinator are iterated. An assignment depends on them: which member keeps one
// partition more is decided by the place of its id in a table. So do the order of
// topics and partitions in records.
//
// The tables are java.util.HashMap and HashSet ([Map]) and Kafka's own
// BaseHashTable, on which its timeline collections stand ([Timeline]). Both put a
// key into a slot of a table whose size is a power of two; the slots are iterated
// in order. Keys of one slot come in the order of their insertion, which no record
// tells: they keep the order in which they are given here.
package hashorder

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"slices"
	"unicode/utf16"

	"weir/internal/uuid"
)

// String is String.hashCode of Java.
func String(s string) int32 {
	var h int32
	for _, r := range s {
		if a, b := utf16.EncodeRune(r); a != 0xfffd {
			h = (h*31+a)*31 + b
		} else {
			h = h*31 + r
		}
	}
	return h
}

// UUID is Uuid.hashCode of Kafka.
func UUID(u uuid.UUID) int32 {
	x := binary.BigEndian.Uint64(u[:8]) ^ binary.BigEndian.Uint64(u[8:])
	return int32(x>>32) ^ int32(x)
}

// Int is Integer.hashCode of Java.
func Int(n int32) int32 { return n }

// Table is the size of a HashMap: it grows with what is put into it, and never
// shrinks. The zero value is a HashMap made without a size.
type Table struct {
	slots, keys int
}

// Sized is a HashMap made for a number of keys ("new HashMap<>(n)"), which is too
// small for as many.
func Sized(n int) Table {
	slots := 1
	for slots < n {
		slots *= 2
	}
	return Table{slots: slots}
}

// SizedLike is a HashSet made from another collection of n elements, before these
// are put in.
func SizedLike(n int) Table { return Sized(max(int(float32(n)/0.75)+1, 16)) }

// Put adds a number of keys.
func (t *Table) Put(n int) {
	for range n {
		t.keys++
		if t.slots == 0 {
			t.slots = 16
		}
		if t.keys > t.slots*3/4 {
			t.slots *= 2
		}
	}
}

// Compute looks a key up with computeIfAbsent, which adds it when it is not there.
// That grows the table later than Put does, also for a key that is there, and puts
// the new key before all others of its slot.
func (t *Table) Compute(absent bool) {
	if t.keys > t.slots*3/4 {
		t.slots *= 2
	}
	if absent {
		t.keys++
	}
}

// Remove takes a number of keys out.
func (t *Table) Remove(n int) { t.keys -= n }

// Order sorts keys, given in the order in which they were put into the table, into
// the order of the table. It sorts in place.
func Order[K any](t Table, keys []K, hash func(K) int32) []K {
	slots := max(t.slots, 1)
	return bySlot(keys, func(k K) int {
		h := uint32(hash(k))
		return int(h^h>>16) & (slots - 1)
	})
}

// Map is Order of a HashMap into which the keys were put, and removed others that
// are not there any more.
func Map[K any](keys []K, removed int, hash func(K) int32) []K {
	var t Table
	t.Put(len(keys) + removed)
	return Order(t, keys, hash)
}

// Copied is Order of a HashSet made from another collection, which counts size
// elements.
func Copied[K any](keys []K, size int, hash func(K) int32) []K {
	return Order(SizedLike(size), keys, hash)
}

// Timeline sorts keys into the order of a timeline collection that grew with them,
// and of which some key was set again since (that makes it grow, too). It sorts in
// place.
func Timeline[K any](keys []K, hash func(K) int32) []K {
	slots := 2
	for 3*(len(keys)+1) > 4*slots {
		slots *= 2
	}
	shift := 64 - (bits.Len(uint(slots)) - 1)
	slices.Reverse(keys)                 // the iterator takes the keys of a slot from their end
	const fibonacci = 0x9e3779b97f4a7c15 // -7046029254386353131
	return bySlot(keys, func(k K) int { return int(uint64(int64(hash(k))) * fibonacci >> shift) })
}

func bySlot[K any](keys []K, slot func(K) int) []K {
	slices.SortStableFunc(keys, func(a, b K) int { return cmp.Compare(slot(a), slot(b)) })
	return keys
}
