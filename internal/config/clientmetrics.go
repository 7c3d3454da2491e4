package config

import (
	"fmt"
	"maps"
	"regexp/syntax"
	"slices"
	"strings"
)

// SourceClientMetrics is DYNAMIC_CLIENT_METRICS_CONFIG.
const SourceClientMetrics int8 = 7

// The bounds of interval.ms, which are no part of the key's definition: Kafka answers INVALID_REQUEST beyond them.
const (
	minPushInterval = 100
	maxPushInterval = 3_600_000
)

// clientSelectors are what match may select clients by (ClientMetricsConfigs.ALLOWED_MATCH_PARAMS).
var clientSelectors = [...]string{
	"client_id", "client_instance_id", "client_software_name", "client_software_version", "client_source_address", "client_source_port",
}

// DescribeClientMetrics returns the rows of a client metrics subscription (KIP-714), ordered by name. A subscription
// that nobody made has the defaults.
func DescribeClientMetrics(overrides map[string]string) []Entry {
	var out []Entry
	for _, k := range Keys(ScopeClientMetrics) {
		entry := Entry{Name: k.Name, Type: int8(k.Type), Doc: k.Doc}
		value := k.Default
		if raw, set := overrides[k.Name]; set {
			value = canonical(k, raw)
			entry.Synonyms = []Synonym{{Name: k.Name, Value: value, Source: SourceClientMetrics}}
		}
		out = append(out, entry.finish(value))
	}
	return append(out, unknownRows(overrides, ScopeClientMetrics, SourceClientMetrics)...)
}

// ValidateClientMetrics checks a client metrics subscription (ClientMetricsConfigs.validate). The error is an *Invalid.
func ValidateClientMetrics(overrides map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(overrides)) {
		if _, ok := Lookup(ScopeClientMetrics, name); !ok {
			return &Invalid{Message: "Unknown client metrics configuration: " + name, Request: true}
		}
	}
	for _, k := range Keys(ScopeClientMetrics) {
		raw, set := overrides[k.Name]
		if !set {
			continue
		}
		v, f := k.parse(raw)
		if f != nil && f.repeated == "" {
			return &Invalid{Message: f.kafka}
		}
		if k.Name == "interval.ms" && (v.n < minPushInterval || v.n > maxPushInterval) {
			return &Invalid{Request: true, Message: fmt.Sprintf("Invalid value %d for interval.ms, interval must be between %d and %d (1 hour)", v.n, minPushInterval, maxPushInterval)}
		}
		if k.Name != "match" {
			continue
		}
		for _, pattern := range v.list {
			if !validSelector(pattern) {
				return &Invalid{Message: "Illegal client matching pattern: " + pattern}
			}
		}
	}
	return nil
}

// validSelector checks one entry of match: what to select by, an equals sign, and a regular expression. Java's
// look-around and back references are refused: Go's matcher, which is to run in linear time, has none.
func validSelector(pattern string) bool {
	parts := strings.Split(strings.TrimRight(pattern, "="), "=") // Java's split drops what is empty at the end
	if len(parts) != 2 || !slices.Contains(clientSelectors[:], strings.TrimSpace(parts[0])) {
		return false
	}
	_, err := syntax.Parse(strings.TrimSpace(parts[1]), syntax.Perl)
	return err == nil
}
