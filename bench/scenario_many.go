package bench

import (
	"fmt"
	"time"
)

// manyScenario: three nodes with 10,000 partitions of three replicas each: what their creation takes, one node's death and
// return, and the way back to the preferred leaders; and memory at each step.
func manyScenario(b *Bench) {
	sys := b.startTrio()
	count := amount(b, 10_000, 60)
	var names []string
	for i := range manyTopics {
		names = append(names, fmt.Sprintf("many-%d", i))
	}
	memory := func(when string) {
		settle(b)
		b.put(Figure{Name: "resident " + when, Unit: "MB", Goal: 1.0 / 8}, single(resident(b.T, sys)/1e6))
	}
	var topics []topic
	b.put(Figure{Name: fmt.Sprintf("create %d partitions", count), Unit: "s"}, single(b.timed(func() {
		for _, name := range names {
			topics = append(topics, createTopic(b.T, sys, name, int32(count/manyTopics), members))
		}
	})))
	b.put(Figure{Name: "a batch to each, acks=all", Unit: "s"}, single(b.timed(func() {
		for _, tp := range topics {
			b.batchToEach(tp)
		}
	})))
	memory("after that")
	before, start := cpu(b.T, sys), time.Now()
	settle(b)
	b.put(Figure{Name: "idle CPU", Unit: "% of a core"}, single(100*(cpu(b.T, sys)-before)/time.Since(start).Seconds()))

	n := sys.victim(b.T, false)
	b.put(Figure{Name: "kill -9 of a node until others lead", Unit: "s"}, single(b.timed(func() {
		n.Kill(b.T)
		for _, name := range names {
			b.goesOn(sys, name, n)
		}
		pollEvery(b.T, askEvery, clusterLimit, "others answer", func() error { return sys.lead(names) })
	})))
	memory("of the other two")
	b.put(Figure{Name: "restart until all are in sync", Unit: "s"}, single(b.timed(func() {
		n.Launch(b.T)
		sys.ready(b.T, n)
		b.whole(sys, names)
	})))
	memory("after the restart")
	b.put(Figure{Name: "preferred leaders back", Unit: "s"}, single(b.timed(func() { b.preferred(sys, names) })))
	memory("in the end")
}

// batchToEach writes one batch to every partition of a topic and waits until all replicas have it.
func (b *Bench) batchToEach(tp topic) {
	b.Helper()
	l := load{valueBytes: 1 << 10, batchBytes: 1 << 10, acks: -1}
	// So that a request has about 20 batches, as a producer's to many partitions.
	ps := newProducers(b.T, tp, l, max(1, int(tp.partitions)/members/20))
	defer ps.close()
	ps.run(b.T, 1, 1, nil)
}
