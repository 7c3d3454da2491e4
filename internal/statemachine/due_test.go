package statemachine

import (
	"errors"
	"slices"
	"testing"
	"time"
)

// TestDue has the core's own deadlines met while this node leads, in order with
// the machine's timers.
func TestDue(t *testing.T) {
	var deadlines []time.Time
	var f *fixture
	f = newFixture(t, func(o *Options[string, string]) {
		o.Due = func() (time.Time, string, Write[string, string]) {
			if len(deadlines) == 0 {
				return time.Time{}, "", nil
			}
			return deadlines[0], "deadline", func(v View[string]) (Result[string], error) {
				if v.Now.Before(deadlines[0]) {
					t.Errorf("met at %v, due at %v", v.Now, deadlines[0])
				}
				deadlines = deadlines[1:]
				return Result[string]{Records: []string{"due"}}, nil
			}
		}
	})
	start := f.clock.Now()
	deadlines = []time.Time{start.Add(time.Second), start.Add(3 * time.Second)}
	f.clock.Advance(time.Second)
	f.poll()
	if len(f.log.recs) != 0 {
		t.Fatalf("a follower wrote %v", f.log.recs)
	}
	f.lead(1)
	f.m.After("timer", time.Second, func(View[string]) (Result[string], error) {
		return Result[string]{Records: []string{"timer"}}, nil
	})
	f.poll()
	next, err := f.m.Poll()
	if err != nil || !next.Equal(start.Add(2*time.Second)) {
		t.Fatalf("next at %v, %v", next.Sub(start), err)
	}
	f.clock.Advance(time.Second)
	f.poll()
	f.clock.Advance(time.Second)
	f.poll()
	if want := []string{"due", "timer", "due"}; !slices.Equal(f.log.recs, want) {
		t.Errorf("written %v, want %v", f.log.recs, want)
	}
}

// TestDone is told what became of a write before the answer is given.
func TestDone(t *testing.T) {
	f := newFixture(t, nil)
	f.lead(1)
	var events []string
	submit := func() {
		f.m.Submit("write", func(View[string]) (Result[string], error) {
			return Result[string]{Records: []string{"x"}, Done: func(err error) { events = append(events, "done "+text(err)) }}, nil
		}, func(_ any, err error) { events = append(events, "answer "+text(err)) })
		f.poll()
	}
	submit()
	if len(events) != 0 {
		t.Fatalf("told before the commit: %v", events)
	}
	f.commit(1, 1)
	f.log.err = errors.Join(ErrRefused, errors.New("full"))
	submit()
	f.log.err = nil
	submit()
	f.m.Follow()
	f.poll()
	submit() // not run at all
	want := []string{"done ok", "answer ok", "done refused", "answer refused", "done not the leader", "answer not the leader", "answer not the leader"}
	if !slices.Equal(events, want) {
		t.Errorf("%q, want %q", events, want)
	}
}

func text(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, ErrRefused):
		return "refused"
	case errors.Is(err, ErrNotLeader):
		return "not the leader"
	}
	return err.Error()
}

// TestStop answers what waits and what comes.
func TestStop(t *testing.T) {
	f := newFixture(t, nil)
	f.lead(1)
	a := f.write("x")
	f.m.Stop()
	if !a.given || !errors.Is(a.err, ErrStopped) {
		t.Errorf("waiting write: %+v", a)
	}
	if b := f.write("y"); !errors.Is(b.err, ErrStopped) {
		t.Errorf("later write: %+v", b)
	}
}
