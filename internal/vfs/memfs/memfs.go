// Package memfs is a file system in memory that can lose power. It is the disk of unit tests and of the simulator.
//
// It keeps, beside what a running process sees, what the disk is sure to hold:
//
//   - bytes are sure after File.Sync of any handle of the file; until then each write and truncation may be lost, in
//     part or whole;
//   - names (created, renamed, removed files and directories) are sure after SyncDir of the directory they stand in;
//     until then a name operation may be lost, but never half of a rename.
//
// Crash makes the file system that the next start of the machine finds. The old one goes on working, for goroutines
// that have not noticed yet.
package memfs

import (
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"weir/internal/vfs"
)

// FS is the file system. Make it with New. Relative names start at the root.
type FS struct {
	// mu: data operations hold it shared, name operations and Crash exclusively. Taken before a node's mu.
	mu       sync.RWMutex
	root     *node
	journal  []nameOp // name operations that no SyncDir has made sure yet, oldest first
	locks    map[*node]bool
	capacity uint64
	session  int // how many power cuts led here

	usage usage
	now   func() time.Time
}

var _ vfs.FS = (*FS)(nil)

// usage counts the bytes of all files, for SetCapacity.
type usage struct {
	mu   sync.Mutex
	used int64
}

// New returns an empty file system without a size limit. Modification times count up from a fixed day, one
// millisecond a change, so that runs are alike; see SetNow.
func New() *FS {
	t := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var mu sync.Mutex
	f := newFS()
	f.now = func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		t = t.Add(time.Millisecond)
		return t
	}
	f.root = f.newNode(true)
	return f
}

func newFS() *FS {
	return &FS{locks: map[*node]bool{}, capacity: math.MaxInt64}
}

// SetNow gives the source of modification times. Call it before the first use.
func (f *FS) SetNow(now func() time.Time) { f.now = now }

// SetCapacity limits the bytes of all files together; writes beyond fail with ENOSPC after filling what is left.
func (f *FS) SetCapacity(bytes uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.capacity = min(bytes, math.MaxInt64)
}

// split cleans a name into its elements; the root has none.
func split(name string) []string {
	name = path.Clean("/" + name)
	if name == "/" {
		return nil
	}
	return strings.Split(name[1:], "/")
}

func pathErr(op, name string, err error) error { return &fs.PathError{Op: op, Path: name, Err: err} }

// walkLocked finds the node of a path.
func (f *FS) walkLocked(elems []string) (*node, error) {
	n := f.root
	for _, e := range elems {
		if !n.dir {
			return nil, syscall.ENOTDIR
		}
		c := n.names[e]
		if c == nil {
			return nil, syscall.ENOENT
		}
		n = c
	}
	return n, nil
}

// parentLocked finds the directory that holds (or would hold) a path, and the last element.
func (f *FS) parentLocked(name string) (*node, string, error) {
	elems := split(name)
	if len(elems) == 0 {
		return nil, "", syscall.EINVAL
	}
	dir, err := f.walkLocked(elems[:len(elems)-1])
	if err != nil {
		return nil, "", err
	}
	if !dir.dir {
		return nil, "", syscall.ENOTDIR
	}
	return dir, elems[len(elems)-1], nil
}

// Open implements vfs.FS.
func (f *FS) Open(name string, flag int, _ os.FileMode) (vfs.File, error) {
	if flag&os.O_APPEND != 0 {
		return nil, pathErr("open", name, fs.ErrInvalid)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	dir, base, err := f.parentLocked(name)
	if err != nil {
		return nil, pathErr("open", name, err)
	}
	n := dir.names[base]
	switch {
	case n == nil && flag&os.O_CREATE == 0:
		return nil, pathErr("open", name, syscall.ENOENT)
	case n == nil:
		n = f.newNode(false)
		f.setNamesLocked(nameChange{dir, base, n})
	case flag&(os.O_CREATE|os.O_EXCL) == os.O_CREATE|os.O_EXCL:
		return nil, pathErr("open", name, syscall.EEXIST)
	case n.dir:
		return nil, pathErr("open", name, syscall.EISDIR)
	}
	h := &file{fs: f, node: n, name: name, writable: flag&(os.O_WRONLY|os.O_RDWR) != 0, readable: flag&os.O_WRONLY == 0}
	if flag&os.O_TRUNC != 0 {
		n.truncate(0)
	}
	return h, nil
}

// Remove implements vfs.FS.
func (f *FS) Remove(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	dir, base, err := f.parentLocked(name)
	if err != nil {
		return pathErr("remove", name, err)
	}
	n := dir.names[base]
	if n == nil {
		return pathErr("remove", name, syscall.ENOENT)
	}
	if n.dir && len(n.names) > 0 {
		return pathErr("remove", name, syscall.ENOTEMPTY)
	}
	f.setNamesLocked(nameChange{dir, base, nil})
	return nil
}

// RemoveAll implements vfs.FS. After a power cut any part of the tree may be left, from the top.
func (f *FS) RemoveAll(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	dir, base, err := f.parentLocked(name)
	if err == syscall.ENOENT {
		return nil
	}
	if err != nil {
		return pathErr("removeall", name, err)
	}
	if n := dir.names[base]; n != nil {
		f.removeTreeLocked(n)
		f.setNamesLocked(nameChange{dir, base, nil})
	}
	return nil
}

func (f *FS) removeTreeLocked(n *node) {
	for _, e := range sortedNames(n.names) {
		f.removeTreeLocked(n.names[e])
		f.setNamesLocked(nameChange{n, e, nil})
	}
}

// Rename implements vfs.FS.
func (f *FS) Rename(oldname, newname string) error {
	fail := func(err error) error { return &os.LinkError{Op: "rename", Old: oldname, New: newname, Err: err} }
	f.mu.Lock()
	defer f.mu.Unlock()
	from, oldBase, err := f.parentLocked(oldname)
	if err != nil {
		return fail(err)
	}
	to, newBase, err := f.parentLocked(newname)
	if err != nil {
		return fail(err)
	}
	n := from.names[oldBase]
	if n == nil {
		return fail(syscall.ENOENT)
	}
	old := to.names[newBase]
	switch {
	case old == n:
		return nil
	case n.dir && slices.Equal(split(newname)[:min(len(split(oldname)), len(split(newname)))], split(oldname)):
		return fail(syscall.EINVAL)
	case old != nil && old.dir && !n.dir:
		return fail(syscall.EISDIR)
	case old != nil && !old.dir && n.dir:
		return fail(syscall.ENOTDIR)
	case old != nil && old.dir && len(old.names) > 0:
		return fail(syscall.ENOTEMPTY)
	}
	f.setNamesLocked(nameChange{from, oldBase, nil}, nameChange{to, newBase, n})
	return nil
}

// MkdirAll implements vfs.FS.
func (f *FS) MkdirAll(name string, _ os.FileMode) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.root
	for _, e := range split(name) {
		if !n.dir {
			return pathErr("mkdir", name, syscall.ENOTDIR)
		}
		c := n.names[e]
		if c == nil {
			c = f.newNode(true)
			f.setNamesLocked(nameChange{n, e, c})
		}
		n = c
	}
	if !n.dir {
		return pathErr("mkdir", name, syscall.ENOTDIR)
	}
	return nil
}

// ReadDir implements vfs.FS.
func (f *FS) ReadDir(name string) ([]fs.DirEntry, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	n, err := f.walkLocked(split(name))
	if err == nil && !n.dir {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return nil, pathErr("readdir", name, err)
	}
	list := make([]fs.DirEntry, 0, len(n.names))
	for _, e := range sortedNames(n.names) {
		list = append(list, fs.FileInfoToDirEntry(n.names[e].info(e)))
	}
	return list, nil
}

// Stat implements vfs.FS.
func (f *FS) Stat(name string) (fs.FileInfo, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	n, err := f.walkLocked(split(name))
	if err != nil {
		return nil, pathErr("stat", name, err)
	}
	return n.info(path.Base(path.Clean("/" + name))), nil
}

// SetModTime implements vfs.FS. A crash keeps the time.
func (f *FS) SetModTime(name string, t time.Time) error {
	f.mu.RLock()
	defer f.mu.RUnlock()
	n, err := f.walkLocked(split(name))
	if err != nil {
		return pathErr("chtimes", name, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mtime = t
	return nil
}

// SyncDir implements vfs.FS.
func (f *FS) SyncDir(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.walkLocked(split(name))
	if err == nil && !n.dir {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return pathErr("syncdir", name, err)
	}
	f.syncNamesLocked(n)
	return nil
}

// SyncVolume implements vfs.FS.
func (f *FS) SyncVolume(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := f.walkLocked(split(name)); err != nil {
		return pathErr("syncvolume", name, err)
	}
	for _, op := range f.journal {
		for _, c := range op {
			set(c.dir.sure, c)
		}
	}
	clear(f.journal)
	f.journal = f.journal[:0]
	f.root.syncTree()
	return nil
}

// syncTree syncs every file below n. The caller holds FS.mu.
func (n *node) syncTree() {
	if !n.dir {
		n.sync()
		return
	}
	for _, c := range n.names {
		c.syncTree()
	}
}

// Session implements vfs.FS: it lasts until Crash.
func (f *FS) Session(dir string) (string, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if _, err := f.walkLocked(split(dir)); err != nil {
		return "", pathErr("session", dir, err)
	}
	return fmt.Sprintf("memfs %d", f.session), nil
}

// Lock implements vfs.FS. The file systems that Crash returns have no locks.
func (f *FS) Lock(name string) (io.Closer, error) {
	h, err := f.Open(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	n := h.(*file).node
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.locks[n] {
		return nil, pathErr("lock", name, vfs.ErrLocked)
	}
	f.locks[n] = true
	return &lock{fs: f, node: n}, nil
}

type lock struct {
	fs   *FS
	node *node // nil once closed; guarded by fs.mu
}

func (l *lock) Close() error {
	l.fs.mu.Lock()
	defer l.fs.mu.Unlock()
	if l.node == nil {
		return fs.ErrClosed
	}
	delete(l.fs.locks, l.node)
	l.node = nil
	return nil
}

// Free implements vfs.FS, with the capacity of SetCapacity.
func (f *FS) Free(dir string) (free, total uint64, err error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if _, err := f.walkLocked(split(dir)); err != nil {
		return 0, 0, pathErr("statfs", dir, err)
	}
	f.usage.mu.Lock()
	defer f.usage.mu.Unlock()
	return f.capacity - min(uint64(f.usage.used), f.capacity), f.capacity, nil
}
