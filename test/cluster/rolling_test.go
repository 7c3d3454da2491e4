package cluster

import (
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"weir/test/testnode"
)

// What the environment says of the long form of TestRollingRestarts.
const (
	// minutesVariable is how long it takes, a restart each minute; 60 when it is not set.
	minutesVariable = "WEIR_SOAK_MINUTES"
	// pauseVariable names a file whose presence pauses the load, so that something else can be measured on the machine
	// meanwhile. Restarts go on. Samples that are taken then, or soon after, are not compared.
	pauseVariable = "WEIR_SOAK_PAUSE"
)

// window is how long the beginning and the end of the long form are that are compared.
const window = 10 * time.Minute

// sample is what the nodes take just before one of them is restarted, node by node. Each restart strikes the node that
// has run longest, so that in every sample there is one node of each age.
type sample struct {
	At         float64 `json:"minute"`
	Node       int32   `json:"restarted"`
	How        string  `json:"how"`
	RSS        []int   `json:"rss_mb"`
	Goroutines []int   `json:"goroutines"`
	Handles    []int   `json:"handles"`
	InSync     float64 `json:"in_sync_after_s"` // from the signal until all replicas are in sync again
	Paused     bool    `json:"paused,omitempty"`
}

// TestRollingRestarts: three combined nodes under a mixed load, and each minute another of them is restarted, in good order
// and by kill -9 in turn. After an hour they take no more memory, goroutines and file handles than after the first ten
// minutes. No record is lost, doubled or out of order, and no committed offset goes back.
//
// The short form restarts each node twice, one every two seconds, and compares what they take after the first time, when every
// log has been opened, and after the second.
func TestRollingRestarts(t *testing.T) {
	t.Parallel()
	began, length, every := time.Now(), 12*time.Second, 2*time.Second
	props := map[string]string{
		"offsets.topic.replication.factor": "3", "offsets.topic.num.partitions": "6", "log.retention.check.interval.ms": "5000",
		"log.segment.delete.delay.ms": "1000", "log.cleaner.backoff.ms": "2000",
	}
	if testnode.Full() {
		length, every = time.Hour, time.Minute
		maps.Copy(props, map[string]string{"broker.session.timeout.ms": "9000", "broker.heartbeat.interval.ms": "2000", "replica.lag.time.max.ms": "10000"})
		if text := os.Getenv(minutesVariable); text != "" {
			minutes, err := strconv.Atoi(text)
			if err != nil {
				t.Fatalf("%s: %v", minutesVariable, err)
			}
			length = time.Duration(minutes) * time.Minute
		}
	}
	s := hire(t, testnode.ClusterOptions{Members: testnode.Nodes(3, testnode.Member{}), Props: props})
	s.Start(t)
	l := s.mix(t)
	l.flows(t)
	l.churn.start(t, every/6)
	var samples []sample
	var before sample
	start, beat := time.Now(), time.NewTicker(every)
	defer beat.Stop()
	for i := range int(length / every) {
		<-beat.C
		x := s.sample(t, start)
		x.Paused = l.gate.lately(30 * time.Second)
		x.Node, x.How = int32(i%3+1), []string{"SIGTERM", "kill -9"}[i%2]
		x.InSync = s.strike(t, l, x.Node, x.How).Seconds()
		t.Logf("%+v", x)
		samples = append(samples, x)
		l.healthy(t)
		if i == 2 && length < 2*window {
			<-beat.C
			before = s.sample(t, start)
		}
	}
	<-beat.C
	samples = append(samples, s.sample(t, start))
	l.churn.stop()
	if length < 2*window {
		s.returns(t, before)
	}
	figures := l.end(t)
	figures["restarts"], figures["samples"] = len(samples)-1, samples
	for _, n := range s.Nodes {
		noCoordinatorErrors(t, n)
	}
	if length >= 2*window {
		figures["first"], figures["last"] = compare(t, samples, length)
	}
	t.Log(figures)
	if testnode.Full() {
		testnode.WriteResult(t, "soak-rolling", time.Since(began), figures)
	}
}

// strike restarts a node and waits until all replicas are in sync; it tells how long that took.
func (s *cast) strike(t *testing.T, l *mixture, id int32, how string) time.Duration {
	t.Helper()
	struck := time.Now()
	if how == "SIGTERM" {
		s.Node(id).Stop(t)
	} else {
		s.Node(id).Kill(t)
	}
	s.Node(id).Start(t)
	for _, topic := range l.topics() {
		s.full(t, topic)
	}
	return time.Since(struck).Round(time.Millisecond)
}

// sample looks at all nodes.
func (s *cast) sample(t *testing.T, start time.Time) sample {
	t.Helper()
	x := sample{At: math.Round(time.Since(start).Minutes()*100) / 100}
	for _, n := range s.Nodes {
		fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", n.PID()))
		if err != nil {
			t.Fatal(err)
		}
		x.RSS = append(x.RSS, rss(t, n)>>20)
		x.Handles = append(x.Handles, len(fds))
		x.Goroutines = append(x.Goroutines, int(s.metric(t, n.ID, "go_goroutines")))
	}
	return x
}

// total is a figure of all nodes together.
func total(list []int) float64 {
	sum := 0
	for _, n := range list {
		sum += n
	}
	return float64(sum)
}

// means are averages of what the cluster takes in a window.
type means struct {
	Samples    int     `json:"samples"`
	RSS        float64 `json:"rss_mb"`
	Goroutines float64 `json:"goroutines"`
	Handles    float64 `json:"handles"`
}

// compare holds the last ten minutes against the first ten.
func compare(t *testing.T, samples []sample, length time.Duration) (first, last means) {
	t.Helper()
	first, last = mean(samples, 2.5, window.Minutes()+0.5), mean(samples, (length-window).Minutes()+0.5, math.Inf(1))
	if first.Samples < 3 || last.Samples < 3 {
		t.Errorf("only %d samples of the first ten minutes and %d of the last can be compared", first.Samples, last.Samples)
	}
	if last.RSS > 1.1*first.RSS {
		t.Errorf("the nodes take %.0f MB in the last ten minutes and took %.0f in the first", last.RSS, first.RSS)
	}
	near(t, "goroutines", last.Goroutines, first.Goroutines)
	near(t, "file handles", last.Handles, first.Handles)
	return first, last
}

// mean averages samples between two minutes. Before the fourth restart the ages are not yet those of all others.
func mean(samples []sample, from, to float64) (m means) {
	for _, x := range samples {
		if x.At < from || x.At >= to || x.Paused {
			continue
		}
		m.Samples++
		m.RSS += total(x.RSS)
		m.Goroutines += total(x.Goroutines)
		m.Handles += total(x.Handles)
	}
	n := float64(max(m.Samples, 1))
	return means{m.Samples, math.Round(m.RSS/n*10) / 10, math.Round(m.Goroutines/n*10) / 10, math.Round(m.Handles/n*10) / 10}
}

func near(t *testing.T, what string, now, before float64) {
	t.Helper()
	if math.Abs(now-before) > 0.05*before {
		t.Errorf("%s: %.0f, and %.0f before", what, now, before)
	}
}

// returns waits until goroutines and file handles are as before the load was disturbed.
func (s *cast) returns(t *testing.T, before sample) {
	t.Helper()
	testnode.Until(t, testnode.Patience, "goroutines and file handles return", func() error {
		now := s.sample(t, time.Now())
		for _, x := range []struct {
			what        string
			now, before float64
		}{{"goroutines", total(now.Goroutines), total(before.Goroutines)}, {"file handles", total(now.Handles), total(before.Handles)}} {
			if x.now > 1.05*x.before {
				return fmt.Errorf("%s: %.0f, and %.0f before", x.what, x.now, x.before)
			}
		}
		return nil
	})
}
