package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/wire"
)

// ACLs answers DescribeAcls (29), CreateAcls (30) and DeleteAcls (31), versions
// 0–3.
//
// Not implemented: authorizers; every request is answered SECURITY_DISABLED, as
// Kafka does without one.
type ACLs struct{ API kmsg.Key }

// Key is the API it was made for.
func (a *ACLs) Key() kmsg.Key { return a.API }

// Handle refuses.
func (a *ACLs) Handle(_ context.Context, _ *Call, r kmsg.Request) wire.Response {
	text := kmsg.StringPtr("No Authorizer is configured.")
	switch req := r.(type) {
	case *kmsg.DescribeACLsRequest:
		res := responseTo[*kmsg.DescribeACLsResponse](r)
		res.ErrorCode, res.ErrorMessage = kerr.SecurityDisabled.Code, kmsg.StringPtr("No Authorizer is configured on the broker")
		return reply(res)
	case *kmsg.CreateACLsRequest:
		res := responseTo[*kmsg.CreateACLsResponse](r)
		for range req.Creations {
			row := kmsg.NewCreateACLsResponseResult()
			row.ErrorCode, row.ErrorMessage = kerr.SecurityDisabled.Code, text
			res.Results = append(res.Results, row)
		}
		return reply(res)
	case *kmsg.DeleteACLsRequest:
		res := responseTo[*kmsg.DeleteACLsResponse](r)
		for range req.Filters {
			row := kmsg.NewDeleteACLsResponseResult()
			row.ErrorCode, row.ErrorMessage = kerr.SecurityDisabled.Code, text
			res.Results = append(res.Results, row)
		}
		return reply(res)
	}
	return wire.Fail{Err: kerr.UnsupportedVersion}
}
