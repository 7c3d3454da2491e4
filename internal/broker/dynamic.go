package broker

import (
	"slices"
	"strconv"

	"weir/internal/config"
	"weir/internal/image"
)

// dynamic follows the dynamic configuration of brokers, for what is not a
// property of topics: package replication has taken it already when Apply runs.
// Keys that only the file sets, and those that Weir does not honour, are not
// here; see package config.
type dynamic struct {
	b    *Broker
	told map[string]string // keys without effect that the log was told of, and their values
}

// Apply takes changed listeners, limits of connections and cordoned directories, lets
// the cleaner look at its keys, and warns of what was changed without effect.
func (d dynamic) Apply(img *image.Image, delta *image.Delta) {
	node := strconv.Itoa(int(d.b.o.Node.NodeID))
	if !slices.ContainsFunc(delta.ChangedConfigs(), func(r image.Resource) bool {
		return r.Type == image.ResourceBroker && (r.Name == "" || r.Name == node)
	}) {
		return
	}
	eff := d.b.eff()
	d.b.relisten(eff)
	d.b.limit(eff)
	d.b.dirs.SetCordoned(eff.List("cordoned.log.dirs"))
	if d.b.cleaner != nil {
		d.b.cleaner.Wake()
	}
	if d.b.lifecycle != nil {
		d.b.lifecycle.Wake() // heartbeats tell the controller what is cordoned
	}
	d.warn(img.Configs(image.ResourceBroker, ""))
	d.warn(img.Configs(image.ResourceBroker, node))
}

func (d dynamic) warn(values map[string]string) {
	for name, value := range values {
		why := config.NotTaken(name)
		if told, ok := d.told[name]; why == "" || ok && told == value {
			continue
		}
		d.told[name] = value
		d.b.logger.Warn("a dynamic configuration has no effect", "key", name, "reason", why)
	}
}

// limit gives the listeners of clients, if any, their limits. A value that does not
// resolve (a host name in max.connections.per.ip.overrides) leaves the old ones.
func (b *Broker) limit(eff *config.Effective) {
	if b.clients == nil {
		return
	}
	if err := b.clients.SetLimits(limits(eff)); err != nil {
		b.logger.Error("limits of connections stay as they were", "err", err)
	}
	for _, name := range b.clients.Listeners() {
		own := eff.Listener(name)
		if err := b.clients.SetListenerLimits(name, int(own.MaxConnections), int(own.MaxCreationRate)); err != nil {
			b.logger.Error("limits of a listener's connections stay as they were", "listener", name, "err", err)
		}
	}
}

// relisten opens and closes listeners of clients as the configuration now names
// them. As in Kafka a name that stays keeps its address; what the registration tells
// others is not changed by it; and one that cannot be opened (its port is taken, say)
// is told of in the log alone. It is tried again at the next change.
func (b *Broker) relisten(eff *config.Effective) {
	if b.clients == nil {
		return
	}
	now, err := eff.Listening()
	if err != nil {
		b.logger.Error("listeners stay as they were", "err", err)
		return
	}
	want := now.DataListeners()
	have := b.clients.Listeners()
	for _, name := range have {
		if slices.ContainsFunc(want, func(l config.Listener) bool { return l.Name == name }) {
			continue
		}
		if err := b.clients.Remove(name); err != nil {
			b.logger.Error("cannot close a listener", "listener", name, "err", err)
			continue
		}
		b.logger.Info("listener closed", "listener", name)
	}
	for _, l := range want {
		if slices.Contains(have, l.Name) {
			continue
		}
		o, err := listenerOptions(eff, l)
		if err == nil {
			err = b.clients.Add(o)
		}
		if err != nil {
			b.logger.Error("cannot open a listener", "listener", l.String(), "err", err)
			continue
		}
		b.logger.Info("listener opened", "listener", l.Name, "address", b.clients.Addr(l.Name))
	}
}
