package segment

import (
	"fmt"
	"testing"

	"weir/internal/batch"
	"weir/internal/vfs"
)

func benchOptions(b *testing.B) Options {
	return Options{FS: vfs.OS(), Dir: NewDir(b.TempDir()), IndexIntervalBytes: 4096, MaxIndexBytes: 10 << 20, Buffers: NewBuffers()}
}

// sized builds a batch of about so many bytes.
func sized(size int) batch.Batch {
	o := batch.NewOptions()
	testBuilder.Reset(o)
	testBuilder.Append(1, nil, make([]byte, max(1, size-75)), nil)
	return testBuilder.Build()
}

func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{200, 16 << 10, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			o := benchOptions(b)
			s := create(b, o)
			data := sized(size)
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			base := int64(0)
			for i := int64(0); b.Loop(); i++ {
				if s.Size() > 256<<20 {
					b.StopTimer()
					must(b, s.Delete())
					base = i
					o.BaseOffset = base
					s = create(b, o)
					b.StartTimer()
				}
				data.SetBaseOffset(i)
				if _, err := s.Append(data, i); err != nil {
					b.Fatal(err)
				}
			}
			b.StopTimer()
			must(b, s.Delete())
		})
	}
}

// benchSegment has batches of 1 KiB, one offset each, with timestamps of one a batch.
func benchSegment(b *testing.B, n int64) *Segment {
	s := create(b, benchOptions(b))
	for i := range n {
		o := batch.NewOptions()
		o.BaseOffset = i
		testBuilder.Reset(o)
		testBuilder.Append(i, nil, make([]byte, 950), nil)
		if _, err := s.Append(testBuilder.Build(), i); err != nil {
			b.Fatal(err)
		}
	}
	return s
}

func BenchmarkPosition(b *testing.B) {
	const n = 100_000
	s := benchSegment(b, n)
	for _, where := range []string{"anywhere", "tail"} {
		b.Run(where, func(b *testing.B) {
			b.ReportAllocs()
			for i := int64(0); b.Loop(); i++ {
				offset := i * 7919 % n
				if where == "tail" {
					offset = n - 1 - i%100
				}
				if _, ok, err := s.Position(offset); err != nil || !ok {
					b.Fatal(ok, err)
				}
			}
		})
	}
}

func BenchmarkRead(b *testing.B) {
	const n = 10_000
	s := benchSegment(b, n)
	b.ReportAllocs()
	for i := int64(0); b.Loop(); i++ {
		r, ok, err := s.Read(i*7919%n, 1<<20, 1<<40, true)
		if err != nil || !ok {
			b.Fatal(ok, err)
		}
		r.Region.Release()
	}
}

func BenchmarkFindTimestamp(b *testing.B) {
	const n = 10_000
	s := benchSegment(b, n)
	var buf batch.Buffers
	b.ReportAllocs()
	for i := int64(0); b.Loop(); i++ {
		if _, ok, err := s.FindTimestamp(i*7919%n, 0, &buf); err != nil || !ok {
			b.Fatal(ok, err)
		}
	}
}

func BenchmarkRecover(b *testing.B) {
	s := benchSegment(b, 50_000)
	b.SetBytes(s.Size())
	for b.Loop() {
		if r, err := s.Recover(nop); err != nil || r.Cut != 0 {
			b.Fatal(r, err)
		}
	}
}
