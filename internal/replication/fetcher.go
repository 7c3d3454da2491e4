package replication

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/clock"
	"weir/internal/follower"
	"weir/internal/partition"
	"weir/internal/peer"
	"weir/internal/storage"
	"weir/internal/uuid"
)

// A fetcher copies the partitions that one leader leads, one Fetch after another
// on a connection of its own. When partitions are given to it while the leader
// holds a fetch that has nothing to say, it gives that fetch up and asks anew: a
// new leader waits for its followers before it can commit anything.
type fetcher struct {
	m    *Manager
	all  *fetchers
	key  fetcherKey
	name string
	wake chan struct{}

	mu      sync.Mutex
	changes []change
	ready   bool   // changes are to be taken up now
	hurry   func() // gives up the fetch under way; nil: none is
	hurried time.Time

	// Of the goroutine.
	core  *follower.Core
	peer  Peer
	parts map[follower.Key]*copied
	quiet bool // the leader's silence was told of
	// astray are partitions whose place is outside of the leader's log. The first is
	// being asked about: nothing else is asked meanwhile.
	astray []*relocation
}

// change gives a partition to a fetcher, or takes it away (replica nil).
type change struct {
	key     follower.Key
	replica *partition.Replica
	epoch   int32
	moving  bool // taken away to be given to another fetcher of this leader
}

// copied is a partition that this fetcher copies.
type copied struct {
	replica *partition.Replica
	epoch   int32
	inSync  bool // it has all that the leader knows to be committed
}

// hurryGap is the least time between two fetches given up.
const hurryGap = 20 * time.Millisecond

// firstBackoff is the pause after a first failure: most end within milliseconds,
// when the leader has read the same metadata (availability C3(f)).
const firstBackoff = 10 * time.Millisecond

func (f *fetcher) change(c change) {
	f.mu.Lock()
	f.changes = append(f.changes, c)
	f.mu.Unlock()
}

// apply lets the goroutine take up the changes.
func (f *fetcher) apply() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.changes) == 0 {
		return
	}
	f.ready = true
	poke(f.wake)
	if f.hurry == nil || !f.gives() {
		return
	}
	now := f.m.o.Clock.Now()
	if wait := hurryGap - now.Sub(f.hurried); wait > 0 {
		f.m.o.Clock.AfterFunc(wait, f.apply)
		return
	}
	f.hurried = now
	f.hurry()
}

// gives tells whether a partition is given to this fetcher; mu is held.
func (f *fetcher) gives() bool {
	for _, c := range f.changes {
		if c.replica != nil {
			return true
		}
	}
	return false
}

// empty tells, to its own goroutine, that it has nothing to do.
func (f *fetcher) empty() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.changes) == 0 && len(f.parts) == 0
}

// open prepares the conversation.
func (f *fetcher) open() {
	s := f.m.o.Fetch
	f.parts = map[follower.Key]*copied{}
	f.core = follower.New(follower.Options{
		Self: f.m.o.NodeID, MaxWaitMs: int32(s.MaxWait.Milliseconds()), MinBytes: s.MinBytes, MaxBytes: s.MaxBytes, PartitionMax: s.PartitionMax,
		BackoffMs: firstBackoff.Milliseconds(), BackoffMaxMs: s.Backoff.Milliseconds(),
	})
}

// run carries the requests that next wants asked to the leader, one after another.
func (f *fetcher) run(ctx context.Context) {
	f.peer = f.m.o.Connect(f.key.leader, f.name)
	defer f.peer.Close()
	for ctx.Err() == nil {
		req, at, ended := f.next()
		if ended {
			return
		}
		if req == nil {
			f.wait(ctx, at)
			continue
		}
		res, err := f.ask(ctx, req)
		switch {
		case err == nil:
			f.answered(res)
		case ctx.Err() == nil:
			f.lost(err)
		}
	}
}

// next takes up what was changed and returns what to ask the leader now. Nil: nothing
// before atMs, math.MaxInt64 when not before something else happens. ended says that
// there is nothing left to copy from this leader, and that this fetcher is none any more.
func (f *fetcher) next() (req kmsg.Request, atMs int64, ended bool) {
	if len(f.astray) > 0 {
		return f.astray[0].request(f), f.nowMs(), false
	}
	f.takeChanges()
	if len(f.parts) == 0 && f.all.leave(f) {
		return nil, 0, true
	}
	q, at := f.core.Request(f.nowMs(), follower.Version{
		Fetch: f.m.image.Load().Features().FetchVersion(), BrokerEpoch: f.m.o.Epoch(), Hold: f.hold(),
	})
	if q == nil {
		return nil, at, false
	}
	return q, at, false
}

// answered takes the leader's answer to what next wanted asked.
func (f *fetcher) answered(res kmsg.Response) {
	if len(f.astray) > 0 {
		f.placed(res, nil)
		return
	}
	f.heard()
	for _, a := range f.core.Response(f.nowMs(), res.(*kmsg.FetchResponse)) {
		f.do(a)
	}
}

// hold tells what the throttle of followers holds back; nil: nothing.
func (f *fetcher) hold() func(follower.Key) bool {
	if !f.m.throttles.follower.Exceeded() {
		return nil
	}
	return func(k follower.Key) bool {
		p := f.parts[k]
		return p != nil && !p.inSync && p.replica.ThrottledFollower()
	}
}

func (f *fetcher) nowMs() int64 { return f.m.o.Clock.Now().UnixMilli() }

// wait sleeps until something is to be done, at the latest at the given time.
func (f *fetcher) wait(ctx context.Context, atMs int64) {
	d := time.Hour
	if atMs != math.MaxInt64 {
		d = time.Duration(max(atMs-f.nowMs(), 1)) * time.Millisecond
	}
	over, stop := clock.After(f.m.o.Clock, d)
	defer stop()
	select {
	case <-ctx.Done():
	case <-f.wake:
	case <-over:
	}
}

// takeChanges brings the core up to what the image says. A log is prepared here
// rather than while images are applied, which must not wait for a disk.
func (f *fetcher) takeChanges() {
	f.mu.Lock()
	var list []change
	if f.ready {
		list, f.changes, f.ready = f.changes, nil, false
	}
	f.mu.Unlock()
	for _, c := range list {
		f.core.Remove(c.key)
		if c.replica == nil {
			delete(f.parts, c.key)
			if c.moving {
				f.all.moved(f, c.key)
			}
			continue
		}
		f.parts[c.key] = &copied{replica: c.replica, epoch: c.epoch}
		at, err := c.replica.StartFollowing(c.epoch)
		if err != nil { // its role has changed again, or its log has failed: the image or the operator sees to it
			f.m.o.Logger.Debug("not following", "partition", c.replica.String(), "leader epoch", c.epoch, "err", err)
			continue
		}
		f.core.Add(c.key, follower.Start{LeaderEpoch: c.epoch, Offset: at.Offset, LastEpoch: at.LastEpoch, LogStart: at.LogStart})
	}
}

var errHurry = errors.New("partitions were added")

// ask sends a request and waits for its answer; a fetch also until it is given up.
func (f *fetcher) ask(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	limit, stop := context.WithTimeout(ctx, f.m.o.Fetch.Timeout)
	defer stop()
	if _, ok := req.(*kmsg.FetchRequest); ok {
		if !f.hurryWith(func() { cancel(errHurry) }) {
			return nil, errHurry
		}
		defer f.hurryWith(nil)
	}
	res, err := f.peer.Do(limit, req)
	if err != nil && context.Cause(ctx) == errHurry {
		return nil, errHurry
	}
	return res, err
}

// hurryWith sets what gives the fetch under way up, nil at its end. False: partitions
// came after takeChanges, so that the fetch is to be given up at once.
func (f *fetcher) hurryWith(giveUp func()) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if giveUp != nil && f.ready && f.gives() {
		return false
	}
	f.hurry = giveUp
	return true
}

// lost notes that what next wanted asked has no answer.
func (f *fetcher) lost(err error) {
	if len(f.astray) > 0 {
		f.placed(nil, err)
		return
	}
	hurry := err == errHurry
	f.core.Lost(f.nowMs(), hurry)
	if hurry {
		return
	}
	f.all.see(f.key.leader, peer.IsGone(err))
	if !f.quiet {
		f.quiet = true
		f.m.o.Logger.Info("cannot fetch from a leader, trying on", "leader", f.key.leader, "partitions", len(f.parts), "err", err)
	}
}

func (f *fetcher) heard() {
	if f.quiet {
		f.quiet = false
		f.m.o.Logger.Info("fetching from the leader again", "leader", f.key.leader)
	}
	f.all.see(f.key.leader, false)
}

// do carries out one action on a partition's log, or begins to.
func (f *fetcher) do(a follower.Action) {
	p := f.parts[a.Key]
	if p == nil {
		f.core.Done(f.nowMs(), follower.Outcome{Action: a, Stop: true})
		return
	}
	var at partition.Place
	var lost int64
	var err error
	end := p.replica.Log().LogEnd()
	switch a.Kind {
	case follower.Append:
		at, err = p.replica.AppendAsFollower(partition.FollowerAppend{
			Records: a.Records, LeaderEpoch: a.LeaderEpoch, HighWatermark: a.HighWatermark, LogStart: a.LogStart,
		})
		p.inSync = err == nil && at.Offset >= a.HighWatermark
		if p.replica.ThrottledFollower() {
			f.m.throttles.follower.Record(int64(len(a.Records)))
		}
	case follower.Truncate:
		at, lost, err = p.replica.TruncateToLeader(a.LeaderEpoch, storage.EpochEnd{Epoch: a.Epoch, EndOffset: a.Offset})
		if err == nil {
			f.m.o.Logger.Info("truncated to the leader's log", "partition", p.replica.String(), "leader", f.key.leader, "epoch", a.Epoch, "its end", a.Offset,
				"from", at.Offset, "to", end-1)
		}
	case follower.Relocate:
		f.astray = append(f.astray, &relocation{action: a, part: p, end: -1})
		return
	}
	f.done(a, p, at, err, cut{end, lost})
}

// cut is what an action may have taken from a log's end.
type cut struct {
	end  int64 // the log's before
	lost int64 // records that were committed as far as the replica knew
}

// done tells the core how an action ended.
func (f *fetcher) done(a follower.Action, p *copied, at partition.Place, err error, c cut) {
	if err == nil && c.end > at.Offset {
		f.m.stats.Truncated.Add(c.end - at.Offset)
	}
	if c.lost > 0 {
		f.m.o.Logger.Warn("records that were committed as far as this replica knew are gone: the new leader, elected uncleanly, does not have them",
			"partition", p.replica.String(), "leader", f.key.leader, "leader epoch", a.LeaderEpoch, "from", at.Offset, "to", c.end-1, "committed", c.lost)
	}
	if err != nil {
		at = p.replica.Place()
	}
	out := follower.Outcome{Action: a, Offset: at.Offset, LastEpoch: at.LastEpoch, LogStart: at.LogStart}
	var moved *partition.EpochError
	var bad *storage.BadBatchError
	switch {
	case err == nil:
	case errors.As(err, &moved), errors.Is(err, storage.ErrClosed):
		out.Stop = true
	case errors.As(err, &bad):
		f.m.o.Logger.Error("the leader sent what is not a record batch, asking again", "partition", p.replica.String(), "leader", f.key.leader, "err", err)
		out.Failed = true
	default:
		f.m.o.Logger.Error("cannot copy a partition, trying again", "partition", p.replica.String(), "leader", f.key.leader, "err", err)
		out.Failed = true
	}
	f.core.Done(f.nowMs(), out)
}

// Following tells where a replica is copied from, for metrics.
func (m *Manager) Following(topic uuid.UUID, partition int32) (leader int32, ok bool) {
	m.fetchers.mu.Lock()
	defer m.fetchers.mu.Unlock()
	x := m.fetchers.following[follower.Key{Topic: topic, Partition: partition}]
	if x == nil {
		return -1, false
	}
	return x.fetcher.key.leader, true
}
