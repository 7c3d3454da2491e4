package cleaner

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"sync"
	"time"

	"weir/internal/checkpoint"
	"weir/internal/clock"
	"weir/internal/config"
	"weir/internal/storage"
	"weir/internal/storage/segment"
)

// Config is the broker's configuration of the cleaner; all of it can change while it runs. A run that has begun goes on
// with what it began with, but for the rate.
type Config struct {
	Threads           int           // log.cleaner.threads
	DedupeBytes       int64         // log.cleaner.dedupe.buffer.size: offset maps of all threads
	LoadFactor        float64       // log.cleaner.io.buffer.load.factor: how full an offset map gets
	IOBufferBytes     int           // log.cleaner.io.buffer.size, of all threads
	MaxBytesPerSecond float64       // log.cleaner.io.max.bytes.per.second, read and written
	Backoff           time.Duration // log.cleaner.backoff.ms: when nothing needs cleaning
}

// sane are the values that a run can work with.
func (c Config) sane() Config {
	c.Threads = max(c.Threads, 1)
	if !(c.LoadFactor > 0 && c.LoadFactor <= 1) {
		c.LoadFactor = 0.9
	}
	if !(c.MaxBytesPerSecond > 0) {
		c.MaxBytesPerSecond = math.MaxFloat64
	}
	c.IOBufferBytes /= c.Threads * 2 // as Kafka: one half is for reading
	c.Backoff = max(c.Backoff, time.Millisecond)
	return c
}

// mapBytes is the memory of one offset map.
func (c Config) mapBytes() int64 { return min(c.DedupeBytes/int64(c.Threads), math.MaxInt32) }

// ConfigOf reads the broker's keys.
func ConfigOf(e *config.Effective) Config {
	return Config{
		Threads: int(e.Int("log.cleaner.threads")), DedupeBytes: e.Long("log.cleaner.dedupe.buffer.size"),
		LoadFactor: e.Double("log.cleaner.io.buffer.load.factor"), IOBufferBytes: int(e.Int("log.cleaner.io.buffer.size")),
		MaxBytesPerSecond: e.Double("log.cleaner.io.max.bytes.per.second"),
		Backoff:           time.Duration(e.Long("log.cleaner.backoff.ms")) * time.Millisecond,
	}
}

// Checkpoints keeps the cleaner's checkpoints; *dirs.Set does.
type Checkpoints interface {
	Cleaned(p checkpoint.TopicPartition) (offset int64, known bool)
	SetCleaned(p checkpoint.TopicPartition, log *storage.Log, offset int64) error
	SaveRecoveryPoint(p checkpoint.TopicPartition, offset int64) error
}

// Options makes a Cleaner.
type Options struct {
	Clock  clock.Clock
	Logger *slog.Logger
	Config func() Config
	// Each lists the logs whose configuration is known; those that are not compacted are passed over.
	Each        func(visit func(p checkpoint.TopicPartition, log *storage.Log))
	Checkpoints Checkpoints
	// Failed is told of a failed disk, which takes the log's directory offline. Called from a run, without locks.
	Failed func(p checkpoint.TopicPartition, log *storage.Log, err error)
}

// Uncleanable is a log that the cleaner has given up.
type Uncleanable struct {
	Partition checkpoint.TopicPartition
	Dir       string
	Err       error
	Bytes     int64 // that could be cleaned
}

// Cleaner compacts logs. Stats may be read at any time.
type Cleaner struct {
	o        Options
	throttle throttle
	wake     chan struct{} // the configuration may have changed
	Stats    Stats

	mu struct {
		sync.Mutex
		busy map[*storage.Log]bool
		bad  map[*storage.Log]Uncleanable
		maps []*offsetMap // of ended runs, for the next ones; let go when there is nothing to do
	}
}

// New makes a Cleaner; Run or Step does the work.
func New(o Options) *Cleaner {
	c := &Cleaner{o: o, throttle: throttle{clock: o.Clock}, wake: make(chan struct{}, 1)}
	c.mu.busy, c.mu.bad = map[*storage.Log]bool{}, map[*storage.Log]Uncleanable{}
	return c
}

// Wake ends the present backoff: more threads or a shorter backoff count at once. It does not block.
func (c *Cleaner) Wake() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Run cleans what is due until ctx ends, Config.Threads logs at a time. One goroutine looks for work, the runs have
// their own; none is left when Run returns.
func (c *Cleaner) Run(ctx context.Context) error {
	var runs sync.WaitGroup
	defer runs.Wait()
	ended := make(chan bool, 1) // whether the run was worth looking for more at once
	active := 0
	for ctx.Err() == nil {
		cfg := c.o.Config().sane()
		for active < cfg.Threads {
			j, ok := c.next()
			if !ok {
				break
			}
			active++
			runs.Go(func() {
				good := c.do(ctx, cfg, j)
				select {
				case ended <- good:
				case <-ctx.Done():
				}
			})
		}
		if active == 0 {
			c.rest()
		}
		if !c.await(ctx, cfg.Backoff, ended, &active) {
			return nil
		}
	}
	return nil
}

// await waits for a run to end well, for the backoff, or for Wake. false: ctx has ended.
func (c *Cleaner) await(ctx context.Context, backoff time.Duration, ended <-chan bool, active *int) bool {
	tick, stop := clock.After(c.o.Clock, backoff)
	defer stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-tick:
			return true
		case <-c.wake:
			return true
		case good := <-ended:
			if *active--; good {
				return true
			}
		}
	}
}

// Step cleans the log that needs it most; false: none does, or the run failed.
func (c *Cleaner) Step(ctx context.Context) bool {
	j, ok := c.next()
	if !ok {
		c.rest()
		return false
	}
	return c.do(ctx, c.o.Config().sane(), j)
}

// job is a log to be cleaned.
type job struct {
	p    checkpoint.TopicPartition
	log  *storage.Log
	c    *storage.Compaction
	plan plan
	now  int64
}

// next finds the log with the largest dirty share among those that are due, and takes it.
func (c *Cleaner) next() (job, bool) {
	now := c.o.Clock.Now().UnixMilli()
	c.Stats.LastLookMs.Store(now)
	var best job
	var seen struct {
		logs    map[*storage.Log]bool
		dirtier float64
		delay   int64
		bad     int64
	}
	seen.logs = map[*storage.Log]bool{}
	c.o.Each(func(p checkpoint.TopicPartition, log *storage.Log) {
		if !log.Config().CleanupCompact {
			return
		}
		seen.logs[log] = true
		j, ok := c.look(p, log, now)
		if !ok {
			return
		}
		if c.isBad(log) {
			seen.bad += j.plan.cleanableBytes
			return
		}
		seen.dirtier, seen.delay = max(seen.dirtier, j.plan.ratio()), max(seen.delay, j.plan.delayMs)
		if j.plan.due(rulesOf(log.Config())) && (best.log == nil || j.plan.ratio() > best.plan.ratio()) && !c.isBusy(log) {
			best = j
		}
	})
	c.Stats.maxDirty.Store(math.Float64bits(seen.dirtier))
	c.Stats.MaxDelayMs.Store(seen.delay)
	c.Stats.UncleanableBytes.Store(seen.bad)
	c.prune(seen.logs)
	if best.log == nil {
		return job{}, false
	}
	c.setBusy(best.log, true)
	return best, true
}

func rulesOf(t *config.Topic) rules {
	return rules{minLagMs: t.MinCompactionLagMs, maxLagMs: t.MaxCompactionLagMs, minRatio: t.MinCleanableDirtyRatio}
}

// look finds what there is to do for one log; false: nothing. A log without new segments costs no lock.
func (c *Cleaner) look(p checkpoint.TopicPartition, log *storage.Log, now int64) (job, bool) {
	at, known := c.o.Checkpoints.Cleaned(p)
	if known && at == log.ActiveBase() || !known && log.ActiveBase() <= log.LogStart() {
		return job{}, false
	}
	run, err := log.BeginCompaction()
	if err != nil {
		return job{}, false // closed or offline: its owner knows
	}
	o, segs := run.Offsets(), run.Segments()
	pic := picture{
		start: o.LogStart, end: o.LogEnd, lastStable: o.LastStable, active: run.ActiveBase(), durable: log.RecoveryPoint(),
		pieces: pieces(segs), checkpoint: at, known: known,
	}
	r := rulesOf(log.Config())
	dirty, _ := firstDirty(pic)
	if err := timestamps(&pic, segs, dirty, r); err != nil {
		c.failed(job{p: p, log: log, c: run}, run.Error(segs[0], dirty, err))
		return job{}, false
	}
	j := job{p: p, log: log, c: run, plan: decide(pic, r, now), now: now}
	if j.plan.reset {
		c.reset(&j, at)
	}
	return j, true
}

// timestamps fills in what the rules ask for.
func timestamps(pic *picture, segs []*segment.Segment, dirty int64, r rules) error {
	for i := floor(pic.pieces, dirty); i < len(segs); i++ {
		if r.minLagMs > 0 {
			ts, err := segs[i].LargestTimestamp()
			if err != nil {
				return err
			}
			pic.pieces[i].largest = ts.Timestamp
		}
		if r.maxLagMs < math.MaxInt64 {
			ts, ok, err := segs[i].FirstTimestamp()
			if err != nil {
				return err
			}
			if ok {
				pic.pieces[i].first = ts
			}
		}
	}
	return nil
}

// reset writes a possible checkpoint in place of an impossible one.
func (c *Cleaner) reset(j *job, was int64) {
	if !j.log.Config().CleanupDelete { // retention passes the checkpoint as a matter of course
		c.o.Logger.Warn("the cleaner's checkpoint is outside the log: cleaning begins at the log start",
			"partition", j.p.String(), "checkpoint", was, "logStart", j.plan.dirty)
	}
	if err := c.o.Checkpoints.SetCleaned(j.p, j.log, j.plan.dirty); err != nil {
		c.o.Logger.Error("cannot write the cleaner's checkpoint", "partition", j.p.String(), "err", err)
	}
}

// do cleans one log that next has given. true: it is clean now.
func (c *Cleaner) do(ctx context.Context, cfg Config, j job) bool {
	c.Stats.Running.Add(1)
	defer func() {
		c.Stats.Running.Add(-1)
		c.setBusy(j.log, false)
	}()
	m := c.takeMap()
	defer c.giveMap(m)
	r := run{
		ctx: ctx, c: j.c, topic: j.log.Config(), cfg: cfg, throttle: &c.throttle, offsets: m, plan: j.plan, nowMs: j.now,
		rate:    func() float64 { return c.o.Config().sane().MaxBytesPerSecond },
		durable: func(upTo int64) error { return c.o.Checkpoints.SaveRecoveryPoint(j.p, upTo) },
	}
	began := c.o.Clock.Now()
	err := r.clean()
	r.took = c.o.Clock.Now().Sub(began)
	if err == nil && r.end > j.plan.dirty {
		err = c.o.Checkpoints.SetCleaned(j.p, j.log, r.end)
	}
	if err != nil {
		c.failed(j, err)
		return false
	}
	c.Stats.Runs.Add(1)
	c.Stats.add(&r.result)
	c.o.Logger.Info("compacted a log", "partition", j.p.String(), "from", j.plan.dirty, "to", r.end,
		"bytesBefore", r.bytesRead, "bytesAfter", r.bytesWritten, "recordsBefore", r.messagesRead, "recordsAfter", r.messagesWritten,
		"took", r.took.Round(time.Millisecond))
	if r.unkeyed > 0 {
		c.o.Logger.Warn("records without a key were dropped by compaction", "partition", j.p.String(), "records", r.unkeyed)
	}
	return r.end > j.plan.dirty
}

// failed takes the error of a run: some pass, a failed disk is its directory's affair, and what is left is this log's.
func (c *Cleaner) failed(j job, err error) {
	var disk *storage.DiskError
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, storage.ErrCompactionAborted), errors.Is(err, storage.ErrClosed):
		c.o.Logger.Debug("a compaction was given up", "partition", j.p.String(), "reason", err)
		return
	case errors.Is(err, storage.ErrNoSpace):
		c.Stats.Failures.Add(1)
		c.o.Logger.Warn("no room to compact a log: tried again later", "partition", j.p.String(), "err", err)
		return
	case errors.As(err, &disk):
		c.Stats.Failures.Add(1)
		c.o.Failed(j.p, j.log, err)
		return
	}
	c.Stats.Failures.Add(1)
	c.o.Logger.Error("a log cannot be compacted: it is passed over until the next start, the others go on",
		"partition", j.p.String(), "dir", j.log.Dir(), "err", err)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.bad[j.log] = Uncleanable{Partition: j.p, Dir: j.log.Dir(), Err: err, Bytes: j.plan.cleanableBytes}
	c.Stats.UncleanablePartitions.Store(int64(len(c.mu.bad)))
}

// Uncleanable lists the logs that the cleaner has given up, in no order.
func (c *Cleaner) Uncleanable() []Uncleanable {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]Uncleanable, 0, len(c.mu.bad))
	for _, u := range c.mu.bad {
		out = append(out, u)
	}
	return out
}

func (c *Cleaner) isBad(log *storage.Log) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, bad := c.mu.bad[log]
	return bad
}

func (c *Cleaner) isBusy(log *storage.Log) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.busy[log]
}

func (c *Cleaner) setBusy(log *storage.Log, busy bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if busy {
		c.mu.busy[log] = true
	} else {
		delete(c.mu.busy, log)
	}
}

// prune forgets given-up logs that are not there any more.
func (c *Cleaner) prune(there map[*storage.Log]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for log := range c.mu.bad {
		if !there[log] {
			delete(c.mu.bad, log)
		}
	}
	c.Stats.UncleanablePartitions.Store(int64(len(c.mu.bad)))
}

func (c *Cleaner) takeMap() *offsetMap {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.mu.maps); n > 0 {
		m := c.mu.maps[n-1]
		c.mu.maps = c.mu.maps[:n-1]
		return m
	}
	return &offsetMap{}
}

func (c *Cleaner) giveMap(m *offsetMap) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.maps = append(c.mu.maps, m)
}

// rest lets the memory of the offset maps go.
func (c *Cleaner) rest() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.maps = nil
}
