package segment

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"weir/internal/vfs"
)

// handle is one file of a segment, opened when it is needed.
type handle struct {
	seg  *Segment
	name string // of the file, without suffix

	// shared is the open file, of which the handle owns one reference; nil when it is not open.
	shared atomic.Pointer[vfs.Shared]
	// dirty: written to since the last sync. Kept while the file is closed.
	dirty atomic.Bool

	dir *Dir

	// mu is held for opening, closing and renaming. Taken after every other lock of the segment, and before dir's.
	mu     sync.Mutex
	suffix string
	gone   bool // closed for good
}

func (h *handle) init(s *Segment, o Options, ext string) {
	h.seg = s
	h.name = Name(o.BaseOffset, ext, "")
	h.dir, h.suffix = o.Dir, o.Suffix
}

// pathNow is the present path, for messages.
func (h *handle) pathNow() string { return filepath.Join(h.dir.Path(), h.name+h.suffixNow()) }

// at calls f with the path, which stays right until f returns.
func (h *handle) at(f func(path string) error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.atLocked(f)
}

func (h *handle) atLocked(f func(path string) error) error {
	h.dir.mu.RLock()
	defer h.dir.mu.RUnlock()
	return f(filepath.Join(h.dir.path, h.name+h.suffix))
}

// stat looks at the file by its name.
func (h *handle) stat() (info fs.FileInfo, err error) {
	err = h.at(func(path string) error {
		info, err = h.seg.fs.Stat(path)
		return err
	})
	return info, err
}

func (h *handle) suffixNow() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.suffix
}

// create makes the file, which must not be there, and opens it.
func (h *handle) create() error { return h.openNew(os.O_RDWR | os.O_CREATE | os.O_EXCL) }

// createEmpty makes the file, or empties it, and opens it.
func (h *handle) createEmpty() error { return h.openNew(os.O_RDWR | os.O_CREATE | os.O_TRUNC) }

func (h *handle) openNew(flag int) error {
	err := h.at(func(path string) error {
		f, err := h.seg.fs.Open(path, flag, 0o644)
		if err == nil {
			h.shared.Store(vfs.NewShared(f))
			h.dirty.Store(true)
		}
		return err
	})
	if err == nil && h.seg.opened != nil {
		h.seg.opened(h.seg)
	}
	return err
}

// acquire returns the open file with a reference for the caller, who releases it. It opens the file when needed, and
// makes it when create is set. After the segment is closed the error wraps fs.ErrClosed.
func (h *handle) acquire(create bool) (*vfs.Shared, error) {
	if s := h.shared.Load(); s != nil && s.Acquire() {
		return s, nil
	}
	s, opened, err := h.acquireSlow(create)
	if opened && h.seg.opened != nil {
		h.seg.opened(h.seg)
	}
	return s, err
}

func (h *handle) acquireSlow(create bool) (s *vfs.Shared, opened bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	// The handle's own reference is only given back under mu, so this Acquire cannot fail.
	if s := h.shared.Load(); s != nil && s.Acquire() {
		return s, false, nil
	}
	flag := os.O_RDWR
	if create {
		flag |= os.O_CREATE
	}
	var f vfs.File
	err = h.atLocked(func(path string) error {
		if h.gone {
			return &fs.PathError{Op: "open", Path: path, Err: fs.ErrClosed}
		}
		f, err = h.seg.fs.Open(path, flag, 0o644)
		return err
	})
	if err != nil {
		return nil, false, err
	}
	s = vfs.NewShared(f)
	s.Acquire()
	h.shared.Store(s)
	return s, true, nil
}

// close lets go of the open file.
func (h *handle) close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.closeLocked()
}

func (h *handle) closeLocked() error {
	if s := h.shared.Swap(nil); s != nil {
		return s.Release()
	}
	return nil
}

// retire closes the file for good.
func (h *handle) retire() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gone = true
	return h.closeLocked()
}

// remove closes the file for good and deletes it, if it is there.
func (h *handle) remove() error {
	return errors.Join(h.retire(), h.at(func(path string) error { return removeIfThere(h.seg.fs, path) }))
}

// rename gives the file another suffix. With optional a missing file is passed over.
func (h *handle) rename(suffix string, optional bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if suffix == h.suffix {
		return nil
	}
	err := h.atLocked(func(path string) error {
		return h.seg.fs.Rename(path, filepath.Join(filepath.Dir(path), h.name+suffix))
	})
	if err != nil && !(optional && errors.Is(err, fs.ErrNotExist)) {
		return err
	}
	h.suffix = suffix
	return nil
}

// writeAt writes to the file and marks it dirty. The number of bytes is only for the error's sake.
func (h *handle) writeAt(p []byte, off int64, create bool) error {
	f, err := h.acquire(create)
	if err != nil {
		return err
	}
	defer f.Release()
	h.dirty.Store(true)
	_, err = f.File().WriteAt(p, off)
	return err
}

// truncate cuts the file and marks it dirty.
func (h *handle) truncate(size int64) error {
	f, err := h.acquire(true)
	if err != nil {
		return err
	}
	defer f.Release()
	h.dirty.Store(true)
	return f.File().Truncate(size)
}

// sync makes what was written before the call survive a power cut, if anything was.
func (h *handle) sync() error {
	if !h.dirty.Swap(false) {
		return nil
	}
	f, err := h.acquire(false)
	if err == nil {
		err = errors.Join(f.File().Sync(), f.Release())
	}
	if err != nil {
		h.dirty.Store(true)
	}
	return err
}
