package bench

import (
	"fmt"

	"weir/internal/batch"
)

// The shape of the topics of one node that are produced to and consumed from: each client has three partitions.
const (
	clients    = 4
	partitions = 12
)

// shape is that of a topic and of those who produce to it.
type shape struct {
	partitions int
	replicas   int16
	clients    int // for each broker
}

var oneBroker = shape{partitions, 1, clients}

// loads are all kinds of produced records.
func loads() []load {
	var out []load
	for _, size := range []int{1 << 10, 100} {
		for _, codec := range []batch.Codec{batch.None, batch.Lz4} {
			for _, acks := range []int16{1, -1} {
				out = append(out, load{valueBytes: size, batchBytes: javaBatch, codec: codec, acks: acks})
			}
		}
	}
	return out
}

// produceScenario: producers send as fast as they are answered.
func produceScenario(b *Bench) {
	b.Start()
	least := kafkaWarm
	bytes := amount[int64](b, gb/2, 20<<20)
	for _, l := range loads() {
		cold, warm := b.warmUp(bytes, least, func() round { return b.produceRound(oneBroker, l, bytes) })
		least = 0
		b.putProduce(l.String(), cold, warm)
	}
	// The same with large batches, as busy clients with a linger send them.
	l := load{valueBytes: 1 << 10, batchBytes: 256 << 10, acks: 1}
	cold, warm := b.warmUp(bytes, 0, func() round { return b.produceRound(oneBroker, l, bytes) })
	b.putProduce(l.String()+", batches of 256 KiB", cold, warm)
}

func (b *Bench) putProduce(name string, cold, warm round) {
	b.put(Figure{Name: name + ": CPU", Unit: "s/GB", Goal: 1.0 / 2}, Value{cold.cpuPerGB, warm.cpuPerGB})
	b.put(Figure{Name: name + ": rate", Unit: "records/s", More: true}, Value{cold.perSec, warm.perSec})
}

// produceRound sends so many bytes to a topic of its own, which goes before the disk has to take what was sent: what the
// disk does when the page cache is full is not what is measured.
func (b *Bench) produceRound(sh shape, l load, bytes int64) round {
	b.Helper()
	tp := b.topic(sh.partitions, sh.replicas)
	ps := newProducers(b.T, tp, l, sh.clients)
	before := cpu(b.T, b.System)
	s := ps.run(b.T, bytes, inFlight, nil)
	used := cpu(b.T, b.System) - before
	ps.close()
	b.drop(tp)
	r := round{cpuPerGB: used / (float64(s.bytes) / gb), perSec: float64(s.records) / s.took.Seconds()}
	b.progress("%s: %.2f CPU s/GB, %.0f records/s", l, r.cpuPerGB, r.perSec)
	return r
}

// topic makes a topic with a new name.
func (b *Bench) topic(partitions int, replicas int16) topic {
	b.Helper()
	b.topics++
	return createTopic(b.T, b.System, fmt.Sprintf("bench-%d", b.topics), int32(partitions), replicas)
}

// drop deletes a topic and waits until its files have gone.
func (b *Bench) drop(tp topic) {
	b.Helper()
	deleteTopic(b.T, b.System, tp)
	poll(b.T, patience, "the files of "+tp.name+" go", func() error { return b.System.Holds(tp.name) })
}
