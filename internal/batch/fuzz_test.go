package batch

import (
	"bytes"
	"testing"
)

// seed adds golden entries of every magic and codec, and the hand-made bad batches.
func seed(f *testing.F, add func(b []byte)) {
	for _, b := range goldenFiles(f) {
		add(b)
	}
	for _, c := range produceCases() {
		if b := c.records(nowMs); len(b) < 4096 {
			add(b)
		}
	}
}

// fixCRC lets the fuzzer get past the CRC, which it cannot guess.
func fixCRC(b []byte) []byte {
	b = bytes.Clone(b)
	if batch, _, err := Next(b); err == nil {
		batch.setCRC()
	}
	return b
}

func FuzzNext(f *testing.F) {
	seed(f, func(b []byte) { f.Add(b) })
	f.Fuzz(func(t *testing.T, b []byte) {
		for len(b) > 0 {
			e, rest, err := NextEntry(b)
			if err != nil {
				return
			}
			if len(e)+len(rest) != len(b) || len(e) == 0 {
				t.Fatalf("%d bytes became %d and %d", len(b), len(e), len(rest))
			}
			if v2, ok := e.Batch(); ok {
				one, _, err := Next(b)
				if err != nil || !bytes.Equal(one, v2) {
					t.Fatalf("Next and NextEntry differ: %v", err)
				}
			}
			e.CheckCRC()
			e.LastOffset()
			b = rest
		}
	})
}

func FuzzRecords(f *testing.F) {
	seed(f, func(b []byte) { f.Add(b) })
	var buf Buffers // reused as a server does, so that one input cannot spoil the next
	f.Fuzz(func(t *testing.T, b []byte) {
		batch, _, err := Next(b)
		if err != nil {
			return
		}
		n := int64(0)
		for _, err := range batch.Records(&buf) {
			if err != nil {
				return
			}
			n++
		}
		if n != int64(batch.Count()) {
			t.Fatalf("%d records without an error, header says %d", n, batch.Count())
		}
	})
}

func FuzzValidate(f *testing.F) {
	seed(f, func(b []byte) {
		for i := range len(topicKinds) {
			f.Add(b, uint8(i))
		}
	})
	kinds := []string{"plain", "compacted", "appended", "small", "bounded", "gzipped", "bare", "baresmall"}
	var buf Buffers // reused as a server does, so that one input cannot spoil the next
	f.Fuzz(func(t *testing.T, b []byte, kind uint8) {
		got, err := produce(fixCRC(b), policyOf(kinds[int(kind)%len(kinds)], nowMs), &buf)
		if err != nil {
			return
		}
		if !got.Batch.CheckCRC() || got.Batch.Count() != int32(got.Count) || got.Batch.LastOffsetDelta() != int32(got.Count-1) {
			t.Fatalf("accepted %+v", got)
		}
		// What was accepted can be read by consumers.
		n := 0
		for _, err := range got.Batch.Records(&buf) {
			if err != nil {
				t.Fatalf("accepted, but: %v", err)
			}
			n++
		}
		if n != got.Count {
			t.Fatalf("accepted %d records, %d can be read", got.Count, n)
		}
	})
}

func FuzzUpConvert(f *testing.F) {
	seed(f, func(b []byte) { f.Add(b) })
	var buf Buffers // reused as a server does, so that one input cannot spoil the next
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := UpConvert(b, policyOf("plain", nowMs), &buf)
		if err != nil || got.Count == 0 {
			return
		}
		if _, err := Validate(got.Batch, policyOf("plain", nowMs), &buf); err != nil {
			t.Fatalf("the converted batch is refused: %v", err)
		}
	})
}

func FuzzDownConvert(f *testing.F) {
	seed(f, func(b []byte) { f.Add(b, true) })
	var buf Buffers // reused as a server does, so that one input cannot spoil the next
	f.Fuzz(func(t *testing.T, b []byte, one bool) {
		e, _, err := NextEntry(b)
		if err != nil {
			return
		}
		magic := int8(0)
		if one {
			magic = 1
		}
		out, err := DownConvertEntry(nil, e, magic, &buf)
		if err != nil || e.Magic() <= magic {
			return
		}
		for len(out) > 0 {
			m, rest, err := LegacyNext(out)
			if err != nil || !m.CheckCRC() {
				t.Fatalf("made %x: %v", []byte(m), err)
			}
			out = rest
		}
	})
}

func FuzzMessages(f *testing.F) {
	seed(f, func(b []byte) { f.Add(b) })
	var buf Buffers // reused as a server does, so that one input cannot spoil the next
	f.Fuzz(func(t *testing.T, b []byte) {
		for len(b) > 0 {
			m, rest, err := LegacyNext(b)
			if err != nil {
				return
			}
			for range m.Records(&buf) {
			}
			b = rest
		}
	})
}
