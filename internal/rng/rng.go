// Package rng is randomness as a constructor argument. A Source made by New gives the same dice for the same seed on
// every machine and Go release (PCG), so a failing run is repeated from its seed; System starts from a seed of the
// operating system. It is for jitter, placement and ids, not for secrets.
package rng

import (
	crand "crypto/rand"
	"encoding/binary"
	"math/rand/v2"
)

// Source is a stream of dice. It is not safe for concurrent use: whoever steps a core owns one; Split makes more.
type Source struct {
	pcg rand.PCG
	r   *rand.Rand
}

// New returns the stream of a seed.
func New(seed uint64) *Source {
	s := &Source{}
	// The second word only has to be fixed; it tells our streams from others with the same seed.
	s.pcg.Seed(seed, 0x9e3779b97f4a7c15)
	s.r = rand.New(&s.pcg)
	return s
}

// System returns a stream with a seed nobody can foretell.
func System() *Source {
	var b [8]byte
	// crypto/rand.Read never fails: it ends the program instead.
	crand.Read(b[:])
	return New(binary.LittleEndian.Uint64(b[:]))
}

// Split returns a new independent stream, seeded from this one.
func (s *Source) Split() *Source { return New(s.Uint64()) }

// Uint64 is a uniform 64-bit number.
func (s *Source) Uint64() uint64 { return s.pcg.Uint64() }

// IntN is uniform in [0, n). It panics when n <= 0.
func (s *Source) IntN(n int) int { return s.r.IntN(n) }

// Int64N is uniform in [0, n). It panics when n <= 0.
func (s *Source) Int64N(n int64) int64 { return s.r.Int64N(n) }

// Float64 is uniform in [0, 1).
func (s *Source) Float64() float64 { return s.r.Float64() }

// Shuffle puts n things in random order through swap.
func (s *Source) Shuffle(n int, swap func(i, j int)) { s.r.Shuffle(n, swap) }

// Read fills p and never fails (io.Reader). Each call starts a fresh number, so reads of other sizes give other bytes.
func (s *Source) Read(p []byte) (int, error) {
	n := len(p)
	for len(p) >= 8 {
		binary.LittleEndian.PutUint64(p, s.Uint64())
		p = p[8:]
	}
	if len(p) > 0 {
		var last [8]byte
		binary.LittleEndian.PutUint64(last[:], s.Uint64())
		copy(p, last[:])
	}
	return n, nil
}
