package bench

import (
	"fmt"
)

// consumeScenario: consumers read what stands in the page cache, as fast as they can.
func consumeScenario(b *Bench) {
	b.Start()
	least := kafkaWarm
	bytes := amount[int64](b, gb/2, 20<<20)
	for _, l := range loads() {
		if l.acks != 1 {
			continue // makes no difference to who reads
		}
		tp := b.topic(partitions, 1)
		ps := newProducers(b.T, tp, l, clients)
		s := ps.run(b.T, bytes, inFlight, nil)
		ps.close()
		cold, warm := b.warmUp(bytes, least, func() round { return b.consumeRound(tp, l, s) })
		b.drop(tp)
		least = 0
		name := fmt.Sprintf("%d B %s", l.valueBytes, l.codec)
		b.put(Figure{Name: name + ": CPU", Unit: "s/GB", Goal: 3.0 / 4}, Value{cold.cpuPerGB, warm.cpuPerGB})
		b.put(Figure{Name: name + ": rate", Unit: "records/s", More: true}, Value{cold.perSec, warm.perSec})
	}
}

func (b *Bench) consumeRound(tp topic, l load, s sent) round {
	const passes = 4 // the kernel counts CPU time in 1/100 s
	before := cpu(b.T, b.System)
	var all received
	for range passes {
		r := consume(b.T, b.System, tp, clients, s.records)
		all.records, all.took = all.records+r.records, all.took+r.took
	}
	out := round{cpuPerGB: (cpu(b.T, b.System) - before) / (passes * float64(s.bytes) / gb), perSec: float64(all.records) / all.took.Seconds()}
	b.progress("%s: %.2f CPU s/GB, %.0f records/s", l, out.cpuPerGB, out.perSec)
	return out
}
