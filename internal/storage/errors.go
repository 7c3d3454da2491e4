package storage

import (
	"errors"
	"fmt"
	"syscall"

	"weir/internal/storage/producer"
)

// Refusals of producer state, see package producer. Nothing was written.
var (
	ErrOutOfOrderSequence = producer.ErrOutOfOrderSequence
	ErrInvalidEpoch       = producer.ErrInvalidEpoch
	ErrInvalidTxnState    = producer.ErrInvalidTxnState
	ErrCoordinatorFenced  = producer.ErrCoordinatorFenced
)

// ErrNoSpace is wrapped by a *DiskError when the volume is full: the append is
// refused and the log is as before; reads and deletions go on.
var ErrNoSpace = errors.New("no space left on device")

// ErrClosed is returned by every method once the log is closed or deleted.
var ErrClosed = errors.New("log is closed")

// CorruptError is data below the recovery point that cannot be read. The
// partition goes offline; the process and other partitions go on.
type CorruptError struct {
	Dir    string // of the log
	File   string // name within Dir
	Offset int64  // of the first unreadable batch, or where reading began; -1 when no offset is to blame
	Err    error
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("log %s: %s is corrupt at offset %d: %v", e.Dir, e.File, e.Offset, e.Err)
}
func (e *CorruptError) Unwrap() error { return e.Err }

// DiskError is a failed file operation. Unless it wraps ErrNoSpace the log
// directory is to be taken offline.
type DiskError struct {
	Dir string // of the log
	Op  string // what was done: "append", "flush", "roll"…
	Err error
}

func (e *DiskError) Error() string { return fmt.Sprintf("log %s: %s: %v", e.Dir, e.Op, e.Err) }
func (e *DiskError) Unwrap() error { return e.Err }

// OutOfRangeError is an offset outside [Start, End].
type OutOfRangeError struct {
	Name       string // topic-partition
	Offset     int64
	Start, End int64
}

func (e *OutOfRangeError) Error() string {
	return fmt.Sprintf("offset %d of %s is outside [%d, %d]", e.Offset, e.Name, e.Start, e.End)
}

// UnexpectedOffsetError is a follower's append that does not continue the log.
type UnexpectedOffsetError struct {
	Name                  string
	First, Last, Expected int64
}

func (e *UnexpectedOffsetError) Error() string {
	return fmt.Sprintf("append to %s holds offsets %d to %d, expected %d or more", e.Name, e.First, e.Last, e.Expected)
}

// TooLargeError is an append that no segment can hold.
type TooLargeError struct {
	Name        string
	Size, Limit int
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("append of %d bytes to %s exceeds the segment size of %d", e.Size, e.Name, e.Limit)
}

// BadBatchError is an append whose bytes are not whole v2 batches with rising
// offsets; a follower refuses it, a leader has validated before.
type BadBatchError struct {
	Name string
	Err  error
}

func (e *BadBatchError) Error() string {
	return fmt.Sprintf("bad batch in append to %s: %v", e.Name, e.Err)
}
func (e *BadBatchError) Unwrap() error { return e.Err }

// TopicIDError is a directory that belongs to another topic of the same name.
type TopicIDError struct {
	Dir              string
	Stored, Assigned string
}

func (e *TopicIDError) Error() string {
	return fmt.Sprintf("log %s belongs to topic id %s, not %s", e.Dir, e.Stored, e.Assigned)
}

// diskError wraps err of a file operation; ENOSPC and EDQUOT become ErrNoSpace.
func diskError(dir, op string, err error) error {
	if err == nil {
		return nil
	}
	var already *DiskError
	var corrupt *CorruptError
	if errors.As(err, &already) || errors.As(err, &corrupt) {
		return err
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		err = fmt.Errorf("%w (%w)", ErrNoSpace, err)
	}
	return &DiskError{Dir: dir, Op: op, Err: err}
}
