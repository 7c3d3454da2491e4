package storage

import (
	"testing"

	"weir/internal/batch"
	"weir/internal/storage/producer"
	"weir/internal/vfs"

	"weir/internal/clock"
)

func benchLog(b *testing.B) *Log {
	cfg := topicConfig()
	l, err := Open(Options{FS: vfs.OS(), Dir: b.TempDir() + "/t-0", Topic: "t", Config: cfg, Clock: clock.System{}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Abandon() })
	return l
}

// BenchmarkAppend is one batch of a client: offsets in place, idempotence, one write.
func BenchmarkAppend(b *testing.B) {
	for name, s := range map[string]spec{"plain/1KB": {n: 10, size: 100}, "idempotent/1KB": {n: 10, size: 100, id: 1}, "idempotent/16KB": {n: 160, size: 100, id: 1}} {
		b.Run(name, func(b *testing.B) {
			l := benchLog(b)
			data := build(s)
			seq := int32(0)
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if s.id > 0 {
					// The sequence is patched as a client would send it; the log does not look at the CRC.
					data[53], data[54], data[55], data[56] = byte(seq>>24), byte(seq>>16), byte(seq>>8), byte(seq)
					seq += int32(s.n)
					if seq < 0 {
						b.Fatal("sequences are used up")
					}
				}
				if _, err := l.Append(data, Append{Assign: true, Origin: producer.OriginClient}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkRead is a fetch of one batch in the middle of the log.
func BenchmarkRead(b *testing.B) {
	l := benchLog(b)
	data := build(spec{n: 10, size: 100})
	for range 10000 {
		if _, err := l.Append(data, Append{Assign: true}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	at := int64(0)
	for b.Loop() {
		r, err := l.Read(at, 1<<16, l.LogEnd(), true)
		if err != nil {
			b.Fatal(err)
		}
		r.Release()
		at = (at + 7919) % 99000
	}
}

// BenchmarkTick is what an idle log costs its owner's ticker.
func BenchmarkTick(b *testing.B) {
	l := benchLog(b)
	now := l.clock.Now()
	for b.Loop() {
		if err := l.Tick(now); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRecover reads 16 MB after an unclean stop.
func BenchmarkRecover(b *testing.B) {
	l := benchLog(b)
	data := batch.Batch(build(spec{n: 160, size: 100}))
	for range 1000 {
		if _, err := l.Append(data, Append{Assign: true}); err != nil {
			b.Fatal(err)
		}
	}
	o := Options{FS: l.fs, Dir: l.Dir(), Topic: "t", Config: l.Config(), Clock: l.clock}
	b.SetBytes(l.Size())
	for b.Loop() {
		r, err := Open(o)
		if err != nil {
			b.Fatal(err)
		}
		r.Abandon()
	}
}
