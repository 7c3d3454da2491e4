package testnode

import (
	"encoding/json"
	"fmt"
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
	CPU      string `json:"cpu,omitempty"`
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
	if err := SaveResult(name, took, figures); err != nil {
		t.Fatal(err)
	}
}

// SaveResult is WriteResult for a TestMain.
func SaveResult(name string, took time.Duration, figures map[string]any) error {
	root, err := Root()
	if err != nil {
		return err
	}
	r := Result{Date: time.Now().UTC().Format(time.RFC3339), Seconds: took.Round(100 * time.Millisecond).Seconds(), Figures: figures}
	if r.Commit, err = commit(root); err != nil {
		return err
	}
	if r.Machine, err = machine(); err != nil {
		return err
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	path := filepath.Join(root, "test", "results", name+".json")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// ReadResult reads test/results/NAME.json; fs.ErrNotExist when there is none.
func ReadResult(name string, into any) error {
	root, err := Root()
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(root, "test", "results", name+".json"))
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// Commit is the commit that is tested, as SaveResult notes it.
func Commit() (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	return commit(root)
}

func commit(root string) (string, error) {
	cmd := exec.Command("git", "describe", "--always", "--dirty", "--abbrev=12")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git describe: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

func machine() (Machine, error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return Machine{}, err
	}
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return Machine{}, err
	}
	model, err := cpuModel()
	if err != nil {
		return Machine{}, err
	}
	return Machine{
		CPU:      model,
		CPUs:     runtime.NumCPU(),
		MemoryGB: int(info.Totalram * uint64(info.Unit) >> 30),
		Kernel:   unix.ByteSliceToString(uts.Release[:]),
		Go:       runtime.Version(),
	}, nil
}

// cpuModel is the processor's name; "" where the kernel does not tell.
func cpuModel() (string, error) {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if key, value, _ := strings.Cut(line, ":"); strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value), nil
		}
	}
	return "", nil
}
