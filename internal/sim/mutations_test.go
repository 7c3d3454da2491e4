package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// mutation is one planted bug: the text old of a file becomes another.
type mutation struct {
	name, why, file string
	old, new        string
}

const root = "../.."

func mutations(t *testing.T) []mutation {
	t.Helper()
	raw, err := os.ReadFile("mutations.txt")
	if err != nil {
		t.Fatal(err)
	}
	var out []mutation
	for i, line := range strings.Split(string(raw), "\n") {
		m := &mutation{}
		if len(out) > 0 {
			m = &out[len(out)-1]
		}
		switch {
		case strings.HasPrefix(line, "== "):
			name, why, ok := strings.Cut(line[3:], ": ")
			if !ok {
				t.Fatalf("mutations.txt:%d: no explanation", i+1)
			}
			out = append(out, mutation{name: name, why: why})
		case strings.HasPrefix(line, "file "):
			m.file = line[5:]
		case strings.HasPrefix(line, "-"):
			m.old += line[1:] + "\n"
		case strings.HasPrefix(line, "+"):
			m.new += line[1:] + "\n"
		case line != "" && line[0] != '#':
			t.Fatalf("mutations.txt:%d: %q is nothing that this file has", i+1, line)
		}
	}
	return out
}

// plant returns the changed file.
func (m mutation) plant(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(raw), m.old); n != 1 || m.old == m.new {
		t.Fatalf("%s: the old text stands %d times in %s: bring mutations.txt up to date", m.name, n, m.file)
	}
	return strings.Replace(string(raw), m.old, m.new, 1)
}

// TestMutationsFit: each mutation can be planted in the code of today.
func TestMutationsFit(t *testing.T) {
	list := mutations(t)
	if len(list) < 12 {
		t.Errorf("only %d mutations", len(list))
	}
	for _, m := range list {
		m.plant(t)
	}
}

// TestMutations plants each bug and runs seeds until it is found. WEIR_MUTATIONS is a
// pattern of names, "." for all.
func TestMutations(t *testing.T) {
	pattern := os.Getenv("WEIR_MUTATIONS")
	if pattern == "" {
		t.Skip("needs a build for each mutation: make sim-mutations")
	}
	want := regexp.MustCompile(pattern)
	for _, m := range mutations(t) {
		if want.MatchString(m.name) {
			t.Run(m.name, func(t *testing.T) { m.hunt(t) })
		}
	}
}

var verdict = regexp.MustCompile(`(?m)seed (\d+) \([^)]*\): (at .*)$`)

// hunt builds the simulation with the bug and runs at most 500 seeds.
func (m mutation) hunt(t *testing.T) {
	dir := t.TempDir()
	path, err := filepath.Abs(filepath.Join(root, m.file))
	if err != nil {
		t.Fatal(err)
	}
	changed := filepath.Join(dir, "changed.go")
	if err := os.WriteFile(changed, []byte(m.plant(t)), 0o600); err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {path: changed}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "sim.test")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-overlay", filepath.Join(dir, "overlay.json"), "-o", bin, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, bin, "-test.run", "^TestSeeds$", "-seeds", "500", "-stop").CombinedOutput()
	var exit *exec.ExitError
	switch found := verdict.FindSubmatch(out); {
	case err == nil:
		t.Errorf("not found within 500 seeds: %s", m.why)
	case ctx.Err() != nil || !errors.As(err, &exit):
		t.Errorf("%v\n%s", err, out)
	case found != nil:
		t.Logf("found by seed %s: %.200s", found[1], found[2])
	default:
		t.Log(fmt.Sprintf("found: %.300s", out))
	}
}
