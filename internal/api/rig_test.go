package api

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"testing"
	"time"

	"weir/internal/batch"
	"weir/internal/clock"
	"weir/internal/config"
	"weir/internal/image"
	"weir/internal/isr"
	"weir/internal/network"
	"weir/internal/partition"
	"weir/internal/records"
	"weir/internal/replication"
	"weir/internal/storage"
	"weir/internal/storage/producer"
	"weir/internal/uuid"
	"weir/internal/vfs/memfs"
	"weir/internal/wire"
)

// rig is a broker with node id 1 without network, controller and disk: an image
// that tests change, and real replicas on a file system in memory.
type rig struct {
	*testing.T
	clock    clock.Clock
	fs       *memfs.FS
	images   *fakeImages
	replicas *fakeReplicas
	sessions *Sessions
}

var rigTopic = uuid.UUID{15: 200}

// newRig has one topic "t" with so many partitions, each led by this broker with
// the given in-sync replicas.
func newRig(t *testing.T, partitions int32, isrSet ...int32) *rig {
	r := &rig{T: t, clock: clock.System{}, fs: memfs.New(), images: &fakeImages{changed: make(chan struct{})}, replicas: &fakeReplicas{byKey: map[partKey]*partition.Replica{}}}
	r.sessions = NewSessions(r.clock, 10)
	topic := records.NewTopicRecord()
	topic.Name, topic.TopicID = "t", rigTopic
	changes := []records.Versioned{{Record: &topic}}
	for p := range partitions {
		rec := records.NewPartitionRecord()
		rec.PartitionID, rec.TopicID, rec.Replicas, rec.ISR, rec.Leader, rec.LeaderEpoch, rec.PartitionEpoch = p, rigTopic, []int32{1, 2}, isrSet, 1, 4, 4
		changes = append(changes, records.Versioned{Record: &rec})
		r.open(p).Lead(isr.Assignment{Replicas: []int32{1, 2}, ISR: isrSet, LeaderEpoch: 4, PartitionEpoch: 4}, r.clock.Now())
	}
	r.change(changes...)
	return r
}

func (r *rig) change(list ...records.Versioned) {
	r.Helper()
	img := r.images.Image()
	d := image.NewDelta(img)
	for _, v := range list {
		if err := d.Replay(v); err != nil {
			r.Fatal(err)
		}
	}
	r.images.publish(d.Apply(image.Provenance{Offset: img.Provenance.Offset + 1}))
}

func (r *rig) open(p int32) *partition.Replica {
	r.Helper()
	if err := r.fs.MkdirAll("/data", 0o755); err != nil {
		r.Fatal(err)
	}
	log, err := storage.Open(storage.Options{
		FS: r.fs, Dir: "/data/t-" + string(rune('0'+p)), Topic: "t", Partition: p, HadCleanShutdown: true, Clock: r.clock, Logger: slog.New(slog.DiscardHandler),
		Config: &config.Topic{
			SegmentBytes: 1 << 20, SegmentMs: math.MaxInt64, RetentionMs: -1, RetentionBytes: -1, IndexIntervalBytes: 4096, SegmentIndexBytes: 1 << 20,
			FlushMessages: math.MaxInt64, FlushMs: math.MaxInt64, CleanupDelete: true, MaxMessageBytes: 1 << 20, FileDeleteDelayMs: 60_000, MinInsyncReplicas: 1,
			CompressionType: "producer", TimestampType: "CreateTime", TimestampBeforeMaxMs: math.MaxInt64, TimestampAfterMaxMs: math.MaxInt64,
		},
	})
	if err != nil {
		r.Fatal(err)
	}
	replica := partition.New(partition.Options{
		Topic: "t", TopicID: rigTopic, ID: p, Self: 1, Log: log, Clock: r.clock, Buffers: new(batch.Pool), Failed: func(*partition.Replica, error) {},
	})
	r.replicas.byKey[partKey{id: rigTopic, partition: p}] = replica
	return replica
}

func (r *rig) replica(p int32) *partition.Replica {
	return r.replicas.byKey[partKey{id: rigTopic, partition: p}]
}

// append writes one record as the leader.
func (r *rig) append(p int32) {
	r.Helper()
	if _, err := r.replica(p).AppendAsLeader(partition.AppendRequest{Records: records1(), Version: 9, Acks: partition.AcksLeader}); err != nil {
		r.Fatal(err)
	}
}

// follow lets follower 2 fetch from an offset.
func (r *rig) follow(p int32, offset int64) {
	r.replica(p).Fetched(isr.Fetch{Follower: 2, LeaderEpoch: r.replica(p).Status().LeaderEpoch, BrokerEpoch: -1, Offset: offset, Now: r.clock.Now()})
}

// hole writes a batch as a follower's log holds it after compaction.
func (r *rig) hole(p int32, base int64, lastDelta int32) {
	r.Helper()
	o := batch.NewOptions()
	o.BaseOffset, o.LeaderEpoch = base, 4
	b := batch.NewBuilder(o)
	b.AppendAt(lastDelta, 1000, []byte("k"), []byte("v"), nil)
	if _, err := r.replica(p).Log().Append(b.Build(), storage.Append{LeaderEpoch: 4, Origin: producer.OriginReplication, TxnVersion: -1}); err != nil {
		r.Fatal(err)
	}
}

func records1() []byte {
	b := batch.NewBuilder(batch.NewOptions())
	b.Append(1000, []byte("k"), []byte("v"), nil)
	return b.Build()
}

func (r *rig) fetcher() *Fetch {
	return &Fetch{Images: r.images, Replicas: r.replicas, Sessions: r.sessions, Clock: r.clock, Buffers: new(batch.Pool), MaxBytes: 50 << 20}
}

func (r *rig) call() *Call { return &Call{Conn: new(network.Conn)} }

// fetch runs one fetch to its end.
func (r *rig) fetch(ctx context.Context, q fetchQuery) *wire.FetchResponse {
	r.Helper()
	res, ok := r.fetcher().Handle(ctx, r.call(), q.request()).(*wire.FetchResponse)
	if !ok {
		r.Fatal("not a fetch answer")
	}
	return res
}

type fakeImages struct {
	mu      sync.Mutex
	img     *image.Image
	changed chan struct{}
}

func (f *fakeImages) Image() *image.Image {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.img == nil {
		f.img = image.New()
	}
	return f.img
}

func (f *fakeImages) publish(img *image.Image) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.img = img
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *fakeImages) WaitFor(ctx context.Context, ok func(*image.Image) bool) *image.Image {
	for {
		f.mu.Lock()
		img, c := f.img, f.changed
		f.mu.Unlock()
		if ok(img) {
			return img
		}
		select {
		case <-c:
		case <-ctx.Done():
			return img
		}
	}
}

type fakeReplicas struct {
	mu    sync.Mutex
	byKey map[partKey]*partition.Replica
}

func (f *fakeReplicas) Replica(topic uuid.UUID, p int32) (*partition.Replica, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r := f.byKey[partKey{id: topic, partition: p}]; r != nil {
		return r, nil
	}
	return nil, &replication.NotHostedError{Topic: topic, Partition: p}
}

func (f *fakeReplicas) drop(topic uuid.UUID, p int32) {
	f.mu.Lock()
	r := f.byKey[partKey{id: topic, partition: p}]
	delete(f.byKey, partKey{id: topic, partition: p})
	f.mu.Unlock()
	r.Retire(&replication.NotHostedError{Topic: topic, Partition: p})
}

// ms is a duration of a request field.
func ms(d time.Duration) int32 { return int32(d / time.Millisecond) }
