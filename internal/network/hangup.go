package network

import (
	"errors"
	"fmt"
	"net"
	"sync"

	"golang.org/x/sys/unix"
)

// hangups tells connections that their peer has closed, while nobody reads from them: a long poll must end then, and
// rule 8 forbids to read on. One epoll instance watches every connection for EPOLLRDHUP, edge-triggered, so requests
// cost nothing; closing a socket takes it out by itself.
type hangups struct {
	epoll, wake int
	done        chan struct{}
	closing     sync.Once

	mu struct {
		sync.Mutex
		next  int32
		conns map[int32]*Conn
	}
}

func newHangups() (*hangups, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("network: epoll: %w", err)
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		unix.Close(epoll)
		return nil, fmt.Errorf("network: eventfd: %w", err)
	}
	h := &hangups{epoll: epoll, wake: wake, done: make(chan struct{})}
	h.mu.conns = map[int32]*Conn{}
	if err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, wake, &unix.EpollEvent{Events: unix.EPOLLIN}); err != nil {
		unix.Close(epoll)
		unix.Close(wake)
		return nil, fmt.Errorf("network: epoll: %w", err)
	}
	go h.run()
	return h, nil
}

// run ends when close wakes it: token 0 is nobody's connection.
func (h *hangups) run() {
	defer close(h.done)
	var events [64]unix.EpollEvent
	for {
		n, err := unix.EpollWait(h.epoll, events[:], -1)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return
		}
		for i := range events[:n] {
			token := events[i].Fd
			if token == 0 {
				return
			}
			h.mu.Lock()
			c := h.mu.conns[token]
			h.mu.Unlock()
			if c != nil {
				c.cancel(errPeerClosed)
			}
		}
	}
}

// watch starts watching and returns the token for forget. Connections that are not sockets (in tests) are not watched.
func (h *hangups) watch(c *Conn) (int32, error) {
	tcp, ok := c.nc.(*net.TCPConn)
	if !ok {
		return 0, nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return 0, err
	}
	h.mu.Lock()
	for {
		h.mu.next++
		if h.mu.next <= 0 {
			h.mu.next = 1
		}
		if h.mu.conns[h.mu.next] == nil {
			break
		}
	}
	token := h.mu.next
	h.mu.conns[token] = c
	h.mu.Unlock()
	event := unix.EpollEvent{Events: unix.EPOLLRDHUP | unix.EPOLLET, Fd: token}
	var ctlErr error
	err = raw.Control(func(fd uintptr) { ctlErr = unix.EpollCtl(h.epoll, unix.EPOLL_CTL_ADD, int(fd), &event) })
	if err == nil {
		err = ctlErr
	}
	if err != nil {
		h.forget(token)
	}
	return token, err
}

func (h *hangups) forget(token int32) {
	h.mu.Lock()
	delete(h.mu.conns, token)
	h.mu.Unlock()
}

// close stops watching. A second call does nothing.
func (h *hangups) close() {
	h.closing.Do(func() {
		one := [8]byte{1} // any number but 0 makes the eventfd readable, in either byte order
		if _, err := unix.Write(h.wake, one[:]); err == nil {
			<-h.done
		}
		unix.Close(h.epoll)
		unix.Close(h.wake)
	})
}
