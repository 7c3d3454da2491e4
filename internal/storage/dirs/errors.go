package dirs

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"weir/internal/storage"
	"weir/internal/vfs"
)

// LockedError means that another process, Weir or Apache Kafka, works in the directory.
type LockedError struct {
	Dir string
	Err error
}

func (e *LockedError) Error() string {
	return fmt.Sprintf("log directory %s is already in use by another process", e.Dir)
}
func (e *LockedError) Unwrap() error { return e.Err }

// NotFormattedError lists the directories without meta.properties.
type NotFormattedError struct{ Dirs []string }

func (e *NotFormattedError) Error() string {
	return fmt.Sprintf("no meta.properties in %s: format it first (weir storage format; with --ignore-formatted when other directories are in use already)",
		strings.Join(e.Dirs, ", "))
}

// IdentityError means that a directory belongs to another cluster or node than this process.
type IdentityError struct {
	File     string // its meta.properties
	Property string // cluster.id, node.id or directory.id
	Want     string // of this process, or of the other directories
	Found    string
}

func (e *IdentityError) Error() string {
	return fmt.Sprintf("%s: %s is %s, but this node has %s", e.File, e.Property, e.Found, e.Want)
}

// OfflineError answers for a directory, or a partition in it, that has failed.
type OfflineError struct {
	Dir string
	Err error // what failed
}

func (e *OfflineError) Error() string {
	return fmt.Sprintf("log directory %s is offline: %v", e.Dir, e.Err)
}
func (e *OfflineError) Unwrap() error { return e.Err }

// ErrNoDirectory means that every log directory is offline.
var ErrNoDirectory = errors.New("all log directories are offline")

// ErrExists is returned by Create for a partition that has its log already.
var ErrExists = errors.New("the log exists already")

// noSpace tells a full disk, which takes no directory offline.
func noSpace(err error) bool {
	return errors.Is(err, storage.ErrNoSpace) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// isDiskFailure tells errors that put the directory itself in doubt from those that concern one log.
func isDiskFailure(err error) bool {
	if noSpace(err) {
		return false
	}
	var disk *storage.DiskError
	return errors.As(err, &disk)
}

func lockError(dir string, err error) error {
	if errors.Is(err, vfs.ErrLocked) {
		return &LockedError{Dir: dir, Err: err}
	}
	return err
}
