package api

import (
	"context"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/image"
	"weir/internal/wire"
)

// ListConfigResources names what has a configuration (API key 74), versions 0–1.
//
//	v0  subscriptions of client metrics alone (ListClientMetricsResources, KIP-1000)
//	v1  any kind of resource (KIP-1142)
//
// Topics and brokers are all there are, whether or not anything is set on them;
// groups and subscriptions are those with a configuration.
type ListConfigResources struct{ Images Images }

// Key is ListConfigResources.
func (*ListConfigResources) Key() kmsg.Key { return kmsg.ListConfigResources }

// configKinds are the kinds of resources that can be listed, in the order of their codes.
var configKinds = [...]int8{image.ResourceTopic, image.ResourceBroker, image.ResourceBrokerLogger, image.ResourceClientMetrics, image.ResourceGroup}

// Handle lists the kinds that are asked for, all when none is.
func (h *ListConfigResources) Handle(_ context.Context, c *Call, r kmsg.Request) wire.Response {
	req := as[*kmsg.ListConfigResourcesRequest](r)
	res := responseTo[*kmsg.ListConfigResourcesResponse](r)
	asked := req.ResourceTypes
	switch {
	case req.Version == 0:
		asked = []int8{image.ResourceClientMetrics}
	case len(asked) == 0:
		asked = configKinds[:]
	}
	for _, kind := range asked {
		if !slices.Contains(configKinds[:], kind) {
			res.ErrorCode = kerr.UnsupportedVersion.Code
			return reply(res)
		}
	}
	img := h.Images.Image()
	for _, kind := range configKinds {
		if !slices.Contains(asked, kind) {
			continue
		}
		for _, name := range configured(img, kind, c.Conn.Listener()) {
			row := kmsg.NewListConfigResourcesResponseConfigResource()
			row.Name, row.Type = name, kind
			res.ConfigResources = append(res.ConfigResources, row)
		}
	}
	return reply(res)
}

// configured names the resources of one kind.
func configured(img *image.Image, kind int8, listener string) []string {
	var out []string
	switch kind {
	case image.ResourceTopic:
		for t := range img.Topics() {
			out = append(out, t.Name)
		}
	case image.ResourceBroker, image.ResourceBrokerLogger:
		for b := range img.Brokers() {
			if _, ok := b.Endpoint(listener); ok && !b.Fenced {
				out = append(out, strconv.Itoa(int(b.ID)))
			}
		}
	default:
		for res, values := range img.ConfigResources() {
			if res.Type == kind && len(values) > 0 {
				out = append(out, res.Name)
			}
		}
	}
	return out
}
