package api

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/group/classic"
	"weir/internal/image"
	"weir/internal/wire"
)

// Consumers are the consumer groups of KIP-848, at the coordinator.
type Consumers interface {
	ConsumerHeartbeat(ctx context.Context, q *kmsg.ConsumerGroupHeartbeatRequest, from classic.Client) kmsg.Response
	DescribeConsumer(ctx context.Context, id string) kmsg.ConsumerGroupDescribeResponseGroup
}

// consumers is what consumer groups of KIP-848 use.
func (n *Node) consumers() []Handler {
	enabled := func() bool {
		return n.Images.Image().Features().Level(image.FeatureGroup) > 0 &&
			slices.Contains(n.Configs.Effective().List("group.coordinator.rebalance.protocols"), classic.Consumer)
	}
	return []Handler{&ConsumerGroupHeartbeat{n.Groups, enabled}, &ConsumerGroupDescribe{n.Groups, enabled}}
}

// ConsumerGroupHeartbeat is what members of consumer groups send (API key 68, KIP-848),
// versions 0–1: to join, to tell what they subscribe to and own, and to leave.
//
//	v1  regular expressions; the member makes its own id
//
// It is UNSUPPORTED_VERSION when group.version is 0, or when
// group.coordinator.rebalance.protocols does not name the protocol.
type ConsumerGroupHeartbeat struct {
	Groups  Consumers
	Enabled func() bool
}

// Key is ConsumerGroupHeartbeat.
func (*ConsumerGroupHeartbeat) Key() kmsg.Key { return kmsg.ConsumerGroupHeartbeat }

// Handle asks the coordinator.
func (h *ConsumerGroupHeartbeat) Handle(ctx context.Context, c *Call, r kmsg.Request) wire.Response {
	req := as[*kmsg.ConsumerGroupHeartbeatRequest](r)
	if !h.Enabled() {
		res := responseTo[*kmsg.ConsumerGroupHeartbeatResponse](r)
		res.ErrorCode = kerr.UnsupportedVersion.Code
		return reply(res)
	}
	return reply(h.Groups.ConsumerHeartbeat(ctx, req, member(c)))
}
