package vfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// OS is the machine's file system.
func OS() FS { return osFS{} }

type osFS struct{}

// OSFile is what OS opens: an *os.File, with its descriptor for sendfile(2).
type OSFile struct{ f *os.File }

var _ interface {
	File
	Fd() uintptr
} = OSFile{}

func (o OSFile) ReadAt(p []byte, off int64) (int, error)  { return o.f.ReadAt(p, off) }
func (o OSFile) WriteAt(p []byte, off int64) (int, error) { return o.f.WriteAt(p, off) }
func (o OSFile) Close() error                             { return o.f.Close() }
func (o OSFile) Truncate(size int64) error                { return o.f.Truncate(size) }
func (o OSFile) Sync() error                              { return o.f.Sync() }
func (o OSFile) Stat() (fs.FileInfo, error)               { return o.f.Stat() }
func (o OSFile) Name() string                             { return o.f.Name() }

// Fd is the descriptor; valid until Close.
func (o OSFile) Fd() uintptr { return o.f.Fd() }

func (osFS) Open(name string, flag int, perm os.FileMode) (File, error) {
	if flag&os.O_APPEND != 0 {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	f, err := os.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return OSFile{f}, nil
}

func (osFS) Remove(name string) error                     { return os.Remove(name) }
func (osFS) RemoveAll(name string) error                  { return os.RemoveAll(name) }
func (osFS) Rename(oldname, newname string) error         { return os.Rename(oldname, newname) }
func (osFS) MkdirAll(name string, perm os.FileMode) error { return os.MkdirAll(name, perm) }
func (osFS) ReadDir(name string) ([]fs.DirEntry, error)   { return os.ReadDir(name) }
func (osFS) Stat(name string) (fs.FileInfo, error)        { return os.Stat(name) }
func (osFS) SetModTime(name string, t time.Time) error    { return os.Chtimes(name, time.Time{}, t) }

func (osFS) SyncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Lock uses an open-file-description lock (F_OFD_SETLK): it conflicts with the POSIX record lock that a JVM takes, and
// unlike one it belongs to this open file, so a second Lock in the same process fails too and closing some other
// descriptor of the file does not drop it.
func (osFS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	lock := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	err = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &lock)
	if err == nil {
		return f, nil
	}
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		err = ErrLocked
	}
	return nil, errors.Join(&fs.PathError{Op: "lock", Path: name, Err: err}, f.Close())
}

func (osFS) Free(dir string) (free, total uint64, err error) {
	var s unix.Statfs_t
	for {
		err = unix.Statfs(dir, &s)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return 0, 0, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	block := uint64(s.Bsize)
	return s.Bavail * block, s.Blocks * block, nil
}
