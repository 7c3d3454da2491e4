package bench

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// manyPartitions are spread over so many topics.
const manyTopics = 5

// partitionsScenario: a node with 5,000 partitions that hold 2 GB: memory, idle CPU, stop, clean restart, restart after
// kill -9. A restart has ended when every partition tells its end.
func partitionsScenario(b *Bench) {
	b.Start()
	count := amount(b, 5000, 50)
	var topics []topic
	begin := time.Now()
	for i := range manyTopics {
		topics = append(topics, createTopic(b.T, b.System, fmt.Sprintf("many-%d", i), int32(count/manyTopics), 1))
	}
	b.put(Figure{Name: fmt.Sprintf("create %d partitions", count), Unit: "s"}, single(time.Since(begin).Seconds()))
	b.fill(topics, amount[int64](b, 2*gb, 4<<20))
	settle(b)
	before, start := cpu(b.T, b.System), time.Now()
	settle(b)
	b.put(Figure{Name: "idle CPU", Unit: "% of a core"}, single(100*(cpu(b.T, b.System)-before)/time.Since(start).Seconds()))
	b.put(Figure{Name: "resident", Unit: "MB", Goal: 1.0 / 6}, single(resident(b.T, b.System)/1e6))
	ends := b.ends(topics)

	// What the disk still has to take would cost both systems the same time.
	unix.Sync()
	stop := b.timed(func() { b.System.Stop(b.T) })
	b.put(Figure{Name: "stop", Unit: "s", Goal: 1.0 / 8}, single(stop))
	b.put(Figure{Name: "clean restart", Unit: "s", Goal: 1.0 / 8}, single(b.restart(topics, ends)))
	settle(b)
	b.put(Figure{Name: "resident after a restart", Unit: "MB", Goal: 1.0 / 6}, single(resident(b.T, b.System)/1e6))

	// What was stopped cleanly is safe: the kill must find 2 GB that were written by this very process.
	for _, tp := range topics {
		deleteTopic(b.T, b.System, tp)
	}
	topics = nil
	for i := range manyTopics {
		topics = append(topics, createTopic(b.T, b.System, fmt.Sprintf("killed-%d", i), int32(count/manyTopics), 1))
	}
	b.fill(topics, amount[int64](b, 2*gb, 4<<20))
	ends = b.ends(topics)
	b.System.Kill(b.T)
	b.put(Figure{Name: "restart after kill -9", Unit: "s", Goal: 1.0 / 8}, single(b.restart(topics, ends)))
	stop = b.timed(func() { b.System.Stop(b.T) })
	b.put(Figure{Name: "stop after that, with 2 GB to write", Unit: "s"}, single(stop))
}

func (b *Bench) timed(work func()) float64 {
	start := time.Now()
	work()
	return time.Since(start).Seconds()
}

// fill spreads so many bytes over all partitions.
func (b *Bench) fill(topics []topic, bytes int64) {
	b.Helper()
	l := load{valueBytes: 1 << 10, batchBytes: javaBatch, acks: 1}
	for _, tp := range topics {
		// So that a request has about 20 batches, as a producer's to many partitions.
		ps := newProducers(b.T, tp, l, max(1, int(tp.partitions)/20))
		ps.run(b.T, bytes/int64(len(topics)), 1, nil)
		ps.close()
	}
}

// ends are the log ends of all partitions.
func (b *Bench) ends(topics []topic) [][]int64 {
	b.Helper()
	var out [][]int64
	for _, tp := range topics {
		e, err := endsOf(b.System, tp)
		if err != nil {
			b.Fatal(err)
		}
		out = append(out, e)
	}
	return out
}

// restart starts the node and waits until each partition has a leader that tells the end it had before. It returns s.
func (b *Bench) restart(topics []topic, want [][]int64) float64 {
	b.Helper()
	return b.timed(func() {
		b.System.Launch(b.T)
		for i, tp := range topics {
			poll(b.T, readyLimit, "ends of "+tp.name, func() error {
				got, err := endsOf(b.System, tp)
				if err != nil {
					return err
				}
				for p := range got {
					if got[p] != want[i][p] {
						return fmt.Errorf("%s-%d ends at %d, before at %d", tp.name, p, got[p], want[i][p])
					}
				}
				return nil
			})
		}
	})
}
