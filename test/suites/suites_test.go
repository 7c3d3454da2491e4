package suites

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/test/testnode"
)

// folder is where the scripts are; the test is skipped without them.
func folder(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("WEIR_SUITES")
	if dir == "" {
		root, err := testnode.Root()
		if err != nil {
			t.Fatal(err)
		}
		dir = filepath.Join(root, "..", "shared", "suites")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "lib.sh")); err != nil {
		t.Skip("the suites are not there, set WEIR_SUITES to their folder: ", err)
	}
	return dir
}

// home is where the scripts keep what they download and build.
func home(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("SUITES_HOME"); dir != "" {
		return dir
	}
	dir, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, ".cache", "suites")
}

// reference is the suite's own list.
func reference(t *testing.T, suite string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder(t), suite+".pass"))
	if err != nil {
		t.Fatal(err)
	}
	return readList(string(text))
}

// suiteTime ends a script that hangs. The scripts have limits of their own, of about eight minutes a suite.
const suiteTime = 20 * time.Minute

// runScript runs a suite to its end and returns what it said of each test. Every process that it started is gone then.
func runScript(t *testing.T, suite string, env ...string) map[string]outcome {
	t.Helper()
	logs := os.Getenv("WEIR_SUITES_LOGS")
	if logs == "" {
		logs = t.TempDir()
	} else if err := os.MkdirAll(filepath.Join(logs, suite), 0o755); err != nil {
		t.Fatal(err)
	}
	logs, err := filepath.Abs(filepath.Join(logs, suite))
	if err != nil {
		t.Fatal(err)
	}
	mark, tmp := "WEIR_SUITE_RUN="+t.TempDir(), t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), suiteTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(folder(t), suite+".sh"))
	cmd.Env = append(os.Environ(), append(env, "KEEP_LOG="+logs, "TMPDIR="+tmp, mark)...)
	cmd.WaitDelay = 10 * time.Second
	start := time.Now()
	defer sweep(t, mark)
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		t.Errorf("%s did not end within %s: %v", suite, suiteTime, err)
	} // its exit code only says whether all of its own list has passed
	text, err := os.ReadFile(filepath.Join(logs, suite, "results"))
	if err != nil || len(text) == 0 {
		t.Fatalf("%s has no results: %v\n%s", suite, err, out)
	}
	results := parseResults(string(text))
	// A Go binary that is ended by its time limit has the test that passed just
	// before counted as failed: test2json tells of one when the next line comes.
	log, err := os.ReadFile(filepath.Join(logs, suite, "log"))
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(results, parseVerbose(string(log)))
	figures := map[string]any{"kept": suite + ".pass", "on_apache_kafka": len(reference(t, suite))}
	for _, how := range []outcome{passed, failed, skipped} {
		figures[strings.ToLower(string(how))] = count(results, how)
	}
	testnode.WriteResult(t, "suites-"+suite, time.Since(start), figures)
	return results
}

func count(results map[string]outcome, how outcome) (n int) {
	for _, h := range results {
		if h == how {
			n++
		}
	}
	return n
}

// sweep kills what a script has left: the processes whose environment has the run's mark.
func sweep(t *testing.T, mark string) {
	t.Helper()
	found, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range found {
		env, err := os.ReadFile(path)
		if err != nil { // gone, or not ours to read
			continue
		}
		if !bytes.Contains(append([]byte{0}, env...), []byte("\x00"+mark+"\x00")) {
			continue
		}
		kill(t, filepath.Base(filepath.Dir(path)))
	}
}

func kill(t *testing.T, pid string) {
	t.Helper()
	n, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(n, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		t.Error("cannot stop a process that the suite has left: ", err)
	}
}

// TestFranzGo runs franz-go's own tests against one node. In short form only those that are kept, from the binary that
// a full run has left.
func TestFranzGo(t *testing.T) {
	const suite = "franz-go"
	ref := reference(t, suite)
	var results map[string]outcome
	if testnode.Full() {
		n := node(t)
		results = runScript(t, suite, "BOOTSTRAP="+n.Addr)
	} else {
		binaries, err := filepath.Glob(filepath.Join(home(t), "go/github.com/twmb/franz-go@*/kgo.test"))
		if err != nil {
			t.Fatal(err)
		}
		if len(binaries) == 0 {
			t.Skip("franz-go's tests are not built: WEIR_FULL=1 go test ./test/suites does that")
		}
		results = runBinary(t, binaries[len(binaries)-1], node(t).Addr)
	}
	judge(t, suite, ref, results)
}

func node(t *testing.T) *testnode.Node {
	t.Helper()
	n := testnode.New(t, testnode.Options{})
	n.Start(t)
	return n
}

// runBinary runs the kept tests of franz-go's test binary.
func runBinary(t *testing.T, binary, seeds string) map[string]outcome {
	t.Helper()
	_, kept := keptList(t, "franz-go")
	var tops []string
	for _, name := range kept {
		if !strings.Contains(name, "/") {
			tops = append(tops, regexp.QuoteMeta(name))
		}
	}
	cmd := exec.CommandContext(t.Context(), binary, "-test.v", "-test.timeout=120s", "-test.run", "^("+strings.Join(tops, "|")+")$")
	cmd.Dir = filepath.Join(filepath.Dir(binary), "pkg", "kgo")
	cmd.Env = append(os.Environ(), "KGO_SEEDS="+seeds, "KGO_TEST_RF=1", "KGO_TEST_RECORDS=5000", "KGO_LOG_LEVEL=none")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Logf("%v\n%s", err, tail(out, 8000))
	}
	return parseVerbose(string(out))
}

func tail(b []byte, n int) []byte { return b[max(0, len(b)-n):] }

// TestKafka runs Apache Kafka's own integration tests. They start their nodes themselves, in directories that the real
// formatter has made.
func TestKafka(t *testing.T) {
	if !testnode.Full() {
		t.Skip("takes half an hour: WEIR_FULL=1")
	}
	testnode.Oracle(t) // the formatter and the jars
	binary := testnode.Binary(t)
	for _, suite := range []string{"kafka-it-requests", "kafka-it-clients", "kafka-it-reassign"} {
		t.Run(suite, func(t *testing.T) {
			judge(t, suite, reference(t, suite), runScript(t, suite, "KAFKA_SERVER_START="+binary+" server"))
		})
	}
}
