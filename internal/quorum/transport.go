package quorum

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/clock"
	"weir/internal/kraft"
	"weir/internal/kraft/rpc"
	"weir/internal/metalog"
	"weir/internal/peer"
)

// DialFunc opens a connection that is ready for requests; see peer.Options.
type DialFunc func(ctx context.Context, address string) (net.Conn, error)

// TransportOptions is what a Transport is made of.
type TransportOptions struct {
	NodeID    int32
	ClusterID string
	Book      *Book
	// Static are the ids of controller.quorum.voters; empty with dynamic voters.
	Static []int32
	// Bootstrap is controller.quorum.bootstrap.servers, host:port each, without this
	// node's own address.
	Bootstrap []string
	// RequestTimeout is controller.quorum.request.timeout.ms.
	RequestTimeout time.Duration
	// Dial and Resolve are peer.Options'; nil: TCP and the system's.
	Dial   DialFunc
	Clock  clock.Clock
	Logger *slog.Logger
}

// Transport carries the core's requests to the other nodes of the quorum.
// Fetches, which the leader may hold, have connections of their own: votes do not
// wait behind them.
type Transport struct {
	o    TransportOptions
	log  *metalog.Log
	life context.Context
	end  context.CancelFunc
	work sync.WaitGroup

	mu     sync.Mutex
	links  map[linkKey]*peer.Client
	next   int // of the bootstrap servers or static voters, for requests to anybody
	closed bool
	health health
}

// linkKey names one connection: to a node, or to an address whose node is not known.
type linkKey struct {
	node    int32
	address string // set when node is None
	fetch   bool
}

// NewTransport makes a Transport; Bind completes it.
func NewTransport(o TransportOptions) *Transport {
	t := &Transport{o: o, links: map[linkKey]*peer.Client{}}
	t.life, t.end = context.WithCancel(context.Background())
	t.health.init(o.Clock.Now())
	return t
}

// Bind names the log that gets the answers; before the log is polled.
func (t *Transport) Bind(log *metalog.Log) {
	t.log = log
	t.o.Book.mu.Lock()
	t.o.Book.voters = func() kraft.VoterSet { set, _ := log.Voters(); return set }
	t.o.Book.mu.Unlock()
}

// Close ends all requests; none is answered any more.
func (t *Transport) Close() {
	t.mu.Lock()
	t.closed = true
	links := t.links
	t.links = map[linkKey]*peer.Client{}
	t.mu.Unlock()
	t.end()
	for _, c := range links {
		c.Close()
	}
	t.work.Wait()
}

// Send implements metalog.Transport.
func (t *Transport) Send(s kraft.Send) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	t.work.Go(func() {
		body := t.ask(s)
		if t.life.Err() == nil {
			t.log.Response(kraft.Response{From: s.To, ID: s.ID, Body: body})
		}
	})
}

// ask sends one request and returns its answer, nil when none came.
func (t *Transport) ask(s kraft.Send) kraft.ResponseBody {
	k, ok := t.target(s)
	if !ok {
		t.failed(k, errors.New("no other node is named in the settings"))
		clock.Sleep(t.life, t.o.Clock, t.o.RequestTimeout)
		return nil
	}
	c := t.link(k)
	if c == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(t.life, t.o.RequestTimeout)
	defer cancel()
	body, nodes, err := t.exchange(ctx, c, s.Body)
	for _, n := range nodes {
		t.o.Book.learn(n.ID, n.Host, n.Port)
	}
	var refused *rpc.ResponseError
	switch {
	case err == nil:
		t.heard(k)
	case errors.As(err, &refused) && refused.Code == kerr.InconsistentClusterID.Code:
		t.foreign(ctx, k, c)
	default:
		t.failed(k, err)
	}
	return body
}

func (t *Transport) exchange(ctx context.Context, c *peer.Client, body kraft.RequestBody) (kraft.ResponseBody, []rpc.Node, error) {
	v, err := c.Version(ctx, int16(rpc.KeyOf(body)), 0)
	if err != nil {
		return nil, nil, err
	}
	req, ok := rpc.EncodeRequest(body, t.o.ClusterID, v)
	if !ok { // a voter from before KIP-996: the core knows what to make of it
		q := body.(kraft.VoteRequest)
		return kraft.VoteResponse{Head: kraft.Head{Code: kraft.UnsupportedVersion, Leader: kraft.LeaderAndEpoch{ID: kraft.None, Epoch: q.Epoch}}}, nil, nil
	}
	res, err := c.Do(ctx, req)
	if err != nil {
		return nil, nil, err
	}
	return rpc.DecodeResponse(res)
}

// target finds where a request goes. Without a receiver it is the next of those
// that the settings name.
func (t *Transport) target(s kraft.Send) (linkKey, bool) {
	fetch := false
	switch s.Body.(type) {
	case kraft.FetchRequest, kraft.SnapshotRequest:
		fetch = true
	}
	if s.To != kraft.None {
		return linkKey{node: s.To, fetch: fetch}, true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next++
	if n := len(t.o.Bootstrap); n > 0 {
		return linkKey{node: kraft.None, address: t.o.Bootstrap[t.next%n], fetch: fetch}, true
	}
	others := slices.DeleteFunc(slices.Clone(t.o.Static), func(id int32) bool { return id == t.o.NodeID })
	if n := len(others); n > 0 {
		return linkKey{node: others[t.next%n], fetch: fetch}, true
	}
	return linkKey{node: kraft.None}, false
}

func (t *Transport) link(k linkKey) *peer.Client {
	var answered *peer.Answered
	if k.node != kraft.None {
		answered = t.o.Book.Answered(k.node) // asks the log, whose lock comes before mu
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil
	}
	if c := t.links[k]; c != nil {
		return c
	}
	o := peer.Options{
		Node: k.node, ClientID: fmt.Sprintf("raft-client-%d", t.o.NodeID), Dial: t.o.Dial, DialTimeout: t.o.RequestTimeout,
		Addresses: func() []string { return []string{k.address} }, Clock: t.o.Clock, Logger: t.o.Logger,
	}
	if k.node != kraft.None {
		o.Addresses = func() []string { return t.o.Book.Addresses(k.node) }
		o.Answered = answered
		o.Gone = func() { t.log.Refused(k.node) }
	}
	c := peer.New(o)
	t.links[k] = c
	return c
}

// clusterOf asks a controller listener for the id of its cluster.
func clusterOf(ctx context.Context, c *peer.Client) (string, error) {
	req := kmsg.NewPtrDescribeClusterRequest()
	req.EndpointType = 2
	r, err := c.Do(ctx, req)
	if err != nil {
		return "", err
	}
	res := r.(*kmsg.DescribeClusterResponse)
	return res.ClusterID, kerr.ErrorForCode(res.ErrorCode)
}
