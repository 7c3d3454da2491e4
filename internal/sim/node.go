package sim

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/batch"
	"weir/internal/checkpoint"
	"weir/internal/controller"
	"weir/internal/image"
	"weir/internal/kraft"
	"weir/internal/metalog"
	"weir/internal/quorum"
	"weir/internal/records"
	"weir/internal/replication"
	"weir/internal/storage"
	"weir/internal/storage/dirs"
	"weir/internal/storage/format"
	sequences "weir/internal/storage/producer"
	"weir/internal/uuid"
	"weir/internal/vfs"
	"weir/internal/vfs/errfs"
	"weir/internal/vfs/memfs"
)

const (
	clusterID = "4L6g3nShT-eMCtK--X86sw"
	logDir    = "/d"
)

func dirOf(id int32) uuid.UUID { return uuid.UUID{0: 7, 15: byte(id)} }

// unlocked is a disk whose locks end with the process, which here nobody tells it.
type unlocked struct{ *memfs.FS }

type noLock struct{}

func (noLock) Close() error { return nil }

// Lock implements vfs.FS.
func (unlocked) Lock(string) (io.Closer, error) { return noLock{}, nil }

// node is one machine and the process that runs on it, or does not.
type node struct {
	w      *World
	id     int32
	disk   *memfs.FS
	errfs  *errfs.FS
	logger *slog.Logger

	up, starting bool
	run          int // counts processes
	pausedUntil  time.Time
	wake         time.Time // when poll is planned next

	// Of the process.
	dirs     *dirs.Set
	log      *metalog.Log
	q        *quorum.Node
	replicas *replication.Manager
	member   *member
	meta     *metaCheck
	copying  map[int32]*copying
	held     []*heldFetch
	commits  []*heldProduce
	altering *alteration
	alterAt  time.Time
	upkeepAt time.Time
	chores   int
	failed   error // of its only log directory: it stops
	faulty   bool  // its disk was made to fail
	dark     bool  // because power goes
	doomed   int   // counts as run: the process that says nothing to its quorum any more and dies
	lost     map[string]int64
}

// copying is the conversation with one leader.
type copying struct{ call *call }

// alteration is an AlterPartition under way.
type alteration struct {
	call *call
	of   map[image.PartitionID]bool
}

func newNode(w *World, id int32) (*node, error) {
	n := &node{w: w, id: id, logger: w.logger.With("node", id), disk: memfs.New(), lost: map[string]int64{}}
	if err := n.disk.MkdirAll(logDir, 0o755); err != nil {
		return nil, err
	}
	meta := checkpoint.MetaProperties{Version: 1, ClusterID: clusterID, NodeID: id, DirectoryID: dirOf(id)}
	if err := checkpoint.WriteMetaProperties(n.disk, logDir+"/"+checkpoint.MetaFile, meta); err != nil {
		return nil, err
	}
	for _, d := range []string{"/", logDir} {
		if err := n.disk.SyncDir(d); err != nil {
			return nil, err
		}
	}
	n.errfs = errfs.Wrap(unlocked{n.disk})
	return n, nil
}

func (n *node) fs() vfs.FS { return n.errfs }

// start starts a process on what stands on the disk.
func (n *node) start() {
	w := n.w
	n.starting = false
	if n.up {
		return
	}
	n.run++
	n.errfs.Set()
	n.faulty = false
	n.copying, n.held, n.commits, n.altering, n.failed = map[int32]*copying{}, nil, nil, nil, nil
	n.alterAt, n.upkeepAt, n.wake = w.clock.Now(), w.clock.Now(), time.Time{}
	if err := n.open(); err != nil {
		w.fail("node %d does not start: %v", n.id, err)
		return
	}
	n.up = true
	n.compareLost()
	w.check.started(n)
	w.touch(n)
}

func (n *node) open() (err error) {
	w := n.w
	n.dirs, err = dirs.Open(dirs.Options{
		FS: n.fs(), LogDirs: []string{logDir}, NodeID: n.id, RecoveryThreads: 1, Clock: w.clock, Rand: w.dice.Split(), Logger: n.logger,
		Log: func(checkpoint.TopicPartition) storage.Options {
			return storage.Options{Config: w.topic, Buffers: w.buffers, Rand: w.dice.Split(), Producer: sequences.Config{ExpirationMs: 1 << 40, MaxTxnTimeoutMs: 900_000}}
		},
		Offline: func(_ *dirs.Dir, _ []*storage.Log, err error) { n.failed = err },
	})
	if err != nil {
		return err
	}
	previous := n.dirs.PreviousBrokerEpoch()
	if err := n.dirs.Load(context.Background()); err != nil {
		return err
	}
	if f := n.dirs.Failures(); len(f) > 0 {
		return fmt.Errorf("%s: %w", f[0].Path, f[0].Err)
	}
	if err := n.openQuorum(); err != nil {
		return err
	}
	n.member = &member{n: n, incarnation: uuid.Random(w.dice), previous: previous, epoch: -1, next: w.clock.Now()}
	n.replicas = replication.New(replication.Options{
		NodeID: n.id, FS: n.fs(), Dirs: n.dirs, Clock: w.clock, Logger: n.logger, Buffers: new(batch.Pool), Static: w.static,
		MaxLag: lagMs * time.Millisecond, Epoch: func() int64 { return n.member.epoch }, Stepped: true,
		Fetch: replication.FetchSettings{Fetchers: 1, MaxWait: fetchWaitMs * time.Millisecond, MinBytes: 1, MaxBytes: 1 << 20, PartitionMax: 1 << 20, Backoff: 40 * time.Millisecond},
	})
	n.q.Subscribe(watcher{n})
	n.q.Subscribe(n.replicas)
	return nil
}

func (n *node) openQuorum() (err error) {
	w, set := n.w, n.w.set
	var voters []kraft.Voter
	var ids []int32
	for id := int32(1); id <= 3; id++ {
		voters = append(voters, kraft.Voter{Replica: kraft.Replica{ID: id}})
		ids = append(ids, id)
	}
	n.log, err = metalog.Open(metalog.Options{
		FS: n.fs(), Dir: logDir, Self: kraft.Replica{ID: n.id, Dir: dirOf(n.id)}, Voters: voters,
		Timeouts: kraft.Timeouts{ElectionMs: electionMs, FetchMs: fetchMs, RetryMs: 15, MaxWaitMs: fetchWaitMs, MaxFetch: set.FetchBytes, BackoffMaxMs: 100},
		Limits:   metalog.Limits{SegmentBytes: 1 << 12, SegmentMs: 1 << 40, RetentionBytes: 1, RetentionMs: -1, MaxBatchBytes: set.BatchBytes, DeleteDelayMs: 50, CleanIntervalMs: 200},
		Clock:    w.clock, Rand: w.dice.Split(), Logger: n.logger, Transport: transport{n},
	})
	if err != nil {
		return err
	}
	o := quorum.Options{
		NodeID: n.id, Log: n.log, Rand: w.dice.Split(), Clock: w.clock, Logger: n.logger,
		SnapshotBytes: set.Snapshot, AtomicBytes: set.AtomicBytes,
	}
	if n.id <= 3 {
		o.Core = controller.New(controller.Options{
			NodeID: n.id, ClusterID: clusterID, BrokerHere: true, SessionTimeoutMs: sessionMs, NoOpIntervalMs: noOpMs, UncleanIntervalMs: uncleanMs,
			RebalanceIntervalMs: 400, RebalanceAfterReturnMs: 200,
			DefaultPartitions: 1, DefaultReplicationFactor: 3, Supported: format.Served(false),
			Bootstrap: bootstrap(), BootstrapSource: "sim", Config: quorum.NewConfigRules(w.static),
		})
	}
	n.meta = &metaCheck{n: n}
	n.q = quorum.New(o)
	n.log.Register(n.meta)
	return nil
}

func bootstrap() []records.Versioned {
	level := func(name string, l int16) records.Versioned {
		return records.Versioned{Record: &records.FeatureLevelRecord{Name: name, FeatureLevel: l}}
	}
	return []records.Versioned{level(image.FeatureMetadata, image.MetadataLatest), level(image.FeatureELR, 1)}
}

// wakeAt sees to it that the node is polled at t.
func (n *node) wakeAt(t time.Time) {
	w := n.w
	if now := w.clock.Now(); t.Before(now) {
		t = now
	}
	if !n.wake.IsZero() && !n.wake.After(t) && !n.wake.Before(w.clock.Now()) {
		return
	}
	n.wake = t
	run := n.run
	w.at(t, func() {
		if n.run == run && n.wake.Equal(t) {
			n.wake = time.Time{}
			w.touch(n)
		}
	})
}

// poll lets the process do everything that is due.
func (n *node) poll() {
	w := n.w
	if !n.up {
		return
	}
	if n.pausedUntil.After(w.clock.Now()) {
		n.wakeAt(n.pausedUntil)
		return
	}
	w.count.Steps++
	next, err := n.q.Poll()
	if err == nil {
		err = n.failed
	}
	if err == nil {
		n.meta.started = true
		n.member.step()
		n.answerFetches()
		n.stepFetchers()
		n.stepAlter()
		n.answerCommits()
		n.upkeep()
		err = n.failed
	}
	if err != nil {
		n.die(err)
		return
	}
	w.check.node(n)
	n.wakeAt(next)
}

// die is a process that stops because its disk fails.
func (n *node) die(err error) {
	w := n.w
	if !n.faulty {
		w.fail("node %d stops: %v", n.id, err)
		return
	}
	w.count.Disks++
	n.kill(n.dark && w.mayLosePower(n))
	n.restartIn(w.between(0, 200))
}

func (n *node) stepFetchers() {
	for _, x := range n.replicas.Fetchers() {
		c := n.copying[x.Leader()]
		if c == nil {
			c = &copying{}
			n.copying[x.Leader()] = c
		}
		if c.call != nil && !c.call.done {
			continue
		}
		req, at := x.Next()
		if req == nil {
			if !at.IsZero() {
				n.wakeAt(at)
			}
			continue
		}
		c.call = n.w.ask(laneKey{n.id, x.Leader(), copyKind}, func(dst *node, reply func(any)) { dst.serveFollower(req, reply) }, func(res any, err error) {
			c.call = nil
			if err != nil {
				x.Lost(err)
				return
			}
			n.countTruncations(res)
			x.Answered(res.(kmsg.Response))
		})
	}
}

func (n *node) countTruncations(res any) {
	f, ok := res.(*kmsg.FetchResponse)
	if !ok {
		return
	}
	for _, t := range f.Topics {
		for _, p := range t.Partitions {
			if p.DivergingEpoch.EndOffset >= 0 {
				n.w.count.Truncations++
			}
		}
	}
}

// control asks the active controller; then gets nil when there was no answer.
func (n *node) control(kind string, req kmsg.Request, then func(kmsg.Response)) *call {
	leader := n.q.Leader().ID
	if leader == kraft.None {
		n.w.after(20*time.Millisecond, func() {
			if n.up {
				n.w.touch(n)
			}
		})
		then(nil)
		return nil
	}
	return n.w.ask(laneKey{n.id, leader, kind}, func(dst *node, reply func(any)) { dst.serveController(req, reply) }, func(res any, err error) {
		r, _ := res.(kmsg.Response)
		then(r)
	})
}

func (n *node) stepAlter() {
	w := n.w
	if n.altering != nil && n.altering.call != nil && !n.altering.call.done {
		return
	}
	if w.clock.Now().Before(n.alterAt) {
		n.wakeAt(n.alterAt)
		return
	}
	n.altering = nil
	req, sweep := n.replicas.NextAlter()
	n.wakeAt(sweep)
	if req == nil {
		return
	}
	a := &alteration{of: map[image.PartitionID]bool{}}
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			a.of[image.PartitionID{Topic: t.TopicID, Partition: p.Partition}] = true
		}
	}
	n.altering = a
	a.call = n.control("alter", req, func(res kmsg.Response) {
		n.altering = nil
		r, ok := res.(*kmsg.AlterPartitionResponse)
		if !ok {
			n.alterAt = w.clock.Now().Add(retryAlterMs * time.Millisecond)
			n.wakeAt(n.alterAt)
			return
		}
		n.replicas.Altered(r)
	})
}

// upkeep does what the tickers of a broker do.
func (n *node) upkeep() {
	now := n.w.clock.Now()
	if now.Before(n.upkeepAt) {
		n.wakeAt(n.upkeepAt)
		return
	}
	n.upkeepAt = now.Add(upkeepMs * time.Millisecond)
	n.wakeAt(n.upkeepAt)
	n.replicas.Tick(now)
	n.chores++
	err := n.dirs.WriteHighWatermarks()
	if n.chores%4 == 0 && err == nil {
		err = n.dirs.WriteRecoveryPoints()
	}
	if err != nil && n.failed == nil && !n.faulty {
		n.w.fail("node %d: checkpoint: %v", n.id, err)
	}
}

// transport carries the core's requests.
type transport struct{ n *node }

// Send implements metalog.Transport.
func (t transport) Send(s kraft.Send) {
	n, w := t.n, t.n.w
	to := s.To
	if to == kraft.None {
		to = int32(1 + w.dice.IntN(3))
	}
	kind := "vote"
	switch s.Body.(type) {
	case kraft.FetchRequest, kraft.SnapshotRequest:
		kind = "metadata"
	}
	log := n.log
	answer := func(res any, err error) {
		body, _ := res.(kraft.ResponseBody)
		log.Response(kraft.Response{From: to, ID: s.ID, Body: body})
		if err == errRefused {
			log.Refused(to)
		}
	}
	if to == n.id {
		run := n.run
		w.after(20*time.Millisecond, func() {
			if n.up && n.run == run {
				answer(nil, errCut)
				w.touch(n)
			}
		})
		return
	}
	w.ask(laneKey{n.id, to, kind}, func(dst *node, reply func(any)) { dst.serveQuorum(n.id, s.Body, reply) }, answer)
}
