package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"weir/internal/batch"
	"weir/internal/rng"
	"weir/internal/vfs"
	"weir/internal/vfs/memfs"
)

func golden(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "kafka-4.3.1", name))
	must(t, err)
	return b
}

func nop(Entry) error { return nil }

func write(t testing.TB, fsys vfs.FS, base int64, ext string, b []byte) {
	t.Helper()
	must(t, vfs.WriteFileAtomic(fsys, Path(dir, base, ext, ""), b))
}

func goldenOptions(fsys vfs.FS) Options {
	o := options(fsys, 0)
	o.IndexIntervalBytes, o.MaxIndexBytes = 1000, 10<<20
	return o
}

// What we write for the same batches is what Kafka wrote, by appending as well as by recovering.
func TestSameIndexesAsKafka(t *testing.T) {
	log := golden(t, "00000000000000000000.log")
	check := func(f vfs.FS) {
		t.Helper()
		if got, want := file(t, f, 0, ExtIndex), golden(t, "00000000000000000000.index"); !bytes.Equal(got, want) {
			t.Errorf("index\n% x, Kafka's\n% x", got, want)
		}
		if got, want := file(t, f, 0, ExtTimeIndex), golden(t, "recovered.timeindex"); !bytes.Equal(got, want) {
			t.Errorf("time index\n% x, Kafka's\n% x", got, want)
		}
	}
	t.Run("append", func(t *testing.T) {
		f := newFS(t)
		s := create(t, goldenOptions(f))
		for rest := log; len(rest) > 0; {
			e, tail, err := batch.NextEntry(rest)
			must(t, err)
			put(t, s, e)
			rest = tail
		}
		must(t, s.Close())
		check(f)
	})
	t.Run("append at once", func(t *testing.T) {
		f := newFS(t)
		s := create(t, goldenOptions(f))
		put(t, s, log)
		must(t, s.Close())
		check(f)
	})
	t.Run("recover", func(t *testing.T) {
		f := newFS(t)
		write(t, f, 0, ExtLog, log)
		s := open(t, goldenOptions(f))
		var seen []byte
		r, err := s.Recover(func(e Entry) error { seen = append(seen, e.Entry...); return nil })
		if err != nil || r.Cut != 0 || r.Reason != nil || r.NextOffset != 503 || !bytes.Equal(seen, log) {
			t.Errorf("Recover = %+v, %v", r, err)
		}
		must(t, s.Close())
		check(f)
	})
}

// The indexes of an active segment that Kafka left behind are 10 MiB of mostly zeros.
func TestPreallocatedIndexes(t *testing.T) {
	log, index, times := golden(t, "00000000000000000000.log"), golden(t, "00000000000000000000.index"), golden(t, "00000000000000000000.timeindex")
	f := newFS(t)
	write(t, f, 0, ExtLog, log)
	write(t, f, 0, ExtIndex, append(slices.Clone(index), make([]byte, 10<<20-len(index))...))
	write(t, f, 0, ExtTimeIndex, append(slices.Clone(times), make([]byte, 10<<20/12*12-len(times))...))
	s := open(t, goldenOptions(f))
	must(t, s.SanityCheck(true))
	if full, err := s.IndexFull(); full || err != nil {
		t.Errorf("IndexFull = %v, %v", full, err)
	}
	at := int64(0)
	for e, err := range s.Batches(0, s.Size()) {
		must(t, err)
		p, ok, err := s.Position(e.LastOffset())
		if err != nil || !ok || p.Pos != at || p.LastOffset != e.LastOffset() {
			t.Fatalf("Position(%d) = %+v %v %v, want position %d", e.LastOffset(), p, ok, err, at)
		}
		at += int64(e.Len())
	}
	if l, err := s.LargestTimestamp(); err != nil || l.Offset != 480 {
		t.Errorf("LargestTimestamp = %+v, %v", l, err)
	}
	put(t, s, records(503, 1<<42))
	must(t, s.Close())
	if got := file(t, f, 0, ExtIndex); !bytes.Equal(got, index) {
		t.Errorf("the index has %d bytes after Close, want %d", len(got), len(index))
	}
	want := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(slices.Clone(times), 1<<42), 503)
	if got := file(t, f, 0, ExtTimeIndex); !bytes.Equal(got, want) {
		t.Errorf("the time index ends with % x after Close, want % x", got[max(0, len(got)-24):], want[len(want)-24:])
	}
}

func TestRealEntries(t *testing.T) {
	for _, c := range []struct {
		entries string // one letter an entry: 0 is zeros
		kind    kind
		want    int
	}{
		{"", offsetEntry, 0}, {"a", offsetEntry, 1}, {"0", offsetEntry, 0}, {"00000", offsetEntry, 0},
		{"a0", offsetEntry, 1}, {"abc", offsetEntry, 3}, {"abc0000", offsetEntry, 3}, {"abcdefg0", offsetEntry, 7},
		{"0", timeEntry, 1}, {"00", timeEntry, 0}, {"0a", timeEntry, 2}, {"0a000", timeEntry, 2}, {"ab00000000000", timeEntry, 2},
	} {
		got, err := realEntries(len(c.entries), c.kind, func(i int) (bool, error) { return c.entries[i] == '0', nil })
		if err != nil || got != c.want {
			t.Errorf("realEntries(%q) = %d, %v, want %d", c.entries, got, err, c.want)
		}
		if n := len(c.entries); n > 0 {
			if _, err := realEntries(n, c.kind, func(int) (bool, error) { return false, os.ErrPermission }); err != os.ErrPermission {
				t.Errorf("realEntries(%q) hides an error: %v", c.entries, err)
			}
		}
	}
}

func TestRecoverCuts(t *testing.T) {
	good := slices.Concat(records(100, 1, 2), records(102, 3))
	change := func(b []byte, at int, to ...byte) []byte {
		b = slices.Clone(b)
		copy(b[at:], to)
		return b
	}
	next := records(103, 7, 8, 9)
	for _, c := range []struct {
		name, reason string
		tail         []byte
		taken        int // bytes of the tail that stay
	}{
		{name: "nothing"},
		{name: "a whole batch", tail: next, taken: len(next)},
		{name: "a hole before it", tail: records(200, 1), taken: len(records(200, 1))},
		{"a few bytes", "ends within", next[:5], 0},
		{"a prefix", "ends within", next[:17], 0},
		{"a header", "ends within", next[:61], 0},
		{"all but one byte", "ends within", next[:len(next)-1], 0},
		{"zeros", "record size 0", make([]byte, 500), 0},
		{"a flipped bit", "CRC", change(next, len(next)-1, next[len(next)-1]^1), 0},
		{"a wrong magic", "magic", change(next, 16, 3), 0},
		{"a length of 2^31-1", "ends within", change(next, 8, 0x7f, 0xff, 0xff, 0xff), 0},
		{"a negative length", "record size", change(next, 8, 0xff), 0},
		{"a length below the header's", "record size", change(next, 8, 0, 0, 0, 20), 0},
		{"an old offset", "cannot follow", records(102, 1), 0},
		{"an offset below the segment", "cannot follow", records(3, 1), 0},
		{"an offset out of range", "cannot follow", records(101+math.MaxInt32, 1), 0},
		{"a good batch, then rubbish, then a good one", "magic", slices.Concat(next, []byte("rubbish rubbish rubbish"), records(106, 1)), len(next)},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFS(t)
			write(t, f, 100, ExtLog, append(slices.Clone(good), c.tail...))
			// Whatever the indexes hold does not matter.
			write(t, f, 100, ExtIndex, []byte("nonsense"))
			write(t, f, 100, ExtTxnIndex, []byte("nonsense"))
			s := open(t, options(f, 100))
			var seen []byte
			r, err := s.Recover(func(e Entry) error {
				if e.Pos != int64(len(seen)) {
					t.Errorf("batch at %d after %d bytes", e.Pos, len(seen))
				}
				seen = append(seen, e.Entry...)
				return nil
			})
			must(t, err)
			want := append(slices.Clone(good), c.tail[:c.taken]...)
			if !bytes.Equal(seen, want) || !bytes.Equal(file(t, f, 100, ExtLog), want) || s.Size() != int64(len(want)) {
				t.Errorf("%d bytes were visited and %d are left, want %d", len(seen), s.Size(), len(want))
			}
			var broken *CorruptError
			if r.Cut != int64(len(c.tail)-c.taken) || (r.Reason != nil) != (r.Cut > 0) ||
				r.Cut > 0 && (!errors.As(r.Reason, &broken) || broken.Pos != s.Size() || !strings.Contains(broken.Reason, c.reason)) {
				t.Errorf("Recover = %+v", r)
			}
			if got := lastOffset(want) + 1; r.NextOffset != got {
				t.Errorf("NextOffset = %d, want %d", r.NextOffset, got)
			}
			if !s.Dirty() {
				t.Error("Flush would not sync what was found")
			}
			must(t, s.SanityCheck(true))
			put(t, s, records(1000, 1<<40))
			must(t, s.Close())
			s = open(t, options(f, 100))
			must(t, s.SanityCheck(true))
			if l, err := s.LargestTimestamp(); err != nil || l != (TimestampOffset{1 << 40, 1000}) {
				t.Errorf("LargestTimestamp = %v, %v", l, err)
			}
		})
	}
}

// legacy is a plain message of magic 0 or 1.
func legacy(magic byte, offset, ts int64, value string) []byte {
	body := []byte{magic, 0}
	if magic == 1 {
		body = binary.BigEndian.AppendUint64(body, uint64(ts))
	}
	body = binary.BigEndian.AppendUint32(body, math.MaxUint32) // no key
	body = binary.BigEndian.AppendUint32(body, uint32(len(value)))
	body = append(body, value...)
	b := binary.BigEndian.AppendUint64(nil, uint64(offset))
	b = binary.BigEndian.AppendUint32(b, uint32(4+len(body)))
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(body))
	return append(b, body...)
}

// A directory that is taken over may hold message sets, and batches after them.
func TestOldFormats(t *testing.T) {
	var log []byte
	n := int64(0)
	add := func(b []byte) { log = append(log, b...); n++ }
	for range 30 {
		add(legacy(0, n, -1, fmt.Sprint("zero ", n)))
	}
	for range 30 {
		add(legacy(1, n, 1000+n, fmt.Sprint("one ", n)))
	}
	for range 30 {
		add(records(n, 1000+n))
	}
	f := newFS(t)
	write(t, f, 0, ExtLog, log)
	s := open(t, options(f, 0))
	if err := s.SanityCheck(false); !errors.As(err, new(*CorruptIndexError)) {
		t.Errorf("without indexes: %v", err)
	}
	// Without indexes everything is found too.
	for round := range 2 {
		for offset := range n {
			p, ok, err := s.Position(offset)
			if err != nil || !ok || p.LastOffset != offset || p.BaseOffset != offset {
				t.Fatalf("Position(%d) = %+v %v %v", offset, p, ok, err)
			}
		}
		for ts := int64(1030); ts < 1090; ts++ {
			if got, ok, err := s.FindTimestamp(ts, 0, nil); err != nil || !ok || got.Offset != ts-1000 {
				t.Fatalf("FindTimestamp(%d) = %+v %v %v", ts, got, ok, err)
			}
		}
		if round == 0 {
			r, err := s.Recover(nop)
			if err != nil || r.Cut != 0 || r.Batches != int(n) {
				t.Fatalf("Recover = %+v, %v", r, err)
			}
			must(t, s.SanityCheck(true))
		}
	}
	if first, ok, err := s.FirstTimestamp(); first != -1 || !ok || err != nil {
		t.Errorf("FirstTimestamp = %d %v %v", first, ok, err)
	}
	if cut, err := s.TruncateTo(45); err != nil || cut == 0 {
		t.Errorf("TruncateTo = %d, %v", cut, err)
	}
	if l, err := s.LargestTimestamp(); err != nil || l != (TimestampOffset{1044, 44}) {
		t.Errorf("LargestTimestamp = %v, %v", l, err)
	}
}

func TestSanityCheck(t *testing.T) {
	base := newFS(t)
	s := create(t, options(base, 100))
	fill(t, s, 30)
	must(t, s.AppendAborted(AbortedTxn{1, 101, 110, 101}))
	must(t, s.Flush())
	must(t, s.Close())
	must(t, base.SyncDir(dir))
	index, times, txns := file(t, base, 100, ExtIndex), file(t, base, 100, ExtTimeIndex), file(t, base, 100, ExtTxnIndex)
	patch := func(b []byte, at int, to ...byte) []byte {
		b = slices.Clone(b)
		copy(b[(at+len(b))%len(b):], to)
		return b
	}
	for _, c := range []struct {
		name, ext string
		content   []byte // nil: missing
		shallow   bool   // seen without opening the file
	}{
		{"missing index", ExtIndex, nil, true},
		{"missing time index", ExtTimeIndex, nil, true},
		{"odd index", ExtIndex, index[:9], true},
		{"odd time index", ExtTimeIndex, times[:13], true},
		{"odd transaction index", ExtTxnIndex, txns[:33], true},
		{"offset below the base", ExtIndex, patch(index, -8, 0xff), false},
		{"position behind the end", ExtIndex, patch(index, -4, 0x7f), false},
		{"negative position", ExtIndex, patch(index, -4, 0xff), false},
		{"position between batches", ExtIndex, patch(index, -1, index[len(index)-1]^5), false},
		{"offsets that fall", ExtIndex, patch(index, 0, 0x7f), false},
		{"timestamps that fall", ExtTimeIndex, patch(times, 0, 0x7f), false},
		{"time offset below the base", ExtTimeIndex, patch(times, -4, 0xff), false},
		{"transaction below the base", ExtTxnIndex, patch(txns, 18, 0, 0, 0, 0, 0, 0, 0, 99), false},
		{"transaction of an unknown version", ExtTxnIndex, patch(txns, 0, 0, 1), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := base.Crash(nil)
			if c.content == nil {
				must(t, f.Remove(Path(dir, 100, c.ext, "")))
			} else {
				write(t, f, 100, c.ext, c.content)
			}
			s := open(t, options(f, 100))
			for _, deep := range []bool{false, true} {
				err := s.SanityCheck(deep)
				if want := deep || c.shallow; errors.As(err, new(*CorruptIndexError)) != want {
					t.Errorf("SanityCheck(%v) = %v", deep, err)
				}
			}
			_, err := s.Recover(func(e Entry) error {
				if e.LastOffset() == 111 {
					return s.AppendAborted(AbortedTxn{1, 101, 110, 101})
				}
				return nil
			})
			must(t, err)
			must(t, s.SanityCheck(true))
			must(t, s.Close())
			if !bytes.Equal(file(t, f, 100, ExtIndex), index) || !bytes.Equal(file(t, f, 100, ExtTimeIndex), times) || !bytes.Equal(file(t, f, 100, ExtTxnIndex), txns) {
				t.Error("Recover made other indexes than Append")
			}
		})
	}
	must(t, open(t, options(base, 100)).SanityCheck(true))
}

// An index that leads astray is noticed by lookups too.
func TestMisleadingIndex(t *testing.T) {
	f := newFS(t)
	s := create(t, options(f, 0))
	fill(t, s, 40)
	must(t, s.Close())
	index := file(t, f, 0, ExtIndex)
	index[len(index)/8/2*8+7] += 3
	write(t, f, 0, ExtIndex, index)
	s = open(t, options(f, 0))
	bad := 0
	for offset := range int64(120) {
		p, ok, err := s.Position(offset)
		if errors.As(err, new(*CorruptIndexError)) {
			bad++
		} else if err != nil || !ok || p.BaseOffset > offset || p.LastOffset < offset {
			t.Errorf("Position(%d) = %+v %v %v", offset, p, ok, err)
		}
	}
	if bad == 0 {
		t.Error("the bad entry was never noticed")
	}
}

func TestRecoverStops(t *testing.T) {
	f := newFS(t)
	s := create(t, options(f, 0))
	fill(t, s, 10)
	stop := errors.New("stop")
	n := 0
	if _, err := s.Recover(func(Entry) error { n++; return stop }); err != stop || n != 1 {
		t.Errorf("Recover = %v after %d visits", err, n)
	}
	if r, err := s.Recover(nop); err != nil || r.Batches != 10 {
		t.Errorf("Recover = %+v, %v", r, err)
	}
}

// crashing cuts the power before the n-th write, sync, truncation or naming: the file system of that moment is kept.
type crashing struct {
	*memfs.FS
	left int
	dice memfs.Dice
	dead *memfs.FS
}

func (c *crashing) step() {
	if c.left == 0 && c.dead == nil {
		c.dead = c.FS.Crash(c.dice)
	}
	c.left--
}

func (c *crashing) Open(name string, flag int, perm os.FileMode) (vfs.File, error) {
	c.step()
	f, err := c.FS.Open(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &crashingFile{f, c}, nil
}
func (c *crashing) SyncDir(name string) error { c.step(); return c.FS.SyncDir(name) }
func (c *crashing) Rename(a, b string) error  { c.step(); return c.FS.Rename(a, b) }

type crashingFile struct {
	vfs.File
	fs *crashing
}

func (f *crashingFile) WriteAt(p []byte, off int64) (int, error) {
	f.fs.step()
	return f.File.WriteAt(p, off)
}
func (f *crashingFile) Sync() error               { f.fs.step(); return f.File.Sync() }
func (f *crashingFile) Truncate(size int64) error { f.fs.step(); return f.File.Truncate(size) }

// powerCut runs a little life of a segment, cuts the power before step n, and recovers. It returns false when the life
// ended before.
func powerCut(t *testing.T, seed uint64, n int, torn bool) bool {
	t.Helper()
	r := rng.New(seed)
	mem := memfs.New()
	must(t, mem.MkdirAll(dir, 0o755))
	must(t, mem.SyncDir("/"))
	fsys := &crashing{FS: mem, left: n}
	if torn {
		fsys.dice = rng.New(seed ^ uint64(n)<<20)
	}
	// A base offset whose bytes are all different from zero: a lost part of one is noticed.
	const base = 0x0102030405060708
	o := options(fsys, base)
	s := create(t, o)
	var states [][]byte // every content since the last Flush; the first one is sure
	content, sure := []byte{}, false
	next := int64(base)
	states = append(states, content)
	must(t, s.Flush())
	if fsys.dead == nil {
		must(t, fsys.SyncDir(dir))
		sure = fsys.dead == nil
	}
	for range 12 {
		if fsys.dead != nil {
			break
		}
		switch r.IntN(8) {
		case 0, 1:
			before := len(states)
			must(t, s.Flush())
			if fsys.dead == nil {
				states = states[before-1:]
			}
		case 2:
			to := base + r.Int64N(next-base+1)
			cut, err := s.TruncateTo(to)
			must(t, err)
			content = content[: len(content)-int(cut) : len(content)-int(cut)]
			next, err = s.NextOffset()
			must(t, err)
			states = append(states, content)
		case 3:
			must(t, s.CloseHandles())
		default:
			var b []byte
			for range 1 + r.IntN(3) {
				ts := make([]int64, 1+r.IntN(30))
				for i := range ts {
					ts[i] = r.Int64N(1 << 40)
				}
				b = append(b, records(next, ts...)...)
				next = lastOffset(b) + 1
			}
			content = append(content[:len(content):len(content)], b...)
			states = append(states, content)
			put(t, s, b)
		}
	}
	if fsys.dead == nil {
		return false
	}
	checkCut(t, fmt.Sprintf("seed %d step %d torn %v", seed, n, torn), fsys.dead, base, states, sure)
	return true
}

// checkCut recovers and compares: what is left begins a content that once was, and the flushed part is all there.
func checkCut(t *testing.T, where string, dead *memfs.FS, base int64, states [][]byte, sure bool) {
	t.Helper()
	s, err := Open(options(dead, base))
	if err != nil {
		if sure || !errors.Is(err, os.ErrNotExist) {
			t.Fatalf("%s: %v", where, err)
		}
		return
	}
	var got []byte
	r, err := s.Recover(func(e Entry) error { got = append(got, e.Entry...); return nil })
	if err != nil {
		t.Fatalf("%s: %v", where, err)
	}
	// Truncations after the flush may take from what was sure: the least that must be there is common to all states.
	least := states[0]
	prefix := false
	for _, c := range states {
		if len(c) < len(least) {
			least = c
		}
		prefix = prefix || bytes.HasPrefix(c, got)
	}
	if !prefix {
		t.Fatalf("%s: %d bytes are left that never were (%+v)", where, len(got), r)
	}
	if len(got) < len(least) {
		t.Fatalf("%s: %d bytes are left of %d sure ones (%+v)", where, len(got), len(least), r)
	}
	must(t, s.SanityCheck(true))
	put(t, s, records(r.NextOffset, 1))
	must(t, s.Close())
	must(t, open(t, options(dead, base)).SanityCheck(true))
}

func TestPowerCut(t *testing.T) {
	for seed := range uint64(60) {
		for n := 0; powerCut(t, seed, n, false) && powerCut(t, seed, n, true); n++ {
		}
	}
}
