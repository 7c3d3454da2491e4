package testnode

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"
)

// Full tells whether the long runs were asked for.
func Full() bool { return os.Getenv("WEIR_FULL") != "" }

// Rounds is short in the default run and full under WEIR_FULL=1.
func Rounds(short, full int) int {
	if Full() {
		return full
	}
	return short
}

// Root is the folder of go.mod.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Stat(filepath.Join(d, "go.mod")); err == nil {
			return d, nil
		}
		if d == filepath.Dir(d) {
			return "", fmt.Errorf("no go.mod above %s", dir)
		}
	}
}

// Binary is the path of the weir that is under test.
func Binary(t testing.TB) string {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// binary builds once per test process.
var binary = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("WEIR_BIN"); path != "" {
		return filepath.Abs(path)
	}
	return buildWeir("weir-under-test")
})

// FaultyBinary is a weir whose disk can be made to fail (-tags faults).
func FaultyBinary(t testing.TB) string {
	t.Helper()
	path, err := faultyBinary()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var faultyBinary = sync.OnceValues(func() (string, error) { return buildWeir("weir-with-faults", "-tags", "faults") })

// buildWeir builds to a name of its own and renames it, since several test packages may do this at the same time.
func buildWeir(name string, flags ...string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	path := filepath.Join(root, "bin", name)
	fresh := path + "." + strconv.Itoa(os.Getpid())
	build := exec.Command("go", append(append([]string{"build"}, flags...), "-o", fresh, "./cmd/weir")...)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build ./cmd/weir: %w\n%s", err, out)
	}
	return path, os.Rename(fresh, path)
}

// Oracle is the script that runs the real Apache Kafka. The test is skipped when it is not there.
func Oracle(t testing.TB) string {
	t.Helper()
	path, err := oracle()
	if err != nil {
		t.Skip("no Apache Kafka to compare with: ", err)
	}
	return path
}

// oracle looks for the script once and has it make its class data archives, which let nodes and tools start twice as fast.
var oracle = sync.OnceValues(func() (string, error) {
	path := os.Getenv("WEIR_ORACLE")
	if path == "" {
		root, err := Root()
		if err != nil {
			return "", err
		}
		path = filepath.Join(root, "..", "shared", "oracle", "kafka")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("set WEIR_ORACLE to the script that runs it: %w", err)
	}
	if _, err := exec.LookPath("java"); err != nil {
		return "", err
	}
	if out, err := exec.Command(path, "fast").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s fast: %w\n%s", path, err, out)
	}
	return path, nil
})

// oracleEnv is the environment of a process of the oracle: as fast as it goes, with a small heap.
func oracleEnv(heap string) []string {
	return append(os.Environ(), "KAFKA_FAST=1", "KAFKA_HEAP="+heap)
}

// Output is what a tool left behind.
type Output struct {
	Stdout, Stderr string
	Code           int
}

// ToolLimit is how long a tool may take; one that waits for ever is killed.
const ToolLimit = 60 * time.Second

// Tool runs one of Apache Kafka's tools to its end, with stdin as its input. A tool that does not end within a minute is
// killed, which its exit code -1 tells.
func Tool(t testing.TB, stdin string, tool string, args ...string) Output {
	t.Helper()
	return ToolFor(t, ToolLimit, stdin, tool, args...)
}

// ToolFor is Tool with a limit of its own, for tools that never end by themselves.
func ToolFor(t testing.TB, limit time.Duration, stdin string, tool string, args ...string) Output {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, Oracle(t), append([]string{tool}, args...)...)
	cmd.Env = oracleEnv("-Xmx160m -Xms64m")
	return run(t, cmd, stdin)
}

// Weir runs a command of the binary under test to its end.
func Weir(t testing.TB, stdin string, args ...string) Output {
	t.Helper()
	return run(t, exec.CommandContext(t.Context(), Binary(t), args...), stdin)
}

func run(t testing.TB, cmd *exec.Cmd, stdin string) Output {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewBufferString(stdin), &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%v: %v", cmd.Args, err)
	}
	return Output{Stdout: stdout.String(), Stderr: stderr.String(), Code: cmd.ProcessState.ExitCode()}
}

// TempDir is a new directory that goes at the end of the test, or stays with WEIR_KEEP=1. Unlike that of t.TempDir its
// name has no part of the test's name: log.dirs could not hold a comma.
func TempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "weir-node-")
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv("WEIR_KEEP") != "" {
		t.Logf("kept: %s", dir)
		return dir
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// FreePort finds a loopback port that nobody listens on, below the range that the kernel hands out to clients, so that it
// stays free while a node is down.
func FreePort(t testing.TB) int {
	t.Helper()
	var err error
	for range 100 {
		port := 10000 + rand.IntN(22000)
		var l net.Listener
		if l, err = net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port)); err == nil {
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			return port
		}
	}
	t.Fatalf("no free port on 127.0.0.1: %v", err)
	return 0
}
