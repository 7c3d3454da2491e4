package assignor

import (
	"cmp"
	"encoding/binary"
	"slices"

	"weir/internal/uuid"
)

// rounds bounds how often the topics are balanced one after another.
const rounds = 16

// mixed deals topics out to members of which not all subscribe to the same ones
// (Kafka's UniformHeterogeneousAssignmentBuilder). Members are known by index.
type mixed struct {
	g           *Group
	subscribers map[uuid.UUID][]int // of each topic, ascending
	owners      map[uuid.UUID][]int // of each partition, -1 for none
	sizes       []int               // partitions of each member
	out         []*table
}

func assignMixed(g *Group) map[string]Assignment {
	m := &mixed{
		g: g, subscribers: map[uuid.UUID][]int{}, owners: map[uuid.UUID][]int{},
		sizes: make([]int, len(g.Members)), out: make([]*table, len(g.Members)),
	}
	for i := range g.Members {
		for _, id := range g.Members[i].Topics {
			m.subscribers[id] = append(m.subscribers[id], i)
			if m.owners[id] == nil {
				m.owners[id] = slices.Repeat([]int{-1}, int(g.Partitions(id)))
			}
		}
	}
	if len(m.subscribers) == 0 {
		return nil
	}
	for i := range g.Members {
		m.keep(i)
	}
	m.dealFree()
	m.balance()
	out := make(map[string]Assignment, len(m.out))
	for i, t := range m.out {
		out[g.Members[i].ID] = t.assignment()
	}
	return out
}

// keep lets a member have what it had of the topics to which it subscribes.
func (m *mixed) keep(i int) {
	had := m.g.Members[i].Had
	m.out[i] = copyOf(had)
	for _, t := range had {
		if !slices.Contains(m.g.Members[i].Topics, t.Topic) {
			m.out[i].remove(t.Topic)
			continue
		}
		m.sizes[i] += len(t.Partitions)
		for _, p := range t.Partitions {
			m.owners[t.Topic][p] = i
		}
	}
}

// sorted lists the topics that pass a filter: those with the most partitions for
// each subscriber first.
func (m *mixed) sorted(filter func(id uuid.UUID) bool) []uuid.UUID {
	var ids []uuid.UUID
	for id := range m.subscribers {
		if filter(id) {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b uuid.UUID) int {
		na, nb := len(m.subscribers[a]), len(m.subscribers[b])
		return cmp.Or(
			cmp.Compare(float64(len(m.owners[b]))/float64(nb), float64(len(m.owners[a]))/float64(na)),
			cmp.Compare(na, nb), compareSigned(a, b))
	})
	return ids
}

// compareSigned orders ids as Kafka's Uuid does: as two signed numbers.
func compareSigned(a, b uuid.UUID) int {
	half := func(u []byte) int64 { return int64(binary.BigEndian.Uint64(u)) }
	return cmp.Or(cmp.Compare(half(a[:8]), half(b[:8])), cmp.Compare(half(a[8:]), half(b[8:])))
}

func (m *mixed) dealFree() {
	var b balancer
	for _, id := range m.sorted(func(id uuid.UUID) bool { return slices.Contains(m.owners[id], -1) }) {
		b.begin(m.sizes, m.subscribers[id])
		for p, owner := range m.owners[id] {
			if owner == -1 {
				m.give(id, int32(p), b.least())
			}
		}
	}
}

// give makes a member the owner of a partition.
func (m *mixed) give(id uuid.UUID, p int32, to int) {
	if from := m.owners[id][p]; from != -1 {
		m.out[from].take(id, p)
		m.sizes[from]--
	}
	m.out[to].add(id, p)
	m.owners[id][p] = to
	m.sizes[to]++
}

// balance moves partitions from those who have the most to those who have the
// least, topic by topic, until a whole round has moved nothing.
func (m *mixed) balance() {
	topics := m.sorted(func(id uuid.UUID) bool { return len(m.subscribers[id]) >= 2 })
	last := -1 // the topic that was the last to be balanced
	for range rounds {
		for i, id := range topics {
			if i == last {
				return
			}
			if m.balanceTopic(id) > 0 || last == -1 {
				last = i
			}
		}
	}
}

// balanceTopic returns how many partitions it has moved.
func (m *mixed) balanceTopic(id uuid.UUID) int {
	var b balancer
	if b.begin(m.sizes, m.subscribers[id]) <= 1 {
		return 0
	}
	owned := map[int][]int32{} // by member, ascending: the last one goes first
	for p, owner := range m.owners[id] {
		owned[owner] = append(owned[owner], int32(p))
	}
	moved := 0
	for !b.balanced() {
		from := b.most()
		for from != -1 && len(owned[from]) == 0 {
			b.exclude()
			from = b.most()
		}
		if from == -1 {
			break // nobody is left who could give
		}
		ps := owned[from]
		owned[from] = ps[:len(ps)-1]
		to := b.least()
		if b.balanced() {
			break
		}
		m.give(id, ps[len(ps)-1], to)
		moved++
	}
	return moved
}
