package assignor

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"weir/internal/uuid"
)

func topicID(n int) uuid.UUID { return uuid.UUID{0: byte(n * 91), 7: byte(n), 15: 1} }

func newGroup(homogeneous bool, sizes map[uuid.UUID]int32, ms ...Member) *Group {
	taken := map[topicPartition]bool{}
	for _, m := range ms {
		for _, x := range m.Had {
			for _, p := range x.Partitions {
				taken[topicPartition{x.Topic, p}] = true
			}
		}
	}
	return &Group{
		Members: ms, Homogeneous: homogeneous,
		Taken:      func(id uuid.UUID, p int32) bool { return taken[topicPartition{id, p}] },
		Partitions: func(id uuid.UUID) int32 { return sizes[id] },
	}
}

// TestWrongClaims: what cannot have been a member's is not kept, and all the rest is.
func TestWrongClaims(t *testing.T) {
	orders, foreign := topicID(1), topicID(2)
	subscribed := []uuid.UUID{orders}
	for _, homogeneous := range []bool{true, false} {
		got, err := Assign(Uniform, newGroup(homogeneous, map[uuid.UUID]int32{orders: 6},
			Member{ID: "a", Topics: subscribed, Had: Assignment{{orders, []int32{-1, 4, 4, 6}}, {foreign, []int32{0}}}},
			Member{ID: "b", Topics: subscribed, Had: Assignment{{orders, []int32{4, 2}}, {orders, []int32{3, 1 << 30}}}},
		))
		if err != nil {
			t.Fatal(err)
		}
		for id, want := range map[string][]int32{"a": {0, 1, 4}, "b": {2, 3, 5}} {
			if a := got[id]; len(a) != 1 || !sameSet(a.Of(orders), want) {
				t.Errorf("homogeneous %v: %s gets %v, not %v", homogeneous, id, a, want)
			}
		}
	}
}

// dice makes numbers of bytes.
type dice []byte

func (d *dice) roll(n int) int {
	if len(*d) == 0 {
		return 0
	}
	b := (*d)[0]
	*d = (*d)[1:]
	return int(b) % n
}

// anyGroup makes a group whose members may claim to have had anything.
func anyGroup(d *dice) *Group {
	sizes := map[uuid.UUID]int32{}
	topics := 1 + d.roll(5)
	for i := range topics {
		sizes[topicID(i)] = int32(d.roll(12))
	}
	subscribe := func() (ids []uuid.UUID) {
		for i := range topics {
			if d.roll(3) > 0 {
				ids = append(ids, topicID(i))
			}
		}
		return ids
	}
	same, homogeneous := subscribe(), d.roll(2) == 0
	var ms []Member
	for i := range 1 + d.roll(7) {
		m := Member{ID: string(rune('a' + i)), Topics: same}
		if d.roll(3) == 0 {
			name := string(rune('z' - i))
			m.InstanceID = &name
		}
		if !homogeneous {
			m.Topics = subscribe()
		}
		for range d.roll(5) {
			x := Partitions{Topic: topicID(d.roll(topics + 1))}
			for range 1 + d.roll(9) {
				x.Partitions = append(x.Partitions, int32(d.roll(16)-2))
			}
			m.Had = append(m.Had, x)
		}
		ms = append(ms, m)
	}
	return newGroup(homogeneous, sizes, ms...)
}

// FuzzAssign: whatever members had, the results are as the package promises.
func FuzzAssign(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		b := make([]byte, r.IntN(300))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, name := range []string{Uniform, Range} {
			d := dice(b)
			g, again := anyGroup(&d), dice(b)
			got, err := Assign(name, g)
			if err != nil {
				t.Fatal(name, err)
			}
			if !reflect.DeepEqual(g.Members, anyGroup(&again).Members) {
				t.Fatalf("%s has written to what members had", name)
			}
			owners := checkOwners(t, g, got)
			switch {
			case name == Range:
				checkRanges(t, g, got)
			case g.Homogeneous && len(owners) > 0:
				checkEven(t, g, got)
			case !g.Homogeneous:
				checkMixed(t, g, got, owners)
			}
		}
	})
}

func size(a Assignment) (n int) {
	for _, x := range a {
		n += len(x.Partitions)
	}
	return n
}

func checkOwners(t *testing.T, g *Group, got map[string]Assignment) map[topicPartition]string {
	all := map[topicPartition]bool{}
	owners := map[topicPartition]string{}
	for _, m := range g.Members {
		for _, id := range m.Topics {
			for p := range g.Partitions(id) {
				all[topicPartition{id, p}] = true
			}
		}
		if a := got[m.ID]; len(a.ByTopic()) != len(a) {
			t.Fatalf("%s gets a topic twice: %v", m.ID, a)
		}
		for _, x := range got[m.ID] {
			if !slices.Contains(m.Topics, x.Topic) || len(x.Partitions) == 0 {
				t.Fatalf("%s, which subscribes to %v, gets %v", m.ID, m.Topics, x)
			}
			for _, p := range x.Partitions {
				tp := topicPartition{x.Topic, p}
				if other, ok := owners[tp]; ok || !all[tp] {
					t.Fatalf("%s gets %v (exists: %v, also given to %q)", m.ID, tp, all[tp], other)
				}
				owners[tp] = m.ID
			}
		}
	}
	if len(owners) != len(all) {
		t.Fatalf("%d of %d partitions are assigned", len(owners), len(all))
	}
	return owners
}

func checkEven(t *testing.T, g *Group, got map[string]Assignment) {
	var sizes []int
	for _, m := range g.Members {
		sizes = append(sizes, size(got[m.ID]))
	}
	if slices.Max(sizes)-slices.Min(sizes) > 1 {
		t.Fatalf("members get %v partitions", sizes)
	}
}

func checkMixed(t *testing.T, g *Group, got map[string]Assignment, owners map[topicPartition]string) {
	for tp, owner := range owners {
		for _, m := range g.Members {
			if slices.Contains(m.Topics, tp.topic) && size(got[owner])-size(got[m.ID]) > 1 {
				t.Fatalf("%v should move from %s to %s: %v", tp, owner, m.ID, got)
			}
		}
	}
}

func checkRanges(t *testing.T, g *Group, got map[string]Assignment) {
	lengths := map[uuid.UUID][]int{}
	for _, m := range slices.SortedFunc(slices.Values(g.Members), byInstance) {
		for _, id := range m.Topics {
			ps := got[m.ID].Of(id)
			if n := len(ps); n > 0 && int(ps[n-1]-ps[0]) != n-1 {
				t.Fatalf("%s gets %v", m.ID, ps)
			}
			lengths[id] = append(lengths[id], len(ps))
		}
	}
	for id, ns := range lengths {
		if ns[0]-ns[len(ns)-1] > 1 || !slices.IsSortedFunc(ns, func(a, b int) int { return b - a }) {
			t.Fatalf("%v is cut into ranges of %v partitions", id, ns)
		}
	}
}
