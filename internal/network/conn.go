package network

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"weir/internal/clock"
	"weir/internal/wire"
)

const produceKey = 0

// Conn is one client connection.
type Conn struct {
	srv      *Server
	listener string
	nc       net.Conn
	raw      syscall.RawConn // nil when nc is no TCP connection (tests)
	software atomic.Pointer[Software]

	life       context.Context // ends when the connection is cut: owed answers are dropped
	cut        context.CancelCauseFunc
	ctx        context.Context // ends also when the peer closes or the server stops: waits of handlers end
	cancel     context.CancelCauseFunc
	draining   atomic.Bool
	lastActive atomic.Int64 // unix nanoseconds of the last whole frame
	muteUntil  atomic.Int64 // unix nanoseconds: nothing is read or executed before (throttle)

	// owed counts answers not yet written. Only the reader raises it; while it is 0 the reader writes answers itself,
	// otherwise only the writer goroutine touches the fields under "writing".
	owed    atomic.Int32
	settled sync.Cond // on mu: owed fell or the connection was cut
	mu      sync.Mutex
	queue   chan answer   // to the writer goroutine; nil until the first owed answer
	written chan struct{} // closed when the writer goroutine has ended
	refused *failure      // the writer's: an owed answer that turned out to be a wire.Fail; read after written

	// reading: the reader goroutine only
	in           inBuffer
	clientID     *string // of the last request, reused for the next
	readDeadline time.Time

	// writing
	out           []byte
	gather        wire.Gather
	op            sendOp
	sendfileFn    func(fd uintptr) bool
	sendMoreFn    func(fd uintptr) bool
	writeDeadline time.Time
}

// Software names a client library: what it said in ApiVersions v3+ (KIP-511).
type Software struct{ Name, Version string }

func newConn(s *Server, listener string, nc net.Conn) (*Conn, error) {
	c := &Conn{srv: s, listener: listener, nc: nc}
	c.settled.L = &c.mu
	c.life, c.cut = context.WithCancelCause(context.Background())
	c.ctx, c.cancel = context.WithCancelCause(c.life)
	c.lastActive.Store(s.o.Clock.Now().UnixNano())
	tcp, ok := nc.(*net.TCPConn)
	if !ok {
		return c, nil
	}
	if s.o.SendBuffer > 0 {
		if err := tcp.SetWriteBuffer(s.o.SendBuffer); err != nil {
			return nil, err
		}
	}
	if s.o.ReceiveBuffer > 0 {
		if err := tcp.SetReadBuffer(s.o.ReceiveBuffer); err != nil {
			return nil, err
		}
	}
	var err error
	if c.raw, err = tcp.SyscallConn(); err != nil {
		return nil, err
	}
	c.sendfileFn, c.sendMoreFn = c.sendfileStep, c.sendMoreStep
	return c, nil
}

// Listener is the name of the listener that accepted the connection, such as PLAINTEXT: answers name the addresses
// advertised for it.
func (c *Conn) Listener() string { return c.listener }

// RemoteAddr is the peer's address.
func (c *Conn) RemoteAddr() net.Addr { return c.nc.RemoteAddr() }

// LocalAddr is the address the peer connected to.
func (c *Conn) LocalAddr() net.Addr { return c.nc.LocalAddr() }

// Principal is who the peer is, as Kafka writes it. Nobody proves a name on a PLAINTEXT listener.
func (c *Conn) Principal() string { return "User:ANONYMOUS" }

// Software is what the client library called itself, zero before ApiVersions v3+ told.
func (c *Conn) Software() Software {
	if s := c.software.Load(); s != nil {
		return *s
	}
	return Software{}
}

// SetSoftware is called by the handler of ApiVersions.
func (c *Conn) SetSoftware(s Software) { c.software.Store(&s) }

// serve is the connection's goroutine.
func (c *Conn) serve() {
	err := c.serveWatched()
	if c.life.Err() == nil { // else whoever cut the connection has said why
		c.report(err)
	}
	if errors.Is(err, syscall.ECONNRESET) {
		c.kill(err)
	}
	// What is owed leaves before the connection closes.
	if c.queue != nil {
		close(c.queue)
		<-c.written
	}
	if c.refused != nil || errors.As(err, new(*frameError)) || errors.As(err, new(*failure)) {
		c.linger()
	}
	c.kill(err)
}

// serveWatched is loop with an eye on the peer's going. There is no watcher without Listen, when a test hands in pipes.
func (c *Conn) serveWatched() error {
	if c.srv.hangups == nil {
		return c.loop()
	}
	token, err := c.srv.hangups.watch(c)
	if err != nil {
		return err
	}
	defer c.srv.hangups.forget(token)
	return c.loop()
}

// loop reads and executes requests until the connection must close; the error says why.
func (c *Conn) loop() error {
	for {
		if err := c.awaitOwed(maxPending - 1); err != nil {
			return err
		}
		c.awaitThrottle()
		if c.draining.Load() {
			return errStopping
		}
		f, err := c.readFrame()
		if err != nil {
			return err
		}
		if err := c.execute(f); err != nil {
			return err
		}
	}
}

// execute runs one request and answers it or owes the answer.
func (c *Conn) execute(f frame) error {
	started := c.srv.o.Clock.Now()
	c.lastActive.Store(started.UnixNano())
	h, body, err := wire.ParseHeaderReusing(f.buf.b, c.clientID)
	if err == nil && h.Key != produceKey {
		err = c.awaitOwed(0)
	}
	if err == nil {
		c.awaitThrottle()
		if c.draining.Load() {
			err = errStopping
		}
	}
	if err != nil {
		c.srv.releaseFrame(f)
		if he := (*wire.HeaderError)(nil); errors.As(err, &he) {
			return &frameError{he.Error()}
		}
		return err
	}
	c.clientID = h.ClientID
	api := c.srv.stats.API(h.Key)
	api.Requests.Add(1)
	api.InBytes.Add(int64(len(f.buf.b)))
	resp := c.srv.o.Handler.Handle(c.ctx, c, h, body)
	api.Local.Observe(c.srv.o.Clock.Now().Sub(started))
	a := answer{header: h, resp: resp, frame: f, started: started}
	_, pending := resp.(wire.Pending)
	if !pending && c.owed.Load() == 0 {
		return c.complete(a, resp)
	}
	c.owe(a)
	if fail, ok := resp.(wire.Fail); ok {
		return &failure{h, fail.Err}
	}
	return nil
}

// awaitOwed waits until at most n answers are owed. It fails when the connection has been cut.
func (c *Conn) awaitOwed(n int32) error {
	if c.owed.Load() <= n {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.owed.Load() > n && c.life.Err() == nil {
		c.settled.Wait()
	}
	if c.life.Err() != nil {
		return context.Cause(c.life)
	}
	return nil
}

// awaitThrottle waits until the throttle time of the answers given so far has passed.
func (c *Conn) awaitThrottle() {
	for c.ctx.Err() == nil {
		until := c.muteUntil.Load()
		if until == 0 {
			return
		}
		wait := time.Duration(until - c.srv.o.Clock.Now().UnixNano())
		if wait <= 0 {
			c.muteUntil.CompareAndSwap(until, 0)
			continue
		}
		clock.Sleep(c.ctx, c.srv.o.Clock, wait)
	}
}

// drain lets the running request and the owed answers finish and nothing more begin.
func (c *Conn) drain() {
	c.draining.Store(true)
	c.cancel(errStopping)
	// Wakes the reader. It sets deadlines too, and looks at draining after each.
	_ = c.nc.SetReadDeadline(time.Unix(1, 0))
}

// kill cuts the connection now. It may be called from anywhere, more than once: the first cause stays.
func (c *Conn) kill(cause error) {
	if cause == nil {
		cause = io.EOF
	}
	c.mu.Lock()
	c.cut(cause)
	c.mu.Unlock()
	c.nc.Close()
	c.settled.Broadcast()
}

// linger closes for the peer, then reads on for a moment: closing a socket with unread bytes in it would send a reset,
// which may overtake answers that are still on their way.
func (c *Conn) linger() {
	const patience = 200 * time.Millisecond
	const enough = 1 << 20
	tcp, ok := c.nc.(*net.TCPConn)
	if !ok || tcp.CloseWrite() != nil {
		return
	}
	if tcp.SetReadDeadline(c.srv.o.Clock.Now().Add(patience)) != nil {
		return
	}
	_, _ = io.CopyN(io.Discard, tcp, enough)
}

// report counts and logs why a connection closes. An end of stream between frames, a reset and a stop are ordinary.
func (c *Conn) report(err error) {
	s := c.srv
	var fe *frameError
	var fail *failure
	switch {
	case errors.As(err, &fe):
		s.stats.BadFrames.Add(1)
		s.warn.warn("Connection closed: bad request", "listener", c.listener, "peer", c.RemoteAddr(), "reason", fe.reason)
	case errors.As(err, &fail):
		s.stats.Failed.Add(1)
		s.warn.warn("Connection closed by a request", "listener", c.listener, "peer", c.RemoteAddr(),
			"api", wire.Name(fail.header.Key), "version", fail.header.Version, "client", clientID(fail.header), "reason", fail.err)
	case errors.Is(err, errIdle):
		s.stats.IdleClosed.Add(1)
		s.o.Logger.Debug("Connection closed: idle", "listener", c.listener, "peer", c.RemoteAddr())
	case errors.Is(err, errShortRegion):
		s.stats.ShortRegions.Add(1)
		s.warn.warn("Connection closed: records went away while they were sent", "listener", c.listener, "peer", c.RemoteAddr(), "reason", err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		s.stats.SlowClosed.Add(1)
		s.warn.warn("Connection closed: too slow", "listener", c.listener, "peer", c.RemoteAddr(), "reason", err)
	default:
		s.o.Logger.Debug("Connection closed", "listener", c.listener, "peer", c.RemoteAddr(), "reason", err)
	}
}

func clientID(h wire.Header) string {
	if h.ClientID == nil {
		return ""
	}
	return *h.ClientID
}

// failure is a handler's wire.Fail as the reason of closing.
type failure struct {
	header wire.Header
	err    error
}

func (f *failure) Error() string {
	if f.err == nil {
		return "closed by the handler of " + wire.Name(f.header.Key)
	}
	return f.err.Error()
}

func (f *failure) Unwrap() error { return f.err }
