package records

import (
	"bytes"
	"testing"

	"weir/internal/records/schema"
)

// FuzzMessages reads arbitrary bytes as every message: no panic, no allocation beyond a multiple of the input, and
// what was accepted survives writing and reading.
func FuzzMessages(f *testing.F) {
	names := Names()
	index := map[string]uint8{}
	for i, n := range names {
		index[n] = uint8(i)
	}
	eachRandom(f, 1, true, func(m Message, s *schema.Message, v int16) {
		f.Add(index[s.Name], uint8(v), m.AppendTo(nil, v))
	})
	f.Fuzz(func(t *testing.T, which, version uint8, data []byte) {
		name, v := names[int(which)%len(names)], int16(version)
		m := New(name)
		if err := m.ReadFrom(data, v); err != nil {
			return
		}
		once := m.AppendTo(nil, v)
		again := New(name)
		if err := again.ReadFrom(once, v); err != nil {
			t.Fatalf("%s v%d: own bytes refused: %v", name, v, err)
		}
		if twice := again.AppendTo(nil, v); !bytes.Equal(once, twice) {
			t.Fatalf("%s v%d:\n%x\n%x", name, v, once, twice)
		}
	})
}

// FuzzFrames does the same for the frames around metadata and control records.
func FuzzFrames(f *testing.F) {
	f.Add([]byte{1, 2, 0, 4, 'f', 'o', 'o', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0}, []byte{0, 0, 0, 1})
	f.Add([]byte{1, 0xe8, 7, 3, 1, 2}, []byte{0, 0, 0, 2})
	f.Add([]byte{0, 0, 0, 0, 0, 7}, []byte{0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, value, key []byte) {
		if v, err := ParseMetadata(value); err == nil {
			once := AppendMetadata(nil, v)
			back, err := ParseMetadata(once)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(AppendMetadata(nil, back), once) {
				t.Fatalf("%x", once)
			}
		}
		_, _ = ParseControl(key, value)
	})
}

func BenchmarkAppendMetadata(b *testing.B) {
	r := NewPartitionChangeRecord()
	r.ISR, r.Leader = []int32{1, 2, 3}, 1
	v := Versioned{&r, 2}
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = AppendMetadata(buf[:0], v)
	}
}

func BenchmarkParseMetadata(b *testing.B) {
	r := NewPartitionChangeRecord()
	r.ISR, r.Leader = []int32{1, 2, 3}, 1
	buf := AppendMetadata(nil, Versioned{&r, 2})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseMetadata(buf); err != nil {
			b.Fatal(err)
		}
	}
}
