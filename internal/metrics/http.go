package metrics

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// Check says whether a node is well: nil, or what is wrong. It is called from any goroutine and must not block.
type Check func() error

// Server answers /metrics, /livez and /readyz on a listener of its own. It is made, and its address bound, by Serve.
type Server struct {
	ln     net.Listener
	http   http.Server
	served chan error
}

// Serve binds addr (host:port) and answers until Shutdown. live fails when the process should be restarted, ready when
// it should get no traffic (still recovering, fenced, draining).
func Serve(addr string, r *Registry, live, ready Check) (*Server, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("metrics listener: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", r.Handler())
	mux.HandleFunc("GET /livez", health(live))
	mux.HandleFunc("GET /readyz", health(ready))
	s := &Server{ln: ln, served: make(chan error, 1), http: http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 10 * time.Second,
		WriteTimeout:      time.Minute,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
	}}
	go func() { s.served <- s.http.Serve(ln) }()
	return s, nil
}

// Addr is where the server listens.
func (s *Server) Addr() net.Addr { return s.ln.Addr() }

// Shutdown stops accepting and waits for running scrapes until ctx ends.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.http.Close())
	}
	if served := <-s.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

func health(check Check) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		if err := check(); err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			// The prober may have gone; there is nobody else to tell.
			_, _ = fmt.Fprintln(w, err)
			return
		}
		_, _ = io.WriteString(w, "ok\n")
	}
}
