package compress

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// Limits on what foreign bytes may make us do.
const (
	// MaxInflated bounds how many bytes one batch may inflate to. They are read as a stream, so this bounds time, not memory.
	MaxInflated = 1 << 30
)

// ErrTooLarge means that the data inflates to more than MaxInflated.
var ErrTooLarge = fmt.Errorf("compress: data inflates to more than %d bytes", MaxInflated)

// errCodec is a codec number without a meaning.
var errCodec = errors.New("compress: unknown codec")

// Reader inflates one compressed block at a time as a stream. Its state is kept between Resets, so that a pooled
// Reader allocates nothing. The zero value is ready for Reset.
type Reader struct {
	src  bytes.Reader
	out  io.Reader
	left int64
	gz   *gzip.Reader
	zs   *zstd.Decoder
	zsrc zstdSource
	big  bool // zs holds an unusually large window: drop it
	lz   lz4Reader
	sn   snappyReader
}

// Reset starts reading src, which must not change until the next Reset or Release. brokenLz4 accepts the frame header checksum that
// clients of magic 0 got wrong (KAFKA-3160).
func (r *Reader) Reset(c Codec, src []byte, brokenLz4 bool) error {
	r.Release()
	r.left = MaxInflated
	r.src.Reset(src)
	switch c {
	case None:
		r.out = &r.src
	case Gzip:
		return r.resetGzip()
	case Snappy:
		r.sn.reset(src)
		r.out = &r.sn
	case Lz4:
		r.lz.reset(src, brokenLz4)
		r.out = &r.lz
	case Zstd:
		return r.resetZstd(src)
	default:
		return errCodec
	}
	return nil
}

func (r *Reader) resetGzip() error {
	var err error
	if r.gz == nil {
		r.gz, err = gzip.NewReader(&r.src)
	} else {
		err = r.gz.Reset(&r.src)
	}
	if err != nil {
		r.gz = nil
		return unexpected(err)
	}
	r.gz.Multistream(false)
	r.out = (*gzipMembers)(r)
	return nil
}

// gzipMembers reads one gzip member after another. Like Java it takes whatever is no member behind the first as the end.
type gzipMembers Reader

func (g *gzipMembers) Read(p []byte) (int, error) {
	for {
		n, err := g.gz.Read(p)
		if n > 0 || err == nil {
			return n, nil
		}
		if err != io.EOF {
			return 0, err
		}
		if g.src.Len() == 0 || g.gz.Reset(&g.src) != nil {
			return 0, io.EOF
		}
		g.gz.Multistream(false)
	}
}

func (r *Reader) resetZstd(src []byte) error {
	window, err := r.zsrc.reset(src)
	if err != nil {
		return err
	}
	r.big = window > keepWindow
	if r.zs == nil {
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return err
		}
		r.zs = d
	}
	if err := r.zs.Reset(&r.zsrc); err != nil {
		return unexpected(err)
	}
	r.out = r.zs
	return nil
}

// Release lets go of the source and of memory that is too large to keep. The Reader may be Reset again.
func (r *Reader) Release() {
	r.src.Reset(nil)
	r.zsrc.left = nil
	r.zsrc.tail.Reset(nil)
	r.sn.release()
	r.lz.reset(nil, false)
	r.out = nil
	if r.big && r.zs != nil {
		r.zs.Close()
		r.zs = nil
	}
	r.big = false
}

// Read inflates. A source that ends early gives io.ErrUnexpectedEOF, one that inflates without end ErrTooLarge.
func (r *Reader) Read(p []byte) (int, error) {
	if r.out == nil {
		return 0, io.EOF
	}
	n, err := r.out.Read(p)
	if r.left -= int64(n); r.left < 0 {
		return 0, ErrTooLarge
	}
	return n, err
}

// unexpected makes an end at the very beginning an error, not an end.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
