package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/wire"
)

// DeleteGroups deletes groups without members, with their offsets (API key 42),
// versions 0–2; v2 flexible.
type DeleteGroups struct{ Groups Registry }

// Key is DeleteGroups.
func (*DeleteGroups) Key() kmsg.Key { return kmsg.DeleteGroups }

// Handle deletes one after the other.
func (h *DeleteGroups) Handle(ctx context.Context, _ *Call, r kmsg.Request) wire.Response {
	req := as[*kmsg.DeleteGroupsRequest](r)
	res := responseTo[*kmsg.DeleteGroupsResponse](r)
	seen := map[string]bool{}
	for _, id := range req.Groups {
		if seen[id] {
			continue
		}
		seen[id] = true
		row := kmsg.NewDeleteGroupsResponseGroup()
		row.Group = id
		if err := h.Groups.Delete(ctx, id); err != nil {
			row.ErrorCode = err.Code
		}
		res.Groups = append(res.Groups, row)
	}
	return reply(res)
}
