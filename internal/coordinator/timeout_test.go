package coordinator

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/group/classic"
)

// late is a little more than offsets.commit.timeout.ms of the rig.
const late = 5100 * time.Millisecond

// pass lets time pass.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// caughtUp lets the follower have all there is.
func (r *rig) caughtUp() { r.fetched(r.replica(0).Log().LogEnd()) }

// joined makes a group of one member while the follower keeps up.
func (r *rig) joined() *kmsg.JoinGroupResponse {
	r.Helper()
	r.lead(1, 2)
	c := r.join("")
	r.caughtUp()
	pass(1100 * time.Millisecond)
	return answered(r, "join", c)
}

// TestSyncNotCommitted: an assignment that cannot be committed is given up after
// offsets.commit.timeout.ms, and the group rebalances.
func TestSyncNotCommitted(t *testing.T) {
	inRig(t, func(r *rig) {
		m := r.joined()
		sync := r.sync(m)
		unanswered(r, "sync", sync)
		pass(4800 * time.Millisecond)
		unanswered(r, "sync before the time is up", sync)
		pass(300 * time.Millisecond)
		if s := answered(r, "sync", sync); s.ErrorCode != kerr.CoordinatorNotAvailable.Code {
			r.Errorf("sync: %+v", s)
		}
		if d := r.groups.Describe(r.ctx, "g", 6); d.State != "PreparingRebalance" {
			r.Errorf("the group after it: %+v", d)
		}
		// What was appended may be committed yet; the rebalance goes on all the same.
		r.caughtUp()
		again := answered(r, "join again", r.join(m.MemberID))
		if again.ErrorCode != 0 || again.Generation != m.Generation+1 {
			r.Errorf("join again: %+v", again)
		}
		sync = r.sync(again)
		r.caughtUp()
		if s := answered(r, "sync again", sync); s.ErrorCode != 0 || string(s.MemberAssignment) != "all" {
			r.Errorf("sync again: %+v", s)
		}
	})
}

// TestAnswersNotCommitted: whatever rests on an uncommitted record is given up in
// time, each API in its own shape; what only looks is answered at once.
func TestAnswersNotCommitted(t *testing.T) {
	inRig(t, func(r *rig) {
		m := r.joined()
		sync := r.sync(m)
		r.caughtUp()
		answered(r, "sync", sync)
		commit := later(func() error { return r.commit(5) }) // by nobody: refused, but it has to wait for nothing
		if err := answered(r, "refused commit", commit); !errors.Is(err, kerr.UnknownMemberID) {
			r.Errorf("refused commit: %v", err)
		}
		q := joinRequest("")
		q.Group = "other"
		other := later(func() kmsg.Response { return r.groups.Join(r.ctx, q, classic.Client{}) })
		beat := later(func() error { return r.heartbeat(m) })
		leave := kmsg.NewPtrLeaveGroupRequest()
		leave.Version, leave.Group, leave.MemberID = 2, "g", "nobody"
		left := later(func() kmsg.Response { return r.groups.Leave(r.ctx, leave) })
		del := kmsg.NewPtrOffsetDeleteRequest()
		del.Group = "g"
		deleted := later(func() *kmsg.OffsetDeleteResponse { return r.groups.DeleteOffsets(r.ctx, del) })
		gone := later(func() *kerr.Error { return r.groups.Delete(r.ctx, "g") })
		stable := later(func() error { _, err := r.offset(0, true); return err })
		if d := r.groups.Describe(r.ctx, "other", 6); d.ErrorCode != kerr.GroupIDNotFound.Code {
			r.Errorf("a group that is not committed: %+v", d)
		}
		if l, err := r.groups.List(r.ctx, nil, nil); err != nil || len(l) != 1 || l[0].Group != "g" {
			r.Errorf("list: %+v, %v", l, err)
		}
		if s := r.groups.Summary(r.ctx); s.States[classic.Stable] != 1 || len(s.States) != 1 {
			r.Errorf("summary: %+v", s)
		}
		unanswered(r, "heartbeat behind the new group", beat)
		unanswered(r, "delete behind the new group", gone)
		pass(late)
		// The join's own answer comes a delay later.
		for what, err := range map[string]error{
			"heartbeat": answered(r, "heartbeat", beat), "stable fetch": answered(r, "stable fetch", stable),
			"leave":          kerr.ErrorForCode(answered(r, "leave", left).(*kmsg.LeaveGroupResponse).ErrorCode),
			"delete offsets": kerr.ErrorForCode(answered(r, "delete offsets", deleted).ErrorCode),
			"delete":         answered(r, "delete", gone),
		} {
			if !errors.Is(err, kerr.CoordinatorNotAvailable) {
				r.Errorf("%s: %v", what, err)
			}
		}
		pass(time.Second)
		if j := answered(r, "join", other).(*kmsg.JoinGroupResponse); j.ErrorCode != kerr.CoordinatorNotAvailable.Code {
			r.Errorf("join: %+v", j)
		}
		r.caughtUp()
		if err := r.heartbeat(m); err != nil {
			r.Errorf("heartbeat when all is committed: %v", err)
		}
	})
}

// TestDeleteNotCommitted: a deletion that is late takes effect when it is committed.
func TestDeleteNotCommitted(t *testing.T) {
	inRig(t, func(r *rig) {
		r.lead(1, 2)
		c := later(func() error { return r.commit(5) })
		r.caughtUp()
		if err := answered(r, "commit", c); err != nil {
			r.Fatal(err)
		}
		gone := later(func() *kerr.Error { return r.groups.Delete(r.ctx, "g") })
		pass(late)
		if err := answered(r, "delete", gone); err != kerr.CoordinatorNotAvailable {
			r.Errorf("delete: %v", err)
		}
		r.wantOffset(0, 5)
		r.caughtUp()
		r.wantOffset(0, -1)
		if err := r.groups.Delete(r.ctx, "g"); err != kerr.GroupIDNotFound {
			r.Errorf("delete again: %v", err)
		}
	})
}

// TestWaitingIsTold: the log names those whom a rebalance waits for when it
// begins, after 5 s, 10 s, 20 s, and no more once it has come to its end.
func TestWaitingIsTold(t *testing.T) {
	inRig(t, func(r *rig) {
		r.lead(1)
		c := r.join("")
		pass(1100 * time.Millisecond)
		m := answered(r, "join", c)
		if s := answered(r, "sync", r.sync(m)); s.ErrorCode != 0 {
			r.Fatalf("sync: %+v", s)
		}
		told := func(want int) {
			r.Helper()
			if got := strings.Count(r.text.String(), "a rebalance waits for members"); got != want {
				r.Errorf("told %d times, not %d:\n%s", got, want, r.text.String())
			}
		}
		told(0)
		other := r.join("")
		told(1)
		for _, part := range []string{`group=g state=PreparingRebalance generation=1`, m.MemberID + ` of client \"c\" at /192.0.2.1 has to join`, "since=", "until=", "adding new member"} {
			if !strings.Contains(r.text.String(), part) {
				r.Errorf("the log does not say %s:\n%s", part, r.text.String())
			}
		}
		beat := func(d time.Duration) {
			r.Helper()
			if err := r.heartbeat(m); !errors.Is(err, kerr.RebalanceInProgress) {
				r.Errorf("heartbeat: %v", err)
			}
			pass(d)
		}
		r.groups.Describe(r.ctx, "g", 6) // it was told just now
		beat(4900 * time.Millisecond)
		told(1)
		if s := r.groups.Summary(r.ctx); len(s.Waiting) != 1 || len(s.Waiting[0].Members) != 1 || s.Waiting[0].For.Round(time.Second) != 5*time.Second {
			r.Errorf("summary: %+v", s.Waiting)
		}
		beat(200 * time.Millisecond)
		told(2)
		beat(4500 * time.Millisecond)
		told(2)
		beat(1000 * time.Millisecond)
		told(3)
		beat(7 * time.Second)
		r.groups.Describe(r.ctx, "g", 6)
		told(4)
		r.groups.Describe(r.ctx, "g", 6)
		told(4)
		again := answered(r, "join again", r.join(m.MemberID))
		answered(r, "the other's join", other)
		if s := answered(r, "sync again", r.sync(again)); s.ErrorCode != 0 {
			r.Fatalf("sync again: %+v", s)
		}
		if err := r.heartbeat(again); err != nil {
			r.Errorf("heartbeat of the new generation: %v", err)
		}
		pass(9 * time.Second)
		if s := r.groups.Summary(r.ctx); s.States[classic.Stable] != 1 || len(s.Waiting) != 0 {
			r.Errorf("summary at the end: %+v", s)
		}
		told(4)
	})
}
