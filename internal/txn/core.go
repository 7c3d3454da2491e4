package txn

import (
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"weir/internal/group/deadline"
)

// Config is what the core depends on.
type Config struct {
	// MaxTimeout is transaction.max.timeout.ms.
	MaxTimeout time.Duration
	// AbortEvery is transaction.abort.timed.out.transaction.cleanup.interval.ms.
	AbortEvery time.Duration
	// Expiration is transactional.id.expiration.ms, ExpireEvery
	// transaction.remove.expired.transaction.cleanup.interval.ms.
	Expiration, ExpireEvery time.Duration
}

// Core is the requests of one partition, with its soft state. One goroutine uses it.
type Core struct {
	config *Config
	soft   soft
	stats  Stats
}

// soft is what no record holds. State.Apply never sees it.
type soft struct {
	// marking are the ended transactions whose markers are on their way.
	marking map[string]*marking
	timers  deadline.Queue[timer]
	// told is the transaction that the log was told of last for being open for long.
	told struct {
		id      string
		startMs int64
	}
}

// marking is one transaction whose outcome is committed.
type marking struct {
	producerID int64
	epoch      int16
	left       map[TopicPartition]struct{} // partitions without a marker so far
}

// timer is one deadline: a sweep over the partition, or an id whose last record
// is to be written (again).
type timer struct {
	kind kind
	id   string
}

type kind uint8

const (
	abortSweep kind = iota
	expirySweep
	completion
)

// Stats counts what the core did since it was made.
type Stats struct {
	Commits, Aborts int64 // transactions that came to their end
	TimedOut        int64 // aborted because their time was over
	Expired         int64 // transactional ids that were forgotten
	GivenUp         int64 // transactions whose end stays behind, see [Core.GiveUp]
}

// New makes a core. The configuration is shared and not changed.
func New(c *Config) *Core { return &Core{config: c, soft: soft{marking: map[string]*marking{}}} }

// Stats is what the core did so far.
func (c *Core) Stats() Stats { return c.stats }

// Step is the moment at which a method is called.
type Step struct {
	Now   time.Time
	State *State // all that has been appended, committed or not
	// Level is the finalized transaction.version.
	Level int16
	// NewID is a producer id that nobody has, -1 when none is at hand.
	NewID int64
}

func (s Step) ms() int64 { return s.Now.UnixMilli() }

// Result is what a method decided.
type Result struct {
	Records []Record
	// Ended are the transactions whose outcome is in Records: once that is
	// committed they go to [Core.Begin], and their markers to the partitions.
	Ended []Ended
	// WantID: nothing was decided, for want of a producer id. The method is to be
	// called again with one.
	WantID bool
	// Notes are lines for the log.
	Notes []string
	swept Stats // what a sweep did, to be counted when Records are committed
}

// Ended is a transaction whose outcome stands.
type Ended struct {
	ID         string
	ProducerID int64
	Epoch      int16 // of its markers
	Commit     bool
	Version    int16 // of the client, for the rules by which partitions check markers
	Partitions []TopicPartition
}

func ended(t *Txn) Ended {
	return Ended{ID: t.ID, ProducerID: t.ProducerID, Epoch: t.Epoch, Commit: t.Status == PrepareCommit, Version: t.Version, Partitions: t.Partitions}
}

// store makes t the state of its id.
func (r *Result) store(s Step, t *Txn) {
	v := int16(0)
	if s.Level >= 1 {
		v = 1
	}
	r.Records = append(r.Records, Record{ID: t.ID, Txn: t, Version: v})
	if t.Status.ending() {
		r.Ended = append(r.Ended, ended(t))
	}
}

func (r *Result) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// Activate begins to lead: what had been decided is brought to its end.
func (c *Core) Activate(s Step) Result {
	var r Result
	for t := range s.State.Open() {
		if t.Status.ending() {
			r.Ended = append(r.Ended, ended(t))
		}
	}
	c.arm(s)
	return r
}

// Lost ends leading. Markers that are under way may still be written; a new leader
// sends them again.
func (c *Core) Lost() { c.soft = soft{marking: map[string]*marking{}} }

// arm sets the sweeps that have something to look for.
func (c *Core) arm(s Step) {
	if _, ok := c.soft.timers.Get(timer{kind: abortSweep}); !ok && s.State.NumOpen() > 0 {
		c.soft.timers.Set(timer{kind: abortSweep}, s.Now.Add(c.config.AbortEvery))
	}
	if _, ok := c.soft.timers.Get(timer{kind: expirySweep}); !ok && s.State.Len() > 0 {
		c.soft.timers.Set(timer{kind: expirySweep}, s.Now.Add(c.config.ExpireEvery))
	}
}

// Next is when Due has something to do; zero for never.
func (c *Core) Next() time.Time { return c.soft.timers.Next() }

// Due does the first thing whose time has come.
func (c *Core) Due(s Step) Result {
	var r Result
	t, ok := c.soft.timers.Pop(s.Now)
	if !ok {
		return r
	}
	switch t.kind {
	case abortSweep:
		c.tellOldest(s, &r)
		if c.abortLate(s, &r); r.WantID {
			c.soft.timers.Set(t, s.Now.Add(againAfter))
		}
		c.arm(s)
	case expirySweep:
		if c.expire(s, &r); s.State.Len() > 0 {
			c.soft.timers.Set(t, s.Now.Add(c.config.ExpireEvery))
		}
		if len(r.Records) == sweepAtOnce {
			c.soft.timers.Set(t, s.Now.Add(againAfter))
		}
	case completion:
		c.complete(s, t.id, &r)
	}
	return r
}

// tellAfterMs is how long a transaction may be open before the log is told of it:
// it holds back all who read what is committed.
const tellAfterMs = 60_000

// tellOldest tells the log of the transaction that has been open for longest, once.
func (c *Core) tellOldest(s Step, r *Result) {
	t := s.State.Oldest()
	if t == nil || s.ms()-t.StartMs < tellAfterMs || c.soft.told.id == t.ID && c.soft.told.startMs == t.StartMs {
		return
	}
	c.soft.told.id, c.soft.told.startMs = t.ID, t.StartMs
	r.note("the oldest open transaction is that of %q: %v for %d ms, its time is %d ms; producer id %d epoch %d, %d partitions", t.ID, t.Status, s.ms()-t.StartMs, t.TimeoutMs, t.ProducerID, t.Epoch, len(t.Partitions))
}

// twoPhase is the timeout of transactions that have none (KIP-939).
const twoPhase = 1<<31 - 1

// abortLate aborts the transactions that have taken too long. Their producers are
// fenced.
func (c *Core) abortLate(s Step, r *Result) {
	for t := range s.State.Open() {
		if t.Status != Ongoing || t.TimeoutMs == twoPhase || t.StartMs+int64(t.TimeoutMs) >= s.ms() {
			continue
		}
		n, ok := fence(s, t)
		if !ok {
			r.WantID = true // those before it are done
			return
		}
		if n.Next == s.NewID {
			s.NewID = -1 // taken
		}
		r.store(s, n)
		r.swept.TimedOut++
		r.note("transaction of %q aborted: open for %d ms, its time was %d ms; producer id %d epoch %d is fenced", t.ID, s.ms()-t.StartMs, t.TimeoutMs, t.ProducerID, t.Epoch)
		if len(r.Records) == sweepAtOnce {
			c.soft.timers.Set(timer{kind: abortSweep}, s.Now.Add(againAfter))
			return
		}
	}
}

// sweepAtOnce bounds the records of one step of a sweep: a batch has a limit. The
// rest follows in another step, and not at once: while the log refuses appends, that
// step finds the same transactions again.
const sweepAtOnce = 1000

// expire forgets ids that nobody has used for long and that have no open transaction.
func (c *Core) expire(s Step, r *Result) {
	for t := range s.State.All() {
		if !t.Status.complete() || t.UpdateMs > s.ms()-c.config.Expiration.Milliseconds() {
			continue
		}
		r.Records = append(r.Records, Record{ID: t.ID})
		r.swept.Expired++
		if len(r.Records) == sweepAtOnce {
			return
		}
	}
}

// Begin tells that the outcome of e is committed: its markers are being sent.
func (c *Core) Begin(s Step, e Ended) {
	m := &marking{producerID: e.ProducerID, epoch: e.Epoch, left: make(map[TopicPartition]struct{}, len(e.Partitions))}
	for _, p := range e.Partitions {
		m.left[p] = struct{}{}
	}
	c.soft.marking[e.ID] = m
	if len(m.left) == 0 {
		c.soft.timers.Set(timer{completion, e.ID}, s.Now)
	}
}

// Marked tells that partitions of e have their markers, or are no more. The last
// ones complete the transaction.
func (c *Core) Marked(s Step, e Ended) Result {
	var r Result
	m := c.soft.marking[e.ID]
	if m == nil || m.producerID != e.ProducerID || m.epoch != e.Epoch {
		return r // of a transaction before
	}
	for _, p := range e.Partitions {
		delete(m.left, p)
	}
	if len(m.left) == 0 {
		c.complete(s, e.ID, &r)
	}
	return r
}

// GiveUp tells that a marker of e was refused for good: a newer coordinator or
// producer has been there. Nothing more is done about it here, as in Kafka; the
// next leader of this partition tries again.
func (c *Core) GiveUp(e Ended) {
	if m := c.soft.marking[e.ID]; m != nil && m.producerID == e.ProducerID && m.epoch == e.Epoch {
		delete(c.soft.marking, e.ID)
		c.stats.GivenUp++
	}
}

// Missing lists those partitions of e that have no marker so far; none when the
// transaction is over, or its markers were given up.
func (c *Core) Missing(e Ended) []TopicPartition {
	m := c.soft.marking[e.ID]
	if m == nil || m.producerID != e.ProducerID || m.epoch != e.Epoch {
		return nil
	}
	var out []TopicPartition
	for _, p := range e.Partitions {
		if _, ok := m.left[p]; ok {
			out = append(out, p)
		}
	}
	return out
}

// againAfter is how long something waits that could not be done, or not in one
// step: the last record of a transaction when it was refused, as with too few
// replicas in sync, an end for which there was no producer id, or the rest of a
// sweep.
const againAfter = 200 * time.Millisecond

// complete writes the last record of a transaction.
func (c *Core) complete(s Step, id string, r *Result) {
	m, t := c.soft.marking[id], s.State.Txn(id)
	if m == nil || len(m.left) > 0 {
		return
	}
	if t == nil || !t.Status.ending() || t.ProducerID != m.producerID || t.Epoch != m.epoch {
		delete(c.soft.marking, id) // it is written
		return
	}
	n := *t
	n.Status = CompleteAbort
	if t.Status == PrepareCommit {
		n.Status = CompleteCommit
	}
	n.Previous, n.Next, n.Partitions, n.UpdateMs = t.ProducerID, NoProducerID, nil, s.ms()
	if t.Version >= 2 && t.Next != NoProducerID {
		// The epochs are used up: the producer was told to go on as another one.
		n.ProducerID, n.Epoch = t.Next, 0
	}
	r.store(s, &n)
	c.soft.timers.Set(timer{completion, id}, s.Now.Add(againAfter))
}

// Committed tells that the records of r are committed; what has ended goes to
// [Core.Begin] before.
func (c *Core) Committed(r *Result) {
	c.stats.TimedOut += r.swept.TimedOut
	c.stats.Expired += r.swept.Expired
	for i := range r.Records {
		if t := r.Records[i].Txn; t != nil {
			c.completed(t)
		}
	}
}

// completed ends the wait for the last record of a transaction, if t is that.
func (c *Core) completed(t *Txn) {
	switch t.Status {
	case CompleteCommit:
		c.stats.Commits++
	case CompleteAbort:
		c.stats.Aborts++
	default:
		return
	}
	delete(c.soft.marking, t.ID)
	c.soft.timers.Cancel(timer{completion, t.ID})
}

// Unmarked lists the partitions whose markers are missing, in order.
func (c *Core) Unmarked(t *Txn) []TopicPartition {
	m := c.soft.marking[t.ID]
	if m == nil || !t.Status.ending() || m.producerID != t.ProducerID || m.epoch != t.Epoch {
		return t.Partitions
	}
	return c.Missing(ended(t))
}

// Marking counts the transactions that wait for markers.
func (c *Core) Marking() int { return len(c.soft.marking) }

// known finds the state that a request of a producer is about.
func known(s Step, id string, producerID int64) (*Txn, *kerr.Error) {
	if id == "" {
		return nil, kerr.InvalidRequest
	}
	t := s.State.Txn(id)
	if t == nil || t.ProducerID != producerID {
		return t, kerr.InvalidProducerIDMapping
	}
	return t, nil
}

// Add makes partitions part of the producer's transaction, which begins with the
// first. version is the client's transaction.version.
func (c *Core) Add(s Step, id string, producerID int64, epoch int16, partitions []TopicPartition, version int16) (Result, *kerr.Error) {
	var r Result
	t, err := known(s, id, producerID)
	switch {
	case err != nil:
		return r, err
	case t.Epoch != epoch:
		return r, kerr.ProducerFenced
	case t.Status.ending():
		return r, kerr.ConcurrentTransactions
	case t.Status == Ongoing && !slices.ContainsFunc(partitions, func(p TopicPartition) bool { return !t.has(p) }):
		return r, nil
	}
	n := *t
	if t.Status != Ongoing {
		n.StartMs = s.ms()
	}
	n.Status, n.Partitions, n.UpdateMs, n.Version, n.Previous = Ongoing, t.with(partitions), s.ms(), version, t.ProducerID
	r.store(s, &n)
	if _, ok := c.soft.timers.Get(timer{kind: abortSweep}); !ok {
		c.soft.timers.Set(timer{kind: abortSweep}, s.Now.Add(c.config.AbortEvery))
	}
	return r, nil
}

// Verify tells of each partition whether it is part of the producer's transaction:
// nil, or else TRANSACTION_ABORTABLE (KIP-890). The error is of all of them.
func (c *Core) Verify(s Step, id string, producerID int64, epoch int16, partitions []TopicPartition) ([]*kerr.Error, *kerr.Error) {
	t, err := known(s, id, producerID)
	switch {
	case err != nil:
		return nil, err
	case t.Epoch != epoch:
		return nil, kerr.ProducerFenced
	case t.Status.ending():
		return nil, kerr.ConcurrentTransactions
	}
	out := make([]*kerr.Error, len(partitions))
	for i, p := range partitions {
		if !t.has(p) {
			out[i] = kerr.TransactionAbortable
		}
	}
	return out, nil
}
