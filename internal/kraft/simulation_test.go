package kraft

import (
	"fmt"
	"testing"
)

// TestSimulation runs random clusters with loss, cuts and power cuts. The
// harness checks after each step: one leader an epoch, one vote an epoch, and
// the same committed records everywhere. When all is well again, a leader must
// come up and all logs must become equal.
func TestSimulation(t *testing.T) {
	seeds := 12
	if testing.Short() {
		seeds = 8
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) { simulate(t, uint64(seed)) })
	}
}

func simulate(t *testing.T, seed uint64) {
	h := newHarness(seed)
	defer func() {
		if r := recover(); r != nil {
			t.Fatalf("seed %d: %v\n%s", seed, r, tail(h.out.String(), 4000))
		}
	}()
	voters := 1 + h.rnd.IntN(5)
	var vs []Voter
	for id := 1; id <= voters; id++ {
		vs = append(vs, Voter{Replica: Replica{ID: int32(id)}})
	}
	set, err := NewVoterSet(vs)
	if err != nil {
		t.Fatal(err)
	}
	for id := 1; id <= voters+h.rnd.IntN(2); id++ {
		h.add(int32(id), dirOf(int32(id)), set, nil)
	}
	for _, id := range h.ids() {
		h.start(id)
	}
	h.slow = h.rnd.IntN(3) > 0
	loss := []float64{0, 0.02, 0.2}[h.rnd.IntN(3)]
	span := []int{50, 500, 3000}[h.rnd.IntN(3)]
	for h.now < 60_000 {
		h.disturb()
		h.run(int64(1+h.rnd.IntN(span)), loss)
	}
	clear(h.cut)
	h.hold, h.slow = false, false
	for _, id := range h.ids() {
		if h.nodes[id].core == nil {
			h.start(id)
		}
	}
	h.run(15_000, 0)
	t.Logf("%d voters, %d epochs led, %d records committed", voters, len(h.leaders), len(h.committed))
	before := len(h.committed)
	for _, id := range h.ids() {
		if n := h.nodes[id]; n.core.Role() == Leader {
			h.propose(n, 1)
		}
	}
	h.run(1500, 0)
	if len(h.committed) <= before || !h.sameLogs() {
		h.status()
		t.Fatalf("seed %d: %d voters did not agree again, %d committed before\n%s", seed, voters, before, tail(h.out.String(), 3000))
	}
}

// disturb lets one thing happen: crashes and cuts are as frequent as repairs.
func (h *harness) disturb() {
	ids := h.ids()
	n := h.nodes[ids[h.rnd.IntN(len(ids))]]
	o := h.nodes[ids[h.rnd.IntN(len(ids))]]
	switch h.rnd.IntN(10) {
	case 0:
		if n.core != nil {
			h.crash(n.id)
			if o.core != nil && h.rnd.IntN(2) == 0 {
				h.step(o, Refused{ID: n.id})
			}
		}
	case 1, 2:
		if n.core == nil {
			h.start(n.id)
		}
	case 3: // all at once, and back
		for _, id := range ids {
			if h.nodes[id].core != nil {
				h.crash(id)
			}
		}
		for _, id := range ids {
			h.start(id)
		}
	case 4:
		h.cut[[2]int32{n.id, o.id}] = true
	case 5:
		clear(h.cut)
	case 6:
		if n.core != nil {
			h.step(n, Resign{})
		}
	}
	for _, id := range ids {
		if n := h.nodes[id]; n.core != nil && n.core.Role() == Leader {
			h.propose(n, 1+h.rnd.IntN(5))
		}
	}
}

func tail(s string, n int) string { return s[max(0, len(s)-n):] }

// TestOutline checks the rules about epochs against the plain definition.
func TestOutline(t *testing.T) {
	var l Outline
	l.append([]Entry{{Next: 3, Epoch: 1}, {Next: 5, Epoch: 1}, {Next: 9, Epoch: 4}})
	for _, c := range []struct {
		epoch int32
		want  Position
	}{{0, Position{0, 0}}, {1, Position{5, 1}}, {2, Position{5, 1}}, {4, Position{9, 4}}, {7, Position{9, 4}}} {
		if got := l.endOf(c.epoch); got != c.want {
			t.Errorf("endOf(%d) = %s, want %s", c.epoch, got, c.want)
		}
	}
	if got := l.agree(Position{Offset: 4, Epoch: 1}); got != 4 {
		t.Errorf("agree 4@1: %d", got)
	}
	if got := l.agree(Position{Offset: 7, Epoch: 3}); got != 5 {
		t.Errorf("agree 7@3: %d", got)
	}
	snap := Position{Offset: 6, Epoch: 4}
	l.Snapshot = &snap
	l.startAt(snap)
	for _, p := range []Position{{0, 0}, {5, 1}, {6, 1}} {
		if d, s := l.has(p); d != nil || s == nil || *s != snap {
			t.Errorf("has(%s) = %v, %v; want the snapshot", p, d, s)
		}
	}
	if d, s := l.has(Position{6, 4}); d != nil || s != nil {
		t.Errorf("has(6@4) = %v, %v", d, s)
	}
	if d, _ := l.has(Position{12, 4}); d == nil || *d != (Position{9, 4}) {
		t.Errorf("has(12@4) = %v", d)
	}
	l.truncate(6)
	if l.last() != snap || len(l.Epochs) != 0 {
		t.Errorf("after truncate: %s %v", l.last(), l.Epochs)
	}
	if !l.startAt(Position{Offset: 20, Epoch: 6}) || l.last() != (Position{20, 6}) {
		t.Errorf("installed: %s", l.last())
	}
}
