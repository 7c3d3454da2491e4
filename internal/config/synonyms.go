package config

import (
	"math"
	"strconv"
)

// synonymsOf returns the broker keys that stand behind a key: Kafka's ServerTopicConfigSynonyms for topics,
// DynamicBrokerConfig.brokerConfigSynonyms for brokers, GroupConfig.brokerSynonym for groups.
func synonymsOf(scope Scope, name string) []string {
	switch scope {
	case ScopeTopic:
		var names []string
		for _, s := range topicSynonyms(name) {
			names = append(names, s.name)
		}
		return names
	case ScopeGroup:
		switch name {
		case "share.auto.offset.reset", "share.isolation.level", "share.renew.acknowledge.enable":
			return nil // these exist only for a group
		}
		return []string{"group." + name}
	case ScopeBroker:
		switch name {
		case "log.retention.ms", "log.retention.minutes", "log.retention.hours":
			return []string{"log.retention.ms", "log.retention.minutes", "log.retention.hours"}
		case "log.roll.ms", "log.roll.hours":
			return []string{"log.roll.ms", "log.roll.hours"}
		case "log.roll.jitter.ms", "log.roll.jitter.hours":
			return []string{"log.roll.jitter.ms", "log.roll.jitter.hours"}
		case "log.flush.interval.ms": // the scheduler's interval itself has no synonym
			return []string{"log.flush.interval.ms", "log.flush.scheduler.interval.ms"}
		}
		return []string{name}
	}
	return nil
}

// synonym is a broker key that supplies a topic key's value, in another unit perhaps.
type synonym struct {
	name string
	unit int64 // the broker's value times unit is the topic's; 0: the same text
}

const (
	minuteMs = 60_000
	hourMs   = 3_600_000
)

func topicSynonyms(name string) []synonym {
	switch name {
	case "retention.ms":
		return []synonym{{"log.retention.ms", 1}, {"log.retention.minutes", minuteMs}, {"log.retention.hours", hourMs}}
	case "segment.ms":
		return []synonym{{"log.roll.ms", 1}, {"log.roll.hours", hourMs}}
	case "segment.jitter.ms":
		return []synonym{{"log.roll.jitter.ms", 1}, {"log.roll.jitter.hours", hourMs}}
	case "flush.ms":
		return []synonym{{"log.flush.interval.ms", 1}, {"log.flush.scheduler.interval.ms", 1}}
	case "segment.bytes", "retention.bytes", "index.interval.bytes", "cleanup.policy", "preallocate",
		"message.timestamp.type", "message.timestamp.before.max.ms", "message.timestamp.after.max.ms",
		"local.retention.ms", "local.retention.bytes":
		return []synonym{{name: "log." + name}}
	case "segment.index.bytes":
		return []synonym{{name: "log.index.size.max.bytes"}}
	case "flush.messages":
		return []synonym{{name: "log.flush.interval.messages"}}
	case "max.message.bytes":
		return []synonym{{name: "message.max.bytes"}}
	case "delete.retention.ms", "min.compaction.lag.ms", "max.compaction.lag.ms":
		return []synonym{{name: "log.cleaner." + name}}
	case "min.cleanable.dirty.ratio":
		return []synonym{{name: "log.cleaner.min.cleanable.ratio"}}
	case "file.delete.delay.ms":
		return []synonym{{name: "log.segment.delete.delay.ms"}}
	case "unclean.leader.election.enable", "min.insync.replicas",
		"compression.type", "compression.gzip.level", "compression.lz4.level", "compression.zstd.level":
		return []synonym{{name: name}}
	}
	return nil
}

// convert turns the broker's value of s into the topic key's. Negative times mean "no limit" in every unit.
func (s synonym) convert(topicKey, value string) string {
	if s.unit == 0 {
		return value
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return value // checked before: only a checked value gets here
	}
	switch {
	case n < 0 && topicKey == "retention.ms":
		n = -1
	case n > math.MaxInt64/s.unit:
		n = math.MaxInt64
	default:
		n *= s.unit
	}
	return strconv.FormatInt(n, 10)
}
