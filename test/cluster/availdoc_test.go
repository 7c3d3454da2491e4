package cluster

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"weir/test/testnode"
)

// TestEveryPromiseHasATest: docs/availability.md names, for each promise from A1 to E2, tests that are there.
func TestEveryPromiseHasATest(t *testing.T) {
	t.Parallel()
	root, err := testnode.Root()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "availability.md"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		code.Write(text)
	}
	rows := map[string][]string{}
	named := regexp.MustCompile("`(Test[^`]*)`")
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, "|")
		if len(cells) < 5 {
			continue
		}
		for _, m := range named.FindAllStringSubmatch(cells[3], -1) {
			promise := strings.TrimSpace(cells[1])
			rows[promise] = append(rows[promise], m[1])
			test, part, sub := strings.Cut(m[1], "/")
			if !strings.Contains(code.String(), "func "+test+"(") || sub && !strings.Contains(code.String(), `{"`+part+`", `) {
				t.Errorf("%s: there is no %s", promise, m[1])
			}
		}
	}
	for _, promise := range strings.Fields("A1 A2 A3 A4 B1 B2 B3 B4 B5 B6 C1 C2 C3 C4 C5 C6 C7 C8 C9 C10 D1 D2 D3 E1 E2") {
		if len(rows[promise]) == 0 {
			t.Errorf("no test of %s is named", promise)
		}
	}
}
