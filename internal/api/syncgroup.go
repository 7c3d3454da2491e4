package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/wire"
)

// SyncGroup gives a member its assignment (API key 14), versions 0–5. The leader
// brings those of all; the others wait for it.
//
//	v3  static members (KIP-345)
//	v5  protocol type and name are compared (KIP-559)
type SyncGroup struct{ Groups Members }

// Key is SyncGroup.
func (*SyncGroup) Key() kmsg.Key { return kmsg.SyncGroup }

// Handle waits for the leader.
func (h *SyncGroup) Handle(ctx context.Context, _ *Call, r kmsg.Request) wire.Response {
	req := as[*kmsg.SyncGroupRequest](r)
	if req.Version >= 5 && (req.ProtocolType == nil || req.Protocol == nil) {
		res := responseTo[*kmsg.SyncGroupResponse](r)
		res.ErrorCode, res.MemberAssignment = kerr.InconsistentGroupProtocol.Code, []byte{}
		return reply(res)
	}
	return reply(h.Groups.Sync(ctx, req))
}
