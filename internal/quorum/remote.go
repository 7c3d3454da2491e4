package quorum

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/clock"
	"weir/internal/kraft"
	"weir/internal/peer"
	"weir/internal/statemachine"
)

// NotControllerError refuses what only the active controller may do. It is
// statemachine.ErrNotLeader for errors.Is. The text is Kafka's.
type NotControllerError struct{ Leader int32 } // kraft.None when unknown

func (e *NotControllerError) Error() string {
	if e.Leader == kraft.None {
		return "No controller appears to be active."
	}
	return fmt.Sprintf("The active controller appears to be node %d.", e.Leader)
}

// Is makes it a statemachine.ErrNotLeader.
func (*NotControllerError) Is(target error) bool { return target == statemachine.ErrNotLeader }

// lane is one connection to the active controller. A server executes the requests
// of a connection one after another, so what must not wait has its own lane, as
// with Kafka's NodeToControllerChannelManagers.
type lane uint8

const (
	heartbeats lane = iota // registration and heartbeats
	partitions             // AlterPartition
	duties                 // directories, producer ids, registration of controllers
	forwarding             // requests of clients
)

func laneOf(req kmsg.Request) lane {
	switch req.(type) {
	case *kmsg.BrokerRegistrationRequest, *kmsg.BrokerHeartbeatRequest:
		return heartbeats
	case *kmsg.AlterPartitionRequest:
		return partitions
	case *kmsg.AllocateProducerIDsRequest, *kmsg.AssignReplicasToDirsRequest, *kmsg.ControllerRegistrationRequest:
		return duties
	}
	return forwarding
}

type controllerKey struct {
	node int32
	lane lane
}

// controllerClient is the connection to a controller for one kind of requests.
func (n *Node) controllerClient(node int32, l lane) *peer.Client {
	n.peers.Lock()
	defer n.peers.Unlock()
	k := controllerKey{node, l}
	if c := n.peers.m[k]; c != nil {
		return c
	}
	c := peer.New(peer.Options{
		Node: node, ClientID: strconv.Itoa(int(n.o.NodeID)), Dial: n.o.Dial, DialTimeout: n.o.RequestTimeout,
		Addresses: func() []string { return n.o.Book.Addresses(node) }, Answered: n.o.Book.Answered(node),
		Gone: func() { n.o.Log.Refused(node) }, Clock: n.o.Clock, Logger: n.o.Logger,
	})
	if n.peers.m == nil {
		n.peers.m = map[controllerKey]*peer.Client{}
	}
	if n.peers.closed {
		c.Close()
	}
	n.peers.m[k] = c
	return c
}

func (n *Node) closePeers() {
	n.peers.Lock()
	n.peers.closed = true
	all := n.peers.m
	n.peers.m = nil // requests that still come get clients of their own, closed
	n.peers.Unlock()
	for _, c := range all {
		c.Close()
	}
}

// Waits between attempts: the first is short, since a leader that stops says so
// before the next one leads.
const (
	retryFirst = 20 * time.Millisecond
	retryMost  = 500 * time.Millisecond
	// oldPatience is how long a request waits for its answer after another node
	// has become the leader.
	oldPatience = time.Second
)

// Do carries a request to the active controller, here or on another node, and
// waits for its committed answer. A controller that says that it is none any more,
// or whose connection ends, is asked again, or its successor, until ctx ends; so,
// as with Kafka's brokers, a request may be executed twice when its answer was
// lost.
//
// The error is a *peer.Error when the controller does not serve the request, one
// of statemachine's when this node stops, or wraps that of ctx.
func (n *Node) Do(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	var last error
	for wait := retryFirst; ; wait = min(2*wait, retryMost) {
		changed := n.leaderChanged()
		leader := n.Leader().ID
		var res kmsg.Response
		var err error
		switch {
		case leader == n.o.NodeID && n.machine != nil: // leads; active or soon so
			if err = n.awaitActive(ctx); err == nil {
				res, err = n.local(ctx, req)
			}
		case leader == kraft.None:
			err = &NotControllerError{Leader: kraft.None}
		default:
			res, err = n.remote(ctx, leader, req)
		}
		if err == nil && !notController(res) {
			return res, nil
		}
		if err == nil {
			err = &NotControllerError{Leader: leader}
		}
		if !again(err) {
			return nil, err
		}
		if last = err; ctx.Err() != nil {
			return nil, fmt.Errorf("%w: %v", context.Cause(ctx), last)
		}
		n.pause(ctx, changed, leader, wait)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%w: %v", context.Cause(ctx), last)
		}
	}
}

// again tells whether another attempt may succeed.
func again(err error) bool {
	switch peer.KindOf(err) {
	case peer.UnsupportedVersion, peer.ClientClosed:
		return false
	case 0:
		return errors.Is(err, statemachine.ErrNotLeader) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	}
	return true
}

// pause waits for another leader, or for a moment when there is one to ask.
func (n *Node) pause(ctx context.Context, changed <-chan struct{}, leader int32, d time.Duration) {
	var over <-chan struct{}
	if leader != kraft.None {
		fired, stop := clock.After(n.o.Clock, d)
		defer stop()
		over = fired
	}
	select {
	case <-changed:
	case <-over:
	case <-ctx.Done():
	}
}

// awaitActive waits until this node, which leads, is the active controller.
func (n *Node) awaitActive(ctx context.Context) error {
	for {
		changed := n.leaderChanged()
		if n.Active() {
			return nil
		}
		if l := n.Leader().ID; l != n.o.NodeID {
			return &NotControllerError{Leader: l}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return &NotControllerError{Leader: kraft.None}
		}
	}
}

// remote asks another node.
func (n *Node) remote(ctx context.Context, leader int32, req kmsg.Request) (kmsg.Response, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go n.leaveOld(ctx, leader, cancel)
	c := n.controllerClient(leader, laneOf(req))
	from, forwarded := originOf(ctx)
	if !forwarded || !Forwardable(kmsg.Key(req.Key())) {
		return c.Do(ctx, req)
	}
	v, err := innerVersion(ctx, c, req)
	if err != nil {
		return nil, err
	}
	r, err := c.Do(ctx, wrap(from, req, v))
	if err != nil {
		return nil, err
	}
	env := r.(*kmsg.EnvelopeResponse)
	switch env.ErrorCode {
	case 0:
		return unwrap(req, v, env)
	case kerr.NotController.Code:
		return nil, &NotControllerError{Leader: leader}
	}
	return nil, fmt.Errorf("the controller refused the envelope of %s: %w", kmsg.NameForKey(req.Key()), kerr.ErrorForCode(env.ErrorCode))
}

// innerVersion is the version of the request inside an envelope: the client's,
// unless the controller is an Apache node that no longer knows one so old.
func innerVersion(ctx context.Context, c *peer.Client, req kmsg.Request) (int16, error) {
	own := req.GetVersion()
	low, high, err := c.Range(ctx, req.Key())
	return max(low, min(own, high)), err
}

// leaveOld ends a request to a leader that has not answered although another one
// leads by now: a node that hangs answers never.
func (n *Node) leaveOld(ctx context.Context, leader int32, cancel context.CancelFunc) {
	for {
		changed := n.leaderChanged()
		if l := n.Leader().ID; l != leader && l != kraft.None {
			clock.Sleep(ctx, n.o.Clock, oldPatience)
			cancel()
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// notController tells whether an answer says that its sender is not the active controller.
func notController(res kmsg.Response) bool {
	is := kerr.NotController.Code
	switch r := res.(type) {
	case *kmsg.BrokerRegistrationResponse:
		return r.ErrorCode == is
	case *kmsg.BrokerHeartbeatResponse:
		return r.ErrorCode == is
	case *kmsg.AlterPartitionResponse:
		return r.ErrorCode == is
	case *kmsg.AllocateProducerIDsResponse:
		return r.ErrorCode == is
	case *kmsg.AssignReplicasToDirsResponse:
		return r.ErrorCode == is
	case *kmsg.ControllerRegistrationResponse:
		return r.ErrorCode == is
	case *kmsg.UnregisterBrokerResponse:
		return r.ErrorCode == is
	case *kmsg.UpdateFeaturesResponse:
		return r.ErrorCode == is
	case *kmsg.CreateTopicsResponse: // a broker's own, for an internal topic
		return len(r.Topics) > 0 && r.Topics[0].ErrorCode == is
	case *kmsg.DeleteTopicsResponse:
		return len(r.Topics) > 0 && r.Topics[0].ErrorCode == is
	}
	return false
}
