package metalog

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/clock"
	"weir/internal/kraft"
	"weir/internal/vfs"
)

// TestRun: the loop flushes and tells without being asked, takes the epoch back
// after Resign, and ends with its context.
func TestRun(t *testing.T) {
	disk := newDisk(t)
	synctest.Test(t, func(t *testing.T) {
		l, err := Open(options(disk, clock.System{}))
		if err != nil {
			t.Fatal(err)
		}
		li := &listener{log: l}
		l.Register(li)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- l.Run(ctx) }()
		synctest.Wait()
		if _, err := l.Append(1, topics("a"), true); err != nil {
			t.Fatal(err)
		}
		if synctest.Wait(); !slices.Equal(li.names, []string{"a"}) {
			t.Fatal(li.names)
		}
		l.Resign(1)
		if _, err := l.Append(1, topics("b"), true); err == nil {
			t.Fatal("appended after resigning")
		}
		<-time.After(3 * time.Second) // virtual
		synctest.Wait()
		if got := l.Leader(); got != (kraft.LeaderAndEpoch{ID: 1, Epoch: 2}) || len(li.leaders) != 3 {
			t.Fatal(got, li.leaders)
		}
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestRawFetch(t *testing.T) {
	n := open(t, newDisk(t), nil)
	n.poll()
	n.append(1, "a")
	n.poll()
	var got []byte
	n.Request(-1, kraft.FetchRequest{Replica: kraft.Replica{ID: -1}, Epoch: -1, LastEpoch: -1, Offset: 1, HighWatermark: -1, MaxBytes: 1 << 20}, func(body kraft.ResponseBody, regions []vfs.Region) {
		if f := body.(kraft.FetchResponse); f.Code != kraft.OK || f.HighWatermark != 3 && f.HighWatermark != 2 {
			t.Errorf("%+v", f)
		}
		for _, r := range regions {
			var err error
			if got, err = r.AppendTo(got); err != nil {
				t.Error(err)
			}
			r.Release()
		}
	})
	raw, err := n.read(1, 2)
	if err != nil || !slices.Equal(raw, got) || len(got) == 0 {
		t.Fatalf("%x %x %v", got, raw, err)
	}
	// At the end a fetch waits, and hears of the next record.
	answered := 0
	n.Request(-1, kraft.FetchRequest{Replica: kraft.Replica{ID: -1}, Epoch: -1, LastEpoch: -1, Offset: 2, HighWatermark: -1, MaxWaitMs: 500, MaxBytes: 100}, func(_ kraft.ResponseBody, regions []vfs.Region) {
		answered++
		for _, r := range regions {
			r.Release()
		}
	})
	if answered != 0 {
		t.Fatal("did not wait")
	}
	n.append(1, "b")
	if answered != 1 {
		t.Fatal("not woken")
	}
}

func BenchmarkAppendCommit(b *testing.B) {
	t := &testing.T{}
	n := open(t, newDisk(t), nil)
	n.poll()
	recs := topics("topic")
	b.ReportAllocs()
	for range b.N {
		if _, err := n.Append(1, recs, true); err != nil {
			b.Fatal(err)
		}
		if _, err := n.Poll(); err != nil {
			b.Fatal(err)
		}
		n.listener.batches, n.listener.names, n.listener.offsets = nil, nil, nil
	}
}
