package network

import (
	"net"
	"sync/atomic"
)

// Conn is one client connection.
type Conn struct {
	listener string
	nc       net.Conn
	software atomic.Pointer[Software]
}

// Software names a client library: what it said in ApiVersions v3+ (KIP-511).
type Software struct{ Name, Version string }

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
