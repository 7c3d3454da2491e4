package api

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/kraft"
	"weir/internal/kraft/rpc"
	"weir/internal/network"
	"weir/internal/records"
	"weir/internal/vfs"
	"weir/internal/wire"
)

// fakeRaft answers everything alike and notes what it was told.
type fakeRaft struct {
	answer  kraft.ResponseBody
	asked   []kraft.RequestBody
	learned map[int32][]kraft.Endpoint
}

func (f *fakeRaft) Answer(_ context.Context, _ int32, body kraft.RequestBody) (kraft.ResponseBody, []vfs.Region) {
	f.asked = append(f.asked, body)
	return f.answer, nil
}
func (f *fakeRaft) Learn(id int32, e []kraft.Endpoint) { f.learned[id] = e }
func (f *fakeRaft) Endpoint(id int32, _ string) (kraft.Endpoint, bool) {
	return kraft.Endpoint{Name: "CONTROLLER", Host: fmt.Sprintf("h%d", id), Port: 9093}, id == 3
}

const raftCluster = "4L6g3nShT-eMCtK--X86sw"

func raftCall() *Call { return &Call{Conn: &network.Conn{}} }

func TestQuorumRequests(t *testing.T) {
	head := kraft.Head{Leader: kraft.LeaderAndEpoch{ID: 3, Epoch: 9}}
	leader := []kraft.Endpoint{{Name: "CONTROLLER", Host: "new", Port: 1}}
	f := &fakeRaft{answer: kraft.BeginResponse{Head: head}, learned: map[int32][]kraft.Endpoint{}}
	h := &QuorumRequest{API: kmsg.BeginQuorumEpoch, Raft: f, ClusterID: raftCluster}
	begin := kraft.BeginRequest{Leader: kraft.LeaderAndEpoch{ID: 3, Epoch: 9}, Voter: kraft.Replica{ID: 1}, LeaderEndpoints: leader}
	req, _ := rpc.EncodeRequest(begin, raftCluster, 1)
	res := h.Handle(t.Context(), raftCall(), req).(wire.Message).Response.(*kmsg.BeginQuorumEpochResponse)
	if len(f.asked) != 1 || len(f.learned[3]) != 1 || f.learned[3][0] != leader[0] || res.ErrorCode != 0 || res.Topics[0].Partitions[0].LeaderEpoch != 9 ||
		len(res.NodeEndpoints) != 1 || res.NodeEndpoints[0].Host != "h3" {
		t.Errorf("asked %v, learned %v, answered %+v", f.asked, f.learned, res)
	}
	foreign, _ := rpc.EncodeRequest(begin, "another", 1)
	res = h.Handle(t.Context(), raftCall(), foreign).(wire.Message).Response.(*kmsg.BeginQuorumEpochResponse)
	if res.ErrorCode != kerr.InconsistentClusterID.Code || len(f.asked) != 1 {
		t.Errorf("of another cluster: %+v", res)
	}
	f.answer = nil // the log is closed
	if _, fails := h.Handle(t.Context(), raftCall(), req).(wire.Fail); !fails {
		t.Error("answered without a log")
	}
}

func TestMetadataFetch(t *testing.T) {
	f := &fakeRaft{answer: kraft.FetchResponse{Head: kraft.Head{Code: kraft.NotLeader, Leader: kraft.LeaderAndEpoch{ID: 3, Epoch: 9}},
		HighWatermark: -1, LogStart: -1, Diverging: &kraft.Position{Offset: 5, Epoch: 2}}}
	h := &MetadataFetch{Raft: f, ClusterID: raftCluster}
	req, _ := rpc.EncodeRequest(kraft.FetchRequest{Replica: kraft.Replica{ID: 2}, Epoch: 9, Offset: 7, LastEpoch: 3}, raftCluster, 17)
	res := h.Handle(t.Context(), raftCall(), req).(*wire.FetchResponse)
	p := res.Topics[0].Partitions[0]
	if p.ErrorCode != kerr.NotLeaderForPartition.Code || p.CurrentLeader != (wire.LeaderAndEpoch{LeaderID: 3, LeaderEpoch: 9}) ||
		p.DivergingEpoch != (wire.EpochEndOffset{Epoch: 2, EndOffset: 5}) || len(res.Nodes) != 1 || res.Nodes[0].Host != "h3" {
		t.Errorf("%+v", res)
	}
	foreign, _ := rpc.EncodeRequest(kraft.FetchRequest{}, "another", 17)
	if res := h.Handle(t.Context(), raftCall(), foreign).(wire.Message).Response.(*kmsg.FetchResponse); res.ErrorCode != kerr.InconsistentClusterID.Code {
		t.Errorf("of another cluster: %+v", res)
	}
}

// enveloped is a request as a broker forwards it.
func enveloped(req kmsg.Request) *kmsg.EnvelopeRequest {
	p := records.NewDefaultPrincipalData()
	p.Type, p.Name = "User", "ANONYMOUS"
	e := kmsg.NewPtrEnvelopeRequest()
	e.RequestData = kmsg.NewRequestFormatter(kmsg.FormatterClientID("cli")).AppendRequest(nil, req, 77)[4:]
	e.RequestPrincipal, e.ClientHostAddress = p.AppendTo([]byte{0, 0}, 0), []byte{127, 0, 0, 1}
	return e
}

func TestEnvelope(t *testing.T) {
	o := new(obedient)
	h := &Envelope{}
	h.Bind(NewTable(slog.New(slog.DiscardHandler), h, &Forward{API: kmsg.IncrementalAlterConfigs, Controller: o}, &Forward{API: kmsg.CreateTopics, Controller: deaf{}}))
	send := func(req kmsg.Request) *kmsg.EnvelopeResponse {
		return h.Handle(t.Context(), raftCall(), enveloped(req)).(wire.Message).Response.(*kmsg.EnvelopeResponse)
	}
	alter := kmsg.NewPtrIncrementalAlterConfigsRequest()
	alter.Version = 1
	alter.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "t"}}
	res := send(alter)
	id, body, err := wire.ParseResponseHeader(res.ResponseData, alter.Key(), 1)
	inner := alter.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
	if err != nil || res.ErrorCode != 0 || id != 77 || inner.ReadFrom(body) != nil || len(inner.Resources) != 1 || inner.Resources[0].ResourceName != "t" {
		t.Errorf("%+v, %v, answered %+v", res, err, inner)
	}
	create := kmsg.NewPtrCreateTopicsRequest()
	create.Version = 7
	create.Topics = []kmsg.CreateTopicsRequestTopic{{Topic: "t"}}
	if res := send(create); res.ErrorCode != kerr.NotController.Code || len(res.ResponseData) != 0 {
		t.Errorf("a controller that is not active: %+v", res)
	}
	if res := send(kmsg.NewPtrAlterClientQuotasRequest()); res.ErrorCode != kerr.UnsupportedVersion.Code {
		t.Errorf("an API that is not served: %+v", res)
	}
	vote := kmsg.NewPtrVoteRequest()
	if res := send(vote); res.ErrorCode != kerr.InvalidRequest.Code {
		t.Errorf("an API that nobody forwards: %+v", res)
	}
}
