package cluster

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"weir/test/testnode"
)

// TestHealthAndMetrics: the three paths of weir.metrics.listener while a node starts, runs and stops.
func TestHealthAndMetrics(t *testing.T) {
	t.Parallel()
	at := "127.0.0.1:" + strconv.Itoa(testnode.FreePort(t))
	n := testnode.New(t, testnode.Options{Props: map[string]string{"weir.metrics.listener": at}})
	n.Start(t)
	get := func(path string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+at+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(body)
	}
	for _, path := range []string{"/livez", "/readyz"} {
		if code, body := get(path); code != http.StatusOK {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	if code, _ := get("/nothing"); code != http.StatusNotFound {
		t.Errorf("/nothing: %d", code)
	}
	createTopic(t, n, "counted", 2, nil)
	p := n.Client(t, kgo.DefaultProduceTopic("counted"))
	for range 7 {
		if err := p.ProduceSync(t.Context(), kgo.StringRecord("x")).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := readTopic(t.Context(), n.Addr, "counted"); err != nil {
		t.Fatal(err)
	}
	code, body := get("/metrics")
	if code != http.StatusOK {
		t.Fatalf("/metrics: %d %s", code, body)
	}
	for _, want := range []string{
		`kafka_server_brokertopicmetrics_messagesin_total{topic="counted"} 7`,
		`kafka_server_replicamanager_partitioncount 2`,
		`kafka_server_replicamanager_leadercount 2`,
		`kafka_server_kafkaserver_brokerstate 3`,
		`kafka_controller_kafkacontroller_activecontrollercount 1`,
		`kafka_network_requestmetrics_requests_total{request="Produce"}`,
		`kafka_network_requestmetrics_totaltimems_count{request="Fetch"}`,
		`kafka_log_log_logendoffset{partition="0",topic="counted"}`,
		`kafka_server_socket_server_metrics_connection_count{listener="PLAINTEXT"}`,
		`process_resident_memory_bytes`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
	n.Stop(t)
	if c, err := net.DialTimeout("tcp", at, time.Second); err == nil {
		t.Error("the metrics listener outlives the node")
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestStopDuringLongPoll: a consumer that waits for records for half a minute does not hold up a stop.
func TestStopDuringLongPoll(t *testing.T) {
	n := testnode.New(t, testnode.Options{})
	n.Start(t)
	createTopic(t, n, "quiet", 1, nil)
	for range 20 {
		c := n.Client(t, kgo.ConsumeTopics("quiet"), kgo.FetchMaxWait(30*time.Second), kgo.FetchMinBytes(1))
		go c.PollFetches(t.Context())
	}
	testnode.Until(t, 10*time.Second, "long polls", func() error {
		if conns := established(t, n); conns < 40 {
			return fmt.Errorf("%d connections", conns)
		}
		return nil
	})
	began := time.Now()
	n.Stop(t)
	if took := time.Since(began); took > time.Second {
		t.Errorf("the stop took %v", took)
	}
}

// established counts the sockets that the node has open.
func established(t *testing.T, n *testnode.Node) int {
	t.Helper()
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", n.PID()))
	if err != nil {
		t.Fatal(err)
	}
	sockets := 0
	for _, fd := range fds {
		if to, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", n.PID(), fd.Name())); err == nil && strings.HasPrefix(to, "socket:") {
			sockets++
		}
	}
	return sockets
}

// dial opens a connection that is closed at the end of the test.
func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// apiVersions asks for ApiVersions v0 and waits for the answer.
func apiVersions(c net.Conn, limit time.Duration) error {
	if _, err := c.Write([]byte{0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 7, 0xff, 0xff}); err != nil {
		return err
	}
	return readVersions(c, limit)
}

func readVersions(c net.Conn, limit time.Duration) error {
	if err := c.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	var head [8]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return err
	}
	if id := binary.BigEndian.Uint32(head[4:]); id != 7 {
		return fmt.Errorf("answer to %d", id)
	}
	_, err := io.CopyN(io.Discard, c, int64(binary.BigEndian.Uint32(head[:4]))-4)
	return err
}

// TestConnectionLimits: max.connections.per.ip closes what is too much at once, max.connections lets it wait,
// connections.max.idle.ms closes what is idle too long.
func TestConnectionLimits(t *testing.T) {
	t.Parallel()
	t.Run("per address", func(t *testing.T) {
		t.Parallel()
		n := testnode.New(t, testnode.Options{Props: map[string]string{"max.connections.per.ip": "5"}})
		n.Start(t)
		testnode.Until(t, 10*time.Second, "all places free", func() error {
			var open []net.Conn
			defer func() {
				for _, c := range open {
					c.Close()
				}
			}()
			for range 5 {
				c, err := net.Dial("tcp", n.Addr)
				if err != nil {
					return err
				}
				open = append(open, c)
				if err := apiVersions(c, 10*time.Second); err != nil {
					return err
				}
			}
			sixth := dial(t, n.Addr)
			if err := apiVersions(sixth, 10*time.Second); err == nil {
				t.Error("a sixth connection was served")
			}
			return nil
		})
	})
	t.Run("all together", func(t *testing.T) {
		t.Parallel()
		n := testnode.New(t, testnode.Options{Props: map[string]string{"max.connections": "8"}})
		n.Start(t)
		testnode.Until(t, 10*time.Second, "all places free", func() error {
			if c := established(t, n); c > 12 {
				return fmt.Errorf("%d sockets", c)
			}
			return nil
		})
		var open []net.Conn
		for range 8 {
			c := dial(t, n.Addr)
			if err := apiVersions(c, 10*time.Second); err != nil {
				t.Fatal(err)
			}
			open = append(open, c)
		}
		ninth := dial(t, n.Addr)
		if err := apiVersions(ninth, 200*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a ninth connection: %v, want no answer yet", err)
		}
		if err := open[3].Close(); err != nil {
			t.Fatal(err)
		}
		if err := readVersions(ninth, 10*time.Second); err != nil {
			t.Error("the ninth connection, when a place is free: ", err)
		}
	})
	t.Run("idle", func(t *testing.T) {
		t.Parallel()
		n := testnode.New(t, testnode.Options{Props: map[string]string{"connections.max.idle.ms": "500"}})
		n.Start(t)
		c := dial(t, n.Addr)
		if err := apiVersions(c, 10*time.Second); err != nil {
			t.Fatal(err)
		}
		if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("an idle connection: %v", err)
		}
	})
}

// TestManyConnections: hundreds of connections at work, thousands idle.
func TestManyConnections(t *testing.T) {
	n := testnode.New(t, testnode.Options{})
	n.Start(t)
	createTopic(t, n, "many", 4, nil)
	before := rss(t, n)
	idle := testnode.Rounds(1000, 5000)
	for range idle {
		if err := apiVersions(dial(t, n.Addr), 10*time.Second); err != nil {
			t.Fatal(err)
		}
	}
	perIdle := (rss(t, n) - before) / idle
	const busy, each = 100, 20
	var work sync.WaitGroup
	failed := make(chan error, busy)
	for i := range busy {
		work.Go(func() {
			c, err := kgo.NewClient(kgo.SeedBrokers(n.Addr), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck()))
			if err != nil {
				failed <- err
				return
			}
			defer c.Close()
			for k := range each {
				if err := c.ProduceSync(t.Context(), &kgo.Record{Topic: "many", Partition: int32((i + k) % 4), Value: []byte("x")}).FirstErr(); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	work.Wait()
	select {
	case err := <-failed:
		t.Fatal(err)
	default:
	}
	got, err := readTopic(t.Context(), n.Addr, "many")
	if err != nil {
		t.Fatal(err)
	}
	if sum := len(got[0]) + len(got[1]) + len(got[2]) + len(got[3]); sum != busy*each {
		t.Errorf("%d records, want %d", sum, busy*each)
	}
	if perIdle > 64<<10 {
		t.Errorf("an idle connection costs %d bytes", perIdle)
	}
	report(t, "many connections", map[string]any{"idle": idle, "bytes_per_idle": perIdle, "busy": busy})
	n.Stop(t)
}

// rss is the node's resident memory in bytes.
func rss(t *testing.T, n *testnode.Node) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", n.PID()))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	if err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}

// TestHostileFrames: rubbish, cut and huge frames from many peers at once close their own connections and nothing else.
// Memory stays within a small multiple of what the node used before.
func TestHostileFrames(t *testing.T) {
	n := testnode.New(t, testnode.Options{Props: map[string]string{"queued.max.request.bytes": strconv.Itoa(64 << 20), "socket.request.max.bytes": strconv.Itoa(60 << 20)}})
	n.Start(t)
	createTopic(t, n, "calm", 1, nil)
	good := newFiller(t, n, "calm")
	if err := good.produce(t, 100); err != nil {
		t.Fatal(err)
	}
	before, most := rss(t, n), 0
	frames := hostile()
	rounds := testnode.Rounds(20, 400)
	dice := rand.New(rand.NewPCG(1, 2))
	for range rounds {
		for range 20 {
			f := frames[dice.IntN(len(frames))]
			c := dial(t, n.Addr)
			if _, err := c.Write(f); err != nil && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
				t.Fatal(err)
			}
		}
		if err := good.produce(t, 100); err != nil {
			t.Fatal("a good client is disturbed: ", err)
		}
		most = max(most, rss(t, n))
	}
	good.check(t, 0)
	if limit := 4*before + 64<<20; most > limit {
		t.Errorf("memory grew from %d to %d bytes, the limit is %d", before, most, limit)
	}
	report(t, "hostile frames", map[string]any{"frames": rounds * 20, "rss_before": before, "rss_most": most})
	n.Stop(t)
}

// hostile are beginnings of connections that no honest client makes.
func hostile() [][]byte {
	frame := func(size uint32, body ...byte) []byte {
		return append(binary.BigEndian.AppendUint32(nil, size), body...)
	}
	header := func(key, version int16, rest ...byte) []byte {
		b := binary.BigEndian.AppendUint16(nil, uint16(key))
		b = binary.BigEndian.AppendUint16(b, uint16(version))
		b = binary.BigEndian.AppendUint32(b, 1)
		return append(append(b, 0xff, 0xff), rest...)
	}
	whole := func(body []byte) []byte { return frame(uint32(len(body)), body...) }
	many := append(header(3, 1), 0x7f, 0xff, 0xff, 0xff) // Metadata of two thousand million topics
	produce := append(header(0, 9), 0, 0, 1, 0, 0, 0, 10, 0xff, 0xff, 0xff, 0xff, 0x0f)
	out := [][]byte{
		[]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		{0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03},
		frame(0xffffffff), frame(0x80000000), frame(0), frame(1, 0), frame(0x7fffffff), frame(100<<20, 0, 0, 0, 9),
		frame(50<<20, header(0, 9)...), frame(8<<20, header(3, 1)...), frame(104857600, header(0, 9)...),
		whole(header(999, 0)), whole(header(0, 999)), whole(header(-1, -1)), whole(many), whole(produce), {0}, {0, 0, 0},
	}
	dice := rand.New(rand.NewPCG(3, 4))
	for key := range int16(92) {
		junk := make([]byte, 40+dice.IntN(4000))
		for i := range junk {
			junk[i] = byte(dice.UintN(256))
		}
		out = append(out, whole(header(key, int16(dice.IntN(12)), junk...)))
	}
	return out
}

// TestRetention: segments go by size and by age while the node runs, and stay gone.
func TestRetention(t *testing.T) {
	t.Parallel()
	n := testnode.New(t, testnode.Options{Props: map[string]string{
		"log.retention.check.interval.ms": "200", "log.initial.task.delay.ms": "100", "log.segment.delete.delay.ms": "100",
	}})
	n.Start(t)
	createTopic(t, n, "by-size", 1, map[string]string{"segment.bytes": "1048576", "retention.bytes": "2097152"})
	createTopic(t, n, "by-age", 1, map[string]string{"retention.ms": "1000"})
	createTopic(t, n, "kept", 1, map[string]string{"segment.bytes": "1048576", "retention.ms": "-1"})
	size, age, kept := newFiller(t, n, "by-size"), newFiller(t, n, "by-age"), newFiller(t, n, "kept")
	for range 1500 {
		for _, f := range []*filler{size, kept} {
			if err := f.produce(t, 4000); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := age.produce(t, 10); err != nil {
		t.Fatal(err)
	}
	starts := func(topic string) int64 {
		offsets, err := n.Admin(t).ListStartOffsets(t.Context(), topic)
		if err != nil {
			t.Fatal(err)
		}
		o, _ := offsets.Lookup(topic, 0)
		return o.Offset
	}
	testnode.Until(t, 20*time.Second, "retention", func() error {
		if s, a := starts("by-size"), starts("by-age"); s < 500 || a != 1 {
			return fmt.Errorf("log starts are %d and %d", s, a)
		}
		return nil
	})
	testnode.Until(t, 20*time.Second, "files are deleted", func() error {
		entries, err := os.ReadDir(n.LogDirs[0] + "/by-size-0")
		if err != nil {
			return err
		}
		sum := int64(0)
		for _, e := range entries {
			if info, err := e.Info(); err == nil && !strings.HasSuffix(e.Name(), "index") {
				sum += info.Size()
			}
		}
		if sum > 3200<<10 {
			return fmt.Errorf("%d bytes are left", sum)
		}
		return nil
	})
	from := int(starts("by-size"))
	n.Kill(t)
	n.Start(t)
	if again := int(starts("by-size")); again < from {
		t.Errorf("after a restart the log starts at %d, before at %d", again, from)
	}
	size.check(t, int(starts("by-size")))
	kept.check(t, 0)
	if starts("kept") != 0 {
		t.Error("retention.ms=-1 does not keep everything")
	}
	age.connect(t)
	if err := age.produce(t, 10); err != nil {
		t.Error("produce to a log that retention emptied: ", err)
	}
	_, err := produceOne(context.Background(), age.c, &kgo.Record{Topic: "no-such", Value: []byte("x")}, 1)
	if !errors.Is(err, kerr.UnknownTopicOrPartition) {
		t.Errorf("produce to an unknown topic: %v", err)
	}
}
