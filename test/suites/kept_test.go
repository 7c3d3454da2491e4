package suites

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// outcome is what a suite said of a test.
type outcome string

const (
	passed  outcome = "PASS"
	failed  outcome = "FAIL"
	skipped outcome = "SKIP"
)

// parseResults reads lines "PASS name", "FAIL name", "SKIP name". A test that failed once in a run has failed.
func parseResults(text string) map[string]outcome {
	results := map[string]outcome{}
	for line := range strings.Lines(text) {
		how, name, ok := strings.Cut(strings.TrimSpace(line), " ")
		if o := outcome(how); ok && results[name] != failed {
			results[name] = o
		}
	}
	return results
}

var testLine = regexp.MustCompile(`(?m)^\x16?\s*--- (PASS|FAIL|SKIP): (\S+) \(`)

// parseVerbose reads the output of a Go test binary that was run with -test.v, also with -test.v=test2json, which marks
// its lines.
func parseVerbose(text string) map[string]outcome {
	results := map[string]outcome{}
	for _, m := range testLine.FindAllStringSubmatch(text, -1) {
		results[m[2]] = outcome(m[1])
	}
	return results
}

// readList reads names, one a line; # begins a comment.
func readList(text string) []string {
	var names []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			names = append(names, line)
		}
	}
	return names
}

// compare finds what is kept and has not passed, and what has passed on both systems and is not kept.
func compare(kept, reference []string, results map[string]outcome) (lost, gained []string) {
	for _, name := range kept {
		if results[name] != passed {
			lost = append(lost, name)
		}
	}
	for name, how := range results {
		if how == passed && slices.Contains(reference, name) && !slices.Contains(kept, name) {
			gained = append(gained, name)
		}
	}
	slices.Sort(gained)
	return lost, gained
}

// keptList is NAME.pass of this package's folder.
func keptList(t *testing.T, name string) (path string, names []string) {
	t.Helper()
	path = name + ".pass"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return path, readList(string(text))
}

// judge compares results with the kept list. reference is the suite's own list: what passes on Apache Kafka.
func judge(t *testing.T, list string, reference []string, results map[string]outcome) {
	t.Helper()
	path, kept := keptList(t, list)
	lost, gained := compare(kept, reference, results)
	for _, name := range lost {
		how := results[name]
		if how == "" {
			how = "not run"
		}
		t.Errorf("%s: %s, but %s says that it passes", name, how, path)
	}
	t.Logf("%s: %d kept, %d lost, %d gained, %d pass on Apache Kafka", list, len(kept), len(lost), len(gained), len(reference))
	if len(gained) == 0 {
		return
	}
	if os.Getenv("WEIR_SUITES_ADD") == "" {
		t.Logf("pass, and are not in %s (WEIR_SUITES_ADD=1 adds them):\n  %s", path, strings.Join(gained, "\n  "))
		return
	}
	if err := addTo(path, gained); err != nil {
		t.Fatal(err)
	}
	t.Logf("added to %s:\n  %s", path, strings.Join(gained, "\n  "))
}

// addTo puts names into a list. The comments at its head stay.
func addTo(path string, names []string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var head strings.Builder
	for line := range strings.Lines(string(text)) {
		if line[0] == '#' {
			head.WriteString(line)
		}
	}
	all := append(readList(string(text)), names...)
	slices.Sort(all)
	return os.WriteFile(path, []byte(head.String()+strings.Join(slices.Compact(all), "\n")+"\n"), 0o644)
}

func TestCompare(t *testing.T) {
	results := parseResults("PASS a\nFAIL b\nPASS c\nFAIL c\nPASS d\nPASS e\nSKIP f\nPASS h\n")
	lost, gained := compare([]string{"a", "b", "c", "f", "g"}, []string{"a", "b", "c", "d", "h"}, results)
	if fmt.Sprint(lost) != "[b c f g]" || fmt.Sprint(gained) != "[d h]" {
		t.Errorf("lost %v, gained %v", lost, gained)
	}
	results = parseVerbose("=== RUN TestA\n--- PASS: TestA (0.1s)\n    --- FAIL: TestB/x (1.00s)\n--- SKIP: TestC (0.00s)\n\x16--- PASS: TestD (1.00s)\n")
	if results["TestA"] != passed || results["TestB/x"] != failed || results["TestC"] != skipped || results["TestD"] != passed || len(results) != 4 {
		t.Errorf("%v", results)
	}
	path := filepath.Join(t.TempDir(), "x.pass")
	if err := os.WriteFile(path, []byte("# head\nb\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := addTo(path, []string{"c", "a", "b"}); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "# head\na\nb\nc\n" {
		t.Errorf("%q, %v", text, err)
	}
}
