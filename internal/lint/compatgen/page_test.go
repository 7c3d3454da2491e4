package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// The page in the repository is what the comments say now.
func TestPageIsUpToDate(t *testing.T) {
	want, err := page(filepath.Join("..", "..", "api"))
	if err != nil {
		t.Fatal(err)
	}
	have, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "compat.md"))
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != string(want) {
		t.Error("docs/compat.md is not what the comments in internal/api say: run go generate ./internal/lint/compatgen")
	}
	for _, part := range []string{"| 0 | [Produce](#produce) | 0–13 | broker |", "| 11 | [JoinGroup](#joingroup) | 0–9 | broker |", "### Fetch"} {
		if !strings.Contains(string(want), part) {
			t.Errorf("the page lacks %q", part)
		}
	}
}

func TestParse(t *testing.T) {
	d := parse("Both serves an API (API key 7), versions 0–2. It answers\nat once.\n\n\tAlpha  v1  names; v2 flexible\n\tBeta   v0–v1  ids, and more; not only\n\n" +
		"Unlike others it waits.\n\nNot implemented: racks,\nwhich are ignored.\n")
	want := doc{
		text:     []string{"It answers at once.", "Unlike others it waits."},
		versions: []change{{"Alpha", "v1", "names"}, {"Alpha", "v2", "flexible"}, {"Beta", "v0–v1", "ids, and more; not only"}},
		missing:  "racks, which are ignored.",
	}
	if !reflect.DeepEqual(d, want) {
		t.Errorf("have %+v", d)
	}
	if v := d.of("Beta").versions; len(v) != 1 || v[0].api != "Beta" {
		t.Errorf("of Beta: %+v", v)
	}
	if _, err := readDocs(t.TempDir()); err == nil {
		t.Error("a folder without Go files was accepted")
	}
}
