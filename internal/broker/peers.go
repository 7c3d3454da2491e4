package broker

import (
	"context"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/image"
	"weir/internal/loggers"
	"weir/internal/peer"
	"weir/internal/replication"
)

// peers makes connections to other brokers, and remembers for each where it has
// answered.
type peers struct {
	mu       sync.Mutex
	answered map[int32]*peer.Answered
}

// connect makes a connection to the listener that brokers use among themselves.
// Its address is looked up in the image at each dial.
func (b *Broker) connect(node int32, who string) replication.Peer {
	return peer.New(b.peerOptions(node, who))
}

// connectToLeader is connect for a fetcher, which is done with an answer before it asks again.
func (b *Broker) connectToLeader(node int32, who string) replication.Peer {
	o := b.peerOptions(node, who)
	o.Lend = true
	return peer.New(o)
}

func (b *Broker) peerOptions(node int32, who string) peer.Options {
	b.peers.mu.Lock()
	if b.peers.answered == nil {
		b.peers.answered = map[int32]*peer.Answered{}
	}
	seen := b.peers.answered[node]
	if seen == nil {
		seen = new(peer.Answered)
		b.peers.answered[node] = seen
	}
	b.peers.mu.Unlock()
	return peer.Options{
		Node: node, ClientID: who, Answered: seen, Clock: b.clock, Logger: b.log(loggers.Peer),
		Addresses: func() []string { return b.addresses(node) },
		Gone:      func() { b.metalog.Refused(node) }, // it may be a voter as well
	}
}

func (b *Broker) addresses(node int32) []string {
	r, ok := b.quorum.Images().Image().Broker(node)
	if !ok {
		return nil
	}
	for _, e := range r.Endpoints {
		if e.Name == b.o.Node.InterBroker {
			return []string{net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port)))}
		}
	}
	return nil
}

// everyAddress lists all addresses that a broker has registered.
func everyAddress(r *image.Broker) []string {
	var out []string
	for _, e := range r.Endpoints {
		out = append(out, net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port))))
	}
	return out
}

// answers tells whether a broker's process answers at an address with which it is
// registered. This node's own listeners do not count: they are bound already, and
// accept nobody before this broker is registered.
func (b *Broker) answers(ctx context.Context, r *image.Broker) bool {
	own := reachable(b.o.Node.Advertised, b.clients)
	for _, e := range r.Endpoints {
		if e.Protocol != 0 || slices.ContainsFunc(own, func(o image.Endpoint) bool { return o.Host == e.Host && o.Port == e.Port }) {
			continue
		}
		c := peer.New(peer.Options{
			Node: r.ID, ClientID: "broker-" + strconv.Itoa(int(r.ID)) + "-probe", DialTimeout: probeTimeout, Clock: b.clock, Logger: b.log(loggers.Peer),
			Addresses: func() []string { return []string{net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port)))} },
		})
		_, err := c.Version(ctx, int16(kmsg.ApiVersions), 0)
		c.Close()
		if err == nil {
			return true
		}
	}
	return false
}

// probeTimeout is how long a process that is alive may take to answer.
const probeTimeout = 500 * time.Millisecond
