package errfs

import (
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	"weir/internal/vfs"
	"weir/internal/vfs/memfs"
)

func open(t *testing.T, f vfs.FS, name string) vfs.File {
	t.Helper()
	h, err := f.Open(name, os.O_RDWR|os.O_CREATE, 0)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestRules(t *testing.T) {
	f := Wrap(memfs.New())
	if err := f.MkdirAll("d", 0); err != nil {
		t.Fatal(err)
	}
	log, index := open(t, f, "d/1.log"), open(t, f, "d/1.index")
	before := 0
	f.Set(
		Rule{Op: Sync, Path: "*.log", Skip: 1, Count: 2, Err: syscall.EIO},
		Rule{Op: Write, Path: "d/*.index", Err: syscall.ENOSPC, Short: 2},
		Rule{Op: Rename, Path: "x", Err: syscall.EIO},
		Rule{Op: Open, Path: "y", Err: syscall.EMFILE},
		Rule{Op: SyncDir, Before: func() { before++ }},
	)
	for i, want := range []error{nil, syscall.EIO, syscall.EIO, nil} {
		if err := index.Sync(); err != nil {
			t.Errorf("sync of the index: %v", err)
		}
		if err := log.Sync(); !errors.Is(err, want) {
			t.Errorf("sync %d of the log: %v, want %v", i, err, want)
		}
	}
	if n, err := index.WriteAt([]byte("abc"), 0); n != 2 || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("WriteAt = %d, %v", n, err)
	}
	if b, err := vfs.ReadFile(f, "d/1.index"); err != nil || string(b) != "ab" {
		t.Errorf("the index holds %q, %v", b, err)
	}
	if _, err := log.WriteAt([]byte("abc"), 0); err != nil {
		t.Error(err)
	}
	if err := f.Rename("d/1.log", "d/x"); !errors.Is(err, syscall.EIO) {
		t.Errorf("rename to x: %v", err)
	}
	if _, err := f.Open("y", os.O_RDWR|os.O_CREATE, 0); !errors.Is(err, syscall.EMFILE) {
		t.Errorf("create y: %v", err)
	}
	if err := f.SyncDir("d"); err != nil || before != 1 {
		t.Errorf("SyncDir: %v; Before ran %d times", err, before)
	}
	f.Set()
	if err := f.Rename("d/1.log", "d/x"); err != nil {
		t.Errorf("without rules: %v", err)
	}
}

// Every operation can be made to fail, and with one failed nothing happens below.
func TestEveryOp(t *testing.T) {
	base := memfs.New()
	f := Wrap(base)
	h := open(t, f, "f")
	calls := map[Op]func() error{
		Open:     func() error { _, err := f.Open("f", os.O_RDONLY, 0); return err },
		Create:   func() error { _, err := f.Open("new", os.O_RDWR|os.O_CREATE, 0); return err },
		Remove:   func() error { return f.Remove("f") },
		Rename:   func() error { return f.Rename("f", "g") },
		Mkdir:    func() error { return f.MkdirAll("dir", 0) },
		ReadDir:  func() error { _, err := f.ReadDir("/"); return err },
		Stat:     func() error { _, err := f.Stat("f"); return err },
		ModTime:  func() error { return f.SetModTime("f", time.UnixMilli(1)) },
		SyncDir:  func() error { return f.SyncDir("/") },
		Lock:     func() error { _, err := f.Lock(".lock"); return err },
		Free:     func() error { _, _, err := f.Free("/"); return err },
		Read:     func() error { _, err := h.ReadAt(make([]byte, 0), 0); return err },
		Write:    func() error { _, err := h.WriteAt([]byte("x"), 0); return err },
		Truncate: func() error { return h.Truncate(9) },
		Sync:     func() error { return h.Sync() },
	}
	for op, call := range calls {
		f.Set(Rule{Op: op, Err: syscall.EIO})
		if err := call(); !errors.Is(err, syscall.EIO) {
			t.Errorf("%s: %v", op, err)
		}
	}
	for _, call := range []func() error{
		func() error { return f.RemoveAll("f") },
		func() error { _, err := h.Stat(); return err },
		func() error { return h.Close() },
	} {
		f.Set(Rule{Err: syscall.EIO})
		if err := call(); !errors.Is(err, syscall.EIO) {
			t.Errorf("%v", err)
		}
	}
	if err := h.Sync(); err == nil {
		t.Error("a failed Close left the file open")
	}
	list, err := base.ReadDir("/")
	if err != nil || len(list) != 1 || list[0].Name() != "f" {
		t.Errorf("left %v, %v", list, err)
	}
	if info, _ := base.Stat("f"); info.Size() != 0 {
		t.Errorf("left %d bytes", info.Size())
	}
}
