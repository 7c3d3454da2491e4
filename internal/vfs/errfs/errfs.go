// Package errfs lets chosen operations of a file system fail: the disk faults of tests. Everything else goes through
// to the wrapped file system.
//
//	fsys := errfs.Wrap(memfs.New(), errfs.Rule{Op: errfs.Sync, Path: "*.log", Skip: 2, Err: syscall.EIO})
//
// fails every sync of a log file from the third on.
package errfs

import (
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync"
	"time"

	"weir/internal/vfs"
)

// Op names an operation of vfs.FS or vfs.File; Any is all of them.
type Op string

// The operations. Create is an Open with O_CREATE, which is also Open.
const (
	Any      Op = ""
	Open     Op = "open"
	Create   Op = "create"
	Remove   Op = "remove" // and RemoveAll
	Rename   Op = "rename" // matched by the old or the new name
	Mkdir    Op = "mkdir"
	ReadDir  Op = "readdir"
	Stat     Op = "stat" // of FS and File
	ModTime  Op = "modtime"
	SyncDir  Op = "syncdir"
	SyncAll  Op = "syncvolume"
	Session  Op = "session"
	Lock     Op = "lock"
	Free     Op = "free"
	Read     Op = "read"
	Write    Op = "write"
	Truncate Op = "truncate"
	Sync     Op = "sync"
	Close    Op = "close" // the file is closed in any case
)

// Rule says which calls fail, and how.
type Rule struct {
	Op Op
	// Path is a pattern of path.Match. Without a slash it is held against the last element of the name, else against
	// the whole name. "" matches every name.
	Path string
	// Skip lets the first calls that match pass.
	Skip int
	// Count is how many calls fail after those; 0: all of them.
	Count int
	// Err is what they fail with, wrapped in a *fs.PathError: syscall.EIO, syscall.ENOSPC. nil: they do not fail (for Before).
	Err error
	// Short is how many bytes a failing write still writes.
	Short int
	// Before is called first, for calls that the rule fails: to wait, or to count. It holds no lock. May be nil.
	Before func()
}

// FS is a file system with faults.
type FS struct {
	vfs.FS
	mu    sync.Mutex
	rules []*ruleState
}

type ruleState struct {
	Rule
	seen int
}

// Wrap puts faults before a file system. The first rule that applies to a call decides.
func Wrap(fsys vfs.FS, rules ...Rule) *FS {
	f := &FS{FS: fsys}
	f.Set(rules...)
	return f
}

// Set replaces all rules; counts start anew. Without rules nothing fails.
func (f *FS) Set(rules ...Rule) {
	states := make([]*ruleState, len(rules))
	for i, r := range rules {
		states[i] = &ruleState{Rule: r}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = states
}

// hit finds the rule that fails a call; every rule that matches counts it.
func (f *FS) hit(op Op, names ...string) *Rule {
	f.mu.Lock()
	var hit *Rule
	for _, r := range f.rules {
		if !r.matches(op, names) {
			continue
		}
		r.seen++
		if n := r.seen - r.Skip; hit == nil && n > 0 && (r.Count == 0 || n <= r.Count) {
			hit = &r.Rule
		}
	}
	f.mu.Unlock()
	if hit != nil && hit.Before != nil {
		hit.Before()
	}
	return hit
}

func (r *ruleState) matches(op Op, names []string) bool {
	if r.Op != Any && r.Op != op && (r.Op != Open || op != Create) {
		return false
	}
	if r.Path == "" {
		return true
	}
	for _, name := range names {
		if !strings.Contains(r.Path, "/") {
			name = path.Base(name)
		}
		// A pattern that is no pattern matches nothing.
		if ok, err := path.Match(r.Path, name); ok && err == nil {
			return true
		}
	}
	return false
}

// fail is the error for a call, nil when it shall go through.
func (f *FS) fail(op Op, names ...string) error {
	r := f.hit(op, names...)
	if r == nil || r.Err == nil {
		return nil
	}
	return &fs.PathError{Op: string(op), Path: names[0], Err: r.Err}
}

// Open implements vfs.FS.
func (f *FS) Open(name string, flag int, perm os.FileMode) (vfs.File, error) {
	op := Open
	if flag&os.O_CREATE != 0 {
		op = Create
	}
	if err := f.fail(op, name); err != nil {
		return nil, err
	}
	file, err := f.FS.Open(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &wrapped{File: file, fs: f}, nil
}

// Remove implements vfs.FS.
func (f *FS) Remove(name string) error {
	if err := f.fail(Remove, name); err != nil {
		return err
	}
	return f.FS.Remove(name)
}

// RemoveAll implements vfs.FS.
func (f *FS) RemoveAll(name string) error {
	if err := f.fail(Remove, name); err != nil {
		return err
	}
	return f.FS.RemoveAll(name)
}

// Rename implements vfs.FS.
func (f *FS) Rename(oldname, newname string) error {
	if err := f.fail(Rename, oldname, newname); err != nil {
		return err
	}
	return f.FS.Rename(oldname, newname)
}

// MkdirAll implements vfs.FS.
func (f *FS) MkdirAll(name string, perm os.FileMode) error {
	if err := f.fail(Mkdir, name); err != nil {
		return err
	}
	return f.FS.MkdirAll(name, perm)
}

// ReadDir implements vfs.FS.
func (f *FS) ReadDir(name string) ([]fs.DirEntry, error) {
	if err := f.fail(ReadDir, name); err != nil {
		return nil, err
	}
	return f.FS.ReadDir(name)
}

// Stat implements vfs.FS.
func (f *FS) Stat(name string) (fs.FileInfo, error) {
	if err := f.fail(Stat, name); err != nil {
		return nil, err
	}
	return f.FS.Stat(name)
}

// SetModTime implements vfs.FS.
func (f *FS) SetModTime(name string, t time.Time) error {
	if err := f.fail(ModTime, name); err != nil {
		return err
	}
	return f.FS.SetModTime(name, t)
}

// SyncDir implements vfs.FS.
func (f *FS) SyncDir(name string) error {
	if err := f.fail(SyncDir, name); err != nil {
		return err
	}
	return f.FS.SyncDir(name)
}

// SyncVolume implements vfs.FS.
func (f *FS) SyncVolume(name string) error {
	if err := f.fail(SyncAll, name); err != nil {
		return err
	}
	return f.FS.SyncVolume(name)
}

// Session implements vfs.FS.
func (f *FS) Session(dir string) (string, error) {
	if err := f.fail(Session, dir); err != nil {
		return "", err
	}
	return f.FS.Session(dir)
}

// Lock implements vfs.FS.
func (f *FS) Lock(name string) (io.Closer, error) {
	if err := f.fail(Lock, name); err != nil {
		return nil, err
	}
	return f.FS.Lock(name)
}

// Free implements vfs.FS.
func (f *FS) Free(dir string) (free, total uint64, err error) {
	if err := f.fail(Free, dir); err != nil {
		return 0, 0, err
	}
	return f.FS.Free(dir)
}

// wrapped is an open file. It has no Fd, so nobody can send from it around the faults.
type wrapped struct {
	vfs.File
	fs *FS
}

func (w *wrapped) ReadAt(p []byte, off int64) (int, error) {
	if err := w.fs.fail(Read, w.Name()); err != nil {
		return 0, err
	}
	return w.File.ReadAt(p, off)
}

func (w *wrapped) WriteAt(p []byte, off int64) (int, error) {
	r := w.fs.hit(Write, w.Name())
	if r == nil || r.Err == nil {
		return w.File.WriteAt(p, off)
	}
	n, err := 0, error(nil)
	if r.Short > 0 {
		n, err = w.File.WriteAt(p[:min(r.Short, len(p))], off)
	}
	if err == nil {
		err = &fs.PathError{Op: string(Write), Path: w.Name(), Err: r.Err}
	}
	return n, err
}

func (w *wrapped) Truncate(size int64) error {
	if err := w.fs.fail(Truncate, w.Name()); err != nil {
		return err
	}
	return w.File.Truncate(size)
}

func (w *wrapped) Sync() error {
	if err := w.fs.fail(Sync, w.Name()); err != nil {
		return err
	}
	return w.File.Sync()
}

func (w *wrapped) Stat() (fs.FileInfo, error) {
	if err := w.fs.fail(Stat, w.Name()); err != nil {
		return nil, err
	}
	return w.File.Stat()
}

func (w *wrapped) Close() error {
	err := w.fs.fail(Close, w.Name())
	if cerr := w.File.Close(); err == nil {
		err = cerr
	}
	return err
}
