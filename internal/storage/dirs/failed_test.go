package dirs

import (
	"errors"
	"slices"
	"syscall"
	"testing"

	"weir/internal/checkpoint"
	"weir/internal/storage"
	"weir/internal/uuid"
	"weir/internal/vfs/errfs"
)

func TestDirectoryFails(t *testing.T) {
	n := newNode(t)
	s := n.start()
	a := s.ByPath("/a")
	l, _ := n.create(tp("foo", 0), a.ID)
	n.create(tp("foo", 1), s.ByPath("/b").ID)
	n.append(l, "x")
	n.fs.Set(errfs.Rule{Path: "/a/*", Err: syscall.EIO}, errfs.Rule{Path: "/a/*/*", Err: syscall.EIO})
	if err := s.WriteRecoveryPoints(); !errors.Is(err, syscall.EIO) {
		t.Errorf("%v", err)
	}
	if !slices.Equal(n.told, []string{"/a 1"}) || len(s.Dirs()) != 1 || len(s.OfflineDirs()) != 1 || s.ByID(a.ID) != nil {
		t.Errorf("told %v, live %v", n.told, s.Dirs())
	}
	if l, _ := s.Log(tp("foo", 0)); l != nil {
		t.Error("foo-0 is still there")
	}
	if l, _ := s.Log(tp("foo", 1)); l == nil {
		t.Error("foo-1 is gone")
	}
	var off *OfflineError
	if _, _, err := s.Create(tp("bar", 0), uuid.Zero, a.ID, false); !errors.As(err, &off) {
		t.Errorf("%v", err)
	}
	if _, d := n.create(tp("bar", 0), uuid.Zero); d.Path != "/b" {
		t.Errorf("made in %s", d.Path)
	}
	if err := s.Close(9); err != nil {
		t.Error(err)
	}
	if slices.Contains(n.ls("/a"), checkpoint.CleanShutdownFile) || !slices.Contains(n.ls("/b"), checkpoint.CleanShutdownFile) {
		t.Error("wrong markers")
	}
}

// A disk that fails while a log is made costs that directory, not the log.
func TestCreateTriesTheNextDirectory(t *testing.T) {
	n := newNode(t)
	s := n.start()
	n.fs.Set(errfs.Rule{Path: "/a/*/*", Err: syscall.EIO}, errfs.Rule{Path: "/a/*", Err: syscall.EIO})
	if _, d := n.create(tp("foo", 0), uuid.Zero); d.Path != "/b" || !slices.Equal(n.told, []string{"/a 0"}) {
		t.Errorf("made in %s, told %v", d.Path, n.told)
	}
	_ = s
}

func TestReport(t *testing.T) {
	n := newNode(t)
	s := n.start()
	l, _ := n.create(tp("foo", 0), s.ByPath("/a").ID)
	full := &storage.DiskError{Dir: l.Dir(), Op: "append", Err: storage.ErrNoSpace}
	if s.Report(full) || s.Report(errors.New("x")) || s.Report(&storage.CorruptError{Dir: l.Dir()}) || len(s.Dirs()) != 2 {
		t.Error("a full disk or a corrupt log took the directory offline")
	}
	if !s.Report(&storage.DiskError{Dir: l.Dir(), Op: "append", Err: syscall.EIO}) || len(s.Dirs()) != 1 {
		t.Error("a failed disk did not")
	}
	if s.Report(&storage.DiskError{Dir: l.Dir(), Op: "append", Err: syscall.EIO}); len(n.told) != 1 {
		t.Errorf("told %v", n.told)
	}
}

func TestFullDisk(t *testing.T) {
	n := newNode(t)
	s := n.start()
	n.create(tp("foo", 0), uuid.Zero)
	n.fs.Set(errfs.Rule{Op: errfs.Write, Err: syscall.ENOSPC})
	if err := s.WriteHighWatermarks(); !errors.Is(err, syscall.ENOSPC) || len(s.Dirs()) != 2 {
		t.Errorf("%v, %v", err, s.Dirs())
	}
	if err := s.Crash(); err != nil {
		t.Fatal(err)
	}
	s = n.start() // still full
	if l, _ := s.Log(tp("foo", 0)); l == nil || len(s.Dirs()) != 2 {
		t.Errorf("%+v %v", s.Failures(), s.OfflineDirs())
	}
}

func TestOfflineFromTheStart(t *testing.T) {
	n := newNode(t)
	n.fs.Set(errfs.Rule{Path: "/b/*", Err: syscall.EIO})
	s := n.start()
	if off := s.OfflineDirs(); len(off) != 1 || off[0].Path != "/b" || s.PreviousBrokerEpoch() != -1 {
		t.Errorf("%v", off)
	}
	if err := s.Crash(); err != nil {
		t.Fatal(err)
	}
	n.fs.Set(errfs.Rule{Path: "/a/*", Err: syscall.EIO}) // the metadata directory
	if _, err := Open(n.options()); !errors.Is(err, syscall.EIO) {
		t.Errorf("%v", err)
	}
}
