package network

import (
	"bytes"
	"context"
	"math"
	"os"
	"runtime/debug"
	"strconv"

	"golang.org/x/sync/semaphore"
	"golang.org/x/sys/unix"
)

// decodeFactor is what a byte of a frame without records is charged: such a frame becomes a tree of small structs, about
// thirty times its size. (What Produce has beside its records is bounded by wire.)
const decodeFactor = 32

// budget bounds the memory of all requests from before they are read until they are answered (rule 13). Waiters are
// served in order, so a large frame is not starved by small ones.
//
// Requests with records have a budget of their own: they may stay until followers have fetched what they appended, and
// the followers' requests must get in meanwhile.
type budget struct {
	stats          *Stats
	records, plain *semaphore.Weighted
}

func newBudget(total int64, maxFrame int32, stats *Stats) *budget {
	return &budget{
		stats:   stats,
		records: semaphore.NewWeighted(max(total, int64(maxFrame))),
		plain:   semaphore.NewWeighted(max(total/2, decodeFactor*min(maxPlainFrame, int64(maxFrame)))),
	}
}

// charge is a part of the budget in use; it is released once.
type charge struct {
	from *semaphore.Weighted
	n    int64
}

// acquire takes the memory of a frame, waiting until there is enough or ctx is done.
func (b *budget) acquire(ctx context.Context, size int64, records bool) (charge, error) {
	c := charge{b.records, size}
	if !records {
		c = charge{b.plain, size * decodeFactor}
	}
	if !c.from.TryAcquire(c.n) {
		b.stats.BudgetWaits.Add(1)
		if err := c.from.Acquire(ctx, c.n); err != nil {
			return charge{}, err
		}
	}
	b.stats.BudgetUsed.Add(c.n)
	return c, nil
}

func (b *budget) release(c charge) {
	b.stats.BudgetUsed.Add(-c.n)
	c.from.Release(c.n)
}

// shareOfMemory is the budget when queued.max.request.bytes does not give one: a quarter of GOMEMLIMIT, or else an
// eighth of the machine's or the container's memory.
func shareOfMemory() int64 {
	if limit := debug.SetMemoryLimit(-1); limit != math.MaxInt64 {
		return limit / 4
	}
	total := int64(math.MaxInt64)
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err == nil {
		total = int64(info.Totalram) * int64(info.Unit)
	}
	// Absent outside of cgroup v2, "max" without a limit: then the machine's memory counts.
	if text, err := os.ReadFile("/sys/fs/cgroup/memory.max"); err == nil {
		if limit, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64); err == nil && limit > 0 {
			total = min(total, limit)
		}
	}
	if total == math.MaxInt64 {
		total = 1 << 30
	}
	return total / 8
}
