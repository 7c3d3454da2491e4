package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/wire"
)

// JoinGroup makes a client a member of a classic group (API key 11), versions 0–9.
// The answer comes when the rebalance that it begins, or takes part in, has come to its end.
//
//	v1  a rebalance timeout of its own
//	v4  a new member gets its id first and joins again with it (KIP-394)
//	v5  static members (KIP-345)
//	v7  protocol type in the answer; v8 a reason
//	v9  a returning static leader may skip the assignment (KIP-814)
type JoinGroup struct{ Groups Members }

// Key is JoinGroup.
func (*JoinGroup) Key() kmsg.Key { return kmsg.JoinGroup }

// Handle waits for the rebalance.
func (h *JoinGroup) Handle(ctx context.Context, c *Call, r kmsg.Request) wire.Response {
	return reply(h.Groups.Join(ctx, as[*kmsg.JoinGroupRequest](r), member(c)))
}
