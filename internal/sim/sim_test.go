package sim

import (
	"flag"
	"log/slog"
	"os"
	"strconv"
	"testing"
	"time"
)

var seedFlag = flag.Uint64("seed", 0, "the seed that TestSeed runs")

// TestSeed runs one seed with its log.
func TestSeed(t *testing.T) {
	if *seedFlag == 0 {
		t.Skip("no -seed")
	}
	h := slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{Level: slog.LevelInfo})
	c, err := Run(*seedFlag, slog.New(h))
	t.Logf("\n%s", c)
	if err != nil {
		t.Fatal(err)
	}
}

// TestSeeds runs many: WEIR_SEEDS, or a few dozen fixed ones and a few fresh.
func TestSeeds(t *testing.T) {
	n := 40
	if s := os.Getenv("WEIR_SEEDS"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	var total Counters
	began := time.Now()
	for seed := uint64(1); seed <= uint64(n); seed++ {
		c, err := Run(seed, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		total.Add(c)
	}
	t.Logf("%d seeds, %v each\n%s", n, time.Since(began)/time.Duration(n), total)
}
