package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"weir/internal/clock"
)

// Causes of a cancelled request context.
var (
	errPeerClosed = errors.New("the peer closed the connection")
	errStopping   = errors.New("the server is stopping")
	errEvicted    = errors.New("closed to make room (max.connections)")
)

// Server accepts connections on its listeners and serves each until it closes. Order of calls: New, Listen, Start,
// Shutdown.
type Server struct {
	o         Options
	stats     Stats
	budget    *budget
	pool      buffers
	hangups   *hangups
	admission *admission
	warn      *logLimiter

	listeners []boundListener
	ctx       context.Context // ends when Shutdown begins: no more accepting
	cancel    context.CancelFunc
	accepting sync.WaitGroup
	serving   sync.WaitGroup

	mu struct {
		sync.Mutex
		conns    map[*Conn]struct{}
		stopping bool
	}
}

type boundListener struct {
	name string
	net.Listener
}

// New makes a server that listens nowhere yet.
func New(o Options) (*Server, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	s := &Server{o: o, warn: newLogLimiter(o.Logger, o.Clock)}
	total := o.QueuedMaxBytes
	if total <= 0 {
		total = shareOfMemory()
	}
	s.budget = newBudget(total, o.MaxRequestBytes, &s.stats)
	s.mu.conns = map[*Conn]struct{}{}
	var err error
	if s.admission, err = newAdmission(&s.o); err != nil {
		return nil, err
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s, nil
}

// Stats is what the server has counted so far.
func (s *Server) Stats() *Stats { return &s.stats }

// SetLimits replaces the limits on connections. As in Kafka, a lowered MaxConnections closes the connections unused for
// the longest time, but not those of a separate inter-broker listener; a lowered limit per address leaves them open.
func (s *Server) SetLimits(l Limits) error {
	if err := s.admission.set(l); err != nil {
		return err
	}
	for range s.admission.excess() {
		s.evict(s.admission.interior)
	}
	return nil
}

// SetListenerLimits replaces MaxConnections and MaxCreationRate of the named listener; connections that are open stay.
func (s *Server) SetListenerLimits(name string, maxConnections, maxCreationRate int) error {
	return s.admission.setListener(name, maxConnections, maxCreationRate)
}

// Listen binds every listener. Connections wait in the system's queue until Start. After an error nothing is bound.
func (s *Server) Listen() error {
	var lc net.ListenConfig
	var err error
	if s.hangups, err = newHangups(); err != nil {
		return err
	}
	for _, l := range s.o.Listeners {
		ln, err := lc.Listen(s.ctx, "tcp", net.JoinHostPort(strings.Trim(l.Host, "[]"), strconv.Itoa(l.Port)))
		if err != nil {
			for _, b := range s.listeners {
				b.Close()
			}
			s.listeners = nil
			s.hangups.close()
			return fmt.Errorf("listener %s: %w", l.Name, err)
		}
		s.listeners = append(s.listeners, boundListener{l.Name, ln})
	}
	return nil
}

// Addr is where the named listener is bound, with the port the system chose when it was given as 0; nil if there is none.
func (s *Server) Addr(name string) net.Addr {
	for _, l := range s.listeners {
		if l.name == name {
			return l.Addr()
		}
	}
	return nil
}

// Start begins to accept on all bound listeners.
func (s *Server) Start() {
	for _, l := range s.listeners {
		s.accepting.Go(func() { s.accept(l) })
	}
}

// accept is the loop of one listener. Errors of accepting (out of file descriptors, a peer gone already) do not end it.
func (s *Server) accept(l boundListener) {
	const retry = 100 * time.Millisecond
	for {
		nc, err := l.Accept()
		if err != nil {
			if s.ctx.Err() != nil {
				return
			}
			s.warn.warn("Accepting a connection failed", "listener", l.name, "error", err)
			clock.Sleep(s.ctx, s.o.Clock, retry)
			continue
		}
		s.stats.Accepted.Add(1)
		s.admission.throttle(s.ctx, l.name)
		ip := addrOf(nc.RemoteAddr())
		full, err := s.admission.admit(l.name, ip)
		if err != nil {
			if errors.Is(err, errPerIP) {
				s.stats.RefusedPerIP.Add(1)
				s.warn.warn("Connection refused", "listener", l.name, "peer", nc.RemoteAddr(), "reason", err)
			}
			s.stats.Closed.Add(1)
			nc.Close()
			continue
		}
		if full {
			s.evict(l.name)
		}
		s.serve(l.name, nc)
	}
}

// serve takes over an admitted connection.
func (s *Server) serve(listener string, nc net.Conn) {
	c, err := newConn(s, listener, nc)
	if err == nil {
		s.mu.Lock()
		if s.mu.stopping {
			err = errStopping
		} else {
			s.mu.conns[c] = struct{}{}
			s.serving.Add(1)
		}
		s.mu.Unlock()
	}
	if err != nil {
		if !errors.Is(err, errStopping) {
			s.warn.warn("Connection refused", "listener", listener, "peer", nc.RemoteAddr(), "reason", err)
		}
		nc.Close()
		s.gone(listener, nc)
		return
	}
	go func() {
		defer s.serving.Done()
		c.serve()
		s.mu.Lock()
		delete(s.mu.conns, c)
		s.mu.Unlock()
		s.gone(listener, nc)
	}()
}

func (s *Server) gone(listener string, nc net.Conn) {
	s.stats.Closed.Add(1)
	s.admission.leave(listener, addrOf(nc.RemoteAddr()))
}

// evict closes the connection that was used longest ago on any listener but the given one ("": on any).
func (s *Server) evict(keep string) {
	s.mu.Lock()
	var oldest *Conn
	for c := range s.mu.conns {
		if c.listener != keep && c.life.Err() == nil && (oldest == nil || c.lastActive.Load() < oldest.lastActive.Load()) {
			oldest = c
		}
	}
	s.mu.Unlock()
	if oldest != nil {
		s.stats.Evicted.Add(1)
		oldest.kill(errEvicted)
	}
}

// Connections is how many connections are open on the named listener.
func (s *Server) Connections(listener string) int {
	s.admission.mu.Lock()
	defer s.admission.mu.Unlock()
	if share := s.admission.mu.listeners[listener]; share != nil {
		return share.connections
	}
	return 0
}

// Shutdown stops accepting, cancels the context of running requests so that long polls end, lets them and the owed
// answers finish, and closes every connection. When ctx ends first, what is left is cut off and ctx's error returned.
func (s *Server) Shutdown(ctx context.Context) error {
	s.cancel()
	s.admission.stop()
	for _, l := range s.listeners {
		l.Close()
	}
	s.mu.Lock()
	s.mu.stopping = true
	for c := range s.mu.conns {
		c.drain()
	}
	s.mu.Unlock()
	done := make(chan struct{})
	go func() {
		s.accepting.Wait()
		s.serving.Wait()
		close(done)
	}()
	var err error
	select {
	case <-done:
	case <-ctx.Done():
		err = ctx.Err()
		s.mu.Lock()
		for c := range s.mu.conns {
			c.kill(errStopping)
		}
		s.mu.Unlock()
		// A handler that ignores its context would hold us here: that is a bug to be seen, not to be hidden.
		<-done
	}
	if s.hangups != nil {
		s.hangups.close()
	}
	return err
}
