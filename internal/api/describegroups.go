package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/wire"
)

// DescribeGroups tells of classic groups and their members (API key 15), versions 0–6.
//
//	v3  authorized operations; v4 static members (KIP-345)
//	v6  an unknown group is GROUP_ID_NOT_FOUND; before, it is Dead without an error
//
// A group that waits for a rebalance is told of in the log, with the members that
// are missing and since when.
type DescribeGroups struct{ Groups Registry }

// Key is DescribeGroups.
func (*DescribeGroups) Key() kmsg.Key { return kmsg.DescribeGroups }

// Handle asks the coordinator.
func (h *DescribeGroups) Handle(ctx context.Context, _ *Call, r kmsg.Request) wire.Response {
	req := as[*kmsg.DescribeGroupsRequest](r)
	res := responseTo[*kmsg.DescribeGroupsResponse](r)
	res.Groups = make([]kmsg.DescribeGroupsResponseGroup, 0, len(req.Groups))
	for _, id := range req.Groups {
		g := h.Groups.Describe(ctx, id, req.Version)
		g.AuthorizedOperations = operationsNotAsked
		if g.ErrorCode == 0 {
			g.AuthorizedOperations = authorized(req.IncludeAuthorizedOperations, groupOperations)
		}
		res.Groups = append(res.Groups, g)
	}
	return reply(res)
}
