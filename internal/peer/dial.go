package peer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/wire"
)

// Answered is the set of addresses at which one node has answered a request. The
// zero value is empty and ready. It is safe for concurrent use.
type Answered struct {
	mu   sync.Mutex
	seen map[string]bool // ip:port
}

func (a *Answered) add(addr string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.seen == nil {
		a.seen = map[string]bool{}
	}
	a.seen[addr] = true
}

// Has tells whether the node has answered at addr, an ip:port.
func (a *Answered) Has(addr string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.seen[addr]
}

// open tries the addresses one after another until one answers ApiVersions.
func (c *Client) open(ctx context.Context) (*conn, error) {
	var worst *Error // what proves least: silence rather than refusal
	gone := false
	note := func(e *Error) {
		if e.Kind == Refused && c.o.Answered.Has(e.Addr) {
			gone = true
		}
		if worst == nil || worst.Kind == Refused || worst.Kind == Unreachable && e.Kind != Refused {
			worst = e
		}
	}
	for _, address := range c.o.Addresses() {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			note(c.fail(Unreachable, address, err))
			continue
		}
		ips, err := c.resolve(ctx, host)
		if err != nil {
			note(c.fail(Unreachable, address, err))
			continue
		}
		for _, ip := range ips {
			n, e := c.openOne(ctx, net.JoinHostPort(ip, port))
			if e == nil {
				return n, nil
			}
			note(e)
		}
	}
	switch {
	case ctx.Err() != nil:
		return nil, c.fail(ClientClosed, "", nil)
	case worst == nil:
		return nil, c.fail(Unreachable, "", errors.New("no address is known"))
	}
	worst.Gone = gone && (worst.Kind == Refused || worst.Kind == Unreachable)
	return nil, worst
}

func (c *Client) resolve(ctx context.Context, host string) ([]string, error) {
	if net.ParseIP(host) != nil {
		return []string{host}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.o.DialTimeout)
	defer cancel()
	return c.o.Resolve(ctx, host)
}

func (c *Client) openOne(ctx context.Context, addr string) (*conn, *Error) {
	ctx, cancel := context.WithTimeout(ctx, c.o.DialTimeout)
	defer cancel()
	nc, err := c.o.Dial(ctx, addr)
	if err != nil {
		return nil, c.fail(dialKind(ctx, err), addr, err)
	}
	n := c.newConn(nc, addr)
	if !c.o.Lend {
		c.work.Go(n.read)
	}
	if err := n.hello(ctx); err != nil {
		var e *Error
		if !errors.As(err, &e) {
			e = c.fail(BadAnswer, addr, err)
		}
		n.fail(e.Kind, e.Err)
		return nil, e
	}
	c.o.Answered.add(addr)
	c.o.Logger.Debug("connected", "node", c.o.Node, "address", addr, "client", c.o.ClientID)
	return n, nil
}

func dialKind(ctx context.Context, err error) Kind {
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return Refused
	case ctx.Err() != nil, errors.As(err, &timeout) && timeout.Timeout():
		return Timeout
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, net.ErrClosed):
		return Disconnected
	}
	return Unreachable
}

// helloVersion is the version of ApiVersions that a connection begins with
// (Kafka's brokers begin with it too).
const helloVersion = 4

// Name and version of this software, as ApiVersions tells them (KIP-511).
const (
	softwareName    = "weir"
	softwareVersion = "4.3.1"
)

// hello asks which versions the peer serves. A peer that does not know our
// version of the question answers in the form of v0, and is asked again (KIP-511).
func (n *conn) hello(ctx context.Context) error {
	n.versions = map[int16]wire.Range{int16(kmsg.ApiVersions): {Max: helloVersion}}
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = softwareName, softwareVersion
	for {
		r, err := n.do(ctx, req)
		if err != nil {
			return err
		}
		res := r.(*kmsg.ApiVersionsResponse)
		served := make(map[int16]wire.Range, len(res.ApiKeys))
		for _, k := range res.ApiKeys {
			served[k.ApiKey] = wire.Range{Min: k.MinVersion, Max: k.MaxVersion}
		}
		asked := n.versions[int16(kmsg.ApiVersions)].Max
		again := served[int16(kmsg.ApiVersions)].Max
		if res.ErrorCode == kerr.UnsupportedVersion.Code && again < asked {
			n.versions[int16(kmsg.ApiVersions)] = wire.Range{Max: again}
			continue
		}
		if err := kerr.ErrorForCode(res.ErrorCode); err != nil {
			return n.client.fail(BadAnswer, n.addr, fmt.Errorf("ApiVersions: %w", err))
		}
		n.versions = served
		return nil
	}
}
