package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sort"
	"sync"
	"sync/atomic"
)

// kind is the entry format of an index. A key is what entries are sorted by and looked up by; the values rise too.
type kind int

const (
	offsetEntry kind = iota // key: offset (int32, relative), value: position (int32)
	timeEntry               // key: timestamp (int64), value: offset (int32, relative)
)

func (k kind) size() int {
	if k == offsetEntry {
		return 8
	}
	return 12
}

// pair is a decoded entry: absolute offsets, whatever was stored.
type pair struct{ key, value int64 }

func (k kind) decode(b []byte, base int64) pair {
	if k == offsetEntry {
		return pair{base + int64(int32(binary.BigEndian.Uint32(b))), int64(int32(binary.BigEndian.Uint32(b[4:])))}
	}
	return pair{int64(binary.BigEndian.Uint64(b)), base + int64(int32(binary.BigEndian.Uint32(b[8:])))}
}

func (k kind) append(dst []byte, p pair, base int64) []byte {
	if k == offsetEntry {
		dst = binary.BigEndian.AppendUint32(dst, uint32(p.key-base))
		return binary.BigEndian.AppendUint32(dst, uint32(p.value))
	}
	dst = binary.BigEndian.AppendUint64(dst, uint64(p.key))
	return binary.BigEndian.AppendUint32(dst, uint32(p.value-base))
}

// none is what stands for "before the first entry".
func (k kind) none(base int64) pair {
	if k == offsetEntry {
		return pair{base, 0}
	}
	return pair{-1, base}
}

// group is how many bytes of entries are collected in memory before they are written.
const group = 4 << 10

// sparse is an .index or .timeindex file. Readers work on one immutable view of it; changes are made under Segment.mu.
type sparse struct {
	kind kind
	base int64
	h    handle

	loadMu sync.Mutex // one load at a time; taken after Segment.mu
	view   atomic.Pointer[view]
}

// view is one state of an index. The first disk entries are in the file, the others in tail.
type view struct {
	disk   int
	padded bool   // the file goes on behind the entries (Kafka's preallocation)
	tail   []byte // encoded; only its owner, the latest view, may append behind its length
	last   pair   // none when there are no entries
}

func (x *sparse) init(s *Segment, o Options, ext string, k kind) {
	x.kind, x.base = k, o.BaseOffset
	x.h.init(s, o, ext)
}

func (x *sparse) create() error {
	if err := x.h.createEmpty(); err != nil {
		return err
	}
	x.view.Store(&view{last: x.kind.none(x.base)})
	return nil
}

func (x *sparse) corrupt(format string, args ...any) error {
	return &CorruptIndexError{File: x.h.pathNow(), Reason: fmt.Sprintf(format, args...)}
}

func (v *view) entries(k kind) int { return v.disk + len(v.tail)/k.size() }

// load returns the latest view, and looks at the file when there is none yet. A missing file is an empty index.
func (x *sparse) load() (*view, error) {
	if v := x.view.Load(); v != nil {
		return v, nil
	}
	x.loadMu.Lock()
	defer x.loadMu.Unlock()
	if v := x.view.Load(); v != nil {
		return v, nil
	}
	v, err := x.read()
	if err != nil {
		return nil, err
	}
	x.view.Store(v)
	return v, nil
}

func (x *sparse) read() (*view, error) {
	v := &view{last: x.kind.none(x.base)}
	f, err := x.h.acquire(false)
	if errors.Is(err, fs.ErrNotExist) {
		return v, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Release()
	info, err := f.File().Stat()
	if err != nil {
		return nil, err
	}
	size := x.kind.size()
	n := int(info.Size() / int64(size))
	var buf [12]byte
	zero := func(i int) (bool, error) {
		e := buf[:size]
		if err := x.readDisk(f.File(), e, i); err != nil {
			return false, err
		}
		return buf == [12]byte{}, nil
	}
	if v.disk, err = realEntries(n, x.kind, zero); err != nil {
		return nil, err
	}
	v.padded = int64(v.disk)*int64(size) < info.Size()
	if v.disk > 0 {
		if err := x.readDisk(f.File(), buf[:size], v.disk-1); err != nil {
			return nil, err
		}
		v.last = x.kind.decode(buf[:size], x.base)
	}
	return v, nil
}

// realEntries counts the entries before the zeros that Kafka fills an active index up with. An entry of zeros is
// padding, with one exception: (timestamp 0, base offset) alone in a time index that is not padded.
func realEntries(n int, k kind, zero func(i int) (bool, error)) (int, error) {
	if n == 0 {
		return 0, nil
	}
	z, err := zero(n - 1)
	if err != nil || !z || (n == 1 && k == timeEntry) {
		return n, err
	}
	// Padding goes from some entry to the end. Entry 0 may be zeros in itself, if entry 1 is not.
	i := 1 + sort.Search(n-1, func(i int) bool {
		if err != nil {
			return true
		}
		var z bool
		z, err = zero(1 + i)
		return z
	})
	if err != nil {
		return 0, err
	}
	if i == 1 {
		if z, err = zero(0); err != nil || z {
			return 0, err
		}
	}
	return i, nil
}

// readDisk fills b with entries of the file from number i on.
func (x *sparse) readDisk(f io.ReaderAt, b []byte, i int) error {
	n, err := f.ReadAt(b, int64(i)*int64(x.kind.size()))
	if n == len(b) {
		return nil
	}
	if err == nil || err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// get decodes entry i of a view.
func (x *sparse) get(v *view, i int) (pair, error) {
	size := x.kind.size()
	if i >= v.disk {
		return x.kind.decode(v.tail[(i-v.disk)*size:], x.base), nil
	}
	f, err := x.h.acquire(false)
	if err != nil {
		return pair{}, err
	}
	defer f.Release()
	var buf [12]byte
	if err := x.readDisk(f.File(), buf[:size], i); err != nil {
		return pair{}, err
	}
	return x.kind.decode(buf[:size], x.base), nil
}

// field says which half of an entry a search goes by; both rise from entry to entry.
type field int

const (
	byKey field = iota
	byValue
)

func (p pair) get(by field) int64 {
	if by == byKey {
		return p.key
	}
	return p.value
}

// upTo returns how many entries have a field of at most limit, and the last one of them (none when there are none).
func (x *sparse) upTo(v *view, limit int64, by field) (int, pair, error) {
	size := x.kind.size()
	if v.disk == 0 || len(v.tail) > 0 && x.kind.decode(v.tail, x.base).get(by) <= limit {
		n, last := x.count(v.tail, limit, by)
		return v.disk + n, last, nil
	}
	f, err := x.h.acquire(false)
	if err != nil {
		return 0, pair{}, err
	}
	defer f.Release()
	p := x.h.seg.buffers.getSmall()
	defer x.h.seg.buffers.putSmall(p)
	// Entry lo-1 is the last one that is known to be within the limit: it is below.
	below := x.kind.none(x.base)
	lo, hi, block := 0, v.disk, len(*p)/size
	for hi-lo > block {
		mid := int(uint(lo+hi) >> 1)
		if err := x.readDisk(f.File(), (*p)[:size], mid); err != nil {
			return 0, pair{}, err
		}
		if e := x.kind.decode(*p, x.base); e.get(by) <= limit {
			lo, below = mid+1, e
		} else {
			hi = mid
		}
	}
	b := (*p)[:(hi-lo)*size]
	if err := x.readDisk(f.File(), b, lo); err != nil {
		return 0, pair{}, err
	}
	n, last := x.count(b, limit, by)
	if n == 0 {
		last = below
	}
	return lo + n, last, nil
}

// count is upTo for encoded entries.
func (x *sparse) count(b []byte, limit int64, by field) (int, pair) {
	size := x.kind.size()
	lo, hi := 0, len(b)/size
	last := x.kind.none(x.base)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if e := x.kind.decode(b[mid*size:], x.base); e.get(by) <= limit {
			lo, last = mid+1, e
		} else {
			hi = mid
		}
	}
	return lo, last
}

// floor is the last entry whose key is at most key; none when there is none. It starts over when the index is
// truncated meanwhile.
func (x *sparse) floor(key int64) (pair, error) {
	for {
		v, err := x.load()
		if err != nil {
			return pair{}, err
		}
		_, found, err := x.upTo(v, key, byKey)
		if err == nil {
			return found, nil
		}
		if x.view.Load() == v {
			if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, fs.ErrNotExist) {
				err = x.corrupt("the file is shorter than it was")
			}
			return pair{}, err
		}
	}
}

// The methods below change the index; callers hold Segment.mu.

// add puts an entry behind the others. Its key is above the last one's; see Segment.Append.
func (x *sparse) add(v *view, p pair) *view {
	next := &view{disk: v.disk, padded: v.padded, tail: x.kind.append(v.tail, p, x.base), last: p}
	x.view.Store(next)
	return next
}

// spill writes the entries in memory when they are at least so many bytes.
func (x *sparse) spill(atLeast int) error {
	v := x.view.Load()
	if v == nil || len(v.tail) == 0 || len(v.tail) < atLeast {
		return nil
	}
	if err := x.h.writeAt(v.tail, int64(v.disk)*int64(x.kind.size()), true); err != nil {
		return err
	}
	x.view.Store(&view{disk: v.entries(x.kind), padded: v.padded, last: v.last})
	return nil
}

// trim cuts off what stands in the file behind the entries.
func (x *sparse) trim() error {
	v := x.view.Load()
	if v == nil || !v.padded {
		return nil
	}
	if err := x.h.truncate(int64(v.disk) * int64(x.kind.size())); err != nil {
		return err
	}
	x.view.Store(&view{disk: v.disk, tail: v.tail, last: v.last})
	return nil
}

// keep drops all but the first n entries.
func (x *sparse) keep(v *view, n int) error {
	if n >= v.entries(x.kind) {
		return nil
	}
	next := &view{last: x.kind.none(x.base)}
	if n > 0 {
		last, err := x.get(v, n-1)
		if err != nil {
			return err
		}
		next.last = last
	}
	if n >= v.disk {
		end := (n - v.disk) * x.kind.size()
		// The capacity is cut too: older views see the bytes behind, so they must not be written over.
		next.disk, next.padded, next.tail = v.disk, v.padded, v.tail[:end:end]
		x.view.Store(next)
		return nil
	}
	next.disk = n
	x.view.Store(next)
	return x.h.truncate(int64(n) * int64(x.kind.size()))
}

// reset empties the index and its file, whatever is in it.
func (x *sparse) reset() error {
	x.view.Store(&view{last: x.kind.none(x.base)})
	return x.h.truncate(0)
}

// check looks for entries that cannot be right. maxValue bounds the last value of an offset index.
func (x *sparse) check(deep bool, maxValue int64) error {
	info, err := x.h.stat()
	if errors.Is(err, fs.ErrNotExist) {
		if v := x.view.Load(); v != nil && v.entries(x.kind) == 0 && maxValue == 0 {
			return nil
		}
		return x.corrupt("the file is missing")
	}
	if err != nil {
		return err
	}
	if info.Size()%int64(x.kind.size()) != 0 {
		return x.corrupt("its %d bytes are not a multiple of %d", info.Size(), x.kind.size())
	}
	if !deep {
		return nil
	}
	v, err := x.load()
	if err != nil {
		return err
	}
	n := v.entries(x.kind)
	if n == 0 {
		return nil
	}
	first, err := x.get(v, 0)
	if err != nil {
		return err
	}
	last, offset := v.last, v.last.key
	if x.kind == timeEntry {
		offset = last.value
	}
	switch {
	case offset < x.base:
		return x.corrupt("the last offset %d is below the base offset %d", offset, x.base)
	case n > 1 && (first.key >= last.key || first.value > last.value):
		return x.corrupt("the last of its %d entries is not above the first", n)
	case x.kind == offsetEntry && (last.value < 0 || last.value >= maxValue):
		return x.corrupt("the last position %d is not in the log file of %d bytes", last.value, maxValue)
	}
	return nil
}
