package config

import (
	"maps"
	"slices"
)

// Effective is the configuration that counts for one broker now: the static one with the dynamic broker configs over
// it. It is computed anew, and is cheap, when a dynamic broker config changes; it is immutable.
type Effective struct {
	resolved
	static         *Static
	clusterDefault map[string]string
	perBroker      map[string]string
	// current is what counts as written: the static settings that no dynamic one replaces, and the dynamic ones.
	current map[string]string
	ignored []Warning
}

// NewEffective puts the cluster-wide dynamic defaults and this broker's dynamic configs over the static ones. The maps
// are copied. Dynamic values that are not valid (stored by another version, say) are left out, see Ignored.
func NewEffective(static *Static, clusterDefault, perBroker map[string]string) *Effective {
	e := &Effective{static: static, current: make(map[string]string, len(static.settings))}
	e.clusterDefault = e.usable(clusterDefault, false)
	e.perBroker = e.usable(perBroker, true)
	for name, set := range static.settings {
		e.current[name] = set.value
	}
	e.overlay(e.clusterDefault)
	e.overlay(e.perBroker)
	e.resolved = resolve(func(key string) (string, bool) {
		v, ok := e.current[key]
		return v, ok
	})
	return e
}

// overlay sets dynamic values; a dynamic log.retention.ms also takes the effect of a static log.retention.hours away.
func (e *Effective) overlay(dynamic map[string]string) {
	for name, v := range dynamic {
		if k, ok := Lookup(ScopeBroker, name); ok {
			for _, s := range k.Synonyms {
				delete(e.current, s)
			}
		}
		e.current[name] = v
	}
}

func (e *Effective) usable(dynamic map[string]string, perBroker bool) map[string]string {
	kept := maps.Clone(dynamic)
	for _, name := range slices.Sorted(maps.Keys(dynamic)) {
		if err := ValidateBroker(map[string]string{name: dynamic[name]}, perBroker); err != nil {
			e.ignored = append(e.ignored, Warning{Key: name, Message: "dynamic broker config ignored: " + err.Error()})
			delete(kept, name)
		}
	}
	return kept
}

// Ignored returns the dynamic values that were left out because they are not valid.
func (e *Effective) Ignored() []Warning { return e.ignored }

// Value returns the effective value of a broker key, rewritten as Kafka returns it; false when it is null or unknown.
func (e *Effective) Value(key string) (string, bool) {
	v, ok := e.values[key]
	if !ok || v.null {
		return "", false
	}
	return v.text, true
}

// topicValue returns what the broker's configuration says about a topic key: the value of its first synonym that has
// one, in the topic key's unit; the key's own default when there is no synonym. "" with a list means the empty list.
func (r resolved) topicValue(key string) string {
	for _, s := range topicSynonyms(key) {
		if v := r.values[s.name]; !v.null {
			return s.convert(key, v.text)
		}
	}
	k, ok := Lookup(ScopeTopic, key)
	if !ok || k.Default == nil {
		return ""
	}
	return *k.Default
}

// Topic resolves the configuration of one topic: its overrides over the broker's. It is meant to be computed once per
// change of the topic, not per request. An override that is unknown or not valid is an *Invalid.
func (e *Effective) Topic(overrides map[string]string) (*Topic, error) {
	values, err := e.topicValues(overrides)
	if err != nil {
		return nil, err
	}
	return newTopic(values), nil
}

// topicValues parses every topic key, from the overrides or else from the broker.
func (r resolved) topicValues(overrides map[string]string) (map[string]value, error) {
	if err := unknownNames(ScopeTopic, overrides); err != nil {
		return nil, err
	}
	keys := Keys(ScopeTopic)
	values := make(map[string]value, len(keys))
	for _, k := range keys {
		raw, set := overrides[k.Name]
		if !set {
			if raw = r.topicValue(k.Name); raw == "" && k.Default == nil {
				values[k.Name] = nullValue()
				continue
			}
		}
		v, f := k.parse(raw)
		if f != nil && f.repeated == "" {
			return nil, &Invalid{Message: f.kafka}
		}
		values[k.Name] = v
	}
	return values, nil
}
