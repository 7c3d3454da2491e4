package quorum

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/controller"
	"weir/internal/image"
	"weir/internal/kraft"
	"weir/internal/kraft/rpc"
	"weir/internal/records"
	"weir/internal/statemachine"
	"weir/internal/uuid"
)

// step is one call of the controller core.
type step func(s controller.Step) controller.Result

// local lets the controller of this node decide, which is active.
// statemachine.ErrNotLeader says that it no longer is: the request may or may not
// have taken effect.
func (n *Node) local(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	if changesVoters(req) {
		return n.changeVoters(ctx, req), nil
	}
	switch q := req.(type) {
	case *kmsg.DescribeQuorumRequest:
		quorum, leads := n.Quorum()
		return rpc.DescribeQuorum(q, quorum, leads), nil
	case *kmsg.UpdateFeaturesRequest:
		if refusal, err := n.upgradeKRaft(ctx, q); refusal != nil || err != nil {
			return refusal, err
		}
	}
	f, err := n.route(req)
	if err != nil {
		return nil, err
	}
	res, err := n.machine.Do(ctx, kmsg.NameForKey(req.Key()), n.write(f))
	if err != nil {
		return nil, err
	}
	return res.(kmsg.Response), nil
}

// Here is the controller of this node alone: what controller listeners ask.
type Here struct{ n *Node }

// Here is the controller of this node alone.
func (n *Node) Here() Here { return Here{n} }

// Do decides when this node is the active controller, and is a
// *NotControllerError at once when it is not.
func (h Here) Do(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	if changesVoters(req) {
		return h.n.changeVoters(ctx, req), nil
	}
	if !h.n.Active() {
		leader := h.n.Leader().ID
		if leader == h.n.o.NodeID { // leads, and has not caught up yet
			leader = kraft.None
		}
		return nil, &NotControllerError{Leader: leader}
	}
	return h.n.local(ctx, req)
}

// route finds the core's method for a request.
func (n *Node) route(req kmsg.Request) (step, error) {
	c := n.o.Core
	switch q := req.(type) {
	case *kmsg.CreateTopicsRequest:
		return func(s controller.Step) controller.Result { return c.CreateTopics(s, q) }, nil
	case *kmsg.DeleteTopicsRequest:
		return func(s controller.Step) controller.Result { return c.DeleteTopics(s, q) }, nil
	case *kmsg.CreatePartitionsRequest:
		return func(s controller.Step) controller.Result { return c.CreatePartitions(s, q) }, nil
	case *kmsg.AlterConfigsRequest:
		return func(s controller.Step) controller.Result { return c.AlterConfigs(s, q) }, nil
	case *kmsg.IncrementalAlterConfigsRequest:
		return func(s controller.Step) controller.Result { return c.IncrementalAlterConfigs(s, q) }, nil
	case *kmsg.UpdateFeaturesRequest:
		return n.updateFeatures(q), nil
	case *kmsg.ElectLeadersRequest:
		return func(s controller.Step) controller.Result { return c.ElectLeaders(s, q) }, nil
	case *kmsg.AlterPartitionAssignmentsRequest:
		return func(s controller.Step) controller.Result { return c.AlterPartitionReassignments(s, q) }, nil
	case *kmsg.ListPartitionReassignmentsRequest:
		return func(s controller.Step) controller.Result { return c.ListPartitionReassignments(s, q) }, nil
	case *kmsg.AlterPartitionRequest:
		return func(s controller.Step) controller.Result { return c.AlterPartition(s, q) }, nil
	case *kmsg.AllocateProducerIDsRequest:
		return func(s controller.Step) controller.Result { return c.AllocateProducerIDs(s, q) }, nil
	case *kmsg.BrokerRegistrationRequest:
		return func(s controller.Step) controller.Result { return c.RegisterBroker(s, q) }, nil
	case *kmsg.BrokerHeartbeatRequest:
		return func(s controller.Step) controller.Result { return c.Heartbeat(s, q) }, nil
	case *kmsg.UnregisterBrokerRequest:
		return func(s controller.Step) controller.Result { return c.UnregisterBroker(s, q) }, nil
	case *kmsg.AssignReplicasToDirsRequest:
		return func(s controller.Step) controller.Result { return c.AssignReplicasToDirs(s, q) }, nil
	case *kmsg.ControllerRegistrationRequest:
		return func(s controller.Step) controller.Result { return c.RegisterController(s, q) }, nil
	}
	return nil, fmt.Errorf("BUG: the controller has no method for %s", kmsg.NameForKey(req.Key()))
}

func (n *Node) updateFeatures(q *kmsg.UpdateFeaturesRequest) step {
	return func(s controller.Step) controller.Result { return n.o.Core.UpdateFeatures(s, q) }
}

// write makes a state machine write of a step, and plans the next tick.
func (n *Node) write(f step) statemachine.Write[*image.Image, records.Versioned] {
	return func(v statemachine.View[*image.Image]) (statemachine.Result[records.Versioned], error) {
		set, level := n.o.Log.Voters()
		q := controller.Quorum{KRaftVersion: level}
		for _, voter := range set.Voters() {
			q.Voters = append(q.Voters, voter.ID)
		}
		r := f(controller.Step{NowMs: v.Now.UnixMilli(), Rand: n.o.Rand, Image: v.State, NextOffset: v.NextOffset, Quorum: q})
		for _, note := range r.Notes {
			n.o.Logger.Info(note)
		}
		n.tellUnclean(r.Records, v.State)
		n.planTick(v.Now)
		recs, atomic := n.together(r, v.State)
		return statemachine.Result[records.Versioned]{Records: recs, Response: r.Response, Atomic: atomic}, nil
	}
}

// tellUnclean counts and logs the elections among records that may lose what was
// acknowledged (availability C5). The new leader tells how far its log reaches.
func (n *Node) tellUnclean(recs []records.Versioned, img *image.Image) {
	for _, v := range recs {
		r, ok := v.Record.(*records.PartitionChangeRecord)
		if !ok || r.LeaderRecoveryState != 1 {
			continue
		}
		n.unclean.Add(1)
		var last []int32
		if p := img.Partition(image.PartitionID{Topic: r.TopicID, Partition: r.PartitionID}); p != nil {
			last = p.LastKnownELR
		}
		if slices.Equal(last, []int32{r.Leader}) {
			continue // nobody else has more than the one that led last
		}
		name := uuid.UUID(r.TopicID).String()
		if t, ok := img.TopicByID(r.TopicID); ok {
			name = t.Name
		}
		n.o.Logger.Warn("a leader is elected uncleanly: records that were acknowledged may be lost",
			"partition", fmt.Sprintf("%s-%d", name, r.PartitionID), "leader", r.Leader, "last known leader", last)
	}
}

// UncleanElections counts the elections decided here that may have lost records.
func (n *Node) UncleanElections() int64 { return n.unclean.Load() }

// together keeps records that must become visible together in one batch, or,
// when they do not fit, between the marks of a metadata transaction (KIP-868).
func (n *Node) together(r controller.Result, img *image.Image) (recs []records.Versioned, atomic bool) {
	if !r.Atomic || len(r.Records) < 2 || !img.Features().Transactions() || img.InTransaction() {
		return r.Records, r.Atomic
	}
	size, scratch := 0, []byte(nil)
	for _, v := range r.Records {
		scratch = records.AppendMetadata(scratch[:0], v)
		if size += len(scratch) + 16; size > n.o.AtomicBytes {
			begin, end := records.NewBeginTransactionRecord(), records.NewEndTransactionRecord()
			recs = append(make([]records.Versioned, 0, len(r.Records)+2), records.Versioned{Record: &begin})
			return append(append(recs, r.Records...), records.Versioned{Record: &end}), false
		}
	}
	return r.Records, true
}

// activate is the first write of a leadership.
func (n *Node) activate(v statemachine.View[*image.Image]) (statemachine.Result[records.Versioned], error) {
	n.o.Logger.Info("became the active controller", "epoch", v.Epoch, "offset", v.NextOffset)
	n.announce()
	if n.o.Activated != nil {
		n.o.Activated()
	}
	return n.write(n.o.Core.Activate)(v)
}

// planTick sets the timer for what the core has to do next.
func (n *Node) planTick(now time.Time) {
	next := n.o.Core.NextTick()
	if next == math.MaxInt64 {
		n.machine.Cancel(tickTimer)
		return
	}
	n.machine.After(tickTimer, max(time.Duration(next-now.UnixMilli())*time.Millisecond, 0), n.write(n.o.Core.Tick))
}

const tickTimer = "tick"

// FenceDead fences brokers whose processes have ended (availability C3(b)) as the
// active controller. statemachine.ErrNotLeader: this node is not it.
func (n *Node) FenceDead(ctx context.Context, dead []controller.BrokerRef) error {
	_, err := n.machine.Do(ctx, "FenceDead", n.write(func(s controller.Step) controller.Result { return n.o.Core.FenceDead(s, dead) }))
	return err
}
