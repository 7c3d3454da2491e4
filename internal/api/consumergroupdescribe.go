package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/wire"
)

// ConsumerGroupDescribe tells of consumer groups and their members (API key 69,
// KIP-848), versions 0–1.
//
//	v1  the protocol that each member uses
//
// It is refused as ConsumerGroupHeartbeat is.
type ConsumerGroupDescribe struct {
	Groups  Consumers
	Enabled func() bool
}

// Key is ConsumerGroupDescribe.
func (*ConsumerGroupDescribe) Key() kmsg.Key { return kmsg.ConsumerGroupDescribe }

// Handle asks the coordinator.
func (h *ConsumerGroupDescribe) Handle(ctx context.Context, _ *Call, r kmsg.Request) wire.Response {
	req := as[*kmsg.ConsumerGroupDescribeRequest](r)
	res := responseTo[*kmsg.ConsumerGroupDescribeResponse](r)
	res.Groups = make([]kmsg.ConsumerGroupDescribeResponseGroup, 0, len(req.Groups))
	for _, id := range req.Groups {
		d := kmsg.NewConsumerGroupDescribeResponseGroup()
		d.Group, d.ErrorCode = id, kerr.UnsupportedVersion.Code
		if h.Enabled() {
			d = h.Groups.DescribeConsumer(ctx, id)
		}
		d.AuthorizedOperations = operationsNotAsked
		if d.ErrorCode == 0 {
			d.AuthorizedOperations = authorized(req.IncludeAuthorizedOperations, groupOperations)
		}
		res.Groups = append(res.Groups, d)
	}
	return reply(res)
}
