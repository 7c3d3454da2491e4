package assignor

import (
	"cmp"
	"encoding/binary"
	"slices"

	"weir/internal/uuid"
)

// visits bounds how often each topic is balanced.
const visits = 16

// mixed deals topics out to members of which not all subscribe to the same ones.
// Members are known by index.
type mixed struct {
	topics map[uuid.UUID]*shared
	sizes  []int // partitions of each member
	hands  []*table
}

// shared is a topic and who has its partitions.
type shared struct {
	id          uuid.UUID
	subscribers []int           // ascending
	owners      []int           // by partition
	owned       map[int][]int32 // by member, ascending
}

func assignMixed(g *Group) map[string]Assignment {
	m := &mixed{
		topics: map[uuid.UUID]*shared{},
		sizes:  make([]int, len(g.Members)), hands: make([]*table, len(g.Members)),
	}
	for i := range g.Members {
		for _, id := range g.Members[i].Topics {
			t := m.topics[id]
			if t == nil {
				t = &shared{id: id, owners: unowned(g.Partitions(id)), owned: map[int][]int32{}}
				m.topics[id] = t
			}
			t.subscribers = append(t.subscribers, i)
		}
	}
	if len(m.topics) == 0 {
		return nil
	}
	for i := range g.Members {
		m.keep(i, &g.Members[i])
	}
	m.dealFree()
	m.balance()
	out := make(map[string]Assignment, len(m.hands))
	for i, t := range m.hands {
		out[g.Members[i].ID] = t.assignment()
	}
	return out
}

// keep lets a member have what it had of the topics to which it subscribes.
func (m *mixed) keep(i int, member *Member) {
	m.hands[i] = copyOf(member.Had)
	subscribed := make(map[uuid.UUID]bool, len(member.Topics))
	for _, id := range member.Topics {
		subscribed[id] = true
	}
	kept := m.hands[i].filter(func(id uuid.UUID, p int32) bool {
		return subscribed[id] && claim(m.topics[id].owners, p, i)
	})
	for _, tp := range kept {
		t := m.topics[tp.topic]
		t.owned[i] = append(t.owned[i], tp.partition)
	}
	for _, id := range member.Topics {
		slices.Sort(m.topics[id].owned[i])
	}
	m.sizes[i] = len(kept)
}

// sorted lists the topics that pass a filter: those with the most partitions for
// each subscriber first.
func (m *mixed) sorted(filter func(t *shared) bool) []*shared {
	var ts []*shared
	for _, t := range m.topics {
		if filter(t) {
			ts = append(ts, t)
		}
	}
	slices.SortFunc(ts, func(a, b *shared) int {
		na, nb := len(a.subscribers), len(b.subscribers)
		return cmp.Or(
			cmp.Compare(float64(len(b.owners))/float64(nb), float64(len(a.owners))/float64(na)),
			cmp.Compare(na, nb), compareSigned(a.id, b.id))
	})
	return ts
}

// compareSigned orders ids as Kafka's Uuid does: as two signed numbers.
func compareSigned(a, b uuid.UUID) int {
	half := func(u []byte) int64 { return int64(binary.BigEndian.Uint64(u)) }
	return cmp.Or(cmp.Compare(half(a[:8]), half(b[:8])), cmp.Compare(half(a[8:]), half(b[8:])))
}

// dealFree gives each partition that nobody has to the subscriber with the fewest.
func (m *mixed) dealFree() {
	for _, t := range m.sorted(func(t *shared) bool { return slices.Contains(t.owners, nobody) }) {
		s := newSeats(m.sizes, t.subscribers)
		for p, owner := range t.owners {
			if owner == nobody {
				to := s.getter()
				m.give(t, int32(p), s.members[to])
				s.resized(to)
			}
		}
	}
}

// drop leaves a partition without an owner.
func (m *mixed) drop(t *shared, p int32) {
	from := t.owners[p]
	i, _ := slices.BinarySearch(t.owned[from], p)
	t.owned[from] = slices.Delete(t.owned[from], i, i+1)
	t.owners[p] = nobody
	m.hands[from].take(t.id, p)
	m.sizes[from]--
}

// give makes a member the owner of a partition that has none.
func (m *mixed) give(t *shared, p int32, to int) {
	i, _ := slices.BinarySearch(t.owned[to], p)
	t.owned[to] = slices.Insert(t.owned[to], i, p)
	t.owners[p] = to
	m.hands[to].add(t.id, p)
	m.sizes[to]++
}

// balance goes round the topics until all of them have been found level since
// something was moved.
func (m *mixed) balance() {
	topics := m.sorted(func(t *shared) bool { return len(t.subscribers) >= 2 })
	left := len(topics) // to be visited without a move
	for visit := 0; left > 0 && visit < visits*len(topics); visit++ {
		if left--; m.balanceTopic(topics[visit%len(topics)]) {
			left = len(topics) - 1
		}
	}
}

// balanceTopic moves partitions of a topic from those who have the most of all
// topics to those who have the fewest, and tells whether any was moved.
func (m *mixed) balanceTopic(t *shared) (moved bool) {
	s := newSeats(m.sizes, t.subscribers)
	for {
		from, to, ok := s.next()
		if !ok {
			return moved
		}
		ps := t.owned[s.members[from]]
		if len(ps) == 0 {
			s.leave(from)
			continue
		}
		p := ps[len(ps)-1]
		m.drop(t, p)
		s.resized(from)
		m.give(t, p, s.members[to])
		s.resized(to)
		moved = true
	}
}
