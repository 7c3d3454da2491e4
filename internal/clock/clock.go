// Package clock is time as a constructor argument. Everything below the mains takes a Clock, so that tests and the
// simulator decide when it is and when timers fire.
//
// System is the real one. Manual stands still until Advance moves it, and runs the due timers in the caller's
// goroutine, in order of their due time and then of their creation: the same calls always give the same run.
package clock

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// Clock tells the time and runs functions later. It is safe for concurrent use.
type Clock interface {
	// Now is the current time. Differences of two values do not suffer from wall clock jumps on System.
	Now() time.Time
	// AfterFunc calls f once d has passed: System in a goroutine of its own, Manual inside Advance.
	AfterFunc(d time.Duration, f func()) Timer
}

// Timer is one planned call of AfterFunc. Both methods report whether the call was still to come; false means that it
// has begun, has ended or was stopped, as with time.Timer.
type Timer interface {
	Stop() bool
	Reset(d time.Duration) bool
}

// After returns a channel that is closed when d has passed, and what gives the
// timer back when nobody waits for it any more.
func After(c Clock, d time.Duration) (over <-chan struct{}, stop func() bool) {
	fired := make(chan struct{})
	t := c.AfterFunc(d, func() { close(fired) })
	return fired, t.Stop
}

// Alarm is the timer of a loop that waits for other things as well.
type Alarm struct {
	C <-chan struct{} // gets an element when the alarm is due
	t Timer
}

// NewAlarm makes an alarm that is due when d has passed.
func NewAlarm(c Clock, d time.Duration) *Alarm {
	due := make(chan struct{}, 1)
	return &Alarm{C: due, t: c.AfterFunc(d, func() {
		select {
		case due <- struct{}{}:
		default:
		}
	})}
}

// Set makes the alarm due when d has passed from now, instead of when it was. It may
// have been due before: C then has an element too many.
func (a *Alarm) Set(d time.Duration) { a.t.Reset(max(d, 0)) }

// Stop ends the alarm.
func (a *Alarm) Stop() { a.t.Stop() }

// Sleep returns after d, or when ctx ends.
func Sleep(ctx context.Context, c Clock, d time.Duration) {
	if d <= 0 {
		return
	}
	over, stop := After(c, d)
	defer stop()
	select {
	case <-over:
	case <-ctx.Done():
	}
}

// System is the machine's clock.
type System struct{}

// Now implements Clock.
func (System) Now() time.Time { return time.Now() }

// AfterFunc implements Clock.
func (System) AfterFunc(d time.Duration, f func()) Timer { return time.AfterFunc(d, f) }

// Manual is a clock for tests.
type Manual struct {
	mu      sync.Mutex // guards all below; never held while a timer's function runs
	now     time.Time
	seq     uint64
	pending timerHeap
}

// NewManual returns a clock that stands at t.
func NewManual(t time.Time) *Manual { return &Manual{now: t} }

// Now implements Clock.
func (m *Manual) Now() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now
}

// AfterFunc implements Clock. A d of zero or less waits for the next Advance (also Advance(0)).
func (m *Manual) AfterFunc(d time.Duration, f func()) Timer {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := &manualTimer{clock: m, f: f, index: -1}
	m.planLocked(t, d)
	return t
}

// Advance moves the time by d and runs every timer that becomes due, including those that the called functions plan
// within the span. While a function runs, Now is its due time.
func (m *Manual) Advance(d time.Duration) {
	m.mu.Lock()
	end := m.now.Add(d)
	for len(m.pending) > 0 && !m.pending[0].due.After(end) {
		t := heap.Pop(&m.pending).(*manualTimer)
		if t.due.After(m.now) {
			m.now = t.due
		}
		m.mu.Unlock()
		t.f()
		m.mu.Lock()
	}
	if end.After(m.now) {
		m.now = end
	}
	m.mu.Unlock()
}

// Next is when the earliest planned timer is due; false when there is none. A simulator jumps there.
func (m *Manual) Next() (time.Time, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.pending) == 0 {
		return time.Time{}, false
	}
	return m.pending[0].due, true
}

func (m *Manual) planLocked(t *manualTimer, d time.Duration) {
	t.due = m.now.Add(max(d, 0))
	t.seq = m.seq
	m.seq++
	heap.Push(&m.pending, t)
}

type manualTimer struct {
	clock *Manual
	f     func()
	due   time.Time // guarded by clock.mu, as are the two below
	seq   uint64
	index int // place in the heap; -1 when not planned
}

func (t *manualTimer) Stop() bool {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	return t.stopLocked()
}

func (t *manualTimer) Reset(d time.Duration) bool {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	was := t.stopLocked()
	t.clock.planLocked(t, d)
	return was
}

func (t *manualTimer) stopLocked() bool {
	if t.index < 0 {
		return false
	}
	heap.Remove(&t.clock.pending, t.index)
	return true
}

// timerHeap is a container/heap ordered by due time, then by planning order.
type timerHeap []*manualTimer

func (h timerHeap) Len() int { return len(h) }
func (h timerHeap) Less(i, j int) bool {
	if h[i].due.Equal(h[j].due) {
		return h[i].seq < h[j].seq
	}
	return h[i].due.Before(h[j].due)
}
func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}
func (h *timerHeap) Push(x any) {
	t := x.(*manualTimer)
	t.index = len(*h)
	*h = append(*h, t)
}
func (h *timerHeap) Pop() any {
	old := *h
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	t.index = -1
	return t
}
