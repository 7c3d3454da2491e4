package batch

import (
	"sync"

	"weir/internal/batch/compress"
)

// Codec names a compression.
type Codec = compress.Codec

// The codecs, with their numbers in the attributes.
const (
	None   = compress.None
	Gzip   = compress.Gzip
	Snappy = compress.Snappy
	Lz4    = compress.Lz4
	Zstd   = compress.Zstd
)

// LevelDefault asks for Kafka's default level of a codec.
const LevelDefault = compress.LevelDefault

// ParseCodec reads a compression.type other than "producer": none (also uncompressed), gzip, snappy, lz4, zstd.
func ParseCodec(name string) (Codec, bool) { return compress.ParseCodec(name) }

// Buffers holds (de)compressor state and scratch memory for one user at a time. The zero value works.
type Buffers struct {
}

// Pool lends Buffers. The zero value works; it is safe for concurrent use.
type Pool struct{ p sync.Pool }

// Get takes a Buffers out of the pool, or makes one.
func (p *Pool) Get() *Buffers {
	if b, ok := p.p.Get().(*Buffers); ok {
		return b
	}
	return new(Buffers)
}

// Put gives it back.
func (p *Pool) Put(b *Buffers) { p.p.Put(b) }
