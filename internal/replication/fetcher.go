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
// on a connection of its own. Partitions that are given to it while the leader
// holds a fetch are named by the next one. A leader that has just begun to lead
// them lets go of the fetch, see starts.go; an Apache leader may hold it up to
// replica.fetch.wait.max.ms.
type fetcher struct {
	m    *Manager
	all  *fetchers
	key  fetcherKey
	name string
	wake chan struct{}

	mu      sync.Mutex
	changes []change
	ready   bool // changes are to be taken up now

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
	if len(f.changes) > 0 {
		f.ready = true
		poke(f.wake)
	}
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

// ask sends a request and waits for its answer.
func (f *fetcher) ask(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	ctx, stop := context.WithTimeout(ctx, f.m.o.Fetch.Timeout)
	defer stop()
	return f.peer.Do(ctx, req)
}

// lost notes that what next wanted asked has no answer.
func (f *fetcher) lost(err error) {
	if len(f.astray) > 0 {
		f.placed(nil, err)
		return
	}
	closed := !f.quiet && peer.KindOf(err) == peer.Disconnected
	f.core.Lost(f.nowMs(), closed) // a dial tells at once whether the process is there
	f.all.see(f.key.leader, err)
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
	f.all.see(f.key.leader, nil)
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
		// A process that dies now must not come back with a high watermark of the history that was given up.
		if werr := f.m.o.Dirs.WriteHighWatermarks(); werr != nil {
			f.m.o.Logger.Error("cannot write the high watermarks", "err", werr)
		}
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
