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

const resumedLine = "only the ends of logs are checked"

// filled is a node that has run and whose process has just died, with unsynced records in a log of /a.
func filled(t *testing.T) *node {
	t.Helper()
	n := newNode(t)
	n.start()
	l, _ := n.create(tp("t", 0), uuid.UUID{0: 1, 15: 9})
	n.append(l, "a", "b", "c")
	n.append(l, "d")
	return n
}

func (n *node) die() {
	n.t.Helper()
	if err := n.set.Crash(); err != nil {
		n.t.Fatal(err)
	}
	n.log.Reset()
}

func (n *node) wantEnd(want int64) {
	n.t.Helper()
	l, _ := n.set.Log(tp("t", 0))
	if l == nil || l.LogEnd() != want {
		n.t.Fatalf("log %v, want its end at %d\n%s", l, want, n.log.String())
	}
}

func (n *node) write(name, text string) {
	n.t.Helper()
	if err := vfs.WriteFileAtomic(n.disk, name, []byte(text)); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) hints() int {
	c := 0
	for _, dir := range []string{"/a", "/b"} {
		if slices.Contains(n.ls(dir), hintFile) {
			c++
		}
	}
	return c
}

// TestHintAfterKill: the process dies, the machine does not.
func TestHintAfterKill(t *testing.T) {
	n := filled(t)
	for range 2 { // the second time after a start that was resumed
		n.die()
		n.start()
		if !strings.Contains(n.log.String(), resumedLine) {
			t.Errorf("the hint is not used:\n%s", n.log.String())
		}
		n.wantEnd(4)
	}
}

// TestHintAfterPowerCut: the hint is on the disk, the records are so in part. It must not be trusted.
func TestHintAfterPowerCut(t *testing.T) {
	n := filled(t)
	left := n.disk.Crash(nil)
	n.die()
	if err := n.disk.SyncVolume("/"); err != nil { // all of it survives, the hint too
		t.Fatal(err)
	}
	n.disk = n.disk.Crash(nil)
	n.fs = errfs.Wrap(n.disk)
	if n.hints() != 2 {
		t.Fatal("there is no hint to be trusted")
	}
	n.start()
	if strings.Contains(n.log.String(), resumedLine) {
		t.Errorf("a hint from before the power cut is trusted:\n%s", n.log.String())
	}
	n.wantEnd(4)
	n.die()
	n.disk = left // nothing that was not synced
	n.fs = errfs.Wrap(n.disk)
	n.start()
	if strings.Contains(n.log.String(), resumedLine) {
		t.Errorf("a hint is trusted that cannot be there:\n%s", n.log.String())
	}
}

// TestHintLost: without the hint, or with a broken one, logs are recovered, and nothing else changes.
func TestHintLost(t *testing.T) {
	for _, text := range []string{"", "memfs", "memfs 00"} {
		n := filled(t)
		n.die()
		for _, dir := range []string{"/a/", "/b/"} {
			if err := n.disk.Remove(dir + hintFile); err != nil {
				t.Fatal(err)
			}
			if text != "" {
				n.write(dir+hintFile, text)
			}
		}
		n.start()
		if strings.Contains(n.log.String(), resumedLine) {
			t.Errorf("hint %q is trusted", text)
		}
		n.wantEnd(4)
	}
}

// TestHintGoes: with a clean stop, a failed disk, and a log that cannot be opened.
func TestHintGoes(t *testing.T) {
	t.Run("clean stop", func(t *testing.T) {
		n := filled(t)
		if err := n.set.Close(1); err != nil {
			t.Fatal(err)
		}
		if n.hints() != 0 {
			t.Error("a hint stays")
		}
	})
	t.Run("failed disk", func(t *testing.T) {
		n := filled(t)
		n.set.Fail(n.set.ByPath("/a"), syscall.EIO)
		if n.hints() != 1 {
			t.Errorf("%d hints stay of 2", n.hints())
		}
	})
	t.Run("failed log", func(t *testing.T) {
		n := filled(t)
		n.die()
		n.write("/a/t-0/partition.metadata", "rubbish")
		n.start()
		if len(n.set.Failures()) != 1 || n.hints() != 1 {
			t.Errorf("%d failures, %d hints", len(n.set.Failures()), n.hints())
		}
	})
	t.Run("no session", func(t *testing.T) {
		n := newNode(t)
		n.fs.Set(errfs.Rule{Op: errfs.Session, Err: syscall.ENOSYS})
		n.start()
		if n.hints() != 0 {
			t.Error("a hint without a session")
		}
	})
}
