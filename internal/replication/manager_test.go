package replication

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/batch"
	"weir/internal/checkpoint"
	"weir/internal/clock"
	"weir/internal/config"
	"weir/internal/image"
	"weir/internal/partition"
	"weir/internal/records"
	"weir/internal/rng"
	"weir/internal/storage"
	"weir/internal/storage/dirs"
	"weir/internal/uuid"
	"weir/internal/vfs"
	"weir/internal/vfs/memfs"
)

const (
	self    = int32(1)
	cluster = "4L6g3nShT-eMCtK--X86sw"
)

var (
	start = time.UnixMilli(1_700_000_000_000)
	dirA  = uuid.UUID{15: 0xaa, 0: 1}
	dirB  = uuid.UUID{15: 0xbb, 0: 1}
	t1    = uuid.UUID{15: 0x01, 0: 2}
	t2    = uuid.UUID{15: 0x02, 0: 2}
)

// env is a Manager over two directories in memory, and the image it was given.
type env struct {
	*Manager
	t     *testing.T
	fs    *memfs.FS
	clock *clock.Manual
	dirs  *dirs.Set
	img   *image.Image
	epoch int64 // of the broker's registration
	ctl   *fakeController
	files *storage.FileLimiter // nil: none
	disk  vfs.FS               // what the Manager sees of fs
}

// fakeController takes requests and answers what the test says.
type fakeController struct {
	assigned []*kmsg.AssignReplicasToDirsRequest
	altered  []*kmsg.AlterPartitionRequest
	answer   func(req kmsg.Request) (kmsg.Response, error)
}

func (f *fakeController) Do(_ context.Context, req kmsg.Request) (kmsg.Response, error) {
	switch q := req.(type) {
	case *kmsg.AssignReplicasToDirsRequest:
		f.assigned = append(f.assigned, q)
	case *kmsg.AlterPartitionRequest:
		f.altered = append(f.altered, q)
	}
	if f.answer != nil {
		return f.answer(req)
	}
	return req.ResponseKind(), nil
}

func newEnv(t *testing.T) *env {
	t.Helper()
	e := &env{t: t, fs: memfs.New(), clock: clock.NewManual(start), epoch: 9, ctl: &fakeController{}}
	e.disk, e.img = e.fs, registered(e.epoch)
	for path, id := range map[string]uuid.UUID{"/a": dirA, "/b": dirB} {
		if err := e.fs.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		meta := checkpoint.MetaProperties{Version: 1, ClusterID: cluster, NodeID: self, DirectoryID: id}
		if err := checkpoint.WriteMetaProperties(e.fs, path+"/"+checkpoint.MetaFile, meta); err != nil {
			t.Fatal(err)
		}
	}
	e.open()
	return e
}

// registered is the image of an empty cluster up to the broker's registration.
func registered(epoch int64) *image.Image {
	d := image.NewDelta(image.New())
	r := records.NewFeatureLevelRecord()
	r.Name, r.FeatureLevel = "metadata.version", 30
	if err := d.Replay(records.Versioned{Record: &r}); err != nil {
		panic(err)
	}
	return d.Apply(image.Provenance{Offset: epoch})
}

// open makes the Manager on what stands on the disk.
func (e *env) open() {
	e.t.Helper()
	static, _, err := config.Load("test", []byte("process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=C\n"), nil)
	if err != nil {
		e.t.Fatal(err)
	}
	defaults, err := config.NewEffective(static, nil, nil).Topic(nil)
	if err != nil {
		e.t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	e.dirs, err = dirs.Open(dirs.Options{
		FS: e.disk, LogDirs: []string{"/a", "/b"}, NodeID: self, Clock: e.clock, Rand: rng.New(1), Logger: quiet,
		Log: func(checkpoint.TopicPartition) storage.Options {
			return storage.Options{Config: defaults, Files: e.files}
		},
		Offline: func(d *dirs.Dir, logs []*storage.Log, err error) { e.DirOffline(d, logs, err) },
	})
	if err != nil {
		e.t.Fatal(err)
	}
	if err := e.dirs.Load(e.t.Context()); err != nil {
		e.t.Fatal(err)
	}
	e.Manager = New(Options{
		NodeID: self, FS: e.disk, Dirs: e.dirs, Clock: e.clock, Logger: quiet, Buffers: new(batch.Pool), Static: static,
		Controller: e.ctl, Epoch: func() int64 { return e.epoch }, MaxLag: time.Second,
	})
}

// replay applies records as one delta.
func (e *env) replay(recs ...records.Metadata) {
	e.t.Helper()
	d := image.NewDelta(e.img)
	for _, r := range recs {
		if err := d.Replay(records.Versioned{Record: r, Version: r.HighestVersion()}); err != nil {
			e.t.Fatal(err)
		}
	}
	e.img = d.Apply(image.Provenance{Offset: e.img.Provenance.Offset + int64(len(recs))})
	e.Apply(e.img, d)
}

func topic(name string, id uuid.UUID) records.Metadata {
	r := records.NewTopicRecord()
	r.Name, r.TopicID = name, id
	return &r
}

func part(id uuid.UUID, p, leader, epoch int32, dir uuid.UUID, replicas ...int32) records.Metadata {
	r := records.NewPartitionRecord()
	r.TopicID, r.PartitionID, r.Leader, r.LeaderEpoch = id, p, leader, epoch
	r.Replicas, r.ISR = replicas, replicas
	for range replicas {
		r.Directories = append(r.Directories, dir)
	}
	return &r
}

func remove(id uuid.UUID) records.Metadata {
	r := records.NewRemoveTopicRecord()
	r.TopicID = id
	return &r
}

func topicSetting(name, key, value string) records.Metadata {
	r := records.NewConfigRecord()
	r.ResourceType, r.ResourceName, r.Name, r.Value = image.ResourceTopic, name, key, &value
	return &r
}

func (e *env) get(id uuid.UUID, p int32) *partition.Replica {
	e.t.Helper()
	r, err := e.Replica(id, p)
	if err != nil {
		e.t.Fatal(err)
	}
	return r
}

func (e *env) produce(r *partition.Replica, value string) {
	e.t.Helper()
	b := batch.NewBuilder(batch.NewOptions())
	b.Append(start.UnixMilli(), nil, []byte(value), nil)
	if _, err := r.AppendAsLeader(partition.AppendRequest{Records: b.Build(), Version: 9, Acks: partition.AcksAll}); err != nil {
		e.t.Fatal(err)
	}
}

func TestReplicasFollowTheImage(t *testing.T) {
	e := newEnv(t)
	e.replay(topic("a", t1), part(t1, 0, 1, 0, dirA, 1), part(t1, 1, 2, 0, dirB, 2), topicSetting("a", "max.message.bytes", "123"))
	r := e.get(t1, 0)
	if s := r.Status(); !s.Leading || r.Log().Dir() != "/a/a-0" || r.Log().Config().MaxMessageBytes != 123 {
		t.Fatalf("%+v in %s, config %+v", s, r.Log().Dir(), r.Log().Config())
	}
	var elsewhere *NotHostedError
	if _, err := e.Replica(t1, 1); !errors.As(err, &elsewhere) {
		t.Fatalf("a partition of another broker: %v", err)
	}
	e.replay(topicSetting("a", "max.message.bytes", "456"))
	if got := r.Log().Config().MaxMessageBytes; got != 456 {
		t.Fatalf("max.message.bytes %d", got)
	}
	e.replay(remove(t1))
	if _, err := e.Replica(t1, 0); !errors.As(err, &elsewhere) {
		t.Fatalf("a deleted topic: %v", err)
	}
	if _, err := e.fs.Stat("/a/a-0"); err == nil {
		t.Fatal("the deleted topic's directory kept its name")
	}
	e.clock.Advance(2 * time.Minute)
	e.Tick(e.clock.Now())
	left, err := e.fs.ReadDir("/a")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range left {
		if d.IsDir() {
			t.Errorf("left behind: %s", d.Name())
		}
	}
}

func TestRecreatedTopicGetsAFreshLog(t *testing.T) {
	e := newEnv(t)
	e.replay(topic("a", t1), part(t1, 0, 1, 0, dirA, 1))
	e.produce(e.get(t1, 0), "old")
	e.replay(remove(t1), topic("a", t2), part(t2, 0, 1, 0, dirA, 1))
	if end := e.get(t2, 0).Log().LogEnd(); end != 0 {
		t.Fatalf("the new topic begins at %d", end)
	}
}

func TestLogsOfOtherTopicsAreKeptAsStrays(t *testing.T) {
	e := newEnv(t)
	e.replay(topic("a", t1), part(t1, 0, 1, 0, dirA, 1), topic("gone", t2), part(t2, 0, 1, 0, dirB, 1))
	e.produce(e.get(t2, 0), "keep me")
	if err := e.dirs.Close(9); err != nil {
		t.Fatal(err)
	}
	// The topic is deleted while this broker is down.
	e.img = registered(e.epoch)
	e.open()
	e.replay(topic("a", t1), part(t1, 0, 1, 1, dirA, 1))
	list, err := e.fs.ReadDir("/b")
	if err != nil {
		t.Fatal(err)
	}
	if !anyStray(list) {
		t.Fatalf("no stray in %v", list)
	}
	if _, err := e.Replica(t1, 0); err != nil {
		t.Fatal(err)
	}
}

// After a start the metadata log is read from its beginning. By the images of the
// past a log may seem unknown; nothing is done to it before the present is known.
func TestNothingHappensBeforeTheRegistrationIsApplied(t *testing.T) {
	e := newEnv(t)
	e.replay(topic("a", t1), part(t1, 0, 1, 0, dirA, 1))
	e.produce(e.get(t1, 0), "keep me")
	if err := e.dirs.Crash(); err != nil {
		t.Fatal(err)
	}
	e.img, e.epoch = image.New(), -1
	e.open()
	e.replay(topic("deleted-since", t2), part(t2, 0, 1, 0, dirB, 1))
	e.epoch = e.img.Provenance.Offset + 4
	e.replay(topic("a", t1), part(t1, 0, 1, 0, dirA, 1))
	if _, err := e.Replica(t1, 0); err == nil {
		t.Fatal("a replica was opened by an image of the past")
	}
	e.replay(remove(t2))
	e.replay(topicSetting("a", "retention.ms", "5")) // up to the registration
	if end := e.get(t1, 0).Log().LogEnd(); end != 1 {
		t.Fatalf("the log ends at %d", end)
	}
	for _, dir := range []string{"/a", "/b"} {
		list, err := e.fs.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		if anyStray(list) || slices.ContainsFunc(list, func(d fs.DirEntry) bool { return d.Name() == "deleted-since-0" }) {
			t.Errorf("%s holds %v", dir, list)
		}
	}
}

func anyStray[E interface{ Name() string }](list []E) bool {
	return slices.ContainsFunc(list, func(d E) bool {
		_, _, kind, err := storage.ParseDirName(d.Name())
		return err == nil && kind == storage.Stray
	})
}

func TestDirectoryIsToldToTheController(t *testing.T) {
	e := newEnv(t)
	e.replay(topic("a", t1), part(t1, 0, 1, 0, uuid.DirUnassigned, 1))
	e.ctl.answer = func(kmsg.Request) (kmsg.Response, error) { return nil, errors.New("no controller") }
	e.sendAssignments(t.Context())
	e.ctl.answer = nil
	e.sendAssignments(t.Context()) // sent again
	e.sendAssignments(t.Context()) // taken: silent
	if len(e.ctl.assigned) != 2 {
		t.Fatalf("%d requests", len(e.ctl.assigned))
	}
	req := e.ctl.assigned[1]
	_, d := e.dirs.Log(checkpoint.TopicPartition{Topic: "a", Partition: 0})
	if req.BrokerEpoch != 9 || len(req.Directories) != 1 || req.Directories[0].ID != d.ID || req.Directories[0].Topics[0].TopicID != t1 {
		t.Fatalf("told %+v", req)
	}
}

func TestFailedDirectoryTakesItsReplicasOffline(t *testing.T) {
	e := newEnv(t)
	e.replay(topic("a", t1), part(t1, 0, 1, 0, dirA, 1), part(t1, 1, 1, 0, dirB, 1))
	e.dirs.Fail(e.dirs.ByID(dirA), errors.New("i/o error"))
	var offline *OfflineError
	if _, err := e.Replica(t1, 0); !errors.As(err, &offline) {
		t.Fatalf("replica in the failed directory: %v", err)
	}
	e.produce(e.get(t1, 1), "the other directory goes on")
	if c := e.Counts(); c.Offline != 1 || c.Leaders != 1 {
		t.Fatalf("counts %+v", c)
	}
	// The image still assigns it to the failed directory: it is not made anew elsewhere.
	change := records.NewPartitionChangeRecord()
	change.TopicID, change.PartitionID, change.ISR = t1, 0, []int32{1}
	e.replay(&change)
	if _, err := e.Replica(t1, 0); !errors.As(err, &offline) {
		t.Fatalf("after another change: %v", err)
	}
}

func TestMoveBetweenDirectories(t *testing.T) {
	e := newEnv(t)
	e.replay(topic("a", t1), part(t1, 0, 1, 0, dirA, 1))
	r := e.get(t1, 0)
	for _, v := range []string{"1", "2", "3"} {
		e.produce(r, v)
	}
	for dir, want := range map[string]error{"/nowhere": kerr.LogDirNotFound, "/a": nil} {
		if err := e.Move("a", 0, dir); !errors.Is(err, want) {
			t.Errorf("to %s: %v", dir, err)
		}
	}
	if err := e.Move("a", 0, "/b"); err != nil {
		t.Fatal(err)
	}
	p := checkpoint.TopicPartition{Topic: "a", Partition: 0}
	if l, _ := e.dirs.FutureLog(p); l == nil {
		t.Fatal("no copy was begun")
	}
	if err := e.move(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if r.Log().Dir() != "/b/a-0" || r.Log().LogEnd() != 3 || r.Log().HighWatermark() != 3 {
		t.Fatalf("log %s ends at %d", r.Log().Dir(), r.Log().LogEnd())
	}
	e.produce(r, "4")
	e.sendAssignments(t.Context())
	if n := len(e.ctl.assigned); n != 1 || e.ctl.assigned[0].Directories[0].ID != dirB {
		t.Fatalf("%d assignments", n)
	}
	// A wish for a partition that is not here yet.
	if err := e.Move("b", 0, "/b"); err != nil {
		t.Fatal(err)
	}
	e.replay(topic("b", t2), part(t2, 0, 1, 0, uuid.DirUnassigned, 1))
	if dir := e.get(t2, 0).Log().Dir(); dir != "/b/b-0" {
		t.Fatalf("created in %s", dir)
	}
}

func TestMoveIsCancelled(t *testing.T) {
	e := newEnv(t)
	e.replay(topic("a", t1), part(t1, 0, 1, 0, dirA, 1))
	e.produce(e.get(t1, 0), "1")
	p := checkpoint.TopicPartition{Topic: "a", Partition: 0}
	if err := e.Move("a", 0, "/b"); err != nil {
		t.Fatal(err)
	}
	if err := e.Move("a", 0, "/a"); err != nil {
		t.Fatal(err)
	}
	if l, _ := e.dirs.FutureLog(p); l != nil {
		t.Fatalf("the copy in %s is still there", l.Dir())
	}
	if err := e.move(t.Context(), p); err != nil || e.get(t1, 0).Log().Dir() != "/a/a-0" {
		t.Fatal(err)
	}
}

// A leader that was elected uncleanly tells the controller that it has recovered.
func TestRecoveredLeaderReports(t *testing.T) {
	e := newEnv(t)
	r := part(t1, 0, 1, 3, dirA, 1).(*records.PartitionRecord)
	r.LeaderRecoveryState = 1
	e.replay(topic("a", t1), r)
	e.ctl.answer = func(req kmsg.Request) (kmsg.Response, error) {
		res := req.ResponseKind().(*kmsg.AlterPartitionResponse)
		rt := kmsg.NewAlterPartitionResponseTopic()
		rt.TopidID = t1
		rp := kmsg.NewAlterPartitionResponseTopicPartition()
		rp.LeaderID, rp.LeaderEpoch, rp.PartitionEpoch, rp.ISR = 1, 3, 1, []int32{1}
		rt.Partitions = append(rt.Partitions, rp)
		res.Topics = append(res.Topics, rt)
		return res, nil
	}
	e.alter(t.Context(), e.proposals.next(e.Manager))
	if len(e.proposals.open) != 0 || len(e.ctl.altered) != 1 {
		t.Fatalf("%d left, %d sent", len(e.proposals.open), len(e.ctl.altered))
	}
	if due := e.due(); len(due) != 0 {
		t.Fatalf("reports again: %+v", due[0].proposal)
	}
	if s := e.get(t1, 0).Status(); s.PartitionEpoch != 1 {
		t.Fatalf("partition epoch %d", s.PartitionEpoch)
	}
}

func TestUnansweredProposalIsSentAgain(t *testing.T) {
	e := newEnv(t)
	r := part(t1, 0, 1, 3, dirA, 1).(*records.PartitionRecord)
	r.LeaderRecoveryState = 1
	e.replay(topic("a", t1), r)
	e.ctl.answer = func(kmsg.Request) (kmsg.Response, error) { return nil, errors.New("lost") }
	e.alter(t.Context(), e.proposals.next(e.Manager))
	if again := e.proposals.next(e.Manager); len(again) != 1 || len(e.due()) != 0 {
		t.Fatalf("%d to send again; a second proposal must wait for the first", len(again))
	}
}

// A copy on its way to another directory goes with its topic: the next topic of
// that name must not find records of the old one in it.
func TestCopyGoesWithItsTopic(t *testing.T) {
	e := newEnv(t)
	p := checkpoint.TopicPartition{Topic: "a", Partition: 0}
	e.replay(topic("a", t1), part(t1, 0, 1, 0, dirA, 1))
	e.produce(e.get(t1, 0), "old")
	if err := e.Move("a", 0, "/b"); err != nil {
		t.Fatal(err)
	}
	e.replay(remove(t1), topic("a", t2), part(t2, 0, 1, 0, dirA, 1))
	if l, _ := e.dirs.FutureLog(p); l != nil {
		t.Fatalf("the copy is left in %s", l.Dir())
	}
	// The same when the topic is deleted and made anew while this broker is down.
	if err := e.Move("a", 0, "/b"); err != nil {
		t.Fatal(err)
	}
	if err := e.dirs.Close(9); err != nil {
		t.Fatal(err)
	}
	e.img = registered(e.epoch)
	e.open()
	e.replay(topic("a", t1), part(t1, 0, 1, 0, dirA, 1))
	if l, _ := e.dirs.FutureLog(p); l != nil {
		t.Fatalf("the copy is left in %s", l.Dir())
	}
}

// DeleteRecords may leave a log that starts inside a batch: it can be moved all
// the same, and the copy rolls as the topic asks.
func TestMoveOfALogThatStartsInsideABatch(t *testing.T) {
	e := newEnv(t)
	e.replay(topic("a", t1), part(t1, 0, 1, 0, dirA, 1))
	e.replay(topicSetting("a", "segment.bytes", "1048576"))
	r := e.get(t1, 0)
	value := strings.Repeat("v", 400_000)
	for range 3 {
		b := batch.NewBuilder(batch.NewOptions())
		for range 2 {
			b.Append(start.UnixMilli(), nil, []byte(value), nil)
		}
		if _, err := r.AppendAsLeader(partition.AppendRequest{Records: b.Build(), Version: 9, Acks: partition.AcksAll}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.DeleteRecords(1); err != nil {
		t.Fatal(err)
	}
	if err := e.Move("a", 0, "/b"); err != nil {
		t.Fatal(err)
	}
	if err := e.move(t.Context(), checkpoint.TopicPartition{Topic: "a", Partition: 0}); err != nil {
		t.Fatal(err)
	}
	l := r.Log()
	if l.Dir() != "/b/a-0" || l.LogStart() != 1 || l.LogEnd() != 6 || l.HighWatermark() != 6 {
		t.Fatalf("%s holds %d to %d", l.Dir(), l.LogStart(), l.LogEnd())
	}
	got, err := r.Read(partition.ReadRequest{Offset: 1, MaxBytes: 1 << 20, MinOne: true, CurrentLeaderEpoch: -1, LastFetchedEpoch: -1})
	if err != nil || got.Size == 0 {
		t.Fatalf("%d bytes, %v", got.Size, err)
	}
	got.Release()
	files, err := e.fs.ReadDir("/b/a-0")
	if err != nil {
		t.Fatal(err)
	}
	segments := 0
	for _, f := range files {
		if strings.HasSuffix(f.Name(), ".log") {
			segments++
		}
	}
	if segments != 3 {
		t.Errorf("%d segments", segments)
	}
}

// The copy may live long after the move: what was told of the log since it was
// begun holds for it too, and it is as durable as the log that goes away.
func TestMovedLogIsNoLess(t *testing.T) {
	e := newEnv(t)
	e.replay(topic("a", t1), part(t1, 0, 1, 0, dirA, 1))
	r := e.get(t1, 0)
	e.produce(r, "1")
	if err := e.Move("a", 0, "/b"); err != nil {
		t.Fatal(err)
	}
	e.replay(topicSetting("a", "max.message.bytes", "456"))
	change := records.NewPartitionChangeRecord()
	change.TopicID, change.PartitionID, change.Leader = t1, 0, 1
	e.replay(&change) // a new leader epoch, in which nothing is written
	epoch := r.Status().LeaderEpoch
	if err := e.move(t.Context(), checkpoint.TopicPartition{Topic: "a", Partition: 0}); err != nil {
		t.Fatal(err)
	}
	l := r.Log()
	if l.Dir() != "/b/a-0" || l.Config().MaxMessageBytes != 456 || l.RecoveryPoint() != 1 {
		t.Fatalf("%s, max.message.bytes %d, recovery point %d", l.Dir(), l.Config().MaxMessageBytes, l.RecoveryPoint())
	}
	if got := l.EndOffsetForEpoch(epoch); epoch != 1 || got != (storage.EpochEnd{Epoch: 1, EndOffset: 1}) {
		t.Fatalf("epoch %d ends at %+v", epoch, got)
	}
}

// An answer that fails late does not undo what a replica has done meanwhile.
func TestLateAssignmentDoesNotUndoANewerOne(t *testing.T) {
	e := newEnv(t)
	e.replay(topic("a", t1), part(t1, 0, 1, 0, uuid.DirUnassigned, 1))
	e.ctl.answer = func(kmsg.Request) (kmsg.Response, error) {
		e.assign(key{t1, 0}, dirB)
		return nil, errors.New("no controller")
	}
	e.sendAssignments(t.Context())
	e.ctl.answer = nil
	e.sendAssignments(t.Context())
	if last := e.ctl.assigned[len(e.ctl.assigned)-1]; len(last.Directories) != 1 || last.Directories[0].ID != dirB {
		t.Fatalf("told %+v", last.Directories)
	}
}

// A deleted topic's log goes even when it could not be used.
func TestOfflineReplicaGoesWithItsTopic(t *testing.T) {
	e := newEnv(t)
	e.replay(topic("a", t1), part(t1, 0, 1, 0, dirA, 1))
	r := e.get(t1, 0)
	e.report(r, &storage.CorruptError{Dir: r.Log().Dir(), File: "x", Err: errors.New("rotten")})
	if err := e.Move("a", 0, "/b"); !errors.Is(err, kerr.KafkaStorageError) {
		t.Fatalf("an offline replica is moved: %v", err)
	}
	e.replay(remove(t1))
	if l, _ := e.dirs.Log(checkpoint.TopicPartition{Topic: "a", Partition: 0}); l != nil {
		t.Fatal("the log is still there")
	}
	// An error that comes late does not bring a replica back.
	e.report(r, &storage.CorruptError{Dir: r.Log().Dir(), File: "x", Err: errors.New("rotten")})
	if c := e.Counts(); c.Offline != 0 {
		t.Fatalf("counts %+v", c)
	}
}

// Producers that have been silent are forgotten, after the time that is configured now.
func TestSilentProducersAreForgotten(t *testing.T) {
	e := newEnv(t)
	e.replay(topic("a", t1), part(t1, 0, 1, 0, dirA, 1))
	r := e.get(t1, 0)
	o := batch.NewOptions()
	o.ProducerID, o.ProducerEpoch, o.BaseSequence = 7, 0, 0
	b := batch.NewBuilder(o)
	b.Append(start.UnixMilli(), nil, []byte("x"), nil)
	if _, err := r.AppendAsLeader(partition.AppendRequest{Records: b.Build(), Version: 9, Acks: partition.AcksAll}); err != nil {
		t.Fatal(err)
	}
	every := time.Minute
	e.o.Intervals.Producers = every
	expire := func(now time.Time) {
		for _, d := range e.duties(start) {
			if d.every == every && !now.Before(d.next) {
				d.do(now)
			}
		}
	}
	if expire(start.Add(23 * time.Hour)); r.Log().ProducerCount() != 1 {
		t.Fatal("forgotten before its time")
	}
	value := "3600000"
	c := records.NewConfigRecord()
	c.ResourceType, c.Name, c.Value = image.ResourceBroker, "producer.id.expiration.ms", &value
	e.replay(&c)
	if expire(start.Add(time.Hour)); r.Log().ProducerCount() != 0 {
		t.Fatal("never forgotten")
	}
}
