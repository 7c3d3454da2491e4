// Package vfs is the file system as a constructor argument. OS is the real one; vfs/memfs lives in memory and can
// lose power; vfs/errfs lets chosen operations of another FS fail.
//
// Files have no position: all reads and writes name their offset, so that any number of goroutines may use one File.
// A name is only safe after SyncDir of the directory that holds it; bytes are only safe after File.Sync.
//
// Shared counts the users of an open File, and Region is a span of such a file that somebody is about to send: a
// region stays readable when the file is closed by its owner, or deleted, in the meantime.
package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// ErrLocked is returned by FS.Lock when another process holds the lock.
var ErrLocked = errors.New("locked by another process")

// FS is a file system. Errors are *fs.PathError or *os.LinkError and wrap fs.ErrNotExist, fs.ErrExist or the
// syscall.Errno. Names are slash-separated paths; relative ones start at the process's working directory.
// All methods are safe for concurrent use.
type FS interface {
	// Open opens or creates a regular file; flag is as for os.OpenFile. O_APPEND is not allowed (writes name their offset).
	Open(name string, flag int, perm os.FileMode) (File, error)
	// Remove deletes a file or an empty directory. An open File stays usable.
	Remove(name string) error
	// RemoveAll deletes a tree; a missing one is no error.
	RemoveAll(name string) error
	// Rename replaces newname atomically when it exists and is a file.
	Rename(oldname, newname string) error
	// MkdirAll makes a directory and its parents.
	MkdirAll(name string, perm os.FileMode) error
	// ReadDir lists a directory by name order.
	ReadDir(name string) ([]fs.DirEntry, error)
	Stat(name string) (fs.FileInfo, error)
	// SetModTime sets the modification time of a file; a power cut may lose it.
	SetModTime(name string, t time.Time) error
	// SyncDir makes the names in a directory (created, renamed, removed) survive a power cut.
	SyncDir(name string) error
	// SyncVolume makes everything on the volume that holds name survive a power cut, bytes and names, whoever wrote it:
	// for many files it is far cheaper than to sync each. errors.ErrUnsupported where it cannot be had, or would not
	// tell that a write has failed.
	SyncVolume(name string) error
	// Session names the time for which what was written below dir stays readable although it was not synced: until the
	// machine stops or the volume is unmounted. Two equal answers, one before a process died and one after, say that no
	// write of that process was lost. "" where that cannot be told, as on a volume of another machine.
	Session(dir string) (string, error)
	// Lock creates the file when needed and takes a write lock on it that also excludes a JVM's FileChannel.lock.
	// It does not wait: ErrLocked. Closing lets go; the file stays.
	Lock(name string) (io.Closer, error)
	// Free says how many bytes the volume of dir has left for us and in all.
	Free(dir string) (free, total uint64, err error)
}

// File is an open file. The real one also offers Fd() uintptr, for sendfile.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Truncate cuts the file, or grows it with zeros.
	Truncate(size int64) error
	// Sync makes the content written so far survive a power cut.
	Sync() error
	Stat() (fs.FileInfo, error)
	// Name is the name given to Open, also after a rename.
	Name() string
}

// ReadFile reads a whole file.
func ReadFile(fsys FS, name string) ([]byte, error) {
	f, err := fsys.Open(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	// One byte more than expected, so that a file that grew meanwhile is noticed and read on.
	data := make([]byte, info.Size()+1)
	n := 0
	for {
		m, err := f.ReadAt(data[n:], int64(n))
		n += m
		if err == io.EOF {
			return data[:n], nil
		}
		if err != nil {
			return nil, err
		}
		data = append(data, make([]byte, len(data))...)
	}
}

// WriteFileAtomic replaces the content of name so that after a power cut either the old or the new content is there:
// name.tmp is written and synced, renamed over name, and the directory is synced.
func WriteFileAtomic(fsys FS, name string, data []byte) error {
	if err := writeFile(fsys, name+staged, data, true); err != nil {
		return err
	}
	if err := CommitStaged(fsys, name); err != nil {
		return err
	}
	return fsys.SyncDir(filepath.Dir(name))
}

const staged = ".tmp"

// StagedName is where WriteStaged writes what will become name.
func StagedName(name string) string { return name + staged }

// WriteStaged and CommitStaged are WriteFileAtomic in two steps for many files at once. The caller syncs the volume
// (FS.SyncVolume) after each step; a file is only replaced by bytes that are sure.
func WriteStaged(fsys FS, name string, data []byte) error {
	return writeFile(fsys, name+staged, data, false)
}

// CommitStaged puts in place what WriteStaged wrote.
func CommitStaged(fsys FS, name string) error { return fsys.Rename(name+staged, name) }

func writeFile(fsys FS, name string, data []byte, sync bool) error {
	f, err := fsys.Open(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	if len(data) > 0 {
		if _, err := f.WriteAt(data, 0); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	if sync {
		if err := f.Sync(); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	return f.Close()
}

// Exists reports whether name is there. Errors other than fs.ErrNotExist are returned.
func Exists(fsys FS, name string) (bool, error) {
	_, err := fsys.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("does %s exist: %w", name, err)
	}
	return true, nil
}
