package segment

import (
	"errors"
	"io/fs"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/vfs"
)

// Options says which segment, and where. FS, Dir and BaseOffset are needed.
type Options struct {
	FS         vfs.FS
	Dir        *Dir // the partition's directory, shared by its segments
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

// Segment is one segment. See the package documentation for who may call what.
type Segment struct {
	fs      vfs.FS
	base    int64
	buffers *Buffers
	opened  func(*Segment)

	interval, maxIndex atomic.Int32

	log     handle
	offsets sparse // .index: last offset of a batch → its position
	times   sparse // .timeindex: timestamp → offset
	txns    txnIndex

	// size is the end of the last whole batch. It is raised after the bytes are in the file, and before the index
	// entries that point at them: whoever loads an index first and size second finds every entry below size.
	size    atomic.Int64
	largest atomic.Pointer[TimestampOffset] // nil: not looked at yet
	first   atomic.Pointer[int64]           // largest timestamp of the first batch; nil: not looked at yet
	created atomic.Int64                    // ms
	recent  recent

	// flushMu orders callers of Flush and is held while they sync; nobody else takes it. Taken before mu.
	flushMu sync.Mutex
	// mu orders changes: appends, truncation, and index writes of Flush. Readers never take it.
	mu struct {
		sync.Mutex
		sinceIndex int64 // bytes appended since the last index entry
		last       int64 // last offset of the last append; base-1 when none was made by this Segment
		torn       bool  // the log file may be longer than size, after a failed append
		closed     bool
	}
}

func newSegment(o Options) *Segment {
	s := &Segment{fs: o.FS, base: o.BaseOffset, buffers: o.Buffers, opened: o.Opened}
	if s.buffers == nil {
		s.buffers = NewBuffers()
	}
	s.SetConfig(o.IndexIntervalBytes, o.MaxIndexBytes)
	s.created.Store(o.CreatedMs)
	s.mu.last = s.base - 1
	s.log.init(s, o, ExtLog)
	s.offsets.init(s, o, ExtIndex, offsetEntry)
	s.times.init(s, o, ExtTimeIndex, timeEntry)
	s.txns.h.init(s, o, ExtTxnIndex)
	s.txns.size.Store(-1)
	return s
}

// Create makes a new, empty segment with empty indexes. When its log file is there already the error wraps
// fs.ErrExist (see Remove); stale index files are emptied.
func Create(o Options) (*Segment, error) {
	s := newSegment(o)
	if err := s.log.create(); err != nil {
		return nil, err
	}
	fail := func(err error) (*Segment, error) {
		return nil, errors.Join(err, s.CloseHandles())
	}
	if err := s.offsets.create(); err != nil {
		return fail(err)
	}
	if err := s.times.create(); err != nil {
		return fail(err)
	}
	if err := s.txns.h.at(func(path string) error { return removeIfThere(o.FS, path) }); err != nil {
		return fail(err)
	}
	s.txns.size.Store(0)
	s.largest.Store(&TimestampOffset{Timestamp: -1, Offset: s.base})
	return s, nil
}

// Open takes an existing segment. It only looks at the size of the log file; indexes are looked at when needed. Bytes
// beyond 2^31-1, which no segment has, are not seen, and Recover cuts them.
func Open(o Options) (*Segment, error) {
	s := newSegment(o)
	info, err := s.log.stat()
	if err != nil {
		return nil, err
	}
	s.size.Store(min(info.Size(), math.MaxInt32))
	return s, nil
}

// BaseOffset is the offset in the file name.
func (s *Segment) BaseOffset() int64 { return s.base }

// Size is the number of bytes of whole batches in the log file; after Open, and until Recover, that of the file.
func (s *Segment) Size() int64 { return s.size.Load() }

// SetConfig changes index.interval.bytes and segment.index.bytes.
func (s *Segment) SetConfig(indexIntervalBytes, maxIndexBytes int32) {
	s.interval.Store(indexIntervalBytes)
	s.maxIndex.Store(maxIndexBytes)
}

// Suffix is the present suffix of the file names.
func (s *Segment) Suffix() string { return s.log.suffixNow() }

// LogPath is the present path of the log file.
func (s *Segment) LogPath() string { return s.log.pathNow() }

// LastModifiedMs is the modification time of the log file, by which retention goes when there are no timestamps.
func (s *Segment) LastModifiedMs() (int64, error) {
	info, err := s.log.stat()
	if err != nil {
		return 0, err
	}
	return info.ModTime().UnixMilli(), nil
}

// SetLastModifiedMs sets what LastModifiedMs returns: the cleaner's output is as old as what it was made from.
func (s *Segment) SetLastModifiedMs(ms int64) error {
	return s.log.at(func(path string) error { return s.fs.SetModTime(path, time.UnixMilli(ms)) })
}

// IndexSizes are the bytes of the entries in both indexes.
func (s *Segment) IndexSizes() (offsets, times int64, err error) {
	o, err := s.offsets.load()
	if err != nil {
		return 0, 0, err
	}
	t, err := s.times.load()
	if err != nil {
		return 0, 0, err
	}
	return int64(o.entries(offsetEntry) * offsetEntry.size()), int64(t.entries(timeEntry) * timeEntry.size()), nil
}

// inRange says that an offset can be written relative to the base offset.
func (s *Segment) inRange(offset int64) bool {
	return offset >= s.base && offset-s.base <= math.MaxInt32
}

// handles lists the four files.
func (s *Segment) handles() [4]*handle {
	return [4]*handle{&s.log, &s.offsets.h, &s.times.h, &s.txns.h}
}

// CloseHandles closes the open files; the next use opens them again.
func (s *Segment) CloseHandles() error {
	var err error
	for _, h := range s.handles() {
		err = errors.Join(err, h.close())
	}
	return err
}

// OpenFiles is the number of files held open.
func (s *Segment) OpenFiles() int {
	n := 0
	for _, h := range s.handles() {
		if h.shared.Load() != nil {
			n++
		}
	}
	return n
}

// Remove deletes the files of a segment that is not open, as far as they are there.
func Remove(fsys vfs.FS, dir string, baseOffset int64, suffix string) error {
	var err error
	for _, ext := range []string{ExtIndex, ExtTimeIndex, ExtTxnIndex, ExtLog} {
		err = errors.Join(err, removeIfThere(fsys, Path(dir, baseOffset, ext, suffix)))
	}
	return err
}

func removeIfThere(fsys vfs.FS, path string) error {
	err := fsys.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
