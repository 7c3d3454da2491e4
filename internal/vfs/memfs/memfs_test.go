package memfs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"weir/internal/rng"
	"weir/internal/vfs"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// tree lists every file as "path=content" and every directory as "path/".
func tree(t *testing.T, f *FS) string {
	t.Helper()
	var list []string
	var walk func(dir string)
	walk = func(dir string) {
		entries, err := f.ReadDir(dir)
		must(t, err)
		for _, e := range entries {
			name := strings.TrimPrefix(dir+"/"+e.Name(), "//")
			if e.IsDir() {
				list = append(list, name+"/")
				walk(dir + "/" + e.Name())
				continue
			}
			b, err := vfs.ReadFile(f, name)
			must(t, err)
			list = append(list, name+"="+string(b))
		}
	}
	walk("/")
	return strings.Join(list, " ")
}

func TestCrash(t *testing.T) {
	write := func(f *FS, name, text string, sync bool) {
		h, err := f.Open(name, os.O_RDWR|os.O_CREATE, 0)
		must(t, err)
		_, err = h.WriteAt([]byte(text), 0)
		must(t, err)
		if sync {
			must(t, h.Sync())
		}
		must(t, h.Close())
	}
	for _, c := range []struct {
		name string
		do   func(f *FS)
		want string
	}{
		{"nothing synced", func(f *FS) { write(f, "f", "x", false) }, ""},
		{"bytes without the name", func(f *FS) { write(f, "f", "x", true) }, ""},
		{"the name without bytes", func(f *FS) { write(f, "f", "x", false); must(t, f.SyncDir("/")) }, "f="},
		{"both", func(f *FS) { write(f, "f", "x", true); must(t, f.SyncDir("/")) }, "f=x"},
		{"overwritten since", func(f *FS) {
			write(f, "f", "old", true)
			must(t, f.SyncDir("/"))
			write(f, "f", "newer", false)
		}, "f=old"},
		{"truncated since", func(f *FS) {
			write(f, "f", "old", true)
			must(t, f.SyncDir("/"))
			h, _ := f.Open("f", os.O_RDWR|os.O_TRUNC, 0)
			must(t, h.Close())
		}, "f=old"},
		{"removed, not synced", func(f *FS) {
			write(f, "f", "x", true)
			must(t, f.SyncDir("/"))
			must(t, f.Remove("f"))
		}, "f=x"},
		{"removed and synced", func(f *FS) {
			write(f, "f", "x", true)
			must(t, f.SyncDir("/"))
			must(t, f.Remove("f"))
			must(t, f.SyncDir("/"))
		}, ""},
		{"renamed, not synced", func(f *FS) {
			write(f, "f", "x", true)
			write(f, "g", "y", true)
			must(t, f.SyncDir("/"))
			must(t, f.Rename("f", "g"))
		}, "f=x g=y"},
		{"renamed and synced", func(f *FS) {
			write(f, "f", "x", true)
			write(f, "g", "y", true)
			must(t, f.Rename("f", "g"))
			must(t, f.SyncDir("/"))
		}, "g=x"},
		{"renamed over directories, one synced", func(f *FS) {
			must(t, f.MkdirAll("a", 0))
			must(t, f.MkdirAll("b", 0))
			must(t, f.SyncDir("/"))
			write(f, "a/f", "x", true)
			must(t, f.SyncDir("a"))
			must(t, f.Rename("a/f", "b/f"))
			must(t, f.SyncDir("b"))
		}, "a/ b/ b/f=x"},
		{"in a directory that is not sure", func(f *FS) {
			must(t, f.MkdirAll("a", 0))
			write(f, "a/f", "x", true)
			must(t, f.SyncDir("a"))
		}, ""},
		{"written atomically", func(f *FS) { must(t, vfs.WriteFileAtomic(f, "f", []byte("x"))) }, "f=x"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := New()
			c.do(f)
			before := tree(t, f)
			if got := tree(t, f.Crash(nil)); got != c.want {
				t.Errorf("left %q, want %q", got, c.want)
			}
			if now := tree(t, f); now != before {
				t.Errorf("the old file system changed to %q", now)
			}
		})
	}
}

// With dice, whatever survives must be something that could have been written, and all outcomes must come up.
func TestCrashDice(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(300) {
		f := New()
		must(t, vfs.WriteFileAtomic(f, "keep", []byte("sure")))
		h, err := f.Open("f", os.O_RDWR|os.O_CREATE, 0)
		must(t, err)
		old := bytes.Repeat([]byte{1}, 1200)
		_, err = h.WriteAt(old, 0)
		must(t, err)
		must(t, h.Sync())
		must(t, f.SyncDir("/"))
		_, err = h.WriteAt(bytes.Repeat([]byte{2}, 1000), 700)
		must(t, err)
		must(t, f.Rename("f", "g"))

		c := f.Crash(rng.New(seed))
		again := f.Crash(rng.New(seed))
		if a, b := tree(t, c), tree(t, again); a != b {
			t.Fatal("the same seed leaves something else")
		}
		if s, err := vfs.ReadFile(c, "keep"); err != nil || string(s) != "sure" {
			t.Fatalf("what was sure is %q, %v", s, err)
		}
		name := "f"
		if ok, _ := vfs.Exists(c, "g"); ok {
			name = "g"
			if ok, _ := vfs.Exists(c, "f"); ok {
				t.Fatal("half a rename survived")
			}
		}
		b, err := vfs.ReadFile(c, name)
		must(t, err)
		if len(b) < 1200 || len(b) > 1700 || !bytes.Equal(b[:700], old[:700]) {
			t.Fatalf("seed %d: %d bytes", seed, len(b))
		}
		kind := name
		for _, v := range slices.Compact(slices.Clone(b[700:])) {
			kind += fmt.Sprint(" ", v)
		}
		seen[kind]++
	}
	for _, want := range []string{"f 1", "g 1", "f 2", "g 2", "g 1 2", "g 2 1"} {
		if seen[want] == 0 {
			t.Errorf("never left %q, but %v", want, seen)
		}
	}
}

func TestCapacity(t *testing.T) {
	f := New()
	f.SetCapacity(10)
	h, err := f.Open("f", os.O_RDWR|os.O_CREATE, 0)
	must(t, err)
	if n, err := h.WriteAt([]byte("12345678"), 0); n != 8 || err != nil {
		t.Fatalf("WriteAt = %d, %v", n, err)
	}
	if n, err := h.WriteAt([]byte("abcdef"), 6); n != 4 || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("WriteAt = %d, %v", n, err)
	}
	if n, err := h.WriteAt([]byte("x"), 20); n != 0 || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("WriteAt = %d, %v", n, err)
	}
	free := func() uint64 {
		n, _, err := f.Free("/")
		must(t, err)
		return n
	}
	if free() != 0 {
		t.Errorf("free %d", free())
	}
	must(t, h.Truncate(4))
	if free() != 6 {
		t.Errorf("free %d after truncating", free())
	}
	must(t, f.Rename("f", "g"))
	if free() != 6 {
		t.Errorf("free %d after renaming", free())
	}
	must(t, h.Sync())
	must(t, f.SyncDir("/"))
	if n, _, _ := f.Crash(nil).Free("/"); n != 6 {
		t.Errorf("free %d after a crash", n)
	}
	must(t, f.Remove("g"))
	must(t, h.Truncate(0))
	if free() != 10 {
		t.Errorf("free %d after removing", free())
	}
}

// What is written after a truncation never survives beside bytes that the truncation took away.
func TestCrashTruncation(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(200) {
		f := New()
		must(t, vfs.WriteFileAtomic(f, "f", []byte("older")))
		h, err := f.Open("f", os.O_RDWR, 0)
		must(t, err)
		must(t, h.Truncate(2))
		_, err = h.WriteAt([]byte("NEW"), 2)
		must(t, err)
		b, err := vfs.ReadFile(f.Crash(rng.New(seed)), "f")
		must(t, err)
		seen[string(b)]++
	}
	for _, want := range []string{"older", "ol", "olNEW", "ol\x00\x00\x00"} {
		if seen[want] == 0 {
			t.Errorf("never left %q", want)
		}
		delete(seen, want)
	}
	if len(seen) > 0 {
		t.Errorf("left %v", seen)
	}
}
