package config

import (
	"maps"
	"slices"
)

// Where a value comes from: the numbers of DescribeConfigs' config_source.
const (
	SourceTopic          int8 = 1 // DYNAMIC_TOPIC_CONFIG
	SourceBroker         int8 = 2 // DYNAMIC_BROKER_CONFIG
	SourceClusterDefault int8 = 3 // DYNAMIC_DEFAULT_BROKER_CONFIG
	SourceStatic         int8 = 4 // STATIC_BROKER_CONFIG
	SourceDefault        int8 = 5 // DEFAULT_CONFIG
	SourceGroup          int8 = 8 // GROUP_CONFIG
)

// Synonym is one place that names a value, the one that counts first.
type Synonym struct {
	Name   string
	Value  *string // nil: hidden
	Source int8
}

// Entry is one row of a DescribeConfigs answer.
type Entry struct {
	Name      string
	Value     *string // nil: null, or hidden
	Source    int8
	Type      int8
	ReadOnly  bool
	Sensitive bool
	IsDefault bool // for v0 of the request, which has no source
	Doc       string
	Synonyms  []Synonym
}

// DescribeTopic returns the rows of a topic, ordered by name, as Kafka's ConfigHelper builds them.
//
// Kafka finds the broker's synonyms of a topic key by the first of them only: a retention.ms that comes from
// log.retention.hours is returned with source DEFAULT_CONFIG and without synonyms. Weir does the same.
func (e *Effective) DescribeTopic(overrides map[string]string) []Entry {
	var out []Entry
	for _, k := range Keys(ScopeTopic) {
		raw, set := overrides[k.Name]
		if k.Internal && !set {
			continue
		}
		entry := Entry{Name: k.Name, Type: int8(k.Type), Doc: k.Doc}
		if set {
			entry.Synonyms = append(entry.Synonyms, Synonym{Name: k.Name, Value: canonical(k, raw), Source: SourceTopic})
		} else {
			raw = e.topicValue(k.Name)
		}
		if len(k.Synonyms) > 0 {
			entry.Synonyms = append(entry.Synonyms, e.brokerSynonyms(k.Synonyms[0])...)
		}
		out = append(out, entry.finish(canonical(k, raw)))
	}
	return append(out, unknownRows(overrides, ScopeTopic, SourceTopic)...)
}

// DescribeGroup returns the rows of a group, ordered by name.
func (e *Effective) DescribeGroup(overrides map[string]string) []Entry {
	var out []Entry
	for _, k := range Keys(ScopeGroup) {
		raw, set := overrides[k.Name]
		entry := Entry{Name: k.Name, Type: int8(k.Type), Doc: k.Doc}
		if set {
			entry.Synonyms = append(entry.Synonyms, Synonym{Name: k.Name, Value: canonical(k, raw), Source: SourceGroup})
		} else {
			raw = e.groupValue(k)
		}
		if len(k.Synonyms) > 0 {
			entry.Synonyms = append(entry.Synonyms, e.brokerSynonyms(k.Synonyms[0])...)
		} else {
			entry.Synonyms = append(entry.Synonyms, Synonym{Name: k.Name, Value: k.Default, Source: SourceDefault})
		}
		out = append(out, entry.finish(canonical(k, raw)))
	}
	return append(out, unknownRows(overrides, ScopeGroup, SourceGroup)...)
}

// DescribeBroker returns the rows of this broker, ordered by name: every key that is not internal, and whatever else
// was set, the values of unknown names hidden.
func (e *Effective) DescribeBroker() []Entry {
	names := map[string]bool{}
	for _, k := range Keys(ScopeBroker) {
		if _, set := e.current[k.Name]; set || !k.Internal && !k.DynamicOnly && !isOwn(k.Name) {
			names[k.Name] = true
		}
	}
	for name := range e.current {
		names[name] = true
	}
	out := make([]Entry, 0, len(names))
	for _, name := range slices.Sorted(maps.Keys(names)) {
		entry, _ := e.Describe(name)
		out = append(out, entry)
	}
	return out
}

// isOwn tells Weir's own keys, which a broker shows only where they are set.
func isOwn(name string) bool { return len(name) > 5 && name[:5] == "weir." }

// DescribeClusterDefault returns the rows of the cluster-wide dynamic defaults: what is set there, nothing else.
func (e *Effective) DescribeClusterDefault() []Entry {
	var out []Entry
	for _, name := range slices.Sorted(maps.Keys(e.clusterDefault)) {
		entry, _ := e.Describe(name)
		raw := e.clusterDefault[name]
		value := &raw
		if k, _, ok := BaseKey(name); ok {
			value = canonical(k, raw)
		}
		entry.Synonyms = slices.DeleteFunc(entry.Synonyms, func(s Synonym) bool { return s.Source != SourceClusterDefault })
		out = append(out, entry.finish(value))
	}
	return out
}

// Describe returns the row of one broker key; false when the name is neither known nor set.
func (e *Effective) Describe(name string) (Entry, bool) {
	raw, set := e.current[name]
	k, listener, known := BaseKey(name)
	if !known {
		entry := Entry{Name: name, ReadOnly: true, Sensitive: true, Synonyms: e.brokerSynonyms(name)}
		return entry.finish(nil), set
	}
	entry := Entry{Name: name, Type: int8(k.Type), Sensitive: k.Sensitive, Doc: k.Doc, Synonyms: e.brokerSynonyms(name)}
	entry.ReadOnly = !k.Dynamic || listener != ""
	if listener != "" {
		return entry.finish(canonical(k, raw)), set
	}
	v := e.values[name]
	if v.null {
		return entry.finish(nil), true
	}
	return entry.finish(&v.text), true
}

// finish sets the value and what follows from it and the synonyms.
func (entry Entry) finish(value *string) Entry {
	entry.Source = SourceDefault
	if len(entry.Synonyms) > 0 {
		entry.Source = entry.Synonyms[0].Source
	}
	entry.IsDefault = entry.Source == SourceDefault
	entry.Value = value
	if entry.Sensitive {
		entry.Value = nil
	}
	return entry
}

// brokerSynonyms lists where a broker key's value stands, most specific first: for each source in order, the key and
// its synonyms. The list begins with the key itself: what stands before belongs to a more specific key.
func (e *Effective) brokerSynonyms(name string) []Synonym {
	k, listener, known := BaseKey(name)
	names := []string{name}
	if known && listener != "" {
		names = []string{name, k.Name}
	} else if known {
		names = k.Synonyms
	}
	hidden := !known || k.Sensitive
	var out []Synonym
	add := func(source int8, lookup func(string) (string, bool)) {
		for _, n := range names {
			if v, ok := lookup(n); ok {
				s := Synonym{Name: n, Value: &v, Source: source}
				if hidden {
					s.Value = nil
				}
				out = append(out, s)
			}
		}
	}
	add(SourceBroker, func(n string) (string, bool) { v, ok := e.perBroker[n]; return v, ok })
	add(SourceClusterDefault, func(n string) (string, bool) { v, ok := e.clusterDefault[n]; return v, ok })
	add(SourceStatic, e.static.Raw)
	add(SourceDefault, func(n string) (string, bool) {
		if k, ok := Lookup(ScopeBroker, n); ok && k.Default != nil && !k.DynamicOnly {
			return *k.Default, true
		}
		return "", false
	})
	for i, s := range out {
		if s.Name == name {
			return out[i:]
		}
	}
	return nil
}

// canonical rewrites a value as Kafka returns it; one that does not parse is returned as stored.
func canonical(k *Key, raw string) *string {
	if v, f := k.parseType(raw); f == nil || f.repeated != "" {
		return &v.text
	}
	return &raw
}

// unknownRows describes overrides that this version does not know: their values are hidden.
func unknownRows(overrides map[string]string, scope Scope, source int8) []Entry {
	var out []Entry
	for _, name := range slices.Sorted(maps.Keys(overrides)) {
		if _, ok := Lookup(scope, name); !ok {
			entry := Entry{Name: name, Sensitive: true, Synonyms: []Synonym{{Name: name, Source: source}}}
			out = append(out, entry.finish(nil))
		}
	}
	return out
}
