package peer

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/clock"
	"weir/internal/wire"
)

// Options is what a Client is made of. Fields without a stated default are required.
type Options struct {
	// Node is the id of the node, for errors; -1 when it is not known yet.
	Node int32
	// Addresses lists where the node listens, as host:port, best first. It is asked
	// at each dial and must not block.
	Addresses func() []string
	// ClientID goes into each request's header, as Kafka's brokers do:
	// "broker-1-fetcher-0", "raft-client-2", ….
	ClientID string
	// Answered remembers the addresses at which this node has answered. Clients of
	// one node share it, so that what one has seen counts for all; nil: its own.
	Answered *Answered
	// Gone is called when a dial proves that the node's process has ended
	// ([Error.Gone]); nil: nobody. It is called from the dialing goroutine.
	Gone func()
	// Dial opens a connection to an address (ip:port); nil: TCP. TLS and SASL are
	// wrapped around it: what it returns is ready for requests.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Resolve finds the addresses of a host name; nil: the system's resolver.
	Resolve func(ctx context.Context, host string) ([]string, error)
	// DialTimeout bounds the dial of one address and the ApiVersions exchange after
	// it (socket.connection.setup.timeout.ms); 0: 10 s.
	DialTimeout time.Duration
	// Lend lets answers share one buffer: the byte slices of an answer are valid until
	// the next Do. Such a Client is for one goroutine, which also reads the answers,
	// and notices only while it waits for one that the node has hung up.
	Lend bool
	// MaxAnswer bounds the bytes of one answer; 0: 128 MiB, which is more than the
	// largest batch that a broker takes, and what a fetch allows beside it.
	MaxAnswer int32
	Clock     clock.Clock
	Logger    *slog.Logger
}

const (
	defaultDialTimeout = 10 * time.Second
	defaultMaxAnswer   = 128 << 20
)

// Client is one connection to one node, made when it is needed. It is safe for
// concurrent use.
type Client struct {
	o      Options
	format *kmsg.RequestFormatter
	life   context.Context // ends with Close
	end    context.CancelFunc
	work   sync.WaitGroup // the dial and the reader

	mu     sync.Mutex
	conn   *conn // the last one made; may have died
	dial   *dial // under way, nil: none
	closed bool
}

// dial is one attempt to connect, which several requests may wait for.
type dial struct {
	done chan struct{} // closed when conn and err are set
	conn *conn
	err  error
}

// New makes a Client. Nothing is dialed before the first Do.
func New(o Options) *Client {
	if o.Answered == nil {
		o.Answered = new(Answered)
	}
	if o.Dial == nil {
		o.Dial = dialTCP
	}
	if o.Resolve == nil {
		o.Resolve = net.DefaultResolver.LookupHost
	}
	if o.DialTimeout <= 0 {
		o.DialTimeout = defaultDialTimeout
	}
	if o.MaxAnswer <= 0 {
		o.MaxAnswer = defaultMaxAnswer
	}
	c := &Client{o: o, format: kmsg.NewRequestFormatter(kmsg.FormatterClientID(o.ClientID))}
	c.life, c.end = context.WithCancel(context.Background())
	return c
}

func dialTCP(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", address)
}

// Do sends req and waits for its answer, at most until ctx ends; then the
// connection is dropped, because its next answer would be that of req.
//
// The version is the newest that both sides know, and not above req's own
// (SetVersion); a req of version 0 has no wish. req is not changed, and may be
// used again. The answer carries its version, and its byte slices are the
// caller's (but see Options.Lend).
func (c *Client) Do(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	n, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	return n.do(ctx, req)
}

// Version is the version at which Do would send a request of this API whose own
// version is wish (0: no wish). It connects if need be.
func (c *Client) Version(ctx context.Context, key, wish int16) (int16, error) {
	n, err := c.connect(ctx)
	if err != nil {
		return 0, err
	}
	return n.version(key, wish)
}

// Range is the lowest and the highest version of an API that both sides know. It
// connects if need be.
func (c *Client) Range(ctx context.Context, key int16) (low, high int16, err error) {
	n, err := c.connect(ctx)
	if err != nil {
		return 0, 0, err
	}
	if high, err = n.version(key, 0); err != nil {
		return 0, 0, err
	}
	ours, _ := wire.Supported(key)
	return max(ours.Min, n.versions[key].Min), high, nil
}

// Connected tells whether there is a connection that nothing is known against.
func (c *Client) Connected() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conn != nil && c.conn.died() == nil
}

// Disconnect drops the connection: the requests on it fail, and the next one
// dials again. What has been learned of the addresses stays.
func (c *Client) Disconnect() {
	c.mu.Lock()
	n := c.conn
	c.mu.Unlock()
	if n != nil {
		n.fail(Disconnected, errors.New("dropped by this node"))
	}
}

// Close ends everything; requests under way fail with ClientClosed. It returns
// when the client's goroutines have ended, and may be called again.
func (c *Client) Close() {
	c.mu.Lock()
	c.closed = true
	n := c.conn
	c.mu.Unlock()
	c.end()
	if n != nil {
		n.fail(ClientClosed, nil)
	}
	c.work.Wait()
}

// connect returns a connection that is alive as far as is known.
func (c *Client) connect(ctx context.Context) (*conn, error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, c.fail(ClientClosed, "", nil)
	}
	if c.conn != nil && c.conn.died() == nil {
		defer c.mu.Unlock()
		return c.conn, nil
	}
	d := c.dial
	if d == nil {
		d = &dial{done: make(chan struct{})}
		c.dial = d
		c.work.Go(func() { c.runDial(d) })
	}
	c.mu.Unlock()
	select {
	case <-d.done:
		return d.conn, d.err
	case <-ctx.Done():
		return nil, c.fail(ended(ctx), "", errors.New("while connecting"))
	}
}

func (c *Client) runDial(d *dial) {
	d.conn, d.err = c.open(c.life)
	c.mu.Lock()
	c.conn, c.dial = d.conn, nil
	closed := c.closed
	c.mu.Unlock()
	if closed && d.conn != nil {
		d.conn.fail(ClientClosed, nil)
	}
	close(d.done)
	if c.o.Gone != nil && IsGone(d.err) {
		c.o.Gone()
	}
}

func (c *Client) fail(k Kind, addr string, err error) *Error {
	return &Error{Kind: k, Node: c.o.Node, Addr: addr, Err: err}
}

// ended tells why a context is over.
func ended(ctx context.Context) Kind {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return Timeout
	}
	return Canceled
}

// choose picks the version of a request: the newest one of ours, of the peer's,
// and of the wish (0: none).
func choose(key, wish int16, theirs map[int16]wire.Range) (v int16, ok bool) {
	ours, known := wire.Supported(key)
	if !known {
		return 0, false
	}
	peer, served := theirs[key]
	high := min(ours.Max, peer.Max)
	if wish > 0 {
		high = min(high, wish)
	}
	return high, served && high >= max(ours.Min, peer.Min)
}
