package coordinator

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/batch"
	"weir/internal/clock"
	"weir/internal/config"
	"weir/internal/group"
	"weir/internal/group/classic"
	"weir/internal/image"
	"weir/internal/isr"
	"weir/internal/partition"
	"weir/internal/rng"
	"weir/internal/storage"
	"weir/internal/storage/producer"
	"weir/internal/uuid"
	"weir/internal/vfs/memfs"
)

// rig is a broker (node 1) with replicas of __consumer_offsets on a file system
// in memory, in a bubble of synctest: time passes when nobody works.
type rig struct {
	*testing.T
	ctx    context.Context
	fs     *memfs.FS
	max    int32 // max.message.bytes
	minISR int32
	parts  map[int32]*partition.Replica
	groups *Groups
	text   bytes.Buffer
	epoch  int32
}

var offsetsID = uuid.UUID{15: 99}

// inRig runs a test with one partition of the given ISR, which this broker leads.
func inRig(t *testing.T, f func(r *rig)) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer func() { r.groups.Stop(); synctest.Wait() }()
		f(r)
	})
}

func newRig(t *testing.T) *rig {
	r := &rig{T: t, ctx: context.Background(), fs: memfs.New(), max: 1 << 20, minISR: 1, parts: map[int32]*partition.Replica{}, epoch: 3}
	if err := r.fs.MkdirAll("/data", 0o755); err != nil {
		t.Fatal(err)
	}
	r.groups = r.coordinator()
	return r
}

// coordinator is a new one, as after a restart of the process.
func (r *rig) coordinator() *Groups {
	return NewGroups(GroupsOptions{
		Config: &group.Config{
			Classic: classic.Config{MaxSize: 10, InitialDelay: time.Second}, MinSession: time.Second, MaxSession: time.Hour,
			Retention: time.Hour, CheckEvery: 10 * time.Minute, MaxMetadata: 4096,
		},
		Partitions: 1, Timeout: 5 * time.Second, LoadBuffer: 100, Image: image.New,
		Buffers: new(batch.Pool), Clock: clock.System{}, Rand: rng.New(1), Logger: slog.New(slog.NewTextHandler(&r.text, nil)),
	})
}

func (r *rig) replica(id int32) *partition.Replica {
	r.Helper()
	if p := r.parts[id]; p != nil {
		return p
	}
	log, err := storage.Open(storage.Options{
		FS: r.fs, Dir: fmt.Sprintf("/data/%s-%d", OffsetsTopic, id), Topic: OffsetsTopic, Partition: id, HadCleanShutdown: true,
		Clock: clock.System{}, Logger: slog.New(slog.DiscardHandler),
		Config: &config.Topic{
			SegmentBytes: 1 << 20, SegmentMs: math.MaxInt64, RetentionMs: -1, RetentionBytes: -1, IndexIntervalBytes: 4096, SegmentIndexBytes: 1 << 20,
			FlushMessages: math.MaxInt64, FlushMs: math.MaxInt64, CleanupCompact: true, MaxMessageBytes: r.max, FileDeleteDelayMs: 60_000, MinInsyncReplicas: r.minISR,
			CompressionType: "producer", TimestampType: "CreateTime", TimestampBeforeMaxMs: math.MaxInt64, TimestampAfterMaxMs: math.MaxInt64,
		},
	})
	if err != nil {
		r.Fatal(err)
	}
	p := partition.New(partition.Options{
		Topic: OffsetsTopic, TopicID: offsetsID, ID: id, Self: 1, Log: log, Clock: clock.System{}, Buffers: new(batch.Pool), Failed: func(*partition.Replica, error) {},
	})
	r.parts[id] = p
	return p
}

// lead makes this broker lead partition 0 with an ISR.
func (r *rig) lead(isrSet ...int32) {
	r.Helper()
	r.epoch++
	r.replica(0).Lead(isr.Assignment{Replicas: []int32{1, 2}, ISR: isrSet, LeaderEpoch: r.epoch, PartitionEpoch: r.epoch}, time.Now())
	r.groups.Leads(r.replica(0), r.epoch)
	synctest.Wait()
}

// follow makes another broker lead.
func (r *rig) follow() {
	r.epoch++
	r.replica(0).Follow(2, r.epoch, r.epoch)
	r.groups.LeadsNot(r.replica(0))
	synctest.Wait()
}

// fetched lets follower 2 fetch from an offset: it has all below.
func (r *rig) fetched(offset int64) {
	r.replica(0).Fetched(isr.Fetch{Follower: 2, LeaderEpoch: r.replica(0).Status().LeaderEpoch, BrokerEpoch: -1, Offset: offset, Now: time.Now()})
	synctest.Wait()
}

// stored puts a batch into the log as a follower's fetch does.
func (r *rig) stored(o batch.Options, recs ...group.Record) {
	r.Helper()
	o.BaseOffset, o.LeaderEpoch = r.replica(0).Log().LogEnd(), r.epoch
	b := batch.NewBuilder(o)
	for i := range recs {
		if m := recs[i].Marker; m != nil {
			key, value := marker(m.Commit)
			b.Append(1000, key, value, nil)
			continue
		}
		key, value := recs[i].Append(nil)
		b.Append(1000, key, value, nil)
	}
	if _, err := r.replica(0).Log().Append(b.Build(), storage.Append{LeaderEpoch: r.epoch, Origin: producer.OriginReplication, TxnVersion: -1}); err != nil {
		r.Fatal(err)
	}
}

// marker is a control record that ends a transaction.
func marker(commit bool) (key, value []byte) {
	kind := byte(0)
	if commit {
		kind = 1
	}
	return []byte{0, 0, 0, kind}, []byte{0, 0, 0, 0, 0, 0}
}

func offsetOf(g, topic string, p int32, n int64) group.Record {
	return group.Record{Offset: &group.OffsetRecord{
		Key: group.OffsetKey{Group: g, TopicPartition: group.TopicPartition{Topic: topic, Partition: p}}, Value: &group.Offset{Offset: n, LeaderEpoch: -1, ExpireMs: -1},
	}}
}

func commitRequest(offsets ...int64) *kmsg.OffsetCommitRequest {
	q := kmsg.NewPtrOffsetCommitRequest()
	q.Version, q.Group = 9, "g"
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic = "t"
	for i, n := range offsets {
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset = int32(i), n
		t.Partitions = append(t.Partitions, p)
	}
	q.Topics = append(q.Topics, t)
	return q
}

// commit stores offsets and returns the code of the first row.
func (r *rig) commit(offsets ...int64) error {
	res := r.groups.Commit(r.ctx, commitRequest(offsets...))
	return kerr.ErrorForCode(res.Topics[0].Partitions[0].ErrorCode)
}

// offset is a committed offset; -1 for none.
func (r *rig) offset(p int32, stable bool) (int64, error) {
	q := kmsg.NewOffsetFetchRequestGroup()
	q.Group = "g"
	t := kmsg.NewOffsetFetchRequestGroupTopic()
	t.Topic, t.Partitions = "t", []int32{p}
	q.Topics = append(q.Topics, t)
	res, err := r.groups.Fetch(r.ctx, &q, stable)
	if err != nil {
		return 0, err
	}
	row := res.Topics[0].Partitions[0]
	return row.Offset, kerr.ErrorForCode(row.ErrorCode)
}

func (r *rig) wantOffset(p int32, want int64) {
	r.Helper()
	if got, err := r.offset(p, false); err != nil || got != want {
		r.Errorf("offset of t-%d is %d, %v; want %d", p, got, err, want)
	}
}

// later runs a request in its own goroutine; its answer comes into the channel.
func later[T any](f func() T) <-chan T {
	c := make(chan T, 1)
	go func() { c <- f() }()
	synctest.Wait()
	return c
}

// answered takes an answer that must be there.
func answered[T any](r *rig, what string, c <-chan T) (v T) {
	r.Helper()
	select {
	case v = <-c:
	default:
		r.Fatalf("%s has no answer yet", what)
	}
	return v
}

// unanswered is that none is there.
func unanswered[T any](r *rig, what string, c <-chan T) {
	r.Helper()
	select {
	case v := <-c:
		r.Fatalf("%s was answered: %+v", what, v)
	default:
	}
}
