package bench

import (
	"flag"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"weir/test/testnode"
)

var flags = struct {
	full          *bool
	only, systems *string
	small         *bool
	lock          *string
}{
	flag.Bool("full", false, "measure, and write test/results/bench.json when both systems are"),
	flag.String("only", "", "scenarios to run, separated by commas; all when empty"),
	flag.String("system", "", "weir or kafka; both when empty"),
	flag.Bool("small", false, "a little of everything"),
	flag.String("lock", "", "file to hold exclusively while something is measured"),
}

// TestBench is `make bench`.
func TestBench(t *testing.T) {
	if !*flags.full {
		t.Skip("measuring takes long and wants a quiet machine: make bench")
	}
	o := Options{Only: list(*flags.only), Short: *flags.small, Lock: *flags.lock}
	for _, s := range list(*flags.systems) {
		o.Systems = append(o.Systems, testnode.System(s))
	}
	report := Run(t, o)
	if err := report.Print(os.Stdout); err != nil {
		t.Fatal(err)
	}
	if len(o.Systems) == 0 && !o.Short && !t.Failed() {
		report.Save(t)
	}
}

func list(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}

// TestSmoke runs every scenario on Weir with next to no load, so that the benchmark does not rot.
func TestSmoke(t *testing.T) {
	if *flags.full {
		t.Skip("the real thing runs")
	}
	report := Run(t, Options{Systems: []testnode.System{testnode.Ours}, Short: true})
	measured := map[string]bool{}
	for _, row := range report.Rows() {
		measured[row.Scenario] = true
		// An idle node and a short round may cost less CPU than the kernel counts in.
		if v := row.Values[testnode.Ours].Warm; math.IsNaN(v) || v < 0 || v == 0 && !strings.Contains(row.Name, "CPU") {
			t.Errorf("%s: %s is %v", row.Scenario, row.Name, v)
		}
	}
	for _, s := range Scenarios() {
		if s.Name != "java" && !measured[s.Name] {
			t.Errorf("scenario %s measured nothing", s.Name)
		}
	}
}

// TestTable shows a row of each kind.
func TestTable(t *testing.T) {
	both := func(ours, theirs Value) map[testnode.System]Value {
		return map[testnode.System]Value{testnode.Ours: ours, testnode.Apache: theirs}
	}
	r := Report{rows: []*Row{
		{Figure{Name: "fast", Unit: "s", Goal: 0.5}, "a", both(single(0.25), single(1))},
		{Figure{Name: "slow", Unit: "s", Goal: 0.5}, "a", both(Value{2, 0.75}, Value{3, 1})},
		{Figure{Name: "rate", Unit: "records/s", More: true}, "b", both(single(200), single(100))},
		{Figure{Name: "alone", Unit: "MB", Goal: 0.5}, "b", map[testnode.System]Value{testnode.Ours: single(12.34)}},
	}}
	var out strings.Builder
	if err := r.Print(&out); err != nil {
		t.Fatal(err)
	}
	const want = `
              unit   weir  kafka  ratio     goal          cold weir  cold kafka
A
  fast           s  0.250   1.00  0.250  ≤ 0.500     met
  slow           s  0.750   1.00  0.750  ≤ 0.500  missed       2.00        3.00
B
  rate   records/s    200    100  2.000
  alone         MB   12.3                ≤ 0.500
`
	if got := "\n" + out.String(); got != want {
		t.Errorf("the table is\n%s\nnot\n%s", got, want)
	}
}

// TestMerge keeps what was not measured now, and replaces the rest whole.
func TestMerge(t *testing.T) {
	r := Report{rows: []*Row{
		{Figure{Name: "a"}, "produce", map[testnode.System]Value{testnode.Ours: single(1)}},
		{Figure{Name: "b"}, "produce", map[testnode.System]Value{testnode.Ours: single(2)}},
	}}
	old := []scenarioResult{
		{Name: "start", Commit: "old", Rows: []map[string]any{{"name": "kept"}}},
		{Name: "produce", Commit: "old", Rows: []map[string]any{{"name": "gone"}}},
	}
	got := r.merge(old, "new", time.Unix(0, 0))
	if len(got) != 2 || got[0].Name != "start" || got[0].Commit != "old" || len(got[0].Rows) != 1 {
		t.Fatalf("got %+v", got)
	}
	if p := got[1]; p.Name != "produce" || p.Commit != "new" || p.Date != "1970-01-01T00:00:00Z" || len(p.Rows) != 2 || p.Rows[1]["name"] != "b" {
		t.Errorf("got %+v", p)
	}
}

// TestQuantile pins which element a quantile is.
func TestQuantile(t *testing.T) {
	var d []time.Duration
	for i := range 1000 {
		d = append(d, time.Duration(i)*time.Millisecond)
	}
	for q, want := range map[float64]float64{0: 0, 0.5: 500, 0.99: 990, 0.999: 999, 1: 999} {
		if got := quantile(d, q); got != want {
			t.Errorf("quantile %v is %v, not %v", q, got, want)
		}
	}
}
