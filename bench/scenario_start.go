package bench

import (
	"math"
	"os"
	"os/exec"
	"slices"
	"time"

	"weir/test/testnode"
)

// startScenario: from the start of the process to the first answer, of a node with a little data that was stopped cleanly.
func startScenario(b *Bench) {
	b.New()
	cold := b.start()
	l := load{valueBytes: 1 << 10, batchBytes: javaBatch, acks: -1}
	ps := newProducers(b.T, createTopic(b.T, b.System, "start", 12, 1), l, 1)
	ps.run(b.T, 10<<20, inFlight, nil)
	ps.close()
	var took []float64
	for range amount(b, 5, 1) {
		b.System.Stop(b.T)
		took = append(took, b.start())
	}
	b.put(Figure{Name: "start to first answer", Unit: "s", Goal: 1.0 / 15}, Value{Cold: cold, Warm: median(took)})
}

// toolsScenario: how long a command takes that only prints something.
func toolsScenario(b *Bench) {
	var took []float64
	for range amount(b, 7, 1) {
		cmd := exec.Command(testnode.Binary(b.T), "storage", "random-uuid")
		if b.Kind == testnode.Apache {
			cmd = exec.Command(testnode.Oracle(b.T), "kafka-storage", "random-uuid")
			cmd.Env = slices.DeleteFunc(os.Environ(), func(kv string) bool { return kv == "KAFKA_FAST=1" })
		}
		start := time.Now()
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("%v: %v\n%s", cmd.Args, err, out)
		}
		took = append(took, time.Since(start).Seconds())
	}
	b.put(Figure{Name: "storage random-uuid", Unit: "s"}, Value{Cold: took[0], Warm: median(took)})
}

// median of values that are not sorted; NaN of none.
func median(v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(v))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}
