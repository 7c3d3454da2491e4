package coordinator

import (
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/batch"
	"weir/internal/clock"
	"weir/internal/group"
	"weir/internal/group/classic"
	"weir/internal/group/consumer"
	"weir/internal/image"
	"weir/internal/records"
	"weir/internal/rng"
	"weir/internal/uuid"
)

// consumers gives the rig a new coordinator, which knows a topic t with two
// partitions and has consumer groups with a session of ten seconds.
func (r *rig) consumers() {
	r.Helper()
	d := image.NewDelta(image.New())
	id := uuid.UUID{15: 7}
	for _, m := range []records.Metadata{
		&records.TopicRecord{Name: "t", TopicID: id},
		&records.PartitionRecord{TopicID: id, PartitionID: 0, Replicas: []int32{1}, ISR: []int32{1}, Leader: 1},
		&records.PartitionRecord{TopicID: id, PartitionID: 1, Replicas: []int32{1}, ISR: []int32{1}, Leader: 1},
	} {
		if err := d.Replay(records.Versioned{Record: m}); err != nil {
			r.Fatal(err)
		}
	}
	img := d.Apply(image.Provenance{Offset: 9})
	r.groups.Stop()
	r.groups = NewGroups(GroupsOptions{
		Config: &group.Config{
			Classic: classic.Config{MaxSize: 10}, MinSession: time.Second, MaxSession: time.Hour, Retention: time.Hour, CheckEvery: time.Hour, MaxMetadata: 4096,
			Consumer: consumer.Config{MaxSize: 10, ClassicMaxSize: 10, Assignors: []string{"uniform", "range"}, RegexRefresh: time.Hour},
			Settings: func(*image.Image, string) consumer.Settings {
				return consumer.Settings{Session: 10 * time.Second, Heartbeat: time.Second}
			},
		},
		Partitions: 1, Timeout: 5 * time.Second, LoadBuffer: 100, Image: func() *image.Image { return img },
		Buffers: new(batch.Pool), Clock: clock.System{}, Rand: rng.New(1), Logger: slog.New(slog.NewTextHandler(&r.text, nil)),
	})
}

// beat is a heartbeat of member a; at epoch 0 it joins by names or by a regular expression.
func (r *rig) beat(epoch int32, regex string) <-chan *kmsg.ConsumerGroupHeartbeatResponse {
	q := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	q.Version, q.Group, q.MemberID, q.MemberEpoch, q.RebalanceTimeoutMillis = 1, "g", "a", epoch, -1
	if epoch == 0 {
		q.RebalanceTimeoutMillis, q.Topics, q.SubscribedTopicNames = 5000, []kmsg.ConsumerGroupHeartbeatRequestTopic{}, []string{"t"}
		if regex != "" {
			q.SubscribedTopicNames, q.SubscribedTopicRegex = nil, &regex
		}
	}
	return later(func() *kmsg.ConsumerGroupHeartbeatResponse {
		return r.groups.ConsumerHeartbeat(r.ctx, q, classic.Client{ID: "c", Host: "/192.0.2.1"}).(*kmsg.ConsumerGroupHeartbeatResponse)
	})
}

func assignedOf(m *kmsg.ConsumerGroupHeartbeatResponse) int {
	n := 0
	if m.Assignment != nil {
		for _, t := range m.Assignment.Topics {
			n += len(t.Partitions)
		}
	}
	return n
}

// A member of a consumer group goes on at its epoch when another broker, or a new
// process, coordinates; its session begins anew there.
func TestConsumerGroupMoves(t *testing.T) {
	inRig(t, func(r *rig) {
		r.consumers()
		r.lead(1)
		m := answered(r, "join", r.beat(0, ""))
		if m.ErrorCode != 0 || m.MemberEpoch != 2 || assignedOf(m) != 2 {
			r.Fatalf("join: %+v", m)
		}
		r.follow()
		if err := kerr.ErrorForCode(answered(r, "elsewhere", r.beat(2, "")).ErrorCode); !errors.Is(err, kerr.NotCoordinator) {
			r.Errorf("heartbeat where another leads: %v", err)
		}
		r.lead(1)
		if m := answered(r, "after the move", r.beat(2, "")); m.ErrorCode != 0 || m.MemberEpoch != 2 || m.Assignment != nil {
			r.Errorf("after the move: %+v", m)
		}
		r.consumers() // a new process
		r.lead(1)
		time.Sleep(9 * time.Second)
		if d := r.groups.DescribeConsumer(r.ctx, "g"); d.State != "Stable" || len(d.Members) != 1 {
			r.Errorf("in a new process: %+v", d)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if d := r.groups.DescribeConsumer(r.ctx, "g"); d.State != "Empty" || d.Epoch != 3 {
			r.Errorf("after its session: %+v", d)
		}
		if err := kerr.ErrorForCode(answered(r, "too late", r.beat(2, "")).ErrorCode); !errors.Is(err, kerr.UnknownMemberID) {
			r.Errorf("heartbeat after the session: %v", err)
		}
	})
}

// A heartbeat that changes something is answered when that is committed, and what is
// not committed when the leadership ends has not been.
func TestConsumerGroupWaitsForCommit(t *testing.T) {
	inRig(t, func(r *rig) {
		r.minISR = 2
		r.consumers()
		r.lead(1, 2)
		r.fetched(0)
		c := r.beat(0, "")
		unanswered(r, "join before follower 2 has it", c)
		if d := r.groups.DescribeConsumer(r.ctx, "g"); !errors.Is(kerr.ErrorForCode(d.ErrorCode), kerr.GroupIDNotFound) {
			r.Errorf("described before it is committed: %+v", d)
		}
		r.fetched(r.replica(0).Log().LogEnd())
		if m := answered(r, "join", c); m.ErrorCode != 0 || m.MemberEpoch != 2 {
			r.Errorf("join: %+v", m)
		}
		c = r.beat(-1, "")
		unanswered(r, "leave before follower 2 has it", c)
		r.follow()
		if err := kerr.ErrorForCode(answered(r, "leave", c).ErrorCode); !errors.Is(err, kerr.NotCoordinator) {
			r.Errorf("leave of which the end is not known: %v", err)
		}
	})
}

// Regular expressions are looked up beside the requests.
func TestConsumerGroupRegex(t *testing.T) {
	inRig(t, func(r *rig) {
		r.consumers()
		r.lead(1)
		if m := answered(r, "join", r.beat(0, "[tu]")); m.ErrorCode != 0 || m.MemberEpoch != 1 || assignedOf(m) != 0 {
			r.Fatalf("join: %+v", m)
		}
		if m := answered(r, "heartbeat", r.beat(1, "")); m.ErrorCode != 0 || m.MemberEpoch != 2 || assignedOf(m) != 2 {
			r.Errorf("heartbeat after the look: %+v", m)
		}
	})
}

// What a step of a consumer group writes takes effect as a whole: records that do not
// fit into a batch are refused to whoever asked, and the partition goes on.
func TestConsumerGroupWritesAtOnce(t *testing.T) {
	inRig(t, func(r *rig) {
		r.max = 250
		r.consumers()
		r.lead(1)
		if err := kerr.ErrorForCode(answered(r, "join", r.beat(0, "")).ErrorCode); !errors.Is(err, kerr.UnknownServerError) {
			r.Errorf("a join that is too large: %v", err)
		}
		if end := r.replica(0).Log().LogEnd(); end != 0 {
			r.Errorf("part of it is in the log, which ends at %d", end)
		}
		if err := r.commit(1); err != nil {
			r.Errorf("a commit after it: %v", err)
		}
	})
}
