// Package placement chooses brokers for new replicas: "least used first".
//
// Each partition's replicas go to different brokers, on as many racks as possible. Among brokers that are equally good for that,
// the one with the fewest replicas of the new topic comes first, then the one with the fewest of its leaders, then the one with
// the fewest replicas at all; what is still equal is decided by dice. So a topic spreads evenly by itself (6 brokers, 10
// partitions, 3 replicas: exactly 5 replicas on each broker and one or two leaders), whatever stands on the brokers already.
//
// Fenced brokers are taken last and never lead, as in Apache Kafka's own placer. Brokers in controlled shutdown or with all
// their directories cordoned are not offered to this package at all. The package is pure: dice come from the caller.
package placement

import (
	"fmt"
	"slices"
)

// Broker is one place where a replica may go.
type Broker struct {
	ID       int32
	Rack     string // "" when the broker has none: all such brokers count as one rack
	Fenced   bool
	Replicas int // replicas of any topic that stand on it
}

// Rand is the dice. Shuffle is that of math/rand.
type Rand interface {
	Shuffle(n int, swap func(i, j int))
}

// Request says what is to be placed.
type Request struct {
	Partitions        int
	ReplicationFactor int
	// Existing holds the replicas of the topic's partitions that exist already, when partitions are added; they count as the topic's own.
	Existing [][]int32
}

// Error says why nothing can be placed (Kafka's InvalidReplicationFactorException); its text is sent to clients.
type Error struct{ Reason string }

// Error returns the reason.
func (e *Error) Error() string { return e.Reason }

// Place returns the replicas of each new partition, the leader first. The brokers may come in any order.
func Place(req Request, brokers []Broker, dice Rand) ([][]int32, error) {
	if err := check(req, brokers); err != nil {
		return nil, err
	}
	p := newPlacer(req, brokers, dice)
	out := make([][]int32, req.Partitions)
	for i := range out {
		out[i] = p.partition(req.ReplicationFactor)
	}
	p.evenLeaders(out)
	return out, nil
}

func check(req Request, brokers []Broker) error {
	if req.ReplicationFactor < 1 {
		return &Error{fmt.Sprintf("Invalid replication factor %d: the replication factor must be positive.", req.ReplicationFactor)}
	}
	if !slices.ContainsFunc(brokers, func(b Broker) bool { return !b.Fenced }) {
		return &Error{"All brokers are currently fenced."}
	}
	if req.ReplicationFactor > len(brokers) {
		return &Error{fmt.Sprintf("The target replication factor of %d cannot be reached because only %d broker(s) are registered or some brokers have all their log directories cordoned.",
			req.ReplicationFactor, len(brokers))}
	}
	return nil
}

// load is a broker with what this topic puts on it.
type load struct {
	Broker
	ofTopic int // replicas of this topic
	leaders int // of these, first in their list
}

type placer struct {
	loads []*load
	byID  map[int32]*load
	dice  Rand
}

func newPlacer(req Request, brokers []Broker, dice Rand) *placer {
	p := &placer{byID: make(map[int32]*load, len(brokers)), dice: dice}
	for _, b := range brokers {
		l := &load{Broker: b}
		p.loads = append(p.loads, l)
		p.byID[b.ID] = l
	}
	for _, replicas := range req.Existing {
		for i, id := range replicas {
			l := p.byID[id]
			if l == nil {
				continue
			}
			l.ofTopic++
			if i == 0 {
				l.leaders++
			}
		}
	}
	return p
}

// partition picks the replicas of one partition and counts them.
func (p *placer) partition(factor int) []int32 {
	p.dice.Shuffle(len(p.loads), func(i, j int) { p.loads[i], p.loads[j] = p.loads[j], p.loads[i] })
	onRack := map[string]int{}
	chosen := make([]*load, 0, factor)
	for len(chosen) < factor {
		var best *load
		for _, l := range p.loads {
			if !slices.Contains(chosen, l) && (best == nil || before(l, best, onRack)) {
				best = l
			}
		}
		chosen = append(chosen, best)
		onRack[best.Rack]++
	}
	leader := chosen[0]
	for _, l := range chosen {
		if !l.Fenced && (leader.Fenced || l.leaders < leader.leaders) {
			leader = l
		}
	}
	out := []int32{leader.ID}
	leader.leaders++
	for _, l := range chosen {
		l.ofTopic++
		l.Replicas++
		if l != leader {
			out = append(out, l.ID)
		}
	}
	return out
}

// before reports whether a is a better place than b for the next replica of a partition.
func before(a, b *load, onRack map[string]int) bool {
	switch {
	case a.Fenced != b.Fenced:
		return !a.Fenced
	case onRack[a.Rack] != onRack[b.Rack]:
		return onRack[a.Rack] < onRack[b.Rack]
	case a.ofTopic != b.ofTopic:
		return a.ofTopic < b.ofTopic
	case a.leaders != b.leaders:
		return a.leaders < b.leaders
	}
	return a.Replicas < b.Replicas
}

// evenLeaders passes leaderships on until no broker leads two more partitions than another that could take one over, directly or
// through others. Each round lowers the sum of squares of the leader counts, so it ends.
func (p *placer) evenLeaders(partitions [][]int32) {
	led := map[int32][]int{} // the new partitions that a broker leads
	for i, replicas := range partitions {
		led[replicas[0]] = append(led[replicas[0]], i)
	}
	for again := true; again; {
		again = false
		for _, l := range p.loads {
			for l.leaders > 1 && p.passOn(l, partitions, led) {
				again = true
			}
		}
	}
}

// hop says how the search reached a broker: by taking over a partition from another.
type hop struct {
	from      int32
	partition int
}

// passOn searches a chain of take-overs from a broker to one that leads at least two fewer, and performs it.
func (p *placer) passOn(source *load, partitions [][]int32, led map[int32][]int) bool {
	reached := map[int32]hop{source.ID: {}}
	for queue := []int32{source.ID}; len(queue) > 0; queue = queue[1:] {
		for _, i := range led[queue[0]] {
			for _, id := range partitions[i][1:] {
				to := p.byID[id]
				if _, seen := reached[id]; seen || to.Fenced {
					continue
				}
				reached[id] = hop{queue[0], i}
				if to.leaders+1 < source.leaders {
					p.takeOver(source, to, reached, partitions, led)
					return true
				}
				queue = append(queue, id)
			}
		}
	}
	return false
}

func (p *placer) takeOver(source, last *load, reached map[int32]hop, partitions [][]int32, led map[int32][]int) {
	source.leaders--
	last.leaders++
	for id := last.ID; id != source.ID; {
		h := reached[id]
		replicas := partitions[h.partition]
		at := slices.Index(replicas, id)
		replicas[0], replicas[at] = replicas[at], replicas[0]
		mine := led[h.from]
		led[h.from] = slices.Delete(mine, slices.Index(mine, h.partition), slices.Index(mine, h.partition)+1)
		led[id] = append(led[id], h.partition)
		id = h.from
	}
}
