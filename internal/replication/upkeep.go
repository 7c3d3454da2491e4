package replication

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/internal/clock"
	"weir/internal/partition"
	"weir/internal/storage"
)

// upkeepEvery is how often logs are asked whether something is due. An idle log
// answers from one atomic load.
const upkeepEvery = 500 * time.Millisecond

// duty is something that is done every so often.
type duty struct {
	every time.Duration
	next  time.Time
	do    func(now time.Time)
}

// Run does what time asks of the logs, moves replicas between directories,
// and proposes ISR changes, until ctx ends.
func (m *Manager) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return m.runMoves(ctx) })
	g.Go(func() error { return m.runDuties(ctx) })
	g.Go(func() error { return m.runProposals(ctx) })
	g.Go(func() error { return m.runAssignments(ctx) })
	g.Go(func() error { return m.fetchers.run(ctx) })
	return g.Wait()
}

func (m *Manager) runDuties(ctx context.Context) error {
	duties := m.duties(m.o.Clock.Now())
	alarm := clock.NewAlarm(m.o.Clock, upkeepEvery)
	defer alarm.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-alarm.C:
		}
		now := m.o.Clock.Now()
		for i := range duties {
			if d := &duties[i]; !now.Before(d.next) {
				d.next = now.Add(d.every)
				d.do(now)
			}
		}
		alarm.Set(upkeepEvery)
	}
}

func (m *Manager) duties(now time.Time) []duty {
	write := func(f func() error) func(time.Time) {
		return func(time.Time) {
			if err := f(); err != nil && !errors.Is(err, storage.ErrClosed) {
				m.o.Logger.Error("cannot write a checkpoint", "err", err)
			}
		}
	}
	i := m.o.Intervals
	return []duty{
		{every: upkeepEvery, do: m.Tick},
		{every: i.Retention, next: now.Add(i.InitialDelay), do: m.Retain},
		{every: i.HighWatermarks, next: now.Add(i.HighWatermarks), do: write(m.o.Dirs.WriteHighWatermarks)},
		{every: i.RecoveryPoints, next: now.Add(i.RecoveryPoints), do: write(m.o.Dirs.WriteRecoveryPoints)},
		{every: i.LogStarts, next: now.Add(i.LogStarts), do: write(m.o.Dirs.WriteLogStarts)},
		{every: i.Producers, next: now.Add(i.Producers), do: m.ExpireProducers},
	}
}

// Tick flushes what flush.ms asks for, and removes what was deleted long enough
// ago.
func (m *Manager) Tick(now time.Time) {
	m.Each(func(r *partition.Replica) { m.report(r, r.Log().Tick(now)) })
	m.o.Dirs.Tick(now)
}

// Retain deletes segments by age, size and log start offset.
func (m *Manager) Retain(now time.Time) {
	m.Each(func(r *partition.Replica) {
		n, err := r.Log().Retain(now)
		m.report(r, err)
		if n > 0 {
			m.o.Logger.Info("retention removed segments", "topic", r.Topic(), "partition", r.ID(), "segments", n, "log start offset", r.Log().LogStart())
		}
	})
}

// ExpireProducers forgets producers that have been silent for
// producer.id.expiration.ms.
func (m *Manager) ExpireProducers(now time.Time) {
	after := m.Effective().Long("producer.id.expiration.ms")
	m.Each(func(r *partition.Replica) { r.Log().ExpireProducers(now, after) })
}

// fullEvery is how often a full disk is told of: every producer runs into it
// again and again.
const fullEvery = 10 * time.Second

func (m *Manager) full(r *partition.Replica, err error) {
	now, last := m.o.Clock.Now().UnixMilli(), m.fullAt.Load()
	if now-last >= fullEvery.Milliseconds() && m.fullAt.CompareAndSwap(last, now) {
		m.o.Logger.Error("disk is full: produce is refused until there is room, reads and deletions go on",
			"topic", r.Topic(), "partition", r.ID(), "err", err)
	}
}

// report takes an error of a log: a full disk is waited out, another disk error
// takes the directory offline, a corrupt file its partition.
func (m *Manager) report(r *partition.Replica, err error) {
	var disk *storage.DiskError
	var corrupt *storage.CorruptError
	switch {
	case err == nil || errors.Is(err, storage.ErrClosed):
	case errors.Is(err, storage.ErrNoSpace):
		m.full(r, err)
	case errors.As(err, &corrupt):
		m.fail(r, err)
	case errors.As(err, &disk):
		m.fail(r, err)
		m.o.Dirs.Report(err)
	default:
		m.o.Logger.Error("log upkeep failed", "topic", r.Topic(), "partition", r.ID(), "err", err)
	}
}
