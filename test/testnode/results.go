package testnode

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Machine says where a result was measured.
type Machine struct {
	CPUs     int    `json:"cpus"`
	MemoryGB int    `json:"memory_gb"`
	Kernel   string `json:"kernel"`
	Go       string `json:"go"`
}

// Result is what a long run leaves in test/results.
type Result struct {
	Commit  string         `json:"commit"`
	Date    string         `json:"date"`
	Machine Machine        `json:"machine"`
	Seconds float64        `json:"seconds"`
	Figures map[string]any `json:"figures"`
}

// WriteResult writes test/results/NAME.json.
func WriteResult(t testing.TB, name string, took time.Duration, figures map[string]any) {
	t.Helper()
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	r := Result{Commit: commit(t, root), Date: time.Now().UTC().Format(time.RFC3339), Machine: machine(t), Seconds: took.Round(100 * time.Millisecond).Seconds(), Figures: figures}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(root, "test", "results", name+".json")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}

func commit(t testing.TB, root string) string {
	t.Helper()
	cmd := exec.Command("git", "describe", "--always", "--dirty", "--abbrev=12")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git describe: %v", err)
	}
	return strings.TrimSpace(string(out))
}

func machine(t testing.TB) Machine {
	t.Helper()
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		t.Fatal(err)
	}
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		t.Fatal(err)
	}
	return Machine{
		CPUs:     runtime.NumCPU(),
		MemoryGB: int(info.Totalram * uint64(info.Unit) >> 30),
		Kernel:   unix.ByteSliceToString(uts.Release[:]),
		Go:       runtime.Version(),
	}
}
