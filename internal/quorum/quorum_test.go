package quorum

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/clock"
	"weir/internal/config"
	"weir/internal/controller"
	"weir/internal/image"
	"weir/internal/kraft"
	"weir/internal/metalog"
	"weir/internal/records"
	"weir/internal/rng"
	"weir/internal/statemachine"
	"weir/internal/uuid"
	"weir/internal/vfs/memfs"
)

const cluster = "4L6g3nShT-eMCtK--X86sw"

var dir = uuid.UUID{15: 0xaa, 0: 1}

// node is a Node on a file system in memory, running inside a synctest bubble.
type node struct {
	*Node
	log    *metalog.Log
	cancel context.CancelFunc
	done   chan error
}

// start opens the metadata log on fs and runs a Node; seen is told every image.
func start(t *testing.T, fs *memfs.FS, snapshotBytes int64, subs ...Subscriber) *node {
	t.Helper()
	static, _, err := config.Load("test", []byte("process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=C\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	log, err := metalog.Open(metalog.Options{
		FS: fs, Dir: "/meta", Self: kraft.Replica{ID: 1, Dir: dir},
		Voters:   []kraft.Voter{{Replica: kraft.Replica{ID: 1}}},
		Timeouts: kraft.Timeouts{ElectionMs: 1000, FetchMs: 2000, RetryMs: 20, MaxWaitMs: 500, MaxFetch: 1 << 20, BackoffMaxMs: 1000},
		Limits:   metalog.Limits{SegmentBytes: 8 << 20, SegmentMs: 1 << 40, RetentionBytes: -1, RetentionMs: -1, MaxBatchBytes: 8 << 20},
		Clock:    clock.System{}, Rand: rng.New(1), Logger: quiet,
	})
	if err != nil {
		t.Fatal(err)
	}
	level := records.NewFeatureLevelRecord()
	level.Name, level.FeatureLevel = "metadata.version", image.MetadataLatest
	core := controller.New(controller.Options{
		NodeID: 1, ClusterID: cluster, BrokerHere: true, SessionTimeoutMs: 9000, NoOpIntervalMs: 500,
		DefaultPartitions: 1, DefaultReplicationFactor: 1,
		Supported: []image.FeatureRange{{Name: "metadata.version", Min: 7, Max: image.MetadataLatest}, {Name: image.FeatureKRaft, Max: 1}},
		Bootstrap: []records.Versioned{{Record: &level}}, Config: NewConfigRules(static),
	})
	n := &node{log: log, done: make(chan error, 1), Node: New(Options{
		NodeID: 1, Log: log, Core: core, Rand: rng.New(2), Clock: clock.System{}, Logger: quiet, SnapshotBytes: snapshotBytes,
	})}
	for _, s := range subs {
		n.Subscribe(s)
	}
	var ctx context.Context
	ctx, n.cancel = context.WithCancel(t.Context())
	go func() { n.done <- n.Run(ctx) }()
	return n
}

// stop ends the node as a clean stop does.
func (n *node) stop(t *testing.T) {
	t.Helper()
	n.cancel()
	if err := <-n.done; err != nil {
		t.Errorf("run: %v", err)
	}
	if err := n.log.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

func newDisk(t *testing.T) *memfs.FS {
	t.Helper()
	fs := memfs.New()
	if err := fs.MkdirAll("/meta", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := fs.SyncDir("/"); err != nil {
		t.Fatal(err)
	}
	return fs
}

// register brings the broker of this node up, and returns its epoch.
func (n *node) register(t *testing.T, incarnation byte) int64 {
	t.Helper()
	req := kmsg.NewPtrBrokerRegistrationRequest()
	req.Version, req.BrokerID, req.ClusterID, req.PreviousBrokerEpoch = 4, 1, cluster, -1
	req.IncarnationID = uuid.UUID{15: incarnation}
	req.LogDirs = [][16]byte{dir}
	f := kmsg.NewBrokerRegistrationRequestFeature()
	f.Name, f.MinSupportedVersion, f.MaxSupportedVersion = "metadata.version", 7, image.MetadataLatest
	req.Features = append(req.Features, f)
	res := do[*kmsg.BrokerRegistrationResponse](t, n, req)
	if res.ErrorCode != 0 {
		t.Fatalf("registration: error %d", res.ErrorCode)
	}
	beat := kmsg.NewPtrBrokerHeartbeatRequest()
	beat.BrokerID, beat.BrokerEpoch, beat.CurrentMetadataOffset = 1, res.BrokerEpoch, res.BrokerEpoch
	if res := do[*kmsg.BrokerHeartbeatResponse](t, n, beat); res.ErrorCode != 0 || res.IsFenced {
		t.Fatalf("heartbeat: %+v", res)
	}
	return res.BrokerEpoch
}

func do[R kmsg.Response](t *testing.T, n *node, req kmsg.Request) R {
	t.Helper()
	res, err := n.Do(t.Context(), req)
	if err != nil {
		t.Fatalf("%s: %v", kmsg.NameForKey(req.Key()), err)
	}
	return res.(R)
}

func (n *node) createTopic(t *testing.T, name string, partitions int32) {
	t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version = 7
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, partitions, 1
	req.Topics = append(req.Topics, topic)
	if res := do[*kmsg.CreateTopicsResponse](t, n, req); res.Topics[0].ErrorCode != 0 {
		t.Fatalf("create %s: error %d", name, res.Topics[0].ErrorCode)
	}
}

func names(img *image.Image) (out []string) {
	for t := range img.Topics() {
		out = append(out, fmt.Sprintf("%s/%d", t.Name, t.NumPartitions()))
	}
	return out
}

func TestAnsweredWritesSurviveRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := newDisk(t)
		n := start(t, fs, 1<<30)
		n.register(t, 1)
		n.createTopic(t, "a", 3)
		n.createTopic(t, "b", 1)
		// The power goes: what was answered is on the disk.
		crashed := fs.Crash(rng.New(3))
		n.stop(t)

		m := start(t, crashed, 1<<30)
		defer m.stop(t)
		img := m.Images().WaitFor(t.Context(), func(i *image.Image) bool { return i.NumTopics() == 2 })
		if got := names(img); !slices.Equal(got, []string{"a/3", "b/1"}) {
			t.Fatalf("after the crash: %v", got)
		}
		if epoch := m.register(t, 2); epoch <= 0 {
			t.Fatalf("broker epoch %d", epoch)
		}
	})
}

// recorder is a Subscriber that checks that deltas fit onto each other.
type recorder struct {
	t       *testing.T
	last    *image.Image
	created []string
	node    atomic.Pointer[node]
}

func (r *recorder) Apply(img *image.Image, d *image.Delta) {
	if r.last != nil && d.Base() != r.last {
		r.t.Error("a delta whose base is not the image before")
	}
	if n := r.node.Load(); n != nil && n.Images().Image() == img {
		r.t.Error("readers see an image before its subscribers have applied it")
	}
	for _, id := range d.ChangedTopics() {
		if t, ok := img.TopicByID(id); ok {
			r.created = append(r.created, t.Name)
		}
	}
	r.last = img
}

func TestSubscribersApplyBeforeReadersSee(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{t: t}
		n := start(t, newDisk(t), 1<<30, r)
		r.node.Store(n)
		n.register(t, 1)
		n.createTopic(t, "a", 1)
		n.Images().WaitFor(t.Context(), func(i *image.Image) bool { _, ok := i.Topic("a"); return ok })
		n.stop(t)
		if !slices.Contains(r.created, "a") {
			t.Fatalf("applied %v", r.created)
		}
	})
}

func TestSnapshotsAreWrittenAndLoaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := newDisk(t)
		n := start(t, fs, 4096)
		n.register(t, 1)
		for i := range 60 {
			n.createTopic(t, fmt.Sprintf("topic-%02d", i), 1)
		}
		time.Sleep(time.Second) // lets the snapshot goroutine finish: synctest's clock
		n.stop(t)
		list, err := fs.ReadDir("/meta/" + metalog.PartitionDir)
		if err != nil {
			t.Fatal(err)
		}
		snapshots := 0
		for _, e := range list {
			if strings.HasSuffix(e.Name(), ".checkpoint") {
				snapshots++
			}
		}
		if snapshots == 0 {
			t.Fatalf("no snapshot among %v", list)
		}
		m := start(t, fs, 1<<30)
		defer m.stop(t)
		img := m.Images().WaitFor(t.Context(), func(i *image.Image) bool { return i.NumTopics() == 60 })
		if img.NumTopics() != 60 {
			t.Fatalf("%d topics from snapshot and log", img.NumTopics())
		}
	})
}

// Many creations at once do not fit one batch: they become visible together all the same.
func TestLargeAtomicWriteIsATransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		partial := &partialWatcher{}
		n := start(t, newDisk(t), 1<<30, partial)
		defer n.stop(t)
		n.register(t, 1)
		n.createTopic(t, "big", 9000)
		n.Images().WaitFor(t.Context(), func(i *image.Image) bool { _, ok := i.Topic("big"); return ok })
		if !slices.Equal(partial.sizes, []int{9000}) {
			t.Fatalf("readers saw %v partitions", partial.sizes)
		}
	})
}

type partialWatcher struct{ sizes []int }

func (p *partialWatcher) Apply(img *image.Image, d *image.Delta) {
	for _, id := range d.ChangedTopics() {
		if t, ok := img.TopicByID(id); ok && t.Name == "big" {
			p.sizes = append(p.sizes, t.NumPartitions())
		}
	}
}

func TestNoControllerIsAnErrorInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, newDisk(t), 1<<30)
		n.register(t, 1)
		n.stop(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := n.Do(ctx, kmsg.NewPtrCreateTopicsRequest())
		if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, statemachine.ErrStopped) {
			t.Fatalf("got %v", err)
		}
	})
}

func TestWaitForEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newImages(func() int64 { return 0 })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		i.WaitFor(ctx, func(*image.Image) bool { return false })
		if took := time.Since(begun); took != time.Second {
			t.Fatalf("waited %v", took)
		}
	})
}

// TestKRaftVersionIsRaised: with everything else that a request asks for, or not at all, and never back.
func TestKRaftVersionIsRaised(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, newDisk(t), 1<<30)
		defer n.stop(t)
		update := func(how int8, validate bool, levels ...any) string {
			req := kmsg.NewPtrUpdateFeaturesRequest()
			req.Version, req.ValidateOnly = 2, validate
			for i := 0; i < len(levels); i += 2 {
				u := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
				u.Feature, u.MaxVersionLevel, u.UpgradeType = levels[i].(string), int16(levels[i+1].(int)), how
				req.FeatureUpdates = append(req.FeatureUpdates, u)
			}
			res := do[*kmsg.UpdateFeaturesResponse](t, n, req)
			_, level := n.log.Voters()
			if res.ErrorMessage == nil {
				return fmt.Sprintf("level %d", level)
			}
			return fmt.Sprintf("level %d, code %d, %s", level, res.ErrorCode, strings.TrimPrefix(*res.ErrorMessage, "The update failed for all features since the following feature had an error: "))
		}
		const up, down = 1, 3
		for _, x := range []struct{ got, want string }{
			{update(up, false, image.FeatureKRaft, 0), "level 0"},
			{update(up, false, image.FeatureKRaft, 2), "level 0, code 95, Invalid update version 2 for feature kraft.version. Local controller 1 only supports versions 0-1"},
			{update(up, false, image.FeatureKRaft, 1, "metadata.version", 99), "level 0, code 95, Invalid update version 99 for feature metadata.version. Local controller 1 only supports versions 7-30"},
			{update(up, true, image.FeatureKRaft, 1), "level 0"},
			{update(up, false, image.FeatureKRaft, 1, "metadata.version", int(image.MetadataLatest)), "level 1"},
			{update(up, false, image.FeatureKRaft, 1), "level 1"},
			{update(down, false, image.FeatureKRaft, 0), "level 1, code 95, Invalid update version 0 for feature kraft.version. Can't downgrade the version of this feature."},
			{update(up, false, image.FeatureKRaft, 0), "level 1, code 95, Invalid update version 0 for feature kraft.version. Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade."},
		} {
			if x.got != x.want {
				t.Errorf("got  %s\nwant %s", x.got, x.want)
			}
		}
		if set, _ := n.log.Voters(); set.Len() != 1 || set.Voters()[0].Dir != dir {
			t.Errorf("voters %s", set)
		}
	})
}
