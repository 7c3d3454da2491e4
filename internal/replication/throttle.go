package replication

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"weir/internal/clock"
	"weir/internal/image"
	"weir/internal/partition"
	"weir/internal/quota"
)

// Replication throttles (KIP-73) bound how much of the replicas that topics name is
// copied per second while those are catching up, so that a reassignment leaves room
// for clients: what this broker sends as leader, and what it fetches as follower.

// The topic configurations that name replicas, as partition:broker or *.
const (
	leaderThrottled   = "leader.replication.throttled.replicas"
	followerThrottled = "follower.replication.throttled.replicas"
)

// Throttle is one limit.
type Throttle struct {
	clock clock.Clock
	limit atomic.Int64 // bytes per second

	mu   sync.Mutex
	rate *quota.Rate
}

func newThrottle(c clock.Clock, samples int, sampleMs int64) *Throttle {
	t := &Throttle{clock: c, rate: quota.NewRate(samples, sampleMs)}
	t.limit.Store(quota.Unlimited)
	return t
}

// Record notes that n bytes of throttled replicas have passed.
func (t *Throttle) Record(n int64) {
	if n == 0 || t.limit.Load() == quota.Unlimited {
		return
	}
	t.mu.Lock()
	t.rate.Record(t.clock.Now().UnixMilli(), float64(n))
	t.mu.Unlock()
}

// Exceeded tells whether more has passed than the limit allows.
func (t *Throttle) Exceeded() bool {
	limit := t.limit.Load()
	if limit == quota.Unlimited {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rate.PerSecond(t.clock.Now().UnixMilli()) > float64(limit)
}

// LeaderThrottle bounds what followers that are not in sync get from this broker.
func (m *Manager) LeaderThrottle() *Throttle { return m.throttles.leader }

// limit takes changed rates.
func (m *Manager) limit() {
	e := m.effective.Load()
	m.throttles.leader.limit.Store(e.Long("leader.replication.throttled.rate"))
	m.throttles.follower.limit.Store(e.Long("follower.replication.throttled.rate"))
}

// throttle sets which limits hold for a replica.
func (m *Manager) throttle(img *image.Image, r *partition.Replica) {
	c := img.Configs(image.ResourceTopic, r.Topic())
	named := fmt.Sprintf("%d:%d", r.ID(), m.o.NodeID)
	r.SetThrottled(lists(c[leaderThrottled], named), lists(c[followerThrottled], named))
}

func lists(value, replica string) bool {
	if value == "*" {
		return true
	}
	for item := range strings.SplitSeq(value, ",") {
		if strings.TrimSpace(item) == replica {
			return true
		}
	}
	return false
}
