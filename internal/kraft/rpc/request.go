package rpc

import (
	"fmt"
	"math"

	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/kraft"
	"weir/internal/uuid"
)

// Topic is the name of the metadata log; its one partition is 0 and its id
// uuid.MetadataTopic.
const Topic = "__cluster_metadata"

// Versions from which a field exists.
const (
	votePreVote        = 2  // KIP-996
	fetchReplicaState  = 15 // KIP-903
	fetchDirectory     = 17 // KIP-853
	fetchHighWatermark = 18 // KIP-1166
)

// KeyOf is the API that carries a body.
func KeyOf(body kraft.RequestBody) kmsg.Key {
	switch body.(type) {
	case kraft.VoteRequest:
		return kmsg.Vote
	case kraft.BeginRequest:
		return kmsg.BeginQuorumEpoch
	case kraft.EndRequest:
		return kmsg.EndQuorumEpoch
	case kraft.FetchRequest:
		return kmsg.Fetch
	case kraft.SnapshotRequest:
		return kmsg.FetchSnapshot
	}
	panic(fmt.Sprintf("BUG: no API carries %T", body))
}

// EncodeRequest writes a body as a request of the given version. ok is false for
// a pre-vote that the version cannot express.
func EncodeRequest(body kraft.RequestBody, clusterID string, version int16) (req kmsg.Request, ok bool) {
	switch q := body.(type) {
	case kraft.VoteRequest:
		if q.PreVote && version < votePreVote {
			return nil, false
		}
		req = vote(q, clusterID)
	case kraft.BeginRequest:
		req = begin(q, clusterID)
	case kraft.EndRequest:
		req = end(q, clusterID)
	case kraft.FetchRequest:
		req = fetch(q, clusterID, version)
	case kraft.SnapshotRequest:
		req = snapshot(q, clusterID, version)
	default:
		panic(fmt.Sprintf("BUG: no request for %T", body))
	}
	req.SetVersion(version)
	return req, true
}

func vote(q kraft.VoteRequest, clusterID string) kmsg.Request {
	r, t, p := kmsg.NewPtrVoteRequest(), kmsg.NewVoteRequestTopic(), kmsg.NewVoteRequestTopicPartition()
	p.CandidateEpoch, p.CandidateID, p.CandidateDirectoryID = q.Epoch, q.Candidate.ID, q.Candidate.Dir
	p.VoterDirectoryID, p.LastOffset, p.LastOffsetEpoch, p.PreVote = q.Voter.Dir, q.Last.Offset, q.Last.Epoch, q.PreVote
	t.Topic, t.Partitions = Topic, append(t.Partitions, p)
	r.ClusterID, r.VoterID, r.Topics = &clusterID, q.Voter.ID, append(r.Topics, t)
	return r
}

func begin(q kraft.BeginRequest, clusterID string) kmsg.Request {
	r, t, p := kmsg.NewPtrBeginQuorumEpochRequest(), kmsg.NewBeginQuorumEpochRequestTopic(), kmsg.NewBeginQuorumEpochRequestTopicPartition()
	p.VoterDirectoryID, p.LeaderID, p.LeaderEpoch = q.Voter.Dir, q.Leader.ID, q.Leader.Epoch
	t.Topic, t.Partitions = Topic, append(t.Partitions, p)
	r.ClusterID, r.VoterID, r.Topics = &clusterID, q.Voter.ID, append(r.Topics, t)
	for _, e := range q.LeaderEndpoints {
		l := kmsg.NewBeginQuorumEpochRequestLeaderEndpoint()
		l.Name, l.Host, l.Port = e.Name, e.Host, e.Port
		r.LeaderEndpoints = append(r.LeaderEndpoints, l)
	}
	return r
}

func end(q kraft.EndRequest, clusterID string) kmsg.Request {
	r, t, p := kmsg.NewPtrEndQuorumEpochRequest(), kmsg.NewEndQuorumEpochRequestTopic(), kmsg.NewEndQuorumEpochRequestTopicPartition()
	p.LeaderID, p.LeaderEpoch = q.Leader.ID, q.Leader.Epoch
	for _, s := range q.Successors { // each version writes one of the two
		c := kmsg.NewEndQuorumEpochRequestTopicPartitionPreferredCandidate()
		c.CandidateID, c.CandidateDirectoryID = s.ID, s.Dir
		p.PreferredCandidates = append(p.PreferredCandidates, c)
		p.PreferredSuccessors = append(p.PreferredSuccessors, s.ID)
	}
	t.Topic, t.Partitions = Topic, append(t.Partitions, p)
	r.ClusterID, r.Topics = &clusterID, append(r.Topics, t)
	for _, e := range q.LeaderEndpoints {
		l := kmsg.NewEndQuorumEpochRequestLeaderEndpoint()
		l.Name, l.Host, l.Port = e.Name, e.Host, e.Port
		r.LeaderEndpoints = append(r.LeaderEndpoints, l)
	}
	return r
}

func fetch(q kraft.FetchRequest, clusterID string, version int16) kmsg.Request {
	r, t, p := kmsg.NewPtrFetchRequest(), kmsg.NewFetchRequestTopic(), kmsg.NewFetchRequestTopicPartition()
	p.CurrentLeaderEpoch, p.FetchOffset, p.LastFetchedEpoch = q.Epoch, q.Offset, q.LastEpoch
	p.PartitionMaxBytes = q.MaxBytes
	// kmsg writes tagged fields at any flexible version, Kafka only where they exist.
	if version >= fetchDirectory {
		p.ReplicaDirectoryID = q.Replica.Dir
	}
	if version >= fetchHighWatermark {
		p.HighWatermark = q.HighWatermark
	}
	t.Topic, t.TopicID, t.Partitions = Topic, uuid.MetadataTopic, append(t.Partitions, p)
	if version >= fetchReplicaState {
		r.ReplicaState.ID = q.Replica.ID
	} else {
		r.ReplicaID = q.Replica.ID
	}
	r.ClusterID, r.MaxWaitMillis, r.MaxBytes, r.Topics = &clusterID, int32(q.MaxWaitMs), q.MaxBytes, append(r.Topics, t)
	return r
}

func snapshot(q kraft.SnapshotRequest, clusterID string, version int16) kmsg.Request {
	r, t, p := kmsg.NewPtrFetchSnapshotRequest(), kmsg.NewFetchSnapshotRequestTopic(), kmsg.NewFetchSnapshotRequestTopicPartition()
	p.CurrentLeaderEpoch, p.Position = q.Epoch, q.Offset
	p.SnapshotID.EndOffset, p.SnapshotID.Epoch = q.ID.Offset, q.ID.Epoch
	if version >= 1 {
		p.ReplicaDirectoryID = q.Replica.Dir
	}
	t.Topic, t.Partitions = Topic, append(t.Partitions, p)
	r.ClusterID, r.ReplicaID, r.MaxBytes, r.Topics = &clusterID, q.Replica.ID, q.MaxBytes, append(r.Topics, t)
	return r
}

// DecodeRequest reads a request. A code other than OK answers the whole request.
func DecodeRequest(req kmsg.Request, clusterID string) (body kraft.RequestBody, code kraft.Code) {
	named, body := read(req)
	switch {
	case named != nil && *named != clusterID:
		return nil, kraft.InconsistentCluster
	case body == nil:
		return nil, kraft.InvalidRequest
	}
	return body, kraft.OK
}

// read returns the cluster id that the request names, nil for none, and its body,
// nil when it is not about the one partition of the metadata log.
func read(req kmsg.Request) (*string, kraft.RequestBody) {
	switch r := req.(type) {
	case *kmsg.VoteRequest:
		return r.ClusterID, readVote(r)
	case *kmsg.BeginQuorumEpochRequest:
		return r.ClusterID, readBegin(r)
	case *kmsg.EndQuorumEpochRequest:
		return r.ClusterID, readEnd(r)
	case *kmsg.FetchRequest:
		return r.ClusterID, readFetch(r)
	case *kmsg.FetchSnapshotRequest:
		return r.ClusterID, readSnapshot(r)
	}
	panic(fmt.Sprintf("BUG: %T is no request of the quorum", req))
}

func readVote(r *kmsg.VoteRequest) kraft.RequestBody {
	if len(r.Topics) != 1 || r.Topics[0].Topic != Topic || len(r.Topics[0].Partitions) != 1 || r.Topics[0].Partitions[0].Partition != 0 {
		return nil
	}
	p := &r.Topics[0].Partitions[0]
	return kraft.VoteRequest{
		Epoch: p.CandidateEpoch, Candidate: kraft.Replica{ID: p.CandidateID, Dir: p.CandidateDirectoryID},
		Voter: kraft.Replica{ID: r.VoterID, Dir: p.VoterDirectoryID},
		Last:  kraft.Position{Offset: p.LastOffset, Epoch: p.LastOffsetEpoch}, PreVote: p.PreVote,
	}
}

func readBegin(r *kmsg.BeginQuorumEpochRequest) kraft.RequestBody {
	if len(r.Topics) != 1 || r.Topics[0].Topic != Topic || len(r.Topics[0].Partitions) != 1 || r.Topics[0].Partitions[0].Partition != 0 {
		return nil
	}
	p := &r.Topics[0].Partitions[0]
	q := kraft.BeginRequest{Leader: kraft.LeaderAndEpoch{ID: p.LeaderID, Epoch: p.LeaderEpoch}, Voter: kraft.Replica{ID: kraft.None}}
	if r.Version >= 1 {
		q.Voter = kraft.Replica{ID: r.VoterID, Dir: p.VoterDirectoryID}
	}
	for _, e := range r.LeaderEndpoints {
		q.LeaderEndpoints = append(q.LeaderEndpoints, kraft.Endpoint{Name: e.Name, Host: e.Host, Port: e.Port})
	}
	return q
}

func readEnd(r *kmsg.EndQuorumEpochRequest) kraft.RequestBody {
	if len(r.Topics) != 1 || r.Topics[0].Topic != Topic || len(r.Topics[0].Partitions) != 1 || r.Topics[0].Partitions[0].Partition != 0 {
		return nil
	}
	p := &r.Topics[0].Partitions[0]
	q := kraft.EndRequest{Leader: kraft.LeaderAndEpoch{ID: p.LeaderID, Epoch: p.LeaderEpoch}}
	for _, c := range p.PreferredCandidates {
		q.Successors = append(q.Successors, kraft.Replica{ID: c.CandidateID, Dir: c.CandidateDirectoryID})
	}
	if r.Version < 1 {
		for _, id := range p.PreferredSuccessors {
			q.Successors = append(q.Successors, kraft.Replica{ID: id})
		}
	}
	for _, e := range r.LeaderEndpoints {
		q.LeaderEndpoints = append(q.LeaderEndpoints, kraft.Endpoint{Name: e.Name, Host: e.Host, Port: e.Port})
	}
	return q
}

func readFetch(r *kmsg.FetchRequest) kraft.RequestBody {
	if len(r.Topics) != 1 || len(r.Topics[0].Partitions) != 1 || r.Topics[0].Partitions[0].Partition != 0 {
		return nil
	}
	t := &r.Topics[0]
	if r.Version <= 12 && t.Topic != Topic || r.Version > 12 && t.TopicID != uuid.MetadataTopic {
		return nil
	}
	p := &t.Partitions[0]
	q := kraft.FetchRequest{
		Replica: kraft.Replica{ID: r.ReplicaID, Dir: p.ReplicaDirectoryID}, Epoch: p.CurrentLeaderEpoch,
		Offset: p.FetchOffset, LastEpoch: p.LastFetchedEpoch, HighWatermark: -1,
		MaxWaitMs: int64(r.MaxWaitMillis), MaxBytes: r.MaxBytes,
	}
	if r.Version >= fetchReplicaState {
		q.Replica.ID = r.ReplicaState.ID
	}
	// math.MaxInt64 is the schema's default: what a follower that knows nothing of KIP-1166 leaves out.
	if p.HighWatermark != math.MaxInt64 {
		q.HighWatermark = p.HighWatermark
	}
	return q
}

func readSnapshot(r *kmsg.FetchSnapshotRequest) kraft.RequestBody {
	if len(r.Topics) != 1 || r.Topics[0].Topic != Topic || len(r.Topics[0].Partitions) != 1 || r.Topics[0].Partitions[0].Partition != 0 {
		return nil
	}
	p := &r.Topics[0].Partitions[0]
	return kraft.SnapshotRequest{
		Replica: kraft.Replica{ID: r.ReplicaID, Dir: p.ReplicaDirectoryID}, Epoch: p.CurrentLeaderEpoch,
		ID:     kraft.Position{Offset: p.SnapshotID.EndOffset, Epoch: p.SnapshotID.Epoch},
		Offset: p.Position, MaxBytes: r.MaxBytes,
	}
}
