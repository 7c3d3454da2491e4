package quota

import "testing"

func TestRate(t *testing.T) {
	r := NewRate(11, 1000)
	if got := r.PerSecond(0); got != 0 {
		t.Fatalf("%v before anything", got)
	}
	// The first value counts over ten seconds, or it would look like a burst.
	r.Record(0, 1000)
	if got := r.PerSecond(0); got != 100 {
		t.Fatalf("%v", got)
	}
	for ms := int64(100); ms <= 20_000; ms += 100 {
		r.Record(ms, 100)
	}
	if got := r.PerSecond(20_000); got < 950 || got > 1050 {
		t.Fatalf("%v, want about 1000", got)
	}
	if got := r.PerSecond(26_000); got < 400 || got > 600 {
		t.Fatalf("%v six seconds later, want about 500", got)
	}
	if got := r.PerSecond(31_001); got != 0 {
		t.Fatalf("%v when all is older than the window", got)
	}
	r.Record(40_000, 10) // a ring that is used again
	if got := r.PerSecond(40_000); got != 1 {
		t.Fatalf("%v", got)
	}
}
