package segment

import "fmt"

// CorruptError is a batch that cannot be one. From Batches, Position or Read it means that the log file is damaged
// below its size; from Recover it is the reason of a cut.
type CorruptError struct {
	File   string
	Pos    int64 // of the broken batch
	Reason string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("%s: broken batch at position %d: %s", e.File, e.Pos, e.Reason)
}

// CorruptIndexError is an index file that is missing or does not fit the log file. Recover mends it.
type CorruptIndexError struct {
	File   string
	Reason string
}

func (e *CorruptIndexError) Error() string {
	return fmt.Sprintf("%s: broken index: %s", e.File, e.Reason)
}

// OverflowError is an append that does not fit into the segment: the offset is more than 2^31-1 above the base
// offset, or the file would grow beyond 2^31-1 bytes. The log has to be rolled first.
type OverflowError struct {
	File   string
	Offset int64
	Bytes  int64
}

func (e *OverflowError) Error() string {
	return fmt.Sprintf("%s: offset %d or %d more bytes are out of the segment's range", e.File, e.Offset, e.Bytes)
}

// UsageError is a call that the segment's state forbids: appending to a closed or deleted segment, offsets that fall.
type UsageError struct {
	File   string
	Reason string
}

func (e *UsageError) Error() string { return e.File + ": " + e.Reason }
