package segment

import (
	"errors"
	"fmt"
	"io"
	"iter"

	"weir/internal/batch"
	"weir/internal/vfs"
)

// Entry is one whole batch, or one message (perhaps a compressed wrapper) of a message set v0/v1, and where it stands.
type Entry struct {
	batch.Entry
	Pos int64 // in the log file
}

// Position is where a batch stands.
type Position struct {
	Pos, Size int64 // of the batch, in bytes
	// BaseOffset of a message set v0/v1 equals LastOffset, also of a wrapper.
	BaseOffset, LastOffset int64
}

// End is the position behind the batch.
func (p Position) End() int64 { return p.Pos + p.Size }

// ReadResult is what Read found.
type ReadResult struct {
	Region vfs.Region
	First  Position // the first batch; it is incomplete in Region when First.Size > Region.N
}

// TimestampOffset is a timestamp in ms and an offset.
type TimestampOffset struct{ Timestamp, Offset int64 }

// Position finds the first batch whose last offset is at least offset; false when there is none.
func (s *Segment) Position(offset int64) (Position, bool, error) {
	f, err := s.log.acquire(false)
	if err != nil {
		return Position{}, false, err
	}
	defer f.Release()
	return s.position(f, offset)
}

// position is Position on the open log file. The index entry below offset is a hint: it must lead to a batch that can
// be the one it names.
func (s *Segment) position(f *vfs.Shared, offset int64) (Position, bool, error) {
	if p, ok := s.recent.find(offset); ok && p.End() <= s.size.Load() {
		return p, true, nil
	}
	w := newWindow(s, f)
	defer w.free()
	for {
		v, err := s.offsets.load()
		if err != nil {
			return Position{}, false, err
		}
		from, err := s.offsets.floor(offset)
		if err != nil {
			return Position{}, false, err
		}
		end := s.size.Load()
		p, ok, err := w.find(from, offset, end)
		if err == nil || s.offsets.view.Load() == v && s.size.Load() >= end {
			return p, ok, err
		}
		// The index or the log changed while we looked: it may have been truncated, so look again.
		w.reset()
	}
}

// find scans from an index entry for the batch that ends at offset or after.
func (w *window) find(from pair, offset, end int64) (Position, bool, error) {
	if err := w.lead(from, end); err != nil {
		return Position{}, false, err
	}
	for pos := from.value; ; {
		h, ok, err := w.header(pos, end)
		if err != nil || !ok {
			return Position{}, false, err
		}
		if h.LastOffset >= offset {
			return h, true, nil
		}
		pos = h.End()
	}
}

// lead checks that an index entry leads to a batch that it can be about. Position 0 is no entry, but the begin.
func (w *window) lead(from pair, end int64) error {
	if from.value == 0 {
		return nil
	}
	if from.value < 0 || from.value >= end {
		return w.seg.offsets.corrupt("position %d is not in the log file of %d bytes", from.value, end)
	}
	h, ok, err := w.header(from.value, end)
	if err != nil && !errors.As(err, new(*CorruptError)) {
		return err
	}
	if err != nil || !ok || h.LastOffset > from.key || h.BaseOffset < w.seg.base {
		return w.seg.offsets.corrupt("no batch up to offset %d begins at position %d", from.key, from.value)
	}
	return nil
}

// Read gives the bytes from the batch that holds offset, or the next one behind a hole, at most maxBytes and not
// beyond position maxPos; the last batch may be cut. With minOne the first batch comes whole (up to maxPos) even when
// it is larger than maxBytes. false: no batch of the segment ends at offset or after, and there is no region. The
// region may be empty; the caller releases it.
func (s *Segment) Read(offset int64, maxBytes, maxPos int64, minOne bool) (ReadResult, bool, error) {
	f, err := s.log.acquire(false)
	if err != nil {
		return ReadResult{}, false, err
	}
	p, ok, err := s.position(f, offset)
	if err != nil || !ok {
		return ReadResult{}, false, errors.Join(err, f.Release())
	}
	n := max(maxBytes, 0)
	if minOne {
		n = max(n, p.Size)
	}
	n = max(0, min(n, maxPos-p.Pos, s.size.Load()-p.Pos))
	return ReadResult{Region: vfs.Region{File: f, Off: p.Pos, N: n}, First: p}, true, nil
}

// Region gives n bytes from position pos on, clipped to Size; the caller releases it.
func (s *Segment) Region(pos, n int64) (vfs.Region, error) {
	f, err := s.log.acquire(false)
	if err != nil {
		return vfs.Region{}, err
	}
	return vfs.Region{File: f, Off: pos, N: max(0, min(n, s.size.Load()-pos))}, nil
}

// Batches walks over whole batches from position pos, where one begins, up to position to (clipped to Size). The
// Entry's bytes are only valid until the next step. A broken batch ends the walk with a *CorruptError; a last one that
// is not whole ends it silently.
func (s *Segment) Batches(pos, to int64) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		f, err := s.log.acquire(false)
		if err != nil {
			yield(Entry{}, err)
			return
		}
		defer f.Release()
		w := newLargeWindow(s, f)
		defer w.free()
		end := min(to, s.size.Load())
		for {
			e, ok, err := w.entry(pos, end)
			if err != nil {
				yield(Entry{}, err)
				return
			}
			if !ok || !yield(e, nil) {
				return
			}
			pos += int64(e.Len())
		}
	}
}

// Found is a record found by FindTimestamp.
type Found struct {
	TimestampOffset
	LeaderEpoch int32 // -1 when the batch has none
}

// FindTimestamp finds the first record, in offset order, with a timestamp of at least ts and an offset of at least
// from; false when the segment has none. buf may be nil, as for batch.Entry.Records.
func (s *Segment) FindTimestamp(ts, from int64, buf *batch.Buffers) (Found, bool, error) {
	f, err := s.log.acquire(false)
	if err != nil {
		return Found{}, false, err
	}
	defer f.Release()
	// Up to the offset of the entry found no timestamp is above the entry's, which is at most ts.
	entry, err := s.times.floor(ts)
	if err != nil {
		return Found{}, false, err
	}
	start, ok, err := s.position(f, max(entry.value, from))
	if err != nil || !ok {
		return Found{}, false, err
	}
	headers := newWindow(s, f)
	defer headers.free()
	bodies := newWindow(s, f)
	defer bodies.free()
	end := s.size.Load()
	for pos := start.Pos; ; {
		h, ok, err := headers.header(pos, end)
		if err != nil || !ok {
			return Found{}, false, err
		}
		if headers.last.MaxTimestamp() >= ts {
			e, ok, err := bodies.entry(pos, end)
			if err != nil || !ok {
				return Found{}, false, err
			}
			for r, err := range e.Records(buf) {
				if err != nil {
					return Found{}, false, s.corruptLog(pos, err)
				}
				if r.Timestamp >= ts && r.Offset >= from {
					return Found{TimestampOffset{r.Timestamp, r.Offset}, e.LeaderEpoch()}, true, nil
				}
			}
		}
		pos = h.End()
	}
}

// LargestTimestamp is the largest timestamp in the segment and the last offset of its (first) batch; (-1, BaseOffset)
// when no record has one. For a segment that was just opened it is what the time index says.
func (s *Segment) LargestTimestamp() (TimestampOffset, error) {
	if t := s.largest.Load(); t != nil {
		return *t, nil
	}
	v, err := s.times.load()
	if err != nil {
		return TimestampOffset{}, err
	}
	// Unless an append was faster.
	s.largest.CompareAndSwap(nil, &TimestampOffset{Timestamp: v.last.key, Offset: v.last.value})
	return *s.largest.Load(), nil
}

// FirstTimestamp is the largest timestamp of the first batch, from which Kafka reckons a segment's age; -1 when it has
// none. false: the segment is empty.
func (s *Segment) FirstTimestamp() (int64, bool, error) {
	if t := s.first.Load(); t != nil {
		return *t, true, nil
	}
	end := s.size.Load()
	if end == 0 {
		return 0, false, nil
	}
	f, err := s.log.acquire(false)
	if err != nil {
		return 0, false, err
	}
	defer f.Release()
	w := newWindow(s, f)
	defer w.free()
	_, ok, err := w.header(0, end)
	if err != nil || !ok {
		return 0, false, err
	}
	t := w.last.MaxTimestamp()
	s.first.Store(&t)
	return t, true, nil
}

// NextOffset is one more than the last offset in the segment, BaseOffset when it is empty.
func (s *Segment) NextOffset() (int64, error) {
	f, err := s.log.acquire(false)
	if err != nil {
		return 0, err
	}
	defer f.Release()
	v, err := s.offsets.load()
	if err != nil {
		return 0, err
	}
	w := newWindow(s, f)
	defer w.free()
	end := s.size.Load()
	next := s.base
	if err := w.lead(v.last, end); err != nil {
		return 0, err
	}
	for pos := v.last.value; ; {
		h, ok, err := w.header(pos, end)
		if err != nil {
			return 0, err
		}
		if !ok {
			return next, nil
		}
		next, pos = h.LastOffset+1, h.End()
	}
}

func (s *Segment) corruptLog(pos int64, err error) error {
	return &CorruptError{File: s.log.pathNow(), Pos: pos, Reason: err.Error()}
}

// window is a moving piece of the log file.
type window struct {
	seg  *Segment
	file *vfs.Shared
	buf  *[]byte // for a batch that does not fit into a pooled one, a buffer of its own
	big  bool    // which pool buf comes from
	at   int64   // position of the first byte held
	n    int     // bytes held
	last batch.Entry
}

func newWindow(s *Segment, f *vfs.Shared) *window {
	return &window{seg: s, file: f, buf: s.buffers.getSmall()}
}

func newLargeWindow(s *Segment, f *vfs.Shared) *window {
	return &window{seg: s, file: f, buf: s.buffers.getLarge(), big: true}
}

func (w *window) free() {
	if w.big {
		w.seg.buffers.putLarge(w.buf)
	} else {
		w.seg.buffers.putSmall(w.buf)
	}
	w.buf = nil
}

func (w *window) reset() { w.n = 0 }

// bytes returns n bytes from pos; all of them lie before end. The buffer grows when it must.
func (w *window) bytes(pos int64, n int, end int64) ([]byte, error) {
	if pos >= w.at && pos+int64(n) <= w.at+int64(w.n) {
		i := int(pos - w.at)
		return (*w.buf)[i : i+n], nil
	}
	if n > len(*w.buf) {
		b := make([]byte, n)
		w.buf = &b
	}
	b := (*w.buf)[:min(int64(len(*w.buf)), end-pos)]
	w.n = 0
	if m, err := w.file.File().ReadAt(b, pos); m < len(b) {
		if err == nil || err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("%s at %d: %w", w.seg.log.pathNow(), pos, err)
	}
	w.at, w.n = pos, len(b)
	return b[:n], nil
}

const (
	prefixLen = 17 // up to the magic, in every format
	v1Head    = prefixLen + 1 + 8
)

// header reads the header of the batch at pos and keeps it in w.last. false: no whole batch begins there before end.
func (w *window) header(pos, end int64) (Position, bool, error) {
	if end-pos < prefixLen {
		return Position{}, false, nil
	}
	b, err := w.bytes(pos, prefixLen, end)
	if err != nil {
		return Position{}, false, err
	}
	size, magic, err := batch.EntryLen(b)
	if err != nil {
		return Position{}, false, w.seg.corruptLog(pos, err)
	}
	if int64(size) > end-pos {
		return Position{}, false, nil
	}
	head := prefixLen
	switch magic {
	case 1:
		head = v1Head
	case 2:
		head = batch.HeaderLen
	}
	if b, err = w.bytes(pos, head, end); err != nil {
		return Position{}, false, err
	}
	w.last = batch.Entry(b)
	p := Position{Pos: pos, Size: int64(size), LastOffset: w.last.LastOffset()}
	p.BaseOffset = p.LastOffset
	if v2, ok := w.last.Batch(); ok {
		p.BaseOffset = v2.BaseOffset()
	}
	return p, true, nil
}

// entry reads the whole batch at pos. false: no whole batch begins there before end.
func (w *window) entry(pos, end int64) (Entry, bool, error) {
	p, ok, err := w.header(pos, end)
	if err != nil || !ok {
		return Entry{}, false, err
	}
	b, err := w.bytes(pos, int(p.Size), end)
	if err != nil {
		return Entry{}, false, err
	}
	return Entry{Entry: batch.Entry(b[:len(b):len(b)]), Pos: pos}, true, nil
}
