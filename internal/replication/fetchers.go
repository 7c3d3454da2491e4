package replication

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"weir/internal/follower"
	"weir/internal/image"
	"weir/internal/partition"
	"weir/internal/peer"
)

// fetchers is who copies which partition from where: one fetcher for each leader
// and slot (num.replica.fetchers).
type fetchers struct {
	m    *Manager
	life context.Context // ends them all
	end  context.CancelFunc
	work sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	slots     int // num.replica.fetchers
	set       map[fetcherKey]*fetcher
	following map[follower.Key]*following
	doubts    map[int32]doubt // leaders that may be gone, as far as their fetchers saw
}

type fetcherKey struct {
	leader int32
	slot   int
}

// following is a partition that is copied.
type following struct {
	replica *partition.Replica
	epoch   int32
	fetcher *fetcher
	moving  bool // its fetcher is to give it up for another of the same leader
}

func newFetchers(m *Manager) *fetchers {
	f := &fetchers{m: m, slots: m.o.Fetch.Fetchers, set: map[fetcherKey]*fetcher{}, following: map[follower.Key]*following{}, doubts: map[int32]doubt{}}
	f.life, f.end = context.WithCancel(context.Background())
	return f
}

func keyOf(r *partition.Replica) follower.Key {
	return follower.Key{Topic: r.TopicID(), Partition: r.ID()}
}

// follow lets r be copied from leader in leaderEpoch, from the next apply on.
func (f *fetchers) follow(r *partition.Replica, leader, leaderEpoch int32) {
	if leader == partition.None {
		f.stop(r)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	k := keyOf(r)
	old := f.following[k]
	if f.closed || old != nil && old.replica == r && old.epoch == leaderEpoch {
		return
	}
	to := f.fetcherLocked(fetcherKey{leader, slotOf(k, f.slots)})
	if old != nil && old.fetcher != to {
		old.fetcher.change(change{key: k})
	}
	f.following[k] = &following{replica: r, epoch: leaderEpoch, fetcher: to}
	to.change(change{key: k, replica: r, epoch: leaderEpoch})
}

// slotOf spreads partitions over the connections to one leader.
func slotOf(k follower.Key, n int) int {
	h := uint32(k.Partition)
	for _, b := range k.Topic {
		h = h*31 + uint32(b)
	}
	return int(h % uint32(max(n, 1)))
}

// resize spreads what is copied over n connections to each leader, from the next
// apply on.
func (f *fetchers) resize(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n == f.slots {
		return
	}
	f.slots = n
	for k, x := range f.following {
		if slotOf(k, n) != x.fetcher.key.slot && !x.moving {
			x.moving = true
			x.fetcher.change(change{key: k, moving: true})
		}
	}
}

// moved hands on a partition that its fetcher has given up. Only then may another one
// copy it: both would append in the same leader epoch.
func (f *fetchers) moved(from *fetcher, k follower.Key) {
	f.mu.Lock()
	x := f.following[k]
	if f.closed || x == nil || x.fetcher != from || !x.moving { // it was stopped, or has another leader, meanwhile
		f.mu.Unlock()
		return
	}
	x.fetcher, x.moving = f.fetcherLocked(fetcherKey{from.key.leader, slotOf(k, f.slots)}), false
	x.fetcher.change(change{key: k, replica: x.replica, epoch: x.epoch})
	to := x.fetcher
	f.mu.Unlock()
	to.apply()
}

// stop ends the copying of r soon; what is still appended meanwhile belongs to the
// leader epoch that r is in.
func (f *fetchers) stop(r *partition.Replica) {
	f.mu.Lock()
	defer f.mu.Unlock()
	k := keyOf(r)
	if old := f.following[k]; old != nil && old.replica == r {
		delete(f.following, k)
		old.fetcher.change(change{key: k})
		old.fetcher.apply()
	}
}

// apply lets the fetchers take up what follow and stop have said.
func (f *fetchers) apply() {
	f.mu.Lock()
	list := f.listLocked()
	f.mu.Unlock()
	for _, x := range list {
		x.apply()
	}
}

// listLocked lists the fetchers in the order of their leaders.
func (f *fetchers) listLocked() []*fetcher {
	list := slices.Collect(maps.Values(f.set))
	slices.SortFunc(list, func(a, b *fetcher) int {
		return cmp.Or(cmp.Compare(a.key.leader, b.key.leader), cmp.Compare(a.key.slot, b.key.slot))
	})
	return list
}

func (f *fetchers) fetcherLocked(k fetcherKey) *fetcher {
	if x := f.set[k]; x != nil {
		return x
	}
	x := &fetcher{m: f.m, all: f, key: k, wake: make(chan struct{}, 1)}
	x.name = fmt.Sprintf("broker-%d-fetcher-%d", f.m.o.NodeID, k.slot)
	x.open()
	f.set[k] = x
	if !f.m.o.Stepped {
		f.work.Go(func() { x.run(f.life) })
	}
	return x
}

// leave ends x when it has no partition any more and no change waits for it.
func (f *fetchers) leave(x *fetcher) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !x.empty() {
		return false
	}
	delete(f.set, x.key)
	delete(f.doubts, x.key.leader)
	return true
}

// doubt is what a fetcher has noticed of its leader's process.
type doubt struct {
	epoch int64     // its broker epoch
	since time.Time // of the last change
	gone  bool      // it has ended; else it has closed its connection, which a dial will explain
}

// Doubts end by themselves: after a while nobody should wait for another leader.
const (
	doubtOfGone   = 500 * time.Millisecond // the controller elects another leader in less, where it can
	doubtOfClosed = 100 * time.Millisecond // one dial
)

// see notes how the last request to a leader ended.
func (f *fetchers) see(leader int32, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b, ok := f.m.image.Load().Broker(leader)
	gone := peer.IsGone(err)
	if !ok || !gone && peer.KindOf(err) != peer.Disconnected {
		delete(f.doubts, leader)
		return
	}
	if old, ok := f.doubts[leader]; !ok || old.epoch != b.Epoch || old.gone != gone {
		f.doubts[leader] = doubt{epoch: b.Epoch, since: f.m.o.Clock.Now(), gone: gone}
	}
}

// Gone tells whether this node has itself found the process of a leader that it
// copies from ended, and has not heard of another one since, so that clients should
// not be sent there (availability C3(g)).
func (m *Manager) Gone(leader *image.Broker) bool {
	d, ok := m.doubt(leader)
	return ok && d.gone
}

// Doubted tells whether a leader that this node copies from has ended, or closed its
// connection, a moment ago: who asks for leaders does well to wait a little.
func (m *Manager) Doubted(leader *image.Broker) bool {
	d, ok := m.doubt(leader)
	lasts := doubtOfClosed
	if d.gone {
		lasts = doubtOfGone
	}
	return ok && m.o.Clock.Now().Sub(d.since) < lasts
}

func (m *Manager) doubt(leader *image.Broker) (doubt, bool) {
	m.fetchers.mu.Lock()
	defer m.fetchers.mu.Unlock()
	d, ok := m.fetchers.doubts[leader.ID]
	return d, ok && d.epoch == leader.Epoch
}

// run waits for ctx, then ends every fetcher.
func (f *fetchers) run(ctx context.Context) error {
	<-ctx.Done()
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.end()
	f.work.Wait()
	return nil
}
