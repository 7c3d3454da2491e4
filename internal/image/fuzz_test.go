package image

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"weir/internal/records"
)

// FuzzReplay replays whatever parses: it must never panic, the index must stay right, and a snapshot must rebuild the state.
func FuzzReplay(f *testing.F) {
	for seed := range uint64(5) {
		s := &story{r: rand.New(rand.NewPCG(seed, 9))}
		d := NewDelta(New())
		replayAll(f, d, feature(FeatureMetadata, 30), feature(FeatureELR, 1))
		input := frame(frame(nil, feature(FeatureMetadata, 30)), feature(FeatureELR, 1))
		for range 30 {
			v := s.next(d.Image())
			replayAll(f, d, v)
			input = frame(input, v)
		}
		f.Add(input)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		d := NewDelta(New())
		for len(b) >= 2 {
			n := int(binary.BigEndian.Uint16(b))
			if b = b[2:]; n > len(b) {
				return
			}
			v, err := records.ParseMetadata(b[:n])
			b = b[n:]
			if err == nil && d.Replay(v) != nil {
				break // a real reader stops here
			}
		}
		img := d.Apply(Provenance{})
		if why := img.checkIndex(); why != "" {
			t.Fatal(why)
		}
		again := NewDelta(New())
		for v := range img.Records {
			if err := again.Replay(v); err != nil {
				t.Fatalf("a snapshot cannot be read: %v", err)
			}
		}
		if len(again.Image().featuresOf()) == len(img.Visible().featuresOf()) && again.Image().NumPartitions() != img.Visible().NumPartitions() {
			t.Fatal("a snapshot lost partitions")
		}
	})
}

func (i *Image) featuresOf() map[string]int16 { return i.features.levels }

func frame(dst []byte, v records.Versioned) []byte {
	b := records.AppendMetadata(nil, v)
	return append(binary.BigEndian.AppendUint16(dst, uint16(len(b))), b...)
}
