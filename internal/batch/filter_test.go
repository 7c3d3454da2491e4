package batch

import (
	"bytes"
	"errors"
	"testing"
)

// The rules that compaction relies on, one batch at a time; package storage/cleaner tests the rest on whole logs.
func TestFilter(t *testing.T) {
	o := NewOptions()
	o.BaseOffset, o.LeaderEpoch, o.ProducerID, o.ProducerEpoch, o.BaseSequence = 100, 7, 5, 1, 40
	w := NewBuilder(o)
	w.Append(1000, []byte("a"), []byte("1"), nil)
	w.Append(1001, []byte("b"), nil, nil)
	w.Append(1005, []byte("c"), []byte("3"), nil)
	plain := w.Build()
	all := func(*Record) bool { return true }
	none := func(*Record) bool { return false }
	first := func(r *Record) bool { return r.Offset == 100 }
	apply := func(f Filter, e Entry) Filtered {
		t.Helper()
		out, err := f.Apply(e, nil)
		if err != nil {
			t.Fatal(err)
		}
		if b, ok := out.Bytes, out.Bytes != nil; ok && !b.CheckCRC() {
			t.Error("wrong CRC")
		}
		return out
	}
	if got := apply(Filter{Keep: all}, Entry(plain)); &got.Bytes[0] != &plain[0] || got.Kept != 3 || got.Read != 3 {
		t.Error("an unchanged batch was copied")
	}
	if got := apply(Filter{Keep: none}, Entry(plain)); got.Bytes != nil || got.Read != 3 {
		t.Error("a batch without records was left")
	}
	empty, _ := apply(Filter{Keep: none, Empty: true}, Entry(plain)).Bytes.Batch()
	if len(empty) != HeaderLen || empty.BaseOffset() != 100 || empty.LastOffset() != 102 || empty.LastSequence() != 42 || empty.Count() != 0 ||
		empty.MaxTimestamp() != 1005 || empty.LeaderEpoch() != 7 || empty.BaseTimestamp() != NoTimestamp {
		t.Errorf("empty batch: %x", []byte(empty))
	}
	if again := apply(Filter{Keep: none, Empty: true}, Entry(empty)); !bytes.Equal(again.Bytes, empty) {
		t.Errorf("an empty batch changed: %x", []byte(again.Bytes))
	}
	with, _ := apply(Filter{Keep: all, HorizonMs: 9999}, Entry(plain)).Bytes.Batch()
	if !with.HasDeleteHorizon() || with.BaseTimestamp() != 9999 || with.MaxTimestamp() != 1005 {
		t.Errorf("tombstones got no horizon: %x", []byte(with))
	}
	// It stays as it is from then on, also when records go.
	kept, _ := apply(Filter{Keep: first, HorizonMs: 77777}, Entry(with)).Bytes.Batch()
	if !kept.HasDeleteHorizon() || kept.BaseTimestamp() != 9999 || kept.LastOffset() != 102 || kept.LastSequence() != 42 || kept.MaxTimestamp() != 1000 {
		t.Errorf("the horizon moved: %x", []byte(kept))
	}
	for r := range kept.Records(nil) {
		if r.Offset != 100 || r.Timestamp != 1000 {
			t.Errorf("record %d at %d", r.Offset, r.Timestamp)
		}
	}
	if got, _ := apply(Filter{Keep: first, HorizonMs: 77777}, Entry(plain)).Bytes.Batch(); got.HasDeleteHorizon() || got.BaseTimestamp() != 1000 {
		t.Error("a horizon without a tombstone")
	}
	if got, _ := apply(Filter{Keep: first, Marker: true, HorizonMs: 77777}, Entry(plain)).Bytes.Batch(); got.BaseTimestamp() != 77777 {
		t.Error("a marker got no horizon")
	}
	// Nobody checks the offset deltas of a plain batch on produce: such a batch is refused, not a reason to fall over.
	bad := bytes.Clone(plain)
	at := bytes.Index(bad[HeaderLen:], []byte{2, 'b'}) + HeaderLen - 1 // behind length, attributes and timestamp delta
	bad[at] = 0
	Batch(bad).setCRC()
	var corrupt *CorruptError
	if _, err := (&Filter{Keep: func(r *Record) bool { return string(r.Key) != "c" }}).Apply(Entry(bad), nil); !errors.As(err, &corrupt) {
		t.Errorf("equal offset deltas: %v", err)
	}
}

func FuzzFilter(f *testing.F) {
	w := NewBuilder(NewOptions())
	w.Append(1, []byte("a"), []byte("1"), nil)
	w.Append(2, []byte("b"), nil, nil)
	b := w.Build()
	f.Add([]byte(b))
	for magic := range int8(2) {
		set, err := DownConvert(nil, b, magic, nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(set)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		e, _, err := NextEntry(data)
		if err != nil {
			return
		}
		i := 0
		fl := Filter{Keep: func(*Record) bool { i++; return i%2 == 0 }, Empty: true, HorizonMs: 5}
		out, err := fl.Apply(e, nil)
		if err == nil && out.Bytes != nil && len(out.Bytes) < HeaderLen && out.Bytes.Magic() == 2 {
			t.Errorf("%d bytes", len(out.Bytes))
		}
	})
}
