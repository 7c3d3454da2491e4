package metrics

import (
	"errors"
	"io"
	"iter"
	"maps"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func buckets(at map[time.Duration]int64, order ...time.Duration) iter.Seq2[time.Duration, int64] {
	return func(yield func(time.Duration, int64) bool) {
		for _, d := range order {
			if !yield(d, at[d]) {
				return
			}
		}
	}
}

func get(t *testing.T, s *Server, path string) (int, string) {
	t.Helper()
	resp, err := http.Get("http://" + s.Addr().String() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func serve(t *testing.T, r *Registry, ready Check) *Server {
	t.Helper()
	s, err := Serve("127.0.0.1:0", r, func() error { return nil }, ready)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Shutdown(t.Context()); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
	return s
}

func allSources() Sources {
	times := Distribution{Sum: 3 * time.Second, Buckets: buckets(map[time.Duration]int64{
		time.Millisecond: 90, 2 * time.Millisecond: 9, time.Second: 1,
	}, time.Millisecond, 2*time.Millisecond, time.Second)}
	return Sources{
		State: func() BrokerState { return Running },
		Topics: maps.All(map[string]Topic{
			"a": {MessagesIn: 10, BytesIn: 100, ProduceRequests: 1},
			"b": {MessagesIn: 5, BytesIn: 11, FetchRequests: 2},
		}),
		Traffic:    func() Traffic { return Traffic{7, 8} },
		Replicas:   func() Replicas { return Replicas{Partitions: 12, UnderReplicated: 3, ISRShrinks: 2, Truncated: 5} },
		Controller: func() Controller { return Controller{Active: true, FencedBrokers: 1, OfflinePartitions: 4} },
		Logs: func(yield func(Log) bool) {
			yield(Log{Topic: "a", Partition: 1, Size: 4096, StartOffset: 5, EndOffset: 99, Num: 2})
		},
		Dirs:     maps.All(map[string]bool{"/d1": false, "/d2": true}),
		Requests: func(yield func(Request) bool) { yield(Request{"Produce", 100, 5000, times, times}) },
		Listeners: maps.All(map[string]int{
			"PLAINTEXT": 6,
		}),
		Network: func() Network { return Network{Accepted: 9, BadFrames: 1, MemoryUsed: 77} },
	}
}

func TestNamesThatDashboardsUse(t *testing.T) {
	r := New()
	r.Register(allSources())
	r.Gauge("weir_something", "Some thing.", func() float64 { return 1.5 })
	r.Counter("weir_things_total", "Things.", func() float64 { return 2 })
	s := serve(t, r, func() error { return nil })
	code, text := get(t, s, "/metrics")
	if code != http.StatusOK {
		t.Fatalf("%d: %s", code, text)
	}
	for _, line := range []string{
		`kafka_server_kafkaserver_brokerstate 3`,
		`kafka_server_brokertopicmetrics_messagesin_total{topic="a"} 10`,
		`kafka_server_brokertopicmetrics_messagesin_total{topic=""} 15`,
		`kafka_server_brokertopicmetrics_bytesin_total{topic="b"} 11`,
		`kafka_server_brokertopicmetrics_replicationbytesin_total 7`,
		`kafka_server_replicamanager_partitioncount 12`,
		`kafka_server_replicamanager_underreplicatedpartitions 3`,
		`kafka_server_replicamanager_isrshrinks_total 2`,
		`weir_replication_truncated_records_total 5`,
		`kafka_controller_kafkacontroller_activecontrollercount 1`,
		`kafka_controller_kafkacontroller_offlinepartitionscount 4`,
		`kafka_controller_controllerstats_uncleanleaderelections_total 0`,
		`kafka_log_log_size{partition="1",topic="a"} 4096`,
		`kafka_log_log_logendoffset{partition="1",topic="a"} 99`,
		`kafka_log_logmanager_logdirectoryoffline{logDirectory="/d2"} 1`,
		`kafka_log_logmanager_offlinelogdirectorycount 1`,
		`kafka_network_requestmetrics_requests_total{request="Produce"} 100`,
		`kafka_network_requestmetrics_totaltimems_count{request="Produce"} 100`,
		`kafka_network_requestmetrics_totaltimems_sum{request="Produce"} 3000`,
		`kafka_network_requestmetrics_totaltimems{request="Produce",quantile="0.99"} 2`,
		`weir_network_request_seconds_bucket{request="Produce",le="0.002"} 99`,
		`weir_network_request_seconds_bucket{request="Produce",le="+Inf"} 100`,
		`kafka_server_socket_server_metrics_connection_count{listener="PLAINTEXT"} 6`,
		`kafka_network_socketserver_memorypoolused 77`,
		`weir_network_bad_frames_total 1`,
		`weir_something 1.5`,
		`weir_things_total 2`,
	} {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("missing: %s", line)
		}
	}
	if !strings.Contains(text, "\ngo_goroutines ") || !strings.Contains(text, "\nprocess_open_fds ") {
		t.Error("the runtime's metrics are missing")
	}
	for _, d := range table {
		if !strings.Contains(text, "\n# HELP "+d.name+" ") {
			t.Errorf("%s is in the table and never sent", d.name)
		}
	}
}

func TestAbsentSourcesAreLeftOut(t *testing.T) {
	r := New()
	r.Register(Sources{})
	_, text := get(t, serve(t, r, func() error { return nil }), "/metrics")
	if strings.Contains(text, "kafka_") || strings.Contains(text, "weir_") {
		t.Error("metrics without a source")
	}
}

func TestTwoRegistriesInOneProcess(t *testing.T) {
	for range 2 {
		r := New()
		r.Register(allSources())
	}
}

func TestQuantiles(t *testing.T) {
	d := Distribution{Buckets: buckets(map[time.Duration]int64{time.Millisecond: 50, 2 * time.Millisecond: 50}, time.Millisecond, 2*time.Millisecond, 4*time.Millisecond)}
	count, at := d.summarize()
	if count != 100 || at[0.5] != 1 || at[0.75] != 1.5 || at[0.99] != 1.98 || len(at) != len(quantiles) {
		t.Errorf("%d, %v", count, at)
	}
	if count, at := (Distribution{Buckets: buckets(nil, time.Second)}).summarize(); count != 0 || len(at) != 0 {
		t.Errorf("empty: %d, %v", count, at)
	}
}

func TestHealth(t *testing.T) {
	var ready atomic.Bool
	s := serve(t, New(), func() error {
		if !ready.Load() {
			return errors.New("recovering 3 of 10 logs")
		}
		return nil
	})
	if code, text := get(t, s, "/livez"); code != 200 || text != "ok\n" {
		t.Errorf("/livez: %d %q", code, text)
	}
	if code, text := get(t, s, "/readyz"); code != 503 || text != "recovering 3 of 10 logs\n" {
		t.Errorf("/readyz: %d %q", code, text)
	}
	ready.Store(true)
	if code, _ := get(t, s, "/readyz"); code != 200 {
		t.Errorf("/readyz: %d", code)
	}
	if code, _ := get(t, s, "/other"); code != 404 {
		t.Errorf("/other: %d", code)
	}
	if _, err := Serve(s.Addr().String(), New(), nil, nil); err == nil || !strings.Contains(err.Error(), "metrics listener") {
		t.Errorf("second listener: %v", err)
	}
}
