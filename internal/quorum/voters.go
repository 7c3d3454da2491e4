package quorum

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/clock"
	"weir/internal/image"
	"weir/internal/kraft"
	"weir/internal/peer"
)

// changesVoters tells whether a request changes the voters: the consensus answers
// it, and not the controller.
func changesVoters(req kmsg.Request) bool {
	switch req.(type) {
	case *kmsg.AddRaftVoterRequest, *kmsg.RemoveRaftVoterRequest, *kmsg.UpdateRaftVoterRequest:
		return true
	}
	return false
}

// changeVoters answers the three requests of KIP-853 when this node leads, and
// with NOT_LEADER_OR_FOLLOWER when it does not. A change that is not committed
// when ctx ends may be committed later; the answer is REQUEST_TIMED_OUT.
func (n *Node) changeVoters(ctx context.Context, req kmsg.Request) kmsg.Response {
	refused := kraft.ChangeResponse{}
	var body kraft.RequestBody
	var named *string
	switch q := req.(type) {
	case *kmsg.AddRaftVoterRequest:
		named = q.ClusterID
		v := kraft.Voter{Replica: kraft.Replica{ID: q.VoterID, Dir: q.VoterDirectoryID}}
		for _, l := range q.Listeners {
			v.Endpoints = append(v.Endpoints, kraft.Endpoint{Name: l.Name, Host: l.Host, Port: l.Port})
		}
		body, refused = n.candidate(ctx, v, q.Version >= 1 && !q.AckWhenCommitted)
	case *kmsg.RemoveRaftVoterRequest:
		named, body = q.ClusterID, kraft.RemoveVoterRequest{Voter: kraft.Replica{ID: q.VoterID, Dir: q.VoterDirectoryID}}
	case *kmsg.UpdateRaftVoterRequest:
		v := kraft.Voter{Replica: kraft.Replica{ID: q.VoterID, Dir: q.VoterDirectoryID},
			MinVersion: q.KRaftVersionFeature.MinSupportedVersion, MaxVersion: q.KRaftVersionFeature.MaxSupportedVersion}
		for _, l := range q.Listeners {
			v.Endpoints = append(v.Endpoints, kraft.Endpoint{Name: l.Name, Host: l.Host, Port: l.Port})
		}
		named, body = q.ClusterID, kraft.UpdateVoterRequest{Epoch: q.CurrentLeaderEpoch, Voter: v}
	}
	switch {
	case named != nil && n.o.ClusterID != "" && *named != n.o.ClusterID:
		refused = kraft.ChangeResponse{Head: kraft.Head{Code: kraft.InconsistentCluster}, Text: "This node belongs to cluster " + n.o.ClusterID}
	case refused.Code == kraft.OK:
		res, _ := n.Answer(ctx, kraft.None, body)
		if res == nil {
			refused = timedOut("The change was not committed in time.")
			break
		}
		refused = res.(kraft.ChangeResponse)
	}
	return n.changeAnswer(req, refused)
}

func timedOut(text string) kraft.ChangeResponse {
	return kraft.ChangeResponse{Head: kraft.Head{Code: kraft.RequestTimedOut}, Text: text}
}

// candidate asks a node that is to become a voter which levels it supports. The
// second result refuses it.
func (n *Node) candidate(ctx context.Context, v kraft.Voter, early bool) (kraft.RequestBody, kraft.ChangeResponse) {
	e, ok := v.Endpoint(n.o.Book.listener)
	if !ok {
		return nil, kraft.ChangeResponse{Head: kraft.Head{Code: kraft.InvalidRequest},
			Text: fmt.Sprintf("Add voter request didn't include the endpoint for the default listener %s", n.o.Book.listener)}
	}
	c := peer.New(peer.Options{
		Node: v.ID, ClientID: "raft-client-add-voter", Dial: n.o.Dial, DialTimeout: n.o.RequestTimeout,
		Addresses: func() []string { return []string{address(e.Host, e.Port)} }, Clock: n.o.Clock, Logger: n.o.Logger,
	})
	defer c.Close()
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "weir", "4.3.1"
	r, err := c.Do(ctx, req)
	if err != nil {
		return nil, timedOut(fmt.Sprintf("Aborted add voter operation since the voter did not answer: %v", err))
	}
	for _, f := range r.(*kmsg.ApiVersionsResponse).SupportedFeatures {
		if f.Name == image.FeatureKRaft {
			v.MinVersion, v.MaxVersion = f.MinVersion, f.MaxVersion
		}
	}
	return kraft.AddVoterRequest{Voter: v, AckEarly: early}, kraft.ChangeResponse{}
}

func (n *Node) changeAnswer(req kmsg.Request, r kraft.ChangeResponse) kmsg.Response {
	var text *string
	if r.Code != kraft.OK {
		if r.Text == "" {
			r.Text = kerr.TypedErrorForCode(int16(r.Code)).Description
		}
		text = &r.Text
	}
	res := req.ResponseKind()
	switch q := res.(type) {
	case *kmsg.AddRaftVoterResponse:
		q.ErrorCode, q.ErrorMessage = int16(r.Code), text
	case *kmsg.RemoveRaftVoterResponse:
		q.ErrorCode, q.ErrorMessage = int16(r.Code), text
	case *kmsg.UpdateRaftVoterResponse:
		l := n.o.Log.Leader()
		q.ErrorCode, q.CurrentLeader.LeaderID, q.CurrentLeader.LeaderEpoch = int16(r.Code), l.ID, l.Epoch
		if e, ok := n.o.Book.Endpoint(l.ID, n.o.Book.listener); ok {
			q.CurrentLeader.Host, q.CurrentLeader.Port = e.Host, int32(e.Port)
		}
	}
	return res
}

// JoinOptions is what a controller needs to keep its place among the voters.
type JoinOptions struct {
	Self      kraft.Replica
	Endpoints []kraft.Endpoint // its controller listeners
	Auto      bool             // controller.quorum.auto.join.enable
	Every     time.Duration    // controller.quorum.fetch.timeout.ms
}

// keepPlace tells the leader what has changed about this voter, and, with
// controller.quorum.auto.join.enable, makes this controller a voter. Leaders of
// Apache Kafka want to hear each voter once, also at kraft.version 0: the levels
// that it supports decide whether that can be raised.
func (n *Node) keepPlace(ctx context.Context, o JoinOptions) error {
	told := int32(-1) // the epoch whose leader knows us
	for {
		clock.Sleep(ctx, n.o.Clock, o.Every)
		if ctx.Err() != nil {
			return nil
		}
		l := n.Leader()
		if l.ID == kraft.None || l.ID == n.o.NodeID {
			continue
		}
		set, level := n.o.Log.Voters()
		asked, cancel := context.WithTimeout(ctx, o.Every)
		mine, known := set.Get(o.Self.ID)
		switch {
		case level == 0 && known && told != l.Epoch, level > 0 && set.Has(o.Self) && !sameVoter(mine, o):
			if n.tellVoter(asked, l.Epoch, o) {
				told = l.Epoch
			}
		case level > 0 && o.Auto && known && !set.Has(o.Self): // our disk is new: its predecessor goes first
			n.tryJoin(asked, n.removal(mine.Replica))
		case level > 0 && o.Auto && !known:
			n.tryJoin(asked, n.addition(o))
		}
		cancel()
	}
}

// sameVoter tells whether the log says of us what is true. The endpoints are
// those of a voter with equal ones.
func sameVoter(v kraft.Voter, o JoinOptions) bool {
	if v.MinVersion != 0 || v.MaxVersion != kraft.MaxVersion || len(v.Endpoints) != len(o.Endpoints) {
		return false
	}
	for _, e := range o.Endpoints {
		if have, ok := v.Endpoint(e.Name); !ok || have != e {
			return false
		}
	}
	return true
}

func (n *Node) tellVoter(ctx context.Context, epoch int32, o JoinOptions) bool {
	req := kmsg.NewPtrUpdateRaftVoterRequest()
	req.ClusterID, req.CurrentLeaderEpoch, req.VoterID, req.VoterDirectoryID = &n.o.ClusterID, epoch, o.Self.ID, o.Self.Dir
	req.KRaftVersionFeature.MaxSupportedVersion = kraft.MaxVersion
	for _, e := range o.Endpoints {
		l := kmsg.NewUpdateRaftVoterRequestListener()
		l.Name, l.Host, l.Port = e.Name, e.Host, e.Port
		req.Listeners = append(req.Listeners, l)
	}
	r, err := n.Do(ctx, req)
	if err != nil {
		n.o.Logger.Debug("the leader was not told about this voter", "err", err)
		return peer.KindOf(err) == peer.UnsupportedVersion
	}
	return r.(*kmsg.UpdateRaftVoterResponse).ErrorCode == 0
}

func (n *Node) removal(v kraft.Replica) kmsg.Request {
	req := kmsg.NewPtrRemoveRaftVoterRequest()
	req.ClusterID, req.VoterID, req.VoterDirectoryID = &n.o.ClusterID, v.ID, v.Dir
	return req
}

func (n *Node) addition(o JoinOptions) kmsg.Request {
	req := kmsg.NewPtrAddRaftVoterRequest()
	req.Version = 1
	req.ClusterID, req.VoterID, req.VoterDirectoryID, req.TimeoutMillis = &n.o.ClusterID, o.Self.ID, o.Self.Dir, int32(o.Every/time.Millisecond)
	for _, e := range o.Endpoints {
		l := kmsg.NewAddRaftVoterRequestListener()
		l.Name, l.Host, l.Port = e.Name, e.Host, e.Port
		req.Listeners = append(req.Listeners, l)
	}
	return req
}

// tryJoin sends a change of the voters for this controller itself; what fails is
// tried again.
func (n *Node) tryJoin(ctx context.Context, req kmsg.Request) {
	r, err := n.Do(ctx, req)
	code := int16(0)
	switch res := r.(type) {
	case *kmsg.AddRaftVoterResponse:
		code = res.ErrorCode
	case *kmsg.RemoveRaftVoterResponse:
		code = res.ErrorCode
	}
	if err == nil {
		err = kerr.ErrorForCode(code)
	}
	if err != nil {
		n.o.Logger.Debug("not a voter yet", "request", kmsg.NameForKey(req.Key()), "err", err)
		return
	}
	n.o.Logger.Info("changed the voters of the metadata quorum for this controller (controller.quorum.auto.join.enable)", "request", kmsg.NameForKey(req.Key()))
}
