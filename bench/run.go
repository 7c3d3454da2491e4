package bench

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weir/test/testnode"
)

// Scenario measures one thing. Run is called once for each system, with its own nodes.
type Scenario struct {
	Name string
	Run  func(b *Bench)
}

// Scenarios are all that there are, in the order of the table.
func Scenarios() []Scenario {
	return []Scenario{
		{"start", startScenario},
		{"tools", toolsScenario},
		{"memory", memoryScenario},
		{"produce", produceScenario},
		{"consume", consumeScenario},
		{"latency", latencyScenario},
		{"partitions", partitionsScenario},
		{"cluster", clusterScenario},
		{"many", manyScenario},
		{"java", javaScenario},
	}
}

// Options say what to run.
type Options struct {
	Only    []string          // names of scenarios; all when empty
	Systems []testnode.System // both when empty
	Short   bool              // a little of everything: shows that it works, measures nothing
	// Lock is a file that is held exclusively (flock) while one scenario measures one system, so that other work on the
	// machine can wait for its turn between them. "" locks nothing.
	Lock string
}

// Bench is one scenario on one system.
type Bench struct {
	*testing.T
	Kind  testnode.System
	Short bool
	// System is what Start made.
	System System

	scenario string
	report   *Report
	topics   int // made so far
}

// Run measures what is asked for. A scenario that fails on one system leaves its rows half empty and fails the test; the
// others go on.
func Run(t *testing.T, o Options) *Report {
	t.Helper()
	if len(o.Systems) == 0 {
		o.Systems = []testnode.System{testnode.Ours, testnode.Apache}
	}
	report := &Report{Short: o.Short, Systems: o.Systems, started: time.Now()}
	known := Scenarios()
	for _, name := range o.Only {
		if !slices.ContainsFunc(known, func(s Scenario) bool { return s.Name == name }) {
			t.Fatalf("no scenario %q; there are %s", name, names(known))
		}
	}
	for _, s := range known {
		if len(o.Only) > 0 && !slices.Contains(o.Only, s.Name) {
			continue
		}
		for _, kind := range o.Systems {
			t.Run(s.Name+"/"+string(kind), func(t *testing.T) {
				unlock := lock(t, o.Lock)
				t.Cleanup(unlock) // after the nodes have gone
				b := &Bench{T: t, Kind: kind, Short: o.Short, scenario: s.Name, report: report}
				if !b.Short {
					if err := claimMemory(); err != nil {
						t.Fatal(err)
					}
				}
				b.progress("begins")
				others := startWatch(t)
				start := time.Now()
				s.Run(b)
				b.progress("done after %.0f s; %.0f %% of the CPU time was used by others", time.Since(start).Seconds(), 100*others.share(b))
			})
		}
	}
	return report
}

func names(all []Scenario) string {
	var out []string
	for _, s := range all {
		out = append(out, s.Name)
	}
	return strings.Join(out, ", ")
}

// lock waits for the file and holds it until the returned function is called.
func lock(t testing.TB, path string) func() {
	t.Helper()
	if path == "" {
		return func() {}
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

// progress tells on stderr where the run is.
func (b *Bench) progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s %-10s %-5s %s\n", time.Now().Format("15:04:05"), b.scenario, b.Kind, fmt.Sprintf(format, args...))
}

// New formats a node of the system under test, which Launch or Start starts.
func (b *Bench) New() {
	b.Helper()
	b.System = NewOneNode(b.T, b.Kind, nil)
}

// Start formats and starts a node.
func (b *Bench) Start() {
	b.Helper()
	b.New()
	b.start()
}

// startTrio formats and starts three nodes.
func (b *Bench) startTrio() trio {
	b.Helper()
	c := newTrio(b.T, b.Kind)
	b.System = c
	b.start()
	return c
}

// start starts the node and returns how long it took to its first answer, in s.
func (b *Bench) start() float64 {
	b.Helper()
	begin := time.Now()
	b.System.Launch(b.T)
	b.System.Ready(b.T)
	return time.Since(begin).Seconds()
}

// amount is full, or in the short form short.
func amount[N ~int | ~int64 | ~float64](b *Bench, full, short N) N {
	if b.Short {
		return short
	}
	return full
}
