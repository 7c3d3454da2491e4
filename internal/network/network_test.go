package network

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/clock"
	"weir/internal/wire"
)

const listenerName = "PLAINTEXT"

// handlerFunc is a Handler made of a function.
type handlerFunc func(ctx context.Context, c *Conn, h wire.Header, body []byte) wire.Response

func (f handlerFunc) Handle(ctx context.Context, c *Conn, h wire.Header, body []byte) wire.Response {
	return f(ctx, c, h, body)
}

// echo answers everything at once with an empty message of its API.
func echo(_ context.Context, _ *Conn, h wire.Header, _ []byte) wire.Response { return ok(h) }

func ok(h wire.Header) wire.Message {
	r := kmsg.ResponseForKey(h.Key)
	r.SetVersion(h.Version)
	return wire.Message{Response: r}
}

// logs collects what the server logged.
type logs struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *logs) lines(with string) int { return strings.Count(l.String(), with) }

func options(h handlerFunc, l *logs) Options {
	return Options{
		Listeners:       []Listener{{Name: listenerName, Host: "127.0.0.1"}},
		InterBroker:     listenerName,
		Handler:         h,
		Logger:          slog.New(slog.NewTextHandler(l, nil)),
		Clock:           clock.System{},
		IdleTimeout:     10 * time.Minute,
		MaxRequestBytes: 100 << 20,
	}
}

// start runs a server on loopback until the test ends.
func start(t testing.TB, o Options) *Server {
	t.Helper()
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { stop(t, s) })
	return s
}

func stop(t testing.TB, s *Server) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Errorf("shutdown: %v", err)
	}
	if n := s.stats.BudgetUsed.Load(); n != 0 {
		t.Errorf("%d bytes of the budget are still taken", n)
	}
	if n := s.stats.Pending.Load(); n != 0 {
		t.Errorf("%d answers are still owed", n)
	}
	if a, c := s.stats.Accepted.Load(), s.stats.Closed.Load(); a != c {
		t.Errorf("%d connections accepted, %d closed", a, c)
	}
}

func dial(t testing.TB, s *Server) net.Conn {
	t.Helper()
	nc, err := net.Dial("tcp", s.Addr(listenerName).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	// Only a safety net for a broken test.
	if err := nc.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return nc
}

// request is a frame with a header v1 or v2 and a body of zeros.
func request(key, version int16, correlationID int32, body int) []byte {
	b := make([]byte, 4, 32+body)
	b = binary.BigEndian.AppendUint16(b, uint16(key))
	b = binary.BigEndian.AppendUint16(b, uint16(version))
	b = binary.BigEndian.AppendUint32(b, uint32(correlationID))
	b = append(b, 0, 4, 't', 'e', 's', 't')
	if wire.FlexibleRequest(key, version) {
		b = append(b, 0)
	}
	b = append(b, make([]byte, body)...)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

func produce(correlationID int32) []byte  { return request(0, 3, correlationID, 10) }
func metadata(correlationID int32) []byte { return request(3, 1, correlationID, 4) }
func fetch(correlationID int32) []byte    { return request(1, 11, correlationID, 40) }

func write(t testing.TB, nc net.Conn, frames ...[]byte) {
	t.Helper()
	if _, err := nc.Write(bytes.Join(frames, nil)); err != nil {
		t.Fatal(err)
	}
}

// readAnswer reads one frame and returns its correlation id and what follows.
func readAnswer(t testing.TB, r io.Reader) (int32, []byte) {
	t.Helper()
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		t.Fatalf("no answer: %v", err)
	}
	b := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(r, b); err != nil {
		t.Fatalf("half an answer: %v", err)
	}
	return int32(binary.BigEndian.Uint32(b)), b[4:]
}

func wantAnswers(t testing.TB, r io.Reader, ids ...int32) {
	t.Helper()
	for _, id := range ids {
		if got, _ := readAnswer(t, r); got != id {
			t.Fatalf("answer %d, want %d", got, id)
		}
	}
}

// wantClosed reads to the end of the stream, which must hold nothing.
func wantClosed(t testing.TB, r io.Reader) {
	t.Helper()
	b, err := io.ReadAll(r)
	if len(b) > 0 {
		t.Fatalf("%d bytes before the end", len(b))
	}
	if ne, ok := err.(net.Error); ok && ne.Timeout() {
		t.Fatal("the connection was not closed")
	}
}
