package sim

import (
	"container/heap"
	"fmt"
	"log/slog"
	"time"

	"weir/internal/clock"
	"weir/internal/config"
	"weir/internal/rng"
	"weir/internal/storage/segment"
)

// World is one cluster, its network, its clients and its time.
type World struct {
	seed    uint64
	set     Settings
	dice    *rng.Source
	clock   *clock.Manual
	static  *config.Static
	topic   *config.Topic
	logger  *slog.Logger
	buffers *segment.Buffers

	queue  events
	seq    uint64
	nodes  []*node // node i has id i+1
	dirty  []bool  // by index of node
	lanes  map[laneKey]*lane
	parted map[[2]int32]bool

	producers []*producer
	consumers []*consumer
	admin     *admin
	healed    bool // no more faults
	check     *checker
	count     Counters
	err       error // the first thing that must not happen
}

// event is something that happens at a time; events of one time in the order in which
// they were planned.
type event struct {
	at  time.Time
	seq uint64
	run func()
}

type events []event

func (q events) Len() int { return len(q) }
func (q events) Less(i, j int) bool {
	return q[i].at.Before(q[j].at) || q[i].at.Equal(q[j].at) && q[i].seq < q[j].seq
}
func (q events) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *events) Push(x any)   { *q = append(*q, x.(event)) }
func (q *events) Pop() any {
	old := *q
	e := old[len(old)-1]
	old[len(old)-1] = event{}
	*q = old[:len(old)-1]
	return e
}

// begin is when every run begins.
var begin = time.UnixMilli(1_800_000_000_000)

// after plans f.
func (w *World) after(d time.Duration, f func()) { w.at(w.clock.Now().Add(max(d, 0)), f) }

func (w *World) at(t time.Time, f func()) {
	w.seq++
	heap.Push(&w.queue, event{at: t, seq: w.seq, run: f})
}

// between is a random duration of low to high milliseconds.
func (w *World) between(low, high int) time.Duration {
	return time.Duration(low)*time.Millisecond + time.Duration(w.dice.IntN((high-low)*1000+1))*time.Microsecond
}

// fail notes the first violation.
func (w *World) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf("at %s: %s", w.clock.Now().Sub(begin), fmt.Sprintf(format, args...))
	}
}

// run lets time pass until end, or until something is wrong.
func (w *World) run(end time.Time, done func() bool) {
	for len(w.queue) > 0 && w.err == nil {
		if w.queue[0].at.After(end) || done != nil && done() {
			break
		}
		e := heap.Pop(&w.queue).(event)
		if d := e.at.Sub(w.clock.Now()); d > 0 {
			w.clock.Advance(d)
		}
		e.run()
		w.settle()
	}
	if d := end.Sub(w.clock.Now()); d > 0 && w.err == nil && done == nil {
		w.clock.Advance(d)
	}
}

// settle polls every node that something happened to.
func (w *World) settle() {
	for again := true; again && w.err == nil; {
		again = false
		for i, n := range w.nodes {
			if w.dirty[i] {
				w.dirty[i] = false
				again = true
				n.poll()
			}
		}
	}
}

// Run makes a world out of seed and lets it live. The error says what was wrong.
func Run(seed uint64, logger *slog.Logger) (c Counters, err error) {
	w, err := newWorld(seed, logger)
	if err != nil {
		return c, err
	}
	defer func() {
		if p := recover(); p != nil {
			if s, ok := p.(string); !ok || len(s) < 4 || s[:4] != "BUG:" {
				panic(p)
			}
			c, err = w.count, fmt.Errorf("seed %d (%s): at %s: %v", seed, w.set, w.clock.Now().Sub(begin), p)
		}
	}()
	w.live()
	if w.err != nil {
		return w.count, fmt.Errorf("seed %d (%s): %w", seed, w.set, w.err)
	}
	return w.count, nil
}

func newWorld(seed uint64, logger *slog.Logger) (*World, error) {
	dice := rng.New(seed)
	w := &World{
		seed: seed, set: draw(dice), dice: dice, clock: clock.NewManual(begin), buffers: segment.NewBuffers(),
		lanes: map[laneKey]*lane{}, parted: map[[2]int32]bool{},
	}
	w.logger = slog.New(timed{logger.Handler(), w.clock})
	w.check = newChecker(w)
	if err := w.configure(); err != nil {
		return nil, err
	}
	for id := int32(1); id <= int32(w.set.Nodes); id++ {
		n, err := newNode(w, id)
		if err != nil {
			return nil, err
		}
		w.nodes = append(w.nodes, n)
		w.dirty = append(w.dirty, false)
	}
	return w, nil
}

// live is the story: nodes start, topics are made, clients and faults come, faults end,
// and all must be well.
func (w *World) live() {
	for _, n := range w.nodes {
		w.after(w.between(0, 30), n.start)
	}
	w.admin = &admin{w: w}
	w.after(20*time.Millisecond, w.admin.step)
	w.startClients()
	w.run(begin.Add(5*time.Second), func() bool { return w.admin.ready })
	if w.err == nil && !w.admin.ready {
		w.fail("no topics after 5 s")
		return
	}
	w.startFaults()
	w.run(w.clock.Now().Add(w.set.Length), nil)
	w.heal()
	w.run(w.clock.Now().Add(20*time.Second), w.well)
	if w.err == nil {
		w.finish()
	}
}

// heal ends all faults.
func (w *World) heal() {
	w.healed = true
	clear(w.parted)
	for _, n := range w.nodes {
		n.errfs.Set()
		n.pausedUntil = time.Time{}
		if !n.up && !n.starting {
			n.start()
		}
		w.touch(n)
	}
	w.settle()
}

func (w *World) touch(n *node) { w.dirty[n.id-1] = true }

// node returns the node with an id.
func (w *World) node(id int32) *node { return w.nodes[id-1] }

// newest is the image that reaches furthest of those of running nodes; nil: none runs.
func (w *World) newest() *node {
	var best *node
	for _, n := range w.nodes {
		if n.up && (best == nil || n.q.Images().Image().Provenance.Offset > best.q.Images().Image().Provenance.Offset) {
			best = n
		}
	}
	return best
}

func (w *World) configure() (err error) {
	text := "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=C\nreplication.quota.window.num=2\n"
	if w.static, _, err = config.Load("sim", []byte(text), nil); err != nil {
		return err
	}
	w.topic, err = config.NewEffective(w.static, nil, nil).Topic(nil)
	return err
}
