package testnode

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Clients stands for the test process itself as one end of a cut, beside the ids of nodes.
const Clients int32 = 0

// Wires are the network of a wired Cluster: each listener stands behind a proxy, whose address the node advertises, so that
// connections between chosen pairs can be cut. A cut is silent, as a network's is: bytes under way wait until it heals,
// nobody is told that the other end has closed, and a new connection is accepted and hears nothing. While a node's process
// is down its proxies refuse connections, as its own ports would.
//
// Who connects is found by the socket's owner in /proc, so nodes need to know nothing of it.
type Wires struct {
	life context.Context
	work sync.WaitGroup

	mu     sync.Mutex
	pids   map[int32]int
	cuts   map[[2]int32]chan struct{} // closed when the cut heals
	listen map[int32][]net.Listener
	failed []error
}

func newWires(t testing.TB) *Wires {
	ctx, cancel := context.WithCancel(context.Background())
	w := &Wires{life: ctx, pids: map[int32]int{}, cuts: map[[2]int32]chan struct{}{}, listen: map[int32][]net.Listener{}}
	t.Cleanup(func() {
		cancel()
		w.mu.Lock()
		for _, list := range w.listen {
			closeAll(list)
		}
		failed := errors.Join(w.failed...)
		w.mu.Unlock()
		w.work.Wait()
		if failed != nil {
			t.Error(failed)
		}
	})
	return w
}

func closeAll(list []net.Listener) {
	for _, l := range list {
		_ = l.Close() // closed already when its node has ended
	}
}

func pair(a, b int32) [2]int32 { return [2]int32{min(a, b), max(a, b)} }

// Cut stops what passes between a and b, in both directions. Cutting what is cut changes nothing.
func (w *Wires) Cut(a, b int32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cuts[pair(a, b)] == nil {
		w.cuts[pair(a, b)] = make(chan struct{})
	}
}

// Heal ends a cut.
func (w *Wires) Heal(a, b int32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.cuts[pair(a, b)]; c != nil {
		close(c)
		delete(w.cuts, pair(a, b))
	}
}

// HealAll ends all cuts.
func (w *Wires) HealAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.cuts {
		close(c)
	}
	clear(w.cuts)
}

// pass waits while a and b are cut; false when the test has ended.
func (w *Wires) pass(a, b int32) bool {
	for w.life.Err() == nil {
		w.mu.Lock()
		c := w.cuts[pair(a, b)]
		w.mu.Unlock()
		if c == nil {
			return true
		}
		select {
		case <-c:
		case <-w.life.Done():
		}
	}
	return false
}

// wire is one proxied listener: the address that is told to others, and where the node listens.
type wire struct{ told, real string }

// up lets connections to a node pass to it, from its start to its end.
func (w *Wires) up(n *Node) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	closeAll(w.listen[n.ID]) // those of a process that has just ended
	delete(w.listen, n.ID)
	delete(w.pids, n.ID)
	for _, x := range n.wires {
		l, err := net.Listen("tcp", x.told)
		if err != nil {
			return err
		}
		w.listen[n.ID] = append(w.listen[n.ID], l)
		w.work.Go(func() { w.accept(l, n.ID, x.real) })
	}
	return nil
}

// follow notes the node's process until it ends.
func (w *Wires) follow(id int32, pid int, gone <-chan struct{}) {
	w.mu.Lock()
	w.pids[id] = pid
	w.mu.Unlock()
	w.work.Go(func() {
		<-gone
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.pids[id] == pid {
			delete(w.pids, id)
			closeAll(w.listen[id])
			delete(w.listen, id)
		}
	})
}

func (w *Wires) accept(l net.Listener, to int32, target string) {
	for {
		c, err := l.Accept()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				w.fail(err)
			}
			return
		}
		w.work.Go(func() { w.serve(c, to, target) })
	}
}

func (w *Wires) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed = append(w.failed, err)
}

func (w *Wires) serve(client net.Conn, to int32, target string) {
	defer client.Close()
	from, err := w.owner(client)
	if err != nil { // it has closed already
		return
	}
	if !w.pass(from, to) {
		return
	}
	server, err := net.Dial("tcp", target)
	if err != nil {
		return // the node starts or has just ended
	}
	defer server.Close()
	stop := context.AfterFunc(w.life, func() {
		_ = client.Close() // whoever reads from them ends
		_ = server.Close()
	})
	defer stop()
	var back sync.WaitGroup
	back.Go(func() { w.carry(client, server, from, to) })
	w.carry(server, client, from, to)
	back.Wait()
}

// carry copies one direction; at its end it closes both, as Kafka's peers do.
func (w *Wires) carry(dst, src net.Conn, a, b int32) {
	buf := make([]byte, 64<<10)
	for {
		n, err := src.Read(buf)
		if !w.pass(a, b) {
			break
		}
		if n > 0 {
			if _, werr := dst.Write(buf[:n]); werr != nil {
				err = werr
			}
		}
		if err != nil {
			break
		}
	}
	_ = dst.Close() // the other direction may have closed them
	_ = src.Close()
}

// owner finds the node whose process holds the other end of a connection; Clients for others.
func (w *Wires) owner(c net.Conn) (int32, error) {
	inode, err := inodeOf(c.RemoteAddr().(*net.TCPAddr).Port, c.LocalAddr().(*net.TCPAddr).Port)
	if err != nil {
		return 0, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, pid := range w.pids {
		fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		if err != nil {
			return 0, err
		}
		for _, fd := range fds {
			if to, err := os.Readlink(fd); err == nil && to == "socket:["+inode+"]" {
				return id, nil
			}
		}
	}
	return Clients, nil
}

// inodeOf finds the socket from one loopback port to another in the kernel's tables.
func inodeOf(from, to int) (string, error) {
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		f, err := os.Open(table)
		if err != nil {
			continue // no IPv6
		}
		inode := findInode(f, fmt.Sprintf(":%04X", from), fmt.Sprintf(":%04X", to))
		if err := f.Close(); err != nil {
			return "", err
		}
		if inode != "" {
			return inode, nil
		}
	}
	return "", fmt.Errorf("no socket from port %d to %d", from, to)
}

func findInode(table io.Reader, from, to string) string {
	for s := bufio.NewScanner(table); s.Scan(); {
		f := strings.Fields(s.Text())
		if len(f) > 9 && strings.HasSuffix(f[1], from) && strings.HasSuffix(f[2], to) && f[9] != "0" {
			return f[9]
		}
	}
	return ""
}
