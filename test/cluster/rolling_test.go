package cluster

import (
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/test/testnode"
)

// What the environment says of the long form of TestRollingRestarts.
const (
	// minutesVariable is how many minutes of load it takes, a restart each minute; 60 when it is not set.
	minutesVariable = "WEIR_SOAK_MINUTES"
	// pauseVariable names a file whose presence pauses the load, so that something else can be measured on the machine
	// meanwhile. Restarts go on. Minutes in which the file was there do not count, and their samples are not compared.
	pauseVariable = "WEIR_SOAK_PAUSE"
)

// window is how many samples of the beginning and of the end of the long form are compared: minutes.
const window = 10

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
// The short form restarts each node twice, one every two seconds; goroutines return to what they were before, and no deleted
// file is held open.
func TestRollingRestarts(t *testing.T) {
	t.Parallel()
	began, restarts, every := time.Now(), 6, 2*time.Second
	props := map[string]string{
		"offsets.topic.replication.factor": "3", "offsets.topic.num.partitions": "6", "log.retention.check.interval.ms": "5000",
		"log.segment.delete.delay.ms": "1000", "log.cleaner.backoff.ms": "2000",
	}
	if testnode.Full() {
		restarts, every = 60, time.Minute
		maps.Copy(props, map[string]string{"broker.session.timeout.ms": "9000", "broker.heartbeat.interval.ms": "2000", "replica.lag.time.max.ms": "10000"})
		if text := os.Getenv(minutesVariable); text != "" {
			var err error
			if restarts, err = strconv.Atoi(text); err != nil {
				t.Fatalf("%s: %v", minutesVariable, err)
			}
		}
	}
	s := hire(t, testnode.ClusterOptions{Members: testnode.Nodes(3, testnode.Member{}), Props: props})
	s.Start(t)
	l := s.mix(t)
	l.flows(t)
	l.churn.start(t, every/6)
	var samples []sample
	start, beat := time.Now(), time.NewTicker(every)
	defer beat.Stop()
	for i, loaded := 0, 0; loaded < restarts; i++ {
		<-beat.C
		x := s.sample(t, start)
		if x.Paused = l.gate.lately(every); !x.Paused {
			loaded++
		}
		x.Node, x.How = int32(i%3+1), []string{"SIGTERM", "kill -9"}[i%2]
		x.InSync = s.strike(t, l, x.Node, x.How).Seconds()
		t.Logf("%+v", x)
		samples = append(samples, x)
		l.healthy(t)
	}
	<-beat.C
	l.churn.stop()
	s.returns(t, samples[:3])
	figures := l.end(t)
	figures["restarts"], figures["samples"] = len(samples), samples
	for _, n := range s.Nodes {
		noCoordinatorErrors(t, n)
	}
	if restarts >= 2*window {
		figures["first"], figures["last"] = compare(t, samples)
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

// compare holds the last ten minutes of load against the first ten.
func compare(t *testing.T, samples []sample) (first, last means) {
	t.Helper()
	loaded := slices.DeleteFunc(slices.Clone(samples), func(x sample) bool { return x.Paused })
	// Before the third restart the ages are not yet those of all other samples.
	first, last = mean(loaded[2:window]), mean(loaded[len(loaded)-window:])
	if last.RSS > 1.1*first.RSS {
		t.Errorf("the nodes take %.0f MB in the last ten minutes and took %.0f in the first", last.RSS, first.RSS)
	}
	noMore(t, "goroutines", last.Goroutines, first.Goroutines)
	noMore(t, "file handles", last.Handles, first.Handles)
	return first, last
}

// mean averages what the nodes take together.
func mean(samples []sample) (m means) {
	for _, x := range samples {
		m.RSS += total(x.RSS)
		m.Goroutines += total(x.Goroutines)
		m.Handles += total(x.Handles)
	}
	n := float64(len(samples))
	return means{len(samples), math.Round(m.RSS/n*10) / 10, math.Round(m.Goroutines/n*10) / 10, math.Round(m.Handles/n*10) / 10}
}

// noMore allows five percent. Fewer is no fault: on a busy machine clients time out and connect again, so that there are more for
// a while.
func noMore(t *testing.T, what string, now, before float64) {
	t.Helper()
	if now > 1.05*before {
		t.Errorf("%s: %.0f, and %.0f before", what, now, before)
	}
}

// returns waits until the nodes have no more goroutines than before the load was disturbed much, and hold no file that was deleted.
func (s *cast) returns(t *testing.T, before []sample) {
	t.Helper()
	most := 0.0
	for _, x := range before {
		most = max(most, total(x.Goroutines))
	}
	testnode.Until(t, testnode.Patience, "goroutines and files return", func() error {
		if now := total(s.sample(t, time.Now()).Goroutines); now > 1.05*most {
			return fmt.Errorf("%.0f goroutines, and %.0f before", now, most)
		}
		for _, n := range s.Nodes {
			fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", n.PID()))
			if err != nil {
				return err
			}
			for _, fd := range fds {
				if file, err := os.Readlink(fd); err == nil && strings.HasSuffix(file, " (deleted)") {
					return fmt.Errorf("node %d holds %s", n.ID, file)
				}
			}
		}
		return nil
	})
}
