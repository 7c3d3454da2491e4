package dirs

import (
	"errors"
	"syscall"
	"testing"

	"weir/internal/storage"
	"weir/internal/uuid"
	"weir/internal/vfs/errfs"
)

// What the checkpoint files say of a deleted topic must not be held against one of the same name that comes after it.
func TestRecreatedPartitionForgetsOldOffsets(t *testing.T) {
	n := newNode(t)
	s := n.start()
	a := s.ByPath("/a")
	l, _ := n.create(tp("foo", 0), a.ID)
	for range 5 {
		n.append(l, "old")
	}
	l.SetHighWatermark(5)
	if _, err := l.SetLogStart(4); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(l.Flush(-1), s.WriteRecoveryPoints(), s.WriteLogStarts(), s.WriteHighWatermarks(), s.Delete(tp("foo", 0), false)); err != nil {
		t.Fatal(err)
	}
	l, _ = n.create(tp("foo", 0), a.ID)
	n.append(l, "new")
	if err := s.Crash(); err != nil {
		t.Fatal(err)
	}
	s = n.start()
	if l, _ = s.Log(tp("foo", 0)); l == nil {
		t.Fatalf("offline: %+v", s.Failures())
	}
	if o := l.Offsets(); o.LogStart != 0 || o.LogEnd != 1 || l.RecoveryPoint() != 0 {
		t.Errorf("%+v, recovery point %d", o, l.RecoveryPoint())
	}
}

// A log whose directory cannot be renamed stays where it is, and in the registry: it is used, checkpointed and closed on.
func TestRenameFails(t *testing.T) {
	n := newNode(t)
	s := n.start()
	a, b := s.ByPath("/a"), s.ByPath("/b")
	old, _ := n.create(tp("foo", 0), a.ID)
	next, _, err := s.Create(tp("foo", 0), uuid.UUID{15: 77}, b.ID, true)
	if err != nil {
		t.Fatal(err)
	}
	n.fs.Set(errfs.Rule{Op: errfs.Rename, Err: syscall.ENOSPC})
	if err := s.Promote(tp("foo", 0)); !errors.Is(err, storage.ErrNoSpace) {
		t.Errorf("promoted: %v", err)
	}
	if err := s.Delete(tp("foo", 0), false); !errors.Is(err, storage.ErrNoSpace) {
		t.Errorf("deleted: %v", err)
	}
	if l, d := s.Log(tp("foo", 0)); l != old || d != a {
		t.Errorf("the log is %v in %v", l, d)
	}
	if l, d := s.FutureLog(tp("foo", 0)); l != next || d != b {
		t.Errorf("the copy is %v in %v", l, d)
	}
	n.fs.Set(errfs.Rule{Op: errfs.Rename, Path: "/b/*", Err: syscall.EIO})
	if err := s.Promote(tp("foo", 0)); !errors.Is(err, syscall.EIO) {
		t.Errorf("promoted: %v", err)
	}
	n.fs.Set()
	if l, _ := s.Log(tp("foo", 0)); l != old {
		t.Errorf("the log is %v", l)
	}
	n.append(old, "x")
	if err := s.Close(1); err != nil {
		t.Fatal(err)
	}
	if got := n.read("/a/recovery-point-offset-checkpoint"); got != "0\n1\nfoo 0 1\n" {
		t.Errorf("%q", got)
	}
}
