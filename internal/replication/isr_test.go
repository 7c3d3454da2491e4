package replication

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/partition"
	"weir/internal/records"
	"weir/internal/uuid"
)

// recovering is a partition of this broker that has an ISR change to propose.
func (e *env) recovering() *partition.Replica {
	e.t.Helper()
	r := part(t1, 0, 1, 3, dirA, 1).(*records.PartitionRecord)
	r.LeaderRecoveryState = 1
	e.replay(topic("a", t1), r)
	return e.get(t1, 0)
}

// answerISR lets the controller answer proposals for t1-0 with a row.
func (e *env) answerISR(row kmsg.AlterPartitionResponseTopicPartition) {
	e.ctl.answer = func(req kmsg.Request) (kmsg.Response, error) {
		res := req.ResponseKind().(*kmsg.AlterPartitionResponse)
		rt := kmsg.NewAlterPartitionResponseTopic()
		rt.TopidID, rt.Partitions = t1, append(rt.Partitions, row)
		res.Topics = append(res.Topics, rt)
		return res, nil
	}
}

// What a refusal proves decides whether the members of a proposal go on to count.
func TestRefusedProposals(t *testing.T) {
	for _, c := range []struct {
		code                *kerr.Error
		again, later, waits bool // sent again; proposed anew after a pause; the image is waited for
	}{
		{code: kerr.IneligibleReplica, later: true},
		{code: kerr.OperationNotAttempted, later: true},
		{code: kerr.InvalidUpdateVersion, waits: true}, // perhaps the answer to a second copy
		{code: kerr.FencedLeaderEpoch, waits: true},
		{code: kerr.NewLeaderElected, waits: true},
		{code: kerr.NotController, again: true},
		{code: kerr.UnknownServerError, again: true},
	} {
		t.Run(c.code.Message, func(t *testing.T) {
			e := newEnv(t)
			r := e.recovering()
			row := kmsg.NewAlterPartitionResponseTopicPartition()
			row.ErrorCode = c.code.Code
			e.answerISR(row)
			list := slices.Clone(e.proposals.next(e.Manager))
			if len(list) != 1 {
				t.Fatalf("%d proposals", len(list))
			}
			e.alter(t.Context(), list)
			if got := r.InFlight(list[0].proposal); got != (c.waits || c.again) {
				t.Errorf("in flight: %t", got)
			}
			e.isrs.add(r) // as each fetch of a follower does
			if next := e.proposals.next(e.Manager); len(next) == 1 != c.again || c.again && next[0].proposal != list[0].proposal {
				t.Errorf("at once: %v", next)
			}
			e.clock.Advance(refusedPause)
			if next := e.proposals.next(e.Manager); len(next) == 1 != (c.again || c.later) {
				t.Errorf("after the pause: %v", next)
			}
		})
	}
}

// A proposal without an outcome is not sent any more once the image has told it.
func TestImageSettlesAProposal(t *testing.T) {
	e := newEnv(t)
	e.recovering()
	if len(e.proposals.next(e.Manager)) != 1 {
		t.Fatal("nothing to propose")
	}
	c := records.NewPartitionChangeRecord()
	c.TopicID, c.PartitionID, c.ISR, c.LeaderRecoveryState = t1, 0, []int32{1}, 0
	e.replay(&c)
	if next := e.proposals.next(e.Manager); len(next) != 0 {
		t.Fatalf("still sent: %+v", next[0].proposal)
	}
}

// The answer that ends a reassignment comes before the image: the replica list is the image's.
func TestReplicasComeWithTheImage(t *testing.T) {
	e := newEnv(t)
	r := part(t1, 0, 1, 3, dirA, 1, 2).(*records.PartitionRecord)
	r.ISR, r.LeaderRecoveryState, r.PartitionEpoch = []int32{1}, 1, 0
	e.replay(topic("a", t1), r)
	row := kmsg.NewAlterPartitionResponseTopicPartition()
	row.LeaderID, row.LeaderEpoch, row.PartitionEpoch, row.ISR = 1, 3, 1, []int32{1}
	e.answerISR(row)
	e.alter(t.Context(), e.proposals.next(e.Manager))
	if h, _ := e.get(t1, 0).Health(); h.Replicas != 2 {
		t.Fatalf("%+v", h)
	}
	c := records.NewPartitionChangeRecord()
	c.TopicID, c.PartitionID, c.ISR, c.Replicas, c.Directories, c.LeaderRecoveryState = t1, 0, []int32{1}, []int32{1}, []uuid.UUID{dirA}, 0
	e.replay(&c)
	if h, _ := e.get(t1, 0).Health(); h.Replicas != 1 {
		t.Fatalf("%+v: a replica that was taken away is still there", h)
	}
}
