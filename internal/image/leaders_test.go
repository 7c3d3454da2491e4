package image

import (
	"fmt"
	"strings"
	"testing"

	"weir/internal/records"
	"weir/internal/uuid"
)

// Each reason for another leader that shows in the images is told in words.
func TestLeaderChanges(t *testing.T) {
	id, dirs := uuid.UUID{15: 9}, []uuid.UUID{{0: 8, 15: 1}, {0: 8, 15: 2}, {0: 8, 15: 3}}
	topic := records.NewTopicRecord()
	topic.Name, topic.TopicID = "t", id
	p := records.NewPartitionRecord()
	p.TopicID, p.PartitionID, p.Replicas, p.ISR, p.Leader, p.Directories = id, 0, []int32{1, 2, 3}, []int32{1, 2, 3}, 1, dirs
	base := []records.Metadata{&topic, &p}
	for b := range int32(3) {
		r := records.NewRegisterBrokerRecord()
		r.BrokerID, r.BrokerEpoch, r.Fenced, r.LogDirs = b+1, 5, false, dirs[b:b+1]
		base = append(base, &r)
	}
	change := func(leader int32, f func(*records.PartitionChangeRecord)) records.Metadata {
		c := records.NewPartitionChangeRecord()
		c.TopicID, c.PartitionID, c.Leader = id, 0, leader
		if f != nil {
			f(&c)
		}
		return &c
	}
	broker := func(b int32, f func(*records.BrokerRegistrationChangeRecord)) records.Metadata {
		c := records.NewBrokerRegistrationChangeRecord()
		c.BrokerID, c.BrokerEpoch = b, 5
		f(&c)
		return &c
	}
	fenced := broker(1, func(c *records.BrokerRegistrationChangeRecord) { c.Fenced = 1 })
	unfenced := broker(1, func(c *records.BrokerRegistrationChangeRecord) { c.Fenced = -1 })
	gone := records.NewUnregisterBrokerRecord()
	gone.BrokerID, gone.BrokerEpoch = 1, 5
	anew := records.NewRegisterBrokerRecord()
	anew.BrokerID, anew.BrokerEpoch = 1, 9
	noop := records.NewNoOpRecord()
	for _, x := range []struct {
		before, after []records.Metadata
		want          string
	}{
		{nil, []records.Metadata{fenced, change(2, nil)}, "2: broker 1 was fenced"},
		{nil, []records.Metadata{change(3, nil), broker(1, func(c *records.BrokerRegistrationChangeRecord) { c.InControlledShutdown = 1 })}, "3: broker 1 shuts down"},
		{nil, []records.Metadata{change(2, nil), &gone}, "2: broker 1 was unregistered"},
		{nil, []records.Metadata{change(2, nil), &anew}, "2: broker 1 was started anew"},
		{nil, []records.Metadata{change(2, nil), broker(1, func(c *records.BrokerRegistrationChangeRecord) { c.LogDirs = []uuid.UUID{{0: 8, 15: 7}} })}, "2: a log directory of broker 1 has failed"},
		{nil, []records.Metadata{change(2, func(c *records.PartitionChangeRecord) { c.Replicas, c.Directories = []int32{2, 3}, dirs[1:] })}, "2: reassigned, without broker 1"},
		{nil, []records.Metadata{change(2, nil)}, "2: elected"},
		{[]records.Metadata{change(2, nil)}, []records.Metadata{change(1, nil)}, "1: preferred leader"},
		{nil, []records.Metadata{fenced, change(2, func(c *records.PartitionChangeRecord) { c.LeaderRecoveryState = 1 })}, "2: unclean election: broker 1 was fenced"},
		{nil, []records.Metadata{fenced, change(-1, nil)}, "-1: broker 1 was fenced, and nobody else is in sync"},
		{nil, []records.Metadata{change(-1, nil)}, "-1: broker 1 may not lead, and nobody else is in sync"},
		{[]records.Metadata{fenced, change(-1, nil)}, []records.Metadata{unfenced, change(1, nil)}, "1: there was none, and broker 1 is here now"},
		{nil, []records.Metadata{fenced}, ""},
		{nil, []records.Metadata{change(2, nil), change(1, nil)}, ""},
		{nil, []records.Metadata{&noop}, ""},
	} {
		img := New()
		apply := func(list []records.Metadata) (*Image, *Delta) {
			d := NewDelta(img)
			for _, r := range list {
				if err := d.Replay(records.Versioned{Record: r, Version: r.HighestVersion()}); err != nil {
					t.Fatal(err)
				}
			}
			return d.Apply(Provenance{}), d
		}
		img, d := apply(base)
		if got := d.LeaderChanges(img); len(got) > 0 {
			t.Errorf("a new topic: %v", got)
		}
		img, _ = apply(x.before)
		after, d := apply(x.after)
		var got []string
		for _, c := range d.LeaderChanges(after) {
			got = append(got, fmt.Sprintf("%d: %s", c.To, c.Because))
		}
		if strings.Join(got, "; ") != x.want {
			t.Errorf("got %q, want %q", got, x.want)
		}
	}
}
