package segment

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"weir/internal/vfs"
)

func TestHandles(t *testing.T) {
	f := newFS(t)
	o := options(f, 0)
	opened := 0
	o.Opened = func(*Segment) { opened++ }
	s := create(t, o)
	all := slices.Concat(fill(t, s, 30)...)
	if s.OpenFiles() != 3 || opened != 3 {
		t.Errorf("%d files are open, %d were opened", s.OpenFiles(), opened)
	}
	r, _, err := s.Read(0, 1<<20, 1<<20, true)
	must(t, err)
	must(t, s.CloseHandles())
	if s.OpenFiles() != 0 {
		t.Errorf("%d files are open", s.OpenFiles())
	}
	readAll := func() {
		t.Helper()
		if got, err := r.Region.AppendTo(nil); err != nil || !bytes.Equal(got, all) {
			t.Errorf("the region gives %d bytes, %v", len(got), err)
		}
	}
	readAll()
	all = append(all, slices.Concat(fill(t, s, 30)...)...)
	if opened < 4 {
		t.Error("nothing was opened again")
	}
	r.Region.Release()
	r, _, err = s.Read(0, 1<<20, 1<<20, true)
	must(t, err)
	if !s.Dirty() {
		t.Error("not dirty after appends")
	}
	must(t, s.CloseHandles())
	must(t, s.Flush()) // what was written through closed handles counts
	if s.Dirty() {
		t.Error("dirty after a flush")
	}
	must(t, f.SyncDir(dir))
	if got := file(t, f.Crash(nil), 0, ExtLog); !bytes.Equal(got, all) {
		t.Error("Flush did not make everything sure")
	}

	must(t, s.Rename(SuffixDeleted))
	if s.Suffix() != SuffixDeleted || filepath.Base(s.LogPath()) != "00000000000000000000.log.deleted" {
		t.Errorf("renamed to %s", s.LogPath())
	}
	list, err := f.ReadDir(dir)
	must(t, err)
	for _, e := range list {
		if !strings.HasSuffix(e.Name(), SuffixDeleted) {
			t.Errorf("%s is left", e.Name())
		}
	}
	must(t, s.CloseHandles())
	if got := content(t, s, 0, 1<<40); !bytes.Equal(got, all) {
		t.Error("a renamed segment reads something else")
	}
	must(t, o.Dir.Rename(f, "/moved"))
	must(t, s.CloseHandles())
	if got := content(t, s, 0, 1<<40); !bytes.Equal(got, all) {
		t.Error("a moved segment reads something else")
	}
	must(t, s.Delete())
	readAll()
	r.Region.Release()
	if list, err := f.ReadDir("/moved"); err != nil || len(list) != 0 {
		t.Errorf("Delete left %v, %v", list, err)
	}
	if _, _, err := s.Position(0); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("a deleted segment: %v", err)
	}
}

func TestRemove(t *testing.T) {
	f := newFS(t)
	s := create(t, options(f, 5))
	put(t, s, records(5, 1))
	must(t, s.AppendAborted(AbortedTxn{1, 5, 5, 5}))
	must(t, s.Close())
	must(t, Remove(f, dir, 5, ""))
	must(t, Remove(f, dir, 5, ""))
	if list, err := f.ReadDir(dir); err != nil || len(list) != 0 {
		t.Errorf("Remove left %v, %v", list, err)
	}
	// Create does away with stale indexes.
	for _, ext := range []string{ExtIndex, ExtTimeIndex, ExtTxnIndex} {
		must(t, vfs.WriteFileAtomic(f, Path(dir, 5, ext, ""), bytes.Repeat([]byte{9}, 24)))
	}
	s = create(t, options(f, 5))
	put(t, s, records(5, 1))
	must(t, s.SanityCheck(true))
}

func TestLastModified(t *testing.T) {
	name := filepath.Join(t.TempDir(), "x")
	o := options(vfs.OS(), 0)
	o.Dir = NewDir(filepath.Dir(name))
	s := create(t, o)
	info, err := os.Stat(s.LogPath())
	must(t, err)
	if ms, err := s.LastModifiedMs(); err != nil || ms != info.ModTime().UnixMilli() {
		t.Errorf("LastModifiedMs = %d, %v", ms, err)
	}
	must(t, s.Delete())
}
