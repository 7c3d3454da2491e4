package api

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/wire"
)

// DescribeCluster lists brokers or controllers (API key 60), versions 0–2.
//
//	v1  endpoint type: brokers (1) or controllers (2), KIP-919
//	v2  fenced brokers on demand (KIP-1073)
type DescribeCluster struct {
	Images    Images
	ClusterID string
	// Controllers is set on controller listeners: the endpoints are controllers'.
	Controllers bool
	// Leader is the quorum's leader, -1 when unknown.
	Leader func() int32
}

const (
	endpointBrokers     = 1
	endpointControllers = 2
)

// Key is DescribeCluster.
func (*DescribeCluster) Key() kmsg.Key { return kmsg.DescribeCluster }

// Handle answers from the image.
func (h *DescribeCluster) Handle(_ context.Context, c *Call, r kmsg.Request) wire.Response {
	req := as[*kmsg.DescribeClusterRequest](r)
	res := responseTo[*kmsg.DescribeClusterResponse](r)
	res.ControllerID = -1
	res.ClusterAuthorizedOperations = authorized(req.IncludeClusterAuthorizedOperations, clusterOperations)
	serves := int8(endpointBrokers)
	if h.Controllers {
		serves = endpointControllers
	}
	asked := int8(endpointBrokers)
	if req.Version >= 1 {
		asked = req.EndpointType
	}
	switch {
	case asked != endpointBrokers && asked != endpointControllers:
		res.ErrorCode, res.ErrorMessage = kerr.UnsupportedEndpointType.Code, kmsg.StringPtr(fmt.Sprintf("Unsupported endpoint type %d", asked))
		return reply(res)
	case asked != serves:
		res.ErrorCode = kerr.MismatchedEndpointType.Code
		res.ErrorMessage = kmsg.StringPtr(fmt.Sprintf("The request was sent to an endpoint of type %s, but we wanted an endpoint of type %s", endpointName(serves), endpointName(asked)))
		return reply(res)
	}
	res.ClusterID, res.EndpointType = h.ClusterID, serves
	if h.Controllers {
		h.listControllers(c, res)
	} else {
		h.listBrokers(c, req, res)
	}
	return reply(res)
}

func endpointName(t int8) string {
	if t == endpointControllers {
		return "CONTROLLER"
	}
	return "BROKER"
}

func (h *DescribeCluster) listBrokers(c *Call, req *kmsg.DescribeClusterRequest, res *kmsg.DescribeClusterResponse) {
	for b := range h.Images.Image().Brokers() {
		e, ok := b.Endpoint(c.Conn.Listener())
		if !ok || (b.Fenced && !(req.Version >= 2 && req.IncludeFencedBrokers)) {
			continue
		}
		n := kmsg.NewDescribeClusterResponseBroker()
		n.NodeID, n.Host, n.Port, n.Rack, n.IsFenced = b.ID, e.Host, int32(e.Port), b.Rack, b.Fenced
		res.Brokers = append(res.Brokers, n)
		if res.ControllerID < 0 && !b.Fenced {
			res.ControllerID = b.ID
		}
	}
}

func (h *DescribeCluster) listControllers(c *Call, res *kmsg.DescribeClusterResponse) {
	for q := range h.Images.Image().Controllers() {
		if e, ok := q.Endpoint(c.Conn.Listener()); ok {
			n := kmsg.NewDescribeClusterResponseBroker()
			n.NodeID, n.Host, n.Port = q.ID, e.Host, int32(e.Port)
			res.Brokers = append(res.Brokers, n)
		}
	}
	res.ControllerID = h.Leader()
}
