package image

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/benbjohnson/immutable"

	"weir/internal/uuid"
)

// partitionSet is one entry of the index Image.placed: the partitions of a broker, or of one of the sets below.
type partitionSet = immutable.SortedMap[PartitionID, struct{}]

// Keys of Image.placed that are no broker id.
const (
	setLeaderless  int32 = -1 // partitions without leader
	setImbalanced  int32 = -2 // partitions with a leader that is not the preferred one
	setReassigning int32 = -3 // partitions with adding or removing replicas
)

// member reports whether partition p belongs to the set of the given key. Brokers are handled apart, by replicas.
func member(set int32, p *Partition) bool {
	if p == nil {
		return false
	}
	switch set {
	case setLeaderless:
		return p.Leader == NoLeader
	case setImbalanced:
		return p.Leader != NoLeader && !p.HasPreferredLeader()
	default:
		return p.IsReassigning()
	}
}

// reindex moves a partition between the sets of the index when it changes from before to after; nil means absent.
func (i *Image) reindex(id PartitionID, before, after *Partition) {
	for _, set := range [...]int32{setLeaderless, setImbalanced, setReassigning} {
		if was, is := member(set, before), member(set, after); was != is {
			i.put(set, id, is)
		}
	}
	var old, replicas []int32
	if before != nil {
		old = before.Replicas
	}
	if after != nil {
		replicas = after.Replicas
	}
	if slices.Equal(old, replicas) {
		return
	}
	for _, b := range old {
		if !slices.Contains(replicas, b) {
			i.put(b, id, false)
		}
	}
	for _, b := range replicas {
		if !slices.Contains(old, b) {
			i.put(b, id, true)
		}
	}
}

func (i *Image) put(set int32, id PartitionID, in bool) {
	s, ok := i.placed.Get(set)
	if !ok {
		s = immutable.NewSortedMap[PartitionID, struct{}](partitionOrder{})
	}
	if in {
		s = s.Set(id, struct{}{})
	} else {
		s = s.Delete(id)
	}
	if s.Len() == 0 {
		i.placed = i.placed.Delete(set)
		return
	}
	i.placed = i.placed.Set(set, s)
}

// Orders and hashes of the persistent maps.
type (
	int32Order     struct{}
	stringOrder    struct{}
	resourceOrder  struct{}
	partitionOrder struct{}
	int32Hash      struct{}
	uuidHash       struct{}
)

// Compare orders broker, controller and partition numbers.
func (int32Order) Compare(a, b int32) int { return cmp.Compare(a, b) }

// Compare orders topic names by their bytes.
func (stringOrder) Compare(a, b string) int { return cmp.Compare(a, b) }

// Compare orders resources by type, then name.
func (resourceOrder) Compare(a, b Resource) int {
	return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Name, b.Name))
}

// Compare orders partitions by topic id, then number.
func (partitionOrder) Compare(a, b PartitionID) int {
	return cmp.Or(a.Topic.Compare(b.Topic), cmp.Compare(a.Partition, b.Partition))
}

// Hash spreads small numbers over the trie.
func (int32Hash) Hash(k int32) uint32 { return uint32(k) * 0x9e3779b1 }

// Equal compares numbers.
func (int32Hash) Equal(a, b int32) bool { return a == b }

// Hash folds an id; ids are random already, except in tests.
func (uuidHash) Hash(k uuid.UUID) uint32 {
	h := binary.BigEndian.Uint64(k[:8])*0x9e3779b97f4a7c15 ^ binary.BigEndian.Uint64(k[8:])*0xc2b2ae3d27d4eb4f
	return uint32(h>>32) ^ uint32(h)
}

// Equal compares ids.
func (uuidHash) Equal(a, b uuid.UUID) bool { return a == b }
