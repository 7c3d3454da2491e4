package cleaner

import (
	"math"
	"sync/atomic"
	"time"
)

// Stats are the cleaner's counters, for metrics. All are safe to read at any time.
type Stats struct {
	Runs, Failures                atomic.Int64 // logs cleaned; runs that ended in an error
	BytesRead, BytesWritten       atomic.Int64 // while segments were written anew
	IndexBytesRead                atomic.Int64 // while offset maps were built
	MessagesRead, MessagesWritten atomic.Int64
	UnkeyedDropped                atomic.Int64
	Running                       atomic.Int64 // gauge: logs being cleaned
	LastLookMs                    atomic.Int64 // when the cleaner last looked for work
	UncleanablePartitions         atomic.Int64 // gauge
	UncleanableBytes              atomic.Int64 // gauge: what could be cleaned of those
	MaxDelayMs                    atomic.Int64 // gauge: by how much max.compaction.lag.ms is exceeded at most

	maxDirty atomic.Uint64 // gauge: math.Float64bits
	lastUse  atomic.Uint64 // of the last run: share of the offset map used
	lastMs   atomic.Int64
	lastCopy atomic.Uint64 // of the last run: bytes written per byte read
}

// MaxDirtyRatio is the largest dirty share of a log when the cleaner last looked (max-dirty-percent is 100 times it).
func (s *Stats) MaxDirtyRatio() float64 { return math.Float64frombits(s.maxDirty.Load()) }

// BufferUtilization is the share of the offset map that the last run used.
func (s *Stats) BufferUtilization() float64 { return math.Float64frombits(s.lastUse.Load()) }

// RecopyRatio is the bytes that the last run wrote per byte it read.
func (s *Stats) RecopyRatio() float64 { return math.Float64frombits(s.lastCopy.Load()) }

// LastRun is how long the last run took.
func (s *Stats) LastRun() time.Duration { return time.Duration(s.lastMs.Load()) * time.Millisecond }

// result is what one run has done.
type result struct {
	end                           int64 // the first offset that it has not seen
	indexBytes                    int64
	bytesRead, bytesWritten       int64
	messagesRead, messagesWritten int64
	unkeyed                       int64
	utilization                   float64
	took                          time.Duration
}

func (s *Stats) add(r *result) {
	s.IndexBytesRead.Add(r.indexBytes)
	s.BytesRead.Add(r.bytesRead)
	s.BytesWritten.Add(r.bytesWritten)
	s.MessagesRead.Add(r.messagesRead)
	s.MessagesWritten.Add(r.messagesWritten)
	s.UnkeyedDropped.Add(r.unkeyed)
	s.lastUse.Store(math.Float64bits(r.utilization))
	s.lastMs.Store(r.took.Milliseconds())
	if r.bytesRead > 0 {
		s.lastCopy.Store(math.Float64bits(float64(r.bytesWritten) / float64(r.bytesRead)))
	}
}
