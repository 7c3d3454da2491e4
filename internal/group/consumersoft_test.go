package group

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/group/classic"
	"weir/internal/group/consumer"
)

func (s *sim) wantSoft(t *testing.T, what string, want int) {
	t.Helper()
	if n := len(s.core.soft.consumers); n != want {
		t.Errorf("%s: what is not stored is kept of %d groups, want %d", what, n, want)
	}
}

// Nothing is kept of groups that do not come to be, or are gone.
func TestConsumersThatAreNotThere(t *testing.T) {
	s := newSim()
	s.topic("t", 1)
	s.beat(args{kv: map[string]string{"group": "x", "regex": "("}}, "a")
	s.wantSoft(t, "a bad request", 0)
	s.refuse = kerr.CoordinatorNotAvailable
	s.beat(args{kv: map[string]string{"group": "y", "topics": "t"}}, "a")
	s.wantSoft(t, "an append that is refused", 0)
	s.beat(args{kv: map[string]string{"group": "z", "topics": "t"}}, "b")
	s.wantSoft(t, "a group", 1)
	s.state = NewState() // as a record of another step makes it
	s.topic("t", 2)
	s.wantSoft(t, "a group that is gone", 0)
}

// Who leaves for a while has nobody taken out, which nothing has to follow.
func TestNobodyIsFenced(t *testing.T) {
	s := newSim()
	s.topic("t", 1)
	s.beat(args{kv: map[string]string{"topics": "t", "instance": "i"}}, "a")
	instance := "i"
	q := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	q.Version, q.Group, q.MemberID, q.InstanceID, q.MemberEpoch = 1, "g", "a", &instance, consumer.StaticLeaveEpoch
	r := s.core.ConsumerHeartbeat(s.now0(), q, classic.Client{}, s.waiter("a"))
	if len(r.Records) != 1 || r.Then != nil {
		t.Errorf("%d records, and a step follows: %v", len(r.Records), r.Then != nil)
	}
}
