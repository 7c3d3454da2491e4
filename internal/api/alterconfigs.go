package api

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/config"
	"weir/internal/image"
	"weir/internal/wire"
)

// AlterConfigs serves AlterConfigs (33), versions 0–2, and
// IncrementalAlterConfigs (44), versions 0–1, on a broker; v2 and v1 are flexible.
// The controller decides; but a broker takes changes of single brokers only for
// itself, as Kafka does (ConfigAdminManager), since a client sends them to the
// broker that they are for, and it judges itself what would be its configuration.
// Levels of loggers are this node's own business altogether.
type AlterConfigs struct {
	Forward
	NodeID  int32
	Configs Configs // nil: values of this broker are not judged here
	Loggers Loggers
}

// Handle refuses what is for another broker or not valid for this one, does what is
// for this node, and forwards the rest.
func (h *AlterConfigs) Handle(ctx context.Context, c *Call, r kmsg.Request) wire.Response {
	own := map[int]error{} // what is decided here, by place in the request; nil: done
	switch req := r.(type) {
	case *kmsg.AlterConfigsRequest:
		rest := *req
		rest.Resources = nil
		for i, x := range req.Resources {
			if err := h.check(x.ResourceType, x.ResourceName, func(map[string]string) (map[string]string, error) {
				return replaced(x.Configs), nil
			}); err != nil {
				own[i] = err
			} else {
				rest.Resources = append(rest.Resources, x)
			}
		}
		if len(own) == 0 {
			break
		}
		res := responseTo[*kmsg.AlterConfigsResponse](r)
		if len(rest.Resources) > 0 {
			res = h.ask(ctx, &rest).(*kmsg.AlterConfigsResponse)
		}
		res.Resources = merge(len(req.Resources), own, res.Resources, func(i int, err error) kmsg.AlterConfigsResponseResource {
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
			if x.ResourceType == kmsg.ConfigResourceTypeBrokerLogger {
				own[i] = h.changeLoggers(req, i)
				continue
			}
			if err := h.check(x.ResourceType, x.ResourceName, func(current map[string]string) (map[string]string, error) {
				return changed(current, x.Configs)
			}); err != nil {
				own[i] = err
			} else {
				rest.Resources = append(rest.Resources, x)
			}
		}
		if len(own) == 0 {
			break
		}
		res := responseTo[*kmsg.IncrementalAlterConfigsResponse](r)
		if len(rest.Resources) > 0 {
			res = h.ask(ctx, &rest).(*kmsg.IncrementalAlterConfigsResponse)
		}
		res.Resources = merge(len(req.Resources), own, res.Resources, func(i int, err error) kmsg.IncrementalAlterConfigsResponseResource {
			row := kmsg.NewIncrementalAlterConfigsResponseResource()
			row.ResourceType, row.ResourceName = req.Resources[i].ResourceType, req.Resources[i].ResourceName
			row.ErrorCode, row.ErrorMessage = code(err), messageOf(err)
			return row
		})
		return reply(res)
	}
	return h.Forward.Handle(ctx, c, r)
}

// check refuses the configuration of another broker, and what is not valid for
// this one. after tells what the values would be; nil is for a request that the
// controller refuses.
func (h *AlterConfigs) check(kind kmsg.ConfigResourceType, name string, after func(current map[string]string) (map[string]string, error)) error {
	if kind != kmsg.ConfigResourceTypeBroker || h.Configs == nil {
		return nil
	}
	if name != "" {
		id, err := strconv.ParseInt(name, 10, 32)
		switch {
		case err != nil:
			return refuse(kerr.InvalidRequest, "Node id must be an integer, but it is: "+name)
		case int32(id) != h.NodeID:
			return refuse(kerr.InvalidRequest, fmt.Sprintf("Unexpected broker id, expected %d, but received %d", h.NodeID, id))
		}
	}
	values, err := after(h.Images.Image().Configs(image.ResourceBroker, name))
	if err == nil && values != nil {
		err = h.Configs.Effective().ValidateOwn(values, name != "")
	}
	var invalid *config.Invalid
	switch {
	case errors.As(err, &invalid) && invalid.Request:
		return refuse(kerr.InvalidRequest, invalid.Message)
	case errors.As(err, &invalid):
		return refuse(kerr.InvalidConfig, invalid.Message)
	}
	return err
}

// replaced are the values that AlterConfigs sets; nil when it is not well formed.
func replaced(configs []kmsg.AlterConfigsRequestResourceConfig) map[string]string {
	values := map[string]string{}
	for _, kv := range configs {
		if _, twice := values[kv.Name]; twice || kv.Value == nil {
			return nil
		}
		values[kv.Name] = *kv.Value
	}
	return values
}

// changed are the values after an IncrementalAlterConfigs; nil when it is not
// well formed.
func changed(current map[string]string, ops []kmsg.IncrementalAlterConfigsRequestResourceConfig) (map[string]string, error) {
	values, seen := maps.Clone(current), map[string]bool{}
	if values == nil {
		values = map[string]string{}
	}
	for _, op := range ops {
		if seen[op.Name] || op.Value == nil && op.Op != kmsg.IncrementalAlterConfigOpDelete {
			return nil, nil
		}
		seen[op.Name] = true
		switch op.Op {
		case kmsg.IncrementalAlterConfigOpSet:
			values[op.Name] = *op.Value
		case kmsg.IncrementalAlterConfigOpDelete:
			delete(values, op.Name)
		case kmsg.IncrementalAlterConfigOpAppend, kmsg.IncrementalAlterConfigOpSubtract:
			var old *string
			if v, ok := current[op.Name]; ok {
				old = &v
			}
			v, err := config.AlterList(config.ScopeBroker, op.Name, old, *op.Value, op.Op == kmsg.IncrementalAlterConfigOpSubtract)
			if err != nil {
				return nil, err
			}
			values[op.Name] = v
		default:
			return nil, nil
		}
	}
	return values, nil
}

// merge puts the controller's rows and ours into the order of the request. The
// controller answers a resource that is named twice each time.
func merge[T any](n int, own map[int]error, rows []T, row func(i int, err error) T) []T {
	out := make([]T, 0, n)
	for i := range n {
		if err, ok := own[i]; ok {
			out = append(out, row(i, err))
		} else if len(rows) > 0 {
			out, rows = append(out, rows[0]), rows[1:]
		}
	}
	return out
}
