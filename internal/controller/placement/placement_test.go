package placement

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"weir/internal/rng"
)

func brokers(n int, racks ...string) []Broker {
	var out []Broker
	for i := range n {
		b := Broker{ID: int32(i + 1)}
		if len(racks) > 0 {
			b.Rack = racks[i%len(racks)]
		}
		out = append(out, b)
	}
	return out
}

// counts returns replicas and leaders per broker, and fails on a broker that is used twice in a partition.
func counts(t *testing.T, placed [][]int32) (replicas, leaders map[int32]int) {
	t.Helper()
	replicas, leaders = map[int32]int{}, map[int32]int{}
	for _, p := range placed {
		sorted := slices.Sorted(slices.Values(p))
		if len(slices.Compact(sorted)) != len(p) {
			t.Fatalf("two replicas of a partition on one broker: %v", p)
		}
		leaders[p[0]]++
		for _, b := range p {
			replicas[b]++
		}
	}
	return replicas, leaders
}

func place(t *testing.T, req Request, bs []Broker, seed uint64) [][]int32 {
	t.Helper()
	out, err := Place(req, bs, rng.New(seed))
	if err != nil {
		t.Fatal(err)
	}
	if len(out) != req.Partitions {
		t.Fatalf("%d partitions, want %d", len(out), req.Partitions)
	}
	return out
}

// A2: 6 brokers, 10 partitions, RF 3: exactly 5 replicas each, 1 or 2 leaders each, wherever the dice fall and whatever is there.
func TestEvenSpread(t *testing.T) {
	for seed := range uint64(300) {
		bs := brokers(6)
		for i := range bs {
			bs[i].Replicas = int(seed) * i
		}
		replicas, leaders := counts(t, place(t, Request{Partitions: 10, ReplicationFactor: 3}, bs, seed))
		for _, b := range bs {
			if replicas[b.ID] != 5 || leaders[b.ID] < 1 || leaders[b.ID] > 2 {
				t.Fatalf("seed %d: broker %d has %d replicas and %d leaders", seed, b.ID, replicas[b.ID], leaders[b.ID])
			}
		}
	}
}

// Any shape: replica counts differ by one at most, leader counts too.
func TestShapes(t *testing.T) {
	for n := 1; n <= 7; n++ {
		for factor := 1; factor <= n; factor++ {
			for _, partitions := range []int{1, 2, 5, 13, 50} {
				replicas, leaders := counts(t, place(t, Request{Partitions: partitions, ReplicationFactor: factor}, brokers(n), uint64(n*100+factor)))
				for name, m := range map[string]map[int32]int{"replicas": replicas, "leaders": leaders} {
					low, high := m[1], m[1]
					for _, b := range brokers(n) {
						low, high = min(low, m[b.ID]), max(high, m[b.ID])
					}
					if high-low > 1 {
						t.Errorf("%d brokers, %d partitions, factor %d: %s from %d to %d", n, partitions, factor, name, low, high)
					}
				}
			}
		}
	}
}

// A1: the message names both figures.
func TestRefusals(t *testing.T) {
	fenced := brokers(2)
	fenced[0].Fenced, fenced[1].Fenced = true, true
	for _, c := range []struct {
		factor int
		bs     []Broker
		want   string
	}{
		{3, brokers(2), "The target replication factor of 3 cannot be reached because only 2 broker(s) are registered or some brokers have all their log directories cordoned."},
		{0, brokers(2), "Invalid replication factor 0: the replication factor must be positive."},
		{1, fenced, "All brokers are currently fenced."},
		{1, nil, "All brokers are currently fenced."},
	} {
		_, err := Place(Request{Partitions: 1, ReplicationFactor: c.factor}, c.bs, rng.New(1))
		var reason *Error
		if !errors.As(err, &reason) || reason.Reason != c.want {
			t.Errorf("factor %d on %d brokers: %v", c.factor, len(c.bs), err)
		}
	}
}

// A3: as many racks as possible.
func TestRacks(t *testing.T) {
	for seed := range uint64(50) {
		bs := brokers(6, "a", "b", "c")
		rack := map[int32]string{}
		for _, b := range bs {
			rack[b.ID] = b.Rack
		}
		for factor := 1; factor <= 6; factor++ {
			for _, p := range place(t, Request{Partitions: 9, ReplicationFactor: factor}, bs, seed) {
				used := map[string]int{}
				for _, b := range p {
					used[rack[b]]++
				}
				if len(used) != min(factor, 3) {
					t.Fatalf("seed %d, factor %d: %v stands on %d racks", seed, factor, p, len(used))
				}
			}
		}
	}
}

// Fenced brokers are used last and lead nothing.
func TestFencedLast(t *testing.T) {
	bs := brokers(4, "a", "b")
	bs[0].Fenced = true
	for seed := range uint64(50) {
		for _, p := range place(t, Request{Partitions: 8, ReplicationFactor: 3}, bs, seed) {
			if slices.Contains(p, 1) {
				t.Fatalf("a fenced broker is used although three others are there: %v", p)
			}
		}
		for _, p := range place(t, Request{Partitions: 8, ReplicationFactor: 4}, bs, seed) {
			if p[0] == 1 {
				t.Fatalf("a fenced broker leads: %v", p)
			}
		}
	}
}

// New partitions go where the topic's old ones are not.
func TestExistingCount(t *testing.T) {
	req := Request{Partitions: 3, ReplicationFactor: 1, Existing: [][]int32{{1}, {1}, {1}}}
	replicas, _ := counts(t, place(t, req, brokers(4), 3))
	if replicas[1] != 0 || replicas[2] != 1 || replicas[3] != 1 || replicas[4] != 1 {
		t.Errorf("replicas per broker: %v", replicas)
	}
}

func BenchmarkPlace(b *testing.B) {
	for _, n := range []int{3, 100} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			bs := brokers(n)
			for b.Loop() {
				if _, err := Place(Request{Partitions: 1000, ReplicationFactor: 3}, bs, rng.New(1)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
