package dirs

import (
	"slices"
	"strings"
	"syscall"
	"testing"

	"weir/internal/uuid"
	"weir/internal/vfs"
	"weir/internal/vfs/errfs"
)

func holder(n byte) uuid.UUID { return uuid.UUID{0: 0x40, 15: n} }

func (n *node) takeOver(id byte, want ...byte) {
	n.t.Helper()
	var ids []uuid.UUID
	for _, w := range want {
		ids = append(ids, holder(w))
	}
	if got := n.set.TakeOver(holder(id)); !slices.Equal(got, ids) {
		n.t.Errorf("incarnation %d took over from %v, want %v\n%s", id, got, ids, n.log.String())
	}
}

// Each process learns who was there before it, also when some of them never got as far as to be registered.
func TestTakeOver(t *testing.T) {
	n := newNode(t)
	n.start()
	n.takeOver(1)
	n.die()
	n.start()
	n.takeOver(2, 1)
	n.die()
	n.start()
	n.takeOver(3, 2, 1)
	if err := n.set.Close(5); err != nil {
		t.Fatal(err)
	}
	n.start()
	n.takeOver(4, 3, 2, 1)
	for id := byte(5); id < 20; id++ {
		n.die()
		n.start()
		n.set.TakeOver(holder(id))
	}
	n.die()
	n.start()
	n.takeOver(20, 19, 18, 17, 16, 15, 14, 13, 12)
}

// The file of a directory that is a copy, or of a machine that has stopped since, tells nothing about who is alive.
func TestTakeOverElsewhere(t *testing.T) {
	n := newNode(t)
	n.start()
	n.takeOver(1)
	if err := n.disk.SyncVolume("/"); err != nil {
		t.Fatal(err)
	}
	n.die()
	n.disk = n.disk.Crash(nil)
	n.fs = errfs.Wrap(n.disk)
	if !slices.Contains(n.ls("/a"), holdersFile) {
		t.Fatal("the file is gone: nothing is tested")
	}
	n.start()
	n.takeOver(2)
	n.die()
	n.start()
	n.takeOver(3, 2)
}

// What cannot be read or written costs the knowledge and nothing else.
func TestTakeOverDamaged(t *testing.T) {
	n := newNode(t)
	n.start()
	n.takeOver(1)
	text, err := vfs.ReadFile(n.disk, "/a/"+holdersFile)
	if err != nil {
		t.Fatal(err)
	}
	n.die()
	n.write("/a/"+holdersFile, string(text)+"rubbish\n")
	n.start()
	n.takeOver(2)
	if !strings.Contains(n.log.String(), "not known who has held") {
		t.Errorf("nothing is said of a damaged file:\n%s", n.log.String())
	}
	n.fs.Set(errfs.Rule{Op: errfs.Write, Path: holdersFile + "*", Err: syscall.EIO})
	n.takeOver(3, 2)
	if !strings.Contains(n.log.String(), "will have to wait") {
		t.Errorf("nothing is said of a file that cannot be written:\n%s", n.log.String())
	}
	n.fs.Set(errfs.Rule{Op: errfs.Session, Err: syscall.ENOSYS})
	n.takeOver(4)
}
