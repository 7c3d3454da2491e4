package coordinator

import (
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/batch"
	"weir/internal/group"
	"weir/internal/group/classic"
	"weir/internal/isr"
	"weir/internal/partition"
)

func joinRequest(id string) *kmsg.JoinGroupRequest {
	q := kmsg.NewPtrJoinGroupRequest()
	q.Version, q.Group, q.MemberID, q.SessionTimeoutMillis, q.RebalanceTimeoutMillis, q.ProtocolType = 3, "g", id, 10_000, 20_000, "consumer"
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name = "range"
	q.Protocols = append(q.Protocols, p)
	return q
}

func (r *rig) join(id string) <-chan *kmsg.JoinGroupResponse {
	return later(func() *kmsg.JoinGroupResponse {
		return r.groups.Join(r.ctx, joinRequest(id), classic.Client{ID: "c", Host: "/192.0.2.1"}).(*kmsg.JoinGroupResponse)
	})
}

func (r *rig) sync(m *kmsg.JoinGroupResponse) <-chan *kmsg.SyncGroupResponse {
	q := kmsg.NewPtrSyncGroupRequest()
	q.Version, q.Group, q.MemberID, q.Generation = 5, "g", m.MemberID, m.Generation
	a := kmsg.NewSyncGroupRequestGroupAssignment()
	a.MemberID, a.MemberAssignment = m.MemberID, []byte("all")
	q.GroupAssignment = append(q.GroupAssignment, a)
	return later(func() *kmsg.SyncGroupResponse { return r.groups.Sync(r.ctx, q).(*kmsg.SyncGroupResponse) })
}

func (r *rig) heartbeat(m *kmsg.JoinGroupResponse) error {
	q := kmsg.NewPtrHeartbeatRequest()
	q.Group, q.MemberID, q.Generation = "g", m.MemberID, m.Generation
	return kerr.ErrorForCode(r.groups.Heartbeat(r.ctx, q).(*kmsg.HeartbeatResponse).ErrorCode)
}

// TestLifeAndReload has a member join, get its assignment and commit; another
// process finds all of it in the log.
func TestLifeAndReload(t *testing.T) {
	inRig(t, func(r *rig) {
		r.lead(1)
		c := r.join("")
		unanswered(r, "join during the initial delay", c)
		time.Sleep(1100 * time.Millisecond)
		synctest.Wait()
		m := answered(r, "join", c)
		if m.ErrorCode != 0 || m.Generation != 1 || m.LeaderID != m.MemberID {
			r.Fatalf("join: %+v", m)
		}
		if s := answered(r, "sync", r.sync(m)); s.ErrorCode != 0 || string(s.MemberAssignment) != "all" {
			r.Fatalf("sync: %+v", s)
		}
		q := commitRequest(5, 6)
		q.MemberID, q.Generation = m.MemberID, m.Generation
		if res := r.groups.Commit(r.ctx, q); res.Topics[0].Partitions[1].ErrorCode != 0 {
			r.Fatalf("commit: %+v", res)
		}
		r.groups.Stop()
		synctest.Wait()
		if err := r.heartbeat(m); !errors.Is(err, kerr.NotCoordinator) {
			r.Errorf("heartbeat after the end: %v", err)
		}
		r.groups = r.coordinator()
		r.lead(1)
		r.wantOffset(0, 5)
		r.wantOffset(1, 6)
		if err := r.heartbeat(m); err != nil {
			r.Errorf("heartbeat at the new coordinator: %v", err)
		}
		d := r.groups.Describe(r.ctx, "g", 6)
		if d.State != "Stable" || len(d.Members) != 1 || string(d.Members[0].MemberAssignment) != "all" {
			r.Errorf("described: %+v", d)
		}
		// Its session ends, which empties the group.
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if d := r.groups.Describe(r.ctx, "g", 6); d.State != "Empty" {
			r.Errorf("after the session: %+v", d)
		}
		if s := r.groups.Summary(r.ctx); s.States[classic.Empty] != 1 || s.Partitions != 1 || s.Offsets != 2 || len(s.Waiting) != 0 {
			r.Errorf("summary: %+v", s)
		}
	})
}

func TestLoading(t *testing.T) {
	inRig(t, func(r *rig) {
		r.stored(batch.NewOptions(), offsetOf("g", "t", 0, 5), offsetOf("g", "t", 1, 6), offsetOf("g", "t", 0, 7))
		big := batch.NewOptions()
		for i := range 20 { // more than one piece, in batches that are larger than a piece
			r.stored(big, offsetOf("g", "t", 2, int64(i)), offsetOf("g", "t", 3, int64(i)))
		}
		end := r.replica(0).Log().LogEnd()
		r.lead(1, 2)
		if err := r.commit(1); !errors.Is(err, kerr.CoordinatorLoadInProgress) {
			r.Errorf("commit while loading: %v", err)
		}
		if _, err := r.offset(0, false); !errors.Is(err, kerr.CoordinatorLoadInProgress) {
			r.Errorf("fetch while loading: %v", err)
		}
		if _, err := r.groups.List(r.ctx, nil, nil); err != kerr.CoordinatorLoadInProgress {
			r.Errorf("list while loading: %v", err)
		}
		if err := r.heartbeat(&kmsg.JoinGroupResponse{MemberID: "x"}); err != nil {
			r.Errorf("heartbeat while loading: %v", err)
		}
		r.fetched(end)
		for p, want := range []int64{7, 6, 19, 19, -1} {
			r.wantOffset(int32(p), want)
		}
		if l, err := r.groups.List(r.ctx, nil, nil); err != nil || len(l) != 1 {
			r.Errorf("list: %v %v", l, err)
		}
	})
}

// TestLoadingEnds gives the leadership up while the load waits.
func TestLoadingEnds(t *testing.T) {
	inRig(t, func(r *rig) {
		r.stored(batch.NewOptions(), offsetOf("g", "t", 0, 5))
		r.lead(1, 2)
		r.follow()
		if err := r.commit(1); !errors.Is(err, kerr.NotCoordinator) {
			r.Errorf("commit at a follower: %v", err)
		}
		r.lead(1)
		r.wantOffset(0, 5)
	})
}

func TestTransactionsInTheLog(t *testing.T) {
	inRig(t, func(r *rig) {
		txn := batch.NewOptions()
		txn.Transactional, txn.ProducerID, txn.ProducerEpoch, txn.BaseSequence = true, 7, 0, 0
		end := txn
		end.Control, end.BaseSequence = true, -1
		r.stored(batch.NewOptions(), offsetOf("g", "t", 0, 1))
		r.stored(txn, offsetOf("g", "t", 0, 5))
		r.lead(1)
		if n, err := r.offset(0, true); !errors.Is(err, kerr.UnstableOffsetCommit) || n != -1 {
			r.Errorf("stable offset in an open transaction: %d %v", n, err)
		}
		r.wantOffset(0, 1)
		r.follow()
		r.stored(end, group.Record{Marker: &group.Marker{Commit: true}})
		r.lead(1)
		if n, err := r.offset(0, true); err != nil || n != 5 {
			r.Errorf("stable offset after the commit: %d %v", n, err)
		}
	})
}

// TestCommitWaits has an answer wait for the high watermark.
func TestCommitWaits(t *testing.T) {
	inRig(t, func(r *rig) {
		r.lead(1, 2)
		c := later(func() error { return r.commit(5) })
		unanswered(r, "commit", c)
		r.wantOffset(0, -1)
		r.fetched(1)
		if err := answered(r, "commit", c); err != nil {
			r.Errorf("commit: %v", err)
		}
		r.wantOffset(0, 5)

		// The follower is gone: the client is told after offsets.commit.timeout.ms.
		c = later(func() error { return r.commit(6) })
		time.Sleep(5100 * time.Millisecond)
		synctest.Wait()
		if err := answered(r, "commit", c); !errors.Is(err, kerr.CoordinatorNotAvailable) {
			r.Errorf("commit without the follower: %v", err)
		}
		r.wantOffset(0, 5)
		// It took effect after all.
		r.fetched(2)
		r.wantOffset(0, 6)

		c = later(func() error { return r.commit(7) })
		r.follow()
		if err := answered(r, "commit", c); !errors.Is(err, kerr.NotCoordinator) {
			r.Errorf("commit whose leader has changed: %v", err)
		}
	})
}

func TestNotEnoughReplicas(t *testing.T) {
	inRig(t, func(r *rig) {
		r.minISR = 2
		r.lead(1, 2)
		c := later(func() error { return r.commit(5) })
		r.fetched(1)
		if err := answered(r, "commit", c); err != nil {
			r.Fatal(err)
		}
		r.replica(0).Lead(isr.Assignment{Replicas: []int32{1, 2}, ISR: []int32{1}, LeaderEpoch: r.epoch, PartitionEpoch: r.epoch + 1}, time.Now())
		if err := r.commit(6); !errors.Is(err, kerr.CoordinatorNotAvailable) {
			r.Errorf("commit below min.insync.replicas: %v", err)
		}
		r.wantOffset(0, 5)
		q := joinRequest("")
		q.Group = "new"
		m := r.groups.Join(r.ctx, q, classic.Client{}).(*kmsg.JoinGroupResponse)
		if m.ErrorCode != kerr.CoordinatorNotAvailable.Code {
			r.Errorf("join of a group that cannot be stored: %+v", m)
		}
		if d := r.groups.Describe(r.ctx, "new", 6); d.ErrorCode != kerr.GroupIDNotFound.Code {
			r.Errorf("a group that could not be stored: %+v", d)
		}
		if d := r.groups.Describe(r.ctx, "g", 6); d.ErrorCode != 0 {
			r.Errorf("the coordinator has given up: %+v", d)
		}
	})
}

// TestParkedJoin is answered when another broker takes over.
func TestParkedJoin(t *testing.T) {
	inRig(t, func(r *rig) {
		r.lead(1)
		c := r.join("")
		r.follow()
		if m := answered(r, "join", c); m.ErrorCode != kerr.NotCoordinator.Code {
			r.Errorf("join: %+v", m)
		}
	})
}

// TestForeignAppend has somebody else write to the topic: the state is read anew.
func TestForeignAppend(t *testing.T) {
	inRig(t, func(r *rig) {
		r.lead(1)
		if err := r.commit(5); err != nil {
			r.Fatal(err)
		}
		b := batch.NewBuilder(batch.NewOptions())
		foreign := offsetOf("g", "t", 1, 77)
		key, value := foreign.Append(nil)
		b.Append(1000, key, value, nil)
		if _, err := r.replica(0).AppendAsLeader(partition.AppendRequest{Records: b.Build(), Version: 9, Acks: partition.AcksAll}); err != nil {
			r.Fatal(err)
		}
		if err := r.commit(6); !errors.Is(err, kerr.NotCoordinator) {
			r.Errorf("commit behind a foreign batch: %v", err)
		}
		time.Sleep(2 * reloadPause)
		synctest.Wait()
		r.wantOffset(0, 6)
		r.wantOffset(1, 77)
		if err := r.commit(7); err != nil {
			r.Errorf("commit after loading again: %v", err)
		}
	})
}

// TestLargeWrites go into several batches, and are answered when the last is committed.
func TestLargeWrites(t *testing.T) {
	inRig(t, func(r *rig) {
		r.max = 300
		r.lead(1)
		many := make([]int64, 40)
		if err := r.commit(many...); err != nil {
			r.Fatal(err)
		}
		if err := r.groups.Delete(r.ctx, "g"); err != nil {
			r.Fatal(err)
		}
		if err := r.groups.Delete(r.ctx, "g"); err != kerr.GroupIDNotFound {
			r.Errorf("deleted twice: %v", err)
		}
		if end := r.replica(0).Log().LogEnd(); end != 81 {
			r.Errorf("the log ends at %d", end)
		}
		r.follow()
		r.lead(1)
		if l, err := r.groups.List(r.ctx, nil, nil); err != nil || len(l) != 0 {
			r.Errorf("list: %v %v", l, err)
		}
		// A single record that is too large is refused, and the rest goes on.
		q := commitRequest(1)
		text := string(make([]byte, 1000))
		q.Topics[0].Partitions[0].Metadata = &text
		if res := r.groups.Commit(r.ctx, q); res.Topics[0].Partitions[0].ErrorCode != kerr.UnknownServerError.Code {
			r.Errorf("too large: %+v", res)
		}
		if err := r.commit(1); err != nil {
			r.Error(err)
		}
	})
}

// TestIdlePartitions cost no goroutine.
func TestIdlePartitions(t *testing.T) {
	r := newRig(t)
	before := runtime.NumGoroutine()
	for id := range int32(50) {
		p := r.replica(id)
		p.Lead(isr.Assignment{Replicas: []int32{1}, ISR: []int32{1}, LeaderEpoch: 1, PartitionEpoch: 1}, time.Now())
		r.groups.Leads(p, 1)
		r.groups.Leads(p, 1) // once more is harmless
	}
	r.groups.rt.work.Wait()
	if ids, loading := r.groups.rt.Active(); len(ids) != 50 || loading != 0 {
		t.Errorf("%d partitions are active, loading: %v", len(ids), loading)
	}
	for n := 0; runtime.NumGoroutine() > before && n < 1000; n++ {
		runtime.Gosched() // the loads' goroutines are at their end
	}
	if now := runtime.NumGoroutine(); now > before {
		t.Errorf("%d goroutines, %d before", now, before)
	}
	r.groups.Stop()
}

func TestPartitionOfGroup(t *testing.T) {
	g := newRig(t).groups
	g.o.Partitions = 50
	for id, want := range map[string]int32{"g1": 42, "polygenelubricants": 0} {
		if got := g.Partition(id); got != want {
			t.Errorf("%s belongs to partition %d, want %d", id, got, want)
		}
	}
}

// BenchmarkCommit is one commit from request to answer, on a broker that waits for nobody.
func BenchmarkCommit(b *testing.B) {
	r := newRig(&testing.T{})
	p := r.replica(0)
	p.Lead(isr.Assignment{Replicas: []int32{1}, ISR: []int32{1}, LeaderEpoch: 1, PartitionEpoch: 1}, time.Now())
	r.groups.Leads(p, 1)
	r.groups.rt.work.Wait()
	q := commitRequest(1)
	b.ReportAllocs()
	for b.Loop() {
		if res := r.groups.Commit(r.ctx, q); res.Topics[0].Partitions[0].ErrorCode != 0 {
			b.Fatalf("%+v", res)
		}
	}
	r.groups.Stop()
}
