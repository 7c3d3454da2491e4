package rng

import (
	"bytes"
	"testing"
)

// The numbers of a seed are written into found test cases: they may never change.
func TestSameForEver(t *testing.T) {
	r := New(42)
	got := [3]uint64{r.Uint64(), r.Uint64(), r.Uint64()}
	want := [3]uint64{0x55f94932b92ba500, 0xe0be0fd7ce6d26f1, 0x162ad53b615ab5f5}
	if got != want {
		t.Errorf("seed 42 gives %#x, want %#x", got, want)
	}
	a, b := New(7), New(7)
	for range 100 {
		if a.IntN(10) != b.IntN(10) || a.Int64N(1e12) != b.Int64N(1e12) || a.Float64() != b.Float64() {
			t.Fatal("the same seed gives other dice")
		}
	}
	if New(1).Uint64() == New(2).Uint64() {
		t.Error("two seeds give the same dice")
	}
	if a, b := System().Uint64(), System().Uint64(); a == b {
		t.Error("two system sources give the same dice")
	}
	c := New(7)
	if a, b := c.Split().Uint64(), c.Split().Uint64(); a == b {
		t.Error("two splits give the same dice")
	}
}

func TestRead(t *testing.T) {
	for n := range 20 {
		p := make([]byte, n)
		if got, err := New(3).Read(p); got != n || err != nil {
			t.Fatalf("Read(%d bytes) = %d, %v", n, got, err)
		}
		full := make([]byte, 24)
		New(3).Read(full)
		if !bytes.Equal(p, full[:n]) {
			t.Errorf("%d bytes are no prefix of 24: % x", n, p)
		}
	}
}

func TestBounds(t *testing.T) {
	r := New(1)
	var seen [5]int
	for range 5000 {
		seen[r.IntN(5)]++
		if f := r.Float64(); f < 0 || f >= 1 {
			t.Fatalf("Float64 = %v", f)
		}
	}
	for i, n := range seen {
		if n < 800 {
			t.Errorf("%d came %d times of 5000", i, n)
		}
	}
	list := []int{0, 1, 2, 3, 4, 5, 6, 7}
	r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	sum := 0
	for _, v := range list {
		sum += v
	}
	if sum != 28 {
		t.Errorf("Shuffle lost something: %v", list)
	}
}
