package txns

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/isr"
	"weir/internal/txn"
)

func TestOneTransaction(t *testing.T) {
	inRig(t, func(r *rig) {
		if _, err := r.init("a", txn.NoIdentity()); err != kerr.NotCoordinator {
			t.Fatalf("before it leads: %v", err)
		}
		r.lead(1)
		is := r.begun("a")
		if is != (txn.Identity{ProducerID: 1000}) {
			t.Fatalf("%+v", is)
		}
		next, err := r.c.End(r.ctx, "a", is, true, 2)
		if err != nil || next != (txn.Identity{ProducerID: 1000, Epoch: 1}) {
			t.Fatalf("%+v %v", next, err)
		}
		synctest.Wait()
		got := r.written()
		slices.Sort(got)
		if want := []string{"t-0@1 1000/1 commit=true coordinator=4 v2", "t-1@2 1000/1 commit=true coordinator=4 v2"}; !slices.Equal(got, want) {
			t.Fatalf("markers %q", got)
		}
		if s := r.status("a"); s != "CompleteCommit" {
			t.Fatal(s)
		}
		if s := r.c.Summary(r.ctx); s.IDs != 1 || s.Open != 0 || s.Commits != 1 || s.Partitions != 1 || s.Oldest != nil {
			t.Fatalf("%+v", s)
		}
	})
}

// A coordinator that dies between any two steps leaves the rest to the next one.
func TestCrashAtEachStep(t *testing.T) {
	inRig(t, func(r *rig) {
		r.lead(1)
		is := r.begun("a")
		r.crash()
		rows, err := r.c.Verify(r.ctx, "a", is.ProducerID, is.Epoch, append(slices.Clone(both), txn.TopicPartition{Topic: "u"}))
		if err != nil || rows[0] != nil || rows[1] != nil || rows[2] != kerr.TransactionAbortable {
			t.Fatalf("after a crash in the middle: %v %v", rows, err)
		}
		// Node 2 cannot be reached: the outcome stands, one marker is missing.
		r.down = true
		if _, err := r.c.End(r.ctx, "a", is, false, 2); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if s := r.status("a"); s != "PrepareAbort" {
			t.Fatal(s)
		}
		if d, err := r.c.Describe(r.ctx, "a"); err != nil || len(d.Partitions) != 1 || d.Partitions[0].Partition != 1 {
			t.Fatalf("%+v %v", d, err)
		}
		r.crash()
		time.Sleep(2 * time.Second)
		got := r.written()
		if len(got) != 2 || got[0] != "t-0@1 1000/1 commit=false coordinator=5 v2" || got[1] != "t-0@1 1000/1 commit=false coordinator=6 v2" {
			t.Fatalf("markers %q: the new coordinator sends its own", got)
		}
		r.mu.Lock()
		r.down = false
		r.mu.Unlock()
		time.Sleep(2 * time.Second)
		if s := r.status("a"); s != "CompleteAbort" {
			t.Fatal(s)
		}
		r.crash()
		synctest.Wait()
		r.written()
		if again, err := r.c.End(r.ctx, "a", is, false, 2); err != nil || again.Epoch != 1 {
			t.Fatalf("the repeat of an end that was answered by nobody: %+v %v", again, err)
		}
		if got := r.written(); len(got) > 0 {
			t.Fatalf("markers %q of what is complete", got)
		}
	})
}

// Leaders move, partitions are deleted, markers are refused.
func TestMarkersFindTheirPartitions(t *testing.T) {
	for name, c := range map[string]struct {
		before, after func(r *rig)
		markers       int
		status        string
	}{
		"refused once":        {func(r *rig) { r.refuse(0, kerr.NotLeaderForPartition); r.refuse(1, kerr.NotEnoughReplicas) }, nil, 2, "CompleteCommit"},
		"an odd error once":   {func(r *rig) { r.refuse(0, kerr.UnknownServerError) }, nil, 2, "CompleteCommit"},
		"no leader, then one": {func(r *rig) { r.setImage(1, -1) }, func(r *rig) { r.setImage(1, 1) }, 2, "CompleteCommit"},
		"leader moves":        {func(r *rig) { r.mu.Lock(); r.down = true; r.mu.Unlock() }, func(r *rig) { r.setImage(1, 1) }, 2, "CompleteCommit"},
		"deleted":             {func(r *rig) { r.setImage() }, nil, 0, "CompleteCommit"},
		"fenced for good":     {func(r *rig) { r.refuse(1, kerr.TransactionCoordinatorFenced) }, nil, 1, "PrepareCommit"},
	} {
		t.Run(name, func(t *testing.T) {
			inRig(t, func(r *rig) {
				r.lead(1)
				is := r.begun("a")
				c.before(r)
				if _, err := r.c.End(r.ctx, "a", is, true, 0); err != nil {
					t.Fatal(err)
				}
				time.Sleep(3 * time.Second)
				if c.after != nil {
					if s := r.status("a"); s != "PrepareCommit" {
						t.Fatal(s)
					}
					c.after(r)
					time.Sleep(3 * time.Second)
				}
				if got := r.written(); len(got) != c.markers {
					t.Errorf("markers %q", got)
				}
				if s := r.status("a"); s != c.status {
					t.Error(s)
				}
				if s := r.c.Summary(r.ctx); (s.GivenUp == 1) != (name == "fenced for good") {
					t.Errorf("%d given up", s.GivenUp)
				}
			})
		})
	}
}

// What waits for a commit that does not come is told to come again, and finds its
// work done when it does.
func TestCommitsWait(t *testing.T) {
	inRig(t, func(r *rig) {
		r.lead(1)
		is := r.begun("a")
		r.lead(1, 2)
		if _, err := r.c.End(r.ctx, "a", is, true, 2); err != kerr.CoordinatorNotAvailable {
			t.Fatalf("nobody else has it: %v", err)
		}
		if got := r.written(); len(got) > 0 {
			t.Fatalf("markers %q before the outcome is committed", got)
		}
		r.replica.Fetched(isr.Fetch{Follower: 2, LeaderEpoch: r.epoch, BrokerEpoch: -1, Offset: r.replica.Log().LogEnd(), Now: time.Now()})
		synctest.Wait()
		if got := r.written(); len(got) != 2 {
			t.Fatalf("markers %q", got)
		}
	})
}

// A transaction that takes too long is aborted, its producer fenced.
func TestTimeout(t *testing.T) {
	inRig(t, func(r *rig) {
		r.lead(1)
		is := r.begun("a")
		time.Sleep(50 * time.Second)
		if s := r.c.Summary(r.ctx); s.Oldest == nil || s.Oldest.ID != "a" {
			t.Fatalf("%+v", s)
		}
		time.Sleep(21 * time.Second)
		if s := r.status("a"); s != "CompleteAbort" {
			t.Fatal(s)
		}
		// It looks like a repeat of the abort, with the opposite outcome.
		if _, err := r.c.End(r.ctx, "a", is, true, 2); err != kerr.InvalidTxnState {
			t.Fatal(err)
		}
		if s := r.c.Summary(r.ctx); s.TimedOut != 1 || s.Aborts != 1 {
			t.Fatalf("%+v", s)
		}
	})
}

// A load of the coordinator's partition in the same epoch sends its own markers: those
// of the load before are not sent again, nor from the queue, where they could meet the
// producer's next transaction.
func TestMarkersOfAnEarlierLoad(t *testing.T) {
	for name, queued := range map[string]bool{"to be sent again": false, "queued behind another": true} {
		t.Run(name, func(t *testing.T) {
			inRig(t, func(r *rig) {
				r.lead(1)
				gate := make(chan struct{})
				if queued {
					r.gate = gate
					first := r.begun("first")
					if _, err := r.c.End(r.ctx, "first", first, true, 0); err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
				} else {
					r.down = true
				}
				is := r.begun("a")
				if _, err := r.c.End(r.ctx, "a", is, true, 0); err != nil {
					t.Fatal(err)
				}
				time.Sleep(700 * time.Millisecond) // the next attempt is after the load
				r.reload()
				r.mu.Lock()
				r.down, r.gate = false, nil
				r.mu.Unlock()
				close(gate)
				time.Sleep(5 * time.Second)
				if s := r.status("a"); s != "CompleteCommit" {
					t.Error(s)
				}
				want := fmt.Sprintf("t-1@2 %d/0 commit=true coordinator=4 v0", is.ProducerID)
				n := 0
				for _, m := range r.written() {
					if m == want {
						n++
					}
				}
				if n != 1 {
					t.Errorf("%d times %s", n, want)
				}
			})
		})
	}
}

// An answer is taken row by row where its rows are those of the request, and else by
// producer, as Apache Kafka's answers come.
func TestCodesOfAnAnswer(t *testing.T) {
	m := func(producer int64, epoch int16, parts ...int32) marker {
		e := txn.Ended{ProducerID: producer, Epoch: epoch}
		for _, p := range parts {
			e.Partitions = append(e.Partitions, txn.TopicPartition{Topic: "t", Partition: p})
		}
		return marker{e: e}
	}
	row := func(producer int64, codes map[int32]int16) kmsg.WriteTxnMarkersResponseMarker {
		x := kmsg.NewWriteTxnMarkersResponseMarker()
		x.ProducerID = producer
		t := kmsg.NewWriteTxnMarkersResponseMarkerTopic()
		t.Topic = "t"
		for p, c := range codes {
			y := kmsg.NewWriteTxnMarkersResponseMarkerTopicPartition()
			y.Partition, y.ErrorCode = p, c
			t.Partitions = append(t.Partitions, y)
		}
		x.Topics = append(x.Topics, t)
		return x
	}
	ms := []marker{m(1, 0, 0, 1), m(2, 0, 0), m(1, 1, 0)}
	at := func(p int32) txn.TopicPartition { return txn.TopicPartition{Topic: "t", Partition: p} }
	for name, c := range map[string]struct {
		rows []kmsg.WriteTxnMarkersResponseMarker
		want []map[txn.TopicPartition]int16
	}{
		"in order": {
			[]kmsg.WriteTxnMarkersResponseMarker{row(1, map[int32]int16{0: 5, 1: 6}), row(2, map[int32]int16{0: 0}), row(1, map[int32]int16{0: 0})},
			[]map[txn.TopicPartition]int16{{at(0): 5, at(1): 6}, {at(0): 0}, {at(0): 0}},
		},
		"by producer": {
			[]kmsg.WriteTxnMarkersResponseMarker{row(2, map[int32]int16{0: 7}), row(1, map[int32]int16{0: 5, 1: 6})},
			[]map[txn.TopicPartition]int16{{at(1): 6}, {at(0): 7}, {at(1): 6}},
		},
	} {
		res := kmsg.NewPtrWriteTxnMarkersResponse()
		res.Markers = c.rows
		if got := codes(res, ms); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v", name, got)
		}
	}
	if got := codes(nil, ms); len(got) != len(ms) || len(got[0]) != 0 {
		t.Errorf("no answer: %v", got)
	}
}
