package memfs

import (
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// node is a file or a directory, whatever its names are.
type node struct {
	fs  *FS
	dir bool

	// Of a directory; guarded by FS.mu. names is what processes see, sure what a power cut leaves.
	names, sure map[string]*node

	// Of a file.
	mu      sync.Mutex
	gone    bool     // no name leads here any more: its bytes do not count in FS.usage
	data    []byte   // what processes see
	durable []byte   // what a power cut leaves for certain
	pending []dataOp // what leads from durable to data, oldest first
	mtime   time.Time
}

// dataOp is a write, or a truncation when data is nil.
type dataOp struct {
	off  int64 // of a truncation: the new size
	data []byte
}

func (f *FS) newNode(dir bool) *node {
	n := &node{fs: f, dir: dir, mtime: f.now()}
	if dir {
		n.names, n.sure = map[string]*node{}, map[string]*node{}
	}
	return n
}

func sortedNames(m map[string]*node) []string { return slices.Sorted(maps.Keys(m)) }

// resize cuts or grows b with zeros.
func resize(b []byte, size int64) []byte {
	if size <= int64(len(b)) {
		return b[:size]
	}
	old := len(b)
	b = slices.Grow(b, int(size)-old)[:size]
	clear(b[old:])
	return b
}

func apply(b []byte, op dataOp) []byte {
	if op.data == nil {
		return resize(b, op.off)
	}
	if end := op.off + int64(len(op.data)); end > int64(len(b)) {
		b = resize(b, end)
	}
	copy(b[op.off:], op.data)
	return b
}

// write puts p at off as far as the capacity allows.
func (n *node) write(p []byte, off int64) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	end := off + int64(len(p))
	var err error
	if grow := end - int64(len(n.data)); grow > 0 && !n.gone {
		if got := n.fs.take(grow); got < grow {
			end -= grow - got
			err = syscall.ENOSPC
		}
	}
	if end <= off {
		// Not even the gap before off fits: nothing is written.
		if err != nil {
			n.fs.give(end - int64(len(n.data)))
		}
		return 0, err
	}
	op := dataOp{off: off, data: slices.Clone(p[:end-off])}
	n.data = apply(n.data, op)
	n.pending = append(n.pending, op)
	n.mtime = n.fs.now()
	return len(op.data), err
}

func (n *node) truncate(size int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	// Growing makes a hole, which takes no room in a real file system, but counts here: tests stay simple.
	if !n.gone {
		n.fs.give(int64(len(n.data)) - size)
	}
	op := dataOp{off: size}
	n.data = apply(n.data, op)
	n.pending = append(n.pending, op)
	n.mtime = n.fs.now()
}

func (n *node) sync() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, op := range n.pending {
		n.durable = apply(n.durable, op)
	}
	n.pending = nil
}

// take asks for bytes of the capacity and returns how many there were.
func (f *FS) take(want int64) int64 {
	f.usage.mu.Lock()
	defer f.usage.mu.Unlock()
	got := max(0, min(want, int64(f.capacity)-f.usage.used))
	f.usage.used += got
	return got
}

func (f *FS) give(back int64) {
	f.usage.mu.Lock()
	defer f.usage.mu.Unlock()
	f.usage.used -= back
}

func (n *node) info(name string) fs.FileInfo {
	n.mu.Lock()
	defer n.mu.Unlock()
	return info{name: name, size: int64(len(n.data)), dir: n.dir, mtime: n.mtime}
}

type info struct {
	name  string
	size  int64
	dir   bool
	mtime time.Time
}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return i.size }
func (i info) ModTime() time.Time { return i.mtime }
func (i info) IsDir() bool        { return i.dir }
func (i info) Sys() any           { return nil }
func (i info) Mode() fs.FileMode {
	if i.dir {
		return fs.ModeDir | 0o755
	}
	return 0o644
}

// file is an open file.
type file struct {
	fs                 *FS
	node               *node
	name               string
	readable, writable bool
	closed             atomic.Bool
}

func (h *file) check(op string, allowed bool) error {
	switch {
	case h.closed.Load():
		return pathErr(op, h.name, fs.ErrClosed)
	case !allowed:
		return pathErr(op, h.name, syscall.EBADF)
	}
	return nil
}

func (h *file) ReadAt(p []byte, off int64) (int, error) {
	if err := h.check("read", h.readable); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, pathErr("read", h.name, syscall.EINVAL)
	}
	h.node.mu.Lock()
	defer h.node.mu.Unlock()
	if off >= int64(len(h.node.data)) {
		if len(p) == 0 {
			return 0, nil
		}
		return 0, io.EOF
	}
	n := copy(p, h.node.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (h *file) WriteAt(p []byte, off int64) (int, error) {
	if err := h.check("write", h.writable); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, pathErr("write", h.name, syscall.EINVAL)
	}
	if len(p) == 0 {
		return 0, nil
	}
	h.fs.mu.RLock()
	defer h.fs.mu.RUnlock()
	n, err := h.node.write(p, off)
	if err != nil {
		return n, pathErr("write", h.name, err)
	}
	return n, nil
}

func (h *file) Truncate(size int64) error {
	if err := h.check("truncate", h.writable); err != nil {
		return err
	}
	if size < 0 {
		return pathErr("truncate", h.name, syscall.EINVAL)
	}
	h.fs.mu.RLock()
	defer h.fs.mu.RUnlock()
	h.node.truncate(size)
	return nil
}

func (h *file) Sync() error {
	if err := h.check("sync", true); err != nil {
		return err
	}
	h.fs.mu.RLock()
	defer h.fs.mu.RUnlock()
	h.node.sync()
	return nil
}

func (h *file) Stat() (fs.FileInfo, error) {
	if err := h.check("stat", true); err != nil {
		return nil, err
	}
	return h.node.info(path.Base(h.name)), nil
}

func (h *file) Name() string { return h.name }

func (h *file) Close() error {
	if h.closed.Swap(true) {
		return pathErr("close", h.name, fs.ErrClosed)
	}
	return nil
}
