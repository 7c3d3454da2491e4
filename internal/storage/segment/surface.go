package segment

import (
	"iter"

	"weir/internal/vfs"
)

// Options says which segment, and where. FS, Dir and BaseOffset are needed.
type Options struct {
	FS         vfs.FS
	Dir        string // the partition's directory
	BaseOffset int64
	// Suffix is put behind every file name: "" or one of the Suffix constants.
	Suffix string
	// IndexIntervalBytes is index.interval.bytes, MaxIndexBytes is segment.index.bytes. SetConfig changes them.
	IndexIntervalBytes, MaxIndexBytes int32
	// CreatedMs is the time of Create or Open. Kafka rolls a segment without timestamps by it.
	CreatedMs int64
	// Buffers is shared by all segments of a process; nil makes one for this segment.
	Buffers *Buffers
	// Opened is called, without locks, after the segment has opened a file that was not open. May be nil.
	Opened func(*Segment)
}

// Buffers are scratch buffers for headers and scans. Safe for concurrent use.
type Buffers struct{}

// NewBuffers returns an empty pool.
func NewBuffers() *Buffers { panic("not built yet") }

// Segment is one segment. See the package documentation for who may call what.
type Segment struct{}

// Create makes a new, empty segment; fs.ErrExist when its log file is there already (see Remove).
func Create(o Options) (*Segment, error) { panic("not built yet") }

// Open takes an existing segment. It only looks at the size of the log file; indexes are looked at when needed.
func Open(o Options) (*Segment, error) { panic("not built yet") }

// BaseOffset is the offset in the file name.
func (s *Segment) BaseOffset() int64 { panic("not built yet") }

// Size is the number of bytes of whole batches in the log file.
func (s *Segment) Size() int64 { panic("not built yet") }

// SetConfig changes index.interval.bytes and segment.index.bytes.
func (s *Segment) SetConfig(indexIntervalBytes, maxIndexBytes int32) { panic("not built yet") }

// Append writes b, whole batches with their final offsets, at the end. largestOffset is the last offset in b. When it
// fails the segment is as before. *OverflowError: the batch needs a new segment.
func (s *Segment) Append(b []byte, largestOffset int64) (pos int64, err error) {
	panic("not built yet")
}

// Position is where a batch stands.
type Position struct {
	Pos, Size              int64 // of the batch, in bytes
	BaseOffset, LastOffset int64 // BaseOffset equals LastOffset for message sets v0/v1
}

// Position finds the first batch whose last offset is at least offset; false when there is none.
func (s *Segment) Position(offset int64) (Position, bool, error) { panic("not built yet") }

// Read gives the bytes from the batch that holds offset (or the next one after it), at most maxBytes and not beyond
// position maxPos; the last batch may be cut. With minOne the first batch comes whole even when it is larger than
// maxBytes. false: no batch of the segment ends at offset or after. The region may be empty; release it in any case.
func (s *Segment) Read(offset int64, maxBytes, maxPos int64, minOne bool) (ReadResult, bool, error) {
	panic("not built yet")
}

// ReadResult is what Read found.
type ReadResult struct {
	Region vfs.Region
	First  Position // the first batch; it is incomplete in Region when First.Size > Region.N
}

// Batches walks over whole batches from position pos to position to (clipped to Size). The Entry's bytes are only
// valid until the next step. A broken batch ends the walk with a *CorruptError.
func (s *Segment) Batches(pos, to int64) iter.Seq2[Entry, error] { panic("not built yet") }

// Entry is one batch, or one message (perhaps a compressed wrapper) of a message set v0/v1.
type Entry struct {
	Header
	Pos   int64  // in the log file
	Bytes []byte // whole; Header.Magic 2: a batch.Batch
}

// Header is what every format says of a batch.
type Header struct {
	Magic       int8
	Attributes  int16
	LeaderEpoch int32 // -1 in v0/v1
	Size        int32 // in bytes, with the 12 bytes of offset and length
	BaseOffset  int64 // v0/v1: the same as LastOffset, which for a wrapper is the offset of its last message
	LastOffset  int64
	// MaxTimestamp is in ms, -1 when unknown (v0).
	MaxTimestamp int64
}

// TimestampOffset is a timestamp in ms and an offset.
type TimestampOffset struct{ Timestamp, Offset int64 }

// FindTimestamp walks over the batches that may hold a record with a timestamp of at least ts and an offset of at
// least from, in offset order, until visit returns true or an error.
func (s *Segment) FindTimestamp(ts, from int64, visit func(Entry) (stop bool, err error)) error {
	panic("not built yet")
}

// LargestTimestamp is the largest timestamp in the segment and the last offset of its (first) batch; (-1, BaseOffset)
// when no record has one.
func (s *Segment) LargestTimestamp() (TimestampOffset, error) { panic("not built yet") }

// FirstTimestamp is the largest timestamp of the first batch (Kafka's rolling based timestamp); false when the segment
// is empty.
func (s *Segment) FirstTimestamp() (int64, bool, error) { panic("not built yet") }

// NextOffset is one more than the last offset in the segment, BaseOffset when it is empty.
func (s *Segment) NextOffset() (int64, error) { panic("not built yet") }

// TruncateTo removes every batch that holds offset or a later one, and their index entries. It returns the bytes cut.
func (s *Segment) TruncateTo(offset int64) (int64, error) { panic("not built yet") }

// Recovered is the outcome of Recover.
type Recovered struct {
	Batches int
	Cut     int64 // bytes removed at the end
	Reason  error // why they were: a *CorruptError; nil when nothing was
}

// Recover reads the whole segment, checks every batch (length, magic, CRC, rising offsets within the segment's range),
// cuts it before the first that is broken, and makes both indexes anew. The transaction index is emptied: visit, called
// for each good batch in order, appends to it again through AppendAborted. An error of visit ends the recovery.
func (s *Segment) Recover(visit func(Entry) error) (Recovered, error) { panic("not built yet") }

// SanityCheck looks for signs that the index files are missing or broken: *CorruptIndexError. Recover mends them.
func (s *Segment) SanityCheck() error { panic("not built yet") }

// Flush makes everything appended before the call survive a power cut: log and indexes.
func (s *Segment) Flush() error { panic("not built yet") }

// Deactivate ends appending (a roll): last time index entry, indexes written and trimmed.
func (s *Segment) Deactivate() error { panic("not built yet") }

// AbortedTxn is an entry of the transaction index.
type AbortedTxn struct{ ProducerID, FirstOffset, LastOffset, LastStableOffset int64 }

// AppendAborted adds an entry; last offsets must rise.
func (s *Segment) AppendAborted(t AbortedTxn) error { panic("not built yet") }

// Aborted lists the aborted transactions that overlap offsets from (inclusive) to upTo (exclusive). complete says that
// no later segment can hold more of them (Kafka's TransactionIndex.collectAbortedTxns).
func (s *Segment) Aborted(from, upTo int64) (txns []AbortedTxn, complete bool, err error) {
	panic("not built yet")
}

// RollParams is what decides about a new segment before an append.
type RollParams struct {
	MaxSegmentMs, JitterMs int64
	MaxSegmentBytes        int32
	MaxTimestamp           int64 // in the batches to append
	MaxOffset              int64
	Bytes                  int64
	NowMs                  int64
}

// ShouldRoll is Kafka's LogSegment.shouldRoll.
func (s *Segment) ShouldRoll(p RollParams) (bool, error) { panic("not built yet") }

// LastModifiedMs is the modification time of the log file, by which retention goes when there are no timestamps.
func (s *Segment) LastModifiedMs() (int64, error) { panic("not built yet") }

// Suffix is the present suffix of the file names.
func (s *Segment) Suffix() string { panic("not built yet") }

// LogPath is the present path of the log file.
func (s *Segment) LogPath() string { panic("not built yet") }

// Rename gives the files another suffix; open files and regions stay valid. Missing index files are passed over.
func (s *Segment) Rename(suffix string) error { panic("not built yet") }

// SetDir tells the segment that its directory was renamed.
func (s *Segment) SetDir(dir string) { panic("not built yet") }

// CloseHandles closes the open files; the next use opens them again.
func (s *Segment) CloseHandles() error { panic("not built yet") }

// OpenFiles is the number of files held open.
func (s *Segment) OpenFiles() int { panic("not built yet") }

// Close writes what is in memory (as Deactivate does) and closes the files. It does not sync; Flush before that.
func (s *Segment) Close() error { panic("not built yet") }

// Delete removes the files. Regions in flight stay readable.
func (s *Segment) Delete() error { panic("not built yet") }

// Remove deletes the files of a segment that is not open, as far as they are there.
func Remove(fsys vfs.FS, dir string, baseOffset int64, suffix string) error { panic("not built yet") }
