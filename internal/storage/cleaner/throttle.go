package cleaner

import (
	"context"
	"sync"
	"time"

	"weir/internal/clock"
)

// throttle spreads bytes over time: all runs together read and write at most rate bytes a second.
type throttle struct {
	clock clock.Clock

	mu   sync.Mutex
	free time.Time // when the bytes so far are paid for
}

// burst is how far runs may get ahead before they wait.
const burst = 100 * time.Millisecond

// take accounts for n bytes and waits when there were too many. The error is ctx's.
func (t *throttle) take(ctx context.Context, n int, rate float64) error {
	if cost := float64(n) / rate * float64(time.Second); cost >= 1 {
		if d := t.reserve(time.Duration(min(cost, float64(time.Hour)))); d > burst {
			return wait(ctx, t.clock, d)
		}
	}
	return ctx.Err()
}

// reserve books a cost and returns how far the bookings are ahead of the clock.
func (t *throttle) reserve(cost time.Duration) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock.Now()
	if t.free.Before(now) {
		t.free = now
	}
	t.free = t.free.Add(cost)
	return t.free.Sub(now)
}

// wait returns when d has passed, or ctx has ended.
func wait(ctx context.Context, c clock.Clock, d time.Duration) error {
	done := make(chan struct{})
	timer := c.AfterFunc(d, func() { close(done) })
	defer timer.Stop()
	select {
	case <-done:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}
