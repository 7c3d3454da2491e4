package lint

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// repository parses the module once for all tests.
var repository = sync.OnceValues(func() (*tree, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return loadTree(os.DirFS(dir))
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return nil, os.ErrNotExist
		}
		dir = parent
	}
})

func theLayers(t *testing.T) map[string]layer {
	t.Helper()
	layers, err := parseLayers(layersText)
	if err != nil {
		t.Fatal(err)
	}
	return layers
}

func report(t *testing.T, check func(*tree) []Problem) {
	t.Helper()
	tr, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	if len(tr.goSrc) < 50 {
		t.Fatalf("only %d Go files found: the walk is broken", len(tr.goSrc))
	}
	for _, p := range check(tr) {
		t.Error(p)
	}
}

func TestLayers(t *testing.T) {
	layers := theLayers(t)
	report(t, func(tr *tree) []Problem { return checkLayers(tr, layers) })
}

func TestThirdParty(t *testing.T) { report(t, checkThirdParty) }

func TestCalls(t *testing.T) {
	layers := theLayers(t)
	report(t, func(tr *tree) []Problem { return checkCalls(tr, layers) })
}

func TestGlobals(t *testing.T)      { report(t, checkGlobals) }
func TestSizes(t *testing.T)        { report(t, checkSizes) }
func TestPackageDocs(t *testing.T)  { report(t, checkPackageDocs) }
func TestOpenEnds(t *testing.T)     { report(t, checkOpenEnds) }
func TestMachinePaths(t *testing.T) { report(t, checkMachinePaths) }
func TestDocPaths(t *testing.T)     { report(t, checkDocPaths) }
