package replication

import (
	"sync"
	"time"

	"weir/internal/image"
)

// A follower's fetch that waits here names only what the follower had to copy when it
// asked. When this broker begins to lead more of what the follower copies, its fetch is
// answered with what there is to say, so that the next one can name that too: a new
// leader commits nothing before its followers have fetched. Apache Kafka's leaders let
// such a fetch wait, up to replica.fetch.wait.max.ms.
//
// A follower that has read the metadata later than we have cannot name it at once: for a
// while its fetches wait for moments only.

// StartWait is how long a fetch may wait while its follower may soon have more to ask for.
const StartWait = 20 * time.Millisecond

// startTime is how long a follower may be behind with the metadata.
const startTime = time.Second

// starts is when this broker began to lead, by follower.
type starts struct {
	begun map[int32]struct{} // since the last tell; of the applying goroutine

	mu sync.Mutex
	of map[int32]begin
}

type begin struct {
	at   time.Time     // the last one, zero when there was none
	next chan struct{} // closed at the next
}

// note tells that this broker begins to lead a partition with these replicas.
func (s *starts) note(replicas []int32) {
	if s.begun == nil {
		s.begun = map[int32]struct{}{}
	}
	for _, id := range replicas {
		s.begun[id] = struct{}{}
	}
}

// tell lets go of the followers' fetches, and forgets brokers that are registered no
// more.
func (s *starts) tell(now time.Time, img *image.Image) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.begun {
		if old := s.of[id]; old.next != nil {
			close(old.next)
		}
		s.setLocked(id, begin{at: now, next: make(chan struct{})})
	}
	clear(s.begun)
	for id, x := range s.of {
		if _, ok := img.Broker(id); !ok {
			close(x.next)
			delete(s.of, id)
		}
	}
}

func (s *starts) setLocked(id int32, x begin) {
	if s.of == nil {
		s.of = map[int32]begin{}
	}
	s.of[id] = x
}

// Starts returns a channel that is closed when this broker begins to lead a partition of
// which the follower has a replica. just says that it has begun to moments ago: then a
// fetch should not wait longer than StartWait. The follower is a registered broker: what
// is noted of each is kept until it is registered no more.
func (m *Manager) Starts(follower int32) (next <-chan struct{}, just bool) {
	s := &m.starts
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.of[follower]
	if x.next == nil {
		x.next = make(chan struct{})
		s.setLocked(follower, x)
	}
	return x.next, !x.at.IsZero() && m.o.Clock.Now().Sub(x.at) < startTime
}
