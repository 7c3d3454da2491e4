package bench

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/test/testnode"
)

// Figure is what a scenario measures: a row of the table.
type Figure struct {
	Name string
	Unit string
	// Goal is the largest ratio (Weir to Apache Kafka) that is good enough, with More the smallest; 0 when there is none.
	Goal float64
	// More says that a larger value is better.
	More bool
}

// Value is a figure of one system. Cold is that of the first round, NaN where there is no such thing.
type Value struct{ Cold, Warm float64 }

// Row is a figure with what was measured.
type Row struct {
	Figure
	Scenario string
	Values   map[testnode.System]Value
}

// Ratio is Weir's warm value to that of Apache Kafka.
func (r *Row) Ratio() (float64, bool) {
	ours, a := r.Values[testnode.Ours]
	theirs, b := r.Values[testnode.Apache]
	if !a || !b || theirs.Warm == 0 {
		return 0, false
	}
	return ours.Warm / theirs.Warm, true
}

// Verdict is "met" or "missed" for a row with a goal and both values, else "".
func (r *Row) Verdict() string {
	ratio, ok := r.Ratio()
	switch {
	case !ok || r.Goal == 0:
		return ""
	case r.More && ratio >= r.Goal, !r.More && ratio <= r.Goal:
		return "met"
	}
	return "missed"
}

// bound is the sign before the goal.
func (f Figure) bound() string {
	if f.More {
		return "≥"
	}
	return "≤"
}

// Report collects the rows of a run.
type Report struct {
	Short   bool
	Systems []testnode.System
	started time.Time

	mu   sync.Mutex
	rows []*Row
}

// Rows are what was measured, in order.
func (r *Report) Rows() []*Row { return r.rows }

// put enters a warm value; cold is NaN when there is none.
func (b *Bench) put(f Figure, v Value) {
	r := b.report
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.rows, func(row *Row) bool { return row.Scenario == b.scenario && row.Name == f.Name })
	if i < 0 {
		i = len(r.rows)
		r.rows = append(r.rows, &Row{Figure: f, Scenario: b.scenario, Values: map[testnode.System]Value{}})
	}
	r.rows[i].Values[b.Kind] = v
	b.progress("%s: %s %s", f.Name, number(v.Warm), f.Unit)
}

// single is a value that is only measured once.
func single(v float64) Value { return Value{Cold: math.NaN(), Warm: v} }

// Print writes the table.
func (r *Report) Print(w io.Writer) error {
	lines := [][]string{{"", "unit", "weir", "kafka", "ratio", "goal", "", "cold weir", "cold kafka"}}
	scenario := ""
	for _, row := range r.rows {
		if row.Scenario != scenario {
			scenario = row.Scenario
			lines = append(lines, []string{strings.ToUpper(scenario)})
		}
		line := []string{"  " + row.Name, row.Unit, "", "", "", "", row.Verdict(), "", ""}
		for i, s := range []testnode.System{testnode.Ours, testnode.Apache} {
			if v, ok := row.Values[s]; ok {
				line[2+i] = number(v.Warm)
				if !math.IsNaN(v.Cold) {
					line[7+i] = number(v.Cold)
				}
			}
		}
		if ratio, ok := row.Ratio(); ok {
			line[4] = fmt.Sprintf("%.3f", ratio)
		}
		if row.Goal > 0 {
			line[5] = fmt.Sprintf("%s %.3f", row.bound(), row.Goal)
		}
		lines = append(lines, line)
	}
	return writeColumns(w, lines)
}

// writeColumns pads each column to its widest cell; the first one is set flush left, the others flush right.
func writeColumns(w io.Writer, lines [][]string) error {
	var widths [16]int
	for _, line := range lines {
		for i, cell := range line {
			widths[i] = max(widths[i], len([]rune(cell)))
		}
	}
	for _, line := range lines {
		var b strings.Builder
		for i, cell := range line {
			pad := strings.Repeat(" ", widths[i]-len([]rune(cell)))
			if i == 0 {
				b.WriteString(cell + pad)
			} else {
				b.WriteString("  " + pad + cell)
			}
		}
		if _, err := fmt.Fprintln(w, strings.TrimRight(b.String(), " ")); err != nil {
			return err
		}
	}
	return nil
}

// number writes three significant digits, or whole numbers.
func number(v float64) string {
	switch a := math.Abs(v); {
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	case a >= 1:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.3f", v)
}

// scenarioResult is a scenario in test/results/bench.json: what was measured, of which commit and when.
type scenarioResult struct {
	Name   string           `json:"name"`
	Commit string           `json:"commit"`
	Date   string           `json:"date"`
	Rows   []map[string]any `json:"rows"`
}

// resultFile is the part of test/results/bench.json that is read again.
type resultFile struct {
	Figures struct {
		Scenarios []scenarioResult `json:"scenarios"`
	} `json:"figures"`
}

const resultName = "bench"

// Save writes test/results/bench.json. Scenarios that were not run now stay in it as they were.
func (r *Report) Save(t testing.TB) {
	t.Helper()
	var old resultFile
	if err := testnode.ReadResult(resultName, &old); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	commit, err := testnode.Commit()
	if err != nil {
		t.Fatal(err)
	}
	out := r.merge(old.Figures.Scenarios, commit, time.Now())
	testnode.WriteResult(t, resultName, time.Since(r.started), map[string]any{"scenarios": out})
}

// merge puts what was measured now in the place of what was before.
func (r *Report) merge(old []scenarioResult, commit string, now time.Time) []scenarioResult {
	all := map[string]scenarioResult{}
	for _, s := range old {
		all[s.Name] = s
	}
	for i, row := range r.rows {
		s := all[row.Scenario]
		if i == 0 || r.rows[i-1].Scenario != row.Scenario {
			s = scenarioResult{Name: row.Scenario, Commit: commit, Date: now.UTC().Format(time.RFC3339)}
		}
		s.Rows = append(s.Rows, row.fields())
		all[row.Scenario] = s
	}
	out := make([]scenarioResult, 0, len(all))
	for _, s := range Scenarios() {
		if f, ok := all[s.Name]; ok {
			out = append(out, f)
		}
	}
	return out
}

// fields is the row as JSON.
func (r *Row) fields() map[string]any {
	m := map[string]any{"name": r.Name, "unit": r.Unit}
	for s, v := range r.Values {
		m[string(s)] = rounded(v.Warm)
		if !math.IsNaN(v.Cold) {
			m[string(s)+" cold"] = rounded(v.Cold)
		}
	}
	if ratio, ok := r.Ratio(); ok {
		m["ratio"] = rounded(ratio)
	}
	if r.Goal > 0 {
		m["goal"], m["verdict"] = rounded(r.Goal), r.Verdict()
	}
	return m
}

// rounded keeps four significant digits, so that a file of results shows what changed and not noise.
func rounded(v float64) float64 {
	if v == 0 {
		return 0
	}
	scale := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(v))))
	return math.Round(v*scale) / scale
}
