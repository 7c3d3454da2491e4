package statemachine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/clock"
)

// fakeLog holds records; the test decides what is committed.
type fakeLog struct {
	recs     []string
	epoch    int32 // that may append, -1 none
	err      error
	resigned []int32
}

func (l *fakeLog) Append(epoch int32, recs []string, _ bool) (int64, error) {
	if l.err != nil {
		return 0, l.err
	}
	if epoch != l.epoch {
		return 0, errors.New("not the leader")
	}
	l.recs = append(l.recs, recs...)
	return int64(len(l.recs)) - 1, nil
}
func (l *fakeLog) LogEnd() int64      { return int64(len(l.recs)) }
func (l *fakeLog) Resign(epoch int32) { l.resigned = append(l.resigned, epoch) }

// fixture: the state is the list of records so far, joined by commas.
type fixture struct {
	t     *testing.T
	log   *fakeLog
	clock *clock.Manual
	m     *Machine[string, string]
	lost  int
	done  int // offset committed below
	text  bytes.Buffer
}

func newFixture(t *testing.T, with func(o *Options[string, string])) *fixture {
	f := &fixture{t: t, log: &fakeLog{epoch: -1}, clock: clock.NewManual(time.UnixMilli(1000))}
	o := Options[string, string]{Name: "test", Log: f.log, Clock: f.clock, Logger: slog.New(slog.NewTextHandler(&f.text, nil)), Lost: func() { f.lost++ },
		Apply: func(s string, b Batch[string]) (string, error) {
			for i, r := range b.Records {
				if r == "bad" {
					return s, fmt.Errorf("bad record at %d", b.Base+int64(i))
				}
				s += r + ","
			}
			return s, nil
		}}
	if with != nil {
		with(&o)
	}
	f.m = New(o)
	return f
}

func (f *fixture) poll() {
	f.t.Helper()
	if _, err := f.m.Poll(); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) lead(epoch int32) { f.log.epoch = epoch; f.m.Lead(epoch); f.poll() }

// commit tells the machine of the records up to offset, n in a batch.
func (f *fixture) commit(upTo, n int) {
	for f.done < upTo {
		end := min(f.done+n, upTo)
		f.m.Commit(Batch[string]{Base: int64(f.done), Last: int64(end) - 1, Epoch: 1, Records: slices.Clone(f.log.recs[f.done:end])})
		f.done = end
	}
	f.poll()
}

// answer is where a write's answer goes.
type answer struct {
	response any
	err      error
	given    bool
}

func (f *fixture) write(recs ...string) *answer {
	a := new(answer)
	f.m.Submit("write", func(v View[string]) (Result[string], error) {
		return Result[string]{Records: recs, Response: v.State}, nil
	}, a.set)
	f.poll()
	return a
}

func (a *answer) set(r any, err error) {
	if a.given {
		panic("answered twice")
	}
	*a = answer{response: r, err: err, given: true}
}

func (f *fixture) committed(want string) {
	f.t.Helper()
	if got := f.m.Committed().State; got != want {
		f.t.Errorf("committed %q, want %q", got, want)
	}
}

func TestAnsweredOnCommit(t *testing.T) {
	f := newFixture(t, nil)
	if a := f.write("x"); !errors.Is(a.err, ErrNotLeader) {
		t.Fatalf("before leading: %+v", a)
	}
	f.lead(1)
	a, b := f.write("a"), f.write("b", "c")
	read := f.write()
	if a.given || b.given || read.given {
		t.Fatal("answered before the commit")
	}
	if f.committed(""); len(f.log.recs) != 3 {
		t.Fatalf("log %v", f.log.recs)
	}
	f.commit(1, 1)
	f.committed("a,")
	if !a.given || a.err != nil || a.response != "" || b.given {
		t.Fatalf("after the first commit: %+v %+v", a, b)
	}
	f.commit(2, 1) // half of b
	f.committed("a,")
	if b.given {
		t.Fatal("answered when half committed")
	}
	f.commit(3, 1)
	f.committed("a,b,c,")
	if !b.given || b.response != "a," || !read.given || read.response != "a,b,c," {
		t.Fatalf("%+v %+v", b, read)
	}
	if r := f.write(); !r.given || r.response != "a,b,c," {
		t.Fatalf("nothing pending: %+v", r)
	}
}

func TestLostLeadership(t *testing.T) {
	f := newFixture(t, nil)
	f.lead(1)
	a, b := f.write("a"), f.write("b", "c")
	f.commit(2, 1) // a, and half of b
	f.m.Follow()
	f.poll()
	if a.err != nil || !errors.Is(b.err, ErrNotLeader) || f.lost != 1 {
		t.Fatalf("a %+v b %+v lost %d", a, b, f.lost)
	}
	f.committed("a,b,")
	f.log.recs = append(f.log.recs[:2], "z") // another leader
	f.commit(3, 1)
	f.lead(3)
	if r := f.write("d"); r.given {
		t.Fatal("answered at once")
	}
	f.commit(4, 1)
	f.committed("a,b,z,d,")
}

func TestFailedAppend(t *testing.T) {
	f := newFixture(t, nil)
	f.lead(1)
	a := f.write("a")
	f.log.err = fmt.Errorf("too large: %w", ErrRefused)
	b := f.write("b")
	if b.given {
		t.Fatal("a refusal rests on uncommitted state and must wait")
	}
	f.log.err = nil
	c := f.write("c")
	f.log.err = errors.New("disk")
	d := f.write("d")
	if !errors.Is(d.err, ErrNotLeader) || !errors.Is(c.err, ErrNotLeader) || !errors.Is(a.err, ErrNotLeader) || len(f.log.resigned) != 1 {
		t.Fatalf("a %+v c %+v d %+v", a, c, d)
	}
	if !errors.Is(b.err, ErrNotLeader) {
		t.Fatalf("b %+v", b)
	}
	f.log.err = nil
	f.commit(2, 1) // both come back as committed
	f.committed("a,c,")
}

func TestSnapshotReplacesState(t *testing.T) {
	f := newFixture(t, nil)
	f.lead(1)
	a := f.write("a")
	f.m.Load("snap,", 9, 4)
	f.poll()
	if f.committed("snap,"); !errors.Is(a.err, ErrNotLeader) || f.m.Epoch() != -1 {
		t.Fatalf("%+v", a)
	}
	f.m.Commit(Batch[string]{Base: 8, Last: 9, Records: []string{"old", "old"}})
	f.m.Commit(Batch[string]{Base: 10, Last: 10, Records: []string{"new"}})
	f.poll()
	f.committed("snap,new,")
	if c := f.m.Committed(); c.Offset != 10 {
		t.Fatalf("offset %d", c.Offset)
	}
}

func TestActivate(t *testing.T) {
	var err error
	f := newFixture(t, func(o *Options[string, string]) {
		o.Activate = func(v View[string]) (Result[string], error) {
			return Result[string]{Records: []string{fmt.Sprint("boot", v.Epoch, "@", v.NextOffset)}, Atomic: true}, err
		}
	})
	f.lead(7)
	w := f.write("a")
	f.commit(2, 1)
	if f.committed("boot7@0,a,"); w.response != "boot7@0," {
		t.Fatalf("%+v", w)
	}
	err = errors.New("no")
	f.lead(8)
	if !slices.Equal(f.log.resigned, []int32{8}) || !strings.Contains(f.text.String(), "cannot take over") {
		t.Fatalf("resigned %v, log %s", f.log.resigned, f.text.String())
	}
}

func TestTimers(t *testing.T) {
	f := newFixture(t, nil)
	tick := func(name string) Write[string, string] {
		return func(View[string]) (Result[string], error) { return Result[string]{Records: []string{name}}, nil }
	}
	f.m.After("early", time.Second, tick("never")) // not leading
	f.lead(1)
	f.m.After("b", 2*time.Second, tick("b"))
	f.m.After("a", time.Second, tick("a"))
	f.m.After("gone", time.Second, tick("gone"))
	f.m.Cancel("gone")
	f.m.After("b", 3*time.Second, tick("b2"))
	next, err := f.m.Poll()
	if err != nil || !next.Equal(f.clock.Now().Add(time.Second)) {
		t.Fatal(next, err)
	}
	f.clock.Advance(2500 * time.Millisecond)
	f.poll()
	if !slices.Equal(f.log.recs, []string{"a"}) {
		t.Fatal(f.log.recs)
	}
	f.clock.Advance(time.Second)
	f.poll()
	if !slices.Equal(f.log.recs, []string{"a", "b2"}) {
		t.Fatal(f.log.recs)
	}
	f.m.After("c", time.Second, tick("c"))
	f.poll()
	f.m.Follow()
	f.lead(2)
	f.clock.Advance(time.Hour)
	if f.poll(); len(f.log.recs) != 2 {
		t.Fatal("a timer outlived its epoch")
	}
}

func TestVisible(t *testing.T) {
	f := newFixture(t, func(o *Options[string, string]) {
		o.Visible = func(s string) string {
			if i := strings.LastIndex(s, "begin,"); i >= 0 && !strings.Contains(s[i:], "end,") {
				return s[:i]
			}
			return s
		}
	})
	f.lead(1)
	w := f.write("a", "begin", "b")
	f.commit(3, 3)
	if f.committed("a,"); !w.given {
		t.Fatal("not answered")
	}
	if r := f.write(); r.response != "a,begin,b," {
		t.Fatalf("writes see all: %+v", r)
	}
	f.write("end")
	f.commit(4, 1)
	f.committed("a,begin,b,end,")
}

func TestBadRecordStops(t *testing.T) {
	f := newFixture(t, nil)
	f.m.Commit(Batch[string]{Base: 0, Last: 0, Records: []string{"bad"}})
	a := new(answer)
	f.m.Submit("later", func(View[string]) (Result[string], error) { return Result[string]{}, nil }, a.set)
	err := f.m.Run(context.Background())
	if err == nil || !strings.Contains(err.Error(), "bad record at 0") || !errors.Is(a.err, ErrStopped) {
		t.Fatal(err, a)
	}
	f.m.Submit("too late", func(View[string]) (Result[string], error) { return Result[string]{}, nil }, func(_ any, err error) {
		if !errors.Is(err, ErrStopped) {
			t.Error(err)
		}
	})
}

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &fakeLog{epoch: 1}
		m := New(Options[string, string]{Name: "run", Log: log, Clock: clock.System{}, Logger: slog.New(slog.DiscardHandler),
			Apply: func(s string, b Batch[string]) (string, error) { return s + strings.Join(b.Records, ""), nil }})
		ctx, cancel := context.WithCancel(t.Context())
		stopped := make(chan error)
		go func() { stopped <- m.Run(ctx) }()
		m.Lead(1)
		one := func(r string) Write[string, string] {
			return func(View[string]) (Result[string], error) {
				return Result[string]{Records: []string{r}, Response: r}, nil
			}
		}
		m.After("timer", time.Minute, one("t"))
		time.AfterFunc(2*time.Minute, func() {
			m.Commit(Batch[string]{Base: 0, Last: 0, Records: []string{"w"}})
			m.Commit(Batch[string]{Base: 1, Last: 1, Records: []string{"t"}})
		})
		start := time.Now()
		if got, err := m.Do(ctx, "write", one("w")); err != nil || got != "w" || time.Since(start) != 2*time.Minute {
			t.Error(got, err, time.Since(start))
		}
		synctest.Wait()
		if c := m.Committed(); c.State != "wt" || c.Offset != 1 {
			t.Errorf("%+v", c)
		}
		short, stop := context.WithTimeout(ctx, time.Second)
		defer stop()
		if _, err := m.Do(short, "unanswered", one("u")); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		waiting := make(chan error, 1)
		m.Submit("cut off", one("v"), func(_ any, err error) { waiting <- err })
		synctest.Wait()
		cancel()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		if err := <-waiting; !errors.Is(err, ErrStopped) {
			t.Error(err)
		}
	})
}

func BenchmarkWrite(b *testing.B) {
	log := &fakeLog{epoch: 1}
	m := New(Options[int, string]{Name: "bench", Log: log, Clock: clock.System{}, Logger: slog.New(slog.DiscardHandler),
		Apply: func(s int, b Batch[string]) (int, error) { return s + len(b.Records), nil }})
	m.Lead(1)
	recs := []string{"r"}
	w := func(View[int]) (Result[string], error) { return Result[string]{Records: recs}, nil }
	b.ReportAllocs()
	for i := range b.N {
		m.Submit("w", w, func(any, error) {})
		m.Commit(Batch[string]{Base: int64(i), Last: int64(i), Records: recs})
		if _, err := m.Poll(); err != nil {
			b.Fatal(err)
		}
	}
}
