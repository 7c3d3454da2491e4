package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"weir/internal/clock"
)

// errPerIP is why a connection was closed at once.
var errPerIP = errors.New("too many connections from this address (max.connections.per.ip)")

// admission enforces Kafka's limits on connections (ConnectionQuotas): the total and the listener's share make accepting
// wait, the share of an address closes the connection, the creation rate delays.
type admission struct {
	clock       clock.Clock
	interBroker string

	mu struct {
		sync.Mutex
		limits    Limits
		overrides map[netip.Addr]int
		total     int
		listeners map[string]*share
		ips       map[netip.Addr]int
		pace      pacer
		stopped   bool
	}
	room sync.Cond // on mu: a connection went, limits changed, or the server stops
}

// share is the state of one listener. It outlives a removed one until its last connection has gone.
type share struct {
	connections, limit int
	pace               pacer
	rate               int
	removed            bool
}

func newAdmission(o *Options) (*admission, error) {
	a := &admission{clock: o.Clock, interBroker: o.InterBroker}
	a.room.L = &a.mu
	a.mu.ips = map[netip.Addr]int{}
	a.mu.listeners = map[string]*share{}
	for _, l := range o.Listeners {
		a.add(l)
	}
	return a, a.set(o.Limits)
}

// add makes a share for a listener. Connections of one of the same name that was removed just before count on.
func (a *admission) add(l Listener) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.mu.listeners[l.Name]
	if s == nil {
		s = new(share)
		a.mu.listeners[l.Name] = s
	}
	s.limit, s.rate, s.removed = l.MaxConnections, l.MaxCreationRate, false
}

// remove ends the share of a listener when its last connection goes, and lets nobody wait for room on it.
func (a *admission) remove(name string) {
	a.mu.Lock()
	s := a.mu.listeners[name]
	if s.removed = true; s.connections == 0 {
		delete(a.mu.listeners, name)
	}
	a.mu.Unlock()
	a.room.Broadcast()
}

// interiorLocked is the inter-broker listener, when it is one of several: it is not bound by the total.
func (a *admission) interiorLocked() string {
	present := 0
	for _, s := range a.mu.listeners {
		if !s.removed {
			present++
		}
	}
	if present > 1 {
		return a.interBroker
	}
	return ""
}

func (a *admission) interior() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.interiorLocked()
}

// set replaces the limits. Connections that are open stay, even beyond a lowered limit.
func (a *admission) set(l Limits) error {
	overrides := make(map[netip.Addr]int, len(l.PerIPOverrides))
	for host, limit := range l.PerIPOverrides {
		if addr, err := netip.ParseAddr(host); err == nil {
			overrides[addr.Unmap()] = limit
			continue
		}
		found, err := net.LookupHost(host)
		if err != nil {
			return fmt.Errorf("max.connections.per.ip.overrides: %s: %w", host, err)
		}
		for _, text := range found {
			if addr, err := netip.ParseAddr(text); err == nil {
				overrides[addr.Unmap().WithZone("")] = limit
			}
		}
	}
	a.mu.Lock()
	a.mu.limits, a.mu.overrides = l, overrides
	a.mu.Unlock()
	a.room.Broadcast()
	return nil
}

// setListener replaces the limits of one listener.
func (a *admission) setListener(name string, maxConnections, maxCreationRate int) error {
	a.mu.Lock()
	s := a.mu.listeners[name]
	if s != nil {
		s.limit, s.rate = maxConnections, maxCreationRate
	}
	a.mu.Unlock()
	if s == nil {
		return fmt.Errorf("network: no listener is named %s", name)
	}
	a.room.Broadcast()
	return nil
}

// excess is how many connections there are beyond the total.
func (a *admission) excess() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.limits.MaxConnections <= 0 {
		return 0
	}
	return max(a.mu.total-a.mu.limits.MaxConnections, 0)
}

// admit counts an accepted connection in, waiting for room. full tells that it is beyond the total on the inter-broker
// listener, so that another one must go. An error means that the connection is to be closed; nothing is counted then.
func (a *admission) admit(listener string, ip netip.Addr) (full bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.mu.listeners[listener]
	for !a.mu.stopped && s != nil && !s.removed && (s.limit > 0 && s.connections >= s.limit || listener != a.interiorLocked() && a.fullLocked()) {
		a.room.Wait()
		s = a.mu.listeners[listener]
	}
	if a.mu.stopped || s == nil || s.removed {
		return false, errStopping
	}
	limit, special := a.mu.overrides[ip]
	if !special {
		limit = a.mu.limits.MaxConnectionsPerIP
	}
	limited := special || limit > 0 || len(a.mu.overrides) > 0
	if limited && a.mu.ips[ip] >= limit {
		return false, errPerIP
	}
	full = a.fullLocked()
	a.mu.total++
	s.connections++
	a.mu.ips[ip]++
	return full, nil
}

func (a *admission) fullLocked() bool {
	return a.mu.limits.MaxConnections > 0 && a.mu.total >= a.mu.limits.MaxConnections
}

// leave counts a connection out.
func (a *admission) leave(listener string, ip netip.Addr) {
	a.mu.Lock()
	a.mu.total--
	s := a.mu.listeners[listener]
	if s.connections--; s.removed && s.connections == 0 {
		delete(a.mu.listeners, listener)
	}
	if a.mu.ips[ip]--; a.mu.ips[ip] <= 0 {
		delete(a.mu.ips, ip)
	}
	a.mu.Unlock()
	a.room.Broadcast()
}

func (a *admission) stop() {
	a.mu.Lock()
	a.mu.stopped = true
	a.mu.Unlock()
	a.room.Broadcast()
}

// throttle waits as long as the creation rates of broker and listener demand.
func (a *admission) throttle(ctx context.Context, listener string) {
	now := a.clock.Now()
	a.mu.Lock()
	wait := a.mu.pace.take(now, a.mu.limits.MaxCreationRate)
	if s := a.mu.listeners[listener]; s != nil { // not removed just now
		wait = max(wait, s.pace.take(now, s.rate))
	}
	a.mu.Unlock()
	clock.Sleep(ctx, a.clock, wait)
}

// pacer spreads events to a rate, after a burst of at most one second's worth.
type pacer struct{ next time.Time }

// take books one event and says how long to wait before it.
func (p *pacer) take(now time.Time, rate int) time.Duration {
	if rate <= 0 {
		return 0
	}
	if earliest := now.Add(-time.Second); p.next.Before(earliest) {
		p.next = earliest
	}
	p.next = p.next.Add(time.Second / time.Duration(rate))
	return p.next.Sub(now)
}

// addrOf is a peer's address without port and zone; the zero Addr for connections that are not TCP.
func addrOf(a net.Addr) netip.Addr {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap().WithZone("")
	}
	return netip.Addr{}
}
