// Package replication holds every partition replica of this broker and keeps
// them as the cluster image says: logs are created, replicas become leaders or
// followers, deleted topics go away, configurations take effect.
//
//	image delta ─▶ apply.go ─▶ storage/dirs (create, delete)
//	                       ├─▶ partition.Replica (Lead, Follow, Retire, SetConfig)
//	                       └─▶ fetchers.go: which leader to copy each partition from
//	leaders ─────▶ fetcher.go ─▶ follower.Core, partition.Replica (append, truncate)
//	clock ───────▶ upkeep.go ─▶ flush, retention, checkpoints
//	followers ───▶ isr.go ─▶ ISR changes, to the controller
//	               starts.go ─▶ their waiting fetches, let go of when they have more to ask for
//
// One goroutine applies images, one copies from each leader, others do the upkeep;
// requests look replicas up without waiting for any.
package replication

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/batch"
	"weir/internal/checkpoint"
	"weir/internal/clock"
	"weir/internal/config"
	"weir/internal/image"
	"weir/internal/partition"
	"weir/internal/storage/dirs"
	"weir/internal/uuid"
	"weir/internal/vfs"
)

// NotHostedError says that this broker has no replica of the partition.
type NotHostedError struct {
	Topic     uuid.UUID
	Partition int32
}

func (e *NotHostedError) Error() string {
	return fmt.Sprintf("this broker holds no replica of partition %d of topic %s", e.Partition, e.Topic)
}

// OfflineError says that this broker's replica cannot be used, and why.
type OfflineError struct {
	Topic     string
	Partition int32
	Err       error
}

func (e *OfflineError) Error() string {
	return fmt.Sprintf("the replica of %s-%d is offline: %v", e.Topic, e.Partition, e.Err)
}
func (e *OfflineError) Unwrap() error { return e.Err }

// Options is what a Manager is made of.
type Options struct {
	NodeID  int32
	FS      vfs.FS
	Dirs    *dirs.Set
	Clock   clock.Clock
	Logger  *slog.Logger
	Buffers *batch.Pool
	Static  *config.Static

	Intervals Intervals
	MaxLag    time.Duration // replica.lag.time.max.ms
	// Controller takes the directories that new replicas were put in.
	Controller Controller
	// Leaderships is told which replicas lead and which do not; nil: nobody is.
	Leaderships Leaderships
	// Epoch is this broker's registered epoch, negative before its registration.
	Epoch func() int64
	// Connect makes a connection to the leader with that id, named for logs by who.
	Connect func(leader int32, who string) Peer
	Fetch   FetchSettings
	// Stepped starts no goroutine for what copies from leaders: the owner steps
	// Fetchers itself, from the goroutine that calls Apply. Run is not called.
	Stepped bool
}

// Peer is a connection to another broker; *peer.Client. A request whose ctx ends
// takes the connection with it.
type Peer interface {
	Do(ctx context.Context, req kmsg.Request) (kmsg.Response, error)
	Close()
}

// FetchSettings are how followers fetch.
type FetchSettings struct {
	Fetchers     int           // num.replica.fetchers: connections to each leader
	MaxWait      time.Duration // replica.fetch.wait.max.ms
	MinBytes     int32         // replica.fetch.min.bytes
	MaxBytes     int32         // replica.fetch.response.max.bytes
	PartitionMax int32         // replica.fetch.max.bytes
	Backoff      time.Duration // replica.fetch.backoff.ms: the longest pause after a failure
	Timeout      time.Duration // replica.socket.timeout.ms
}

// Intervals are how often the logs are looked after.
type Intervals struct {
	InitialDelay   time.Duration // log.initial.task.delay.ms: before the first retention check
	Retention      time.Duration // log.retention.check.interval.ms
	HighWatermarks time.Duration // replica.high.watermark.checkpoint.interval.ms
	RecoveryPoints time.Duration // log.flush.offset.checkpoint.interval.ms
	LogStarts      time.Duration // log.flush.start.offset.checkpoint.interval.ms
	Producers      time.Duration // producer.id.expiration.check.interval.ms
}

// Controller carries a request to the active controller.
type Controller interface {
	Do(ctx context.Context, req kmsg.Request) (kmsg.Response, error)
}

// Leaderships follows which replicas of this broker lead. It is told after the
// replica has taken its role, and again when nothing changed; it must not block.
type Leaderships interface {
	Leads(r *partition.Replica, leaderEpoch int32)
	LeadsNot(r *partition.Replica)
}

// Manager is all replicas of a broker.
type Manager struct {
	o Options

	mu       sync.RWMutex
	replicas map[key]*entry
	// preferred is where AlterReplicaLogDirs wants partitions to be created.
	preferred map[checkpoint.TopicPartition]uuid.UUID

	assignments struct { // directories to tell the controller
		sync.Mutex
		dirs map[key]uuid.UUID
	}

	moves    chan struct{} // a copy was begun
	assigned chan struct{} // there are directories to tell
	isrs     dueSet        // whose ISR may be due for a change
	fetchers *fetchers
	starts   starts
	// proposals belongs to the goroutine that sends ISR changes.
	proposals proposals
	// throttles bound what is copied while replicas catch up.
	throttles struct{ leader, follower *Throttle }
	image     atomic.Pointer[image.Image]

	stats struct {
		Shrinks, Expands, Refused atomic.Int64 // ISR changes
		Truncated                 atomic.Int64 // records that followers gave up
	}

	effective atomic.Pointer[config.Effective]
	fullAt    atomic.Int64 // ms: when a full disk was told of last
	joined    bool         // the replicas follow the image, see join; belongs to the applying goroutine
}

type key struct {
	topic     uuid.UUID
	partition int32
}

// entry is a replica, or the reason why there is none to use.
type entry struct {
	replica *partition.Replica
	offline *OfflineError
}

// New makes a Manager that has seen no image.
func New(o Options) *Manager {
	m := &Manager{o: o, replicas: map[key]*entry{}, moves: make(chan struct{}, 1), assigned: make(chan struct{}, 1)}
	m.isrs.wake = make(chan struct{}, 1)
	m.fetchers = newFetchers(m)
	samples, sampleMs := int(o.Static.Int("replication.quota.window.num")), int64(o.Static.Int("replication.quota.window.size.seconds"))*1000
	m.throttles.leader, m.throttles.follower = newThrottle(o.Clock, samples, sampleMs), newThrottle(o.Clock, samples, sampleMs)
	m.image.Store(image.New())
	m.effective.Store(config.NewEffective(o.Static, nil, nil))
	return m
}

// Effective is the broker's configuration with its dynamic values.
func (m *Manager) Effective() *config.Effective { return m.effective.Load() }

// Replica finds a replica. *NotHostedError, *OfflineError.
func (m *Manager) Replica(topic uuid.UUID, p int32) (*partition.Replica, error) {
	m.mu.RLock()
	e := m.replicas[key{topic, p}]
	m.mu.RUnlock()
	switch {
	case e == nil:
		return nil, &NotHostedError{topic, p}
	case e.offline != nil:
		return nil, e.offline
	}
	return e.replica, nil
}

// Each calls f for every usable replica, in no order.
func (m *Manager) Each(f func(r *partition.Replica)) {
	for _, r := range m.list() {
		f(r)
	}
}

func (m *Manager) list() []*partition.Replica {
	m.mu.RLock()
	defer m.mu.RUnlock()
	out := make([]*partition.Replica, 0, len(m.replicas))
	for _, e := range m.replicas {
		if e.replica != nil {
			out = append(out, e.replica)
		}
	}
	return out
}

// Counts is a summary for metrics.
type Counts struct {
	Partitions, Leaders, Offline, UnderReplicated, UnderMinISR, AtMinISR, Reassigning int
	// ISR changes since the start, and those that the controller refused.
	ISRShrinks, ISRExpands, ISRRefused int64
	// Truncated are the records that were cut from logs since the start because their leaders did not have them.
	Truncated int64
}

// Counts walks all replicas.
func (m *Manager) Counts() Counts {
	var c Counts
	img := m.image.Load()
	m.mu.RLock()
	for _, e := range m.replicas {
		if e.offline != nil {
			c.Offline++
		}
	}
	m.mu.RUnlock()
	m.Each(func(r *partition.Replica) {
		c.Partitions++
		h, leads := r.Health()
		if !leads {
			return
		}
		c.Leaders++
		c.UnderReplicated += one(h.InSync < h.Replicas)
		c.UnderMinISR += one(h.InSync < h.Need)
		c.AtMinISR += one(h.InSync == h.Need)
		p := img.Partition(image.PartitionID{Topic: r.TopicID(), Partition: r.ID()})
		c.Reassigning += one(p != nil && len(p.Adding)+len(p.Removing) > 0)
	})
	c.ISRShrinks, c.ISRExpands, c.ISRRefused = m.stats.Shrinks.Load(), m.stats.Expands.Load(), m.stats.Refused.Load()
	c.Truncated = m.stats.Truncated.Load()
	return c
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TopicDefaults is the configuration of a topic without its own, for logs whose
// topic is not known, as the broker's dynamic values make it.
func (m *Manager) TopicDefaults() *config.Topic {
	c, err := m.effective.Load().Topic(nil)
	if err != nil {
		panic(fmt.Sprintf("BUG: the broker's own topic defaults are not valid: %v", err))
	}
	return c
}

// topicConfig resolves a topic's configuration. A stored override that does not
// parse was written by another version: the topic then runs on the defaults.
func (m *Manager) topicConfig(img *image.Image, topic string) *config.Topic {
	c, err := m.effective.Load().Topic(img.Configs(image.ResourceTopic, topic))
	if err != nil {
		m.o.Logger.Error("a stored topic configuration is not valid: using the defaults", "topic", topic, "err", err)
		return m.TopicDefaults()
	}
	return c
}
