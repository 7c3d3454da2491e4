package dirs

import (
	"syscall"
	"testing"

	"weir/internal/uuid"
	"weir/internal/vfs/errfs"
)

// What a full disk does not let be made sure is made sure by a later call.
func TestSecureOnAFullDisk(t *testing.T) {
	n := newNode(t)
	s := n.start()
	l, _ := n.create(tp("foo", 0), uuid.Zero)
	n.fs.Set(errfs.Rule{Op: errfs.SyncDir, Err: syscall.ENOSPC})
	s.Secure()
	if !l.Unsecured() || len(s.Dirs()) != 2 {
		t.Fatalf("unsecured %t, %d directories", l.Unsecured(), len(s.Dirs()))
	}
	n.fs.Set()
	s.Secure()
	if l.Unsecured() {
		t.Error("the log is not sure with space on the disk")
	}
	synced := 0
	if err := s.Delete(tp("foo", 0), false); err != nil {
		t.Fatal(err)
	}
	n.fs.Set(errfs.Rule{Op: errfs.SyncDir, Err: syscall.ENOSPC})
	s.Secure()
	n.fs.Set(errfs.Rule{Op: errfs.SyncDir, Before: func() { synced++ }})
	s.Secure()
	s.Secure()
	if synced != 1 {
		t.Errorf("the directory with a renamed log was synced %d times", synced)
	}
}
