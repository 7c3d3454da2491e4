package controller

import (
	"cmp"
	"fmt"
	"slices"

	"weir/internal/image"
	"weir/internal/records"
)

// Internal topics with one replica are the classic trap: one dead broker stops every consumer. They are created with as many
// replicas as there are brokers, and when a cluster grows they raise their own replication factor (availability promise D3).

// RaisedTopic is a topic that raises its replication factor as brokers join.
type RaisedTopic struct {
	Name   string
	Target int // replicas that it should have in the end
}

const (
	raiseIntervalMs = 5_000
	// settledMs is how long a broker must have been there before replicas are put on it: one that only passes by is no gain.
	settledMs = 10_000
	// raiseAtATime bounds the partitions of a topic that are copied at the same time.
	raiseAtATime = 10
)

// raise begins to add replicas to internal topics that have fewer than they should and could.
func (c *Core) raise(s Step, img *image.Image) (recs []records.Versioned, notes []string) {
	brokers := c.settled(s, img)
	for _, want := range c.o.Raise {
		t, ok := img.Topic(want.Name)
		if !ok {
			continue
		}
		factor := min(want.Target, len(brokers))
		begun, before, least := 0, len(recs), factor
		load, preferred := topicLoad(t)
		for i, p := range t.Partitions() {
			if len(p.Adding)+len(p.Removing) > 0 {
				begun++
				continue
			}
			if len(p.Replicas) >= factor || begun >= raiseAtATime {
				continue
			}
			least = min(least, len(p.Replicas))
			target := lead(extend(p.Replicas, factor, brokers, load), preferred)
			ch := c.newChange(img, t, i, p)
			if moveTo(img, p, ch, target, true) != nil {
				continue // a replica stands on a broker that was unregistered: to move it is for people to decide
			}
			if v, ok := ch.build(); ok {
				recs = append(recs, v)
				begun++
			}
		}
		if len(recs) > before {
			notes = append(notes, fmt.Sprintf("topic %s has partitions with %d replica(s): adding replicas, as %d are possible; weir.internal.topics.auto.raise=false keeps it from that", t.Name, least, factor))
		}
	}
	return recs, notes
}

// settled lists the brokers that may get replicas: active, with room in some directory, and not just come.
func (c *Core) settled(s Step, img *image.Image) []*image.Broker {
	var out []*image.Broker
	for b := range img.Brokers() {
		ses := c.soft.brokers[b.ID]
		if b.Active() && !b.AllDirsCordoned() && ses != nil && s.NowMs-ses.unfencedMs >= settledMs {
			out = append(out, b)
		}
	}
	return out
}

// topicLoad counts, by broker, the replicas of a topic and the partitions that it is to lead.
func topicLoad(t *image.Topic) (load, preferred map[int32]int) {
	load, preferred = map[int32]int{}, map[int32]int{}
	for _, p := range t.Partitions() {
		for i, b := range p.Replicas {
			load[b]++
			if i == 0 {
				preferred[b]++
			}
		}
	}
	return load, preferred
}

// lead puts that replica first that is to lead: the one with the fewest partitions of the topic to lead, when that evens
// them out (A2). Where all had one replica, on the first broker of the cluster, they would all stay with that one otherwise.
// The leader goes on leading until a preferred election, when the new replica is in sync.
func lead(replicas []int32, preferred map[int32]int) []int32 {
	first := replicas[0]
	best := first
	for _, b := range replicas {
		if preferred[b] < preferred[best] {
			best = b
		}
	}
	if preferred[best]+1 >= preferred[first] {
		return replicas
	}
	preferred[first]--
	preferred[best]++
	return append([]int32{best}, without(replicas, best)...)
}

// extend adds brokers to replicas until there are n: of racks that have none yet first, then those with the fewest replicas of
// the topic.
func extend(replicas []int32, n int, brokers []*image.Broker, load map[int32]int) []int32 {
	out := slices.Clone(replicas)
	rack := func(id int32) string {
		i := slices.IndexFunc(brokers, func(b *image.Broker) bool { return b.ID == id })
		if i < 0 || brokers[i].Rack == nil {
			return ""
		}
		return *brokers[i].Rack
	}
	for len(out) < n {
		used := map[string]int{}
		for _, id := range out {
			used[rack(id)]++
		}
		var best *image.Broker
		for _, b := range brokers {
			if slices.Contains(out, b.ID) {
				continue
			}
			if best == nil || cmp.Or(cmp.Compare(used[rack(b.ID)], used[rack(best.ID)]), cmp.Compare(load[b.ID], load[best.ID]), cmp.Compare(b.ID, best.ID)) < 0 {
				best = b
			}
		}
		if best == nil {
			break
		}
		out = append(out, best.ID)
		load[best.ID]++
	}
	return out
}
