package api

import (
	"sync/atomic"
	"time"
)

// Stats counts requests by API key.
type Stats struct {
	apis [maxKey + 1]struct{ count, nanos atomic.Int64 }
}

func (s *Stats) observe(key int16, d time.Duration) {
	s.apis[key].count.Add(1)
	s.apis[key].nanos.Add(int64(d))
}

// Requests is how many requests of an API were handled, and the time its
// handlers took, waits of long polls included.
func (s *Stats) Requests(key int16) (count int64, total time.Duration) {
	return s.apis[key].count.Load(), time.Duration(s.apis[key].nanos.Load())
}
