package cleaner

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/clock"
)

// segs are pieces of 100 bytes at the bases, whose timestamps are their bases.
func segs(bases ...int64) []piece {
	var out []piece
	for _, b := range bases {
		out = append(out, piece{base: b, size: 100, largest: b, first: b})
	}
	return out
}

func TestDecide(t *testing.T) {
	pic := func(change func(*picture)) picture {
		p := picture{end: 45, lastStable: 45, durable: 45, active: 40, pieces: segs(0, 10, 20, 30)}
		if change != nil {
			change(&p)
		}
		return p
	}
	at := func(offset int64) func(*picture) {
		return func(p *picture) { p.checkpoint, p.known = offset, true }
	}
	none := rules{maxLagMs: math.MaxInt64, minRatio: 0.5}
	for _, c := range []struct {
		name         string
		p            picture
		r            rules
		dirty, upper int64
		clean, todo  int64
		delay        int64
		reset, due   bool
	}{
		{name: "never cleaned", p: pic(nil), r: none, upper: 40, todo: 400, due: true},
		{name: "never cleaned, starts later", p: pic(func(p *picture) { p.start = 15 }), r: none, dirty: 15, upper: 40, clean: 200, todo: 300, due: true},
		{name: "half is clean", p: pic(at(20)), r: none, dirty: 20, upper: 40, clean: 200, todo: 200}, // the ratio must be exceeded
		{name: "a low ratio", p: pic(at(30)), r: rules{maxLagMs: math.MaxInt64, minRatio: 0.2}, dirty: 30, upper: 40, clean: 300, todo: 100, due: true},
		{name: "all is clean", p: pic(at(40)), r: none, dirty: 40, upper: 40, clean: 400},
		{name: "within a segment", p: pic(at(25)), r: none, dirty: 25, upper: 40, clean: 300, todo: 200}, // that one counts twice, as in Kafka
		{name: "checkpoint below the start", p: pic(func(p *picture) { at(5)(p); p.start = 10 }), r: none, dirty: 10, upper: 40, clean: 100, todo: 300, reset: true, due: true},
		{name: "checkpoint above the end", p: pic(at(46)), r: none, upper: 40, todo: 400, reset: true, due: true},
		{name: "open transaction", p: pic(func(p *picture) { p.lastStable = 25 }), r: none, upper: 20, todo: 200, due: true},
		{name: "not durable", p: pic(func(p *picture) { p.durable = 10 }), r: none, upper: 10, todo: 100, due: true},
		{name: "held back below the checkpoint", p: pic(func(p *picture) { at(20)(p); p.lastStable = 12 }), r: none, dirty: 20, upper: 20, clean: 200},
		{name: "too young", p: pic(nil), r: rules{minLagMs: 85, maxLagMs: math.MaxInt64, minRatio: 0.5}, upper: 20, todo: 200, due: true},
		{name: "all too young", p: pic(nil), r: rules{minLagMs: 1000, maxLagMs: math.MaxInt64, minRatio: 0.5}},
		{name: "overdue", p: pic(at(20)), r: rules{maxLagMs: 70, minRatio: 0.9}, dirty: 20, upper: 40, clean: 200, todo: 200, delay: 10, due: true},
		{name: "not overdue yet", p: pic(at(20)), r: rules{maxLagMs: 80, minRatio: 0.9}, dirty: 20, upper: 40, clean: 200, todo: 200},
		{name: "only an active segment", p: picture{end: 5, lastStable: 5, durable: 5}, r: none},
	} {
		got := decide(c.p, c.r, 100)
		want := plan{dirty: c.dirty, upper: c.upper, cleanBytes: c.clean, cleanableBytes: c.todo, delayMs: c.delay, reset: c.reset}
		if got != want || got.due(c.r) != c.due {
			t.Errorf("%s: %+v due %v, want %+v due %v", c.name, got, got.due(c.r), want, c.due)
		}
	}
}

func TestGroups(t *testing.T) {
	far := segs(0, 10, math.MaxInt32, math.MaxInt32+10)
	farEmpty := slices.Clone(far)
	farEmpty[2].size, farEmpty[3].size = 0, 0
	for _, c := range []struct {
		name              string
		pieces            []piece
		size, index, each int64 // limits, and the index bytes of each piece
		want              string
	}{
		{"nothing", nil, 1000, 1000, 1, "[]"},
		{"one", segs(0), 10, 1000, 1, "[[0 1]]"}, // a segment larger than the limit stays alone
		{"all", segs(0, 10, 20), 300, 1000, 1, "[[0 3]]"},
		{"by bytes", segs(0, 10, 20, 30, 40), 200, 1000, 1, "[[0 2] [2 4] [4 5]]"},
		{"by index bytes", segs(0, 10, 20), 1000, 100, 60, "[[0 1] [1 2] [2 3]]"},
		{"by offsets", far, 1000, 1000, 1, "[[0 2] [2 4]]"},
		{"empty ones take no offsets", farEmpty, 1000, 1000, 1, "[[0 4]]"},
	} {
		upper := int64(0)
		if n := len(c.pieces); n > 0 {
			upper = c.pieces[n-1].base + 10
		}
		got, err := groups(c.pieces, func(int) (int64, int64, error) { return c.each, c.each, nil }, c.size, c.index, upper)
		if s := fmt.Sprint(got); err != nil || s != c.want {
			t.Errorf("%s: %s, %v, want %s", c.name, s, err, c.want)
		}
	}
	broken := errors.New("broken")
	for fail := range 2 {
		_, err := groups(segs(0, 1), func(i int) (int64, int64, error) {
			if i == fail {
				return 0, 0, broken
			}
			return 0, 0, nil
		}, 1000, 1000, 2)
		if !errors.Is(err, broken) {
			t.Errorf("an index that cannot be read: %v", err)
		}
	}
}

func TestOffsetMap(t *testing.T) {
	m := &offsetMap{}
	for _, load := range []float64{0.5, 1} { // the second time with memory of the first
		m.reset(1000*entrySize, load, 300)
		if m.latest != -1 || m.get([]byte("key 1")) != -1 {
			t.Fatal("a new map knows something")
		}
		for i := range int64(300) {
			if !m.put(fmt.Appendf(nil, "key %d", i%100), i) {
				t.Fatalf("full at %d", i)
			}
		}
		for i := range int64(100) {
			if got := m.get(fmt.Appendf(nil, "key %d", i)); got != 200+i {
				t.Fatalf("key %d is at %d", i, got)
			}
		}
		if m.size != 100 || m.latest != 299 || m.get([]byte("other")) != -1 || m.get(nil) != -1 {
			t.Errorf("size %d, latest %d", m.size, m.latest)
		}
	}
	// No more memory than allowed, and as many keys as the load factor lets in, up to the last free slot.
	for load, want := range map[float64]int{0.9: 9, 1: 9, 0.5: 5, 0.01: 1} {
		m.reset(10*entrySize, load, math.MaxInt32)
		n := 0
		for m.put(fmt.Appendf(nil, "key %d", n), int64(n)) {
			n++
		}
		if n != want || len(m.slots) > 10*entrySize || m.get([]byte("absent")) != -1 {
			t.Errorf("load %v: took %d keys in %d bytes, want %d", load, n, len(m.slots), want)
		}
	}
}

func TestThrottle(t *testing.T) {
	c := clock.NewManual(start)
	th := &throttle{clock: c}
	at := func(rate float64) func() float64 { return func() float64 { return rate } }
	ctx, cancel := context.WithCancel(context.Background())
	for range 10 { // a tenth of a second is no reason to wait
		if err := th.take(ctx, 10, at(1000)); err != nil {
			t.Fatal(err)
		}
	}
	if d := th.reserve(0, 1000); d != 100*time.Millisecond {
		t.Errorf("ahead by %v", d)
	}
	done := make(chan error)
	waits := func(d time.Duration) { // until the goroutine waits for so long
		t.Helper()
		for {
			if next, ok := c.Next(); ok {
				if got := next.Sub(c.Now()); got != d {
					t.Errorf("waits for %v, want %v", got, d)
				}
				c.Advance(d)
				return
			}
		}
	}
	go func() { done <- th.take(ctx, 1400, at(1000)) }()
	waits(time.Second)
	waits(500 * time.Millisecond)
	if err := <-done; err != nil {
		t.Error(err)
	}
	// A rate that rises ends the wait for what was booked at the old one.
	var rate atomic.Int64
	rate.Store(1)
	go func() {
		done <- th.take(ctx, 1<<20, func() float64 { return float64(rate.Load()) })
	}()
	for {
		if _, ok := c.Next(); ok {
			break
		}
	}
	rate.Store(1 << 30)
	waits(time.Second)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if d := th.reserve(time.Millisecond, 1<<30); d != time.Millisecond {
		t.Errorf("ahead by %v", d)
	}
	go func() { done <- th.take(ctx, 1<<30, at(1)) }()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("a wait that is ended: %v", err)
	}
	if err := th.take(context.Background(), 1<<30, at(math.MaxFloat64)); err != nil { // no limit: no wait
		t.Error(err)
	}
}

func BenchmarkOffsetMapPut(b *testing.B) {
	m := &offsetMap{}
	m.reset(128<<20, 0.9, 1<<20)
	keys := make([][]byte, 1<<20)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "key %d", i)
	}
	b.ResetTimer()
	for i := range b.N {
		m.put(keys[i&(1<<20-1)], int64(i))
	}
}
