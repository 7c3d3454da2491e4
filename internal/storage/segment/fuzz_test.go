package segment

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"weir/internal/batch"
)

// Whatever the log file holds, recovery leaves a prefix of it that is good in itself.
func FuzzRecover(f *testing.F) {
	good := slices.Concat(records(7, 1, 2, 3), records(10, 5), records(20, 6, 7))
	f.Add(good)
	f.Add([]byte{})
	f.Add(make([]byte, 100))
	f.Add(good[:len(good)-3])
	f.Add(append(slices.Clone(good), legacy(1, 30, 5, "old")...))
	f.Add(append(legacy(0, 8, 5, "old"), records(10, 5)...))
	f.Add(append(slices.Clone(good), 0, 0, 0, 0, 0, 0, 0, 99, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0, 2))
	f.Fuzz(func(t *testing.T, log []byte) {
		fsys := newFS(t)
		write(t, fsys, 7, ExtLog, log)
		s := open(t, options(fsys, 7))
		// Reading without recovery may fail, but not end badly.
		for _, offset := range []int64{0, 7, 8, 1 << 40} {
			r, ok, err := s.Read(offset, 100, 1<<40, true)
			if err == nil && ok {
				r.Region.Release()
			}
		}
		for _, err := range s.Batches(0, s.Size()) {
			if err != nil && !errors.As(err, new(*CorruptError)) {
				t.Fatal(err)
			}
		}
		var buf batch.Buffers
		s.FindTimestamp(5, 0, &buf)
		s.FirstTimestamp()
		s.NextOffset()

		next := int64(7)
		var seen []byte
		r, err := s.Recover(func(e Entry) error {
			if !e.CheckCRC() || e.LastOffset() < next {
				t.Fatalf("a bad batch was taken at %d", e.Pos)
			}
			next = e.LastOffset() + 1
			seen = append(seen, e.Entry...)
			return nil
		})
		must(t, err)
		if !bytes.HasPrefix(log, seen) || !bytes.Equal(file(t, fsys, 7, ExtLog), seen) || r.Cut != int64(len(log)-len(seen)) {
			t.Fatalf("%d bytes of %d are left: %+v", len(seen), len(log), r)
		}
		must(t, s.SanityCheck(true))
		if got, err := s.NextOffset(); err != nil || got != next {
			t.Fatalf("NextOffset = %d, %v, want %d", got, err, next)
		}
	})
}

// Whatever the indexes hold, nothing panics, what is found is right, and recovery mends them.
func FuzzIndexes(f *testing.F) {
	fsys := newFS(f)
	s := create(f, options(fsys, 0))
	fill(f, s, 20)
	must(f, s.AppendAborted(AbortedTxn{1, 2, 3, 1}))
	must(f, s.Close())
	log := file(f, fsys, 0, ExtLog)
	index, times, txns := file(f, fsys, 0, ExtIndex), file(f, fsys, 0, ExtTimeIndex), file(f, fsys, 0, ExtTxnIndex)
	f.Add(index, times, txns)
	f.Add(append(slices.Clone(index), make([]byte, 80)...), append(slices.Clone(times), make([]byte, 120)...), []byte{})
	f.Add([]byte{}, []byte{}, []byte{})
	f.Add(index[:13], times[:13], txns[:13])
	f.Fuzz(func(t *testing.T, index, times, txns []byte) {
		fsys := newFS(t)
		for ext, b := range map[string][]byte{ExtLog: log, ExtIndex: index, ExtTimeIndex: times, ExtTxnIndex: txns} {
			write(t, fsys, 0, ext, b)
		}
		known := func(err error) {
			t.Helper()
			if err != nil && !errors.As(err, new(*CorruptIndexError)) && !errors.As(err, new(*CorruptError)) && !errors.As(err, new(*UsageError)) {
				t.Fatal(err)
			}
		}
		s := open(t, options(fsys, 0))
		known(s.SanityCheck(true))
		for offset := int64(-1); offset < 65; offset += 3 {
			p, ok, err := s.Position(offset)
			known(err)
			if ok && p.LastOffset < offset {
				t.Fatalf("Position(%d) = %+v", offset, p)
			}
		}
		var buf batch.Buffers
		_, _, err := s.FindTimestamp(100, 0, &buf)
		known(err)
		_, err = s.LargestTimestamp()
		known(err)
		_, err = s.NextOffset()
		known(err)
		_, _, err = s.Aborted(0, 100)
		known(err)
		_, err = s.Append(records(60, 1), 60)
		known(err)
		known(s.AppendAborted(AbortedTxn{1, 2, 59, 1}))
		_, err = s.TruncateTo(30)
		known(err)

		_, err = s.Recover(nop)
		must(t, err)
		must(t, s.SanityCheck(true))
		for offset := range s.mu.last {
			if p, ok, err := s.Position(offset); err != nil || !ok || p.BaseOffset > offset || p.LastOffset < offset {
				t.Fatalf("Position(%d) = %+v %v %v", offset, p, ok, err)
			}
		}
		must(t, s.Close())
	})
}
