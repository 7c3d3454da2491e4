package network

import (
	"math/bits"
	"sync/atomic"
	"time"

	"weir/internal/wire"
)

// maxKey bounds the API keys that are counted; wire's table ends below it.
const maxKey = 96

// Stats counts what the server did. All fields are safe to read at any time; metrics reads them at scrape.
type Stats struct {
	Accepted      atomic.Int64 // connections accepted, refused ones included
	Closed        atomic.Int64 // connections closed, refused ones included
	RefusedPerIP  atomic.Int64 // connections closed at once for max.connections.per.ip
	Evicted       atomic.Int64 // connections closed to make room, for max.connections
	IdleClosed    atomic.Int64 // connections closed after connections.max.idle.ms
	BadFrames     atomic.Int64 // connections closed for what they sent
	Failed        atomic.Int64 // connections closed by a handler's wire.Fail
	SlowClosed    atomic.Int64 // connections closed because the peer did not take its answer, or sent half a frame, in time
	ShortRegions  atomic.Int64 // connections closed because a file ended inside a region
	BytesIn       atomic.Int64 // frames read, size prefixes included
	BytesOut      atomic.Int64 // frames written, size prefixes included
	SendfileBytes atomic.Int64 // those of BytesOut that left by sendfile(2)
	BudgetWaits   atomic.Int64 // frames that had to wait for memory
	BudgetUsed    atomic.Int64 // gauge: bytes of the budgets in use
	Pending       atomic.Int64 // gauge: answers owed
	Throttled     atomic.Int64 // answers after which reading paused
	apis          [maxKey]APIStats
}

// API is the part of one API key; nil for a key that does not exist.
func (s *Stats) API(key int16) *APIStats {
	if _, ok := wire.Supported(key); !ok || key >= maxKey {
		return nil
	}
	return &s.apis[key]
}

// APIStats counts the requests of one API.
type APIStats struct {
	Requests atomic.Int64
	InBytes  atomic.Int64
	// Total is from the whole frame read to the whole answer written.
	Total Latency
	// Local is the time inside Handler.Handle.
	Local Latency
}

// latencyBuckets is the number of Latency's buckets: bucket i holds times below 2^i × 64 µs, the last all others.
const latencyBuckets = 24

// Latency is a histogram of times in powers of two from 64 µs to about 9 minutes.
type Latency struct {
	Sum     atomic.Int64 // nanoseconds
	buckets [latencyBuckets]atomic.Int64
}

// Observe counts one time.
func (l *Latency) Observe(d time.Duration) {
	l.Sum.Add(int64(d))
	i := bits.Len64(uint64(max(d, 0)) >> 16)
	l.buckets[min(i, latencyBuckets-1)].Add(1)
}

// Buckets calls yield with each upper bound and the number of times below it but not below the one before.
func (l *Latency) Buckets(yield func(below time.Duration, n int64) bool) {
	for i := range l.buckets {
		if !yield(time.Duration(1)<<(16+i), l.buckets[i].Load()) {
			return
		}
	}
}
