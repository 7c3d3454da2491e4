package bench

import (
	"math"

	"weir/test/testnode"
)

const gb = 1e9

// round is one go at a load.
type round struct {
	cpuPerGB float64 // s of broker CPU per GB
	perSec   float64 // records
	p99      float64 // ms
}

// Warming: a system is warm when a round costs less than steady away from the one before, and Apache Kafka has also seen
// kafkaWarm bytes, which its compilers take.
const (
	steady    = 0.10
	kafkaWarm = 3 * gb
	maxRounds = 10
)

// warmUp runs rounds of so many bytes until the system is warm, and returns the first and the last round.
func (b *Bench) warmUp(bytes int64, least float64, run func() round) (cold, warm round) {
	b.Helper()
	if b.System.Name() != testnode.Apache {
		least = 0
	}
	if b.Short {
		least = 0
	}
	cold = run()
	warm = cold
	for i := 1; i < maxRounds; i++ {
		before := warm
		warm = run()
		if math.Abs(warm.cpuPerGB-before.cpuPerGB) < steady*before.cpuPerGB && float64(i+1)*float64(bytes) >= least || b.Short {
			return cold, warm
		}
	}
	b.progress("not steady after %d rounds", maxRounds)
	return cold, warm
}
