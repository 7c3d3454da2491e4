package compress

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/snappy"
)

// Java clients write snappy in the xerial framing: an 8 byte magic, version and compatible version (int32 each), and then chunks of
// int32 length and a raw snappy block. Other clients write one raw snappy block. A stream may be several xerial streams in a row.
const (
	xerialMagic     = "\x82SNAPPY\x00"
	xerialHeaderLen = 16
	xerialChunk     = 32 << 10
	// A snappy element of 2 or more bytes copies at most 64: a declared length beyond that ratio is a lie.
	snappyMaxRatio = 64
	// maxBlock bounds one inflated block, which has to be held whole.
	maxBlock = 128 << 20
	// keepBlock is how much block memory is worth keeping in a pool.
	keepBlock = 1 << 20
)

var errSnappy = errors.New("compress: corrupt snappy data")

type snappyReader struct {
	src    []byte
	framed bool
	began  bool
	block  []byte // memory of the current block
	unread []byte // of the current block
}

func (s *snappyReader) reset(src []byte) { s.src, s.framed, s.began, s.unread = src, false, false, nil }

func (s *snappyReader) release() {
	s.reset(nil)
	if cap(s.block) > keepBlock {
		s.block = nil
	}
}

func (s *snappyReader) Read(p []byte) (int, error) {
	for len(s.unread) == 0 {
		if err := s.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, s.unread)
	s.unread = s.unread[n:]
	return n, nil
}

// next inflates the next block into s.unread.
func (s *snappyReader) next() error {
	if !s.began {
		s.began = true
		if len(s.src) == 0 {
			return io.ErrUnexpectedEOF
		}
		s.framed = bytes.HasPrefix(s.src, []byte(xerialMagic))
	}
	if len(s.src) == 0 {
		return io.EOF
	}
	block := s.src
	if !s.framed {
		s.src = nil
		return s.inflate(block)
	}
	if bytes.HasPrefix(s.src, []byte(xerialMagic)) {
		if len(s.src) < xerialHeaderLen {
			return io.ErrUnexpectedEOF
		}
		if v := binary.BigEndian.Uint32(s.src[8:]); v < 1 {
			return fmt.Errorf("compress: snappy framing version %d", v)
		}
		s.src = s.src[xerialHeaderLen:]
		return nil
	}
	if len(s.src) < 4 {
		return io.ErrUnexpectedEOF
	}
	n := binary.BigEndian.Uint32(s.src)
	if uint64(n) > uint64(len(s.src)-4) {
		return io.ErrUnexpectedEOF
	}
	block, s.src = s.src[4:4+n], s.src[4+n:]
	return s.inflate(block)
}

func (s *snappyReader) inflate(block []byte) error {
	n, err := snappy.DecodedLen(block)
	if err != nil || n > maxBlock || n > len(block)*snappyMaxRatio {
		return errSnappy
	}
	if cap(s.block) < n {
		s.block = make([]byte, n)
	}
	out, err := snappy.Decode(s.block[:cap(s.block)], block)
	if err != nil {
		return errSnappy
	}
	s.unread = out
	return nil
}

// snappyWriter writes the xerial framing in chunks of 32 KiB, as Java does.
type snappyWriter struct {
	dst   []byte
	chunk []byte
}

func (s *snappyWriter) reset(dst []byte) {
	s.dst = append(dst, xerialMagic...)
	s.dst = binary.BigEndian.AppendUint32(s.dst, 1)
	s.dst = binary.BigEndian.AppendUint32(s.dst, 1)
	s.chunk = s.chunk[:0]
}

func (s *snappyWriter) write(p []byte) {
	for len(p) > 0 {
		n := min(xerialChunk-len(s.chunk), len(p))
		s.chunk = append(s.chunk, p[:n]...)
		p = p[n:]
		if len(s.chunk) == xerialChunk {
			s.flush()
		}
	}
}

func (s *snappyWriter) flush() {
	if len(s.chunk) == 0 {
		return
	}
	at := len(s.dst)
	most := snappy.MaxEncodedLen(len(s.chunk))
	s.dst = grow(s.dst, 4+most)
	out := snappy.Encode(s.dst[at+4:at+4+most], s.chunk)
	binary.BigEndian.PutUint32(s.dst[at:], uint32(len(out)))
	s.dst = s.dst[:at+4+len(out)]
	s.chunk = s.chunk[:0]
}

func (s *snappyWriter) close() []byte {
	s.flush()
	dst := s.dst
	s.dst = nil
	return dst
}

// grow lengthens b by n bytes of any content.
func grow(b []byte, n int) []byte {
	if cap(b)-len(b) < n {
		bigger := make([]byte, len(b), 2*cap(b)+n)
		copy(bigger, b)
		b = bigger
	}
	return b[:len(b)+n]
}
