package network

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
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
	errRemoved    = errors.New("the listener was removed")
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

	ctx       context.Context // ends when Shutdown begins: no more accepting
	cancel    context.CancelFunc
	accepting sync.WaitGroup
	serving   sync.WaitGroup

	mu struct {
		sync.Mutex
		conns     map[*Conn]struct{}
		listeners map[string]*boundListener
		accepts   bool // Start was called
		stopping  bool
	}
}

// boundListener is a listener while it exists.
type boundListener struct {
	net.Listener
	name string
	life context.Context // ends when it is removed, or with the server
	end  context.CancelFunc
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
	s.mu.conns, s.mu.listeners = map[*Conn]struct{}{}, map[string]*boundListener{}
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
		s.evict(s.admission.interior())
	}
	return nil
}

// SetListenerLimits replaces MaxConnections and MaxCreationRate of the named listener; connections that are open stay.
func (s *Server) SetListenerLimits(name string, maxConnections, maxCreationRate int) error {
	return s.admission.setListener(name, maxConnections, maxCreationRate)
}

// Listen binds every listener. Connections wait in the system's queue until Start. After an error nothing is bound.
func (s *Server) Listen() error {
	var err error
	if s.hangups, err = newHangups(); err != nil {
		return err
	}
	for _, l := range s.o.Listeners {
		b, err := s.bind(l)
		if err != nil {
			for _, b := range s.mu.listeners {
				b.close()
			}
			clear(s.mu.listeners)
			s.hangups.close()
			return err
		}
		s.mu.listeners[l.Name] = b
	}
	return nil
}

func (s *Server) bind(l Listener) (*boundListener, error) {
	var lc net.ListenConfig
	ln, err := lc.Listen(s.ctx, "tcp", net.JoinHostPort(strings.Trim(l.Host, "[]"), strconv.Itoa(l.Port)))
	if err != nil {
		return nil, fmt.Errorf("listener %s: %w", l.Name, err)
	}
	b := &boundListener{name: l.Name, Listener: ln}
	b.life, b.end = context.WithCancel(s.ctx)
	return b, nil
}

func (b *boundListener) close() {
	b.end()
	b.Close()
}

// Addr is where the named listener is bound, with the port the system chose when it was given as 0; nil if there is none.
func (s *Server) Addr(name string) net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.mu.listeners[name]; b != nil {
		return b.Addr()
	}
	return nil
}

// Listeners are the names of the bound listeners, sorted.
func (s *Server) Listeners() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.mu.listeners))
}

// Start begins to accept on all bound listeners.
func (s *Server) Start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.accepts = true
	for _, b := range s.mu.listeners {
		s.accepting.Go(func() { s.accept(b) })
	}
}

// Add binds another listener while the server runs, and begins to accept on it as soon as on the others.
func (s *Server) Add(l Listener) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.mu.stopping:
		return errStopping
	case s.mu.listeners[l.Name] != nil:
		return fmt.Errorf("network: two listeners named %s", l.Name)
	}
	b, err := s.bind(l)
	if err != nil {
		return err
	}
	s.admission.add(l)
	s.mu.listeners[l.Name] = b
	if s.mu.accepts {
		s.accepting.Go(func() { s.accept(b) })
	}
	return nil
}

// Remove closes the named listener and its connections; what they have asked is not answered any more.
func (s *Server) Remove(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.mu.listeners[name]
	if b == nil {
		return fmt.Errorf("network: no listener is named %s", name)
	}
	delete(s.mu.listeners, name)
	b.close()
	s.admission.remove(name)
	for c := range s.mu.conns {
		if c.listener == name {
			c.kill(errRemoved)
		}
	}
	return nil
}

// accept is the loop of one listener. Errors of accepting (out of file descriptors, a peer gone already) do not end it.
func (s *Server) accept(l *boundListener) {
	const retry = 100 * time.Millisecond
	for {
		nc, err := l.Accept()
		if err != nil {
			if l.life.Err() != nil {
				return
			}
			s.warn.warn("Accepting a connection failed", "listener", l.name, "error", err)
			clock.Sleep(l.life, s.o.Clock, retry)
			continue
		}
		s.stats.Accepted.Add(1)
		s.admission.throttle(l.life, l.name)
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
		s.serve(l, nc)
	}
}

// serve takes over an admitted connection.
func (s *Server) serve(l *boundListener, nc net.Conn) {
	listener := l.name
	c, err := newConn(s, listener, nc)
	if err == nil {
		s.mu.Lock()
		if s.mu.stopping || l.life.Err() != nil {
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
	s.mu.Lock()
	s.mu.stopping = true
	for _, b := range s.mu.listeners {
		b.close()
	}
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
