package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/kraft"
	"weir/internal/wire"
)

// metadataTopic is the topic of the metadata log.
const metadataTopic = "__cluster_metadata"

// Quorum tells about the metadata quorum, as its leader sees it; ok is false
// elsewhere.
type Quorum interface {
	Quorum() (q kraft.Quorum, ok bool)
}

// DescribeQuorum shows voters and observers (API key 55), versions 0–2.
//
//	v1  times of the last fetch (KIP-836)
//	v2  directory ids and the voters' addresses (KIP-853)
type DescribeQuorum struct{ Quorum Quorum }

// Key is DescribeQuorum.
func (*DescribeQuorum) Key() kmsg.Key { return kmsg.DescribeQuorum }

// Handle answers for the one partition of the metadata log.
func (h *DescribeQuorum) Handle(_ context.Context, _ *Call, r kmsg.Request) wire.Response {
	req := as[*kmsg.DescribeQuorumRequest](r)
	res := responseTo[*kmsg.DescribeQuorumResponse](r)
	res.ErrorMessage = new(string)
	q, leads := h.Quorum.Quorum()
	known := false
	for _, t := range req.Topics {
		rt := kmsg.NewDescribeQuorumResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewDescribeQuorumResponseTopicPartition()
			rp.Partition = p.Partition
			var err error
			switch {
			case t.Topic != metadataTopic || p.Partition != 0:
				err = errUnknownPartition
			case !leads:
				err = kerr.NotLeaderForPartition
			default:
				describeQuorum(&rp, q)
			}
			rp.ErrorCode, rp.ErrorMessage = code(err), messageOf(err)
			if err == nil {
				rp.ErrorMessage = new(string) // Kafka's is empty, not null
				known = true
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
	return reply(res)
}

func describeQuorum(rp *kmsg.DescribeQuorumResponseTopicPartition, q kraft.Quorum) {
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
