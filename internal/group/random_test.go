package group

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"weir/internal/group/classic"
	"weir/internal/rng"
)

var seed = flag.Uint64("seed", 0, "run only this seed of the random sequences, and print it")

// TestRandomSequences sends random requests and checks after each that the state
// made again from the records' bytes is the live one, that no deadline of a
// member or group that is gone is left, and that the groups hold together.
func TestRandomSequences(t *testing.T) {
	seeds := []uint64{*seed}
	if *seed == 0 {
		seeds = seeds[:0]
		for i := range uint64(60) {
			seeds = append(seeds, i+1)
		}
	}
	for _, n := range seeds {
		t.Run(fmt.Sprint(n), func(t *testing.T) { randomSequence(t, n) })
	}
}

func randomSequence(t *testing.T, n uint64) {
	dice := rng.New(n)
	s := newSim()
	s.config.Classic.InitialDelay = time.Duration(dice.IntN(4)) * time.Second
	s.core = New(&s.config, dice.Split())
	for i := range 300 {
		s.out.Reset()
		what := s.random(t, dice)
		if *seed != 0 {
			t.Logf("%d: %s\n%s", i, what, s.out.String())
		}
		if err := s.check(); err != nil {
			t.Fatalf("seed %d, step %d, %s: %v", n, i, what, err)
		}
	}
}

// random does one thing.
func (s *sim) random(t *testing.T, dice *rng.Source) string {
	label := string(rune('a' + dice.IntN(5)))
	a := args{T: t, words: []string{label}, kv: map[string]string{"group": string(rune('g' + dice.IntN(2)))}}
	static := dice.IntN(5) == 0
	if static {
		a.kv["instance"] = "i" + label
	}
	switch k := dice.IntN(26); {
	case k >= 20:
		return s.randomConsumer(a, label, dice)
	case k < 7:
		a.kv["v"] = fmt.Sprint(dice.IntN(10))
		if dice.IntN(4) == 0 {
			delete(s.ids, label)
		}
		if dice.IntN(3) == 0 {
			a.kv["protocols"] = "sticky,range"
		}
		a.kv["session"], a.kv["rebalance"] = fmt.Sprint(6000+dice.IntN(20000)), fmt.Sprint(1000+dice.IntN(20000))
		s.join(a, label)
		return fmt.Sprint("join ", a.kv, label)
	case k < 11:
		a.kv["assign"] = "a:1,b:2,c:3,d:4,e:5"
		s.sync(a, label)
		return fmt.Sprint("sync ", a.kv, label)
	case k < 12:
		s.leave(a)
		return fmt.Sprint("leave ", a.kv, label)
	case k < 14:
		a.words = append(a.words, fmt.Sprintf("t%d:%d", dice.IntN(3), dice.IntN(100)))
		if dice.IntN(3) == 0 {
			a.kv["id"] = ""
		}
		s.commit(a)
		return fmt.Sprint("commit ", a)
	case k < 15:
		a.words = []string{fmt.Sprint(dice.IntN(3)), fmt.Sprintf("t%d:%d", dice.IntN(3), dice.IntN(100))}
		if dice.IntN(2) == 0 {
			a.kv["end"], a.words = [...]string{"commit", "abort"}[dice.IntN(2)], a.words[:1]
		}
		s.transaction(a)
		return fmt.Sprint("transaction ", a.words, a.kv)
	case k < 16:
		s.step(func(st Step) Result { r, _ := s.core.DeleteGroup(st, a.kv["group"]); return r })
		return "delete " + a.kv["group"]
	case k < 17:
		s.refuse = kerr.NotCoordinator
		return "refuse"
	case k < 18 && dice.IntN(3) == 0:
		s.restart()
		return "restart"
	case k < 18 && dice.IntN(8) == 0:
		s.step(func(st Step) Result { return s.core.TopicsDeleted(st, []DeletedTopic{{Name: "t1"}}) })
		return "topic t1 deleted"
	}
	d := time.Duration(dice.IntN(8000)) * time.Millisecond
	if dice.IntN(20) == 0 {
		d = 70 * time.Minute
	}
	s.after(d)
	return fmt.Sprint("after ", d)
}

func (s *sim) check() error {
	if got, want := stripPointers(replay(s.log).dump()), stripPointers(s.state.dump()); got != want {
		return fmt.Errorf("from the records:\n%s\nlive:\n%s", got, want)
	}
	for id, g := range s.core.soft.groups {
		if err := g.Valid(); err != nil {
			return fmt.Errorf("group %s: %w", id, err)
		}
		v := s.state.Group(id)
		if v == nil {
			return fmt.Errorf("group %s has soft state and is not stored", id)
		}
		if g.State() == classic.Stable && g.Size() != len(v.Members) {
			return fmt.Errorf("group %s is stable with %d members, %d are stored", id, g.Size(), len(v.Members))
		}
		if g.State() != classic.Empty && !s.core.watched(id) {
			return fmt.Errorf("group %s is %v and has no deadline at all", id, g.State())
		}
	}
	return s.checkConsumers()
}

// randomConsumer does one thing with a consumer group.
func (s *sim) randomConsumer(a args, label string, dice *rng.Source) string {
	switch k := dice.IntN(20); {
	case k == 0:
		name, n := fmt.Sprintf("t%d", dice.IntN(4)), dice.IntN(7)
		if t, ok := s.image.Topic(name); ok && n > 0 {
			n = max(n, t.NumPartitions())
		}
		s.topic(name, n)
		return fmt.Sprint("topic ", name, n)
	case k == 1:
		s.own.AssignmentInterval = time.Duration(dice.IntN(2)) * 3 * time.Second
		return fmt.Sprint("interval ", s.own.AssignmentInterval)
	case k < 9:
		a.kv["topics"] = [...]string{"t0", "t0,t1", "t0,t1,t2", ""}[dice.IntN(4)]
		if dice.IntN(3) == 0 {
			a.kv["regex"] = [...]string{"t.*", "t[01]", ""}[dice.IntN(3)]
		}
		a.kv["epoch"], a.kv["rebalance"] = "0", fmt.Sprint(1000+dice.IntN(20000))
		if dice.IntN(3) == 0 {
			a.kv["assignor"] = [...]string{"range", "uniform"}[dice.IntN(2)]
		}
	case k < 11:
		a.kv["epoch"] = fmt.Sprint(-1 - dice.IntN(2))
	default:
		a.kv["own"] = [...]string{"all", "all", "none"}[dice.IntN(3)]
	}
	s.beat(a, label)
	return fmt.Sprint("beat ", a.kv, label)
}

// watched tells whether something will happen to a group without any request.
func (c *Core) watched(id string) bool {
	copied := c.soft.timers.Keys()
	for _, k := range copied {
		if k.Group == id {
			return true
		}
	}
	return false
}
