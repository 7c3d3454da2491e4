package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/wire"
)

// ListGroups lists the groups that this broker coordinates (API key 16), versions 0–5.
//
//	v4  by state (KIP-518); v5 by type (KIP-848)
type ListGroups struct{ Groups Registry }

// Key is ListGroups.
func (*ListGroups) Key() kmsg.Key { return kmsg.ListGroups }

// Handle asks the coordinator.
func (h *ListGroups) Handle(ctx context.Context, _ *Call, r kmsg.Request) wire.Response {
	req := as[*kmsg.ListGroupsRequest](r)
	res := responseTo[*kmsg.ListGroupsResponse](r)
	groups, err := h.Groups.List(ctx, req.StatesFilter, req.TypesFilter)
	if err != nil {
		res.ErrorCode = err.Code
	}
	res.Groups = groups
	return reply(res)
}
