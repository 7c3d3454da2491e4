// Package quota holds the limits on how much passes per second: for replication,
// and later for clients. It is pure: time is an argument.
package quota

import "math"

// Unlimited is the limit that is none.
const Unlimited = math.MaxInt64

// Rate measures how much was recorded per second over the last samples, as Kafka's
// SampledStat and Rate do: whole samples that begin with the first value in them,
// and at least all but one of them counted as time passed. Not safe for concurrent use.
type Rate struct {
	sampleMs int64
	samples  []sample // a ring
	last     int
}

type sample struct {
	startMs int64
	total   float64
	used    bool
}

// NewRate makes a Rate over n samples (replication.quota.window.num) of so many
// milliseconds (replication.quota.window.size.seconds).
func NewRate(n int, sampleMs int64) *Rate {
	return &Rate{sampleMs: max(sampleMs, 1), samples: make([]sample, max(n, 1))}
}

// Record adds v at nowMs.
func (r *Rate) Record(nowMs int64, v float64) {
	s := &r.samples[r.last]
	if !s.used || nowMs-s.startMs >= r.sampleMs {
		if s.used {
			r.last = (r.last + 1) % len(r.samples)
			s = &r.samples[r.last]
		}
		*s = sample{startMs: nowMs, used: true}
	}
	s.total += v
}

// PerSecond is the rate at nowMs.
func (r *Rate) PerSecond(nowMs int64) float64 {
	window := r.sampleMs * int64(len(r.samples))
	total, oldest := 0.0, nowMs
	for i := range r.samples {
		s := &r.samples[i]
		if !s.used || nowMs-s.startMs >= window {
			continue
		}
		total += s.total
		oldest = min(oldest, s.startMs)
	}
	elapsed := max(nowMs-oldest, r.sampleMs*int64(len(r.samples)-1), r.sampleMs)
	return total / (float64(elapsed) / 1000)
}
