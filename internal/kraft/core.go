package kraft

import (
	"math"
	"slices"

	"weir/internal/invariant"
)

// Timeouts are the controller.quorum.* settings, in milliseconds.
type Timeouts struct {
	ElectionMs   int64 // election.timeout.ms; each wait is up to twice that
	FetchMs      int64 // fetch.timeout.ms: a follower's patience, and 2/3 of the leader's
	RetryMs      int64 // retry.backoff.ms
	MaxWaitMs    int64 // how long a fetch may wait at the leader; Kafka uses 500
	MaxFetch     int32 // fetch.max.bytes
	BackoffMaxMs int64 // election.backoff.max.ms
}

// Options is what a Core starts from.
type Options struct {
	Self      Replica
	Endpoints []Endpoint
	Timeouts  Timeouts
	State     *QuorumState // nil: there is no quorum-state file
	Log       Outline
	Members   Members
	Rand      Rand
	NowMs     int64
}

// Core is one replica. It is not safe for concurrent use.
type Core struct {
	self      Replica
	endpoints []Endpoint
	t         Timeouts
	rand      Rand
	now       int64

	log     Outline
	members Members
	set     VoterSet // in force
	version int16    // kraft.version in force

	role   Role
	state  QuorumState
	stored QuorumState // what the driver was last told to store
	hw     int64       // -1 while unknown
	told   LeaderAndEpoch

	electionAt int64 // ends an unattached, prospective, candidate or resigned wait

	ballots []ballot // prospective and candidate: one for each voter
	retryAt int64    // when to ask again those that did not answer

	fetch  fetchState
	lead   *leading // while leader
	ending []int32  // resigned: voters still to be told, the best successor first
	quick  bool     // the leader's process is gone: hurry (C3(d))

	waiting []waiting // fetches held by the leader
	sent    map[uint64]sent
	nextID  uint64

	ready Ready
}

// ballot is one voter's answer to a pre-vote or vote.
type ballot struct {
	voter   Replica
	answer  answer
	askedID uint64 // request in flight, 0: none
}

type answer uint8

const (
	unknown answer = iota
	granted
	rejected
)

// fetchState is how a follower, or one that looks for a leader, stands.
type fetchState struct {
	timeoutAt  int64 // follower: give the leader up
	at         int64 // not before
	inflight   uint64
	once       bool  // a fetch succeeded in this epoch
	missed     bool  // the last fetch, to the leader, was not answered
	hw         int64 // the leader's, as last heard
	appending  bool  // the driver was told to append and has not reported yet
	installing bool  // a snapshot is being downloaded
}

type sent struct {
	to      int32
	epoch   int32
	preVote bool
	kind    byte // v(ote) b(egin) e(nd) f(etch)
}

// waiting is a fetch that the leader holds until there is something to say.
type waiting struct {
	ref      uint64
	req      FetchRequest
	deadline int64
}

// New makes a replica out of what its disk remembers. The first Step, with any
// event, starts it.
func New(o Options) *Core {
	c := &Core{self: o.Self, endpoints: o.Endpoints, t: o.Timeouts, rand: o.Rand, now: o.NowMs,
		log: o.Log, members: o.Members, hw: -1, told: LeaderAndEpoch{ID: None, Epoch: -1},
		sent: map[uint64]sent{}, state: QuorumState{Leader: None, Voted: Replica{ID: None}}}
	c.log.check()
	if c.log.Snapshot != nil { // a snapshot holds only what was committed
		c.hw = c.log.Snapshot.Offset
	}
	c.refreshMembers()
	if o.State != nil {
		c.state = *o.State
	}
	c.stored = c.state
	if last := c.log.lastEpoch(); last > c.state.Epoch { // quorum-state was lost or is older than the log
		c.state = QuorumState{Epoch: last, Leader: None, Voted: Replica{ID: None}}
	}
	voter := c.set.Has(c.self)
	switch {
	case c.set.IsOnly(c.self) && c.state.Voted.ID != c.self.ID:
		// Nobody to wait for: the first Step stands for election.
		c.role, c.electionAt = Resigned, c.now
		if c.state.Leader != c.self.ID {
			c.role = Unattached
		}
	case c.state.Leader == c.self.ID && voter:
		// The records of this epoch may have gone further than our disk remembers:
		// never lead in it again.
		c.role = Resigned
		c.electionAt = c.now + c.electionWait()
		c.ending = c.others()
	case c.state.Voted.ID == c.self.ID && c.state.Voted.is(c.self) && voter:
		c.enterCandidate(c.state.Epoch) // go on with the election that we stood for
	case c.state.Leader != None && c.state.Leader != c.self.ID:
		c.enterFollower(c.state.Epoch, c.state.Leader)
	default:
		if c.state.Leader == c.self.ID { // led once, and is no voter now
			c.state.Leader = None
		}
		c.role = Unattached
		c.electionAt = c.now + c.electionWait()
	}
	return c
}

func (c *Core) refreshMembers() {
	c.set, c.version, _ = c.members.current()
}

// Role is what this replica is doing.
func (c *Core) Role() Role { return c.role }

// State is the epoch, leader and vote.
func (c *Core) State() QuorumState { return c.state }

// Log is the outline of the log. Its slices are shared: read only.
func (c *Core) Log() Outline { return c.log }

// HighWatermark is the offset below which all is committed, -1 while unknown.
func (c *Core) HighWatermark() int64 { return c.hw }

// Voters is the voter set in force and the kraft.version.
func (c *Core) Voters() (VoterSet, int16) { return c.set, c.version }

// VotersAt is the voter set and kraft.version as of just before offset.
func (c *Core) VotersAt(offset int64) (VoterSet, int16) { return c.members.At(offset) }

// EpochStart is the offset of the leader's first record in its epoch; -1 when
// this replica does not lead.
func (c *Core) EpochStart() int64 {
	if c.lead == nil {
		return -1
	}
	return c.lead.start
}

// Step takes one event at nowMs and returns what to do about it. Time never
// goes back: an earlier nowMs counts as the last one.
func (c *Core) Step(nowMs int64, ev Event) Ready {
	c.now = max(c.now, nowMs)
	c.ready = Ready{Truncate: -1}
	switch ev := ev.(type) {
	case Tick:
	case Appended:
		c.appended(ev)
	case Flushed:
		c.flushed(ev.Offset)
	case Unwritten:
		c.unwritten()
	case Snapshotted:
		c.snapshotted(ev)
	case Installing:
		c.installing(ev.Failed)
	case Refused:
		c.refused(ev.ID)
	case Resign:
		if c.role == Leader {
			c.enterResigned()
		}
	case Request:
		c.request(ev)
	case Response:
		c.response(ev)
	default:
		invariant.Check(false, "kraft: unknown event %T", ev)
	}
	c.poll()
	return c.finish()
}

// finish completes the Ready.
func (c *Core) finish() Ready {
	c.log.check()
	r := c.ready
	c.ready = Ready{}
	if c.state != c.stored {
		invariant.Check(c.state.Epoch >= c.stored.Epoch, "kraft: epoch goes back from %d to %d", c.stored.Epoch, c.state.Epoch)
		s := c.state
		c.stored, r.QuorumState = s, &s
	}
	r.HighWatermark = c.hw
	now := LeaderAndEpoch{ID: c.state.Leader, Epoch: c.state.Epoch}
	if c.role == Resigned {
		now.ID = None
	}
	if now != c.told {
		c.told, r.Leader = now, &now
	}
	return r
}

// poll does what time or the last event made due, until nothing is.
func (c *Core) poll() {
	for before := -1; before != int(c.role); {
		before = int(c.role)
		switch c.role {
		case Unattached:
			c.pollUnattached()
		case Follower:
			c.pollFollower()
		case Prospective, Candidate:
			c.pollNominee()
		case Leader:
			c.pollLeader()
		case Resigned:
			c.pollResigned()
		}
	}
}

// Deadline is when to Tick at the latest, in milliseconds.
func (c *Core) Deadline() int64 {
	switch c.role {
	case Unattached:
		if !c.isVoter() {
			return c.nextFetch()
		}
		return min(c.electionAt, c.nextFetch())
	case Follower:
		return min(c.fetch.timeoutAt, c.nextFetch())
	case Prospective, Candidate:
		return min(c.electionAt, c.retryAt)
	case Resigned:
		return min(c.electionAt, c.retryAt)
	}
	return c.leaderDeadline()
}

func (c *Core) isVoter() bool { return c.set.Has(c.self) }

// electionWait is a random wait between one and two election timeouts: equal
// ones would let two candidates meet again and again.
func (c *Core) electionWait() int64 {
	return c.t.ElectionMs + int64(c.rand.IntN(int(min(max(c.t.ElectionMs, 1), math.MaxInt32))))
}

// others lists the other voters' ids.
func (c *Core) others() []int32 {
	var ids []int32
	for _, v := range c.set.voters {
		if !v.is(c.self) {
			ids = append(ids, v.ID)
		}
	}
	return ids
}

func (c *Core) head(code Code) Head {
	h := Head{Code: code, Leader: LeaderAndEpoch{ID: c.state.Leader, Epoch: c.state.Epoch}}
	if c.role == Resigned {
		h.Leader.ID = None
	}
	return h
}

func (c *Core) send(to int32, kind byte, body RequestBody) uint64 {
	c.nextID++
	c.sent[c.nextID] = sent{to: to, epoch: c.state.Epoch, preVote: c.role == Prospective, kind: kind}
	c.ready.Send = append(c.ready.Send, Send{To: to, ID: c.nextID, Body: body})
	return c.nextID
}

func (c *Core) reply(ref uint64, body ResponseBody) {
	c.ready.Reply = append(c.ready.Reply, Reply{Ref: ref, Body: body})
}

// appended takes note of what the driver wrote.
func (c *Core) appended(ev Appended) {
	invariant.Check(ev.Base == c.log.End, "kraft: appended at %d, the log ends at %d", ev.Base, c.log.End)
	c.log.append(ev.Entries)
	c.fetch.appending = false
	if len(ev.Control) > 0 {
		c.members.append(ev.Control)
		c.refreshMembers()
	}
	switch c.role {
	case Leader:
		c.wake()
	case Follower:
		c.followHighWatermark()
	}
}

func (c *Core) flushed(offset int64) {
	c.log.Flushed = max(c.log.Flushed, min(offset, c.log.End))
	if c.role == Leader {
		c.ackEarly()
		c.advance()
	}
}

func (c *Core) snapshotted(ev Snapshotted) {
	c.fetch.installing = false
	if c.log.Snapshot == nil || ev.ID.Offset > c.log.Snapshot.Offset {
		id := ev.ID
		c.log.Snapshot = &id
	}
	if ev.Start != nil && ev.Start.Offset > c.log.Start.Offset {
		if c.log.startAt(*ev.Start) {
			c.members.Log = slices.Clone(ev.Control)
		}
		c.members.compact(ev.Start.Offset)
		c.refreshMembers()
	}
	c.hw = max(c.hw, ev.ID.Offset)
}

// cut truncates our log as a follower.
func (c *Core) cut(to int64) {
	invariant.Check(to >= c.hw, "kraft: truncating to %d below the high watermark %d", to, c.hw)
	if to >= c.log.End {
		return
	}
	c.log.truncate(to)
	c.members.truncate(to)
	c.refreshMembers()
	c.ready.Truncate = to
}

// forget drops the bookkeeping of requests of an earlier role or epoch: their
// answers are then ignored.
func (c *Core) forget() {
	clear(c.sent)
	c.fetch.inflight, c.fetch.once, c.fetch.missed, c.fetch.hw, c.fetch.at = 0, false, false, -1, c.now
	c.ballots, c.ending, c.retryAt = nil, nil, c.now
}

// MustFlush reports that the log has records whose flush somebody waits for: a
// voter acknowledges, and a leader commits, only what is durable.
func (c *Core) MustFlush() bool { return c.isVoter() && c.log.Flushed < c.log.End }
