package sim

import (
	"fmt"
	"slices"

	"weir/internal/batch"
	"weir/internal/image"
	"weir/internal/partition"
	"weir/internal/storage"
)

// checker holds what is true of the cluster as a whole, found out by looking at every
// node after every step, and complains when a node shows something else.
type checker struct {
	w     *World
	parts []*truth
	byID  map[image.PartitionID]*truth

	meta    metaTruth
	leaders map[int32]int32 // of the quorum, by epoch
}

// truth is what is known of one partition.
type truth struct {
	part
	// committed are the batches below the highest high watermark ever seen, without holes.
	committed []entry
	leaders   map[int32]int32  // by leader epoch, as the images say
	sequences map[int64]int32  // of each idempotent producer: the next in committed
	newest    *image.Partition // as the controller has it committed
	unclean   int32            // leader epoch of the last unclean election, -1
	cut       int32            // leader epoch whose leader's log committed was cut to, -1
	views     []view
}

// view is what of a node's log has been compared.
type view struct {
	run      int
	epoch    int32
	hw, end  int64
	compared int64
	log      *storage.Log
}

// entry is one committed batch.
type entry struct {
	base, last int64
	epoch      int32
	crc        uint32
	pid        int64
	seq, count int32
}

func entryOf(b batch.Batch) entry {
	return entry{base: b.BaseOffset(), last: b.LastOffset(), epoch: b.LeaderEpoch(), crc: b.CRC(), pid: b.ProducerID(), seq: b.BaseSequence(), count: b.Count()}
}

func (e entry) String() string {
	return fmt.Sprintf("%d-%d of epoch %d, producer %d sequence %d, CRC %08x", e.base, e.last, e.epoch, e.pid, e.seq, e.crc)
}

func newChecker(w *World) *checker {
	return &checker{w: w, byID: map[image.PartitionID]*truth{}, leaders: map[int32]int32{}, meta: newMetaTruth()}
}

// follow begins to look at partitions.
func (c *checker) follow(parts []part) {
	for _, p := range parts {
		t := &truth{part: p, leaders: map[int32]int32{}, sequences: map[int64]int32{}, newest: c.meta.image.Partition(p.id), unclean: -1, cut: -1, views: make([]view, len(c.w.nodes))}
		c.parts = append(c.parts, t)
		c.byID[p.id] = t
	}
}

// started forgets what was known of a node's memory.
func (c *checker) started(n *node) {
	for _, t := range c.parts {
		t.views[n.id-1] = view{run: n.run}
	}
}

// uncleanly tells whether a partition has ever had an unclean election.
func (c *checker) uncleanly(id image.PartitionID) bool {
	t := c.byID[id]
	return t != nil && t.unclean >= 0
}

// present tells whether a node leads a partition by the newest metadata; one that was replaced may not know it yet, and lacks what
// was written since.
func (c *checker) present(id image.PartitionID, leader int32) bool {
	return c.byID[id].newest.Leader == leader
}

func (t *truth) end() int64 {
	if n := len(t.committed); n > 0 {
		return t.committed[n-1].last + 1
	}
	return 0
}

// node looks at a node after it has been polled.
func (c *checker) node(n *node) {
	if l := n.log.Leader(); l.ID == n.id {
		if old, ok := c.leaders[l.Epoch]; ok && old != n.id {
			c.w.fail("two leaders of the metadata quorum in epoch %d: %d and %d", l.Epoch, old, n.id)
		} else if !ok {
			c.leaders[l.Epoch] = n.id
			c.w.count.Elections++
		}
	}
	for _, t := range c.parts {
		if r, err := n.replicas.Replica(t.id.Topic, t.id.Partition); err == nil {
			c.replica(n, t, r)
		}
	}
}

// replica compares what is new on one replica.
func (c *checker) replica(n *node, t *truth, r *partition.Replica) {
	v, s, o, log := &t.views[n.id-1], r.Status(), r.Log().Offsets(), r.Log()
	if v.run == n.run && v.log == log && v.epoch == s.LeaderEpoch && v.hw == o.HighWatermark && v.end == o.LogEnd {
		return
	}
	if s.Leading {
		c.leads(n, t, s.LeaderEpoch)
	}
	if o.LogEnd < v.end || o.HighWatermark < v.hw || v.log != log || v.run != n.run {
		v.compared = min(v.compared, o.HighWatermark, o.LogEnd)
		if v.run != n.run || v.log != log {
			v.compared = 0
		}
	}
	if !s.Leading && v.run == n.run && v.log == log && v.epoch == s.LeaderEpoch && v.end < o.LogEnd {
		c.follows(n, t, s, log, v.end)
	}
	begins := s.Leading && (v.epoch != s.LeaderEpoch || v.run != n.run)
	v.run, v.log, v.epoch, v.hw, v.end = n.run, log, s.LeaderEpoch, o.HighWatermark, o.LogEnd
	if begins {
		c.begins(n, t, log, s.LeaderEpoch)
	}
	// After an unclean election only leaders of that epoch or later are believed: others
	// may hold, for a while, what is not any more.
	if t.unclean >= 0 && (s.LeaderEpoch < t.unclean || !s.Leading || t.cut < t.unclean) {
		v.compared = min(v.compared, o.LogStart)
		return
	}
	c.compare(n, t, log, o.HighWatermark, true)
}

// follows: what a follower appends in a leader epoch stands in the log of that epoch's leader, which only grows.
func (c *checker) follows(n *node, t *truth, s partition.Status, log *storage.Log, from int64) {
	if s.Leader <= 0 || n.faulty {
		return
	}
	l := c.w.node(s.Leader)
	if !l.up || l.faulty {
		return
	}
	r, err := l.replicas.Replica(t.id.Topic, t.id.Partition)
	if err != nil {
		return
	}
	if its := r.Status(); !its.Leading || its.LeaderEpoch != s.LeaderEpoch {
		return
	}
	end := log.LogEnd()
	if r.Log().LogEnd() < end {
		c.w.fail("node %d: %s ends at %d, and at %d at its leader %d of epoch %d", n.id, t.name, end, r.Log().LogEnd(), l.id, s.LeaderEpoch)
		return
	}
	theirs := map[int64]entry{}
	c.each(l, r.Log(), from, end, func(b batch.Batch) bool {
		theirs[b.BaseOffset()] = entryOf(b)
		return true
	})
	c.each(n, log, from, end, func(b batch.Batch) bool {
		if e := entryOf(b); theirs[e.base] != e {
			c.w.fail("node %d: %s has %s, which its leader %d of epoch %d has not", n.id, t.name, e, l.id, s.LeaderEpoch)
			return false
		}
		return true
	})
}

// leads: one leader in an epoch.
func (c *checker) leads(n *node, t *truth, epoch int32) {
	if old, ok := t.leaders[epoch]; ok && old != n.id {
		c.w.fail("two leaders of %s in epoch %d: %d and %d", t.name, epoch, old, n.id)
	}
	t.leaders[epoch] = n.id
}

// begins looks at a log whose replica has just become the leader: it has all that is
// committed, unless it was elected uncleanly; then that is what is left.
func (c *checker) begins(n *node, t *truth, log *storage.Log, epoch int32) {
	if t.newest.LeaderEpoch != epoch {
		return // history: this node does not know the present yet
	}
	if t.unclean >= 0 && t.cut < t.unclean {
		if epoch >= t.unclean {
			c.cutTo(n, t, log)
			t.cut = epoch
		}
		return
	}
	if log.LogEnd() < t.end() {
		c.w.fail("node %d leads %s in epoch %d with a log that ends at %d: committed is all below %d, lost %s", n.id, t.name, epoch, log.LogEnd(), t.end(), t.committed[len(t.committed)-1])
		return
	}
	c.compare(n, t, log, t.end(), false)
}

// compare compares a log with the truth, up to an offset; with learn, what is beyond the
// truth is committed from now on.
func (c *checker) compare(n *node, t *truth, log *storage.Log, upTo int64, learn bool) {
	v := &t.views[n.id-1]
	from := max(v.compared, log.LogStart())
	if from >= upTo {
		return
	}
	next := from
	c.each(n, log, from, upTo, func(b batch.Batch) bool {
		e := entryOf(b)
		if e.base > next {
			c.w.fail("node %d: %s has a hole from %d to %s", n.id, t.name, next, e)
			return false
		}
		next = e.last + 1
		if e.last >= upTo && learn {
			c.w.fail("node %d: the high watermark %d of %s is within the batch %s", n.id, upTo, t.name, e)
			return false
		}
		if e.base >= t.end() {
			if learn {
				c.learn(n, t, e)
			}
			return learn && c.w.err == nil
		}
		i, ok := slices.BinarySearchFunc(t.committed, e.base, func(x entry, base int64) int { return int(x.base - base) })
		if !ok || t.committed[i] != e {
			c.w.fail("node %d: %s differs from what was committed: it has %s; committed is %v", n.id, t.name, e, t.at(e.base))
			return false
		}
		return true
	})
	if learn {
		v.compared = upTo
	}
}

func (t *truth) at(offset int64) any {
	for _, e := range t.committed {
		if e.base <= offset && offset <= e.last {
			return e
		}
	}
	return "nothing there"
}

// learn takes a batch that is committed now.
func (c *checker) learn(n *node, t *truth, e entry) {
	if e.base != t.end() {
		c.w.fail("node %d: %s has a hole: %s follows %d", n.id, t.name, e, t.end())
		return
	}
	if e.pid >= 0 {
		if want, ok := t.sequences[e.pid]; ok && want != e.seq || !ok && e.seq != 0 && t.unclean < 0 {
			c.w.fail("node %d: %s: producer %d has sequence %d at offset %d, expected %d: something is lost, doubled or out of order", n.id, t.name, e.pid, e.seq, e.base, want)
			return
		}
		t.sequences[e.pid] = e.seq + e.count
	}
	t.committed = append(t.committed, e)
}

// each calls f for the batches of a log in a range, until it is false.
func (c *checker) each(n *node, log *storage.Log, from, upTo int64, f func(b batch.Batch) bool) {
	for from < upTo {
		res, err := log.Read(from, 1<<16, log.LogEnd(), true)
		if err != nil {
			if !n.faulty {
				c.w.fail("node %d: reading %s at %d: %v", n.id, log.Name(), from, err)
			}
			return
		}
		raw := n.bytesOf(res.Regions)
		start := from
		for len(raw) > 0 && from < upTo {
			b, rest, err := batch.Next(raw)
			if err != nil {
				break
			}
			raw = rest
			if b.LastOffset() < from {
				continue
			}
			from = b.NextOffset()
			if !f(b) {
				return
			}
		}
		if from == start {
			if !n.faulty {
				c.w.fail("node %d: %s has nothing at %d", n.id, log.Name(), from)
			}
			return
		}
	}
}

// cutTo lets an uncleanly elected leader's log decide what is committed.
func (c *checker) cutTo(n *node, t *truth, log *storage.Log) {
	keep := 0
	c.each(n, log, log.LogStart(), log.LogEnd(), func(b batch.Batch) bool {
		if keep == len(t.committed) || t.committed[keep] != entryOf(b) {
			return false
		}
		keep++
		return true
	})
	t.committed = t.committed[:keep]
	clear(t.sequences)
	for _, e := range t.committed {
		if e.pid >= 0 {
			t.sequences[e.pid] = e.seq + e.count
		}
	}
	for i := range t.views {
		t.views[i].compared = 0
	}
}

// acked: what is acked with acks=all is committed, where the answer says.
func (c *checker) acked(p *producer, s *sending, first int64) {
	t := c.byID[p.part.id]
	if t.unclean >= 0 {
		return
	}
	for i := len(t.committed) - 1; i >= 0; i-- {
		if e := t.committed[i]; e.base == first {
			if e.pid != p.pid || e.seq != s.seq || e.count != s.count {
				c.w.fail("%s: sequence %d of producer %d was acked at offset %d, where %s stands", t.name, s.seq, p.pid, first, e)
			}
			return
		}
	}
	c.w.fail("%s: sequence %d of producer %d was acked at offset %d, which is not committed: that ends at %d", t.name, s.seq, p.pid, first, t.end())
}

// consumed: what a consumer gets is committed, and nothing is left out.
func (c *checker) consumed(who *consumer, p part, b batch.Batch, want int64) {
	t := c.byID[p.id]
	if t.unclean >= 0 {
		return
	}
	e := entryOf(b)
	if e.base > want {
		c.w.fail("consumer %d: %s has a hole: %s instead of offset %d", who.index, t.name, e, want)
	}
	if at := t.at(e.base); at != any(e) {
		c.w.fail("consumer %d got of %s: %s; committed is %v", who.index, t.name, e, at)
	}
}
