package statemachine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/clock"
	"weir/internal/invariant"
)

var (
	// ErrNotLeader answers writes while this node does not lead, and those whose
	// epoch ended before they were committed: whether they took effect is then
	// not known. Another node leads: ask it.
	ErrNotLeader = errors.New("not the leader")
	// ErrStopped answers writes that the machine did not finish before it stopped.
	ErrStopped = errors.New("stopped")
	// ErrRefused is wrapped by a Log.Append error after which nothing was written
	// and the epoch goes on, as for a write that is too large.
	ErrRefused = errors.New("refused by the log")
)

// Log is what a machine writes to. Its calls do not wait for the disk.
type Log[R any] interface {
	// Append adds records at the end and returns the offset of the last. With
	// atomic, all are committed or none. An error that wraps ErrRefused concerns
	// this append alone; after any other the machine gives up its epoch.
	Append(epoch int32, recs []R, atomic bool) (last int64, err error)
	// LogEnd is the offset that the next record gets.
	LogEnd() int64
	// Resign gives up the leadership of epoch.
	Resign(epoch int32)
}

// Batch is a span of committed records; record i has offset Base+i. A batch
// without Records only moves the position to Last.
type Batch[R any] struct {
	Base, Last  int64
	Epoch       int32
	TimestampMs int64
	Records     []R
}

// View is what a write sees.
type View[S any] struct {
	Now   time.Time
	State S // appended, perhaps not committed
	Epoch int32
	// NextOffset is the offset of the first record that this write adds.
	NextOffset int64
}

// Result is what a write wants.
type Result[R any] struct {
	Records  []R
	Response any
	Atomic   bool // all records in one batch
	// Done, when set, is told in the loop what became of the write, before its
	// answer is given: nil when it is committed. It must not block.
	Done func(err error)
}

// Write decides on a request. It runs in the loop and must not block. It
// changes no replicated state; soft state it may.
type Write[S, R any] func(v View[S]) (Result[R], error)

// Options is what a Machine is made of.
type Options[S, R any] struct {
	Name    string // for log lines
	Log     Log[R]
	Initial S
	// Apply returns the state after b. It must depend on nothing but its
	// arguments. An error is a bug or a corrupt log: it stops the machine.
	Apply func(s S, b Batch[R]) (S, error)
	// Visible, when set, maps a committed state to what readers may see.
	Visible func(s S) S
	// Activate, when set, is the first write of each epoch that this node leads.
	Activate Write[S, R]
	// Lost, when set, is called in the loop when this node stops leading: drop
	// soft state.
	Lost func()
	// Due, when set, is the core's own next deadline and the write that meets it,
	// beside the timers of After. It is called in the loop, while this node leads;
	// a zero time is none.
	Due func() (at time.Time, name string, w Write[S, R])
	// Observe, when set, is told of each write: how long it was queued and took.
	Observe func(name string, queued, took time.Duration)
	Clock   clock.Clock
	Logger  *slog.Logger
}

// Machine runs one core over one log. Its methods may be called from any
// goroutine, except Poll and Run: one goroutine, and only once.
type Machine[S, R any] struct {
	o    Options[S, R]
	wake chan struct{}

	inbox struct { // a leaf lock: nothing is taken or called under it
		sync.Mutex
		events  []event
		stopped bool
	}

	visible atomic.Pointer[Committed[S]]
	epoch   atomic.Int32 // that we lead, -1 when we do not

	// The rest belongs to the goroutine that polls.

	// invariant: committed is the state after all records up to committedAt, but
	// for those of tail; appended is committed and then pending, in order.
	committed   S
	committedAt int64
	appended    S
	pending     []entry[S]
	tail        []Batch[R] // committed parts of pending[0], which has several batches
	timers      map[string]timer[S, R]
}

// Committed is a committed state and the offset of the last record in it, -1
// before the first.
type Committed[S any] struct {
	State  S
	Offset int64
	Epoch  int32
}

type event struct {
	run func(now time.Time) error
	// stop answers an event that will not be run.
	stop func()
}

// entry is one appended write, and whoever waits for it.
type entry[S any] struct {
	last    int64
	state   S
	answers []func(error)
}

type timer[S, R any] struct {
	at    time.Time
	name  string
	write Write[S, R]
}

// New makes a machine that has seen nothing yet.
func New[S, R any](o Options[S, R]) *Machine[S, R] {
	m := &Machine[S, R]{o: o, wake: make(chan struct{}, 1), committed: o.Initial, committedAt: -1,
		appended: o.Initial, timers: map[string]timer[S, R]{}}
	m.epoch.Store(-1)
	m.publish(-1)
	return m
}

// Committed returns what readers may see.
func (m *Machine[S, R]) Committed() Committed[S] { return *m.visible.Load() }

// Epoch is the epoch that this node leads, -1 when it does not.
func (m *Machine[S, R]) Epoch() int32 { return m.epoch.Load() }

// Submit queues a write; done is called once, in the loop, and must not block.
func (m *Machine[S, R]) Submit(name string, w Write[S, R], done func(response any, err error)) {
	queued := m.o.Clock.Now()
	m.post(event{
		run:  func(now time.Time) error { return m.write(now, name, queued, w, done) },
		stop: func() { done(nil, ErrStopped) },
	})
}

// Do queues a write and waits for its answer or the end of ctx; in the latter
// case the write may still take effect.
func (m *Machine[S, R]) Do(ctx context.Context, name string, w Write[S, R]) (any, error) {
	type answer struct {
		response any
		err      error
	}
	c := make(chan answer, 1)
	m.Submit(name, w, func(response any, err error) { c <- answer{response, err} })
	select {
	case a := <-c:
		return a.response, a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// After runs a write in d, if this node then still leads the epoch it leads now.
// A later After of the same name replaces it. Errors of the write are logged.
func (m *Machine[S, R]) After(name string, d time.Duration, w Write[S, R]) {
	m.post(event{run: func(now time.Time) error {
		if m.Epoch() >= 0 {
			m.timers[name] = timer[S, R]{at: now.Add(d), name: name, write: w}
		}
		return nil
	}})
}

// Cancel forgets a timer.
func (m *Machine[S, R]) Cancel(name string) {
	m.post(event{run: func(time.Time) error { delete(m.timers, name); return nil }})
}

// Commit tells of a committed batch. Batches come in offset order without holes.
func (m *Machine[S, R]) Commit(b Batch[R]) {
	m.post(event{run: func(time.Time) error { return m.commit(b) }})
}

// Load replaces the state by one that was committed at offset last.
func (m *Machine[S, R]) Load(s S, last int64, epoch int32) {
	m.post(event{run: func(time.Time) error {
		if err := m.drop(ErrNotLeader); err != nil {
			return err
		}
		m.committed, m.appended, m.committedAt = s, s, last
		m.publish(epoch)
		return nil
	}})
}

// Lead tells that this node leads epoch, and that everything below it was
// committed and told before.
func (m *Machine[S, R]) Lead(epoch int32) {
	m.post(event{run: func(now time.Time) error {
		if err := m.drop(ErrNotLeader); err != nil {
			return err
		}
		m.epoch.Store(epoch)
		if m.o.Activate == nil {
			return nil
		}
		return m.write(now, "activate", now, m.o.Activate, func(_ any, err error) {
			if err != nil && !errors.Is(err, ErrNotLeader) && !errors.Is(err, ErrStopped) {
				m.o.Logger.Error("cannot take over", "log", m.o.Name, "epoch", epoch, "err", err)
				m.o.Log.Resign(epoch)
			}
		})
	}})
}

// Follow tells that this node does not lead, or no longer.
func (m *Machine[S, R]) Follow() {
	m.post(event{run: func(time.Time) error { return m.drop(ErrNotLeader) }})
}

// post queues an event. It never blocks: requests are bounded by who sends them.
func (m *Machine[S, R]) post(e event) {
	m.inbox.Lock()
	stopped := m.inbox.stopped
	if !stopped {
		m.inbox.events = append(m.inbox.events, e)
	}
	m.inbox.Unlock()
	if stopped {
		if e.stop != nil {
			e.stop()
		}
		return
	}
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// Run polls until ctx ends or the machine fails. Whatever still waits is then
// answered with ErrStopped.
func (m *Machine[S, R]) Run(ctx context.Context) error {
	defer m.Stop()
	alarm := clock.NewAlarm(m.o.Clock, time.Hour)
	defer alarm.Stop()
	for {
		next, err := m.Poll()
		if err != nil {
			return err
		}
		if !next.IsZero() {
			alarm.Set(next.Sub(m.o.Clock.Now()))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-m.wake:
		case <-alarm.C:
		}
	}
}

// Poll handles every queued event and due timer, and returns when the next
// timer is due, zero when there is none.
func (m *Machine[S, R]) Poll() (next time.Time, err error) {
	for {
		m.inbox.Lock()
		events := m.inbox.events
		m.inbox.events = nil
		m.inbox.Unlock()
		for i, e := range events {
			if err := e.run(m.o.Clock.Now()); err != nil {
				m.requeue(events[i+1:])
				return time.Time{}, fmt.Errorf("%s: %w", m.o.Name, err)
			}
		}
		if len(events) > 0 {
			continue
		}
		due, t := m.due()
		if due == nil {
			return t, nil
		}
		if err := m.fire(*due); err != nil {
			return time.Time{}, fmt.Errorf("%s: %w", m.o.Name, err)
		}
	}
}

// requeue puts back what a failed Poll did not reach, so that Stop answers it.
func (m *Machine[S, R]) requeue(events []event) {
	m.inbox.Lock()
	m.inbox.events = append(events, m.inbox.events...)
	m.inbox.Unlock()
}

// due returns the first timer, if its time has come, or else that time.
func (m *Machine[S, R]) due() (*timer[S, R], time.Time) {
	var first *timer[S, R]
	for _, t := range m.timers {
		if first == nil || t.at.Before(first.at) || t.at.Equal(first.at) && t.name < first.name {
			first = &t
		}
	}
	if m.o.Due != nil && m.Epoch() >= 0 {
		if at, name, w := m.o.Due(); !at.IsZero() && (first == nil || at.Before(first.at)) {
			first = &timer[S, R]{at: at, name: name, write: w}
		}
	}
	if first == nil {
		return nil, time.Time{}
	}
	if first.at.After(m.o.Clock.Now()) {
		return nil, first.at
	}
	return first, time.Time{}
}

func (m *Machine[S, R]) fire(t timer[S, R]) error {
	delete(m.timers, t.name)
	now := m.o.Clock.Now()
	return m.write(now, t.name, t.at, t.write, func(_ any, err error) {
		if err != nil && !errors.Is(err, ErrNotLeader) && !errors.Is(err, ErrStopped) {
			m.o.Logger.Error("timed write failed", "log", m.o.Name, "write", t.name, "err", err)
		}
	})
}

// Stop ends the machine: whatever waits, and whatever comes, is answered with
// ErrStopped. It belongs to the goroutine that polls; Run does it at its end.
func (m *Machine[S, R]) Stop() {
	m.inbox.Lock()
	m.inbox.stopped = true
	events := m.inbox.events
	m.inbox.events = nil
	m.inbox.Unlock()
	for _, e := range events {
		if e.stop != nil {
			e.stop()
		}
	}
	m.epoch.Store(-1)
	m.fail(ErrStopped)
}

// write runs w, appends and applies its records, and lets the answer wait.
func (m *Machine[S, R]) write(now time.Time, name string, queued time.Time, w Write[S, R], done func(any, error)) error {
	epoch := m.Epoch()
	if epoch < 0 {
		done(nil, ErrNotLeader)
		return nil
	}
	if m.o.Observe != nil {
		defer func() { m.o.Observe(name, now.Sub(queued), m.o.Clock.Now().Sub(now)) }()
	}
	view := View[S]{Now: now, State: m.appended, Epoch: epoch, NextOffset: m.o.Log.LogEnd()}
	r, err := w(view)
	if told := r.Done; told != nil && err == nil {
		answer := done
		done = func(response any, err error) { told(err); answer(response, err) }
	}
	if err == nil && len(r.Records) > 0 {
		var last int64
		last, err = m.o.Log.Append(epoch, r.Records, r.Atomic)
		switch {
		case err == nil:
			return m.wrote(view, r, last, done)
		case !errors.Is(err, ErrRefused):
			m.o.Logger.Warn("append failed: giving up leadership", "log", m.o.Name, "epoch", epoch, "write", name, "err", err)
			m.o.Log.Resign(epoch)
			done(nil, errors.Join(ErrNotLeader, err))
			return m.drop(ErrNotLeader)
		}
	}
	answer := func(fate error) {
		switch {
		case fate != nil:
			done(nil, fate)
		case err != nil:
			done(nil, err)
		default:
			done(r.Response, nil)
		}
	}
	if len(m.pending) == 0 {
		answer(nil)
		return nil
	}
	p := &m.pending[len(m.pending)-1]
	p.answers = append(p.answers, answer)
	return nil
}

// wrote applies what was appended.
func (m *Machine[S, R]) wrote(v View[S], r Result[R], last int64, done func(any, error)) error {
	if last != v.NextOffset+int64(len(r.Records))-1 {
		done(nil, ErrNotLeader)
		return fmt.Errorf("%d records appended at %d end at %d", len(r.Records), v.NextOffset, last)
	}
	s, err := m.o.Apply(m.appended, Batch[R]{Base: v.NextOffset, Last: last, Epoch: v.Epoch, TimestampMs: v.Now.UnixMilli(), Records: r.Records})
	if err != nil {
		done(nil, err)
		return fmt.Errorf("applying our own records at %d: %w", v.NextOffset, err)
	}
	m.appended = s
	m.pending = append(m.pending, entry[S]{last: last, state: s, answers: []func(error){func(fate error) {
		if fate != nil {
			done(nil, fate)
			return
		}
		done(r.Response, nil)
	}}})
	return nil
}

// commit takes a committed batch: as leader the state after it is there already.
func (m *Machine[S, R]) commit(b Batch[R]) error {
	if b.Last <= m.committedAt {
		return nil // contained in the snapshot that was loaded
	}
	if len(m.pending) == 0 {
		return m.apply(b)
	}
	m.tail = append(m.tail, b)
	if b.Last < m.pending[0].last {
		return nil
	}
	e := m.pending[0]
	invariant.Check(b.Last == e.last, "%s: committed to %d, appended to %d", m.o.Name, b.Last, e.last)
	m.pending[0] = entry[S]{}
	m.pending, m.tail = m.pending[1:], nil
	m.committed, m.committedAt = e.state, e.last
	m.publish(b.Epoch)
	for _, answer := range e.answers {
		answer(nil)
	}
	return nil
}

// apply takes a committed batch that is not ours, or no longer.
func (m *Machine[S, R]) apply(b Batch[R]) error {
	s, err := m.o.Apply(m.committed, b)
	if err != nil {
		return fmt.Errorf("applying offsets %d to %d: %w", b.Base, b.Last, err)
	}
	m.committed, m.appended, m.committedAt = s, s, b.Last
	m.publish(b.Epoch)
	return nil
}

// drop ends our epoch, if there is one, and returns to the committed state.
func (m *Machine[S, R]) drop(why error) error {
	led := m.Epoch() >= 0
	m.epoch.Store(-1)
	clear(m.timers)
	tail := m.tail
	m.tail = nil
	m.fail(why)
	m.appended = m.committed
	for _, b := range tail {
		if err := m.apply(b); err != nil {
			return err
		}
	}
	if led && m.o.Lost != nil {
		m.o.Lost()
	}
	return nil
}

// fail answers everything that waits for a commit.
func (m *Machine[S, R]) fail(why error) {
	pending := m.pending
	m.pending = nil
	for _, e := range pending {
		for _, answer := range e.answers {
			answer(why)
		}
	}
}

func (m *Machine[S, R]) publish(epoch int32) {
	s := m.committed
	if m.o.Visible != nil {
		s = m.o.Visible(s)
	}
	m.visible.Store(&Committed[S]{State: s, Offset: m.committedAt, Epoch: epoch})
}
