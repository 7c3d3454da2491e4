package vfs_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"weir/internal/vfs"
	"weir/internal/vfs/errfs"
	"weir/internal/vfs/memfs"
)

// each runs a test on every file system: they must not differ.
func each(t *testing.T, test func(t *testing.T, fsys vfs.FS, dir string)) {
	for name, make := range map[string]func() vfs.FS{
		"os":    func() vfs.FS { return vfs.OS() },
		"memfs": func() vfs.FS { return memfs.New() },
		"errfs": func() vfs.FS { return errfs.Wrap(memfs.New()) },
	} {
		t.Run(name, func(t *testing.T) {
			fsys := make()
			dir := t.TempDir()
			if err := fsys.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			test(t, fsys, dir)
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error %v, want %v", err, want)
	}
}

func put(t *testing.T, fsys vfs.FS, name, text string) {
	t.Helper()
	must(t, vfs.WriteFileAtomic(fsys, name, []byte(text)))
}

func get(t *testing.T, fsys vfs.FS, name string) string {
	t.Helper()
	b, err := vfs.ReadFile(fsys, name)
	must(t, err)
	return string(b)
}

func TestFile(t *testing.T) {
	each(t, func(t *testing.T, fsys vfs.FS, dir string) {
		name := filepath.Join(dir, "f")
		_, err := fsys.Open(name, os.O_RDWR, 0)
		wantErr(t, err, fs.ErrNotExist)
		f, err := fsys.Open(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
		must(t, err)
		_, err = fsys.Open(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
		wantErr(t, err, fs.ErrExist)
		_, err = fsys.Open(name, os.O_RDWR|os.O_APPEND, 0o644)
		wantErr(t, err, fs.ErrInvalid)

		n, err := f.WriteAt([]byte("world"), 6)
		if n != 5 || err != nil {
			t.Fatalf("WriteAt = %d, %v", n, err)
		}
		_, err = f.WriteAt([]byte("hello"), 0)
		must(t, err)
		must(t, f.Sync())
		p := make([]byte, 20)
		if n, err := f.ReadAt(p, 0); n != 11 || err != io.EOF || string(p[:n]) != "hello\x00world" {
			t.Errorf("ReadAt = %q, %v", p[:n], err)
		}
		if n, err := f.ReadAt(p[:4], 7); n != 4 || err != nil || string(p[:4]) != "orld" {
			t.Errorf("ReadAt = %q, %v", p[:n], err)
		}
		if n, err := f.ReadAt(p, 11); n != 0 || err != io.EOF {
			t.Errorf("ReadAt the end = %d, %v", n, err)
		}
		must(t, f.Truncate(3))
		must(t, f.Truncate(5))
		if n, _ := f.ReadAt(p, 0); string(p[:n]) != "hel\x00\x00" {
			t.Errorf("after truncating: %q", p[:n])
		}
		if info, err := f.Stat(); err != nil || info.Size() != 5 || info.IsDir() || info.Name() != "f" {
			t.Errorf("Stat = %v, %v", info, err)
		}
		if f.Name() != name {
			t.Errorf("Name = %q", f.Name())
		}
		must(t, f.Close())
		wantErr(t, f.Close(), fs.ErrClosed)
		_, err = f.ReadAt(p, 0)
		wantErr(t, err, fs.ErrClosed)

		ro, err := fsys.Open(name, os.O_RDONLY, 0)
		must(t, err)
		if _, err := ro.WriteAt(p, 0); err == nil {
			t.Error("wrote to a file opened for reading")
		}
		must(t, ro.Close())
		f, err = fsys.Open(name, os.O_RDWR|os.O_TRUNC, 0)
		must(t, err)
		if info, err := f.Stat(); err != nil || info.Size() != 0 {
			t.Errorf("O_TRUNC left %v, %v", info, err)
		}
		must(t, f.Close())
	})
}

func TestNames(t *testing.T) {
	each(t, func(t *testing.T, fsys vfs.FS, dir string) {
		in := func(elem ...string) string { return filepath.Join(append([]string{dir}, elem...)...) }
		must(t, fsys.MkdirAll(in("a", "b"), 0o755))
		must(t, fsys.MkdirAll(in("a", "b"), 0o755))
		put(t, fsys, in("a", "b", "f"), "one")
		put(t, fsys, in("a", "b", "g"), "two")

		must(t, fsys.Rename(in("a", "b", "f"), in("a", "b", "g")))
		if s := get(t, fsys, in("a", "b", "g")); s != "one" {
			t.Errorf("rename left %q", s)
		}
		_, err := fsys.Stat(in("a", "b", "f"))
		wantErr(t, err, fs.ErrNotExist)
		wantErr(t, fsys.Rename(in("no"), in("x")), fs.ErrNotExist)
		must(t, fsys.Rename(in("a", "b"), in("c")))
		if err := fsys.Rename(in("a"), in("a", "d")); err == nil {
			t.Error("renamed a directory into itself")
		}
		list, err := fsys.ReadDir(dir)
		must(t, err)
		if len(list) != 2 || list[0].Name() != "a" || list[1].Name() != "c" || !list[1].IsDir() {
			t.Errorf("ReadDir = %v", list)
		}
		if info, err := fsys.Stat(in("c", "g")); err != nil || info.Size() != 3 {
			t.Errorf("Stat = %v, %v", info, err)
		}
		if err := fsys.Remove(in("c")); err == nil {
			t.Error("removed a directory that is not empty")
		}
		f, err := fsys.Open(in("c", "g"), os.O_RDONLY, 0)
		must(t, err)
		must(t, fsys.Remove(in("c", "g")))
		wantErr(t, fsys.Remove(in("c", "g")), fs.ErrNotExist)
		p := make([]byte, 3)
		if _, err := f.ReadAt(p, 0); err != nil || string(p) != "one" {
			t.Errorf("a removed file reads %q, %v", p, err)
		}
		must(t, f.Close())
		must(t, fsys.Remove(in("c")))
		must(t, fsys.MkdirAll(in("t", "u", "v"), 0o755))
		put(t, fsys, in("t", "u", "f"), "x")
		must(t, fsys.RemoveAll(in("t")))
		must(t, fsys.RemoveAll(in("t")))
		must(t, fsys.RemoveAll(in("no", "such")))
		must(t, fsys.SyncDir(dir))
		wantErr(t, fsys.SyncDir(in("t")), fs.ErrNotExist)
		if ok, err := vfs.Exists(fsys, in("t")); ok || err != nil {
			t.Errorf("Exists = %v, %v", ok, err)
		}
		if ok, err := vfs.Exists(fsys, in("a")); !ok || err != nil {
			t.Errorf("Exists = %v, %v", ok, err)
		}
		if free, total, err := fsys.Free(dir); err != nil || free == 0 || free > total {
			t.Errorf("Free = %d of %d, %v", free, total, err)
		}
		if _, _, err := fsys.Free(in("t")); err == nil {
			t.Error("Free of a missing directory")
		}
	})
}

func TestLock(t *testing.T) {
	each(t, func(t *testing.T, fsys vfs.FS, dir string) {
		name := filepath.Join(dir, ".lock")
		l, err := fsys.Lock(name)
		must(t, err)
		_, err = fsys.Lock(name)
		wantErr(t, err, vfs.ErrLocked)
		must(t, l.Close())
		l, err = fsys.Lock(name)
		must(t, err)
		must(t, l.Close())
		wantErr(t, l.Close(), fs.ErrClosed)
	})
}

// A JVM takes a POSIX record lock: each must see the other's.
func TestLockExcludesJVM(t *testing.T) {
	name := filepath.Join(t.TempDir(), ".lock")
	l, err := vfs.OS().Lock(name)
	must(t, err)
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	must(t, err)
	posix := func(typ int16) error {
		return unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: typ, Whence: io.SeekStart})
	}
	if err := posix(unix.F_WRLCK); err != unix.EAGAIN && err != unix.EACCES {
		t.Errorf("a POSIX lock beside ours: %v", err)
	}
	must(t, l.Close())
	must(t, posix(unix.F_WRLCK))
	_, err = vfs.OS().Lock(name)
	wantErr(t, err, vfs.ErrLocked)
	must(t, f.Close())
}

func TestWriteFileAtomic(t *testing.T) {
	each(t, func(t *testing.T, fsys vfs.FS, dir string) {
		name := filepath.Join(dir, "f")
		for _, s := range []string{"first", "", "second, longer"} {
			put(t, fsys, name, s)
			if got := get(t, fsys, name); got != s {
				t.Errorf("read %q, want %q", got, s)
			}
		}
		if ok, _ := vfs.Exists(fsys, name+".tmp"); ok {
			t.Error("the temporary file is left")
		}
	})
}

type closer struct {
	vfs.File
	closed int
}

func (c *closer) Close() error { c.closed++; return nil }

func TestShared(t *testing.T) {
	c := &closer{}
	s := vfs.NewShared(c)
	if !s.Acquire() {
		t.Fatal("Acquire failed")
	}
	must(t, s.Release())
	if c.closed != 0 {
		t.Fatal("closed while in use")
	}
	must(t, s.Release())
	if c.closed != 1 || s.Acquire() {
		t.Errorf("closed %d times", c.closed)
	}
}

func TestRegion(t *testing.T) {
	each(t, func(t *testing.T, fsys vfs.FS, dir string) {
		put(t, fsys, filepath.Join(dir, "f"), "0123456789")
		f, err := fsys.Open(filepath.Join(dir, "f"), os.O_RDWR, 0)
		must(t, err)
		s := vfs.NewShared(f)
		s.Acquire()
		r := vfs.Region{File: s, Off: 2, N: 5}
		must(t, s.Release()) // the owner lets go; the region holds on
		must(t, fsys.Remove(filepath.Join(dir, "f")))

		b, err := r.AppendTo([]byte("> "))
		if err != nil || string(b) != "> 23456" {
			t.Errorf("AppendTo = %q, %v", b, err)
		}
		p := make([]byte, 8)
		if n, err := r.ReadAt(p, 1); n != 4 || err != io.EOF || !bytes.Equal(p[:n], []byte("3456")) {
			t.Errorf("ReadAt = %q, %v", p[:n], err)
		}
		if n, err := r.ReadAt(p[:3], 2); n != 3 || err != nil {
			t.Errorf("ReadAt = %d, %v", n, err)
		}
		if n, err := r.ReadAt(p, 5); n != 0 || err != io.EOF {
			t.Errorf("ReadAt the end = %d, %v", n, err)
		}
		must(t, f.Truncate(4))
		if n, err := r.ReadAt(p, 0); n != 2 || err != io.ErrUnexpectedEOF {
			t.Errorf("ReadAt of a truncated file = %d, %v", n, err)
		}
		if b, err := r.AppendTo([]byte(">")); err != io.ErrUnexpectedEOF || string(b) != ">" {
			t.Errorf("AppendTo of a truncated file = %q, %v", b, err)
		}
		r.Release()
		if s.Acquire() {
			t.Error("the file is still open")
		}
	})
	vfs.Region{}.Release()
	if b, err := (vfs.Region{}).AppendTo(nil); err != nil || len(b) != 0 {
		t.Errorf("the empty region reads %q, %v", b, err)
	}
}

// TestSyncVolume: what was written and named is there after; a missing directory is an error.
func TestSyncVolume(t *testing.T) {
	each(t, func(t *testing.T, fsys vfs.FS, dir string) {
		put(t, fsys, filepath.Join(dir, "a"), "old")
		must(t, vfs.WriteStaged(fsys, filepath.Join(dir, "a"), []byte("new")))
		if got := get(t, fsys, filepath.Join(dir, "a")); got != "old" {
			t.Errorf("staged bytes are in place before they are committed: %q", got)
		}
		must(t, fsys.SyncVolume(dir))
		must(t, vfs.CommitStaged(fsys, filepath.Join(dir, "a")))
		must(t, fsys.SyncVolume(dir))
		if got := get(t, fsys, filepath.Join(dir, "a")); got != "new" {
			t.Errorf("after the commit the file holds %q", got)
		}
		wantErr(t, fsys.SyncVolume(filepath.Join(dir, "missing")), fs.ErrNotExist)
	})
}

// TestSession: two directories differ or have no session, and one answers the same twice.
func TestSession(t *testing.T) {
	each(t, func(t *testing.T, fsys vfs.FS, dir string) {
		first, err := fsys.Session(dir)
		must(t, err)
		again, err := fsys.Session(dir)
		must(t, err)
		if first != again {
			t.Errorf("the session changes by itself from %q to %q", first, again)
		}
		if _, err := fsys.Session(filepath.Join(dir, "missing")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("of a missing directory: %v", err)
		}
	})
	mem := memfs.New()
	before, err := mem.Session("/")
	must(t, err)
	after, err := mem.Crash(nil).Session("/")
	must(t, err)
	if before == after {
		t.Errorf("a power cut leaves the session %q", before)
	}
}
