package txn

import (
	"fmt"
	"testing"
	"time"
)

// A log that refuses appends is asked a few times in a second by a sweep with more to
// do than one step takes, and what it refuses does not count as done.
func TestSweepsWhileTheLogRefuses(t *testing.T) {
	const ids = sweepAtOnce + 5
	for name, c := range map[string]struct {
		open  bool
		until time.Duration // when the sweep finds them all
		done  func(s Stats) int64
	}{
		"transactions that are late": {true, 25 * time.Second, func(s Stats) int64 { return s.TimedOut }},
		"ids that have expired":      {false, 7*24*time.Hour + 2*time.Hour, func(s Stats) int64 { return s.Expired }},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSim()
			for i := range ids {
				n := Txn{ID: fmt.Sprintf("id%04d", i), ProducerID: int64(i), LastEpoch: NoEpoch, Previous: NoProducerID, Next: NoProducerID,
					TimeoutMs: 1000, StartMs: s.now.UnixMilli(), UpdateMs: s.now.UnixMilli(), Status: CompleteCommit}
				if c.open {
					n.Status, n.Partitions = Ongoing, []TopicPartition{{"t", 0}}
				}
				s.append([]Record{{ID: n.ID, Txn: &n, Version: 1}})
			}
			s.do(s.core.Activate)
			s.now = s.now.Add(c.until)
			end := s.now.Add(time.Second)
			steps := 0
			for at := s.core.Next(); !at.IsZero() && !at.After(end); at = s.core.Next() {
				if at.After(s.now) {
					s.now = at
				}
				s.core.Due(s.step()) // its records go nowhere
				if steps++; steps > 20 {
					t.Fatalf("%d steps in %v", steps, s.now.Sub(end.Add(-time.Second)))
				}
			}
			if got := c.done(s.core.Stats()); got != 0 || steps < 2 {
				t.Errorf("%d counted after %d steps", got, steps)
			}
			s.advance(time.Second)
			if got := c.done(s.core.Stats()); got != ids {
				t.Errorf("%d counted of %d once the log takes them", got, ids)
			}
		})
	}
}
