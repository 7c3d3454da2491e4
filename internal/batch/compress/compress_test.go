package compress

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

func samples() map[string][]byte {
	r := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 200_000)
	for i := range noise {
		noise[i] = byte(r.Uint32())
	}
	return map[string][]byte{
		"one":   {7},
		"text":  bytes.Repeat([]byte("the water above the crest goes over. "), 5000),
		"noise": noise,
		"block": make([]byte, lz4WriteBlock),
		"chunk": make([]byte, xerialChunk+1),
	}
}

func pack(t testing.TB, w *Writer, c Codec, level int, dst, data []byte, broken bool) []byte {
	t.Helper()
	if err := w.Reset(c, level, dst, broken); err != nil {
		t.Fatal(err)
	}
	for len(data) > 0 { // in odd pieces
		n := min(len(data), 777)
		if _, err := w.Write(data[:n]); err != nil {
			t.Fatal(err)
		}
		data = data[n:]
	}
	out, err := w.Close()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func unpack(r *Reader, c Codec, src []byte, broken bool) ([]byte, error) {
	if err := r.Reset(c, src, broken); err != nil {
		return nil, err
	}
	defer r.Release()
	return io.ReadAll(r)
}

func TestRoundTrip(t *testing.T) {
	var w Writer
	var r Reader
	for name, data := range samples() {
		for c := None; c <= Zstd; c++ {
			for _, broken := range []bool{false, true} {
				out := pack(t, &w, c, LevelDefault, []byte("before"), data, broken)
				if !bytes.HasPrefix(out, []byte("before")) {
					t.Fatalf("%s %s: prefix lost", name, c)
				}
				got, err := unpack(&r, c, out[6:], broken)
				if err != nil || !bytes.Equal(got, data) {
					t.Errorf("%s %s: %d bytes became %d, %v", name, c, len(data), len(got), err)
				}
			}
		}
	}
}

// Every prefix of a stream is refused, and leaves the reader usable.
func TestCut(t *testing.T) {
	var w Writer
	var r Reader
	data := bytes.Repeat([]byte("abcdefg"), 30)
	for c := Gzip; c <= Zstd; c++ {
		whole := pack(t, &w, c, LevelDefault, nil, data, false)
		for n := range whole {
			got, err := unpack(&r, c, whole[:n], false)
			if err == nil && len(got) >= len(data) {
				t.Errorf("%s: %d of %d bytes gave %d without an error", c, n, len(whole), len(got))
			}
		}
		if got, err := unpack(&r, c, whole, false); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: %v after errors", c, err)
		}
	}
}

func TestXXH32(t *testing.T) {
	// Values of the reference implementation.
	for in, want := range map[string]uint32{"": 0x02CC5D05, "a": 0x550D7456, "abc": 0x32D153FF, "Nobody inspects the spammish repetition": 0xE2293B2F} {
		if got := xxh32([]byte(in)); got != want {
			t.Errorf("xxh32(%q) = %08x, want %08x", in, got, want)
		}
	}
}

// The frames of another LZ4 implementation are read, and ours by it.
func TestLz4Frames(t *testing.T) {
	var w Writer
	var r Reader
	for name, data := range samples() {
		for _, opts := range [][]lz4.Option{
			{lz4.BlockSizeOption(lz4.Block64Kb)},
			{lz4.BlockSizeOption(lz4.Block4Mb), lz4.BlockChecksumOption(true), lz4.SizeOption(uint64(len(data)))},
			{lz4.ChecksumOption(false), lz4.CompressionLevelOption(lz4.Level9)},
		} {
			var frame bytes.Buffer
			lw := lz4.NewWriter(&frame)
			if err := lw.Apply(opts...); err != nil {
				t.Fatal(err)
			}
			if _, err := lw.Write(data); err != nil {
				t.Fatal(err)
			}
			if err := lw.Close(); err != nil {
				t.Fatal(err)
			}
			if got, err := unpack(&r, Lz4, frame.Bytes(), false); err != nil || !bytes.Equal(got, data) {
				t.Errorf("%s: %v", name, err)
			}
		}
		got, err := io.ReadAll(lz4.NewReader(bytes.NewReader(pack(t, &w, Lz4, LevelDefault, nil, data, false))))
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: other reader: %v", name, err)
		}
	}
}

func TestLz4Refuses(t *testing.T) {
	var w Writer
	var r Reader
	good := pack(t, &w, Lz4, LevelDefault, nil, bytes.Repeat([]byte("x"), 1000), false)
	for name, edit := range map[string]func([]byte){
		"magic":           func(b []byte) { b[0] ^= 1 },
		"linked blocks":   func(b []byte) { b[4] &^= lz4FlagIndep; b[6] = headerSum(b[4:6]) },
		"version":         func(b []byte) { b[4] = 0x80 | b[4]&0x3f; b[6] = headerSum(b[4:6]) },
		"reserved":        func(b []byte) { b[4] |= 1; b[6] = headerSum(b[4:6]) },
		"block size":      func(b []byte) { b[5] = 3 << 4; b[6] = headerSum(b[4:6]) },
		"header checksum": func(b []byte) { b[6] ^= 1 },
		"huge block":      func(b []byte) { binary.LittleEndian.PutUint32(b[7:], 1<<30) },
	} {
		b := bytes.Clone(good)
		edit(b)
		if _, err := unpack(&r, Lz4, b, false); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	b := bytes.Clone(good)
	b[6] ^= 1
	if _, err := unpack(&r, Lz4, b, true); err != nil {
		t.Errorf("magic 0 with a wrong header checksum: %v", err)
	}
}

// A few bytes cannot make us allocate what they claim.
func TestClaims(t *testing.T) {
	snappyClaim := []byte{0xff, 0xff, 0xff, 0x3f, 0, 0}                                        // 128 MiB from 6 bytes
	xerialClaim := append([]byte(xerialMagic), 0, 0, 0, 1, 0, 0, 0, 1, 0x7f, 0xff, 0xff, 0xff) // a chunk of 2 GiB
	zstdClaim := []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 17 << 3, 0x01, 0, 0}                     // window of 128 MiB, empty last block
	zstdBeyond := []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 20 << 3, 0x01, 0, 0}                    // 1 GiB
	for name, c := range map[string]struct {
		codec Codec
		src   []byte
	}{"snappy": {Snappy, snappyClaim}, "xerial": {Snappy, xerialClaim}, "zstd": {Zstd, zstdClaim}, "zstd beyond": {Zstd, zstdBeyond}} {
		var r Reader
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := unpack(&r, c.codec, c.src, false)
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > 16<<20 {
			t.Errorf("%s: %d bytes allocated (%v)", name, used, err)
		}
	}
}

// A large window is lowered to what the frame can hold; a decoder that still needs much is not kept.
func TestZstdLargeWindow(t *testing.T) {
	text := bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // 1 MiB
	noise := make([]byte, 16<<20)
	if _, err := rand.NewChaCha8([32]byte{}).Read(noise[:12<<20]); err != nil {
		t.Fatal(err)
	}
	e, err := zstd.NewWriter(nil, zstd.WithWindowSize(64<<20), zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		data []byte
		kept bool
	}{{text, true}, {noise, false}} {
		var frame bytes.Buffer
		e.Reset(&frame)
		if _, err := e.Write(c.data); err != nil {
			t.Fatal(err)
		}
		if err := e.Flush(); err != nil { // so that the frame does not become a single segment
			t.Fatal(err)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		var h zstd.Header
		if err := h.Decode(frame.Bytes()); err != nil || h.WindowSize != 64<<20 {
			t.Fatalf("frame of window %d, %v", h.WindowSize, err)
		}
		before := bytes.Clone(frame.Bytes())
		var r Reader
		got, err := unpack(&r, Zstd, frame.Bytes(), false)
		if err != nil || !bytes.Equal(got, c.data) {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
		if (r.zs != nil) != c.kept {
			t.Errorf("decoder kept: %v, want %v", r.zs != nil, c.kept)
		}
		if !bytes.Equal(before, frame.Bytes()) {
			t.Error("the source was changed")
		}
	}
}

func TestMaxInflated(t *testing.T) {
	r := Reader{out: endless{}, left: 100}
	n, err := io.Copy(io.Discard, &r)
	if !errors.Is(err, ErrTooLarge) || n > 100 {
		t.Errorf("%d bytes, %v", n, err)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return min(len(p), 7), nil }

func FuzzReader(f *testing.F) {
	var w Writer
	for c := None; c <= Zstd; c++ {
		f.Add(uint8(c), pack(f, &w, c, LevelDefault, nil, []byte("some text some text some text"), false))
	}
	var r Reader
	f.Fuzz(func(t *testing.T, c uint8, src []byte) {
		if err := r.Reset(Codec(c), src, false); err != nil {
			return
		}
		defer r.Release()
		n, err := io.Copy(io.Discard, io.LimitReader(&r, 64<<20))
		if err == nil && n < 0 {
			t.Fatal(n)
		}
	})
}
