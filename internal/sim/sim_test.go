package sim

import (
	"bytes"
	"flag"
	"log/slog"
	"os"
	"strconv"
	"testing"
	"time"

	"weir/internal/rng"
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

// TestSeeds runs a few dozen fixed seeds and a few fresh ones, or as many as it is told.
func TestSeeds(t *testing.T) {
	n, fresh := 30, 5
	if s := os.Getenv("WEIR_SEEDS"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	if *seedsFlag > 0 {
		n, fresh = *seedsFlag, 0
	}
	var total Counters
	began, bad := time.Now(), 0
	run := func(seed uint64) {
		c, err := Run(seed, slog.New(slog.DiscardHandler))
		if err != nil && bad < 10 {
			bad++
			t.Errorf("%v\nagain: go test ./internal/sim -run 'TestSeed$' -seed %d", err, seed)
		}
		total.Add(c)
	}
	for i := range n {
		if *stopFlag && bad > 0 {
			break
		}
		run(*fromFlag + uint64(i))
	}
	dice := rng.System()
	for range fresh {
		run(dice.Uint64() >> 16)
	}
	t.Logf("%d seeds, %v each\n%s", n+fresh, time.Since(began)/time.Duration(n+fresh), total)
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
