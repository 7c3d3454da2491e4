package config

import (
	"fmt"
	"strconv"
	"strings"
)

// rule is one of KafkaConfig.validateValues' demands on several keys. A nil reason text means that it holds.
type rule struct {
	key   string
	check func(r resolved) (reason string)
	// plain is set where Kafka throws a ConfigException of its own; its text has no "requirement failed" in front.
	plain bool
	// kafka says it in Kafka's words, where check has better ones for the reader of a file.
	kafka func(r resolved) string
}

// limitRules are the cross-key demands that also hold for dynamic changes, with Kafka's texts.
func limitRules() []rule {
	return []rule{
		{key: "log.roll.ms", check: func(r resolved) string {
			return atLeast("log.roll.ms", r.firstTime(r.topicValue("segment.ms")), 1)
		}},
		{key: "log.roll.jitter.ms", check: func(r resolved) string {
			return atLeast("log.roll.jitter.ms", r.firstTime(r.topicValue("segment.jitter.ms")), 0)
		}},
		{key: "log.retention.ms", check: func(r resolved) string {
			if ms := r.firstTime(r.topicValue("retention.ms")); ms < 1 && ms != -1 {
				return "log.retention.ms must be unlimited (-1) or, greater than or equal to 1"
			}
			return ""
		}},
		{key: "log.cleaner.dedupe.buffer.size", check: func(r resolved) string {
			if threads := r.Long("log.cleaner.threads"); threads > 0 && r.Long("log.cleaner.dedupe.buffer.size")/threads <= 1<<20 {
				return "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread."
			}
			return ""
		}},
		{key: "replica.socket.timeout.ms", check: func(r resolved) string {
			if r.Int("replica.fetch.wait.max.ms") > r.Int("replica.socket.timeout.ms") {
				return "replica.socket.timeout.ms should always be at least replica.fetch.wait.max.ms to prevent unnecessary socket timeouts"
			}
			return ""
		}},
		{key: "replica.fetch.wait.max.ms", check: func(r resolved) string {
			if r.Long("replica.fetch.wait.max.ms") > r.Long("replica.lag.time.max.ms") {
				return "replica.fetch.wait.max.ms should always be less than or equal to replica.lag.time.max.ms to prevent frequent changes in ISR"
			}
			return ""
		}},
		{key: "queued.max.request.bytes", check: func(r resolved) string {
			if q := r.Long("queued.max.request.bytes"); q > 0 && q < r.Long("socket.request.max.bytes") {
				return "queued.max.request.bytes must be larger or equal to socket.request.max.bytes"
			}
			return ""
		}},
		{key: "max.connections.per.ip", check: func(r resolved) string {
			if r.Int("max.connections.per.ip") == 0 && r.String("max.connections.per.ip.overrides") == "" {
				return "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides property is set."
			}
			return ""
		}},
		{key: "max.connections.per.ip.overrides", plain: true, check: func(r resolved) string {
			_, f := parseConnectionOverrides(r.String("max.connections.per.ip.overrides"))
			if f != nil {
				return f.reason
			}
			return ""
		}, kafka: func(r resolved) string {
			_, f := parseConnectionOverrides(r.String("max.connections.per.ip.overrides"))
			return f.kafka
		}},
		{key: "group.consumer.heartbeat.interval.ms", plain: true, check: func(r resolved) string { return r.groupLimits() }},
	}
}

// checkLimits applies limitRules to the static values. The error is an *Error at the key that was set.
func (s *Static) checkLimits() error {
	for _, rule := range limitRules() {
		reason := rule.check(s.resolved)
		if reason == "" {
			continue
		}
		key := rule.key
		k, _ := Lookup(ScopeBroker, key)
		for _, syn := range k.Synonyms { // name the key that was written
			if _, ok := s.Raw(syn); ok {
				key = syn
				break
			}
		}
		return s.errorAt(key, reason)
	}
	return nil
}

func atLeast(key string, n, least int64) string {
	if n >= least {
		return ""
	}
	return fmt.Sprintf("%s must be greater than or equal to %d", key, least)
}

func (r resolved) firstTime(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0 // not reached: topicValue of a time key is always a number
	}
	return n
}

// groupLimits checks that each group default lies between its minimum and maximum, as GroupCoordinatorConfig and
// ShareGroupConfig do.
func (r resolved) groupLimits() string {
	for _, kind := range []string{"consumer", "share", "streams"} {
		for _, what := range []string{"session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms"} {
			if reason := r.between("group."+kind+"."+what, "group."+kind+".min."+what, "group."+kind+".max."+what); reason != "" {
				return reason
			}
		}
		if h, s := "group."+kind+".heartbeat.interval.ms", "group."+kind+".session.timeout.ms"; r.Int(h) >= r.Int(s) {
			return h + " must be less than " + s
		}
	}
	for _, what := range []string{"delivery.count.limit", "record.lock.duration.ms", "partition.max.record.locks"} {
		if reason := r.between("group.share."+what, "group.share.min."+what, "group.share.max."+what); reason != "" {
			return reason
		}
	}
	return ""
}

func (r resolved) between(key, low, high string) string {
	switch n := r.Int(key); {
	case r.Int(low) > r.Int(high):
		return high + " must be greater than or equal to " + low
	case n < r.Int(low):
		return key + " must be greater than or equal to " + low
	case n > r.Int(high):
		return key + " must be less than or equal to " + high
	}
	return ""
}

// ConnectionOverrides returns max.connections.per.ip.overrides: the connection limit of each named host or address.
func (r resolved) ConnectionOverrides() map[string]int {
	m, f := parseConnectionOverrides(r.String("max.connections.per.ip.overrides"))
	if f != nil {
		return nil // not reached: checked by limitRules
	}
	return m
}

func parseConnectionOverrides(text string) (map[string]int, *fault) {
	const what = "Error parsing configuration property 'max.connections.per.ip.overrides': "
	m := map[string]int{}
	for _, e := range splitList(text) {
		i := strings.LastIndexByte(e, ':')
		if i < 0 {
			return nil, &fault{
				kafka:  what + fmt.Sprintf("begin 0, end -1, length %d", len(e)),
				reason: what + fmt.Sprintf("%q is not of the form host:count", e),
			}
		}
		n, err := strconv.ParseInt(strings.TrimSpace(e[i+1:]), 10, 32)
		if err != nil || n < 0 {
			return nil, &fault{
				kafka:  fmt.Sprintf("For input string: %q", e[i+1:]),
				reason: what + fmt.Sprintf("the count in %q is not a number from 0", e),
			}
		}
		m[strings.Trim(strings.TrimSpace(e[:i]), "[]")] = int(n)
	}
	return m, nil
}
