package kraft

import (
	"slices"
	"testing"
)

// C3(d): two voters that both learn at once that the leader's process is gone
// agree on one of them soon, also when their first votes are split.
func TestQuickElections(t *testing.T) {
	var took []int64
	for seed := range uint64(300) {
		h := newHarness(seed + 1)
		set, err := NewVoterSet([]Voter{{Replica: Replica{ID: 1}}, {Replica: Replica{ID: 2}}, {Replica: Replica{ID: 3}}})
		if err != nil {
			t.Fatal(err)
		}
		for id := range int32(3) {
			h.add(id+1, dirOf(id+1), set, nil)
		}
		for _, id := range h.ids() {
			h.start(id)
		}
		leads := func() int32 {
			for _, id := range h.ids() {
				if n := h.nodes[id]; n.core != nil && n.core.Role() == Leader {
					return id
				}
			}
			return None
		}
		for i := 0; leads() == None && i < 100; i++ {
			h.run(100, 0)
		}
		h.run(1000, 0)
		dead := leads()
		h.crash(dead)
		begun := h.now
		for _, id := range h.ids() {
			if id != dead {
				h.step(h.nodes[id], Refused{ID: dead})
			}
		}
		for leads() == None && h.now-begun < 5000 {
			h.run(1, 0)
		}
		took = append(took, h.now-begun)
	}
	slices.Sort(took)
	t.Logf("median %d ms, 95%% %d ms, longest %d ms", took[len(took)/2], took[len(took)*95/100], took[len(took)-1])
	if most := took[len(took)-1]; most > 1000 || took[len(took)*95/100] > 400 {
		t.Errorf("half of the elections took up to %d ms, 95%% up to %d ms, the longest %d ms", took[len(took)/2], took[len(took)*95/100], most)
	}
}
