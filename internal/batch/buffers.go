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

// Buffers holds (de)compressor state and scratch memory for one user at a time: one goroutine, and one
// iteration or call. The zero value works. Reusing it is what makes checking a batch free of allocations.
type Buffers struct {
	win window
	rec Record
	// out is the builder of recompressed and converted batches.
	out *Builder
	// wrap compresses the inside of a wrapper message, msg holds one message of it.
	wrap compress.Writer
	msg  []byte
	keep []bool // decisions of a Filter
}

// Pool lends Buffers. The zero value works; it is safe for concurrent use.
//
// A record that has to be held whole may inflate to MaxRecord out of a few bytes. Of all Buffers of a pool only one at a
// time holds a record beyond keepWindow; others that come to one wait. So a goroutine must not use a second Buffers of the
// pool while it iterates with one.
type Pool struct {
	p     sync.Pool
	large sync.Mutex
}

// Get takes a Buffers out of the pool, or makes one.
func (p *Pool) Get() *Buffers {
	if b, ok := p.p.Get().(*Buffers); ok {
		return b
	}
	b := new(Buffers)
	b.win.large = &p.large
	return b
}

// Put gives it back. Nothing obtained through it (records, keys, values) may be used afterwards; batches may.
func (p *Pool) Put(b *Buffers) { p.p.Put(b) }

// builder lends the pooled builder, started with o.
func (b *Buffers) builder(o Options) *Builder {
	if b.out == nil {
		b.out = NewBuilder(o)
	} else {
		b.out.Reset(o)
	}
	return b.out
}
