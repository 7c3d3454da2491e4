package interop

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"weir/test/testnode"
)

// tally counts what the tests have done, for the result of a long run. It is safe for use by many goroutines.
type tally struct {
	mu     sync.Mutex
	counts map[string]int
	tools  map[string]int
}

var figures = &tally{counts: map[string]int{}, tools: map[string]int{}}

func (c *tally) add(name string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[name] += n
}

// tool counts a run of one of the real tools against Weir.
func (c *tally) tool(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tools[name]++
}

func (c *tally) all() map[string]any {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]any{"tools": slices.Sorted(maps.Keys(c.tools)), "tool_runs": maps.Clone(c.tools)}
	for k, v := range c.counts {
		out[k] = v
	}
	return out
}

// TestMain writes test/results/interop-full.json when a long run has passed and done everything.
func TestMain(m *testing.M) {
	start := time.Now()
	code := m.Run()
	if all := figures.all(); code == 0 && testnode.Full() && figures.counts["datadir_journeys"] > 0 && len(figures.tools) > 0 {
		if err := testnode.SaveResult("interop-full", time.Since(start), all); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}
