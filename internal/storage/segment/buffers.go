package segment

import "sync"

const (
	smallBuffer = 4 << 10   // headers between two index entries, a block of an index
	largeBuffer = 256 << 10 // walking over whole batches
	keepBuffer  = 4 << 20   // large buffers that grew beyond it are not kept
)

// Buffers are scratch buffers for headers and scans. Safe for concurrent use.
type Buffers struct{ small, large sync.Pool }

// NewBuffers returns an empty pool.
func NewBuffers() *Buffers {
	return &Buffers{
		small: sync.Pool{New: func() any { b := make([]byte, smallBuffer); return &b }},
		large: sync.Pool{New: func() any { b := make([]byte, largeBuffer); return &b }},
	}
}

func (b *Buffers) getSmall() *[]byte { return b.small.Get().(*[]byte) }
func (b *Buffers) putSmall(p *[]byte) {
	if len(*p) == smallBuffer {
		b.small.Put(p)
	}
}
func (b *Buffers) getLarge() *[]byte { return b.large.Get().(*[]byte) }
func (b *Buffers) putLarge(p *[]byte) {
	if len(*p) <= keepBuffer {
		b.large.Put(p)
	}
}
