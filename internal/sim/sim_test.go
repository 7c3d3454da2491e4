package sim

import (
	"bytes"
	"flag"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weir/internal/rng"
	"weir/test/testnode"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "the seed that TestSeed runs")
	seedsFlag = flag.Int("seeds", 0, "how many seeds TestSeeds runs, from -from on; 0: WEIR_SEEDS, or a few")
	stopFlag  = flag.Bool("stop", false, "TestSeeds ends at the first seed that fails")
	fromFlag  = flag.Uint64("from", 1, "the first seed of TestSeeds")
)

// TestSeed runs one seed with its log.
func TestSeed(t *testing.T) {
	if *seedFlag == 0 {
		t.Skip("no -seed")
	}
	c, err := Run(*seedFlag, slog.New(slog.NewTextHandler(os.Stdout, nil)))
	t.Logf("\n%s", c)
	if err != nil {
		t.Fatal(err)
	}
}

// TestSeeds runs a few dozen fixed seeds and a few fresh ones, or as many as it is told; a long run writes what happened.
func TestSeeds(t *testing.T) {
	n, fresh, long := 30, 5, false
	if s := os.Getenv("WEIR_SEEDS"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
		long = n >= 2000
	}
	if *seedsFlag > 0 {
		n, fresh, long = *seedsFlag, 0, false
	}
	var seeds []uint64
	for i := range n {
		seeds = append(seeds, *fromFlag+uint64(i))
	}
	for dice := rng.System(); len(seeds) < n+fresh; {
		seeds = append(seeds, dice.Uint64()>>16)
	}
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // worlds are small, and thrown away
	began, before := time.Now(), processorTime(t)
	total := runSeeds(t, seeds)
	each := ((processorTime(t) - before) / time.Duration(len(seeds))).Round(10 * time.Microsecond)
	t.Logf("%d seeds, each %v of a processor\n%s", len(seeds), each, total)
	if long && !t.Failed() {
		testnode.WriteResult(t, "sim", time.Since(began), map[string]any{"seeds": len(seeds), "cpu_ms_each": float64(each.Microseconds()) / 1000, "happened": byName(total)})
	}
}

// processorTime is what this process has used so far.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// runSeeds runs seeds on all processors, each world on one.
func runSeeds(t *testing.T, seeds []uint64) (total Counters) {
	var mu sync.Mutex
	bad, next := 0, 0
	take := func() (uint64, bool) {
		mu.Lock()
		defer mu.Unlock()
		if next == len(seeds) || *stopFlag && bad > 0 {
			return 0, false
		}
		next++
		return seeds[next-1], true
	}
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for seed, ok := take(); ok; seed, ok = take() {
				c, err := Run(seed, slog.New(slog.DiscardHandler))
				mu.Lock()
				total.Add(c)
				if err != nil {
					if bad++; bad <= 10 {
						t.Errorf("%v\nagain: go test ./internal/sim -run 'TestSeed$' -seed %d", err, seed)
					}
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	return total
}

func byName(c Counters) map[string]int {
	out := map[string]int{}
	for _, x := range c.counts() {
		out[x.name] = *x.n
	}
	return out
}

// TestSameSeedSameRun: a seed replays exactly, down to the log.
func TestSameSeedSameRun(t *testing.T) {
	for seed := uint64(1); seed <= 3; seed++ {
		var logs [2]bytes.Buffer
		for i := range logs {
			if _, err := Run(seed, slog.New(slog.NewTextHandler(&logs[i], nil))); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(logs[0].Bytes(), logs[1].Bytes()) {
			t.Errorf("seed %d had two runs", seed)
		}
	}
}
