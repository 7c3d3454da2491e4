package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/internal/rng"
	"weir/test/testnode"
)

// small makes a short life eventful: it rolls, checkpoints and writes snapshots.
func small() map[string]string {
	return map[string]string{
		"log.segment.bytes": "1048576", "log.index.interval.bytes": "1024",
		"log.flush.offset.checkpoint.interval.ms": "200", "log.flush.start.offset.checkpoint.interval.ms": "200",
		"replica.high.watermark.checkpoint.interval.ms": "200", "metadata.log.max.record.bytes.between.snapshots": "3000",
	}
}

// load is producers of all kinds, each with a topic of its own.
type load struct {
	ledgers []*ledger
	stops   []func()
}

func startLoad(ctx context.Context, t *testing.T, n *testnode.Node) *load {
	t.Helper()
	l := &load{}
	all, one := newLedger("idempotent", 6, true), newLedger("leader", 3, false)
	rawOne, rawAll := newLedger("counter-1", 2, true), newLedger("counter-all", 2, true)
	l.ledgers = []*ledger{all, one, rawOne, rawAll}
	for _, x := range l.ledgers {
		createTopic(t, n, x.topic, x.partitions, nil)
	}
	for _, start := range []func() (func(), error){
		func() (func(), error) { return all.idempotent(ctx, n.Addr) },
		func() (func(), error) { return one.leaderOnly(ctx, n.Addr) },
		func() (func(), error) { return rawOne.counter(ctx, n.Addr, 1) },
		func() (func(), error) { return rawAll.counter(ctx, n.Addr, -1) },
	} {
		stop, err := start()
		if err != nil {
			t.Fatal(err)
		}
		l.stops = append(l.stops, stop)
	}
	t.Cleanup(l.stop)
	return l
}

func (l *load) stop() {
	for _, s := range l.stops {
		s()
	}
	l.stops = nil
}

// wait waits until each producer was told of so many records more.
func (l *load) wait(t *testing.T, more int) {
	t.Helper()
	for _, x := range l.ledgers {
		want := x.numAcked() + more
		testnode.Until(t, 30*time.Second, "records acked on "+x.topic, func() error {
			if n := x.numAcked(); n < want {
				return fmt.Errorf("%d, not %d", n, want)
			}
			return nil
		})
	}
}

func (l *load) promised() []map[spot]string {
	var out []map[spot]string
	for _, x := range l.ledgers {
		out = append(out, x.promised())
	}
	return out
}

func (l *load) check(ctx context.Context, t *testing.T, n *testnode.Node, promised []map[spot]string) {
	t.Helper()
	for i, x := range l.ledgers {
		if err := x.check(ctx, n, promised[i]); err != nil {
			t.Fatal(err)
		}
	}
}

func (l *load) acked() int {
	sum := 0
	for _, x := range l.ledgers {
		sum += x.numAcked()
	}
	return sum
}

// TestKill kills the node under load, again and again. After each start every acked record is there, at the offset that
// its producer was told; those of an idempotent producer once and in order. kill -9 leaves the page cache, so acks=1
// promises as much.
func TestKill(t *testing.T) {
	start := time.Now()
	rounds := testnode.Rounds(2, 20)
	acked, down := killRounds(t, testnode.Options{Props: small()}, rounds)
	report(t, "kill -9", map[string]any{"rounds": rounds, "acked": acked, "slowest_start_ms": down.Milliseconds(), "seconds": int(time.Since(start).Seconds())})
}

// killRounds returns how many records were acked and how long the slowest start took.
func killRounds(t *testing.T, o testnode.Options, rounds int) (acked int, slowest time.Duration) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(30+20*rounds)*time.Second)
	defer cancel()
	n := testnode.New(t, o)
	n.Start(t)
	l := startLoad(ctx, t, n)
	dice := rng.New(uint64(rounds))
	for range rounds {
		l.wait(t, 20+dice.IntN(testnode.Rounds(200, 1000)))
		n.Kill(t)
		promised := l.promised()
		began := time.Now()
		n.Start(t)
		slowest = max(slowest, time.Since(began))
		l.check(ctx, t, n, promised)
	}
	l.wait(t, 1)
	l.stop()
	promised := l.promised()
	l.check(ctx, t, n, promised)
	n.Stop(t)
	n.Start(t)
	l.check(ctx, t, n, promised)
	n.Stop(t)
	if log := n.LogText(t); strings.Contains(log, "BUG:") || strings.Contains(log, "DATA RACE") || strings.Contains(log, "panic:") {
		t.Error("the log tells of a bug")
	}
	return l.acked(), slowest
}

// TestKillWithRaceDetector is TestKill on a binary that finds data races.
func TestKillWithRaceDetector(t *testing.T) {
	if !testnode.Full() {
		t.Skip("part of the long run: WEIR_FULL=1")
	}
	start := time.Now()
	rounds := 4
	acked, _ := killRounds(t, testnode.Options{Props: small(), Binary: raceBinary(t)}, rounds)
	report(t, "kill -9 with the race detector", map[string]any{"rounds": rounds, "acked": acked, "seconds": int(time.Since(start).Seconds())})
}

func raceBinary(t *testing.T) string {
	t.Helper()
	root, err := testnode.Root()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "weir-race")
	build := exec.CommandContext(t.Context(), "go", "build", "-race", "-o", path, "./cmd/weir")
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build -race: %v\n%s", err, out)
	}
	return path
}

// TestStopUnderLoad: SIGTERM under load ends the node in good order, and loses nothing.
func TestStopUnderLoad(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	n := testnode.New(t, testnode.Options{Props: small()})
	n.Start(t)
	l := startLoad(ctx, t, n)
	for range testnode.Rounds(2, 8) {
		l.wait(t, 100)
		began := time.Now()
		n.Stop(t)
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("the stop took %v", took)
		}
		if err := cleanShutdownMarker(n); err != nil {
			t.Error(err)
		}
		promised := l.promised()
		n.Start(t)
		l.check(ctx, t, n, promised)
	}
	l.stop()
	l.check(ctx, t, n, l.promised())
	for line := range strings.Lines(n.LogText(t)) { // the metadata log has no mark of a clean stop, in Kafka neither
		if strings.Contains(line, "recovering a segment") && !strings.Contains(line, "__cluster_metadata") {
			t.Error("a start after a clean stop recovered a log: ", line)
		}
	}
}

func cleanShutdownMarker(n *testnode.Node) error {
	var errs []error
	for _, dir := range n.LogDirs {
		_, err := os.Stat(filepath.Join(dir, ".kafka_cleanshutdown"))
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
