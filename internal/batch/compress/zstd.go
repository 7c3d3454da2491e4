package compress

import (
	"bytes"
	"fmt"
	"io"
	"math/bits"

	"github.com/klauspost/compress/zstd"
)

// A zstd frame's header claims a window, which decoders allocate at once: 9 bytes can ask for 128 MiB. Real frames of high levels
// claim that too, whatever they hold. So the frame's blocks are walked first, which is cheap, to see how much they can inflate to;
// a window beyond that is never used, and the claim is lowered before the decoder sees it.
const (
	// maxWindow is the largest window that is accepted after lowering.
	maxWindow = 32 << 20
	// keepWindow is the largest window whose decoder is worth keeping in a pool: that of level 19.
	keepWindow = 8 << 20

	zstdMaxBlock         = 128 << 10
	zstdWindowDescriptor = 5 // its place in a frame that has one
	zstdMinWindowLog     = 10
	zstdHeaderMax        = 4 + 14 // magic, and at most: descriptor, window, dictionary id, content size
)

// zstdSource is a frame whose header is replaced.
type zstdSource struct {
	head [zstdHeaderMax]byte
	left []byte // of head
	tail bytes.Reader
}

// reset prepares src and returns the window that its first frame will have.
func (z *zstdSource) reset(src []byte) (window uint64, err error) {
	z.left = nil
	z.tail.Reset(src)
	var h zstd.Header
	if h.Decode(src) != nil || h.Skippable || h.WindowSize <= keepWindow {
		return 0, nil // the decoder finds what is wrong
	}
	most := zstdMost(src[h.HeaderSize:])
	if h.SingleSegment && h.FrameContentSize > most {
		return 0, io.ErrUnexpectedEOF
	}
	window = h.WindowSize
	if !h.SingleSegment && most < window {
		log := max(bits.Len64(max(most, zstdMaxBlock)-1), zstdMinWindowLog)
		if w := uint64(1) << log; w < window {
			window = w
			n := copy(z.head[:], src[:h.HeaderSize])
			z.head[zstdWindowDescriptor] = byte(log-zstdMinWindowLog) << 3
			z.left = z.head[:n]
			z.tail.Reset(src[n:])
		}
	}
	if window > maxWindow {
		return 0, fmt.Errorf("compress: zstd window of %d bytes is more than %d", window, maxWindow)
	}
	return window, nil
}

// zstdMost is an upper bound of what the blocks of a frame inflate to.
func zstdMost(b []byte) (most uint64) {
	for len(b) >= 3 {
		head := uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16
		size := int(head >> 3)
		b = b[3:]
		switch head >> 1 & 3 {
		case 0: // stored
			most += uint64(size)
		case 1: // one byte repeated
			most += uint64(size)
			size = 1
		default:
			most += zstdMaxBlock
		}
		if head&1 != 0 || size > len(b) {
			break
		}
		b = b[size:]
	}
	return most
}

func (z *zstdSource) Read(p []byte) (int, error) {
	if len(z.left) > 0 {
		n := copy(p, z.left)
		z.left = z.left[n:]
		return n, nil
	}
	return z.tail.Read(p)
}
