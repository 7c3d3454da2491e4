package api

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/kraft"
	"weir/internal/kraft/rpc"
	"weir/internal/uuid"
	"weir/internal/vfs"
	"weir/internal/wire"
)

// Raft is the replica of the metadata log on this node.
type Raft interface {
	// Answer waits for the replica's answer; a nil body says that there is none,
	// because ctx ended or the log was closed. The caller releases the regions.
	Answer(ctx context.Context, from int32, body kraft.RequestBody) (kraft.ResponseBody, []vfs.Region)
	// Learn takes down where a leader says that it listens.
	Learn(id int32, endpoints []kraft.Endpoint)
	// Endpoint is where a node listens, by the name of a controller listener.
	Endpoint(id int32, listener string) (kraft.Endpoint, bool)
}

// QuorumRequest serves the requests by which the replicas of the metadata log
// agree on a leader, and hand each other snapshots, on controller listeners:
//
//	Vote              v1 directory ids and addresses (KIP-853); v2 pre-votes (KIP-996)
//	BeginQuorumEpoch  v1 flexible, directory ids and addresses
//	EndQuorumEpoch    v1 flexible, directory ids and addresses
//	FetchSnapshot     v1 directory ids and addresses
type QuorumRequest struct {
	API       kmsg.Key
	Raft      Raft
	ClusterID string
}

// Key is the API it was made for.
func (h *QuorumRequest) Key() kmsg.Key { return h.API }

var errLogClosed = errors.New("the metadata log is closed, or waits for room on its disk")

// Handle hands the request to the replica.
func (h *QuorumRequest) Handle(ctx context.Context, c *Call, req kmsg.Request) wire.Response {
	body, code := rpc.DecodeRequest(req, h.ClusterID)
	if code != kraft.OK {
		return reply(rpc.Refuse(req, code))
	}
	switch q := body.(type) {
	case kraft.BeginRequest:
		h.Raft.Learn(q.Leader.ID, q.LeaderEndpoints)
	case kraft.EndRequest:
		h.Raft.Learn(q.Leader.ID, q.LeaderEndpoints)
	}
	res, _ := h.Raft.Answer(ctx, kraft.None, body)
	if res == nil {
		return wire.Fail{Err: errLogClosed}
	}
	return reply(rpc.EncodeResponse(req, res, leaderNode(h.Raft, res, c.Conn.Listener())))
}

// leaderNode is where the leader that an answer names listens, nil when unknown.
func leaderNode(raft Raft, res kraft.ResponseBody, listener string) *rpc.Node {
	id := rpc.HeadOf(res).Leader.ID
	if id == kraft.None {
		return nil
	}
	e, ok := raft.Endpoint(id, listener)
	if !ok {
		return nil
	}
	return &rpc.Node{ID: id, Host: e.Host, Port: e.Port}
}

// MetadataFetch serves Fetch (API key 1) of the metadata log, versions 0–18, on
// controller listeners. A replica's fetch at the log's end is held until there
// is something to tell.
//
//	v12  epochs of the last record fetched, diverging epochs, snapshots (KIP-595, KIP-630)
//	v13  the topic by id
//	v16  the leader's address in the answer
//	v17  directory ids (KIP-853)
//	v18  the follower's high watermark (KIP-1166)
type MetadataFetch struct {
	Raft      Raft
	ClusterID string
}

// Key is Fetch.
func (*MetadataFetch) Key() kmsg.Key { return kmsg.Fetch }

// Handle hands the request to the replica.
func (h *MetadataFetch) Handle(ctx context.Context, c *Call, r kmsg.Request) wire.Response {
	req := as[*kmsg.FetchRequest](r)
	body, code := rpc.DecodeRequest(req, h.ClusterID)
	if code != kraft.OK {
		return reply(rpc.Refuse(req, code))
	}
	res, regions := h.Raft.Answer(ctx, kraft.None, body)
	if res == nil {
		return wire.Fail{Err: errLogClosed}
	}
	return fetchAnswer(req, res.(kraft.FetchResponse), regions, leaderNode(h.Raft, res, c.Conn.Listener()))
}

// fetchAnswer writes the answer to a fetch of the metadata log. It takes over the regions.
func fetchAnswer(req *kmsg.FetchRequest, r kraft.FetchResponse, regions []vfs.Region, leader *rpc.Node) *wire.FetchResponse {
	p := wire.NewFetchPartition(0)
	p.ErrorCode, p.HighWatermark, p.LogStartOffset, p.Regions = int16(r.Code), r.HighWatermark, r.LogStart, regions
	p.CurrentLeader = wire.LeaderAndEpoch{LeaderID: r.Leader.ID, LeaderEpoch: r.Leader.Epoch}
	if d := r.Diverging; d != nil {
		p.DivergingEpoch = wire.EpochEndOffset{Epoch: d.Epoch, EndOffset: d.Offset}
	}
	if s := r.Snapshot; s != nil {
		p.SnapshotID = wire.SnapshotID{EndOffset: s.Offset, Epoch: s.Epoch}
	}
	res := &wire.FetchResponse{Version: req.Version, Topics: []wire.FetchTopic{
		{Topic: rpc.Topic, TopicID: uuid.MetadataTopic, Partitions: []wire.FetchPartition{p}},
	}}
	if leader != nil {
		res.Nodes = []wire.NodeEndpoint{{NodeID: leader.ID, Host: leader.Host, Port: int32(leader.Port)}}
	}
	return res
}
