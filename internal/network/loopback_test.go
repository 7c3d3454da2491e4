package network

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/vfs"
	"weir/internal/vfs/memfs"
	"weir/internal/wire"
)

func TestRoundTripEveryAPI(t *testing.T) {
	var l logs
	s := start(t, options(echo, &l))
	nc := dial(t, s)
	id := int32(0)
	for api := range wire.APIs() {
		id++
		write(t, nc, request(api.Key, api.Versions.Max, id, 20))
		wantAnswers(t, nc, id)
		if n := s.stats.API(api.Key).Requests.Load(); n != 1 {
			t.Errorf("%s counted %d times", api.Name, n)
		}
	}
}

func TestConnTellsHandler(t *testing.T) {
	var l logs
	seen := make(chan string, 1)
	s := start(t, options(func(_ context.Context, c *Conn, h wire.Header, _ []byte) wire.Response {
		c.SetSoftware(Software{"lib", "1.2"})
		seen <- fmt.Sprint(c.Listener(), c.Principal(), c.Software(), c.RemoteAddr(), c.LocalAddr(), *h.ClientID)
		return ok(h)
	}, &l))
	nc := dial(t, s)
	write(t, nc, metadata(1))
	want := fmt.Sprint(listenerName, "User:ANONYMOUS", Software{"lib", "1.2"}, nc.LocalAddr(), nc.RemoteAddr(), "test")
	if got := <-seen; got != want {
		t.Errorf("handler saw %s, want %s", got, want)
	}
}

func TestSeveralListenersAndIPv6(t *testing.T) {
	var l logs
	o := options(func(_ context.Context, c *Conn, h wire.Header, _ []byte) wire.Response {
		r := kmsg.NewPtrApiVersionsResponse()
		r.ErrorCode = int16(len(c.Listener()))
		return wire.Message{Response: r}
	}, &l)
	o.Listeners = []Listener{{Name: "A", Host: "127.0.0.1"}, {Name: "BB", Host: "[::1]"}, {Name: "CCC"}}
	s := start(t, o)
	for i, name := range []string{"A", "BB", "CCC"} {
		addr := s.Addr(name).(*net.TCPAddr)
		hosts := [][]string{{"127.0.0.1"}, {"::1"}, {"127.0.0.1", "::1"}}[i]
		for _, host := range hosts {
			nc, err := net.Dial("tcp", net.JoinHostPort(host, fmt.Sprint(addr.Port)))
			if err != nil {
				t.Fatal(err)
			}
			write(t, nc, request(18, 0, 1, 0))
			if _, body := readAnswer(t, nc); int(binary.BigEndian.Uint16(body)) != len(name) {
				t.Errorf("%s at %s answered %x", name, host, body)
			}
			nc.Close()
		}
	}
	if s.Addr("D") != nil {
		t.Error("an unknown listener has an address")
	}
}

func TestListenErrorNamesListener(t *testing.T) {
	var l logs
	first := start(t, options(echo, &l))
	o := options(echo, &l)
	o.Listeners = []Listener{{Name: "FREE", Host: "127.0.0.1"}, {Name: "TAKEN", Host: "127.0.0.1", Port: first.Addr(listenerName).(*net.TCPAddr).Port}}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Listen(); err == nil || !strings.Contains(err.Error(), "listener TAKEN") {
		t.Errorf("got %v", err)
	}
	for _, bad := range []func(*Options){
		func(o *Options) { o.Listeners = nil },
		func(o *Options) { o.Handler = nil },
		func(o *Options) { o.MaxRequestBytes = 0 },
		func(o *Options) { o.Listeners = append(o.Listeners, o.Listeners[0]) },
		func(o *Options) { o.Limits.PerIPOverrides = map[string]int{"no such host.": 1} },
	} {
		o := options(echo, &l)
		bad(&o)
		if _, err := New(o); err == nil {
			t.Errorf("accepted %+v", o)
		}
	}
}

func TestHostileFrames(t *testing.T) {
	sized := func(size uint32, rest string) []byte {
		return append(binary.BigEndian.AppendUint32(nil, size), rest...)
	}
	for _, tc := range []struct {
		name   string
		bytes  []byte
		half   bool // then close the sending side
		reason string
	}{
		{name: "http", bytes: []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), reason: "looks like HTTP"},
		{name: "http post", bytes: []byte("POST /x HTTP/1.1\r\n\r\n"), reason: "looks like HTTP"},
		{name: "tls", bytes: []byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"), reason: "looks like TLS: this listener is PLAINTEXT"},
		{name: "ssh", bytes: []byte("SSH-2.0-OpenSSH_9\r\n"), reason: "looks like SSH"},
		{name: "negative", bytes: sized(0xffffffff, ""), reason: "negative frame length -1"},
		{name: "most negative", bytes: sized(0x80000000, ""), reason: "negative frame length -2147483648"},
		{name: "huge", bytes: sized(0x7fffffff, "\x00\x00\x00\x03"), reason: "larger than socket.request.max.bytes=104857600"},
		{name: "zero", bytes: sized(0, ""), reason: "0 bytes is too short"},
		{name: "short", bytes: sized(7, ""), reason: "7 bytes is too short"},
		{name: "unknown key", bytes: sized(100, "\x00\x07\x00\x00"), reason: "unknown API key 7"},
		{name: "negative key", bytes: sized(100, "\xff\xff\x00\x00"), reason: "unknown API key -1"},
		{name: "plain too large", bytes: sized(8<<20+1, "\x00\x03\x00\x01"), reason: "larger than the 8388608 that Metadata may have"},
		{name: "cut head", bytes: []byte("\x00\x00"), half: true, reason: "ended after 2 of 4 bytes"},
		{name: "cut body", bytes: produce(1)[:20], half: true, reason: "ended after 16 of"},
		{name: "bad client id", bytes: sized(10, "\x00\x03\x00\x01\x00\x00\x00\x01\x7f\xff"), reason: "cut inside the client id"},
		{name: "bad tags", bytes: sized(11, "\x00\x03\x00\x0c\x00\x00\x00\x01\xff\xff\x05"), reason: "cut inside the tagged fields"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var l logs
			s := start(t, options(echo, &l))
			good := dial(t, s)
			write(t, good, metadata(1))
			wantAnswers(t, good, 1)
			bad := dial(t, s)
			write(t, bad, tc.bytes)
			if tc.half {
				if err := bad.(*net.TCPConn).CloseWrite(); err != nil {
					t.Fatal(err)
				}
			}
			wantClosed(t, bad)
			write(t, good, metadata(2))
			wantAnswers(t, good, 2)
			if n := l.lines("level=WARN"); n != 1 || !strings.Contains(l.String(), tc.reason) || !strings.Contains(l.String(), "peer="+bad.LocalAddr().String()) {
				t.Errorf("log: %s", l.String())
			}
			if n := s.stats.BadFrames.Load(); n != 1 {
				t.Errorf("%d bad frames counted", n)
			}
		})
	}
}

// A produce larger than the limit of other APIs is welcome, and its bytes arrive as sent.
func TestLargeProduce(t *testing.T) {
	var l logs
	sum := make(chan int, 1)
	s := start(t, options(func(_ context.Context, _ *Conn, h wire.Header, body []byte) wire.Response {
		n := 0
		for _, b := range body {
			n += int(b)
		}
		sum <- n
		return ok(h)
	}, &l))
	frame := produce(1)
	want := 0
	for range 9 << 20 {
		b := byte(rand.IntN(256))
		want += int(b)
		frame = append(frame, b)
	}
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	nc := dial(t, s)
	write(t, nc, frame)
	wantAnswers(t, nc, 1)
	if got := <-sum; got != want {
		t.Errorf("bytes add up to %d, want %d", got, want)
	}
}

// One log line a second at most comes from a flood of rubbish, after the first ten.
func TestRubbishLogIsLimited(t *testing.T) {
	var l logs
	s := start(t, options(echo, &l))
	for range 30 {
		nc := dial(t, s)
		write(t, nc, []byte("GET / HTTP/1.1\r\n\r\n"))
		wantClosed(t, nc)
	}
	if n := l.lines("bad request"); n < 10 || n > 20 {
		t.Errorf("%d lines", n)
	}
}

func TestPeerGoneEndsLongPoll(t *testing.T) {
	var l logs
	polling, cause := make(chan struct{}), make(chan error)
	s := start(t, options(func(ctx context.Context, _ *Conn, h wire.Header, _ []byte) wire.Response {
		polling <- struct{}{}
		<-ctx.Done()
		cause <- context.Cause(ctx)
		return ok(h)
	}, &l))
	nc := dial(t, s)
	write(t, nc, fetch(1))
	<-polling
	nc.Close()
	if err := <-cause; !errors.Is(err, errPeerClosed) {
		t.Errorf("cause %v", err)
	}
}

func TestMaxConnectionsPerIP(t *testing.T) {
	var l logs
	o := options(echo, &l)
	o.Limits = Limits{MaxConnectionsPerIP: 2, PerIPOverrides: map[string]int{"127.0.0.9": 0, "127.0.0.8": 3}}
	s := start(t, o)
	from := func(ip string) net.Conn {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}, Timeout: 10 * time.Second}
		nc, err := d.Dial("tcp", s.Addr(listenerName).String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nc.Close() })
		return nc
	}
	works := func(nc net.Conn) {
		t.Helper()
		write(t, nc, metadata(1))
		wantAnswers(t, nc, 1)
	}
	a := from("127.0.0.1")
	works(a)
	works(from("127.0.0.1"))
	wantClosed(t, from("127.0.0.1"))
	wantClosed(t, from("127.0.0.9"))
	for range 3 {
		works(from("127.0.0.8"))
	}
	wantClosed(t, from("127.0.0.8"))
	if n := s.stats.RefusedPerIP.Load(); n != 3 {
		t.Errorf("%d refused", n)
	}
	if err := s.SetLimits(Limits{MaxConnectionsPerIP: 3}); err != nil {
		t.Fatal(err)
	}
	works(from("127.0.0.1"))
	if n := s.Connections(listenerName); n != 6 {
		t.Errorf("%d connections", n)
	}
}

// Brokers get in when clients have used up max.connections: the longest unused client goes.
func TestInterBrokerListenerEvicts(t *testing.T) {
	var l logs
	o := options(echo, &l)
	o.Listeners = append(o.Listeners, Listener{Name: "INTERNAL", Host: "127.0.0.1"})
	o.InterBroker = "INTERNAL"
	o.Limits.MaxConnections = 2
	s := start(t, o)
	old, recent := dial(t, s), dial(t, s)
	write(t, old, metadata(1))
	wantAnswers(t, old, 1)
	write(t, recent, metadata(2))
	wantAnswers(t, recent, 2)
	broker, err := net.Dial("tcp", s.Addr("INTERNAL").String())
	if err != nil {
		t.Fatal(err)
	}
	defer broker.Close()
	write(t, broker, metadata(3))
	wantAnswers(t, broker, 3)
	wantClosed(t, old)
	write(t, recent, metadata(4))
	wantAnswers(t, recent, 4)
	if err := s.SetLimits(Limits{MaxConnections: 1}); err != nil {
		t.Fatal(err)
	}
	wantClosed(t, recent)
	write(t, broker, metadata(5))
	wantAnswers(t, broker, 5)
	if n := s.stats.Evicted.Load(); n != 2 {
		t.Errorf("%d evicted", n)
	}
}

func TestBuffers(t *testing.T) {
	var p buffers
	for _, n := range []int{0, 1, 511, 512, 513, 1 << 20, 1<<20 + 1, 1 << 24, 1<<24 + 1} {
		b := p.get(n)
		if len(b.b) != n {
			t.Fatalf("%d bytes, want %d", len(b.b), n)
		}
		p.put(b)
		if again := p.get(n); len(again.b) != n {
			t.Fatalf("%d bytes again, want %d", len(again.b), n)
		}
	}
}

func TestShareOfMemory(t *testing.T) {
	if n := shareOfMemory(); n < 1<<20 {
		t.Errorf("%d bytes", n)
	}
}

// segmentFile writes a file of pseudo-random bytes, on disk or in memory.
func segmentFile(t testing.TB, fs vfs.FS, dir string, size int) (*vfs.Shared, []byte) {
	t.Helper()
	content := make([]byte, size)
	r := rand.NewChaCha8([32]byte{1})
	if _, err := r.Read(content); err != nil {
		t.Fatal(err)
	}
	f, err := fs.Open(filepath.Join(dir, "00000000000000000000.log"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(content, 0); err != nil {
		t.Fatal(err)
	}
	return vfs.NewShared(f), content
}

func region(t testing.TB, f *vfs.Shared, off, n int64) vfs.Region {
	if !f.Acquire() {
		t.Error("the file is closed")
	}
	return vfs.Region{File: f, Off: off, N: n}
}

// Many connections fetch different regions of one file at once, of sizes on both sides of the sendfile limit.
func TestFetchUnderConcurrency(t *testing.T) {
	const size = 4 << 20
	for _, place := range []string{"disk", "memory"} {
		t.Run(place, func(t *testing.T) {
			var fs vfs.FS = vfs.OS()
			dir := t.TempDir()
			if place == "memory" {
				fs, dir = memfs.New(), "/"
			}
			file, content := segmentFile(t, fs, dir, size)
			var l logs
			s := start(t, options(func(_ context.Context, _ *Conn, h wire.Header, body []byte) wire.Response {
				resp := &wire.FetchResponse{Version: h.Version, Topics: []wire.FetchTopic{{Topic: "t"}}}
				// The body lists offset and length of what is wanted.
				for ; len(body) >= 8; body = body[8:] {
					p := wire.NewFetchPartition(0)
					off, n := int64(binary.BigEndian.Uint32(body)), int64(binary.BigEndian.Uint32(body[4:]))
					if n > 0 {
						p.Regions = []vfs.Region{region(t, file, off, n/2), region(t, file, off+n/2, n-n/2)}
					}
					p.Bytes = content[off : off+n%1000]
					resp.Topics[0].Partitions = append(resp.Topics[0].Partitions, p)
				}
				return resp
			}, &l))
			var wg sync.WaitGroup
			for worker := range 8 {
				nc := dial(t, s)
				wg.Go(func() { fetchRandomly(t, nc, content, uint64(worker)) })
			}
			wg.Wait()
			if sent := s.stats.SendfileBytes.Load(); (sent > 0) != (place == "disk") {
				t.Errorf("%d bytes by sendfile", sent)
			}
			stop(t, s)
			if err := file.Release(); err != nil {
				t.Fatal(err)
			}
			if file.Acquire() {
				t.Error("a region was not released")
			}
		})
	}
}

func fetchRandomly(t *testing.T, nc net.Conn, content []byte, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 7))
	for id := range int32(15) {
		frame := fetch(id)
		frame = frame[:len(frame)-40]
		var want [][]byte
		for range 1 + r.IntN(4) {
			n := r.IntN(1 << (4 + r.IntN(16)))
			off := r.IntN(len(content) - n - 1000)
			frame = binary.BigEndian.AppendUint32(frame, uint32(off))
			frame = binary.BigEndian.AppendUint32(frame, uint32(n))
			want = append(want, append(append([]byte{}, content[off:off+n]...), content[off:off+n%1000]...))
		}
		binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
		if _, err := nc.Write(frame); err != nil {
			t.Error(err)
			return
		}
		var size [4]byte
		if _, err := io.ReadFull(nc, size[:]); err != nil {
			t.Error(err)
			return
		}
		b := make([]byte, binary.BigEndian.Uint32(size[:]))
		if _, err := io.ReadFull(nc, b); err != nil {
			t.Error(err)
			return
		}
		resp := kmsg.NewPtrFetchResponse()
		resp.Version = 11
		if err := resp.ReadFrom(b[4:]); err != nil {
			t.Error(err)
			return
		}
		for i, p := range resp.Topics[0].Partitions {
			if !bytes.Equal(p.RecordBatches, want[i]) {
				t.Errorf("worker %d, fetch %d, partition %d: %d bytes, want %d, or other ones", seed, id, i, len(p.RecordBatches), len(want[i]))
			}
		}
	}
}

// The file ends inside a region: the announced size cannot be kept, so the connection closes.
func TestShortRegionCloses(t *testing.T) {
	for _, n := range []int64{100, 1 << 20} {
		file, content := segmentFile(t, vfs.OS(), t.TempDir(), 64<<10)
		var l logs
		s := start(t, options(func(_ context.Context, _ *Conn, h wire.Header, _ []byte) wire.Response {
			p := wire.NewFetchPartition(0)
			p.Regions = []vfs.Region{region(t, file, int64(len(content))-50, n)}
			return &wire.FetchResponse{Version: h.Version, Topics: []wire.FetchTopic{{Topic: "t", Partitions: []wire.FetchPartition{p}}}}
		}, &l))
		nc := dial(t, s)
		write(t, nc, fetch(1))
		if b, err := io.ReadAll(nc); err != nil || int64(len(b)) > n {
			t.Errorf("%d bytes, %v", len(b), err)
		}
		stop(t, s)
		if s.stats.ShortRegions.Load() != 1 || l.lines("00000000000000000000.log") != 1 {
			t.Errorf("log: %s", l.String())
		}
		if err := file.Release(); err != nil || file.Acquire() {
			t.Errorf("the region was not released: %v", err)
		}
	}
}

// watchedFile tells when it is closed.
type watchedFile struct {
	vfs.File
	closed chan struct{}
}

func (f *watchedFile) Fd() uintptr { return f.File.(fder).Fd() }

func (f *watchedFile) Close() error {
	defer close(f.closed)
	return f.File.Close()
}

// A peer that does not read is closed after the write timeout, and the file it kept open is let go.
func TestSlowPeerIsClosed(t *testing.T) {
	const size = 32 << 20
	f, err := vfs.OS().Open(filepath.Join(t.TempDir(), "large"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	watched := &watchedFile{f, make(chan struct{})}
	file := vfs.NewShared(watched)
	var l logs
	o := options(func(_ context.Context, _ *Conn, h wire.Header, _ []byte) wire.Response {
		p := wire.NewFetchPartition(0)
		p.Regions = []vfs.Region{{File: file, N: size}} // with the one reference there is
		return &wire.FetchResponse{Version: h.Version, Topics: []wire.FetchTopic{{Topic: "t", Partitions: []wire.FetchPartition{p}}}}
	}, &l)
	o.WriteTimeout = 50 * time.Millisecond
	o.SendBuffer = 64 << 10
	s := start(t, o)
	nc := dial(t, s)
	write(t, nc, fetch(1))
	<-watched.closed
	stop(t, s)
	if n := s.stats.SlowClosed.Load(); n != 1 || l.lines("too slow") != 1 {
		t.Errorf("%d closed, log: %s", n, l.String())
	}
}

// A client that closes its sending side still gets its answers.
func TestHalfClosedPeerIsAnswered(t *testing.T) {
	var l logs
	s := start(t, options(echo, &l))
	nc := dial(t, s)
	write(t, nc, metadata(1), produce(2), metadata(3))
	if err := nc.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	wantAnswers(t, nc, 1, 2, 3)
	wantClosed(t, nc)
}

func FuzzConnection(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add(bytes.Join([][]byte{produce(1), metadata(2), fetch(3)}, nil))
	f.Add(produce(1)[:9])
	f.Add([]byte("\x00\x00\x00\x08\x00\x12\x00\x00\x00\x00\x00\x01"))
	var l logs
	s, err := New(options(echo, &l))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		client, server := net.Pipe()
		if _, err := s.admission.admit(listenerName, addrOf(server.RemoteAddr())); err != nil {
			t.Fatal(err)
		}
		s.serve(&boundListener{name: listenerName, life: context.Background()}, server)
		go func() {
			_, _ = client.Write(sent)
			client.Close()
		}()
		// Nothing it sends may hang or stop the server.
		if _, err := io.Copy(io.Discard, client); err != nil && !errors.Is(err, io.ErrClosedPipe) {
			t.Fatal(err)
		}
		s.serving.Wait()
		if n := s.stats.BudgetUsed.Load(); n != 0 {
			t.Fatalf("%d bytes of the budget are still taken", n)
		}
	})
}

func BenchmarkRequestRoundTrip(b *testing.B) {
	var l logs
	s := start(b, options(echo, &l))
	nc, err := net.Dial("tcp", s.Addr(listenerName).String())
	if err != nil {
		b.Fatal(err)
	}
	defer nc.Close()
	frame := request(12, 0, 1, 20)
	answer := make([]byte, 512)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := nc.Write(frame); err != nil {
			b.Fatal(err)
		}
		if _, err := nc.Read(answer); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFetch1MiB(b *testing.B) {
	const size = 1 << 20
	file, _ := segmentFile(b, vfs.OS(), b.TempDir(), size)
	var l logs
	s := start(b, options(func(_ context.Context, _ *Conn, h wire.Header, _ []byte) wire.Response {
		p := wire.NewFetchPartition(0)
		p.Regions = []vfs.Region{region(b, file, 0, size)}
		return &wire.FetchResponse{Version: h.Version, Topics: []wire.FetchTopic{{Topic: "t", Partitions: []wire.FetchPartition{p}}}}
	}, &l))
	nc, err := net.Dial("tcp", s.Addr(listenerName).String())
	if err != nil {
		b.Fatal(err)
	}
	defer nc.Close()
	frame := fetch(1)
	answer := make([]byte, 2*size)
	b.SetBytes(size)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := nc.Write(frame); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(nc, answer[:4]); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(nc, answer[:binary.BigEndian.Uint32(answer)]); err != nil {
			b.Fatal(err)
		}
	}
}
