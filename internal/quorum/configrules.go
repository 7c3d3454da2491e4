package quorum

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/config"
	"weir/internal/image"
)

// ConfigRules tells the controller core what configuration keys mean.
type ConfigRules struct {
	static   *config.Static
	base     *config.Effective
	defaults map[string]string // topic keys: the static value or the default
}

// NewConfigRules makes the rules of a node with this configuration file.
func NewConfigRules(static *config.Static) *ConfigRules {
	r := &ConfigRules{static: static, base: config.NewEffective(static, nil, nil), defaults: map[string]string{}}
	for _, e := range r.base.DescribeTopic(nil) {
		if e.Value != nil {
			r.defaults[e.Name] = *e.Value
		}
	}
	return r
}

// Validate checks the values that a resource is to have.
func (r *ConfigRules) Validate(res image.Resource, values map[string]string) error {
	switch res.Type {
	case image.ResourceTopic:
		return r.base.ValidateTopic(values)
	case image.ResourceBroker:
		return r.base.ValidateBroker(values, res.Name != "")
	case image.ResourceGroup:
		return r.base.ValidateGroup(values)
	case image.ResourceClientMetrics:
		return config.ValidateClientMetrics(values)
	}
	return nil
}

// Default is the static value or the default of a key, "" for none.
func (r *ConfigRules) Default(res image.Resource, key string) string {
	if res.Type == image.ResourceBroker {
		v, _ := r.base.Value(key)
		return v
	}
	return r.defaults[key]
}

// DescribeTopic lists a topic's configuration for the answer to CreateTopics.
func (r *ConfigRules) DescribeTopic(node, cluster, topic map[string]string) []kmsg.CreateTopicsResponseTopicConfig {
	var out []kmsg.CreateTopicsResponseTopicConfig
	for _, e := range config.NewEffective(r.static, cluster, node).DescribeTopic(topic) {
		c := kmsg.NewCreateTopicsResponseTopicConfig()
		c.Name, c.Value, c.ReadOnly, c.Source, c.IsSensitive = e.Name, e.Value, e.ReadOnly, e.Source, e.Sensitive
		out = append(out, c)
	}
	return out
}
