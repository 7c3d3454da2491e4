package compress

import (
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// zstdWindow bounds the history that an encoder keeps: batches are small, and encoders are pooled.
const zstdWindow = 1 << 20

// Writer compresses a stream onto the end of a byte slice. Its state is kept between Resets. The zero value is ready for Reset.
type Writer struct {
	codec Codec
	dst   sink
	gz    *gzip.Writer
	gzLvl int
	zs    *zstd.Encoder
	zsLvl zstd.EncoderLevel
	lz    lz4Writer
	sn    snappyWriter
}

// sink appends what it is given.
type sink struct{ b []byte }

func (s *sink) Write(p []byte) (int, error) { s.b = append(s.b, p...); return len(p), nil }

// Reset starts a stream whose output is appended to dst. level is in the scale of the codec's compression.*.level; LevelDefault is
// Kafka's default. brokenLz4 writes the header checksum that magic 0 has.
func (w *Writer) Reset(c Codec, level int, dst []byte, brokenLz4 bool) error {
	w.codec = c
	switch c {
	case None:
		w.dst.b = dst
	case Gzip:
		w.dst.b = dst
		return w.resetGzip(level)
	case Snappy:
		w.sn.reset(dst)
	case Lz4:
		if level == LevelDefault || level == lz4DefaultLevel {
			level = 0
		}
		w.lz.reset(dst, level, brokenLz4)
	case Zstd:
		w.dst.b = dst
		return w.resetZstd(level)
	default:
		return errCodec
	}
	return nil
}

// lz4DefaultLevel is compression.lz4.level's default; it is served by the fast compressor, others by the high-compression one.
const lz4DefaultLevel = 9

func (w *Writer) resetGzip(level int) error {
	if level == LevelDefault || level < gzip.HuffmanOnly || level > gzip.BestCompression {
		level = gzip.DefaultCompression
	}
	if w.gz != nil && w.gzLvl == level {
		w.gz.Reset(&w.dst)
		return nil
	}
	gz, err := gzip.NewWriterLevel(&w.dst, level)
	w.gz, w.gzLvl = gz, level
	return err
}

func (w *Writer) resetZstd(level int) error {
	if level == LevelDefault {
		level = 3
	}
	lvl := zstd.EncoderLevelFromZstd(level)
	if w.zs != nil && w.zsLvl == lvl {
		w.zs.Reset(&w.dst)
		return nil
	}
	zs, err := zstd.NewWriter(&w.dst, zstd.WithEncoderLevel(lvl), zstd.WithEncoderConcurrency(1),
		zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(zstdWindow))
	w.zs, w.zsLvl = zs, lvl
	return err
}

// Write compresses p. The output may lag behind until Close.
func (w *Writer) Write(p []byte) (int, error) {
	switch w.codec {
	case Gzip:
		return w.gz.Write(p)
	case Snappy:
		w.sn.write(p)
	case Lz4:
		w.lz.write(p)
	case Zstd:
		return w.zs.Write(p)
	default:
		return w.dst.Write(p)
	}
	return len(p), nil
}

// Len is how long the output is so far, dst's beginning included.
func (w *Writer) Len() int {
	switch w.codec {
	case Snappy:
		return len(w.sn.dst)
	case Lz4:
		return len(w.lz.dst)
	}
	return len(w.dst.b)
}

// Close ends the stream and returns dst with the output appended; the Writer keeps no reference to it.
func (w *Writer) Close() ([]byte, error) {
	var err error
	switch w.codec {
	case Snappy:
		return w.sn.close(), nil
	case Lz4:
		return w.lz.close(), nil
	case Gzip:
		err = w.gz.Close()
	case Zstd:
		err = w.zs.Close()
	}
	b := w.dst.b
	w.dst.b = nil
	return b, err
}
