package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/wire"
)

// Heartbeat keeps a member's session and tells it of a rebalance (API key 12),
// versions 0–4; v3 static members (KIP-345), v4 flexible.
type Heartbeat struct{ Groups Members }

// Key is Heartbeat.
func (*Heartbeat) Key() kmsg.Key { return kmsg.Heartbeat }

// Handle asks the coordinator.
func (h *Heartbeat) Handle(ctx context.Context, _ *Call, r kmsg.Request) wire.Response {
	return reply(h.Groups.Heartbeat(ctx, as[*kmsg.HeartbeatRequest](r)))
}
