package cleaner

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"weir/internal/batch"
	"weir/internal/config"
	"weir/internal/rng"
	"weir/internal/storage"
	"weir/internal/storage/producer"
	"weir/internal/vfs"
	"weir/internal/vfs/memfs"
)

// written is a record as it was produced.
type written struct {
	key, value string // "" value: tombstone
	ts         int64
	txn        int // 0: none, else the number of its transaction
}

// model is all that was ever produced.
type model struct {
	e       *env
	dice    *rng.Source
	records []written // by offset; markers have key "" and txn 0
	fate    []byte    // of each transaction: 'o' open, 'c' committed, 'a' aborted
	open    map[int64]int
	seqs    map[int64]int32
	from    int64 // log start
}

func newModel(e *env, seed uint64) *model {
	return &model{e: e, dice: rng.New(seed), fate: []byte{'-'}, open: map[int64]int{}, seqs: map[int64]int32{}}
}

// produce appends one random batch: of nobody, of an idempotent producer, or within a transaction.
func (m *model) produce() {
	s := spec{codec: batch.Codec(m.dice.IntN(5)), append: m.dice.IntN(4) == 0}
	txn := 0
	if who := int64(m.dice.IntN(6)); who > 0 {
		s.id, s.seq = who, m.seqs[who]
		if s.txn = who > 3; s.txn {
			if m.open[who] == 0 {
				m.fate = append(m.fate, 'o')
				m.open[who] = len(m.fate) - 1
			}
			txn = m.open[who]
		}
	}
	for range 1 + m.dice.IntN(4) {
		r := written{key: fmt.Sprintf("key %d", m.dice.IntN(12)), value: fmt.Sprintf("value %d", len(m.records)), ts: m.e.clock.Now().UnixMilli(), txn: txn}
		if m.dice.IntN(5) == 0 {
			r.value = ""
		}
		s.recs = append(s.recs, kv{r.key, r.value})
		m.records = append(m.records, r)
	}
	m.seqs[s.id] += int32(len(s.recs))
	if a := m.e.produce(s); a.LastOffset+1 != int64(len(m.records)) {
		m.e.t.Fatalf("append ended at %d, want %d", a.LastOffset, len(m.records)-1)
	}
}

// end completes an open transaction.
func (m *model) end() {
	for who := int64(4); who < 6; who++ {
		n := m.open[who]
		if n == 0 || m.dice.IntN(2) == 0 {
			continue
		}
		abort := m.dice.IntN(2) == 0
		m.fate[n] = 'c'
		if abort {
			m.fate[n] = 'a'
		}
		delete(m.open, who)
		m.e.marker(who, 0, abort)
		m.records = append(m.records, written{})
	}
}

// latest is what a read-committed consumer knows in the end: by key the offset of the last record.
func (m *model) latest() map[string]int64 {
	out := map[string]int64{}
	for i, r := range m.records {
		if r.key != "" && m.fate[r.txn] != 'a' && m.fate[r.txn] != 'o' {
			out[r.key] = int64(i)
		}
	}
	return out
}

// consume reads the log as a read-committed consumer does, and checks each record against what was produced.
func (m *model) consume(l *storage.Log) (map[string]int64, error) {
	list, err := l.AbortedTransactions(l.LogStart(), l.LogEnd())
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list, func(a, b storage.AbortedTxn) int { return int(a.FirstOffset - b.FirstOffset) })
	seen := map[string]int64{}
	aborted := map[int64]bool{}
	next := int64(0)
	err = entries(l, func(e batch.Entry) error {
		b, _ := e.Batch()
		if b.BaseOffset() < next {
			return fmt.Errorf("batch %d to %d behind offset %d", b.BaseOffset(), b.LastOffset(), next-1)
		}
		next = b.LastOffset() + 1
		for len(list) > 0 && list[0].FirstOffset <= b.LastOffset() {
			aborted[list[0].ProducerID] = true
			list = list[1:]
		}
		for r, err := range b.Records(nil) {
			if err != nil {
				return err
			}
			if b.IsControl() {
				delete(aborted, b.ProducerID())
				return nil
			}
			want := m.records[r.Offset]
			if string(r.Key) != want.key || string(r.Value) != want.value || r.Value == nil != (want.value == "") || r.Timestamp != want.ts {
				return fmt.Errorf("record %d is %q=%q at %d, was %q=%q at %d", r.Offset, r.Key, r.Value, r.Timestamp, want.key, want.value, want.ts)
			}
			if b.IsTransactional() && (aborted[b.ProducerID()] || m.fate[want.txn] == 'o') {
				continue
			}
			if m.fate[want.txn] == 'a' {
				return fmt.Errorf("record %d of an aborted transaction is shown", r.Offset)
			}
			seen[want.key] = r.Offset
		}
		return nil
	})
	if end := l.LogEnd(); err == nil && (next > end || end != int64(len(m.records))) {
		err = fmt.Errorf("batches end at %d, the log at %d, want %d", next, end, len(m.records))
	}
	return seen, err
}

// check compares the log with what was produced.
func (m *model) check(l *storage.Log) error {
	seen, err := m.consume(l)
	if err != nil {
		return err
	}
	now := m.e.clock.Now().UnixMilli()
	for key, at := range m.latest() {
		want := m.records[at]
		got, there := seen[key]
		if !there && want.value == "" && now >= want.ts+m.e.cfg.DeleteRetentionMs {
			continue // a tombstone that may be gone
		}
		if !there || got != at {
			return fmt.Errorf("the last record of %q is %d (there: %v), want %d", key, got, there, at)
		}
	}
	for _, p := range l.ActiveProducers() {
		if want := m.seqs[p.ProducerID+1] - 1; p.LastSequence != want {
			return fmt.Errorf("producer %d goes on behind %d, want %d", p.ProducerID, p.LastSequence, want)
		}
	}
	want := 0
	for who, n := range m.seqs {
		if who > 0 && n > 0 {
			want++
		}
	}
	if n := l.ProducerCount(); n != want {
		return fmt.Errorf("%d producers are known, want %d", n, want)
	}
	return nil
}

// unique checks that no key is twice in the clean part.
func (m *model) unique() error {
	at := map[string]int64{}
	return entries(m.e.log, func(e batch.Entry) error {
		for r, err := range e.Records(nil) {
			if err != nil {
				return err
			}
			k := m.records[r.Offset].key
			if k == "" || r.Offset >= m.e.cleaned {
				continue
			}
			if first, dup := at[k]; dup {
				return fmt.Errorf("%q is at %d and at %d below the checkpoint %d", k, first, r.Offset, m.e.cleaned)
			}
			at[k] = r.Offset
		}
		return nil
	})
}

// step does one random thing.
func (m *model) step(t *testing.T) {
	e := m.e
	switch n := m.dice.IntN(20); {
	case n < 11:
		m.produce()
	case n < 13:
		m.end()
	case n < 15:
		e.clock.Advance(time.Duration(m.dice.IntN(6000)) * time.Millisecond)
	case n < 17:
		e.roll()
	case n < 19:
		if e.cleaner.Step(context.Background()) {
			if err := m.unique(); err != nil {
				t.Fatal(err)
			}
		}
	default:
		if err := e.log.Flush(-1); err != nil {
			t.Fatal(err)
		}
		clean := m.dice.IntN(2) == 0
		if clean {
			if err := e.log.Close(); err != nil {
				t.Fatal(err)
			}
		} else {
			e.log.Abandon()
			if m.dice.IntN(2) == 0 { // nothing but the batches tells of producers then
				for _, f := range e.files() {
					if len(f) > 9 && f[len(f)-9:] == ".snapshot" {
						if err := e.fs.Remove(testDir + "/" + f); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
		}
		e.open(clean)
		e.log.SetHighWatermark(e.log.LogEnd())
	}
}

func TestModel(t *testing.T) {
	for seed := range uint64(12) {
		e := newEnv(t, func(c *config.Topic) {
			c.SegmentBytes = 1500 // groups of one to a few
			c.MaxMessageBytes = 1000
		})
		m := newModel(e, seed)
		if seed%3 == 0 {
			e.conf.IOBufferBytes = 1
		}
		for i := range 150 {
			m.step(t)
			if i%10 == 9 {
				if err := m.check(e.log); err != nil {
					t.Fatalf("seed %d step %d: %v\n%s\n%s", seed, i, err, e.dump(), e.lines.String())
				}
			}
		}
		if len(e.cleaner.Uncleanable()) > 0 || e.failed != nil {
			t.Fatalf("seed %d: %v %v", seed, e.cleaner.Uncleanable(), e.failed)
		}
		if e.cleaned == 0 {
			t.Errorf("seed %d: nothing was cleaned", seed)
		}
		e.log.Abandon()
	}
}

// cutFS takes a picture of the disk, as a power cut leaves it, before a chosen change.
type cutFS struct {
	*memfs.FS
	left int
	cut  func()
}

func (f *cutFS) change() {
	if f.left--; f.left == 0 {
		f.cut()
	}
}

func (f *cutFS) Open(name string, flag int, perm os.FileMode) (vfs.File, error) {
	if flag&os.O_CREATE != 0 {
		f.change()
	}
	h, err := f.FS.Open(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &cutFile{h, f}, nil
}
func (f *cutFS) Remove(name string) error    { f.change(); return f.FS.Remove(name) }
func (f *cutFS) Rename(old, to string) error { f.change(); return f.FS.Rename(old, to) }
func (f *cutFS) SyncDir(name string) error   { f.change(); return f.FS.SyncDir(name) }

type cutFile struct {
	vfs.File
	fs *cutFS
}

func (f *cutFile) WriteAt(p []byte, off int64) (int, error) {
	f.fs.change()
	return f.File.WriteAt(p, off)
}
func (f *cutFile) Truncate(n int64) error { f.fs.change(); return f.File.Truncate(n) }
func (f *cutFile) Sync() error            { f.fs.change(); return f.File.Sync() }

// TestPowerCuts cleans the same log again and again and cuts the power before each of the changes that this makes: while
// segments are written, swapped, and deleted. The log always opens, and nothing but superseded records is missing.
func TestPowerCuts(t *testing.T) {
	for seed := range uint64(1) {
		changes := 0
		for cut := 1; ; cut++ {
			e := newEnv(t, func(c *config.Topic) { c.SegmentBytes, c.MaxMessageBytes, c.FileDeleteDelayMs = 1500, 1000, 1000 })
			m := newModel(e, seed)
			for range 14 {
				m.produce()
				m.end()
				if m.dice.IntN(5) == 0 {
					e.roll()
				}
			}
			for who := range m.open {
				delete(m.open, who)
				m.fate = append(m.fate, '-')
			}
			e.roll()
			if err := e.log.Flush(-1); err != nil {
				t.Fatal(err)
			}
			e.log.Abandon()
			var pictures []*memfs.FS
			var then env
			fs := &cutFS{FS: e.disk, left: cut, cut: func() {
				then = env{cleaned: e.cleaned, known: e.known, point: e.point}
				pictures = append(pictures, e.disk.Crash(nil))
				for d := range uint64(2) {
					pictures = append(pictures, e.disk.Crash(rng.New(d+uint64(cut)*7)))
				}
			}}
			// The counting begins with the cleaning.
			e.open(false)
			e.log.SetHighWatermark(e.log.LogEnd())
			e.log.Abandon()
			e.fs = fs
			fs.left = -1
			e.open(false)
			e.log.SetHighWatermark(e.log.LogEnd())
			if err := e.log.Flush(-1); err != nil {
				t.Fatal(err)
			}
			fs.left = cut
			for e.cleaner.Step(context.Background()) {
			}
			e.clock.Advance(2 * time.Second)
			if err := e.log.Tick(e.clock.Now()); err != nil {
				t.Fatal(err)
			}
			if e.cleaned == 0 || len(e.cleaner.Uncleanable()) > 0 {
				t.Fatalf("seed %d: cleaned to %d, %v", seed, e.cleaned, e.cleaner.Uncleanable())
			}
			e.log.Abandon()
			if pictures == nil {
				changes = cut - 1
				break
			}
			for i, p := range pictures {
				after := &env{t: t, disk: p, fs: p, clock: e.clock, cfg: e.cfg, conf: e.conf, cleaned: then.cleaned, known: then.known, point: then.point}
				m.e = after
				for try := range 2 { // the second start finds what the first has left
					if err := after.tryOpen(false); err != nil {
						t.Fatalf("seed %d, cut before change %d, picture %d, start %d: %v", seed, cut, i, try, err)
					}
					after.log.SetHighWatermark(after.log.LogEnd())
					if err := m.check(after.log); err != nil {
						t.Fatalf("seed %d, cut before change %d, picture %d: %v\n%s", seed, cut, i, err, after.dump())
					}
					for after.cleaner.Step(context.Background()) {
					}
					if err := m.check(after.log); err != nil {
						t.Fatalf("seed %d, cut before change %d, picture %d, cleaned again: %v", seed, cut, i, err)
					}
					if len(after.cleaner.Uncleanable()) > 0 || after.failed != nil {
						t.Fatalf("seed %d, cut before change %d: %v %v", seed, cut, after.cleaner.Uncleanable(), after.failed)
					}
					after.log.Abandon()
				}
			}
		}
		if changes < 30 {
			t.Errorf("seed %d: only %d changes were cut at", seed, changes)
		}
	}
}

// Appends go on while a log is cleaned, and readers see each key's last record at any moment.
func TestReadersMeanwhile(t *testing.T) {
	e := newEnv(t, func(c *config.Topic) { c.SegmentBytes = 1500; c.FileDeleteDelayMs = 0 })
	stop := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			next := e.log.LogStart()
			for end := e.log.LogEnd(); next < end; {
				r, err := e.log.Read(next, 4096, end, true)
				if err != nil {
					done <- err
					return
				}
				if r.Size == 0 {
					break
				}
				data, err := r.Regions[0].AppendTo(nil)
				r.Release()
				if err != nil {
					done <- err
					return
				}
				for len(data) > 0 {
					b, rest, err := batch.NextEntry(data)
					if err != nil {
						break // the last one may be cut
					}
					if b.LastOffset() < next || !b.CheckCRC() {
						done <- fmt.Errorf("batch up to %d where %d was asked for", b.LastOffset(), next)
						return
					}
					next, data = b.LastOffset()+1, rest
				}
			}
		}
	}()
	for i := range 300 {
		for j := range 10 {
			b := build(spec{recs: []kv{{fmt.Sprintf("k%d", j), fmt.Sprint(i)}}}, start.UnixMilli())
			if _, err := e.log.Append(b, storage.Append{Assign: true, Origin: producer.OriginReplication, TxnVersion: -1}); err != nil {
				t.Fatal(err)
			}
		}
		e.log.SetHighWatermark(e.log.LogEnd())
		if err := e.log.Tick(e.clock.Now()); err != nil {
			t.Fatal(err)
		}
		e.cleaner.Step(context.Background())
	}
	close(stop)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if e.cleaner.Stats.Runs.Load() == 0 {
		t.Error("nothing was cleaned")
	}
}
