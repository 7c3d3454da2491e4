package network

import (
	"math/bits"
	"sync"
)

const (
	minBufferBits = 9  // 512 B
	maxBufferBits = 24 // 16 MiB; larger buffers are left to the garbage collector
)

// buffers is a pool of byte slices in sizes of powers of two. The zero value is ready.
type buffers struct {
	classes [maxBufferBits - minBufferBits + 1]sync.Pool // of *buffer
}

// buffer is one pooled slice. Its owner may change b's length and content but not its array.
type buffer struct{ b []byte }

// get returns a buffer of n bytes with arbitrary content.
func (p *buffers) get(n int) *buffer {
	class := sizeClass(n)
	if class >= len(p.classes) {
		return &buffer{make([]byte, n)}
	}
	if v := p.classes[class].Get(); v != nil {
		buf := v.(*buffer)
		buf.b = buf.b[:n]
		return buf
	}
	return &buffer{make([]byte, n, 1<<(class+minBufferBits))}
}

func (p *buffers) put(buf *buffer) {
	// Only arrays of exactly a class's size go back: get relies on it.
	n := cap(buf.b)
	if class := sizeClass(n); class < len(p.classes) && n == 1<<(class+minBufferBits) {
		p.classes[class].Put(buf)
	}
}

// sizeClass is the index of the smallest class that holds n bytes; past the last for what is not pooled.
func sizeClass(n int) int { return max(bits.Len(uint(max(n, 1)-1))-minBufferBits, 0) }
