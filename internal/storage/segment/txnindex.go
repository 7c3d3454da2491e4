package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"

	"weir/internal/vfs"
)

// AbortedTxn is an entry of the transaction index: an aborted transaction whose marker stands in the segment.
type AbortedTxn struct {
	ProducerID       int64
	FirstOffset      int64 // of the transaction's first record
	LastOffset       int64 // of its abort marker
	LastStableOffset int64 // when the marker was appended
}

const (
	txnLen     = 34
	txnVersion = 0
)

func appendTxn(dst []byte, t AbortedTxn) []byte {
	dst = binary.BigEndian.AppendUint16(dst, txnVersion)
	for _, v := range [...]int64{t.ProducerID, t.FirstOffset, t.LastOffset, t.LastStableOffset} {
		dst = binary.BigEndian.AppendUint64(dst, uint64(v))
	}
	return dst
}

func decodeTxn(b []byte) (t AbortedTxn, version int16) {
	at := func(i int) int64 { return int64(binary.BigEndian.Uint64(b[i:])) }
	return AbortedTxn{ProducerID: at(2), FirstOffset: at(10), LastOffset: at(18), LastStableOffset: at(26)},
		int16(binary.BigEndian.Uint16(b))
}

// txnIndex is the .txnindex file. Entries are rare and are written at once.
type txnIndex struct {
	h handle

	loadMu sync.Mutex
	// size is the bytes of whole entries in the file; -1 until somebody looked. 0 when there is no file.
	size atomic.Int64
	last int64 // last offset of the last entry, or -1; guarded by Segment.mu, only right once lastKnown
	// lastKnown: last was read from the file or set since.
	lastKnown bool
}

// load looks at the size of the file once.
func (x *txnIndex) load() (int64, error) {
	if n := x.size.Load(); n >= 0 {
		return n, nil
	}
	x.loadMu.Lock()
	defer x.loadMu.Unlock()
	if n := x.size.Load(); n >= 0 {
		return n, nil
	}
	info, err := x.h.stat()
	if errors.Is(err, fs.ErrNotExist) {
		x.size.Store(0)
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	n := info.Size() / txnLen * txnLen
	x.size.Store(n)
	return n, nil
}

// each calls visit for every entry in order, with its position, until it returns false.
func (x *txnIndex) each(visit func(t AbortedTxn, pos int64) bool) error {
	n, err := x.load()
	if err != nil || n == 0 {
		return err
	}
	f, err := x.h.acquire(false)
	if err != nil {
		return err
	}
	defer f.Release()
	p := x.h.seg.buffers.getSmall()
	defer x.h.seg.buffers.putSmall(p)
	block := int64(len(*p) / txnLen * txnLen)
	for pos := int64(0); pos < n; pos += block {
		b := (*p)[:min(block, n-pos)]
		if _, err := (vfs.Region{File: f, Off: pos, N: int64(len(b))}).ReadAt(b, 0); err != nil {
			if x.size.Load() < pos+int64(len(b)) {
				return nil // truncated meanwhile: these entries are no more
			}
			return fmt.Errorf("%s at %d: %w", x.h.pathNow(), pos, err)
		}
		for i := 0; i < len(b); i += txnLen {
			t, version := decodeTxn(b[i:])
			if version != txnVersion {
				return &CorruptIndexError{File: x.h.pathNow(), Reason: fmt.Sprintf("entry at %d has unknown version %d", pos+int64(i), version)}
			}
			if !visit(t, pos+int64(i)) {
				return nil
			}
		}
	}
	return nil
}

// AppendAborted adds an entry to the transaction index. Last offsets must rise: *UsageError. Called by the goroutine
// that appends, or by Recover's visit.
func (s *Segment) AppendAborted(t AbortedTxn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := &s.txns
	n, err := x.load()
	if err != nil {
		return err
	}
	if !x.lastKnown {
		x.last = -1
		if err := x.each(func(t AbortedTxn, _ int64) bool { x.last = t.LastOffset; return true }); err != nil {
			return err
		}
		x.lastKnown = true
	}
	if t.LastOffset <= x.last {
		return &UsageError{File: x.h.pathNow(), Reason: fmt.Sprintf("the last offset %d of the aborted transaction is not above %d of the one before", t.LastOffset, x.last)}
	}
	var buf [txnLen]byte
	if err := x.h.writeAt(appendTxn(buf[:0], t), n, true); err != nil {
		return err
	}
	x.last = t.LastOffset
	x.size.Store(n + txnLen)
	return nil
}

// Aborted lists the aborted transactions that overlap the offsets from (inclusive) to upTo (exclusive). complete says
// that no later segment can hold more of them.
func (s *Segment) Aborted(from, upTo int64) (txns []AbortedTxn, complete bool, err error) {
	err = s.txns.each(func(t AbortedTxn, _ int64) bool {
		if t.LastOffset >= from && t.FirstOffset < upTo {
			txns = append(txns, t)
		}
		complete = t.LastStableOffset >= upTo
		return !complete
	})
	return txns, complete, err
}

// truncate drops the entries whose marker stands at offset or later. Callers hold Segment.mu.
func (x *txnIndex) truncate(offset int64) error {
	cut, last := int64(-1), int64(-1)
	err := x.each(func(t AbortedTxn, pos int64) bool {
		if t.LastOffset >= offset {
			cut = pos
			return false
		}
		last = t.LastOffset
		return true
	})
	if err != nil {
		return err
	}
	x.last, x.lastKnown = last, true
	if cut < 0 {
		return nil
	}
	x.size.Store(cut)
	return x.h.truncate(cut)
}

// reset empties the file, if there is one. Callers hold Segment.mu.
func (x *txnIndex) reset() error {
	info, err := x.h.stat()
	x.last, x.lastKnown = -1, true
	x.size.Store(0)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	return x.h.truncate(0)
}

// check looks for entries that cannot be right.
func (x *txnIndex) check(base int64, deep bool) error {
	path := x.h.pathNow()
	info, err := x.h.stat()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Size()%txnLen != 0 {
		return &CorruptIndexError{File: path, Reason: fmt.Sprintf("its %d bytes are not a multiple of %d", info.Size(), txnLen)}
	}
	if !deep {
		return nil
	}
	var bad error
	err = x.each(func(t AbortedTxn, pos int64) bool {
		if t.LastOffset < base {
			bad = &CorruptIndexError{File: path, Reason: fmt.Sprintf("entry at %d ends at offset %d, below the base offset %d", pos, t.LastOffset, base)}
		}
		return bad == nil
	})
	return errors.Join(err, bad)
}
