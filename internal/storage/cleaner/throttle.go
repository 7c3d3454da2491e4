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
	rate float64   // at which they were booked
}

// burst is how far runs may get ahead before they wait.
const burst = 100 * time.Millisecond

// look is how often a run that waits looks whether the rate has changed.
const look = time.Second

// take accounts for n bytes and waits when there were too many. The rate may change at any time, also while it waits.
// The error is ctx's.
func (t *throttle) take(ctx context.Context, n int, rate func() float64) error {
	now := rate()
	cost := float64(n) / now * float64(time.Second)
	if cost < 1 {
		return ctx.Err()
	}
	d := t.reserve(time.Duration(min(cost, float64(time.Hour))), now)
	if d <= burst {
		return ctx.Err()
	}
	for ; d > 0 && rate() == now; d -= look {
		if err := wait(ctx, t.clock, min(d, look)); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// reserve books a cost and returns how far the bookings are ahead of the clock. What was booked at another rate is
// forgotten.
func (t *throttle) reserve(cost time.Duration, rate float64) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock.Now()
	if t.free.Before(now) || t.rate != rate {
		t.free = now
	}
	t.rate = rate
	t.free = t.free.Add(cost)
	return t.free.Sub(now)
}

// wait returns when d has passed, or ctx has ended.
func wait(ctx context.Context, c clock.Clock, d time.Duration) error {
	clock.Sleep(ctx, c, d)
	return ctx.Err()
}
