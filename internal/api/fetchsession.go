package api

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/clock"
	"weir/internal/image"
	"weir/internal/partition"
	"weir/internal/uuid"
)

// Fetch sessions (KIP-227) let a client name its partitions once; later fetches
// name only what changes, and answers hold only partitions that have news.
//
// A session watches its partitions' replicas and keeps the list of those that
// changed since they were last answered. So a fetch costs work for partitions
// with news, not for all partitions of the session.
//
// A fetch without a session uses a throw-away one, so there is one code path.

// Epochs that are no place in a session (FetchMetadata).
const (
	sessionEpochFinal int32 = -1 // no session wanted; ends the one named
	sessionEpochNew   int32 = 0  // a full fetch that starts a session
)

// partKey names a partition as the client does: by id, or by name before v13.
type partKey struct {
	id        uuid.UUID
	topic     string
	partition int32
}

// fetchPart is one partition of a session. It is the Watcher of its replica.
type fetchPart struct {
	s   *fetchSession
	key partKey

	// What the client asked for; guarded by the session's busy lock.
	offset, logStart      int64
	maxBytes              int
	leaderEpoch, epochFor int32

	topic   string // resolved name, empty when unknown
	topicID uuid.UUID
	replica *partition.Replica // watched; nil while there is none

	// What the client was told last; -1 before the first answer.
	sentHW, sentLogStart int64

	missing int8 // see func missing; guarded by busy

	queued bool // in s.news; guarded by s.newsMu
}

// fetchSession is a client's set of partitions.
//
// Lock order: busy, then a replica's watch lock, then newsMu.
type fetchSession struct {
	id       int32
	usesIDs  bool
	follower bool // replicas' sessions outlive consumers' when the cache is full; fixed
	created  time.Time

	// busy is held while a fetch of this session runs. A second one at the same
	// time is a client's mistake and is refused.
	busy  sync.Mutex
	epoch int32                  // the next fetch must carry it; guarded by the cache's mu
	parts map[partKey]*fetchPart // guarded by busy

	newsMu sync.Mutex
	news   []*fetchPart // to be read, in fair order; guarded by newsMu
	wake   chan struct{}
}

func newFetchSession(follower bool) *fetchSession {
	return &fetchSession{follower: follower, parts: map[partKey]*fetchPart{}, wake: make(chan struct{}, 1)}
}

// Changed puts the partition on the list of those to read. A follower does not wake for a high watermark, which alone is
// no reason to answer it: it goes with the next answer.
func (p *fetchPart) Changed(_ *partition.Replica, n partition.News) {
	p.s.enqueue(p)
	if n != partition.Committed || !p.s.follower {
		p.s.rouse()
	}
}

func (s *fetchSession) enqueue(p *fetchPart) {
	s.newsMu.Lock()
	if !p.queued {
		p.queued = true
		s.news = append(s.news, p)
	}
	s.newsMu.Unlock()
}

// rouse ends the wait of a fetch, to read what is on the list.
func (s *fetchSession) rouse() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// take returns the partitions with news and empties the list.
func (s *fetchSession) take() []*fetchPart {
	s.newsMu.Lock()
	defer s.newsMu.Unlock()
	list := s.news
	s.news = nil
	for _, p := range list {
		p.queued = false
	}
	return list
}

// pending is the partitions that have news now.
func (s *fetchSession) pending() []*fetchPart {
	s.newsMu.Lock()
	defer s.newsMu.Unlock()
	return slices.Clone(s.news)
}

// requeue puts partitions that were not read to the end back in front.
func (s *fetchSession) requeue(list []*fetchPart) {
	if len(list) == 0 {
		return
	}
	s.newsMu.Lock()
	defer s.newsMu.Unlock()
	front := make([]*fetchPart, 0, len(list)+len(s.news))
	for _, p := range list {
		if !p.queued {
			p.queued = true
			front = append(front, p)
		}
	}
	s.news = append(front, s.news...)
}

// update takes the partitions a request names; busy is held. Named ones are
// read anew.
func (s *fetchSession) update(req *kmsg.FetchRequest) {
	for i := range req.Topics {
		t := &req.Topics[i]
		for j := range t.Partitions {
			q := &t.Partitions[j]
			key := partKey{topic: t.Topic, partition: q.Partition}
			if req.Version >= 13 {
				key = partKey{id: uuid.UUID(t.TopicID), partition: q.Partition}
			}
			p := s.parts[key]
			if p == nil {
				p = &fetchPart{s: s, key: key, sentHW: -1, sentLogStart: -1}
				s.parts[key] = p
			}
			p.offset, p.logStart, p.maxBytes = q.FetchOffset, q.LogStartOffset, int(q.PartitionMaxBytes)
			p.leaderEpoch, p.epochFor = max(q.CurrentLeaderEpoch, partition.None), max(q.LastFetchedEpoch, partition.None)
			s.enqueue(p)
		}
	}
	for _, t := range req.ForgottenTopics {
		for _, n := range t.Partitions {
			key := partKey{topic: t.Topic, partition: n}
			if req.Version >= 13 {
				key = partKey{id: uuid.UUID(t.TopicID), partition: n}
			}
			if p := s.parts[key]; p != nil {
				s.forget(p)
			}
		}
	}
}

func (s *fetchSession) forget(p *fetchPart) {
	p.unwatch()
	delete(s.parts, p.key)
	s.newsMu.Lock()
	s.news = slices.DeleteFunc(s.news, func(x *fetchPart) bool { return x == p })
	s.newsMu.Unlock()
}

// close stops watching; busy is held and the session no longer used.
func (s *fetchSession) close() {
	for _, p := range s.parts {
		p.unwatch()
	}
	s.parts = nil
}

func (p *fetchPart) unwatch() {
	if p.replica != nil {
		p.replica.Unwatch(p)
		p.replica = nil
	}
}

// resolve finds the replica that serves the partition now, and watches it.
func (p *fetchPart) resolve(img *image.Image, rs Replicas) error {
	t, err := p.lookup(img)
	if err != nil {
		p.unwatch()
		return err
	}
	p.topic, p.topicID = t.Name, t.ID
	replica, err := find(img, rs, t, p.key.partition)
	if err != nil {
		p.unwatch()
		return err
	}
	if replica != p.replica {
		p.unwatch()
		p.replica = replica
		replica.Watch(p)
	}
	return nil
}

func (p *fetchPart) lookup(img *image.Image) (*image.Topic, error) {
	if p.key.topic == "" {
		if t, ok := img.TopicByID(p.key.id); ok {
			return t, nil
		}
		return nil, kerr.UnknownTopicID
	}
	if t, ok := img.Topic(p.key.topic); ok {
		return t, nil
	}
	return nil, errUnknownPartition
}

// Sessions is the cache of fetch sessions of a broker
// (max.incremental.fetch.session.cache.slots).
type Sessions struct {
	clock clock.Clock
	slots int

	mu   sync.Mutex
	byID map[int32]*cachedSession
}

type cachedSession struct {
	*fetchSession
	used time.Time
	size int
}

// evictAfter is how long a session is safe from being replaced by another
// (FetchSessionCacheShard's evictionMs).
const evictAfter = 2 * time.Minute

// NewSessions makes a cache of so many slots; with none, no session is ever granted.
func NewSessions(c clock.Clock, slots int) *Sessions {
	return &Sessions{clock: c, slots: slots, byID: map[int32]*cachedSession{}}
}

// Len is the number of sessions in the cache.
func (c *Sessions) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.byID)
}

// begin finds or makes the session for a request and takes its busy lock. The
// error is the answer's: nil, or one of the session errors.
func (c *Sessions) begin(req *kmsg.FetchRequest) (s *fetchSession, full bool, err error) {
	if req.Version < 7 || req.SessionEpoch == sessionEpochFinal || req.SessionEpoch == sessionEpochNew {
		if req.Version >= 7 && req.SessionID != 0 {
			c.remove(req.SessionID)
		}
		s = newFetchSession(asksAsFollower(req))
		s.busy.Lock()
		s.usesIDs = req.Version >= 13
		return s, true, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	cached := c.byID[req.SessionID]
	switch {
	case cached == nil:
		return nil, false, kerr.FetchSessionIDNotFound
	case cached.usesIDs != (req.Version >= 13):
		return nil, false, kerr.FetchSessionTopicIDError
	case cached.epoch != req.SessionEpoch || !cached.busy.TryLock():
		return nil, false, kerr.InvalidFetchSessionEpoch
	}
	cached.epoch = nextSessionEpoch(cached.epoch)
	cached.used = c.clock.Now()
	return cached.fetchSession, false, nil
}

// asksAsFollower tells a broker's fetch from a consumer's.
func asksAsFollower(req *kmsg.FetchRequest) bool {
	if req.Version >= 15 {
		return req.ReplicaState.ID >= 0
	}
	return req.ReplicaID >= 0
}

// nextSessionEpoch counts from 1 and wraps to 1.
func nextSessionEpoch(e int32) int32 { return max(e+1, 1) }

// keep puts the session of a first fetch into the cache, if there is room. It
// returns the id that the client is told, 0 for none.
func (c *Sessions) keep(s *fetchSession) int32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	if len(c.byID) >= c.slots && !c.evict(now, s.follower, len(s.parts)) {
		return 0
	}
	for {
		id := rand.Int32()
		if id > 0 && c.byID[id] == nil {
			s.id = id
			break
		}
	}
	s.epoch, s.created = 1, now
	c.byID[s.id] = &cachedSession{fetchSession: s, used: now, size: len(s.parts)}
	return s.id
}

// evict makes room by removing one session, as FetchSessionCacheShard.tryEvict
// does: one that was not used for a while, else a smaller or less privileged one.
func (c *Sessions) evict(now time.Time, follower bool, size int) bool {
	if len(c.byID) == 0 {
		return false
	}
	oldest := c.worst(func(a, b *cachedSession) int { return a.used.Compare(b.used) })
	if now.Sub(oldest.used) > evictAfter {
		c.drop(oldest)
		return true
	}
	rank := func(follower bool, size int) int64 {
		if follower {
			return int64(size) + 1<<40
		}
		return int64(size)
	}
	least := c.worst(func(a, b *cachedSession) int {
		return cmp.Compare(rank(a.follower, a.size), rank(b.follower, b.size))
	})
	mayGo := now.Sub(least.created) > evictAfter || (follower && !least.follower)
	if mayGo && rank(follower, size) > rank(least.follower, least.size) {
		c.drop(least)
		return true
	}
	return false
}

func (c *Sessions) worst(compare func(a, b *cachedSession) int) (w *cachedSession) {
	for _, s := range c.byID {
		if w == nil || compare(s, w) < 0 {
			w = s
		}
	}
	return w
}

// drop removes a session; the fetch that is using it closes it when it ends.
func (c *Sessions) drop(s *cachedSession) {
	delete(c.byID, s.id)
	if s.busy.TryLock() {
		s.close()
		s.busy.Unlock()
	}
}

func (c *Sessions) remove(id int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.byID[id]; s != nil {
		c.drop(s)
	}
}

// end releases a session after a fetch; one that is not in the cache is closed.
func (c *Sessions) end(s *fetchSession) {
	c.mu.Lock()
	cached := c.byID[s.id]
	inCache := cached != nil && cached.fetchSession == s
	if inCache {
		cached.size = len(s.parts)
	}
	if !inCache {
		s.close()
	}
	s.busy.Unlock()
	c.mu.Unlock()
}
