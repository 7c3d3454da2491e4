package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/kraft"
	"weir/internal/kraft/rpc"
	"weir/internal/wire"
)

// Quorum tells about the metadata quorum, as its leader sees it; ok is false
// elsewhere.
type Quorum interface {
	Quorum() (q kraft.Quorum, ok bool)
}

// DescribeQuorum shows voters and observers (API key 55), versions 0–2, on
// controller listeners: the leader knows, the others answer
// NOT_LEADER_OR_FOLLOWER. Brokers forward it.
//
//	v1  times of the last fetch (KIP-836)
//	v2  directory ids and the voters' addresses (KIP-853)
type DescribeQuorum struct{ Quorum Quorum }

// Key is DescribeQuorum.
func (*DescribeQuorum) Key() kmsg.Key { return kmsg.DescribeQuorum }

// Handle answers for the one partition of the metadata log.
func (h *DescribeQuorum) Handle(_ context.Context, _ *Call, r kmsg.Request) wire.Response {
	q, leads := h.Quorum.Quorum()
	return reply(rpc.DescribeQuorum(as[*kmsg.DescribeQuorumRequest](r), q, leads))
}
