package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"syscall"
	"testing"

	"weir/internal/batch"
	"weir/internal/vfs"
	"weir/internal/vfs/errfs"
	"weir/internal/vfs/memfs"
)

const dir = "/t-0"

// Fresh ones for every segment and batch would take most of the time. The tests are not parallel.
var (
	testBuffers = NewBuffers()
	testBuilder = batch.NewBuilder(batch.NewOptions())
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func options(fsys vfs.FS, base int64) Options {
	return Options{FS: fsys, Dir: NewDir(dir), BaseOffset: base, IndexIntervalBytes: 100, MaxIndexBytes: 1 << 20, CreatedMs: 1000, Buffers: testBuffers}
}

func newFS(t testing.TB) *memfs.FS {
	t.Helper()
	f := memfs.New()
	must(t, f.MkdirAll(dir, 0o755))
	must(t, f.SyncDir("/"))
	return f
}

func create(t testing.TB, o Options) *Segment {
	t.Helper()
	s, err := Create(o)
	must(t, err)
	return s
}

func open(t testing.TB, o Options) *Segment {
	t.Helper()
	s, err := Open(o)
	must(t, err)
	return s
}

// records builds a batch at an offset with one record a timestamp.
func records(offset int64, timestamps ...int64) []byte {
	o := batch.NewOptions()
	o.BaseOffset = offset
	o.LeaderEpoch = 5
	testBuilder.Reset(o)
	for i, ts := range timestamps {
		testBuilder.Append(ts, []byte(fmt.Sprint(offset+int64(i))), []byte("value"), nil)
	}
	return testBuilder.Build()
}

func lastOffset(b []byte) int64 {
	last := int64(-1)
	for len(b) > 0 {
		e, rest, err := batch.NextEntry(b)
		if err != nil {
			panic(err)
		}
		last, b = e.LastOffset(), rest
	}
	return last
}

func put(t testing.TB, s *Segment, b []byte) int64 {
	t.Helper()
	pos, err := s.Append(b, lastOffset(b))
	must(t, err)
	return pos
}

// fill appends n batches of three records at base, base+3, …, with timestamps 10 apart, and returns their bytes.
func fill(t testing.TB, s *Segment, n int) [][]byte {
	t.Helper()
	var all [][]byte
	next, err := s.NextOffset()
	must(t, err)
	for range n {
		b := records(next, next*10, next*10+10, next*10+20)
		put(t, s, b)
		all = append(all, b)
		next += 3
	}
	return all
}

func content(t testing.TB, s *Segment, pos, to int64) []byte {
	t.Helper()
	var b []byte
	for e, err := range s.Batches(pos, to) {
		must(t, err)
		if int64(len(b)) != e.Pos-pos {
			t.Fatalf("batch at %d after %d bytes from %d", e.Pos, len(b), pos)
		}
		b = append(b, e.Entry...)
	}
	return b
}

func file(t testing.TB, fsys vfs.FS, base int64, ext string) []byte {
	t.Helper()
	b, err := vfs.ReadFile(fsys, Path(dir, base, ext, ""))
	must(t, err)
	return b
}

func TestNames(t *testing.T) {
	for _, c := range []struct {
		name, ext, suffix string
		offset            int64
	}{
		{"00000000000000000042.log", ExtLog, "", 42},
		{"00000000000000000000.timeindex.deleted", ExtTimeIndex, SuffixDeleted, 0},
		{"09223372036854775807.txnindex.cleaned", ExtTxnIndex, SuffixCleaned, math.MaxInt64},
		{"00000000000000000007.snapshot", ExtSnapshot, "", 7},
		{"00000000000000000007.index.swap", ExtIndex, SuffixSwap, 7},
	} {
		if got := Name(c.offset, c.ext, c.suffix); got != c.name {
			t.Errorf("Name = %q, want %q", got, c.name)
		}
		offset, ext, suffix, ok := ParseName(c.name)
		if !ok || offset != c.offset || ext != c.ext || suffix != c.suffix {
			t.Errorf("ParseName(%q) = %d %q %q %v", c.name, offset, ext, suffix, ok)
		}
	}
	for _, name := range []string{"", "42.log", "0000000000000000004x.log", "-0000000000000000042.log", "09223372036854775808.log",
		"00000000000000000042", "00000000000000000042.logx", "00000000000000000042.log.old", "000000000000000000042.log", "partition.metadata"} {
		if offset, ext, suffix, ok := ParseName(name); ok {
			t.Errorf("ParseName(%q) = %d %q %q", name, offset, ext, suffix)
		}
	}
}

// The files byte by byte, as LogSegment.append of 4.3.1 writes them.
func TestLayout(t *testing.T) {
	f := newFS(t)
	s := create(t, options(f, 1000))
	a := records(1000, 50, 70, 60)
	b := slices.Concat(records(1003, 10, 20), records(1005, 65, 70, 71))
	c := records(1010, 3)
	put(t, s, a)
	put(t, s, b)
	put(t, s, c)
	first, second := int64(len(a)), int64(len(records(1003, 10, 20)))
	if first > 100 && first+second > 200 || first+second <= 100 {
		t.Logf("sizes %d %d", first, second)
	}
	if n := len(file(t, f, 1000, ExtIndex)); n != 0 {
		t.Errorf("%d bytes of index were written at once", n)
	}
	must(t, s.Close())
	if got := file(t, f, 1000, ExtLog); !bytes.Equal(got, slices.Concat(a, b, c)) {
		t.Error("the log file is not what was appended")
	}
	var index, times []byte
	be := binary.BigEndian
	entry := func(last, pos, ts, tsOffset int64) {
		index = be.AppendUint32(be.AppendUint32(index, uint32(last-1000)), uint32(pos))
		times = be.AppendUint32(be.AppendUint64(times, uint64(ts)), uint32(tsOffset-1000))
	}
	// Every batch but the first finds more than 100 bytes behind it; the largest timestamp is in the first until 1007.
	since, pos := int64(0), int64(0)
	largest := TimestampOffset{-1, 0}
	timed := int64(-1)
	for rest := slices.Concat(a, b, c); len(rest) > 0; {
		e, tail, _ := batch.NextEntry(rest)
		if e.MaxTimestamp() > largest.Timestamp {
			largest = TimestampOffset{e.MaxTimestamp(), e.LastOffset()}
		}
		if since > 100 {
			old := len(times)
			entry(e.LastOffset(), pos, largest.Timestamp, largest.Offset)
			if largest.Timestamp == timed {
				times = times[:old]
			}
			timed, since = largest.Timestamp, 0
		}
		since += int64(e.Len())
		pos, rest = pos+int64(e.Len()), tail
	}
	if largest.Timestamp != timed {
		entry(0, 0, largest.Timestamp, largest.Offset)
		index = index[:len(index)-8]
	}
	if got := file(t, f, 1000, ExtIndex); !bytes.Equal(got, index) || len(got) == 0 {
		t.Errorf("index % x, want % x", got, index)
	}
	if got := file(t, f, 1000, ExtTimeIndex); !bytes.Equal(got, times) || len(got) != 24 {
		t.Errorf("time index % x, want % x", got, times)
	}
	if ok, _ := vfs.Exists(f, Path(dir, 1000, ExtTxnIndex, "")); ok {
		t.Error("there is a transaction index without an aborted transaction")
	}
}

func TestPositionAndRead(t *testing.T) {
	for _, reopened := range []bool{false, true} {
		f := newFS(t)
		s := create(t, options(f, 100))
		var all []byte
		type at struct{ base, last, pos, size int64 }
		var want []at
		// Holes of 2 between batches.
		for i := range int64(700) {
			b := records(100+i*5, i, i, i)
			want = append(want, at{100 + i*5, 102 + i*5, int64(len(all)), int64(len(b))})
			put(t, s, b)
			all = append(all, b...)
		}
		if reopened {
			must(t, s.Close())
			s = open(t, options(f, 100))
		}
		for i, w := range want {
			for offset := w.base - 2; offset <= w.last; offset++ {
				p, ok, err := s.Position(offset)
				if err != nil || !ok || p != (Position{w.pos, w.size, w.base, w.last}) {
					t.Fatalf("Position(%d) = %+v %v %v, want %+v", offset, p, ok, err, w)
				}
			}
			if i%50 == 0 {
				size := int64(len(all))
				for _, c := range []struct {
					max, maxPos int64
					one         bool
					n           int64
				}{
					{1 << 20, size, true, size - w.pos},
					{1, size, true, w.size},
					{1, size, false, 1},
					{0, size, false, 0},
					{-5, size, false, 0},
					{1000, w.pos + 300, true, min(300, size-w.pos)},
					{1000, w.pos - 1, true, 0},
					{1000, 1 << 40, false, min(1000, size-w.pos)},
				} {
					r, ok, err := s.Read(w.base+1, c.max, c.maxPos, c.one)
					if err != nil || !ok || r.First.Pos != w.pos {
						t.Fatalf("Read = %+v %v %v", r, ok, err)
					}
					got, err := r.Region.AppendTo(nil)
					if err != nil || r.Region.N != c.n || !bytes.Equal(got, all[w.pos:w.pos+c.n]) {
						t.Fatalf("Read(%+v) at %d gave %d bytes, %v", c, w.pos, len(got), err)
					}
					r.Region.Release()
				}
			}
		}
		end := want[len(want)-1].last + 1
		if _, ok, err := s.Position(end); ok || err != nil {
			t.Errorf("Position behind the end = %v, %v", ok, err)
		}
		if r, ok, err := s.Read(end, 100, 1<<40, true); ok || err != nil || r.Region.File != nil {
			t.Errorf("Read behind the end = %+v %v, %v", r, ok, err)
		}
		if n, err := s.NextOffset(); n != end || err != nil {
			t.Errorf("NextOffset = %d, %v, want %d", n, err, end)
		}
		if got := content(t, s, want[3].pos, want[9].pos); !bytes.Equal(got, all[want[3].pos:want[9].pos]) {
			t.Error("Batches gave other bytes")
		}
		// A batch that is cut by the bound is left out.
		if got := content(t, s, 0, want[1].pos+5); int64(len(got)) != want[1].pos {
			t.Errorf("Batches gave %d bytes", len(got))
		}
		must(t, s.Close())
	}
}

func TestTimestamps(t *testing.T) {
	f := newFS(t)
	s := create(t, options(f, 0))
	if l, err := s.LargestTimestamp(); err != nil || l != (TimestampOffset{-1, 0}) {
		t.Errorf("LargestTimestamp of an empty segment = %v, %v", l, err)
	}
	if _, ok, err := s.FirstTimestamp(); ok || err != nil {
		t.Errorf("FirstTimestamp of an empty segment = %v, %v", ok, err)
	}
	type rec struct{ ts, offset int64 }
	var recs []rec
	// Times go up and down.
	for i := range int64(200) {
		ts := []int64{i * 100, i*100 - 950, i*100 + 30}
		put(t, s, records(i*3, ts...))
		for j, v := range ts {
			recs = append(recs, rec{v, i*3 + int64(j)})
		}
	}
	var buf batch.Buffers
	check := func(s *Segment) {
		for ts := int64(-1000); ts < 20100; ts += 17 {
			for _, from := range []int64{0, 7, 300, 599, 700} {
				i := slices.IndexFunc(recs, func(r rec) bool { return r.ts >= ts && r.offset >= from })
				got, ok, err := s.FindTimestamp(ts, from, &buf)
				must(t, err)
				if ok != (i >= 0) || ok && (got.Timestamp != recs[i].ts || got.Offset != recs[i].offset || got.LeaderEpoch != 5) {
					t.Fatalf("FindTimestamp(%d, %d) = %+v %v", ts, from, got, ok)
				}
			}
		}
		if l, err := s.LargestTimestamp(); err != nil || l != (TimestampOffset{199*100 + 30, 599}) {
			t.Errorf("LargestTimestamp = %v, %v", l, err)
		}
		if first, ok, err := s.FirstTimestamp(); first != 30 || !ok || err != nil {
			t.Errorf("FirstTimestamp = %d %v, %v", first, ok, err)
		}
	}
	check(s)
	must(t, s.Deactivate())
	check(s)
	must(t, s.Close())
	check(open(t, options(f, 0)))
}

func TestAppendRefuses(t *testing.T) {
	f := newFS(t)
	s := create(t, options(f, 10))
	put(t, s, records(10, 1, 2))
	size := s.Size()
	big := records(10+math.MaxInt32, 1, 2) // the second does not fit
	for _, c := range []struct {
		name string
		b    []byte
		last int64
		want any
	}{
		{"an offset that is there", records(11, 1), 11, new(*UsageError)},
		{"an offset below the segment", records(3, 1), 3, new(*OverflowError)},
		{"an offset too far above", big, lastOffset(big), new(*OverflowError)},
		{"another last offset", records(12, 1), 13, new(*UsageError)},
		{"batches out of order", slices.Concat(records(20, 1), records(15, 1)), 15, new(*UsageError)},
		{"rubbish", []byte("rubbish that is no batch at all"), 20, new(*CorruptError)},
		{"half a batch", records(12, 1)[:50], 12, new(*CorruptError)},
	} {
		if _, err := s.Append(c.b, c.last); !errors.As(err, c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
		if s.Size() != size {
			t.Fatalf("%s: the segment grew", c.name)
		}
	}
	if _, err := s.Append(nil, 0); err != nil {
		t.Errorf("nothing: %v", err)
	}
	put(t, s, records(12, 1))
	must(t, s.Close())
	must(t, s.Close())
	if _, err := s.Append(records(20, 1), 20); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("append to a closed segment: %v", err)
	}
	if _, _, err := s.Read(10, 10, 10, true); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("read of a closed segment: %v", err)
	}
	if _, err := Create(options(f, 10)); !errors.Is(err, fs.ErrExist) {
		t.Errorf("Create over a segment: %v", err)
	}
	if _, err := Open(options(f, 11)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Open of nothing: %v", err)
	}
}

// A full or broken disk leaves the segment as it was, and it goes on when the disk does.
func TestAppendFails(t *testing.T) {
	for _, rule := range []errfs.Rule{
		{Op: errfs.Write, Path: "*.log", Err: syscall.ENOSPC, Short: 120},
		{Op: errfs.Write, Path: "*.log", Err: syscall.EIO},
	} {
		for _, truncates := range []bool{true, false} {
			mem := newFS(t)
			f := errfs.Wrap(mem)
			s := create(t, options(f, 0))
			all := fill(t, s, 5)
			rules := []errfs.Rule{rule}
			if !truncates {
				rules = append(rules, errfs.Rule{Op: errfs.Truncate, Err: syscall.EIO})
			}
			f.Set(rules...)
			b := records(15, 1, 2, 3, 4, 5, 6, 7)
			if _, err := s.Append(b, 21); !errors.Is(err, rule.Err) {
				t.Fatalf("Append = %v", err)
			}
			f.Set()
			if got := content(t, s, 0, 1<<40); !bytes.Equal(got, slices.Concat(all...)) {
				t.Error("a failed append is seen")
			}
			all = append(all, records(15, 1))
			put(t, s, all[5])
			if got := file(t, mem, 0, ExtLog); !bytes.Equal(got, slices.Concat(all...)) {
				t.Error("a failed append left something behind the next one")
			}
			must(t, s.Close())
			if got := file(t, mem, 0, ExtLog); !bytes.Equal(got, slices.Concat(all...)) {
				t.Error("a failed append left something in the file")
			}
		}
	}
}

// When a group of index entries cannot be written, the append has not happened.
func TestIndexGroupFails(t *testing.T) {
	f := errfs.Wrap(newFS(t))
	o := options(f, 0)
	o.IndexIntervalBytes = 0
	s := create(t, o)
	f.Set(errfs.Rule{Op: errfs.Write, Path: "*index", Err: syscall.EIO})
	n := int64(0)
	for ; n < 2000; n++ {
		if _, err := s.Append(records(n, n), n); err != nil {
			break
		}
	}
	if n == 2000 {
		t.Fatal("no group was written in 2000 appends")
	}
	if next, err := s.NextOffset(); next != n || err != nil {
		t.Errorf("NextOffset = %d, %v, want %d", next, err, n)
	}
	f.Set()
	put(t, s, records(n, n))
	for _, offset := range []int64{0, 1, n / 2, n - 1, n} {
		if p, ok, err := s.Position(offset); err != nil || !ok || p.LastOffset != offset {
			t.Errorf("Position(%d) = %+v %v %v", offset, p, ok, err)
		}
	}
	must(t, s.Close())
	// Entry 0 is for the second batch.
	if got := len(file(t, f, 0, ExtIndex)); int64(got) != 8*n {
		t.Errorf("%d bytes of index, want %d", got, 8*n)
	}
}

func TestShouldRoll(t *testing.T) {
	f := newFS(t)
	o := options(f, 0)
	o.IndexIntervalBytes, o.MaxIndexBytes = 0, 48 // 6 offset entries, 3 of the 4 time entries
	s := create(t, o)
	roll := func(change func(*RollParams)) bool {
		t.Helper()
		p := RollParams{MaxSegmentMs: 1000, MaxSegmentBytes: 10000, MaxTimestamp: 500, MaxOffset: 10, Bytes: 100, NowMs: 1500}
		change(&p)
		got, err := s.ShouldRoll(p)
		must(t, err)
		return got
	}
	same := func(*RollParams) {}
	if roll(same) {
		t.Error("an empty segment is rolled")
	}
	if roll(func(p *RollParams) { p.NowMs = 1 << 40 }) {
		t.Error("an empty segment is rolled by age")
	}
	if !roll(func(p *RollParams) { p.Bytes = 10001 }) || !roll(func(p *RollParams) { p.MaxOffset = math.MaxInt32 + 1 }) {
		t.Error("an empty segment is not rolled by what does not fit into it")
	}
	put(t, s, records(0, 100))
	for name, c := range map[string]struct {
		want   bool
		change func(*RollParams)
	}{
		"same":            {false, same},
		"size":            {true, func(p *RollParams) { p.Bytes = 10000 - s.Size() + 1 }},
		"just the size":   {false, func(p *RollParams) { p.Bytes = 10000 - s.Size() }},
		"time":            {true, func(p *RollParams) { p.MaxTimestamp = 1101 }},
		"just the time":   {false, func(p *RollParams) { p.MaxTimestamp = 1100 }},
		"jitter":          {true, func(p *RollParams) { p.MaxTimestamp = 1100; p.JitterMs = 1 }},
		"only the clock":  {false, func(p *RollParams) { p.NowMs = 1 << 40 }},
		"offset":          {true, func(p *RollParams) { p.MaxOffset = math.MaxInt32 + 1 }},
		"just the offset": {false, func(p *RollParams) { p.MaxOffset = math.MaxInt32 }},
	} {
		if got := roll(c.change); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	put(t, s, records(1, 101))
	put(t, s, records(2, 102))
	if roll(same) {
		t.Error("rolled with 2 time entries of 3")
	}
	put(t, s, records(3, 103))
	if !roll(same) {
		t.Error("not rolled with a full time index")
	}

	// Without timestamps the age is that since creation.
	s = create(t, options(f, 10))
	put(t, s, records(10, -1))
	if roll(func(p *RollParams) { p.NowMs = 2000 }) || !roll(func(p *RollParams) { p.NowMs = 2001 }) {
		t.Error("not rolled by the time since creation")
	}
	s.ResetCreated(1500)
	if roll(func(p *RollParams) { p.NowMs = 2001 }) {
		t.Error("rolled by the old time of creation")
	}
}

func TestTruncate(t *testing.T) {
	for _, flushed := range []bool{false, true} {
		for cutAt := int64(50); cutAt <= 50+60*3+2; cutAt++ {
			f := newFS(t)
			s := create(t, options(f, 50))
			all := fill(t, s, 60)
			if flushed {
				must(t, s.Flush())
			}
			must(t, s.AppendAborted(AbortedTxn{1, 55, 60, 50}))
			must(t, s.AppendAborted(AbortedTxn{2, 65, 150, 50}))
			keep := min(int(cutAt-50)/3, 60)
			left := slices.Concat(all[:keep]...)
			n, err := s.TruncateTo(cutAt)
			if err != nil || n != int64(len(slices.Concat(all[keep:]...))) {
				t.Fatalf("TruncateTo(%d) = %d, %v", cutAt, n, err)
			}
			next := 50 + int64(keep)*3
			check := func(s *Segment) {
				t.Helper()
				if got := content(t, s, 0, 1<<40); !bytes.Equal(got, left) {
					t.Fatalf("TruncateTo(%d) left %d bytes, want %d", cutAt, len(got), len(left))
				}
				if got, err := s.NextOffset(); got != next || err != nil {
					t.Fatalf("NextOffset = %d, %v, want %d", got, err, next)
				}
				l := TimestampOffset{-1, 50}
				if keep > 0 {
					l = TimestampOffset{(next-3)*10 + 20, next - 1}
				}
				if got, err := s.LargestTimestamp(); err != nil || got != l {
					t.Fatalf("LargestTimestamp = %v, %v, want %v", got, err, l)
				}
				txns, _, err := s.Aborted(0, 1000)
				must(t, err)
				want := 0
				for _, last := range []int64{60, 150} {
					if last < cutAt {
						want++
					}
				}
				if len(txns) != want {
					t.Fatalf("TruncateTo(%d) left %d aborted transactions, want %d", cutAt, len(txns), want)
				}
				must(t, s.SanityCheck(true))
			}
			must(t, s.SanityCheck(flushed))
			if flushed {
				check(s)
			}
			left = append(left, records(next, 9)...)
			put(t, s, records(next, 9))
			must(t, s.Close())
			s = open(t, options(f, 50))
			if got := content(t, s, 0, 1<<40); !bytes.Equal(got, left) {
				t.Fatal("appending after a truncation went wrong")
			}
			must(t, s.SanityCheck(true))
			for offset := int64(50); offset <= next; offset++ {
				if p, ok, err := s.Position(offset); err != nil || !ok || offset < p.BaseOffset || offset > p.LastOffset {
					t.Fatalf("Position(%d) = %+v %v %v", offset, p, ok, err)
				}
			}
			if _, ok, err := s.Position(next + 1); ok || err != nil {
				t.Fatal("there is more than there should be")
			}
		}
	}
}

func TestAborted(t *testing.T) {
	f := newFS(t)
	s := create(t, options(f, 100))
	if txns, complete, err := s.Aborted(0, 1000); len(txns) != 0 || complete || err != nil {
		t.Errorf("an empty index gives %v %v %v", txns, complete, err)
	}
	a := AbortedTxn{ProducerID: 7, FirstOffset: 90, LastOffset: 110, LastStableOffset: 90}
	b := AbortedTxn{ProducerID: 8, FirstOffset: 105, LastOffset: 120, LastStableOffset: 115}
	must(t, s.AppendAborted(a))
	must(t, s.CloseHandles())
	must(t, s.AppendAborted(b))
	if err := s.AppendAborted(a); !errors.As(err, new(*UsageError)) {
		t.Errorf("a last offset that falls: %v", err)
	}
	want := "0000" + "0000000000000007" + "000000000000005a" + "000000000000006e" + "000000000000005a" +
		"0000" + "0000000000000008" + "0000000000000069" + "0000000000000078" + "0000000000000073"
	if got := fmt.Sprintf("%x", file(t, f, 100, ExtTxnIndex)); got != want {
		t.Errorf("the file is\n%s, want\n%s", got, want)
	}
	must(t, s.Close())
	s = open(t, options(f, 100))
	for _, c := range []struct {
		from, upTo int64
		want       []AbortedTxn
		complete   bool
	}{
		{0, 1000, []AbortedTxn{a, b}, false},
		{0, 91, []AbortedTxn{a}, true},
		{0, 90, nil, true},
		{111, 116, []AbortedTxn{b}, false},
		{111, 115, []AbortedTxn{b}, true},
		{121, 1000, nil, false},
		{110, 105, []AbortedTxn{a}, true},
	} {
		got, complete, err := s.Aborted(c.from, c.upTo)
		if err != nil || !slices.Equal(got, c.want) || complete != c.complete {
			t.Errorf("Aborted(%d, %d) = %v %v %v, want %v %v", c.from, c.upTo, got, complete, err, c.want, c.complete)
		}
	}
	must(t, s.SanityCheck(true))
	// More than one read of the file, and the last offset known again after reopening.
	for i := range int64(300) {
		must(t, s.AppendAborted(AbortedTxn{i, 130 + i, 130 + i, 1}))
	}
	if got, _, err := s.Aborted(130, 1<<40); err != nil || len(got) != 300 {
		t.Errorf("%d transactions, %v", len(got), err)
	}
	if err := s.AppendAborted(AbortedTxn{1, 1, 429, 1}); !errors.As(err, new(*UsageError)) {
		t.Errorf("a last offset that is there: %v", err)
	}
}
