package bench

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// The fixed rate: each of the clients sends a batch of ten records of 1 KiB every 2 ms, 20 MB/s in all.
const (
	interval    = 2 * time.Millisecond
	pacedBatch  = 10 << 10
	pacedDepth  = 4096 // unanswered requests; a system that stalls does not slow the schedule down
	pacedWarmup = 5 * time.Second
)

// latencyScenario: from when a request is due until it is acknowledged, and until a consumer has its records, at a fixed
// rate. A late answer does not delay later requests, and counts from when they were due.
func latencyScenario(b *Bench) {
	b.Start()
	least := kafkaWarm
	for _, acks := range []int16{1, -1} {
		l := load{valueBytes: 1 << 10, batchBytes: pacedBatch, acks: acks}
		bytes := amount[int64](b, gb/2, 10<<20)
		b.warmUp(bytes, least, func() round { return b.produceRound(oneBroker, l, bytes) })
		least = 0
		tp := b.topic(clients, 1)
		ps := newProducers(b.T, tp, l, clients)
		b.paced(ps, tp, interval, amount(b, pacedWarmup, 100*time.Millisecond))
		acked, seen := b.paced(ps, tp, interval, amount(b, 20*time.Second, 200*time.Millisecond))
		ps.close()
		b.drop(tp)
		b.putLatency(fmt.Sprintf("acks=%d acknowledged", acks), acked)
		b.putLatency(fmt.Sprintf("acks=%d consumed", acks), seen)
	}
}

func (b *Bench) putLatency(name string, sorted []time.Duration) {
	b.put(Figure{Name: name + ": p50", Unit: "ms"}, single(quantile(sorted, 0.50)))
	b.put(Figure{Name: name + ": p99", Unit: "ms", Goal: 1.0 / 2}, single(quantile(sorted, 0.99)))
	b.put(Figure{Name: name + ": p99.9", Unit: "ms"}, single(quantile(sorted, 0.999)))
}

// paced runs producers, and a consumer for each partition, at the fixed rate of a request every so often, and returns both
// kinds of delays, ascending. Each partition is in the requests of one producer, alone.
func (b *Bench) paced(ps producers, tp topic, every, length time.Duration) (acked, seen []time.Duration) {
	b.Helper()
	ends, err := endsOf(b.System, tp)
	if err != nil {
		b.Fatal(err)
	}
	n := int(length / every)
	begin := time.Now().Add(50 * time.Millisecond)
	due := func(i int) time.Time { return begin.Add(time.Duration(i) * every) }
	delays, errs := make([][]time.Duration, tp.partitions), make([]error, tp.partitions)
	var wg sync.WaitGroup
	for i := range tp.partitions {
		f, err := newConsumer(tp, []int32{i})
		if err != nil {
			b.Fatal(err)
		}
		f.offsets[i] = ends[i]
		wg.Go(func() {
			defer f.close()
			delays[i], errs[i] = f.watch(i, n, ps[0].load.records(), due)
		})
	}
	s := ps.run(b.T, int64(n)*int64(len(ps))*ps[0].bytes(), pacedDepth, due)
	wg.Wait()
	for i := range errs {
		if errs[i] != nil {
			b.Fatal(errs[i])
		}
		seen = append(seen, delays[i]...)
	}
	slices.Sort(seen)
	return s.delays, seen
}

// watch reads n batches of a partition as they come and notes how long each took since it was due.
func (f *consumer) watch(partition int32, n, records int, due pace) ([]time.Duration, error) {
	first := f.offsets[partition]
	out := make([]time.Duration, 0, n)
	for len(out) < n {
		if _, err := f.fetch(); err != nil {
			return nil, err
		}
		now := time.Now()
		for whole := int(f.offsets[partition]-first) / records; len(out) < whole; {
			out = append(out, now.Sub(due(len(out))))
		}
	}
	return out, nil
}
