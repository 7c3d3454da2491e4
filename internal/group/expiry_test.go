package group

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// What one step of expiry has left over follows at once, but not when the step was
// refused: then the next check does it, or the refusals would follow one another
// without an end.
func TestExpiryRefused(t *testing.T) {
	for _, kind := range []string{"classic", "consumer"} {
		t.Run(kind, func(t *testing.T) {
			s := newSim()
			if kind == "consumer" {
				s.topic("t", 1)
				s.beat(args{kv: map[string]string{"topics": "t"}}, "a")
				s.beat(args{kv: map[string]string{"epoch": "-1"}}, "a")
			}
			var recs []Record
			for p := range int32(expireAtOnce + 1) {
				recs = append(recs, Record{Producer: noProducer, Delta: p, Offset: &OffsetRecord{
					Key: OffsetKey{"g", TopicPartition{"old", p}}, Value: &Offset{Offset: 1, LeaderEpoch: -1, CommitMs: s.now.UnixMilli(), ExpireMs: -1},
				}})
			}
			s.state = s.state.Apply(s.end, append(recs, Record{Producer: noProducer, Offset: &OffsetRecord{
				Key: OffsetKey{"h", TopicPartition{"old", 0}}, Value: &Offset{Offset: 1, LeaderEpoch: -1, CommitMs: s.now.UnixMilli(), ExpireMs: -1},
			}}))
			s.now = s.now.Add(s.config.Retention + time.Minute)
			s.core.scheduleExpiry(s.now.Add(-s.config.CheckEvery))
			r := s.core.Due(s.now0())
			if len(r.Records) < expireAtOnce {
				t.Fatalf("%d records of a step of expiry", len(r.Records))
			}
			if next := s.core.Next(); !next.Equal(s.now.Add(s.config.CheckEvery)) {
				t.Errorf("before the fate of the step is known the next is at %v, now is %v", next, s.now)
			}
			r.Then(s.now0(), kerr.CoordinatorNotAvailable)
			if next := s.core.Next(); !next.Equal(s.now.Add(s.config.CheckEvery)) {
				t.Errorf("after a refusal the next is at %v, now is %v", next, s.now)
			}
			r.Then(s.now0(), nil)
			if next := s.core.Next(); !next.Equal(s.now) {
				t.Errorf("after a success the next is at %v, now is %v", next, s.now)
			}
		})
	}
}
