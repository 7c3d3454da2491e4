package quorum

import (
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"

	"weir/internal/kraft"
	"weir/internal/peer"
)

// Book knows where the nodes of the quorum listen. It is safe for concurrent use.
//
// What peers say is believed as far as it can be an address, and kept for the
// voters and for at most maxStrangers others: leaders of a voter set that this
// node has not heard of yet.
type Book struct {
	listener string // the controller listener that this node uses: the first of controller.listener.names
	static   map[int32]string

	mu        sync.Mutex
	voters    func() kraft.VoterSet // nil until the log is open
	learned   map[int32]string      // from answers and from leaders' announcements
	strangers []int32               // those of learned or answered that were no voters then, the last one met at the end
	answered  map[int32]*peer.Answered
}

const (
	maxStrangers = 16
	maxHost      = 255 // bytes, as in DNS
)

// NewBook makes a book. static is controller.quorum.voters, nil with dynamic voters.
func NewBook(listener string, static []kraft.Voter) *Book {
	b := &Book{listener: listener, static: map[int32]string{}, learned: map[int32]string{}, answered: map[int32]*peer.Answered{}}
	for _, v := range static {
		b.static[v.ID] = address(v.Endpoints[0].Host, v.Endpoints[0].Port)
	}
	return b
}

func address(host string, port uint16) string {
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// Learn takes down where a node says that it listens. Endpoints of other
// listeners, and what is no address, are passed over.
func (b *Book) Learn(id int32, endpoints []kraft.Endpoint) {
	for _, e := range endpoints {
		if e.Name == b.listener {
			b.learn(id, e.Host, e.Port)
		}
	}
}

func (b *Book) learn(id int32, host string, port uint16) {
	if id < 0 || port == 0 || !routable(host) {
		return
	}
	voter := b.isVoter(id)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.meetLocked(id, voter)
	b.learned[id] = address(host, port)
}

// routable tells whether a host may be dialed: a name or an address, not that of
// every interface.
func routable(host string) bool {
	if host == "" || len(host) > maxHost {
		return false
	}
	if a, err := netip.ParseAddr(host); err == nil {
		return !a.IsUnspecified() && !a.IsMulticast()
	}
	return !strings.ContainsFunc(host, func(r rune) bool {
		return !(r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '-' || r == '.' || r == '_')
	})
}

// isVoter asks the log, with mu not held.
func (b *Book) isVoter(id int32) bool {
	if _, ok := b.static[id]; ok {
		return true
	}
	b.mu.Lock()
	voters := b.voters
	b.mu.Unlock()
	if voters == nil {
		return false
	}
	_, ok := voters().Get(id)
	return ok
}

// meetLocked makes room for what is kept of a node.
func (b *Book) meetLocked(id int32, voter bool) {
	b.strangers = slices.DeleteFunc(b.strangers, func(o int32) bool { return o == id })
	if voter {
		return
	}
	b.strangers = append(b.strangers, id)
	if len(b.strangers) > maxStrangers {
		delete(b.learned, b.strangers[0])
		delete(b.answered, b.strangers[0])
		b.strangers = slices.Delete(b.strangers, 0, 1)
	}
}

// Addresses lists where a node may be reached, the newest knowledge first.
func (b *Book) Addresses(id int32) []string {
	b.mu.Lock()
	learned, voters := b.learned[id], b.voters
	b.mu.Unlock()
	var out []string
	add := func(addr string) {
		if addr != "" && !slices.Contains(out, addr) {
			out = append(out, addr)
		}
	}
	add(learned)
	if voters != nil {
		if v, ok := voters().Get(id); ok {
			if e, ok := v.Endpoint(b.listener); ok {
				add(address(e.Host, e.Port))
			}
		}
	}
	add(b.static[id])
	return out
}

// Endpoint is where a voter listens by the name of a controller listener.
func (b *Book) Endpoint(id int32, listener string) (kraft.Endpoint, bool) {
	b.mu.Lock()
	learned, voters := b.learned[id], b.voters
	b.mu.Unlock()
	if voters != nil {
		if v, ok := voters().Get(id); ok {
			if e, ok := v.Endpoint(listener); ok {
				return e, true
			}
		}
	}
	for _, addr := range []string{learned, b.static[id]} {
		if host, port, err := net.SplitHostPort(addr); err == nil && listener == b.listener {
			if p, err := strconv.ParseUint(port, 10, 16); err == nil {
				return kraft.Endpoint{Name: listener, Host: host, Port: uint16(p)}, true
			}
		}
	}
	return kraft.Endpoint{}, false
}

// Answered is what is remembered of a node's addresses, shared by all
// connections to its controller listener.
func (b *Book) Answered(id int32) *peer.Answered {
	voter := b.isVoter(id)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.meetLocked(id, voter)
	if b.answered[id] == nil {
		b.answered[id] = new(peer.Answered)
	}
	return b.answered[id]
}
