package api

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/config"
	"weir/internal/image"
	"weir/internal/wire"
)

// Configs gives the broker's configuration as it is now, dynamic values included.
type Configs interface {
	Effective() *config.Effective
}

// DescribeConfigs lists configurations (API key 32), versions 0–4.
//
//	v1  sources and synonyms (KIP-226)
//	v3  types and documentation (KIP-569); v4 flexible
type DescribeConfigs struct {
	Images  Images
	Configs Configs
	Loggers Loggers
	NodeID  int32
}

// Key is DescribeConfigs.
func (*DescribeConfigs) Key() kmsg.Key { return kmsg.DescribeConfigs }

// Handle answers each resource on its own.
func (h *DescribeConfigs) Handle(_ context.Context, _ *Call, r kmsg.Request) wire.Response {
	req := as[*kmsg.DescribeConfigsRequest](r)
	res := responseTo[*kmsg.DescribeConfigsResponse](r)
	img := h.Images.Image()
	for i := range req.Resources {
		q := &req.Resources[i]
		row := kmsg.NewDescribeConfigsResponseResource()
		row.ResourceType, row.ResourceName = q.ResourceType, q.ResourceName
		entries, err := h.entries(img, q)
		row.ErrorCode, row.ErrorMessage = code(err), ownText(err)
		if row.ErrorMessage == nil {
			row.ErrorMessage = new(string) // Kafka's is empty where there is nothing to say, not null
		}
		for _, e := range entries {
			if len(q.ConfigNames) == 0 || slices.Contains(q.ConfigNames, e.Name) {
				row.Configs = append(row.Configs, configRow(req, e))
			}
		}
		res.Resources = append(res.Resources, row)
	}
	return reply(res)
}

func (h *DescribeConfigs) entries(img *image.Image, q *kmsg.DescribeConfigsRequestResource) ([]config.Entry, error) {
	eff := h.Configs.Effective()
	switch q.ResourceType {
	case kmsg.ConfigResourceTypeTopic:
		if reason := invalidTopicName(q.ResourceName); reason != "" {
			return nil, refuse(kerr.InvalidTopicException, reason)
		}
		if _, ok := img.Topic(q.ResourceName); !ok {
			return nil, kerr.UnknownTopicOrPartition
		}
		return eff.DescribeTopic(img.Configs(image.ResourceTopic, q.ResourceName)), nil
	case kmsg.ConfigResourceTypeBroker:
		if q.ResourceName == "" {
			return eff.DescribeClusterDefault(), nil
		}
		id, err := strconv.ParseInt(q.ResourceName, 10, 32)
		if err != nil {
			return nil, refuse(kerr.InvalidRequest, fmt.Sprintf("Broker id must be an integer, but it is: %s", q.ResourceName))
		}
		if int32(id) != h.NodeID {
			return nil, refuse(kerr.InvalidRequest, fmt.Sprintf("Unexpected broker id, expected %d or empty string, but received %s", h.NodeID, q.ResourceName))
		}
		return eff.DescribeBroker(), nil
	case kmsg.ConfigResourceTypeGroupConfig:
		if q.ResourceName == "" {
			return nil, refuse(kerr.InvalidRequest, "Group name must not be empty")
		}
		return eff.DescribeGroup(img.Configs(image.ResourceGroup, q.ResourceName)), nil
	case kmsg.ConfigResourceTypeClientMetrics:
		if q.ResourceName == "" {
			return nil, refuse(kerr.InvalidRequest, "Client metrics subscription name must not be empty")
		}
		return config.DescribeClientMetrics(img.Configs(image.ResourceClientMetrics, q.ResourceName)), nil
	case kmsg.ConfigResourceTypeBrokerLogger:
		return describeLoggers(h.Loggers, h.NodeID, q.ResourceName)
	}
	return nil, refuse(kerr.InvalidRequest, textMalformed)
}

// textMalformed is Kafka's text of INVALID_REQUEST.
const textMalformed = "This most likely occurs because of a request being malformed by the client library or the message was sent to an incompatible broker. See the broker logs for more details."

func configRow(req *kmsg.DescribeConfigsRequest, e config.Entry) kmsg.DescribeConfigsResponseResourceConfig {
	row := kmsg.NewDescribeConfigsResponseResourceConfig()
	row.Name, row.Value, row.ReadOnly, row.IsSensitive, row.IsDefault = e.Name, e.Value, e.ReadOnly, e.Sensitive, e.IsDefault
	row.Source, row.ConfigType = kmsg.ConfigSource(e.Source), kmsg.ConfigType(e.Type)
	if req.IncludeDocumentation || row.Source == kmsg.ConfigSourceDynamicBrokerLoggerConfig { // never null for a logger, as in Kafka
		row.Documentation = &e.Doc
	}
	if req.IncludeSynonyms {
		for _, s := range e.Synonyms {
			n := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
			n.Name, n.Value, n.Source = s.Name, s.Value, kmsg.ConfigSource(s.Source)
			row.ConfigSynonyms = append(row.ConfigSynonyms, n)
		}
	}
	return row
}
