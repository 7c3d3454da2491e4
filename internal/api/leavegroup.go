package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/wire"
)

// LeaveGroup takes members out of a group (API key 13), versions 0–5.
//
//	v3  several members, static ones by their instance id (KIP-345)
//	v5  a reason
type LeaveGroup struct{ Groups Members }

// Key is LeaveGroup.
func (*LeaveGroup) Key() kmsg.Key { return kmsg.LeaveGroup }

// Handle asks the coordinator.
func (h *LeaveGroup) Handle(ctx context.Context, _ *Call, r kmsg.Request) wire.Response {
	return reply(h.Groups.Leave(ctx, as[*kmsg.LeaveGroupRequest](r)))
}
