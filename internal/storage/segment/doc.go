// Package segment is one segment of a replica's log: the four files that Kafka keeps for it, laid out as Apache Kafka
// 4.3.1 lays them out.
//
//	00000000000000000042.log        batches, one after the other, as they travel (message sets v0/v1 in old directories)
//	00000000000000000042.index      8 bytes an entry:  last offset of a batch - base offset (int32), position of that batch in .log (int32)
//	00000000000000000042.timeindex  12 bytes an entry: largest timestamp so far in ms (int64), last offset of its batch - base offset (int32)
//	00000000000000000042.txnindex   34 bytes an entry: version 0 (int16), producer id, first, last and last stable offset (int64 each);
//	                                only there once a transaction was aborted
//
// The name is the base offset in 20 digits: every offset in the segment is at least that, and at most that plus
// 2^31-1. While a segment is made or done away with, its names carry a suffix (SuffixCleaned, SuffixSwap, SuffixDeleted).
//
// # Indexes
//
// Both indexes are sparse: a batch gets an entry when more than index.interval.bytes were appended since the last
// entry; the time index gets one more, (largest timestamp, its offset), when the segment is rolled or closed. New
// entries are kept in memory and written in groups of 4 KiB, at Flush, at roll and at close, so a crash loses some:
// Recover makes them again from the batches. Kafka preallocates the indexes of its active segment with zeros; such
// files are read as if they ended before the zeros, and are trimmed when the segment is rolled or closed.
//
// # Who may call what
//
// One goroutine at a time changes a segment (Append, AppendAborted, TruncateTo, Recover, Deactivate, Rename, Delete,
// Close, Abandon): the owner's append lock sees to that. Everything else may run at any time in any goroutine. Readers
// take no lock that Append holds for longer than it takes to note where a batch stands (recent.go): they load the size
// and an immutable view of each index. Flush holds the segment's lock only while it hands index entries to the page
// cache, not while it syncs.
//
// Bytes below Size never change, except by TruncateTo and Recover: a reader that runs into those gets an error or
// bytes that are no more, so the owner must not let anyone read above what it may cut (the high watermark).
//
// # Files and handles
//
// A Segment opens its files when it first needs them. CloseHandles lets go of them and costs nothing but the reopening
// later; Options.Opened tells the owner that a segment has just opened a file, so that it can keep a limit over all
// segments. A vfs.Region given by Read keeps its file readable after CloseHandles, Close, Rename and Delete. The
// directory may be renamed at any time (Dir.Rename): whoever opens a file just then waits for that.
//
// Neither Create nor Rename syncs the directory: the owner calls vfs.FS.SyncDir before it relies on the names.
//
// # Life of a segment
//
//	Create → Append… → Flush (as often as wanted) → Deactivate (rolled) → Read… → Rename(SuffixDeleted) → Delete
//	Open → SanityCheck → Recover when that fails or the last stop was not clean → Append or Read
//
// Files by subject: append.go with the roll conditions; read.go lookups by offset and timestamp; recent.go the batches
// appended last; recover.go recovery, truncation and checks; lifecycle.go flush, rename, close, delete; index.go and
// txnindex.go the index files; handle.go opening and closing; dir.go the directory; names.go; errors.go.
package segment
