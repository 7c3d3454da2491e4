package bench

import (
	"sync"
	"time"
)

// memoryScenario: resident memory of an idle node, and its peak while producers and consumers work.
func memoryScenario(b *Bench) {
	b.Start()
	l := load{valueBytes: 1 << 10, batchBytes: javaBatch, acks: -1}
	tp := b.topic(partitions, 1)
	settle(b)
	b.put(Figure{Name: "resident, idle", Unit: "MB", Goal: 1.0 / 6}, single(resident(b.T, b.System)/1e6))
	bytes := amount[int64](b, gb/2, 20<<20)
	b.warmUp(bytes, kafkaWarm, func() round { return b.produceRound(oneBroker, l, bytes) })
	ps := newProducers(b.T, tp, l, clients)
	ps.run(b.T, bytes/2, inFlight, nil)
	most := peak(b.T, b.System, func() { b.both(ps, tp, bytes) })
	ps.close()
	b.put(Figure{Name: "resident, under load", Unit: "MB", Goal: 1.0 / 6}, single(most/1e6))
}

// both lets the consumers read what is there, from the beginning, while the producers go on.
func (b *Bench) both(ps producers, tp topic, bytes int64) {
	b.Helper()
	ends, err := endsOf(b.System, tp)
	if err != nil {
		b.Fatal(err)
	}
	errs := make([]error, clients)
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() { _, errs[i] = consumeShare(tp, i, clients, ends) })
	}
	ps.run(b.T, bytes, inFlight, nil)
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			b.Fatal(err)
		}
	}
}

// settle waits for what a node does by itself soon after a start or a load: there is no event that tells.
func settle(b *Bench) {
	pause := time.NewTimer(amount(b, 5*time.Second, 10*time.Millisecond))
	<-pause.C
}
