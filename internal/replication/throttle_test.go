package replication

import (
	"testing"
	"time"

	"weir/internal/image"
	"weir/internal/records"
)

func brokerSetting(name, key, value string) records.Metadata {
	r := records.NewConfigRecord()
	r.ResourceType, r.ResourceName, r.Name, r.Value = image.ResourceBroker, name, key, &value
	return &r
}

func TestThrottles(t *testing.T) {
	e := newEnv(t)
	e.replay(topic("a", t1), part(t1, 0, 1, 0, dirA, 1, 2), part(t1, 1, 1, 0, dirA, 1, 2), brokerSetting("1", "leader.replication.throttled.rate", "1000"))
	e.replay(topicSetting("a", leaderThrottled, "1:1, 0:2"), topicSetting("a", followerThrottled, "*"))
	shrink := func(p int32) {
		r := records.NewPartitionChangeRecord()
		r.TopicID, r.PartitionID, r.ISR = t1, p, []int32{1}
		e.replay(&r)
	}
	if e.get(t1, 1).ThrottledFor(2) {
		t.Fatal("a follower in sync is throttled")
	}
	shrink(0)
	shrink(1)
	if e.get(t1, 0).ThrottledFor(2) || !e.get(t1, 1).ThrottledFor(2) {
		t.Fatal("the list names partition 1 on this broker, and partition 0 on another")
	}
	if !e.get(t1, 0).ThrottledFollower() {
		t.Fatal("* is all")
	}
	l := e.LeaderThrottle()
	l.Record(9_000)
	if l.Exceeded() { // over the ten seconds that count at least
		t.Fatal("exceeded by 900 bytes per second")
	}
	l.Record(9_000)
	if !l.Exceeded() {
		t.Fatal("not exceeded by 1800 bytes per second")
	}
	e.clock.Advance(19 * time.Second)
	if l.Exceeded() {
		t.Fatal("still exceeded when nothing has passed for long")
	}
	if l.Record(1 << 40); !l.Exceeded() {
		t.Fatal("not exceeded")
	}
	e.replay(brokerSetting("1", "leader.replication.throttled.rate", "9223372036854775807"), topicSetting("a", leaderThrottled, ""))
	if l.Exceeded() || e.get(t1, 1).ThrottledFor(2) {
		t.Fatal("throttled without a limit")
	}

	for _, level := range []string{"", "1"} {
		e.replay(brokerSetting(level, "follower.replication.throttled.rate", "1000"))
		f := e.throttles.follower
		if f.Record(1 << 20); !f.Exceeded() {
			t.Fatalf("follower.replication.throttled.rate of %q: not exceeded", level)
		}
		e.replay(unset(brokerSetting(level, "follower.replication.throttled.rate", "")))
		if f.Exceeded() {
			t.Fatalf("follower.replication.throttled.rate of %q: exceeded when it is gone", level)
		}
	}
}

// unset makes a setting the end of one.
func unset(r records.Metadata) records.Metadata {
	r.(*records.ConfigRecord).Value = nil
	return r
}
