package clients

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"weir/test/testnode"
)

// A gauge is one client library that writes a record to each partition every few milliseconds, with its default settings, and
// knows for how long each partition took none. look waits until every partition has taken a record that was sent after the
// call, and returns the longest times between two acks since the last look.
//
// The programs in testdata do so for each line of input, with one line of output: milliseconds by partition.
type gauge interface {
	look(ctx context.Context) ([]time.Duration, error)
}

const (
	confluentKafka = "confluent-kafka==2.16.1"

	gapTopic      = "gaps"
	gapPartitions = 6
	gapPatience   = 60 * time.Second
	// gapLimit is far more than the promise, for a machine that does other things, and for franz-go: when the first answer to
	// its question who leads comes too early, it asks again after five seconds.
	gapLimit = 7 * time.Second
)

// TestGaps measures for how long producers of each library cannot write when a node dies or stops: three combined nodes, the
// topic with three replicas and min.insync.replicas=2, all client settings at their defaults.
func TestGaps(t *testing.T) {
	together(t)
	systems := []testnode.System{testnode.Ours}
	if testnode.Full() {
		systems = append(systems, testnode.Apache)
	}
	for _, system := range systems {
		t.Run(string(system), func(t *testing.T) {
			if system == testnode.Apache {
				testnode.Oracle(t)
			}
			m := newMeter(t, system)
			rounds := testnode.Rounds(1, 5)
			if system == testnode.Apache {
				rounds = 1
			}
			for range rounds {
				m.round(t)
			}
			report(t, "gaps", string(system), m.gaps)
		})
	}
}

// meter is a cluster, and the clients that write to it.
type meter struct {
	*testnode.Cluster
	admin  *kadm.Client
	gauges map[string]gauge
	// gaps are the longest of each strike in milliseconds: by fault, client, and whether the node struck had led the partition.
	gaps map[string]map[string][]int64
}

func newMeter(t *testing.T, system testnode.System) *meter {
	t.Helper()
	m := &meter{gauges: map[string]gauge{}, gaps: map[string]map[string][]int64{}}
	m.Cluster = testnode.NewCluster(t, testnode.ClusterOptions{Members: testnode.Nodes(3, testnode.Member{System: system}), Props: map[string]string{"offsets.topic.replication.factor": "3"}})
	m.Start(t)
	m.admin = kadm.NewClient(m.Client(t, kgo.MetadataMinAge(50*time.Millisecond), kgo.RequestTimeoutOverhead(2*time.Second)))
	need := "2"
	if _, err := m.admin.CreateTopic(t.Context(), gapPartitions, 3, map[string]*string{"min.insync.replicas": &need}, gapTopic); err != nil {
		t.Fatal(err)
	}
	var addrs []string
	for _, n := range m.Nodes {
		addrs = append(addrs, n.Addr)
	}
	m.gauges["franz-go"] = newFranzGauge(t, addrs)
	if testnode.Full() {
		args := []string{strings.Join(addrs, ","), gapTopic, strconv.Itoa(gapPartitions)}
		m.gauges["java"] = newProgramGauge(t, javaProgram(t, javaNow, "Gaps", []string{"testdata/java/Gaps.java"}, args...))
		m.gauges["librdkafka"] = newProgramGauge(t, exec.Command(python(t, confluentKafka), append([]string{filepath.Join("testdata", "gaps.py")}, args...)...))
	}
	return m
}

// round strikes each kind of node with each kind of end.
func (m *meter) round(t *testing.T) {
	t.Helper()
	for _, x := range []struct {
		fault string
		how   func(*testnode.Node, testing.TB)
	}{{"kill -9", (*testnode.Node).Kill}, {"SIGTERM", (*testnode.Node).Stop}} {
		for _, active := range []bool{true, false} {
			m.settle(t)
			m.rest(t)
			id := m.WaitLeader(t, testnode.Patience, -1).Leader
			who := "the active controller"
			if !active {
				id, who = id%3+1, "another node"
			}
			m.strike(t, x.fault+" of "+who, id, func() { x.how(m.Node(id), t) })
		}
	}
}

// settle spreads the leaders and waits until all is in sync.
func (m *meter) settle(t *testing.T) {
	t.Helper()
	testnode.Until(t, gapPatience, "all in sync, each led by its first replica", func() error {
		list, err := m.partitions(t)
		if err != nil {
			return err
		}
		for _, p := range list {
			if len(p.ISR) < 3 {
				return fmt.Errorf("%+v", p)
			}
		}
		for _, p := range list {
			if p.Leader != p.Replicas[0] {
				var all kadm.TopicsSet
				for i := range int32(gapPartitions) {
					all.Add(gapTopic, i)
				}
				_, err := m.admin.ElectLeaders(t.Context(), kadm.ElectPreferredReplica, all)
				return errors.Join(fmt.Errorf("%+v", p), err)
			}
		}
		return nil
	})
}

// rest lets the clients' metadata grow old: franz-go asks for it at once when a connection ends, but not within five seconds
// of the last time.
func (m *meter) rest(t *testing.T) {
	t.Helper()
	if !testnode.Full() {
		return // the client of the short form asks sooner
	}
	began := time.Now()
	testnode.Until(t, gapPatience, "clients at rest", func() error {
		if since := time.Since(began); since < 6*time.Second {
			return fmt.Errorf("for %v", since)
		}
		return nil
	})
}

func (m *meter) partitions(t *testing.T) ([]kadm.PartitionDetail, error) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	topics, err := m.admin.ListTopics(ctx, gapTopic)
	if err != nil {
		return nil, err
	}
	list := topics[gapTopic].Partitions.Sorted()
	if len(list) < gapPartitions {
		return nil, fmt.Errorf("%d partitions", len(list))
	}
	return list, nil
}

// strike lets how end a node, and starts it again when every client writes.
func (m *meter) strike(t *testing.T, fault string, id int32, how func()) {
	t.Helper()
	before, err := m.partitions(t)
	if err != nil {
		t.Fatal(err)
	}
	m.lookAll(t)
	struck := time.Now().UTC().Format("15:04:05.000")
	how()
	testnode.Until(t, gapPatience, "others lead", func() error {
		list, err := m.partitions(t)
		if err != nil {
			return err
		}
		for _, p := range list {
			if p.Leader < 0 || p.Leader == id || slices.Contains(p.ISR, id) {
				return fmt.Errorf("%+v", p)
			}
		}
		return nil
	})
	if m.gaps[fault] == nil {
		m.gaps[fault] = map[string][]int64{}
	}
	for name, gaps := range m.lookAll(t) {
		var led, others time.Duration
		for _, p := range before {
			if p.Leader == id {
				led = max(led, gaps[p.Partition])
			} else {
				others = max(others, gaps[p.Partition])
			}
		}
		t.Logf("%s (node %d) at %s: %s could not write to what it led for %v, to others for %v", fault, id, struck, name,
			led.Round(time.Millisecond), others.Round(time.Millisecond))
		for what, d := range map[string]time.Duration{name: led, name + ", led by others": others} {
			m.gaps[fault][what] = append(m.gaps[fault][what], d.Milliseconds())
			if d > gapLimit && m.Nodes[0].System() == testnode.Ours {
				t.Errorf("%s: %s could not write for %v", fault, what, d)
			}
		}
	}
	m.Node(id).Start(t)
}

// lookAll looks at all gauges at once.
func (m *meter) lookAll(t *testing.T) map[string][]time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), gapPatience)
	defer cancel()
	var mu sync.Mutex
	var work sync.WaitGroup
	out, errs := map[string][]time.Duration{}, error(nil)
	for name, g := range m.gauges {
		work.Go(func() {
			gaps, err := g.look(ctx)
			mu.Lock()
			defer mu.Unlock()
			if out[name] = gaps; err != nil {
				errs = errors.Join(errs, fmt.Errorf("%s: %w", name, err))
			}
		})
	}
	work.Wait()
	if errs != nil {
		t.Fatal(errs)
	}
	return out
}

// franzGauge is franz-go.
type franzGauge struct {
	mu              sync.Mutex
	taken           *sync.Cond
	acked, sentLast []time.Time
	gap             []time.Duration
}

func newFranzGauge(t *testing.T, addrs []string) *franzGauge {
	t.Helper()
	opts := []kgo.Opt{kgo.SeedBrokers(addrs...), kgo.DefaultProduceTopic(gapTopic), kgo.RecordPartitioner(kgo.ManualPartitioner())}
	if !testnode.Full() {
		opts = append(opts, kgo.MetadataMinAge(250*time.Millisecond))
	}
	c, err := kgo.NewClient(opts...)
	if err != nil {
		t.Fatal(err)
	}
	g := &franzGauge{acked: make([]time.Time, gapPartitions), sentLast: make([]time.Time, gapPartitions), gap: make([]time.Duration, gapPartitions)}
	g.taken = sync.NewCond(&g.mu)
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	work.Go(func() {
		pace := time.NewTicker(10 * time.Millisecond)
		defer pace.Stop()
		for ctx.Err() == nil {
			<-pace.C
			for p := range int32(gapPartitions) {
				sent := time.Now()
				c.Produce(ctx, &kgo.Record{Partition: p, Value: []byte("x")}, func(_ *kgo.Record, err error) {
					if err == nil {
						g.ack(p, sent)
					} else if ctx.Err() == nil {
						t.Errorf("franz-go: partition %d: %v", p, err)
					}
				})
			}
		}
	})
	t.Cleanup(func() { cancel(); work.Wait(); c.Close() })
	return g
}

func (g *franzGauge) ack(p int32, sent time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if !g.acked[p].IsZero() {
		g.gap[p] = max(g.gap[p], now.Sub(g.acked[p]))
	}
	g.acked[p], g.sentLast[p] = now, sent
	g.taken.Broadcast()
}

func (g *franzGauge) look(ctx context.Context) ([]time.Duration, error) {
	defer context.AfterFunc(ctx, g.taken.Broadcast)()
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	for slices.ContainsFunc(g.sentLast, func(s time.Time) bool { return s.Before(now) }) {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("records sent last, by partition, of those acked: %v", g.sentLast)
		}
		g.taken.Wait()
	}
	out := slices.Clone(g.gap)
	clear(g.gap)
	return out, nil
}

// programGauge is a program in testdata.
type programGauge struct {
	in  io.Writer
	out *bufio.Scanner
	log *lockedBuffer
}

func newProgramGauge(t *testing.T, cmd *exec.Cmd) *programGauge {
	t.Helper()
	g := &programGauge{log: &lockedBuffer{}}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	g.in, g.out, cmd.Stderr = in, bufio.NewScanner(out), g.log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(cmd.Process.Kill(), in.Close()); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // it was killed
	})
	return g
}

func (g *programGauge) look(ctx context.Context) ([]time.Duration, error) {
	type answer struct {
		gaps []time.Duration
		err  error
	}
	got := make(chan answer, 1)
	go func() {
		var a answer
		if _, err := io.WriteString(g.in, "look\n"); err != nil {
			a.err = err
		} else if !g.out.Scan() {
			a.err = fmt.Errorf("the program has ended: %w", g.out.Err())
		}
		for w := range strings.FieldsSeq(g.out.Text()) {
			ms, err := strconv.Atoi(w)
			a.gaps, a.err = append(a.gaps, time.Duration(ms)*time.Millisecond), errors.Join(a.err, err)
		}
		got <- a
	}()
	select {
	case a := <-got:
		if len(a.gaps) != gapPartitions || a.err != nil {
			return nil, fmt.Errorf("%v: %w\n%s", a.gaps, a.err, g.log.String())
		}
		return a.gaps, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("no answer: %w\n%s", ctx.Err(), g.log.String())
	}
}

// lockedBuffer is what a program writes to standard error.
type lockedBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
