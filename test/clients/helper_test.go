package clients

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/test/testnode"
)

// codecs are all that Kafka has.
func codecs() []string { return []string{"none", "gzip", "snappy", "lz4", "zstd"} }

// client runs a client to its end, which must be a good one, and returns its standard output.
func client(t *testing.T, stdin []byte, name string, args ...string) []byte {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, errs.String())
	}
	return out.Bytes()
}

// kcat runs kcat against the node.
func kcat(t *testing.T, n *testnode.Node, stdin []byte, args ...string) []byte {
	t.Helper()
	if _, err := exec.LookPath("kcat"); err != nil {
		t.Skip("kcat is missing: apt-get install kcat")
	}
	args = append([]string{"-b", n.Addr}, args...)
	if slices.Contains(args, "-C") {
		args = append(args, "-X", "fetch.wait.max.ms=10") // to find the end sooner
	}
	return client(t, stdin, "kcat", args...)
}

// lines makes n lines of text, some empty-ish and some long, always the same.
func lines(n int) []byte {
	dice := rand.New(rand.NewPCG(1, 2))
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, "%d %s\n", i, strings.Repeat("weir ", dice.IntN(24)))
	}
	return b.Bytes()
}

// same fails when what came out is not what went in, and shows where.
func same(t *testing.T, in, out []byte) {
	t.Helper()
	if bytes.Equal(in, out) {
		return
	}
	a, b := bytes.Split(in, []byte("\n")), bytes.Split(out, []byte("\n"))
	for i := range min(len(a), len(b)) {
		if !bytes.Equal(a[i], b[i]) {
			t.Fatalf("%d lines in, %d out; line %d was %.60q and is %.60q", len(a), len(b), i, a[i], b[i])
		}
	}
	t.Fatalf("%d lines in, %d out", len(a), len(b))
}

// start starts a node for one test.
func start(t *testing.T) *testnode.Node {
	t.Helper()
	n := testnode.New(t, testnode.Options{})
	n.Start(t)
	return n
}

// figures is what the tests measured, for test/results.
type figures struct {
	mu    sync.Mutex
	start time.Time
	files map[string]map[string]any
}

var measured = &figures{start: time.Now(), files: map[string]map[string]any{}}

// report notes what a test measured; a long run writes all there is so far of test/results/FILE.json.
func report(t *testing.T, file, name string, value any) {
	t.Helper()
	t.Logf("%s: %v", name, value)
	if !testnode.Full() {
		return
	}
	measured.mu.Lock()
	defer measured.mu.Unlock()
	if measured.files[file] == nil {
		measured.files[file] = map[string]any{}
	}
	measured.files[file][name] = value
	testnode.WriteResult(t, file, time.Since(measured.start), measured.files[file])
}
