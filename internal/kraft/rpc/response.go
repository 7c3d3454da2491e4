package rpc

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/kraft"
)

// Node is where a node listens, as answers name it: the leader, for those that
// asked somebody else.
type Node struct {
	ID   int32
	Host string
	Port uint16
}

// ResponseError is an answer that holds no word of the quorum: an error for the
// whole request, or one about another partition.
type ResponseError struct {
	Code int16
	Text string
}

func (e *ResponseError) Error() string {
	if e.Text != "" {
		return e.Text
	}
	return fmt.Sprintf("answered with %v", kerr.ErrorForCode(e.Code))
}

// DecodeResponse reads the answer to what EncodeRequest wrote. The error is
// always a *ResponseError.
func DecodeResponse(res kmsg.Response) (body kraft.ResponseBody, nodes []Node, err error) {
	top := int16(0)
	switch r := res.(type) {
	case *kmsg.VoteResponse:
		top = r.ErrorCode
		if len(r.Topics) == 1 && len(r.Topics[0].Partitions) == 1 {
			p := &r.Topics[0].Partitions[0]
			body = kraft.VoteResponse{Head: head(p.ErrorCode, p.LeaderID, p.LeaderEpoch), Granted: p.VoteGranted}
		}
		for _, n := range r.NodeEndpoints {
			nodes = append(nodes, Node{n.NodeID, n.Host, n.Port})
		}
	case *kmsg.BeginQuorumEpochResponse:
		top = r.ErrorCode
		if len(r.Topics) == 1 && len(r.Topics[0].Partitions) == 1 {
			p := &r.Topics[0].Partitions[0]
			body = kraft.BeginResponse{Head: head(p.ErrorCode, p.LeaderID, p.LeaderEpoch)}
		}
		for _, n := range r.NodeEndpoints {
			nodes = append(nodes, Node{n.NodeID, n.Host, n.Port})
		}
	case *kmsg.EndQuorumEpochResponse:
		top = r.ErrorCode
		if len(r.Topics) == 1 && len(r.Topics[0].Partitions) == 1 {
			p := &r.Topics[0].Partitions[0]
			body = kraft.EndResponse{Head: head(p.ErrorCode, p.LeaderID, p.LeaderEpoch)}
		}
		for _, n := range r.NodeEndpoints {
			nodes = append(nodes, Node{n.NodeID, n.Host, n.Port})
		}
	case *kmsg.FetchResponse:
		top = r.ErrorCode
		if len(r.Topics) == 1 && len(r.Topics[0].Partitions) == 1 {
			body = fetched(&r.Topics[0].Partitions[0])
		}
		for _, n := range r.Brokers {
			nodes = append(nodes, Node{n.NodeID, n.Host, uint16(n.Port)})
		}
	case *kmsg.FetchSnapshotResponse:
		top = r.ErrorCode
		if len(r.Topics) == 1 && len(r.Topics[0].Partitions) == 1 {
			p := &r.Topics[0].Partitions[0]
			body = kraft.SnapshotResponse{
				Head: head(p.ErrorCode, p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch),
				ID:   kraft.Position{Offset: p.SnapshotID.EndOffset, Epoch: p.SnapshotID.Epoch},
				Size: p.Size, Offset: p.Position, Bytes: p.Bytes,
			}
		}
		for _, n := range r.NodeEndpoints {
			nodes = append(nodes, Node{n.NodeID, n.Host, n.Port})
		}
	default:
		panic(fmt.Sprintf("BUG: %T is no answer of the quorum", res))
	}
	switch {
	case top != 0:
		return nil, nodes, &ResponseError{Code: top}
	case body == nil:
		return nil, nodes, &ResponseError{Text: "the answer is not about the one partition of the metadata log"}
	}
	return body, nodes, nil
}

func head(code int16, leader, epoch int32) kraft.Head {
	return kraft.Head{Code: kraft.Code(code), Leader: kraft.LeaderAndEpoch{ID: leader, Epoch: epoch}}
}

func fetched(p *kmsg.FetchResponseTopicPartition) kraft.ResponseBody {
	r := kraft.FetchResponse{
		Head:          head(p.ErrorCode, p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch),
		HighWatermark: p.HighWatermark, LogStart: p.LogStartOffset, Records: p.RecordBatches,
	}
	if d := p.DivergingEpoch; d.Epoch >= 0 {
		r.Diverging = &kraft.Position{Offset: d.EndOffset, Epoch: d.Epoch}
	}
	if s := p.SnapshotID; s.Epoch >= 0 && s.EndOffset >= 0 && r.Diverging == nil {
		r.Snapshot = &kraft.Position{Offset: s.EndOffset, Epoch: s.Epoch}
	}
	return r
}
