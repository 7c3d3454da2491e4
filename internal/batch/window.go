package batch

import (
	"errors"
	"io"
	"sync"

	"weir/internal/batch/compress"
)

const (
	// windowLen is how much inflated data is looked at at once.
	windowLen = 64 << 10
	// keepWindow is how large a window may stay in a pool after a large record.
	keepWindow = 1 << 20
)

// window reads compressed records as a stream through a small buffer, which grows only as the bytes of one record really arrive.
type window struct {
	src  compress.Reader
	buf  []byte
	r, w int // buf[r:w] is unread

	large *sync.Mutex // held while buf is larger than keepWindow; nil: no limit
	held  bool
}

func (win *window) reset(c Codec, src []byte, brokenLz4 bool) error {
	if win.buf == nil {
		win.buf = make([]byte, windowLen)
	}
	win.r, win.w = 0, 0
	return win.src.Reset(c, src, brokenLz4)
}

// release lets go of the source and of a buffer that is too large to keep.
func (win *window) release() {
	win.src.Release()
	if len(win.buf) > keepWindow {
		win.buf = nil
	}
	if win.held {
		win.held = false
		win.large.Unlock()
	}
}

// fill reads more bytes behind the unread ones, of which want are wanted. io.EOF: there are none.
func (win *window) fill(want int) error {
	if win.r > 0 {
		win.w = copy(win.buf, win.buf[win.r:win.w])
		win.r = 0
	}
	if win.w == len(win.buf) {
		size := min(2*len(win.buf), max(want, len(win.buf)+windowLen))
		if size > keepWindow && win.large != nil && !win.held {
			win.large.Lock()
			win.held = true
		}
		bigger := make([]byte, size)
		copy(bigger, win.buf)
		win.buf = bigger
	}
	for range 100 {
		n, err := win.src.Read(win.buf[win.w:])
		win.w += n
		if n > 0 {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return io.ErrNoProgress
}

// need makes at least n unread bytes available.
func (win *window) need(n int) error {
	for win.w-win.r < n {
		if err := win.fill(n); err != nil {
			return streamErr(err)
		}
	}
	return nil
}

// take returns the next n bytes; they live until the next call.
func (win *window) take(n int) ([]byte, error) {
	if err := win.need(n); err != nil {
		return nil, err
	}
	b := win.buf[win.r : win.r+n : win.r+n]
	win.r += n
	return b, nil
}

// skip passes over n bytes without holding them; to gets them piece by piece.
func (win *window) skip(n int, to copier) error {
	for {
		piece := win.buf[win.r:min(win.w, win.r+n)]
		if err := to.write(piece); err != nil {
			return err
		}
		win.r += len(piece)
		if n -= len(piece); n == 0 {
			return nil
		}
		win.r, win.w = 0, 0
		if err := win.fill(0); err != nil {
			return streamErr(err)
		}
	}
}

// varint reads one zigzag varint of at most most bytes, and says how many it took.
func (win *window) varint(most int) (int64, int, error) {
	for {
		v, n := varlong(win.buf[win.r:win.w])
		switch {
		case n > most || n < 0 || n == 0 && win.w-win.r >= most:
			return 0, 0, errStructure()
		case n > 0:
			win.r += n
			return v, n, nil
		}
		if err := win.fill(0); err != nil {
			return 0, 0, streamErr(err)
		}
	}
}

// recordLen reads the length that a record starts with.
func (win *window) recordLen() (int, error) {
	size, _, err := win.varint(5)
	if err != nil {
		return 0, err
	}
	if size < minRecordLen-1 {
		return 0, errStructure()
	}
	if size > MaxRecord {
		return 0, invalid("Invalid record size: %d bytes are more than the %d that one record may inflate to", size, MaxRecord)
	}
	return int(size), nil
}

// ensureEnd checks that nothing follows the last record.
func (win *window) ensureEnd() error {
	if win.r < win.w {
		return errRemaining()
	}
	switch err := win.fill(0); {
	case err == nil:
		return errRemaining()
	case errors.Is(err, io.EOF):
		return nil
	default:
		return errInflate(err)
	}
}

// streamErr turns an early end into what Kafka calls it; other errors are damage inside the compressed data.
func streamErr(err error) error {
	if errors.Is(err, io.EOF) {
		return errPremature()
	}
	return errInflate(err)
}

// skim reads one record of the given length without holding key, value or headers, for records larger than the window.
// Key and value of rec are only null or not. The record is copied as it passes.
func (win *window) skim(size int, rec *Record, to copier) (keyLen, valueLen int, err error) {
	s := skimmer{win: win, left: size}
	*rec = Record{Headers: rec.Headers[:0]}
	s.skip(1)
	rec.TimestampDelta = s.varint(10)
	rec.OffsetDelta = int32(s.varint(5))
	if s.err == nil {
		to.begin(rec, s.left)
		s.to = to
	}
	keyLen = s.field()
	valueLen = s.field()
	headers := s.varint(5)
	if s.err == nil && (headers < 0 || headers > int64(s.left)) {
		s.err = invalid("Found invalid number of record headers %d", headers)
	}
	for i := int64(0); i < headers && s.err == nil; i++ {
		if s.field() < 0 && s.err == nil {
			s.err = invalid("Invalid negative header key size %d", -1)
		}
		s.field()
	}
	if s.err == nil && s.left != 0 {
		s.err = invalid("Invalid record size: expected to read %d bytes in record payload, but instead read %d", size, size-s.left)
	}
	if keyLen >= 0 {
		rec.Key = []byte{}
	}
	if valueLen >= 0 {
		rec.Value = []byte{}
	}
	return keyLen, valueLen, s.err
}

// skimmer reads within one record; the first error stays.
type skimmer struct {
	win  *window
	left int
	err  error
	to   copier // gets what is passed over
}

// copier writes records to a new batch that are never held whole. The zero value copies nothing.
type copier struct {
	out   *Builder
	from  Batch
	fixed bool // all records get the timestamp ms
	ms    int64
	limit int // of out's length in bytes; 0: none
}

// errGrown says that the new batch has become longer than the limit.
var errGrown = errors.New("batch: the new batch is too large")

// begin writes the beginning of a record of which the deltas are known and rest bytes are to come.
func (c *copier) begin(r *Record, rest int) {
	if c.out == nil {
		return
	}
	ts := c.ms
	if !c.fixed {
		c.from.place(r)
		ts = r.Timestamp
	}
	c.out.begin(c.out.last+1, ts, rest)
}

func (c *copier) write(piece []byte) error {
	if c.out == nil {
		return nil
	}
	c.out.write(piece)
	if c.limit > 0 && c.out.Len() > c.limit {
		return errGrown
	}
	return nil
}

func (s *skimmer) skip(n int) {
	if s.err != nil {
		return
	}
	if n > s.left {
		s.err = errStructure()
		return
	}
	s.left -= n
	s.err = s.win.skip(n, s.to)
}

func (s *skimmer) varint(most int) int64 {
	if s.err != nil {
		return 0
	}
	v, n, err := s.win.varint(most)
	if err == nil && n > s.left {
		err = errStructure()
	}
	s.left -= n
	if err == nil {
		err = s.to.write(s.win.buf[s.win.r-n : s.win.r])
	}
	s.err = err
	return v
}

// field skips a field and returns its length, -1 for null.
func (s *skimmer) field() int {
	n := s.varint(5)
	if n < 0 {
		return -1
	}
	s.skip(int(n))
	return int(n)
}
