// Package metrics shows what a node has counted to Prometheus, under the names that dashboards written for Apache Kafka
// with the JMX exporter expect (lower case, …PerSec counters as …_total), and answers health checks.
//
// Nothing is counted here. The parts of a node count in plain atomics; the broker registers functions that read them,
// and they are called at each scrape. So a topic or partition costs no metric object while nobody scrapes.
//
//	registry.go  what can be registered
//	kafka.go     the names, and what the broker must be able to tell for each
//	http.go      the listener: /metrics /livez /readyz
package metrics

import (
	"iter"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Registry holds what one node shows. Nodes in one process (in tests) have one each.
type Registry struct{ reg *prometheus.Registry }

// New returns a registry with the Go runtime's and the process's own metrics.
func New() *Registry {
	r := &Registry{prometheus.NewRegistry()}
	r.reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// Handler serves the registry in Prometheus' text format.
func (r *Registry) Handler() http.Handler {
	return promhttp.HandlerFor(r.reg, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError})
}

// Gauge registers a number that goes up and down. Registering a name twice is a bug and panics.
func (r *Registry) Gauge(name, help string, f func() float64) {
	r.reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, f))
}

// Counter registers a number that only grows. Registering a name twice is a bug and panics.
func (r *Registry) Counter(name, help string, f func() float64) {
	r.reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, f))
}

// Distribution is a histogram of times as its owner counts it: each bucket's upper bound and how many fell into that
// bucket alone, in rising order. The last bucket also holds everything above its bound.
type Distribution struct {
	Sum     time.Duration
	Buckets iter.Seq2[time.Duration, int64]
}

// quantiles are those that the JMX exporter shows of Kafka's histograms.
var quantiles = [...]float64{0.5, 0.75, 0.95, 0.98, 0.99, 0.999}

// summarize returns the number of times and their quantiles in milliseconds, interpolated inside the buckets.
func (d Distribution) summarize() (count uint64, at map[float64]float64) {
	for _, n := range d.Buckets {
		count += uint64(n)
	}
	at = make(map[float64]float64, len(quantiles))
	if count == 0 {
		return 0, at
	}
	next, seen, lower := 0, 0.0, time.Duration(0)
	for upper, n := range d.Buckets {
		for next < len(quantiles) && n > 0 && quantiles[next]*float64(count) <= seen+float64(n) {
			inside := (quantiles[next]*float64(count) - seen) / float64(n)
			at[quantiles[next]] = millis(lower) + inside*millis(upper-lower)
			next++
		}
		seen, lower = seen+float64(n), upper
	}
	return count, at
}

// cumulative returns the histogram as Prometheus has it: seconds, each bucket with all below it, none for the last.
func (d Distribution) cumulative() (count uint64, buckets map[float64]uint64) {
	buckets = map[float64]uint64{}
	last := 0.0
	for upper, n := range d.Buckets {
		count += uint64(n)
		last = upper.Seconds()
		buckets[last] = count
	}
	delete(buckets, last)
	return count, buckets
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
