package bench

import (
	"fmt"
	"time"

	"weir/test/testnode"
)

// threeBrokers has two producers at each broker, with three partitions each as those of one node have.
var threeBrokers = shape{partitions: 18, replicas: members, clients: 2}

// The fixed rate of a cluster: each of two producers for each broker sends a batch of ten records of 1 KiB every 12 ms,
// 5 MB/s in all. Three Apache nodes on two cores do not keep up with the rate that one node gets.
const clusterInterval = 12 * time.Millisecond

// clusterScenario: three nodes, every record on all of them before it is acknowledged.
func clusterScenario(b *Bench) {
	sys := b.startTrio()
	settle(b)
	b.put(Figure{Name: "resident, idle", Unit: "MB", Goal: 1.0 / 8}, single(resident(b.T, sys)/1e6))

	l := load{valueBytes: 1 << 10, batchBytes: javaBatch, acks: -1}
	bytes := amount[int64](b, gb/2, 20<<20)
	cold, warm := b.warmUp(bytes, kafkaWarm, func() round { return b.produceRound(threeBrokers, l, bytes) })
	b.put(Figure{Name: l.String() + ": CPU", Unit: "s/GB", Goal: 1.0 / 3}, Value{cold.cpuPerGB, warm.cpuPerGB})
	b.put(Figure{Name: l.String() + ": rate", Unit: "records/s", Goal: 3, More: true}, Value{cold.perSec, warm.perSec})
	most := peak(b.T, sys, func() { b.produceRound(threeBrokers, l, bytes) })
	b.put(Figure{Name: "resident, under load", Unit: "MB", Goal: 1.0 / 8}, single(most/1e6))
	b.clusterLatency()
	b.faults(sys)
}

// clusterLatency is what latencyScenario measures, with acks=all of three replicas.
func (b *Bench) clusterLatency() {
	b.Helper()
	sh := shape{partitions: 2 * members, replicas: members, clients: 2}
	l := load{valueBytes: 1 << 10, batchBytes: pacedBatch, acks: -1}
	bytes := amount[int64](b, gb/4, 10<<20)
	b.warmUp(bytes, 0, func() round { return b.produceRound(sh, l, bytes) })
	tp := b.topic(sh.partitions, sh.replicas)
	ps := newProducers(b.T, tp, l, sh.clients)
	b.paced(ps, tp, clusterInterval, amount(b, pacedWarmup, 100*time.Millisecond))
	before, start := cpu(b.T, b.System), time.Now()
	acked, seen := b.paced(ps, tp, clusterInterval, amount(b, 20*time.Second, 200*time.Millisecond))
	used := (cpu(b.T, b.System) - before) / time.Since(start).Seconds()
	ps.close()
	b.drop(tp)
	rate := func(name string, sorted []time.Duration) {
		b.put(Figure{Name: "5 MB/s " + name + ": p50", Unit: "ms"}, single(quantile(sorted, 0.50)))
		b.put(Figure{Name: "5 MB/s " + name + ": p99", Unit: "ms", Goal: 1.0 / 3}, single(quantile(sorted, 0.99)))
		b.put(Figure{Name: "5 MB/s " + name + ": p99.9", Unit: "ms"}, single(quantile(sorted, 0.999)))
	}
	rate("acknowledged", acked)
	rate("consumed", seen)
	b.put(Figure{Name: "5 MB/s: CPU", Unit: "% of a core"}, single(100*used))
}

// faults measures how long writing stands still when a node goes that leads a partition: killed and stopped in good
// order, and when that node leads the metadata quorum too. Each partition of the probe is led by another node, so that one
// loses its leader and the others a follower; the longest gap of them counts.
func (b *Bench) faults(sys trio) {
	b.Helper()
	tp := createTopic(b.T, sys, "probe", members, members)
	p := startProbe(b.T, sys, tp)
	for _, f := range []struct {
		name string
		how  func(n *testnode.Node)
		lead bool
	}{
		{"kill -9 of a node", func(n *testnode.Node) { n.Kill(b.T) }, false},
		{"kill -9 of the quorum's leader", func(n *testnode.Node) { n.Kill(b.T) }, true},
		{"SIGTERM of a node", func(n *testnode.Node) { n.Stop(b.T) }, false},
		{"SIGTERM of the quorum's leader", func(n *testnode.Node) { n.Stop(b.T) }, true},
	} {
		var gaps []float64
		for range amount(b, 3, 1) {
			n := sys.victim(b.T, f.lead)
			gaps = append(gaps, p.during(b.T, func() {
				f.how(n)
				b.goesOn(sys, tp.name, n)
			}))
			b.progress("%s: no write for %.0f ms", f.name, gaps[len(gaps)-1])
			n.Launch(b.T)
			sys.ready(b.T, n)
			b.whole(sys, []string{tp.name})
			b.preferred(sys, []string{tp.name})
		}
		b.put(Figure{Name: f.name + ": no write for", Unit: "ms"}, single(median(gaps)))
	}
	p.stop()
}

// askEvery is how often a cluster is asked for the state of many partitions, which costs it something.
const askEvery = 20 * time.Millisecond

// clusterLimit is how long it may take until all partitions of a cluster are as they should be.
const clusterLimit = 10 * time.Minute

// goesOn waits until others lead the partitions without a node.
func (b *Bench) goesOn(sys trio, name string, without *testnode.Node) {
	b.Helper()
	pollEvery(b.T, askEvery, clusterLimit, "others lead "+name, func() error {
		return each(sys, []string{name}, func(tp topic, p int) error {
			if tp.leaders[p] == without.Addr || tp.isr[p] == members {
				return fmt.Errorf("%s-%d: node %d leads or is in sync", tp.name, p, without.ID)
			}
			return nil
		})
	})
}

// whole waits until all replicas of all partitions are in sync.
func (b *Bench) whole(sys trio, names []string) {
	b.Helper()
	pollEvery(b.T, askEvery, clusterLimit, "all replicas are in sync", func() error {
		return each(sys, names, func(tp topic, p int) error {
			if tp.isr[p] < members {
				return fmt.Errorf("%s-%d: %d in sync", tp.name, p, tp.isr[p])
			}
			return nil
		})
	})
}

// preferred elects the preferred leaders and waits until they lead, as they say themselves.
func (b *Bench) preferred(sys trio, names []string) {
	b.Helper()
	if err := sys.electPreferred(); err != nil {
		b.Fatal(err)
	}
	pollEvery(b.T, askEvery, clusterLimit, "preferred leaders lead", func() error {
		return each(sys, names, func(tp topic, p int) error {
			if !tp.preferred[p] {
				return fmt.Errorf("%s-%d: another leads", tp.name, p)
			}
			return nil
		})
	})
	pollEvery(b.T, askEvery, clusterLimit, "preferred leaders answer", func() error { return sys.lead(names) })
}

// each looks at every partition of some topics, as one of the nodes tells of it.
func each(sys trio, names []string, look func(tp topic, partition int) error) error {
	topics, err := sys.topics(names)
	if err != nil {
		return err
	}
	for _, tp := range topics {
		for p := range tp.leaders {
			if err := look(tp, p); err != nil {
				return err
			}
		}
	}
	return nil
}
