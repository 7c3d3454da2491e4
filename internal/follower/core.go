package follower

import (
	"math"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/invariant"
	"weir/internal/wire"
)

// None is the leader epoch of a log that has none.
const None int32 = -1

// Key names a partition.
type Key struct {
	Topic     [16]byte
	Partition int32
}

// Start is where a partition stands when it is given to a leader, or after its
// log was changed.
type Start struct {
	// LeaderEpoch is the epoch that we believe the leader to be in. Answers of an
	// older one are void.
	LeaderEpoch int32
	// Offset is the next offset to fetch: the log's end.
	Offset int64
	// LastEpoch is the leader epoch of the record before Offset, None when unknown.
	LastEpoch int32
	LogStart  int64
}

// Options are the settings of a Core. Times are in milliseconds.
type Options struct {
	Self         int32 // this broker's node id
	MaxWaitMs    int32 // replica.fetch.wait.max.ms
	MinBytes     int32 // replica.fetch.min.bytes
	MaxBytes     int32 // replica.fetch.response.max.bytes
	PartitionMax int32 // replica.fetch.max.bytes
	// BackoffMs is the first pause after a failure; it doubles up to BackoffMaxMs
	// (replica.fetch.backoff.ms).
	BackoffMs, BackoffMaxMs int64
}

// Core is the fetch state of one leader. One goroutine uses it.
type Core struct {
	o     Options
	parts map[Key]*part

	// send holds the partitions that the next request names; forget those that it
	// takes out of the session.
	send   []*part
	forget []*part

	session struct {
		id    int32
		epoch int32 // of the next request; 0 starts a new session
	}
	delayed []*part // in no order; few
	asked   bool    // a request is under way
	retryAt int64   // the leader did not answer: not before
	pause   int64   // the last pause of the whole conversation
}

// state is what a partition waits for.
type state uint8

const (
	fetching state = iota
	busy
	delayed
	failed
	gone
)

// part is one partition.
//
// Invariant: queued and named in send are the same; inSession and not queued
// means that the leader knows place.
type part struct {
	key       Key
	at        Start
	state     state
	queued    bool // in Core.send
	inSession bool // the leader's session has it
	again     int64
	pause     int64 // the last one, 0 after a success
}

// New makes a Core without partitions.
func New(o Options) *Core {
	return &Core{o: o, parts: map[Key]*part{}}
}

// Len is the number of partitions.
func (c *Core) Len() int { return len(c.parts) }

// Idle reports that no request is under way.
func (c *Core) Idle() bool { return !c.asked }

// Add begins to fetch a partition, or begins anew in another leader epoch. An
// outcome that is still due for it is ignored.
func (c *Core) Add(k Key, at Start) {
	if old := c.parts[k]; old != nil {
		c.drop(old)
	}
	p := &part{key: k, at: at}
	c.parts[k] = p
	c.enqueue(p)
}

// Remove ends the fetching of a partition.
func (c *Core) Remove(k Key) {
	if p := c.parts[k]; p != nil {
		c.drop(p)
		delete(c.parts, k)
	}
}

func (c *Core) drop(p *part) {
	c.leaveSession(p)
	c.delayed = slices.DeleteFunc(c.delayed, func(d *part) bool { return d == p })
	p.state = gone
}

// enqueue lets the next request name p.
func (c *Core) enqueue(p *part) {
	p.state = fetching
	if !p.queued {
		p.queued = true
		c.send = append(c.send, p)
	}
}

// leaveSession lets the next request forget p, unless it names it again.
func (c *Core) leaveSession(p *part) {
	if p.queued {
		p.queued = false
		c.send = slices.DeleteFunc(c.send, func(q *part) bool { return q == p })
	}
	if p.inSession {
		p.inSession = false
		c.forget = append(c.forget, p)
	}
}

// Version is how a request is versioned and who asks.
type Version struct {
	Fetch       int16
	BrokerEpoch int64 // of this broker's registration
	// Hold tells of a partition whether it must not be asked for now, because a
	// limit is exceeded; it is asked again after holdMs. Nil: none.
	Hold func(Key) bool
}

// holdMs is how long a partition is put aside that a limit holds back.
const holdMs = 100

// Request returns the next request. When there is nothing to ask for yet it is
// nil, and at is when to call again, math.MaxInt64 when not before something
// else happens.
func (c *Core) Request(nowMs int64, v Version) (req *kmsg.FetchRequest, at int64) {
	invariant.Check(!c.asked, "follower: a request while another is under way")
	c.revive(nowMs)
	if nowMs < c.retryAt {
		return nil, c.retryAt
	}
	if c.session.epoch == 0 {
		c.nameAll()
	}
	c.hold(nowMs, v.Hold)
	if !c.anything() {
		return nil, c.nextRevival()
	}
	c.asked = true
	req = c.build(v)
	if next := c.nextRevival(); next-nowMs < int64(req.MaxWaitMillis) { // what was put aside does not wait for what has nothing new
		req.MaxWaitMillis = int32(max(next-nowMs, 1))
	}
	return req, nowMs
}

// hold puts aside what a limit holds back.
func (c *Core) hold(nowMs int64, held func(Key) bool) {
	if held == nil {
		return
	}
	for _, p := range slices.Clone(c.send) {
		if held(p.key) {
			c.leaveSession(p)
			p.again, p.state = nowMs+holdMs, delayed
			c.delayed = append(c.delayed, p)
		}
	}
}

// anything reports whether a request has a purpose: something to tell, or a
// session to wait in.
func (c *Core) anything() bool {
	if len(c.send) > 0 || len(c.forget) > 0 {
		return true
	}
	for _, p := range c.parts {
		if p.inSession {
			return true
		}
	}
	return false
}

// nameAll queues everything that can be fetched, for a full request.
func (c *Core) nameAll() {
	c.forget = nil
	for _, p := range c.parts {
		p.inSession = false
		if p.state == fetching {
			c.enqueue(p)
		}
	}
	slices.SortFunc(c.send, func(a, b *part) int { return compare(a.key, b.key) }) // the same in every run
}

func (c *Core) build(v Version) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version = v.Fetch
	if v.Fetch >= 15 {
		req.ReplicaState.ID, req.ReplicaState.Epoch = c.o.Self, v.BrokerEpoch
	} else {
		req.ReplicaID = c.o.Self
	}
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = c.o.MaxWaitMs, c.o.MinBytes, c.o.MaxBytes
	req.SessionID, req.SessionEpoch = c.session.id, c.session.epoch
	var rows wire.ByTopic[kmsg.FetchRequestTopic]
	for _, p := range c.send {
		p.queued, p.inSession = false, true
		t := rows.Of(p.key.Topic, kmsg.NewFetchRequestTopic)
		t.TopicID = p.key.Topic
		rp := kmsg.NewFetchRequestTopicPartition()
		rp.Partition, rp.CurrentLeaderEpoch, rp.FetchOffset = p.key.Partition, p.at.LeaderEpoch, p.at.Offset
		rp.LastFetchedEpoch, rp.LogStartOffset, rp.PartitionMaxBytes = p.at.LastEpoch, p.at.LogStart, c.o.PartitionMax
		t.Partitions = append(t.Partitions, rp)
	}
	req.Topics = rows.Topics
	c.send = c.send[:0]
	c.forgetIn(req)
	return req
}

// forgetIn takes partitions out of the session, but not those that were added again.
func (c *Core) forgetIn(req *kmsg.FetchRequest) {
	var rows wire.ByTopic[kmsg.FetchRequestForgottenTopic]
	for _, p := range c.forget {
		if now := c.parts[p.key]; now != nil && now.inSession {
			continue
		}
		t := rows.Of(p.key.Topic, kmsg.NewFetchRequestForgottenTopic)
		t.TopicID = p.key.Topic
		t.Partitions = append(t.Partitions, p.key.Partition)
	}
	req.ForgottenTopics = rows.Topics
	c.forget = nil
}

// delay puts p aside for a pause that doubles while it goes on failing.
func (c *Core) delay(p *part, nowMs int64) {
	c.leaveSession(p)
	p.pause = longer(p.pause, c.o)
	p.again, p.state = nowMs+p.pause, delayed
	c.delayed = append(c.delayed, p)
}

func longer(pause int64, o Options) int64 {
	if pause == 0 {
		return min(o.BackoffMs, o.BackoffMaxMs)
	}
	return min(pause*2, o.BackoffMaxMs)
}

// revive takes up what has been delayed long enough.
func (c *Core) revive(nowMs int64) {
	c.delayed = slices.DeleteFunc(c.delayed, func(p *part) bool {
		if p.again > nowMs {
			return false
		}
		c.enqueue(p)
		return true
	})
}

func (c *Core) nextRevival() int64 {
	next := int64(math.MaxInt64)
	for _, p := range c.delayed {
		next = min(next, p.again)
	}
	return next
}

func compare(a, b Key) int {
	if n := slices.Compare(a.Topic[:], b.Topic[:]); n != 0 {
		return n
	}
	return int(a.Partition) - int(b.Partition)
}
