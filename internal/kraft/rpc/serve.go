package rpc

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/kraft"
)

// Refuse answers a whole request with an error.
func Refuse(req kmsg.Request, code kraft.Code) kmsg.Response {
	res := req.ResponseKind()
	switch r := res.(type) {
	case *kmsg.VoteResponse:
		r.ErrorCode = int16(code)
	case *kmsg.BeginQuorumEpochResponse:
		r.ErrorCode = int16(code)
	case *kmsg.EndQuorumEpochResponse:
		r.ErrorCode = int16(code)
	case *kmsg.FetchResponse:
		r.ErrorCode = int16(code)
	case *kmsg.FetchSnapshotResponse:
		r.ErrorCode = int16(code)
	default:
		panic(fmt.Sprintf("BUG: %T is no answer of the quorum", res))
	}
	return res
}

// HeadOf is what every answer begins with.
func HeadOf(body kraft.ResponseBody) kraft.Head {
	switch r := body.(type) {
	case kraft.VoteResponse:
		return r.Head
	case kraft.BeginResponse:
		return r.Head
	case kraft.EndResponse:
		return r.Head
	case kraft.FetchResponse:
		return r.Head
	case kraft.SnapshotResponse:
		return r.Head
	}
	panic(fmt.Sprintf("BUG: %T is no answer of the quorum", body))
}

// EncodeResponse writes the core's answer to req, but for a fetch's,
// whose records are not copied: package api writes it. leader tells where the leader that it names listens, nil when
// that is not known.
func EncodeResponse(req kmsg.Request, body kraft.ResponseBody, leader *Node) kmsg.Response {
	res, h := req.ResponseKind(), HeadOf(body)
	tell := leader != nil && req.GetVersion() >= 1
	switch r := res.(type) {
	case *kmsg.VoteResponse:
		t, p := kmsg.NewVoteResponseTopic(), kmsg.NewVoteResponseTopicPartition()
		p.ErrorCode, p.LeaderID, p.LeaderEpoch, p.VoteGranted = int16(h.Code), h.Leader.ID, h.Leader.Epoch, body.(kraft.VoteResponse).Granted
		t.Topic, t.Partitions = Topic, append(t.Partitions, p)
		r.Topics = append(r.Topics, t)
		if tell {
			r.NodeEndpoints = []kmsg.VoteResponseNodeEndpoint{{NodeID: leader.ID, Host: leader.Host, Port: leader.Port}}
		}
	case *kmsg.BeginQuorumEpochResponse:
		t, p := kmsg.NewBeginQuorumEpochResponseTopic(), kmsg.NewBeginQuorumEpochResponseTopicPartition()
		p.ErrorCode, p.LeaderID, p.LeaderEpoch = int16(h.Code), h.Leader.ID, h.Leader.Epoch
		t.Topic, t.Partitions = Topic, append(t.Partitions, p)
		r.Topics = append(r.Topics, t)
		if tell {
			r.NodeEndpoints = []kmsg.BeginQuorumEpochResponseNodeEndpoint{{NodeID: leader.ID, Host: leader.Host, Port: leader.Port}}
		}
	case *kmsg.EndQuorumEpochResponse:
		t, p := kmsg.NewEndQuorumEpochResponseTopic(), kmsg.NewEndQuorumEpochResponseTopicPartition()
		p.ErrorCode, p.LeaderID, p.LeaderEpoch = int16(h.Code), h.Leader.ID, h.Leader.Epoch
		t.Topic, t.Partitions = Topic, append(t.Partitions, p)
		r.Topics = append(r.Topics, t)
		if tell {
			r.NodeEndpoints = []kmsg.EndQuorumEpochResponseNodeEndpoint{{NodeID: leader.ID, Host: leader.Host, Port: leader.Port}}
		}
	case *kmsg.FetchSnapshotResponse:
		s := body.(kraft.SnapshotResponse)
		t, p := kmsg.NewFetchSnapshotResponseTopic(), kmsg.NewFetchSnapshotResponseTopicPartition()
		p.ErrorCode, p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch = int16(h.Code), h.Leader.ID, h.Leader.Epoch
		p.SnapshotID.EndOffset, p.SnapshotID.Epoch = s.ID.Offset, s.ID.Epoch
		p.Size, p.Position, p.Bytes = s.Size, s.Offset, s.Bytes
		t.Topic, t.Partitions = Topic, append(t.Partitions, p)
		r.Topics = append(r.Topics, t)
		if tell {
			r.NodeEndpoints = []kmsg.FetchSnapshotResponseNodeEndpoint{{NodeID: leader.ID, Host: leader.Host, Port: leader.Port}}
		}
	default:
		panic(fmt.Sprintf("BUG: %T is no answer of the quorum", res))
	}
	return res
}

// DescribeQuorum answers for the one partition of the metadata log, as its leader
// sees the quorum; leads is false elsewhere.
func DescribeQuorum(req *kmsg.DescribeQuorumRequest, q kraft.Quorum, leads bool) *kmsg.DescribeQuorumResponse {
	res := req.ResponseKind().(*kmsg.DescribeQuorumResponse)
	res.ErrorMessage = new(string)
	known := false
	for _, t := range req.Topics {
		rt := kmsg.NewDescribeQuorumResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewDescribeQuorumResponseTopicPartition()
			rp.Partition = p.Partition
			rp.ErrorMessage = new(string) // Kafka's is empty, not null
			var err *kerr.Error
			switch {
			case t.Topic != Topic || p.Partition != 0:
				err = kerr.UnknownTopicOrPartition
			case !leads:
				err = kerr.NotLeaderForPartition
			default:
				describe(&rp, q)
				known = true
			}
			if err != nil {
				rp.ErrorCode, rp.ErrorMessage = err.Code, &err.Description
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		res.Topics = append(res.Topics, rt)
	}
	if known && req.Version >= 2 {
		for _, v := range q.Members.Voters() {
			n := kmsg.NewDescribeQuorumResponseNode()
			n.NodeID = v.ID
			for _, e := range v.Endpoints {
				l := kmsg.NewDescribeQuorumResponseNodeListener()
				l.Name, l.Host, l.Port = e.Name, e.Host, e.Port
				n.Listeners = append(n.Listeners, l)
			}
			res.Nodes = append(res.Nodes, n)
		}
	}
	return res
}

func describe(rp *kmsg.DescribeQuorumResponseTopicPartition, q kraft.Quorum) {
	rp.LeaderID, rp.LeaderEpoch, rp.HighWatermark = q.Leader.ID, q.Leader.Epoch, q.HighWatermark
	rp.CurrentVoters, rp.Observers = replicaStates(q.Voters), replicaStates(q.Observers)
	for _, v := range q.Members.Voters() {
		for i := range rp.CurrentVoters {
			if s := &rp.CurrentVoters[i]; s.ReplicaID == v.ID {
				s.ReplicaDirectoryID = v.Dir // none when controller.quorum.voters names the voters
			}
		}
	}
}

func replicaStates(list []kraft.ReplicaState) []kmsg.DescribeQuorumResponseTopicPartitionReplicaState {
	out := []kmsg.DescribeQuorumResponseTopicPartitionReplicaState{}
	for _, s := range list {
		n := kmsg.NewDescribeQuorumResponseTopicPartitionReplicaState()
		n.ReplicaID, n.ReplicaDirectoryID, n.LogEndOffset = s.Replica.ID, s.Replica.Dir, s.LogEnd
		n.LastFetchTimestamp, n.LastCaughtUpTimestamp = s.LastFetch, s.LastCaughtUp
		out = append(out, n)
	}
	return out
}
