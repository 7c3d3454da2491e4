package sim

import (
	"slices"
	"syscall"
	"time"

	"weir/internal/batch"
	"weir/internal/checkpoint"
	"weir/internal/records"
	"weir/internal/storage"
	"weir/internal/storage/dirs"
	"weir/internal/vfs/errfs"
)

func (w *World) startFaults() { w.after(w.gap(), w.fault) }

func (w *World) gap() time.Duration {
	ms := int(w.set.FaultEvery.Milliseconds())
	return w.between(ms/4, ms*7/4)
}

// fault does one bad thing and plans the next.
func (w *World) fault() {
	if w.healed {
		return
	}
	w.after(w.gap(), w.fault)
	n := w.nodes[w.dice.IntN(len(w.nodes))]
	if w.dice.IntN(3) == 0 { // leaders are the best victims
		if l := w.newest(); l != nil && l.q.Leader().ID > 0 {
			n = w.node(l.q.Leader().ID)
		}
	}
	switch w.dice.IntN(13) {
	case 0, 1, 2:
		w.crash(n, w.mayLosePower(n))
	case 3, 4:
		w.crash(n, false)
	case 5, 6, 7:
		w.part(n)
	case 8:
		w.isolate(n)
	case 9:
		n.pausedUntil = w.clock.Now().Add(w.between(10, 400))
	case 10:
		if n.up && n.member.registered {
			n.member.stopping = true
			n.member.next = w.clock.Now()
			w.touch(n)
		}
	case 11:
		w.failDisk(n)
	case 12:
		w.fillDisk(n)
	}
}

// tempt kills a controller now and then that has just sent a part of a metadata
// transaction to a follower.
func (n *node) tempt(raw []byte) {
	w := n.w
	if w.healed || len(raw) == 0 || w.set.AtomicBytes >= int(w.set.BatchBytes) || !w.admin.ready || !endsInTransaction(raw) || w.dice.IntN(3) > 0 {
		return
	}
	run := n.run
	w.after(w.between(0, w.set.DelayMs+1), func() {
		if n.up && n.run == run && !w.healed {
			w.crash(n, false)
		}
	})
}

// hasten kills a leader of the quorum that is about to send the record with which its epoch begins, or has just sent it: that
// record may stand in a majority of the logs or in none, and before it may stand those of leaders that died like this.
func (n *node) hasten(raw []byte) {
	w := n.w
	if !w.set.Hasty || w.healed || !w.admin.ready || n.doomed == n.run || !beginsEpoch(raw, n.log.Leader().Epoch) || w.dice.IntN(4) == 0 {
		return
	}
	run, wait := n.run, w.between(0, w.set.DelayMs+1)
	if w.dice.IntN(3) > 0 {
		n.doomed, wait = n.run, 0
	}
	w.after(wait, func() {
		if n.up && n.run == run && !w.healed {
			w.crash(n, false)
		}
	})
}

// beginsEpoch tells whether batches of the metadata log hold the one that begins an epoch.
func beginsEpoch(raw []byte, epoch int32) bool {
	for len(raw) > 0 {
		b, rest, err := batch.Next(raw)
		if err != nil {
			return false
		}
		raw = rest
		if b.IsControl() && b.LeaderEpoch() == epoch {
			return true
		}
	}
	return false
}

// endsInTransaction tells whether a transaction begins in batches of the metadata log,
// and does not end there.
func endsInTransaction(raw []byte) (open bool) {
	for len(raw) > 0 {
		b, rest, err := batch.Next(raw)
		if err != nil {
			return open
		}
		raw = rest
		if b.IsControl() {
			continue
		}
		for r, err := range b.Records(nil) {
			if err != nil {
				return open
			}
			v, err := records.ParseMetadata(r.Value)
			if err != nil {
				return open
			}
			switch v.Record.(type) {
			case *records.BeginTransactionRecord:
				open = true
			case *records.EndTransactionRecord, *records.AbortTransactionRecord:
				open = false
			}
		}
	}
	return open
}

// crash ends a process; with power the machine goes with it, and what it did not sync.
func (w *World) crash(n *node, power bool) {
	if !n.up {
		return
	}
	n.kill(power)
	n.restartIn(n.downtime())
	if w.dice.IntN(12) == 0 { // all of them, as in a rack
		for _, o := range w.nodes {
			if o.up {
				o.kill(false)
				o.restartIn(o.downtime())
			}
		}
	}
}

func (n *node) downtime() time.Duration {
	if n.w.set.Quick || n.w.dice.IntN(3) == 0 {
		return n.w.between(0, 15)
	}
	return n.w.between(20, 700)
}

// mayLosePower: Kafka does not sync what it acks but relies on other replicas, so it
// promises nothing when all that hold a record lose power. Another in-sync replica must
// be running.
func (w *World) mayLosePower(n *node) bool {
	if !n.up || n.w.newest() == nil {
		return false
	}
	img := w.newest().q.Images().Image()
	for _, t := range w.check.parts {
		p := img.Partition(t.id)
		if t.wild || p == nil || !slices.Contains(p.Replicas, n.id) {
			continue
		}
		if !slices.ContainsFunc(p.ISR, func(id int32) bool {
			if id == n.id || !w.node(id).up {
				return false
			}
			r, err := w.node(id).replicas.Replica(t.id.Topic, t.id.Partition)
			return err == nil && r.Log().LogEnd() >= t.end()
		}) {
			return false
		}
	}
	return true
}

// kill ends the process of n.
func (n *node) kill(power bool) {
	w := n.w
	n.logger.Info("- killed", "power", power)
	n.up = false
	n.run++
	clear(n.lost)
	w.count.Crashes++
	if power {
		w.count.Cuts++
		n.remember()
	}
	if err := n.dirs.Crash(); err != nil && !n.faulty {
		w.fail("node %d: letting go of its directories: %v", n.id, err)
	}
	if power {
		n.disk = n.disk.Crash(w.dice)
	}
	n.errfs = errfs.Wrap(unlocked{n.disk})
	n.faulty = false
	w.disconnect(n.id)
}

// remember notes where the logs end, to see what a power cut takes.
func (n *node) remember() {
	n.dirs.Logs(func(p checkpoint.TopicPartition, l *storage.Log, _ *dirs.Dir, _ bool) bool {
		n.lost[p.String()] = l.LogEnd()
		return true
	})
}

func (n *node) compareLost() {
	some := false
	n.dirs.Logs(func(p checkpoint.TopicPartition, l *storage.Log, _ *dirs.Dir, _ bool) bool {
		some = some || l.LogEnd() < n.lost[p.String()]
		return true
	})
	if some {
		n.w.count.Lost++
	}
	clear(n.lost)
}

func (n *node) restartIn(d time.Duration) {
	n.starting = true
	n.w.after(d, n.start)
}

// leave is the end of a controlled shutdown.
func (n *node) leave() {
	w := n.w
	n.up = false
	n.run++
	w.count.Stopped++
	if err := n.dirs.Close(n.member.epoch); err != nil && !n.faulty {
		w.fail("node %d: clean stop: %v", n.id, err)
	}
	if err := n.log.Close(); err != nil && !n.faulty {
		w.fail("node %d: closing the metadata log: %v", n.id, err)
	}
	w.disconnect(n.id)
	n.restartIn(n.downtime())
}

// part cuts a pair of nodes off each other for a while.
func (w *World) part(n *node) {
	o := w.nodes[w.dice.IntN(len(w.nodes))]
	if o == n {
		return
	}
	w.count.Parted++
	w.apart(pair(n.id, o.id), w.between(20, 600))
}

func (w *World) isolate(n *node) {
	w.count.Parted++
	d := w.between(20, 600)
	for _, o := range w.nodes {
		if o != n {
			w.apart(pair(n.id, o.id), d)
		}
	}
}

func (w *World) apart(p [2]int32, d time.Duration) {
	w.logger.Info("- parted", "nodes", p, "for", d)
	w.parted[p] = true
	w.after(d, func() { delete(w.parted, p) })
}

// failDisk lets the log directory of a node fail soon; its process stops then.
func (w *World) failDisk(n *node) {
	if !n.up || !w.mayLosePower(n) {
		return
	}
	n.faulty, n.dark = true, w.dice.IntN(2) == 0
	op := []errfs.Op{errfs.Write, errfs.Sync, errfs.Rename}[w.dice.IntN(3)] // not Read: the checkers read, too
	n.errfs.Set(errfs.Rule{Op: op, Skip: w.dice.IntN(20), Err: syscall.EIO})
}

// fillDisk lets writes to a node's logs fail for want of room for a while. The process
// goes on.
func (w *World) fillDisk(n *node) {
	if !n.up || n.faulty {
		return
	}
	w.count.Full++
	run := n.run
	n.errfs.Set(errfs.Rule{Op: errfs.Write, Path: "*.log", Err: syscall.ENOSPC})
	w.after(w.between(20, 500), func() {
		if n.run == run && !n.faulty {
			n.errfs.Set()
		}
	})
}

// well tells whether the cluster has recovered: everything is written, and every replica
// is in sync and holds the same.
func (w *World) well() bool {
	n := w.newest()
	if n == nil {
		return false
	}
	for _, p := range w.producers {
		if len(p.open) > 0 {
			return false
		}
	}
	for _, o := range w.nodes {
		if !o.up || !o.member.registered || o.member.fenced {
			return false
		}
	}
	img := n.q.Images().Image()
	for _, t := range w.check.parts {
		p := img.Partition(t.id)
		if p == nil || len(p.ISR) < len(p.Replicas) || p.Leader < 0 {
			return false
		}
		var end int64 = -1
		for _, id := range p.Replicas {
			r, err := w.node(id).replicas.Replica(t.id.Topic, t.id.Partition)
			if err != nil {
				return false
			}
			o := r.Log().Offsets()
			if end < 0 {
				end = o.LogEnd
			}
			if o.LogEnd != end || o.HighWatermark != end {
				return false
			}
		}
	}
	return true
}

// finish compares all of every log once the cluster is well.
func (w *World) finish() {
	if !w.well() {
		w.fail("the cluster has not recovered 20 s after the last fault: %s", w.illness())
		return
	}
	for _, t := range w.check.parts {
		t.unclean = max(t.unclean, -1)
		for _, id := range t.newest.Replicas {
			r, err := w.node(id).replicas.Replica(t.id.Topic, t.id.Partition)
			if err != nil {
				w.fail("%v", err)
				return
			}
			t.views[id-1].compared = 0
			w.check.compare(w.node(id), t, r.Log(), r.Log().HighWatermark(), true)
		}
	}
}
