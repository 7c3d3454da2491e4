// Package peertest plays the nodes that tests of outbound connections speak to: a
// network of pipes, with hosts that answer, refuse, hang or are silent. It is for
// tests, also in the bubbles of testing/synctest, where no real socket may be.
package peertest

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"syscall"

	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/wire"
)

// TB is what is needed of a test.
type TB interface {
	Errorf(format string, args ...any)
}

// Answer is what a host does with a request: the whole answer with its size, nil for
// none. One connection's requests come one after another.
type Answer func(h wire.Header, req kmsg.Request) []byte

// Host is what a dial of an address does. It is one of Serves, Refuses, Hangs and
// Silent.
type Host struct {
	answer Answer
	err    error
	silent bool
}

// Serves accepts, and answers requests.
func Serves(a Answer) Host { return Host{answer: a} }

// Refuses fails dials; an error of the system such as syscall.ECONNREFUSED.
func Refuses(err error) Host { return Host{err: err} }

// Hangs accepts, and takes no requests.
func Hangs() Host { return Host{} }

// Silent lets dials wait for the end of their contexts.
func Silent() Host { return Host{silent: true} }

// Net is a network. It is safe for concurrent use.
type Net struct {
	t TB

	mu    sync.Mutex
	other Host
	hosts map[string]Host
	conns map[string][]net.Conn // the hosts' ends
	dials []string
}

// New makes a network where every address but those that are set is other.
func New(t TB, other Host) *Net {
	return &Net{t: t, other: other, hosts: map[string]Host{}, conns: map[string][]net.Conn{}}
}

// Nobody refuses as an address where nobody listens does.
func Nobody() Host { return Refuses(syscall.ECONNREFUSED) }

// Set says what is at an address from now on. Connections that are open stay.
func (n *Net) Set(address string, h Host) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hosts[address] = h
}

// Unset takes back what was set.
func (n *Net) Unset(address string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.hosts, address)
}

// HangUp ends the connections to an address from the host's side.
func (n *Net) HangUp(address string) {
	n.mu.Lock()
	conns := n.conns[address]
	delete(n.conns, address)
	n.mu.Unlock()
	for _, c := range conns {
		c.Close()
	}
}

// HangUpAll ends every connection.
func (n *Net) HangUpAll() {
	n.mu.Lock()
	all := n.conns
	n.conns = map[string][]net.Conn{}
	n.mu.Unlock()
	for _, conns := range all {
		for _, c := range conns {
			c.Close()
		}
	}
}

// Dials lists the addresses that were dialed, in order.
func (n *Net) Dials() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]string(nil), n.dials...)
}

// Dial is peer.Options.Dial.
func (n *Net) Dial(ctx context.Context, address string) (net.Conn, error) {
	n.mu.Lock()
	n.dials = append(n.dials, address)
	h, ok := n.hosts[address]
	if !ok {
		h = n.other
	}
	switch {
	case h.silent:
		n.mu.Unlock()
		<-ctx.Done()
		return nil, ctx.Err()
	case h.err != nil:
		n.mu.Unlock()
		return nil, &net.OpError{Op: "dial", Err: h.err}
	}
	ours, theirs := net.Pipe()
	n.conns[address] = append(n.conns[address], theirs)
	n.mu.Unlock()
	if h.answer != nil {
		go n.serve(theirs, h.answer)
	}
	return ours, nil
}

// serve answers the requests of a connection until it ends.
func (n *Net) serve(c net.Conn, answer Answer) {
	for {
		var size [4]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return
		}
		frame := make([]byte, binary.BigEndian.Uint32(size[:]))
		if _, err := io.ReadFull(c, frame); err != nil {
			return
		}
		h, body, err := wire.ParseHeader(frame)
		if err != nil {
			n.t.Errorf("request: %v", err)
			return
		}
		req, err := wire.ReadRequest(h, body)
		if err != nil {
			n.t.Errorf("request: %v", err)
			return
		}
		if out := answer(h, req); out != nil {
			if _, err := c.Write(out); err != nil {
				return
			}
		}
	}
}

// Versions answers ApiVersions with these APIs.
func Versions(h wire.Header, req kmsg.Request, list map[kmsg.Key]wire.Range) []byte {
	res := req.ResponseKind().(*kmsg.ApiVersionsResponse)
	for k, r := range list {
		row := kmsg.NewApiVersionsResponseApiKey()
		row.ApiKey, row.MinVersion, row.MaxVersion = int16(k), r.Min, r.Max
		res.ApiKeys = append(res.ApiKeys, row)
	}
	return wire.AppendResponse(nil, h, res)
}
