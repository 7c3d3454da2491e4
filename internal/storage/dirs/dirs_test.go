package dirs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/internal/batch"
	"weir/internal/checkpoint"
	"weir/internal/clock"
	"weir/internal/config"
	"weir/internal/rng"
	"weir/internal/storage"
	"weir/internal/uuid"
	"weir/internal/vfs"
	"weir/internal/vfs/errfs"
	"weir/internal/vfs/memfs"
)

const cluster = "4L6g3nShT-eMCtK--X86sw"

// node is a machine with two log directories, /a and /b.
type node struct {
	t     *testing.T
	disk  *memfs.FS
	fs    *errfs.FS // disk with faults
	clock *clock.Manual
	log   strings.Builder
	set   *Set
	told  []string // what Options.Offline was told
}

func newNode(t *testing.T) *node {
	n := &node{t: t, disk: memfs.New(), clock: clock.NewManual(time.UnixMilli(1_700_000_000_000))}
	n.fs = errfs.Wrap(n.disk)
	for i, dir := range []string{"/a", "/b"} {
		n.format(dir, checkpoint.MetaProperties{Version: 1, ClusterID: cluster, NodeID: 1, DirectoryID: uuid.UUID{0: byte(i + 1), 15: 9}})
	}
	return n
}

func (n *node) format(dir string, m checkpoint.MetaProperties) {
	n.t.Helper()
	if err := errors.Join(n.disk.MkdirAll(dir, 0o755), n.disk.SyncDir("/")); err != nil {
		n.t.Fatal(err)
	}
	if err := checkpoint.WriteMetaProperties(n.disk, filepath.Join(dir, checkpoint.MetaFile), m); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) options() Options {
	return Options{
		FS: n.fs, LogDirs: []string{"/a", "/b"}, NodeID: 1, RecoveryThreads: 2, Clock: n.clock, Rand: rng.New(1),
		Logger: slog.New(slog.NewTextHandler(&n.log, nil)),
		Log: func(checkpoint.TopicPartition) storage.Options {
			return storage.Options{Config: &config.Topic{SegmentBytes: 1 << 20, SegmentMs: 1 << 40, RetentionMs: -1, RetentionBytes: -1,
				IndexIntervalBytes: 4096, SegmentIndexBytes: 1 << 20, FlushMessages: 1 << 40, FlushMs: 1 << 40, MaxMessageBytes: 1 << 20, FileDeleteDelayMs: 60_000}}
		},
		Offline: func(d *Dir, logs []*storage.Log, err error) {
			n.told = append(n.told, fmt.Sprintf("%s %d", d.Path, len(logs)))
		},
	}
}

// start opens and loads the node's directories.
func (n *node) start() *Set {
	n.t.Helper()
	s, err := Open(n.options())
	if err != nil {
		n.t.Fatal(err)
	}
	if err := s.Load(context.Background()); err != nil {
		n.t.Fatal(err)
	}
	n.set = s
	return s
}

func tp(topic string, partition int32) checkpoint.TopicPartition {
	return checkpoint.TopicPartition{Topic: topic, Partition: partition}
}

func (n *node) create(p checkpoint.TopicPartition, dirID uuid.UUID) (*storage.Log, *Dir) {
	n.t.Helper()
	l, d, err := n.set.Create(p, uuid.UUID{15: 77}, dirID, false)
	if err != nil {
		n.t.Fatal(err)
	}
	return l, d
}

func (n *node) append(l *storage.Log, values ...string) {
	n.t.Helper()
	b := batch.NewBuilder(batch.NewOptions())
	for _, v := range values {
		b.Append(n.clock.Now().UnixMilli(), nil, []byte(v), nil)
	}
	if _, err := l.Append(b.Build(), storage.Append{Assign: true, TxnVersion: -1}); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) ls(dir string) []string {
	n.t.Helper()
	list, err := n.disk.ReadDir(dir)
	if err != nil {
		n.t.Fatal(err)
	}
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

func (n *node) read(path string) string {
	n.t.Helper()
	data, err := vfs.ReadFile(n.disk, path)
	if err != nil {
		n.t.Fatal(err)
	}
	return string(data)
}

func TestCleanStopAndStart(t *testing.T) {
	n := newNode(t)
	s := n.start()
	if s.ClusterID() != cluster || s.PreviousBrokerEpoch() != -1 || len(s.Dirs()) != 2 {
		t.Errorf("cluster %s, epoch %d, dirs %v", s.ClusterID(), s.PreviousBrokerEpoch(), s.Dirs())
	}
	l, d := n.create(tp("foo", 0), uuid.Zero)
	if d.Path != "/a" {
		t.Errorf("made in %s", d.Path)
	}
	n.append(l, "x", "y", "z")
	l.SetHighWatermark(2)
	if err := s.Close(12); err != nil {
		t.Fatal(err)
	}
	if got := n.read("/a/.kafka_cleanshutdown"); got != `{"version":0,"brokerEpoch":12}` {
		t.Error(got)
	}
	if got := n.read("/a/recovery-point-offset-checkpoint"); got != "0\n1\nfoo 0 3\n" {
		t.Errorf("%q", got)
	}
	if got := n.read("/b/replication-offset-checkpoint"); got != "0\n0\n" {
		t.Errorf("%q", got)
	}

	s, err := Open(n.options())
	if err != nil {
		t.Fatal(err)
	}
	if e := s.PreviousBrokerEpoch(); e != 12 {
		t.Errorf("previous broker epoch %d", e)
	}
	if err := s.Load(context.Background()); err != nil {
		t.Fatal(err)
	}
	l, d = s.Log(tp("foo", 0))
	if l == nil || d.Path != "/a" || l.LogEnd() != 3 || l.HighWatermark() != 2 || l.RecoveryPoint() != 3 || l.TopicID() != (uuid.UUID{15: 77}) {
		t.Fatalf("%+v in %+v", l, d)
	}
	if slices.Contains(n.ls("/a"), checkpoint.CleanShutdownFile) {
		t.Error("the marker is still there")
	}
	if err := errors.Join(s.Close(-1), s.Close(-1)); err != nil {
		t.Error(err)
	}
	if !strings.Contains(n.log.String(), "clean shutdown, no recovery needed") {
		t.Error(n.log.String())
	}
}

func TestUncleanStart(t *testing.T) {
	n := newNode(t)
	s := n.start()
	l, _ := n.create(tp("foo", 0), uuid.Zero)
	n.append(l, "x", "y", "z")
	if err := l.Flush(-1); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.WriteRecoveryPoints(), s.WriteLogStarts(), s.WriteHighWatermarks()); err != nil {
		t.Fatal(err)
	}
	n.append(l, "not flushed")
	if err := s.Crash(); err != nil {
		t.Fatal(err)
	}
	s = n.start()
	l, _ = s.Log(tp("foo", 0))
	if l == nil || l.LogEnd() != 4 {
		t.Fatalf("%+v", l)
	}
	if !strings.Contains(n.log.String(), "no clean shutdown") {
		t.Error(n.log.String())
	}
	if s.PreviousBrokerEpoch() != -1 {
		t.Error("a crash has no broker epoch")
	}
}

func TestDifferentBrokerEpochsAreUnclean(t *testing.T) {
	n := newNode(t)
	for dir, epoch := range map[string]int64{"/a": 1, "/b": 2} {
		if err := checkpoint.WriteCleanShutdown(n.disk, dir+"/"+checkpoint.CleanShutdownFile, checkpoint.CleanShutdown{BrokerEpoch: epoch}); err != nil {
			t.Fatal(err)
		}
	}
	s, err := Open(n.options())
	if err != nil || s.PreviousBrokerEpoch() != -1 {
		t.Errorf("%v, %v", s, err)
	}
}

func TestLocks(t *testing.T) {
	n := newNode(t)
	s := n.start()
	_, err := Open(n.options())
	var locked *LockedError
	if !errors.As(err, &locked) || locked.Dir != "/a" || err.Error() != "log directory /a is already in use by another process" {
		t.Errorf("%v", err)
	}
	if err := s.Close(1); err != nil {
		t.Fatal(err)
	}
	// A refused start gives back the locks it took.
	held, err := n.disk.Lock("/b/.lock")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(n.options()); !errors.As(err, &locked) || locked.Dir != "/b" {
		t.Errorf("%v", err)
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	n.start()
}

func TestIdentity(t *testing.T) {
	good := checkpoint.MetaProperties{Version: 1, ClusterID: cluster, NodeID: 1, DirectoryID: uuid.UUID{1}}
	for _, c := range []struct {
		name   string
		change func(*checkpoint.MetaProperties)
		want   string
	}{
		{"cluster", func(m *checkpoint.MetaProperties) { m.ClusterID = "other" }, "/b/meta.properties: cluster.id is other, but this node has " + cluster},
		{"node", func(m *checkpoint.MetaProperties) { m.NodeID = 5 }, "/b/meta.properties: node.id is 5, but this node has 1"},
		{"reserved", func(m *checkpoint.MetaProperties) { m.DirectoryID = uuid.UUID{15: 2} }, "directory.id is AAAAAAAAAAAAAAAAAAAAAg"},
		{"twice", func(m *checkpoint.MetaProperties) { m.DirectoryID = uuid.UUID{15: 9, 0: 1} }, "in /a already"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t)
			m := good
			c.change(&m)
			n.format("/b", m)
			_, err := Open(n.options())
			var id *IdentityError
			if !errors.As(err, &id) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

func TestNotFormatted(t *testing.T) {
	n := newNode(t)
	if err := n.disk.Remove("/b/meta.properties"); err != nil {
		t.Fatal(err)
	}
	_, err := Open(n.options())
	var not *NotFormattedError
	if !errors.As(err, &not) || !slices.Equal(not.Dirs, []string{"/b"}) {
		t.Errorf("%v", err)
	}
	o := n.options()
	o.LogDirs = []string{"/x", "/y"}
	if _, err := Open(o); !errors.As(err, &not) || len(not.Dirs) != 2 {
		t.Errorf("%v", err)
	}
}

func TestMetadataDir(t *testing.T) {
	n := newNode(t)
	n.format("/m", checkpoint.MetaProperties{Version: 1, ClusterID: cluster, NodeID: 1, DirectoryID: uuid.UUID{5}})
	o := n.options()
	o.MetadataDir = "/m/"
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	if s.MetadataDir().Path != "/m" || len(s.Dirs()) != 2 {
		t.Errorf("%+v, %v", s.MetadataDir(), s.Dirs())
	}
	if err := s.Close(1); err != nil {
		t.Fatal(err)
	}
	// The old place of the metadata log must not be passed over.
	if err := n.disk.MkdirAll("/b/__cluster_metadata-0", 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(o); err == nil || !strings.Contains(err.Error(), "/b/__cluster_metadata-0") {
		t.Errorf("%v", err)
	}
}

func TestOldDirectoryGetsAnID(t *testing.T) {
	n := newNode(t)
	n.format("/b", checkpoint.MetaProperties{Version: 1, ClusterID: cluster, NodeID: 1})
	s := n.start()
	m, err := checkpoint.ReadMetaProperties(n.disk, "/b/meta.properties")
	if err != nil || m.DirectoryID.IsZero() || s.ByID(m.DirectoryID) == nil || s.ByID(m.DirectoryID).Path != "/b" {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestPlacement(t *testing.T) {
	n := newNode(t)
	s := n.start()
	b := s.ByPath("/b")
	var places []string
	for i := range 4 {
		_, d := n.create(tp("even", int32(i)), uuid.DirUnassigned)
		places = append(places, d.Path)
	}
	if !slices.Equal(places, []string{"/a", "/b", "/a", "/b"}) {
		t.Errorf("%v", places)
	}
	if _, d := n.create(tp("named", 0), b.ID); d != b {
		t.Errorf("made in %s", d.Path)
	}
	if _, _, err := s.Create(tp("named", 0), uuid.Zero, uuid.Zero, false); !errors.Is(err, ErrExists) {
		t.Errorf("%v", err)
	}
	if _, _, err := s.Create(tp("lost", 0), uuid.Zero, uuid.UUID{8}, false); err == nil || !strings.Contains(err.Error(), "no log directory has the id") {
		t.Errorf("%v", err)
	}
	s.SetCordoned([]string{"/a"})
	if ids := s.Cordoned(); len(ids) != 1 || ids[0] != s.ByPath("/a").ID {
		t.Errorf("%v", ids)
	}
	for i := range 3 {
		if _, d := n.create(tp("cordoned", int32(i)), uuid.Zero); d != b {
			t.Errorf("made in %s", d.Path)
		}
	}
	s.SetCordoned([]string{"*"})
	if _, d := n.create(tp("all", 0), uuid.Zero); d.Path != "/a" {
		t.Errorf("made in %s", d.Path)
	}
}

func TestDelete(t *testing.T) {
	n := newNode(t)
	s := n.start()
	n.create(tp("foo", 0), uuid.Zero)
	if err := s.Delete(tp("foo", 0), false); err != nil {
		t.Fatal(err)
	}
	if l, _ := s.Log(tp("foo", 0)); l != nil {
		t.Error("still there")
	}
	marked := func() bool {
		return slices.ContainsFunc(n.ls("/a"), func(f string) bool { return strings.HasPrefix(f, "foo-0.") && strings.HasSuffix(f, "-delete") })
	}
	n.clock.Advance(59 * time.Second)
	s.Tick(n.clock.Now())
	if !marked() {
		t.Errorf("%v", n.ls("/a"))
	}
	n.create(tp("foo", 0), uuid.Zero) // the topic is there again meanwhile
	n.clock.Advance(time.Second)
	s.Tick(n.clock.Now())
	if marked() || !slices.Contains(n.ls("/a"), "foo-0") {
		t.Errorf("%v", n.ls("/a"))
	}
	// One that was not removed in time is removed by the next run.
	if err := errors.Join(s.Delete(tp("foo", 0), false), s.Close(1)); err != nil {
		t.Fatal(err)
	}
	s = n.start()
	s.Tick(n.clock.Now())
	if !marked() {
		t.Errorf("%v", n.ls("/a"))
	}
	n.clock.Advance(time.Minute)
	s.Tick(n.clock.Now())
	if marked() {
		t.Errorf("%v", n.ls("/a"))
	}
	if err := s.Delete(tp("nothing", 0), false); err != nil {
		t.Error(err)
	}
}

func TestNothingUnknownIsDeleted(t *testing.T) {
	n := newNode(t)
	names := []string{"lost+found", "foo-0.0123456789abcdef0123456789abcdef-stray", "bar-x", "remote-log-index-cache"}
	for _, f := range names {
		if err := n.disk.MkdirAll("/a/"+f, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := vfs.WriteFileAtomic(n.disk, "/a/notes.txt", []byte("x")); err != nil {
		t.Fatal(err)
	}
	s := n.start()
	n.create(tp("gone", 0), uuid.Zero)
	if err := s.MarkStray(tp("gone", 0), false); err != nil {
		t.Fatal(err)
	}
	n.clock.Advance(time.Hour)
	s.Tick(n.clock.Now())
	if err := s.Close(1); err != nil {
		t.Fatal(err)
	}
	n.start()
	left := n.ls("/a")
	for _, f := range append(names, "notes.txt") {
		if !slices.Contains(left, f) {
			t.Errorf("%s is gone", f)
		}
	}
	if !slices.ContainsFunc(left, func(f string) bool { return strings.HasPrefix(f, "gone-0.") && strings.HasSuffix(f, "-stray") }) {
		t.Errorf("%v", left)
	}
	for _, want := range []string{"/a/lost+found", "/a/bar-x", "keeping a stray log"} {
		if !strings.Contains(n.log.String(), want) {
			t.Errorf("the log does not tell %s", want)
		}
	}
}

func TestMoveBetweenDirectories(t *testing.T) {
	n := newNode(t)
	s := n.start()
	a, b := s.ByPath("/a"), s.ByPath("/b")
	old, _ := n.create(tp("foo", 0), a.ID)
	n.append(old, "x")
	if _, _, err := s.Create(tp("foo", 0), uuid.UUID{15: 77}, a.ID, true); err == nil {
		t.Error("a copy in the same directory")
	}
	if _, _, err := s.Create(tp("foo", 0), uuid.UUID{15: 77}, uuid.Zero, true); err == nil {
		t.Error("a copy nowhere in particular")
	}
	next, d, err := s.Create(tp("foo", 0), uuid.UUID{15: 77}, b.ID, true)
	if err != nil || d != b {
		t.Fatalf("%v, %v", d, err)
	}
	n.append(next, "x")
	if err := s.Close(3); err != nil {
		t.Fatal(err)
	}
	s = n.start() // a copy under way goes on after a restart
	if l, d := s.FutureLog(tp("foo", 0)); l == nil || d.Path != "/b" || l.LogEnd() != 1 {
		t.Fatalf("%v %v", l, d)
	}
	was, _ := s.Log(tp("foo", 0))
	if err := s.SetCleaned(tp("foo", 0), was, 0); err != nil {
		t.Fatal(err)
	}
	if err := s.Promote(tp("foo", 0)); err != nil {
		t.Fatal(err)
	}
	if text := n.read("/a/" + checkpoint.CleanerOffsetFile); text != "0\n0\n" {
		t.Errorf("the cleaner's checkpoints where the log was: %q", text)
	}
	if l, d := s.Log(tp("foo", 0)); l == nil || d.Path != "/b" || filepath.Base(l.Dir()) != "foo-0" {
		t.Fatalf("%v %v", l, d)
	}
	if l, _ := s.FutureLog(tp("foo", 0)); l != nil {
		t.Error("the copy is still a copy")
	}
	n.clock.Advance(time.Minute)
	s.Tick(n.clock.Now())
	if slices.ContainsFunc(n.ls("/a"), func(f string) bool { return strings.HasPrefix(f, "foo") }) {
		t.Errorf("%v", n.ls("/a"))
	}
	if err := s.Promote(tp("foo", 0)); err == nil {
		t.Error("promoted nothing")
	}
}

// One partition's corruption takes only that partition offline, and its checkpoint entries are kept for the repair.
func TestCorruptPartition(t *testing.T) {
	n := newNode(t)
	s := n.start()
	for i := range 3 {
		l, _ := n.create(tp("foo", int32(i)), s.ByPath("/a").ID)
		n.append(l, "x", "y")
	}
	if err := s.Close(7); err != nil {
		t.Fatal(err)
	}
	if err := vfs.WriteFileAtomic(n.disk, "/a/foo-1/partition.metadata", []byte("version: 0\ntopic_id: rubbish")); err != nil {
		t.Fatal(err)
	}
	s = n.start()
	fails := s.Failures()
	if len(fails) != 1 || fails[0].Partition != tp("foo", 1) || len(s.Dirs()) != 2 || len(n.told) != 0 {
		t.Fatalf("%+v, %v", fails, n.told)
	}
	if l, _ := s.Log(tp("foo", 2)); l == nil || l.LogEnd() != 2 {
		t.Error("foo-2 is not there")
	}
	if _, _, err := s.Create(tp("foo", 1), uuid.Zero, uuid.Zero, false); err == nil {
		t.Error("an empty log was made beside the corrupt one")
	}
	if err := s.WriteRecoveryPoints(); err != nil {
		t.Fatal(err)
	}
	if got := n.read("/a/recovery-point-offset-checkpoint"); got != "0\n3\nfoo 0 2\nfoo 1 2\nfoo 2 2\n" {
		t.Errorf("%q", got)
	}
	if err := s.Close(8); err != nil {
		t.Fatal(err)
	}
	if slices.Contains(n.ls("/a"), checkpoint.CleanShutdownFile) || !slices.Contains(n.ls("/b"), checkpoint.CleanShutdownFile) {
		t.Error("a clean-shutdown marker in spite of the corrupt log, or none beside it")
	}
	s = n.start()
	if err := s.Delete(tp("foo", 1), false); err != nil { // the topic is deleted
		t.Fatal(err)
	}
	n.clock.Advance(time.Minute)
	s.Tick(n.clock.Now())
	if slices.ContainsFunc(n.ls("/a"), func(f string) bool { return strings.HasPrefix(f, "foo-1") }) || len(s.Failures()) != 0 {
		t.Errorf("%v", n.ls("/a"))
	}
}

func TestLogInTwoDirectories(t *testing.T) {
	n := newNode(t)
	for _, d := range []string{"/a/foo-0", "/b/foo-0"} {
		if err := n.disk.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s := n.start()
	if f := s.Failures(); len(f) != 1 || !strings.Contains(f[0].Err.Error(), "remove one of the two") {
		t.Errorf("%+v", f)
	}
}

// A node that dies between the two renames of a move leaves the log in both
// directories. Every later start must serve the same one, or what was appended
// to one of them is not in the other.
func TestMoveCutBetweenItsRenames(t *testing.T) {
	for _, c := range []struct {
		name, inA, inB, want string
	}{
		{"the same in both", "123", "123", "/a/foo-0"},
		{"a tail was lost where it came from", "12", "123", "/b/foo-0"},
		{"more where it came from", "123", "12", "/a/foo-0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t)
			p := tp("foo", 0)
			s := n.start()
			l, d := n.create(p, uuid.UUID{0: 1, 15: 9})
			copied, _, err := s.Create(p, l.TopicID(), uuid.UUID{0: 2, 15: 9}, true)
			if err != nil || d.Path != "/a" {
				t.Fatal(err, d.Path)
			}
			n.append(l, strings.Split(c.inA, "")...)
			n.append(copied, strings.Split(c.inB, "")...)
			s.Crash()
			if err := n.disk.Rename(copied.Dir(), "/b/foo-0"); err != nil {
				t.Fatal(err)
			}
			for range 2 { // and so at the next start
				s = n.start()
				got, _ := s.Log(p)
				if got == nil || got.Dir() != c.want || got.LogEnd() != 3 || len(s.Failures()) != 0 {
					t.Fatalf("%v, failures %v", got, s.Failures())
				}
				s.Crash()
			}
			all := strings.Join(append(n.ls("/a"), n.ls("/b")...), " ")
			if strings.Count(all, "-stray") != 1 {
				t.Errorf("the other log is not kept: %s", all)
			}
		})
	}
}

// After a truncation the checkpoint on disk must not claim more than the log holds for sure.
func TestTruncationLowersTheCheckpoint(t *testing.T) {
	n := newNode(t)
	s := n.start()
	l, _ := n.create(tp("foo", 0), uuid.Zero)
	for range 3 {
		n.append(l, "x")
	}
	if err := errors.Join(l.Flush(-1), s.WriteRecoveryPoints()); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Truncate(1); err != nil {
		t.Fatal(err)
	}
	if got := n.read("/a/recovery-point-offset-checkpoint"); got != "0\n1\nfoo 0 1\n" {
		t.Errorf("%q", got)
	}
}

func TestDamagedCheckpointIsNoError(t *testing.T) {
	n := newNode(t)
	s := n.start()
	l, _ := n.create(tp("foo", 0), s.ByPath("/a").ID)
	n.append(l, "x")
	if err := s.Close(1); err != nil {
		t.Fatal(err)
	}
	if err := vfs.WriteFileAtomic(n.disk, "/a/recovery-point-offset-checkpoint", []byte("\x00\x00")); err != nil {
		t.Fatal(err)
	}
	s = n.start()
	if l, _ := s.Log(tp("foo", 0)); l == nil || l.LogEnd() != 1 {
		t.Errorf("%+v", s.Failures())
	}
	if !strings.Contains(n.log.String(), "every log is recovered from its start") {
		t.Error(n.log.String())
	}
}

func TestConfigurationErrors(t *testing.T) {
	n := newNode(t)
	o := n.options()
	o.LogDirs = []string{"/a", "/a/"}
	if _, err := Open(o); err == nil || !strings.Contains(err.Error(), "/a is configured twice") {
		t.Errorf("%v", err)
	}
	o.LogDirs = nil
	if _, err := Open(o); err == nil {
		t.Error("no directories")
	}
	if err := vfs.WriteFileAtomic(n.disk, "/b/meta.properties", []byte("version=7\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(n.options()); err == nil || !strings.Contains(err.Error(), "/b/meta.properties:1:") {
		t.Errorf("%v", err)
	}
}

func TestLoadStopsWithItsContext(t *testing.T) {
	n := newNode(t)
	s := n.start()
	n.create(tp("foo", 0), uuid.Zero)
	if err := s.Close(1); err != nil {
		t.Fatal(err)
	}
	s, err := Open(n.options())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Load(ctx); !errors.Is(err, context.Canceled) || len(n.told) != 0 {
		t.Errorf("%v, told %v", err, n.told)
	}
	if _, err := n.disk.Stat("/a/foo-0"); errors.Is(err, fs.ErrNotExist) {
		t.Error("the log is gone")
	}
}

// Many goroutines that want the same partitions get one log of each, spread evenly.
func TestConcurrentCreate(t *testing.T) {
	n := newNode(t)
	s := n.start()
	const partitions, callers = 20, 4
	made := make([][]*storage.Log, callers)
	var g errgroup.Group
	for c := range callers {
		made[c] = make([]*storage.Log, partitions)
		g.Go(func() error {
			for i := range partitions {
				l, _, err := s.Create(tp("foo", int32(i)), uuid.UUID{15: 77}, uuid.Zero, false)
				if err != nil && !errors.Is(err, ErrExists) {
					return err
				}
				made[c][i] = l
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	for c := range callers {
		if !slices.Equal(made[c], made[0]) {
			t.Errorf("caller %d got other logs than caller 0", c)
		}
	}
	if err := s.Close(1); err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, d := range []string{"/a", "/b"} {
		for _, f := range n.ls(d) {
			if strings.HasPrefix(f, "foo-") {
				count++
			}
		}
	}
	if count != partitions {
		t.Errorf("%d directories for %d partitions", count, partitions)
	}
	if _, _, err := s.Create(tp("late", 0), uuid.Zero, uuid.Zero, false); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func BenchmarkLoad(b *testing.B) {
	n := newNode(&testing.T{})
	n.start()
	for i := range 500 {
		n.create(tp("foo", int32(i)), uuid.Zero)
	}
	if err := n.set.Close(1); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		s, err := Open(n.options())
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Load(context.Background()); err != nil {
			b.Fatal(err)
		}
		if err := s.Close(1); err != nil {
			b.Fatal(err)
		}
	}
}
