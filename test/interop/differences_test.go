package interop

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"weir/test/testnode"
)

// The differences that scenarios allow are those of docs/differences.md, which gives reasons, and few.
func TestDifferences(t *testing.T) {
	t.Parallel()
	root, err := testnode.Root()
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile(filepath.Join(root, "docs", "differences.md"))
	if err != nil {
		t.Fatal(err)
	}
	reasons, used := map[string]bool{}, map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| \\S.* \\| \\S.* \\|$").FindAllStringSubmatch(string(doc), -1) {
		reasons[m[1]] = true
	}
	err = filepath.WalkDir("testdata", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasPrefix(filepath.Base(filepath.Dir(path)), "tools") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, line := range regexp.MustCompile(`(?m)^run .*\bon=.*$`).FindAllString(string(text), -1) {
			m := regexp.MustCompile(` differs=(\S+)`).FindStringSubmatch(line)
			if m == nil {
				t.Errorf("%s: %q names no difference", path, line)
				continue
			}
			used[m[1]] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(reasons, used) {
		t.Errorf("docs/differences.md explains %v, scenarios name %v", slices.Sorted(maps.Keys(reasons)), slices.Sorted(maps.Keys(used)))
	}
	if len(used) > 10 {
		t.Errorf("%d differences, at most 10 are intended", len(used))
	}
}
