package cleaner

import (
	"crypto/sha256"
	"encoding/binary"
)

// entrySize is the bytes of one entry: 16 of a key's hash, 8 of its offset, as in Kafka's SkimpyOffsetMap. Keys are not
// kept: two keys with one hash would be taken for one, hence a hash that nobody can aim at.
const entrySize = 24

const keySize = 16

// offsetMap has the last offset of each key of the dirty part of a log. Not for concurrent use.
//
// Invariant: len(slots) = n*entrySize with n > limit >= size, so that a search always ends at a free slot.
type offsetMap struct {
	slots  []byte // offset+1 at 16 of each, 0: free
	limit  int    // entries that it takes
	size   int
	latest int64 // the last offset that it has seen, -1 before the first
}

// reset empties the map and makes room for records records, within memory bytes filled to the share load.
func (m *offsetMap) reset(memory int64, load float64, records int64) {
	slots := max(memory/entrySize, 2)
	if want := int64(float64(records)/load) + 2; want > 0 && want < slots {
		slots = want
	}
	if int64(cap(m.slots)) >= slots*entrySize {
		m.slots = m.slots[:slots*entrySize]
		clear(m.slots)
	} else {
		m.slots = make([]byte, slots*entrySize)
	}
	m.limit = max(1, min(int(float64(slots)*load), int(slots)-1))
	m.size, m.latest = 0, -1
}

// put notes a key's offset; false: the map is full and the key was not noted.
func (m *offsetMap) put(key []byte, offset int64) bool {
	if m.size >= m.limit {
		return false
	}
	slot, found := m.find(key)
	if !found {
		m.size++
	}
	binary.BigEndian.PutUint64(slot[keySize:], uint64(offset+1))
	m.latest = offset
	return true
}

// get is the last offset of a key, -1 when there is none.
func (m *offsetMap) get(key []byte) int64 {
	if m.size == 0 {
		return -1
	}
	slot, found := m.lookup(hashKey(key))
	if !found {
		return -1
	}
	return int64(binary.BigEndian.Uint64(slot[keySize:])) - 1
}

// find is the slot of a key, which is taken for it when there was none.
func (m *offsetMap) find(key []byte) (slot []byte, found bool) {
	hash := hashKey(key)
	slot, found = m.lookup(hash)
	if !found {
		copy(slot, hash[:])
	}
	return slot, found
}

func (m *offsetMap) lookup(hash [keySize]byte) (slot []byte, found bool) {
	n := uint64(len(m.slots) / entrySize)
	for i := binary.BigEndian.Uint64(hash[:]) % n; ; {
		slot = m.slots[i*entrySize : (i+1)*entrySize]
		if binary.BigEndian.Uint64(slot[keySize:]) == 0 {
			return slot, false
		}
		if [keySize]byte(slot) == hash {
			return slot, true
		}
		if i++; i == n {
			i = 0
		}
	}
}

// saw notes that everything up to offset is in the map.
func (m *offsetMap) saw(offset int64) { m.latest = max(m.latest, offset) }

// utilization is the share of the slots that are taken.
func (m *offsetMap) utilization() float64 {
	if len(m.slots) == 0 {
		return 0
	}
	return float64(m.size) / float64(len(m.slots)/entrySize)
}

func hashKey(key []byte) [keySize]byte {
	sum := sha256.Sum256(key)
	return [keySize]byte(sum[:])
}
