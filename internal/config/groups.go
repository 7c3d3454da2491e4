package config

import "time"

// groupKeys are the broker's keys behind a key of consumer groups: its default, and
// the least and the most that a group may have.
func groupKeys(name string) (def, low, high string) {
	switch name {
	case "consumer.session.timeout.ms":
		return "group.consumer.session.timeout.ms", "group.consumer.min.session.timeout.ms", "group.consumer.max.session.timeout.ms"
	case "consumer.heartbeat.interval.ms":
		return "group.consumer.heartbeat.interval.ms", "group.consumer.min.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms"
	case "consumer.assignment.interval.ms":
		return "group.consumer.assignment.interval.ms", "group.consumer.min.assignment.interval.ms", "group.consumer.max.assignment.interval.ms"
	}
	panic("BUG: no milliseconds of a group: " + name)
}

// GroupMs is the value of a consumer group's key that counts milliseconds: the
// group's own, or else the broker's. What the group was given is kept between the
// broker's minimum and maximum, which may have changed since (GroupConfig.evaluate).
func (e *Effective) GroupMs(name string, overrides map[string]string) time.Duration {
	def, low, high := groupKeys(name)
	k, _ := Lookup(ScopeGroup, name)
	raw, own := overrides[name]
	n := e.Long(def)
	if v, bad := k.parse(raw); own && bad == nil {
		n = min(max(v.n, e.Long(low)), e.Long(high))
	}
	return time.Duration(n) * time.Millisecond
}
