package compress

import (
	"encoding/binary"
	"errors"
	"io"

	"github.com/pierrec/lz4/v4"
)

// Kafka's lz4 is one LZ4 frame with independent blocks: magic, FLG, BD, optional content size, header checksum, blocks of
// little-endian uint32 size (top bit: stored) and data with optional checksum, and a zero size as the end mark. The content checksum
// is skipped, as Java does. Clients of magic 0 computed the header checksum over the frame magic too (KAFKA-3160).
const (
	lz4Magic        = 0x184D2204
	lz4FlagVersion  = 0x40
	lz4FlagIndep    = 0x20
	lz4FlagBlockSum = 0x10
	lz4FlagSize     = 0x08
	lz4FlagSum      = 0x04
	lz4Stored       = 1 << 31
	lz4Block64K     = 4 << 4
	lz4WriteBlock   = 64 << 10
)

var (
	errLz4       = errors.New("compress: corrupt lz4 data")
	errLz4Header = errors.New("compress: lz4 frame header is corrupt")
	errLz4Linked = errors.New("compress: lz4 frame with dependent blocks is not supported")
)

type lz4Reader struct {
	src    []byte
	broken bool
	began  bool
	ended  bool
	sums   bool
	most   int    // largest block
	block  []byte // memory for inflated blocks
	unread []byte
}

func (l *lz4Reader) reset(src []byte, broken bool) {
	block := l.block
	if cap(block) > keepBlock {
		block = nil
	}
	*l = lz4Reader{src: src, broken: broken, block: block}
}

func (l *lz4Reader) Read(p []byte) (int, error) {
	for len(l.unread) == 0 {
		if l.ended {
			return 0, io.EOF
		}
		if err := l.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, l.unread)
	l.unread = l.unread[n:]
	return n, nil
}

func (l *lz4Reader) header() error {
	if len(l.src) < 7 {
		return io.ErrUnexpectedEOF
	}
	if binary.LittleEndian.Uint32(l.src) != lz4Magic {
		return errLz4Header
	}
	flg, bd := l.src[4], l.src[5]
	at := 6
	if flg&lz4FlagSize != 0 {
		at += 8
	}
	if len(l.src) <= at {
		return io.ErrUnexpectedEOF
	}
	switch {
	case flg&0xC0 != lz4FlagVersion || flg&0x03 != 0 || bd&0x8F != 0:
		return errLz4Header
	case flg&lz4FlagIndep == 0:
		return errLz4Linked
	case bd>>4 < 4:
		return errLz4Header
	}
	if !l.broken && headerSum(l.src[4:at]) != l.src[at] {
		return errLz4Header
	}
	l.most = 1 << (8 + 2*(bd>>4))
	l.sums = flg&lz4FlagBlockSum != 0
	l.src = l.src[at+1:]
	return nil
}

// next inflates the next block into l.unread.
func (l *lz4Reader) next() error {
	if !l.began {
		l.began = true
		if err := l.header(); err != nil {
			return err
		}
	}
	if len(l.src) < 4 {
		return io.ErrUnexpectedEOF
	}
	size := binary.LittleEndian.Uint32(l.src)
	l.src = l.src[4:]
	if size == 0 {
		l.ended = true
		return nil
	}
	n := int(size &^ lz4Stored)
	if n > l.most {
		return errLz4
	}
	trailer := 0
	if l.sums {
		trailer = 4
	}
	if n+trailer > len(l.src) {
		return io.ErrUnexpectedEOF
	}
	data := l.src[:n]
	if l.sums && xxh32(data) != binary.LittleEndian.Uint32(l.src[n:]) {
		return errLz4
	}
	l.src = l.src[n+trailer:]
	if size&lz4Stored != 0 {
		l.unread = data
		return nil
	}
	if cap(l.block) < l.most {
		l.block = make([]byte, l.most)
	}
	out, err := lz4.UncompressBlock(data, l.block[:l.most])
	if err != nil {
		return errLz4
	}
	l.unread = l.block[:out]
	return nil
}

func headerSum(b []byte) byte { return byte(xxh32(b) >> 8) }

type lz4Writer struct {
	dst   []byte
	block []byte
	fast  *lz4.Compressor   // hash tables of some hundred KiB: made on first use
	high  *lz4.CompressorHC // the same
	hc    bool
}

func (l *lz4Writer) reset(dst []byte, level int, broken bool) {
	l.hc = level > 0
	switch {
	case l.hc && l.high == nil:
		l.high = new(lz4.CompressorHC)
	case !l.hc && l.fast == nil:
		l.fast = new(lz4.Compressor)
	}
	if l.hc {
		l.high.Level = lz4.CompressionLevel(1 << (8 + min(level, 9)))
	}
	at := len(dst)
	dst = binary.LittleEndian.AppendUint32(dst, lz4Magic)
	dst = append(dst, lz4FlagVersion|lz4FlagIndep, lz4Block64K)
	if broken {
		dst = append(dst, headerSum(dst[at:]))
	} else {
		dst = append(dst, headerSum(dst[at+4:]))
	}
	l.dst = dst
	l.block = l.block[:0]
}

func (l *lz4Writer) write(p []byte) {
	for len(p) > 0 {
		n := min(lz4WriteBlock-len(l.block), len(p))
		l.block = append(l.block, p[:n]...)
		p = p[n:]
		if len(l.block) == lz4WriteBlock {
			l.flush()
		}
	}
}

func (l *lz4Writer) flush() {
	if len(l.block) == 0 {
		return
	}
	at := len(l.dst)
	most := lz4.CompressBlockBound(len(l.block))
	l.dst = grow(l.dst, 4+most)
	var n int
	var err error
	if l.hc {
		n, err = l.high.CompressBlock(l.block, l.dst[at+4:])
	} else {
		n, err = l.fast.CompressBlock(l.block, l.dst[at+4:])
	}
	size := uint32(n)
	if err != nil || n == 0 || n >= len(l.block) { // cannot be made smaller: store
		n = copy(l.dst[at+4:], l.block)
		size = uint32(n) | lz4Stored
	}
	binary.LittleEndian.PutUint32(l.dst[at:], size)
	l.dst = l.dst[:at+4+n]
	l.block = l.block[:0]
}

func (l *lz4Writer) close() []byte {
	l.flush()
	dst := append(l.dst, 0, 0, 0, 0)
	l.dst = nil
	return dst
}
