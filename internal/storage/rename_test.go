package storage

import (
	"reflect"
	"runtime"
	"testing"

	"weir/internal/config"
	"weir/internal/vfs"
)

// betweenFS calls between when a renaming has been done and nobody was told yet.
type betweenFS struct {
	vfs.FS
	between func()
}

func (b *betweenFS) Rename(from, to string) error {
	err := b.FS.Rename(from, to)
	if b.between != nil {
		b.between()
	}
	return err
}

// A directory is renamed when its partition moves or is deleted, while clients read from it. A file that is opened, or
// looked at, just then is not missing: otherwise the log directory would be taken offline, an index be taken for empty,
// or aborted records be given to consumers of committed ones.
func TestReadersMeetARename(t *testing.T) {
	type result struct {
		value any
		err   error
	}
	for name, read := range map[string]func(l *Log) (any, error){
		"read": func(l *Log) (any, error) {
			r, err := l.Read(7, 1<<20, l.LogEnd(), true)
			defer r.Release()
			return [2]int64{r.FirstBatchOffset, r.Size}, err
		},
		"aborted transactions": func(l *Log) (any, error) { return l.AbortedTransactions(0, l.LogEnd()) },
		"offset by time": func(l *Log) (any, error) {
			o, ok, err := l.OffsetForTimestamp(start.UnixMilli() + 25)
			return []any{o, ok}, err
		},
		"largest timestamp": func(l *Log) (any, error) {
			o, ok, err := l.MaxTimestamp()
			return []any{o, ok}, err
		},
		"offsets by age": func(l *Log) (any, error) { return l.OffsetsBefore(start.UnixMilli()+1, 100) },
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, func(c *config.Topic) { c.SegmentBytes, c.IndexIntervalBytes = 300, 0 })
			for i := range 10 {
				e.append(spec{n: 3, ts: start.UnixMilli() + 3*int64(i)})
			}
			g, err := e.log.StartVerification(4, 0, 0, false)
			if err != nil {
				t.Fatal(err)
			}
			for _, b := range [][]byte{build(spec{id: 5, txn: true, ts: start.UnixMilli() + 50}), marker(5, 0, true, 0)} {
				if _, err := e.log.Append(b, Append{Assign: true, Guard: g}); err != nil {
					t.Fatal(err)
				}
			}
			e.append(spec{ts: start.UnixMilli() + 60})
			e.log.SetHighWatermark(e.log.LogEnd())
			want, err := read(e.log)
			if err != nil {
				t.Fatal(err)
			}
			between := &betweenFS{FS: e.fs}
			e.fs = between
			e.reopen(true) // no file is open now, and nothing of the indexes is known
			e.log.SetHighWatermark(e.log.LogEnd())

			got := make(chan result, 1)
			between.between = func() {
				between.between = nil
				go func() {
					v, err := read(e.log)
					got <- result{v, err}
				}()
				for range 10000 { // every chance to run into the renaming
					runtime.Gosched()
				}
			}
			if err := e.log.Rename(Deleted, zeros{}); err != nil {
				t.Fatal(err)
			}
			if r := <-got; r.err != nil || !reflect.DeepEqual(r.value, want) {
				t.Errorf("beside the renaming %v, %v, want %v", r.value, r.err, want)
			}
			if v, err := read(e.log); err != nil || !reflect.DeepEqual(v, want) {
				t.Errorf("after the renaming %v, %v, want %v", v, err, want)
			}
		})
	}
}

// zeros is a poor source of unique names.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// A reader that finds its files gone finds the newer view, or that the log is closed, and never a failed disk.
func TestReadersMeetADeletion(t *testing.T) {
	e := newEnv(t, func(c *config.Topic) { c.SegmentBytes, c.IndexIntervalBytes = 300, 0 })
	for i := range 10 {
		e.append(spec{n: 3, ts: start.UnixMilli() + 3*int64(i)})
	}
	old := e.log.view.Load()
	e.log.SetHighWatermark(e.log.LogEnd())
	if _, err := e.log.SetLogStart(20); err != nil {
		t.Fatal(err)
	}
	if _, err := e.log.Retain(start); err != nil {
		t.Fatal(err)
	}
	if err := e.log.RunDeletes(start.Add(1 << 40)); err != nil {
		t.Fatal(err)
	}
	calls := 0
	if _, err := onView(e.log, func(v *view) (ReadResult, error) {
		if calls++; calls == 1 {
			return e.log.readView(old, 0, 100, 30, true) // as if the view had been loaded before the deletion
		}
		return ReadResult{}, nil
	}); calls != 1 || err == nil {
		t.Fatalf("an old view of deleted files reads without an error (%v), calls %d", err, calls)
	}
	e.log.Abandon()
	for i, s := range old.segments {
		if _, _, err := s.Position(0); err == nil {
			t.Errorf("segment %d opens its files after the log is closed", i)
		}
	}
	if n := e.log.OpenFiles(); n != 0 {
		t.Errorf("%d files are open after the log is closed", n)
	}
	if _, err := e.log.Read(20, 100, 30, true); err != ErrClosed {
		t.Errorf("read of a closed log: %v", err)
	}
}
