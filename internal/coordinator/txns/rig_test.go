package txns

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/batch"
	"weir/internal/clock"
	"weir/internal/config"
	"weir/internal/image"
	"weir/internal/isr"
	"weir/internal/partition"
	"weir/internal/records"
	"weir/internal/storage"
	"weir/internal/txn"
	"weir/internal/uuid"
	"weir/internal/vfs/memfs"
)

// rig is a broker (node 1) with one partition of __transaction_state on a file
// system in memory, in a bubble of synctest. Topic t has partition 0 here and 1 on
// node 2.
type rig struct {
	*testing.T
	ctx     context.Context
	fs      *memfs.FS
	minISR  int32
	replica *partition.Replica
	c       *Coordinator
	text    bytes.Buffer
	epoch   int32
	nextID  int64

	mu      sync.Mutex
	image   *image.Image
	refusal map[int32]int16 // code by partition of t that the next markers get, once
	down    bool            // node 2 answers nothing
	gate    chan struct{}   // when set, node 2 does nothing before it is closed
	markers []string        // that were written
	asked   int             // requests of node 2
}

var stateID, topicID = uuid.UUID{15: 98}, uuid.UUID{15: 97}

func inRig(t *testing.T, f func(r *rig)) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t, ctx: context.Background(), fs: memfs.New(), minISR: 1, epoch: 3, nextID: 1000, refusal: map[int32]int16{}}
		if err := r.fs.MkdirAll("/data", 0o755); err != nil {
			t.Fatal(err)
		}
		r.setImage(1, 2)
		r.open()
		r.c = r.coordinator()
		defer func() { r.c.Stop(); synctest.Wait() }()
		f(r)
	})
}

// setImage has t-0 and t-1 led by nodes; none: the topic does not exist.
func (r *rig) setImage(leaders ...int32) {
	r.Helper()
	d := image.NewDelta(image.New())
	replay := func(m records.Metadata, v int16) {
		if err := d.Replay(records.Versioned{Record: m, Version: v}); err != nil {
			r.Fatal(err)
		}
	}
	for id := int32(1); id <= 2; id++ {
		b := records.NewRegisterBrokerRecord()
		b.BrokerID, b.Fenced = id, false
		replay(&b, 3)
	}
	level := records.NewFeatureLevelRecord()
	level.Name, level.FeatureLevel = image.FeatureTransaction, 2
	replay(&level, 0)
	topic := func(name string, id uuid.UUID, leaders ...int32) {
		t := records.NewTopicRecord()
		t.Name, t.TopicID = name, id
		replay(&t, 0)
		for p, leader := range leaders {
			x := records.NewPartitionRecord()
			x.PartitionID, x.TopicID, x.Replicas, x.ISR, x.Leader = int32(p), id, []int32{1, 2}, []int32{1, 2}, leader
			replay(&x, 0)
		}
	}
	topic(Topic, stateID, 1)
	if len(leaders) > 0 {
		topic("t", topicID, leaders...)
	}
	r.mu.Lock()
	r.image = d.Apply(image.Provenance{})
	r.mu.Unlock()
}

func (r *rig) open() {
	log, err := storage.Open(storage.Options{
		FS: r.fs, Dir: "/data/" + Topic + "-0", Topic: Topic, HadCleanShutdown: true, Clock: clock.System{}, Logger: slog.New(slog.DiscardHandler),
		Config: &config.Topic{
			SegmentBytes: 1 << 20, SegmentMs: math.MaxInt64, RetentionMs: -1, RetentionBytes: -1, IndexIntervalBytes: 4096, SegmentIndexBytes: 1 << 20,
			FlushMessages: math.MaxInt64, FlushMs: math.MaxInt64, CleanupCompact: true, MaxMessageBytes: 1 << 20, FileDeleteDelayMs: 60_000, MinInsyncReplicas: r.minISR,
			CompressionType: "uncompressed", TimestampType: "CreateTime", TimestampBeforeMaxMs: math.MaxInt64, TimestampAfterMaxMs: math.MaxInt64,
		},
	})
	if err != nil {
		r.Fatal(err)
	}
	r.replica = partition.New(partition.Options{
		Topic: Topic, TopicID: stateID, Self: 1, Log: log, Clock: clock.System{}, Buffers: new(batch.Pool), Failed: func(*partition.Replica, error) {},
	})
}

func (r *rig) coordinator() *Coordinator {
	return New(Options{
		Config: &txn.Config{MaxTimeout: 15 * time.Minute, AbortEvery: 10 * time.Second, Expiration: 24 * time.Hour, ExpireEvery: time.Hour},
		NodeID: 1, Partitions: 1, LoadBuffer: 100, Timeout: 5 * time.Second,
		Image: func() *image.Image { r.mu.Lock(); defer r.mu.Unlock(); return r.image },
		NewID: func(context.Context) (int64, error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.nextID++
			return r.nextID - 1, nil
		},
		Connect: func(int32, string) Node { return node2{r} },
		Write: func(_ context.Context, q *kmsg.WriteTxnMarkersRequest) *kmsg.WriteTxnMarkersResponse {
			return r.write(1, q)
		},
		Buffers: new(batch.Pool), Clock: clock.System{}, Logger: slog.New(slog.NewTextHandler(&r.text, nil)),
	})
}

// node2 is the other broker.
type node2 struct{ r *rig }

func (n node2) Close() {}

func (n node2) Do(_ context.Context, req kmsg.Request) (kmsg.Response, error) {
	n.r.mu.Lock()
	n.r.asked++
	down, gate := n.r.down, n.r.gate
	n.r.mu.Unlock()
	if gate != nil {
		<-gate
	}
	if down {
		return nil, fmt.Errorf("node 2 is down")
	}
	return n.r.write(2, req.(*kmsg.WriteTxnMarkersRequest)), nil
}

// write is the partitions' side of markers.
func (r *rig) write(node int32, q *kmsg.WriteTxnMarkersRequest) *kmsg.WriteTxnMarkersResponse {
	r.mu.Lock()
	defer r.mu.Unlock()
	res := q.ResponseKind().(*kmsg.WriteTxnMarkersResponse)
	for _, m := range q.Markers {
		rm := kmsg.NewWriteTxnMarkersResponseMarker()
		rm.ProducerID = m.ProducerID
		for _, t := range m.Topics {
			rt := kmsg.NewWriteTxnMarkersResponseMarkerTopic()
			rt.Topic = t.Topic
			for _, p := range t.Partitions {
				rp := kmsg.NewWriteTxnMarkersResponseMarkerTopicPartition()
				rp.Partition, rp.ErrorCode = p, r.refusal[p]
				delete(r.refusal, p)
				if rp.ErrorCode == 0 {
					r.markers = append(r.markers, fmt.Sprintf("%s-%d@%d %d/%d commit=%v coordinator=%d v%d", t.Topic, p, node, m.ProducerID, m.ProducerEpoch, m.Committed, m.CoordinatorEpoch, m.TransactionVersion))
				}
				rt.Partitions = append(rt.Partitions, rp)
			}
			rm.Topics = append(rm.Topics, rt)
		}
		res.Markers = append(res.Markers, rm)
	}
	return res
}

// lead makes this broker lead the partition, with an ISR.
func (r *rig) lead(isrSet ...int32) {
	r.Helper()
	r.epoch++
	r.replica.Lead(isr.Assignment{Replicas: []int32{1, 2}, ISR: isrSet, LeaderEpoch: r.epoch, PartitionEpoch: r.epoch}, time.Now())
	r.c.Leads(r.replica, r.epoch)
	synctest.Wait()
}

// reload has the coordinator load its partition once more, in the same epoch:
// somebody else has written to it.
func (r *rig) reload() {
	r.Helper()
	was, err := r.c.rt.Epoch(0)
	if err != nil {
		r.Fatal(err)
	}
	b := batch.NewBuilder(batch.NewOptions())
	foreign := txn.Record{ID: "foreign", Txn: &txn.Txn{ID: "foreign", ProducerID: 77, LastEpoch: txn.NoEpoch, Previous: 77, Next: txn.NoProducerID, TimeoutMs: 1000, StartMs: -1, UpdateMs: time.Now().UnixMilli()}}
	key, value := foreign.Append(nil)
	b.Append(time.Now().UnixMilli(), key, value, nil)
	if _, err := r.replica.AppendAsLeader(partition.AppendRequest{Records: b.Build(), Version: 12, Acks: partition.AcksAll}); err != nil {
		r.Fatal(err)
	}
	if _, err := r.init("other", txn.NoIdentity()); err == nil {
		r.Fatal("the coordinator has not seen that somebody else has written")
	}
	time.Sleep(200 * time.Millisecond)
	if now, err := r.c.rt.Epoch(0); err != nil || now != was {
		r.Fatalf("epoch %d, was %d: %v", now, was, err)
	}
	if s := r.status("foreign"); s != "Empty" {
		r.Fatal(s)
	}
}

// crash is another process that finds only the log.
func (r *rig) crash() {
	r.Helper()
	r.c.Stop()
	synctest.Wait()
	r.c = r.coordinator()
	r.lead(1)
}

func (r *rig) init(id string, was txn.Identity) (txn.Identity, *kerr.Error) {
	return r.c.Init(r.ctx, id, 60_000, was)
}

// begun is a producer with partitions 0 and 1 of t in its transaction.
func (r *rig) begun(id string) txn.Identity {
	r.Helper()
	is, err := r.init(id, txn.NoIdentity())
	if err != nil {
		r.Fatal(err)
	}
	if err := r.c.Add(r.ctx, id, is.ProducerID, is.Epoch, both, 2); err != nil {
		r.Fatal(err)
	}
	return is
}

var both = []txn.TopicPartition{{Topic: "t", Partition: 0}, {Topic: "t", Partition: 1}}

func (r *rig) status(id string) string {
	r.Helper()
	d, err := r.c.Describe(r.ctx, id)
	if err != nil {
		return err.Message
	}
	return d.Status.String()
}

// written takes the markers that were written since.
func (r *rig) written() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.markers
	r.markers = nil
	return out
}

func (r *rig) refuse(p int32, err *kerr.Error) {
	r.mu.Lock()
	r.refusal[p] = err.Code
	r.mu.Unlock()
}
