package sim

import (
	"cmp"
	"errors"
	"slices"
	"time"
)

// A lane is one connection: from a node or client (negative id) to a node, for one kind
// of requests. What is sent on it arrives in order. It is cut as a whole: then none of
// its answers arrives, and of its requests those that had left already may still.
type lane struct {
	open       []*call
	there, aft time.Time // when the last request and the last answer arrive
}

type laneKey struct {
	from, to int32
	kind     string
}

// copyKind is the kind of lanes on which followers fetch.
const copyKind = "fetch"

// call is one request and its answer.
type call struct {
	w    *World
	key  laneKey
	run  int // the asker's process
	done bool
	kept bool // the answer was kept back
	then func(res any, err error)
}

var (
	errCut     = errors.New("the connection was cut")
	errTimeout = errors.New("no answer in time")
	errRefused = errors.New("connection refused")
)

func pair(a, b int32) [2]int32 { return [2]int32{min(a, b), max(a, b)} }

// ask sends a request. deliver runs at the receiver; then is called once, unless the
// asker's process ends before.
func (w *World) ask(key laneKey, deliver func(dst *node, reply func(any)), then func(res any, err error)) *call {
	l := w.lanes[key]
	if l == nil {
		l = &lane{}
		w.lanes[key] = l
	}
	c := &call{w: w, key: key, then: then}
	if key.from > 0 {
		c.run = w.node(key.from).run
	}
	l.open = append(l.open, c)
	patience := requestMs * time.Millisecond
	if key.kind == copyKind && w.set.Late {
		patience = patientMs * time.Millisecond
	}
	w.after(patience, func() {
		if !c.done {
			w.cut(key, errTimeout)
		}
	})
	l.there = w.arrival(l.there, key)
	w.at(l.there, func() { c.arrive(deliver) })
	return c
}

// arrival is when something sent now arrives, not before what was sent before.
func (w *World) arrival(last time.Time, key laneKey) time.Time {
	d := w.between(0, w.set.DelayMs)
	if key.from == key.to {
		d = w.between(0, 1)
	} else if !w.healed && w.set.StallPercent > 0 && w.dice.IntN(100) < w.set.StallPercent {
		d += w.between(20, 110)
	}
	t := w.clock.Now().Add(d + 50*time.Microsecond)
	if t.Before(last) {
		return last
	}
	return t
}

// arrive is the request at its receiver.
func (c *call) arrive(deliver func(*node, func(any))) {
	w, key := c.w, c.key
	if key.from > 0 && w.parted[pair(key.from, key.to)] {
		return // the asker's patience will end
	}
	if !w.healed && !c.done && w.dice.IntN(100) < w.set.LossPercent {
		w.cut(key, errCut)
		if w.dice.IntN(2) == 0 {
			return
		}
	}
	if c.done && w.dice.IntN(2) == 0 { // of a connection that has been cut: it may have come through or not
		return
	}
	n := w.node(key.to)
	if !n.up {
		w.after(time.Millisecond, func() { w.cut(key, errRefused) })
		return
	}
	if wait := n.pausedUntil.Sub(w.clock.Now()); wait > 0 {
		w.after(wait, func() { c.arrive(deliver) })
		return
	}
	run := n.run
	answered := false
	deliver(n, func(res any) {
		if answered {
			w.fail("BUG: a request was answered twice")
		}
		answered = true
		l := w.lanes[key]
		l.aft = w.arrival(l.aft, key)
		w.at(l.aft, func() { c.back(res, run) })
	})
	w.touch(n)
}

// back is the answer at the asker.
func (c *call) back(res any, run int) {
	w, key := c.w, c.key
	if c.done || key.from > 0 && w.parted[pair(key.from, key.to)] {
		return
	}
	if key.kind == copyKind && w.set.Late && !w.healed && !c.kept && w.dice.IntN(8) == 0 {
		c.kept = true
		c.keep(res, run, w.leaderEpochs(key.from), w.clock.Now().Add(overtakenMs*time.Millisecond))
		return
	}
	if w.node(key.to).run != run && w.dice.IntN(2) == 0 {
		return // its sender has ended: it may have been sent or not
	}
	if !w.healed && w.dice.IntN(100) < w.set.LossPercent {
		w.cut(key, errCut)
		return
	}
	c.end(res, nil)
}

// keep lets an answer arrive soon after the asker has heard of a new leader of some partition, or at the latest at until.
func (c *call) keep(res any, run int, before int32, until time.Time) {
	w := c.w
	switch {
	case c.done:
	case w.healed || !w.clock.Now().Before(until):
		c.back(res, run)
	case w.leaderEpochs(c.key.from) != before:
		w.after(w.between(0, 60), func() { c.back(res, run) })
	default:
		w.after(5*time.Millisecond, func() { c.keep(res, run, before, until) })
	}
}

// leaderEpochs sums those of all partitions up, as a node knows them.
func (w *World) leaderEpochs(id int32) (sum int32) {
	img := w.node(id).q.Images().Image()
	for _, t := range w.check.parts {
		if p := img.Partition(t.id); p != nil {
			sum += p.LeaderEpoch
		}
	}
	return sum
}

// end tells the asker what came of it, when it still lives.
func (c *call) end(res any, err error) {
	if c.done {
		return
	}
	c.done = true
	l := c.w.lanes[c.key]
	l.open = slices.DeleteFunc(l.open, func(o *call) bool { return o == c })
	if c.key.from < 0 {
		c.then(res, err)
		return
	}
	n := c.w.node(c.key.from)
	if !n.up || n.run != c.run {
		return
	}
	c.then(res, err)
	c.w.touch(n)
}

// cut ends a connection: all its open requests go without an answer.
func (w *World) cut(key laneKey, err error) {
	l := w.lanes[key]
	if l == nil {
		return
	}
	open := l.open
	l.open = nil
	for _, c := range open {
		if !c.done {
			c.end(nil, err)
		}
	}
}

// disconnect ends the connections to and from a process that has ended.
func (w *World) disconnect(id int32) {
	var keys []laneKey
	for k := range w.lanes {
		if k.to == id || k.from == id {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, compareLanes)
	for _, k := range keys {
		if k.to == id {
			w.after(w.between(0, w.set.DelayMs), func() { w.cut(k, errCut) })
			continue
		}
		for _, c := range w.lanes[k].open {
			c.done = true
		}
		w.lanes[k].open = nil
	}
}

func compareLanes(a, b laneKey) int {
	return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to), cmp.Compare(a.kind, b.kind))
}
