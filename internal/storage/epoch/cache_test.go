package epoch

import (
	"slices"
	"testing"
)

func filled(entries ...Entry) *Cache { return New(entries) }

func TestAssign(t *testing.T) {
	base := []Entry{{1, 10}, {2, 20}, {4, 40}}
	for name, c := range map[string]struct {
		epoch int32
		start int64
		want  []Entry
	}{
		"next":                         {5, 50, []Entry{{1, 10}, {2, 20}, {4, 40}, {5, 50}}},
		"the same":                     {4, 40, base},
		"the same, later":              {4, 45, base},
		"the same, earlier":            {4, 30, []Entry{{1, 10}, {2, 20}, {4, 30}}},
		"next at the start of a known": {5, 40, []Entry{{1, 10}, {2, 20}, {5, 40}}},
		"next below a known":           {5, 15, []Entry{{1, 10}, {5, 15}}},
		"lower epoch, later":           {3, 50, []Entry{{1, 10}, {2, 20}, {3, 50}}},
		"lower epoch, earlier":         {2, 5, []Entry{{2, 5}}},
		"below everything":             {0, 0, []Entry{{0, 0}}},
		"no epoch":                     {-1, 50, base},
	} {
		cache := filled(base...)
		news := cache.Assign(c.epoch, c.start)
		if got := cache.Entries(); !slices.Equal(got, c.want) || news == slices.Equal(c.want, base) {
			t.Errorf("%s: %v (news %v), want %v", name, got, news, c.want)
		}
	}
}

func TestEndOffsetForAndAt(t *testing.T) {
	c := filled(Entry{1, 10}, Entry{2, 20}, Entry{4, 40})
	for asked, want := range map[int32]Entry{-1: {-1, -1}, 0: {0, 10}, 1: {1, 20}, 2: {2, 40}, 3: {2, 40}, 4: {4, 100}, 5: {-1, -1}} {
		if e, o := c.EndOffsetFor(asked, 100); e != want.Epoch || o != want.StartOffset {
			t.Errorf("end of %d: %d %d, want %v", asked, e, o, want)
		}
	}
	for offset, want := range map[int64]int32{9: -1, 10: 1, 19: 1, 20: 2, 39: 2, 1000: 4} {
		if e, ok := c.At(offset); e != want || ok != (want >= 0) {
			t.Errorf("epoch at %d: %d, want %d", offset, e, want)
		}
	}
	if e, o := filled().EndOffsetFor(0, 5); e != NoEpoch || o != NoOffset {
		t.Errorf("empty: %d %d", e, o)
	}
}

func TestTruncations(t *testing.T) {
	all := []Entry{{1, 10}, {2, 20}, {4, 40}}
	for end, want := range map[int64][]Entry{0: nil, 10: nil, 11: all[:1], 20: all[:1], 40: all[:2], 41: all} {
		c := filled(all...)
		c.TruncateFromEnd(end)
		if got := c.Entries(); !slices.Equal(got, want) {
			t.Errorf("end %d: %v, want %v", end, got, want)
		}
	}
	for start, want := range map[int64][]Entry{0: all, 10: all, 15: {{1, 15}, {2, 20}, {4, 40}}, 20: {{2, 20}, {4, 40}}, 30: {{2, 30}, {4, 40}}, 99: {{4, 99}}} {
		c := filled(all...)
		c.TruncateFromStart(start)
		if got := c.Entries(); !slices.Equal(got, want) {
			t.Errorf("start %d: %v, want %v", start, got, want)
		}
	}
	c := filled(all...)
	c.Clear()
	if _, ok := c.Latest(); ok {
		t.Error("cleared")
	}
}

func TestUnsaved(t *testing.T) {
	c := filled(Entry{1, 10})
	if _, _, due := c.Unsaved(100); due {
		t.Fatal("what was read from the file is saved")
	}
	c.Assign(2, 20)
	c.Assign(3, 30)
	// The log is durable up to 25: epoch 3 must not be in the file yet.
	e, v, due := c.Unsaved(25)
	if !due || !slices.Equal(e, []Entry{{1, 10}, {2, 20}}) {
		t.Fatal(e, due)
	}
	c.Saved(v)
	e, v, due = c.Unsaved(30)
	if !due || len(e) != 3 {
		t.Fatal("epoch 3 is still to be saved", e, due)
	}
	c.TruncateFromEnd(30) // meanwhile
	c.Saved(v)
	if e, v, due = c.Unsaved(30); !due || len(e) != 2 {
		t.Fatal("the truncation is still to be saved", e, due)
	}
	c.Saved(v)
	if _, _, due := c.Unsaved(30); due {
		t.Fatal("all is saved")
	}
}
