package broker

import (
	"slices"
	"strconv"
	"sync/atomic"

	"weir/internal/config"
	"weir/internal/image"
)

// nodeConfigs is the configuration of a node without replicas, dynamic values
// included: what package replication is for the others.
type nodeConfigs struct {
	static    *config.Static
	node      string
	effective atomic.Pointer[config.Effective]
}

func newNodeConfigs(static *config.Static, node int32) *nodeConfigs {
	c := &nodeConfigs{static: static, node: strconv.Itoa(int(node))}
	c.effective.Store(config.NewEffective(static, nil, nil))
	return c
}

// Effective is the configuration as it is now.
func (c *nodeConfigs) Effective() *config.Effective { return c.effective.Load() }

// Apply takes changed values of this node and of all.
func (c *nodeConfigs) Apply(img *image.Image, d *image.Delta) {
	mine := func(r image.Resource) bool {
		return r.Type == image.ResourceBroker && (r.Name == "" || r.Name == c.node)
	}
	if slices.ContainsFunc(d.ChangedConfigs(), mine) {
		c.effective.Store(config.NewEffective(c.static, img.Configs(image.ResourceBroker, ""), img.Configs(image.ResourceBroker, c.node)))
	}
}
