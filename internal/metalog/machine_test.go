package metalog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/clock"
	"weir/internal/image"
	"weir/internal/kraft"
	"weir/internal/records"
	"weir/internal/statemachine"
	"weir/internal/vfs"
)

type imageMachine = statemachine.Machine[*image.Image, records.Versioned]

// machineLog and machineListener join the two packages, as broker does.
type machineLog struct{ *Log }

func (l machineLog) Append(epoch int32, recs []records.Versioned, atomic bool) (int64, error) {
	last, err := l.Log.Append(epoch, recs, atomic)
	var large *TooLargeError
	if errors.As(err, &large) {
		err = fmt.Errorf("%w: %w", statemachine.ErrRefused, err)
	}
	return last, err
}

type machineListener struct {
	m    *imageMachine
	self int32
}

func (li machineListener) Committed(b Batch) error {
	li.m.Commit(statemachine.Batch[records.Versioned]{Base: b.Base, Last: b.Last, Epoch: b.Epoch, TimestampMs: b.TimestampMs, Records: b.Records})
	return nil
}

func (li machineListener) LoadSnapshot(s Snapshot) error {
	p := image.Provenance{Offset: s.ID.Offset - 1, Epoch: s.ID.Epoch, TimestampMs: s.TimestampMs}
	var failed error
	l := image.NewLoader(image.New())
	if err := l.LoadSnapshot(func(yield func(records.Versioned) bool) {
		for r, err := range s.Records {
			if failed = err; err != nil || !yield(r) {
				return
			}
		}
	}, p); err != nil || failed != nil {
		return errors.Join(err, failed)
	}
	img, _, _ := l.Publish()
	li.m.Load(img, p.Offset, p.Epoch)
	return nil
}

func (li machineListener) LeaderChanged(l kraft.LeaderAndEpoch) error {
	if l.ID == li.self {
		li.m.Lead(l.Epoch)
	} else {
		li.m.Follow()
	}
	return nil
}

func newMachine(l *Log, c clock.Clock) *imageMachine {
	m := statemachine.New(statemachine.Options[*image.Image, records.Versioned]{
		Name: "metadata", Log: machineLog{l}, Initial: image.New(), Visible: (*image.Image).Visible,
		Apply: func(i *image.Image, b statemachine.Batch[records.Versioned]) (*image.Image, error) {
			d := image.NewDelta(i)
			for _, r := range b.Records {
				if err := d.Replay(r); err != nil {
					return nil, err
				}
			}
			return d.Apply(image.Provenance{Offset: b.Last, Epoch: b.Epoch, TimestampMs: b.TimestampMs}), nil
		},
		Activate: func(v statemachine.View[*image.Image]) (statemachine.Result[records.Versioned], error) {
			if v.NextOffset > 1 {
				return statemachine.Result[records.Versioned]{}, nil
			}
			f := records.NewFeatureLevelRecord()
			f.Name, f.FeatureLevel = "metadata.version", 30
			return statemachine.Result[records.Versioned]{Records: []records.Versioned{{Record: &f}}}, nil
		},
		Clock: c, Logger: slog.New(slog.DiscardHandler),
	})
	l.Register(machineListener{m: m, self: 1})
	return m
}

// TestMachineOverLog runs both loops as a node does, stops, and starts again.
func TestMachineOverLog(t *testing.T) {
	disk := newDisk(t)
	run := func(t *testing.T, use func(ctx context.Context, l *Log, m *imageMachine)) {
		synctest.Test(t, func(t *testing.T) {
			l, err := Open(options(disk, clock.System{}))
			if err != nil {
				t.Fatal(err)
			}
			m := newMachine(l, clock.System{})
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 2)
			go func() { done <- l.Run(ctx) }()
			go func() { done <- m.Run(ctx) }()
			synctest.Wait()
			use(ctx, l, m)
			cancel()
			if err := errors.Join(<-done, <-done, l.Close()); err != nil {
				t.Fatal(err)
			}
		})
	}
	create := func(names ...string) statemachine.Write[*image.Image, records.Versioned] {
		return func(v statemachine.View[*image.Image]) (statemachine.Result[records.Versioned], error) {
			return statemachine.Result[records.Versioned]{Records: topics(names...), Response: v.NextOffset, Atomic: true}, nil
		}
	}
	run(t, func(ctx context.Context, l *Log, m *imageMachine) {
		if m.Epoch() != 1 || m.Committed().State.Features().Metadata != 30 {
			t.Fatalf("epoch %d, %+v", m.Epoch(), m.Committed())
		}
		if got, err := m.Do(ctx, "create", create("a")); err != nil || got != int64(2) {
			t.Fatal(got, err)
		}
		if _, ok := m.Committed().State.Topic("a"); !ok || l.HighWatermark() != 3 {
			t.Fatal("answered before the commit")
		}
		c := m.Committed()
		if err := l.WriteSnapshot(c.Offset, c.Epoch, c.State.TimestampMs, c.State.Records); err != nil {
			t.Fatal(err)
		}
	})
	run(t, func(ctx context.Context, l *Log, m *imageMachine) {
		if m.Epoch() != 2 || m.Committed().State.NumTopics() != 1 || m.Committed().State.Features().Metadata != 30 {
			t.Fatalf("epoch %d, %d topics", m.Epoch(), m.Committed().State.NumTopics())
		}
		l.Resign(2) // and back after an election timeout
		synctest.Wait()
		if _, err := m.Do(ctx, "create", create("b")); !errors.Is(err, statemachine.ErrNotLeader) {
			t.Fatal(err)
		}
		<-time.After(3 * time.Second)
		synctest.Wait()
		if _, err := m.Do(ctx, "create", create("b")); err != nil || m.Epoch() != 3 {
			t.Fatal(err, m.Epoch())
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
