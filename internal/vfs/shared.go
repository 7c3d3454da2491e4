package vfs

import (
	"io"
	"sync/atomic"

	"weir/internal/invariant"
)

// Shared is an open File with a count of its users. The file is closed when the last of them lets go.
type Shared struct {
	file File
	refs atomic.Int64
}

// NewShared wraps an open file. The caller holds the one reference that exists then.
func NewShared(f File) *Shared {
	s := &Shared{file: f}
	s.refs.Store(1)
	return s
}

// Acquire takes one more reference. It fails when the last one is gone already: then the file is closed, and who wants
// to read has to open it again.
func (s *Shared) Acquire() bool {
	for {
		n := s.refs.Load()
		if n == 0 {
			return false
		}
		if s.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// Release gives one reference back and closes the file with the last. The error is that of closing.
func (s *Shared) Release() error {
	n := s.refs.Add(-1)
	invariant.Check(n >= 0, "a shared file was released more often than acquired")
	if n == 0 {
		return s.file.Close()
	}
	return nil
}

// File is the open file; valid only while the caller holds a reference.
func (s *Shared) File() File { return s.file }

// Region is N bytes of a file from Off. Whoever holds a Region owns one reference of File and calls Release exactly
// once. The bytes do not change and are all in the file when the region is made; a read that comes up short afterwards
// (the file was truncated under it) reports io.ErrUnexpectedEOF.
//
// The zero Region is empty and may be released.
type Region struct {
	File   *Shared
	Off, N int64
}

// Release gives the reference back.
func (r Region) Release() {
	if r.File != nil {
		// The file was only read through regions: an error of closing it loses nothing.
		_ = r.File.Release()
	}
}

// ReadAt reads from the region's own offset off; at the region's end it returns io.EOF (io.ReaderAt).
func (r Region) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off >= r.N {
		return 0, io.EOF
	}
	short := false
	if int64(len(p)) > r.N-off {
		p, short = p[:r.N-off], true
	}
	n, err := r.File.File().ReadAt(p, r.Off+off)
	switch {
	case n < len(p) && (err == io.EOF || err == nil):
		return n, io.ErrUnexpectedEOF
	case n < len(p):
		return n, err
	case short:
		return n, io.EOF
	}
	return n, nil
}

// AppendTo appends the region's bytes to dst. On an error dst is returned as it was.
func (r Region) AppendTo(dst []byte) ([]byte, error) {
	if r.N == 0 {
		return dst, nil
	}
	old := len(dst)
	if cap(dst)-old < int(r.N) {
		grown := make([]byte, old, old+int(r.N))
		copy(grown, dst)
		dst = grown
	}
	out := dst[:old+int(r.N)]
	if _, err := r.ReadAt(out[old:], 0); err != nil {
		return dst[:old], err
	}
	return out, nil
}
