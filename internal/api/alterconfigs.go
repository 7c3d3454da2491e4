package api

import (
	"context"
	"fmt"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/wire"
)

// AlterConfigs serves AlterConfigs (33), versions 0–2, and
// IncrementalAlterConfigs (44), versions 0–1, on a broker; v2 and v1 are flexible.
// The controller decides; but a broker takes changes of single brokers only for
// itself, as Kafka does (ConfigAdminManager), since a client sends them to the
// broker that they are for.
type AlterConfigs struct {
	Forward
	NodeID int32
}

// Handle refuses what is for another broker, and forwards the rest.
func (h *AlterConfigs) Handle(ctx context.Context, c *Call, r kmsg.Request) wire.Response {
	refused := map[int]error{} // by place in the request
	switch req := r.(type) {
	case *kmsg.AlterConfigsRequest:
		rest := *req
		rest.Resources = nil
		for i, x := range req.Resources {
			if err := h.elsewhere(x.ResourceType, x.ResourceName); err != nil {
				refused[i] = err
			} else {
				rest.Resources = append(rest.Resources, x)
			}
		}
		if len(refused) == 0 {
			break
		}
		res := responseTo[*kmsg.AlterConfigsResponse](r)
		if len(rest.Resources) > 0 {
			res = h.ask(ctx, &rest).(*kmsg.AlterConfigsResponse)
		}
		res.Resources = merge(len(req.Resources), refused, res.Resources, func(i int, err error) kmsg.AlterConfigsResponseResource {
			row := kmsg.NewAlterConfigsResponseResource()
			row.ResourceType, row.ResourceName = req.Resources[i].ResourceType, req.Resources[i].ResourceName
			row.ErrorCode, row.ErrorMessage = code(err), messageOf(err)
			return row
		})
		return reply(res)
	case *kmsg.IncrementalAlterConfigsRequest:
		rest := *req
		rest.Resources = nil
		for i, x := range req.Resources {
			if err := h.elsewhere(x.ResourceType, x.ResourceName); err != nil {
				refused[i] = err
			} else {
				rest.Resources = append(rest.Resources, x)
			}
		}
		if len(refused) == 0 {
			break
		}
		res := responseTo[*kmsg.IncrementalAlterConfigsResponse](r)
		if len(rest.Resources) > 0 {
			res = h.ask(ctx, &rest).(*kmsg.IncrementalAlterConfigsResponse)
		}
		res.Resources = merge(len(req.Resources), refused, res.Resources, func(i int, err error) kmsg.IncrementalAlterConfigsResponseResource {
			row := kmsg.NewIncrementalAlterConfigsResponseResource()
			row.ResourceType, row.ResourceName = req.Resources[i].ResourceType, req.Resources[i].ResourceName
			row.ErrorCode, row.ErrorMessage = code(err), messageOf(err)
			return row
		})
		return reply(res)
	}
	return h.Forward.Handle(ctx, c, r)
}

// elsewhere refuses the configuration of another broker.
func (h *AlterConfigs) elsewhere(kind kmsg.ConfigResourceType, name string) error {
	if kind != kmsg.ConfigResourceTypeBroker || name == "" {
		return nil
	}
	id, err := strconv.ParseInt(name, 10, 32)
	switch {
	case err != nil:
		return refuse(kerr.InvalidRequest, "Node id must be an integer, but it is: "+name)
	case int32(id) != h.NodeID:
		return refuse(kerr.InvalidRequest, fmt.Sprintf("Unexpected broker id, expected %d, but received %d", h.NodeID, id))
	}
	return nil
}

// merge puts the controller's rows and ours into the order of the request. The
// controller answers a resource that is named twice each time.
func merge[T any](n int, refused map[int]error, rows []T, row func(i int, err error) T) []T {
	out := make([]T, 0, n)
	for i := range n {
		if err := refused[i]; err != nil {
			out = append(out, row(i, err))
		} else if len(rows) > 0 {
			out, rows = append(out, rows[0]), rows[1:]
		}
	}
	return out
}
