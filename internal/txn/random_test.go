package txn

import (
	"flag"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"weir/internal/rng"
)

var seed = flag.Uint64("seed", 0, "run only this seed of the random sequences, and print it")

// TestRandomSequences lets producers, some of them zombies, begin, add and end in
// any order, with takeovers, lost appends, time that passes, and markers that
// arrive late, twice or never. After each step it checks that
//
//   - the state made again from the log's bytes is the live one;
//   - an outcome, once stored, stands: no marker of a transaction ever says the
//     opposite, and none goes to a partition that was not added;
//   - a producer that was told success of its end got that outcome, and one that
//     was fenced never ends or adds anything again;
//   - once all markers are written, the transaction comes to its end.
func TestRandomSequences(t *testing.T) {
	seeds := []uint64{*seed}
	if *seed == 0 {
		seeds = seeds[:0]
		for i := range uint64(40) {
			seeds = append(seeds, i+1)
		}
	}
	for _, n := range seeds {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			w := &world{sim: newSim(), dice: rng.New(n), outcomes: map[Identity]bool{}, added: map[Identity]map[TopicPartition]bool{}, fenced: map[Identity]bool{}}
			w.level = int16(w.dice.IntN(3))
			for i := range 400 {
				w.out.Reset()
				what := w.random()
				if *seed != 0 {
					t.Logf("%d: %s\n%s", i, what, w.out.String())
				}
				if err := w.check(); err != nil {
					t.Fatalf("seed %d, step %d, %s: %v\n%s", n, i, what, err, w.out.String())
				}
			}
			if err := w.settle(); err != nil {
				t.Fatalf("seed %d: %v", n, err)
			}
		})
	}
}

// world is a partition with its producers.
type world struct {
	*sim
	dice    *rng.Source
	clients []client
	// By identity that a producer wrote with.
	outcomes map[Identity]bool // what its markers said, of version 2
	added    map[Identity]map[TopicPartition]bool
	fenced   map[Identity]bool
	failed   error
}

// client is a producer that believes in an identity.
type client struct {
	id      string
	is      Identity
	version int16
}

func (w *world) random() string {
	if k := w.dice.IntN(20); k < 4 || len(w.clients) == 0 {
		return w.begin()
	}
	c := &w.clients[w.dice.IntN(len(w.clients))]
	switch k := w.dice.IntN(20); {
	case k < 7:
		return w.addSome(c)
	case k < 12:
		return w.endIt(c)
	case k < 16:
		return w.mark()
	case k < 17:
		d := time.Duration(w.dice.IntN(40)) * time.Second
		w.advance(d)
		w.observe()
		return fmt.Sprint("advance ", d)
	case k < 18:
		if err := w.restart(); err != nil {
			w.failed = err
		}
		w.observe()
		return "restart"
	case k < 19:
		w.refuse = kerr.NotEnoughReplicas
		return "refuse"
	}
	was := c.is
	is, err := w.init(c.id, 20_000, was)
	w.observe()
	if err == nil {
		w.took(c.id, is)
		c.is = is
	}
	return fmt.Sprintf("init %s %v: %s", c.id, was, name(err))
}

// begin is a new producer with an id that another one may use.
func (w *world) begin() string {
	id := fmt.Sprintf("p%d", w.dice.IntN(3))
	is, err := w.init(id, 20_000, NoIdentity())
	w.observe()
	if err == nil {
		w.took(id, is)
		version := int16(0)
		if w.level == 2 && w.dice.IntN(3) > 0 {
			version = 2
		}
		w.clients = append(w.clients, client{id, is, version})
	}
	return fmt.Sprintf("begin %s: %s %v", id, name(err), is)
}

// took fences all others of a transactional id.
func (w *world) took(id string, is Identity) {
	for i := range w.clients {
		if c := &w.clients[i]; c.id == id && c.is != is {
			w.fenced[c.is] = true
		}
	}
}

func (w *world) addSome(c *client) string {
	p := TopicPartition{"t", int32(w.dice.IntN(4))}
	err := w.add(c.id, c.is, c.version, []TopicPartition{p})
	if err == nil {
		if w.fenced[c.is] {
			w.failed = fmt.Errorf("%s %v is fenced and has added %v", c.id, c.is, p)
		}
		if w.added[c.is] == nil {
			w.added[c.is] = map[TopicPartition]bool{}
		}
		w.added[c.is][p] = true
	}
	return fmt.Sprintf("add %s %v %v: %s", c.id, c.is, p, name(err))
}

func (w *world) endIt(c *client) string {
	commit := w.dice.IntN(2) == 0
	was, open := c.is, w.state.Txn(c.id)
	before := w.refuse
	is, err := w.end(c.id, was, commit, c.version)
	w.observe()
	if before != nil && w.refuse == nil {
		return "end, refused by the log"
	}
	if err == nil && w.fenced[was] && open != nil && open.Status == Ongoing {
		w.failed = fmt.Errorf("%s %v is fenced and has ended a transaction", c.id, was)
	}
	if got, ok := w.outcomes[was]; err == nil && c.version >= 2 && ok && got != commit {
		w.failed = fmt.Errorf("%s %v was told commit %v, its markers say %v", c.id, was, commit, got)
	}
	if err == nil && is != NoIdentity() {
		c.is = is
	}
	return fmt.Sprintf("end %s %v commit %v: %s", c.id, was, commit, name(err))
}

// mark brings some markers to their partitions, perhaps of a transaction that is over.
func (w *world) mark() string {
	if len(w.ended) == 0 {
		return "nothing to mark"
	}
	e := w.ended[w.dice.IntN(len(w.ended))]
	if len(e.Partitions) > 1 && w.dice.IntN(2) == 0 {
		e.Partitions = e.Partitions[:1]
	}
	w.do(func(st Step) Result { return w.core.Marked(st, e) })
	return fmt.Sprintf("marked %s %d/%d %v", e.ID, e.ProducerID, e.Epoch, e.Partitions)
}

// observe looks at the markers that were sent since.
func (w *world) observe() {
	for _, e := range w.ended {
		key := Identity{e.ProducerID, e.Epoch}
		if e.Version >= 2 { // before, one epoch may see several transactions
			writer := Identity{e.ProducerID, e.Epoch - 1}
			if got, ok := w.outcomes[writer]; ok && got != e.Commit {
				w.failed = fmt.Errorf("markers of %v said commit %v, now %v", key, got, e.Commit)
			}
			w.outcomes[writer] = e.Commit
		}
		for _, p := range e.Partitions {
			if !w.wasAdded(e.ProducerID, p) {
				w.failed = fmt.Errorf("a marker of %v goes to %v, which was not added", key, p)
			}
		}
	}
}

func (w *world) wasAdded(producerID int64, p TopicPartition) bool {
	for is, ps := range w.added {
		if is.ProducerID == producerID && ps[p] {
			return true
		}
	}
	return false
}

func (w *world) check() error {
	if w.failed != nil {
		return w.failed
	}
	again, err := replay(w.bytes)
	if err != nil {
		return err
	}
	if again.Len() != w.state.Len() || again.NumOpen() != w.state.NumOpen() {
		return fmt.Errorf("%d ids, %d of them open; from the log %d and %d", w.state.Len(), w.state.NumOpen(), again.Len(), again.NumOpen())
	}
	for t := range w.state.All() {
		live := *t
		live.LastEpoch = NoEpoch // the log does not have it
		from := again.Txn(t.ID)
		if from == nil {
			return fmt.Errorf("%s is not in the log", t.ID)
		}
		stored := *from
		if w.level == 0 || stored.Version != live.Version {
			// Records v0 lack these.
			stored.Previous, stored.Next, stored.Version = live.Previous, live.Next, live.Version
		}
		if !reflect.DeepEqual(live, stored) {
			return fmt.Errorf("live %+v, from the log %+v", live, stored)
		}
		if t.Status.ending() && len(w.core.Unmarked(t)) > len(t.Partitions) {
			return fmt.Errorf("%s waits for more markers than it has partitions", t.ID)
		}
	}
	return nil
}

// settle lets every marker arrive: nothing is then open but what is going on.
func (w *world) settle() error {
	w.refuse = nil
	if err := w.restart(); err != nil {
		return err
	}
	w.advance(time.Minute)
	for _, e := range w.ended {
		w.do(func(st Step) Result { return w.core.Marked(st, e) })
	}
	w.advance(time.Minute)
	if n := w.state.NumOpen(); n > 0 || w.core.Marking() > 0 {
		return fmt.Errorf("%d transactions have no end, %d wait for markers", n, w.core.Marking())
	}
	return w.check()
}
