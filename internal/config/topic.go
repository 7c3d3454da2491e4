package config

import "fmt"

// Topic is the configuration of one topic with every value resolved, for the hot paths: fields, no maps. It is
// immutable and shared by all replicas of the topic on a broker.
type Topic struct {
	SegmentBytes       int32 // segment.bytes, or internal.segment.bytes where a test sets it
	SegmentMs          int64
	SegmentJitterMs    int64
	SegmentIndexBytes  int32
	IndexIntervalBytes int32

	RetentionMs       int64 // -1: no limit
	RetentionBytes    int64 // per partition; -1: no limit
	FileDeleteDelayMs int64

	FlushMessages int64 // fsync after this many records; MaxInt64: never
	FlushMs       int64 // fsync when the oldest unflushed record is this old; MaxInt64: never

	CleanupDelete, CleanupCompact bool // both false: the log only grows

	DeleteRetentionMs      int64 // how long compaction keeps tombstones
	MinCompactionLagMs     int64
	MaxCompactionLagMs     int64
	MinCleanableDirtyRatio float64

	MaxMessageBytes int32 // of one batch as stored

	CompressionType                string // producer, uncompressed, gzip, snappy, lz4, zstd
	GzipLevel, Lz4Level, ZstdLevel int    // GzipLevel -1: the codec's default

	TimestampType        string // CreateTime or LogAppendTime
	TimestampBeforeMaxMs int64
	TimestampAfterMaxMs  int64

	MinInsyncReplicas int32
	UncleanElection   bool
}

// newTopic fills a Topic from the value of every topic key.
func newTopic(v map[string]value) *Topic {
	t := &Topic{
		SegmentBytes:           int32(v["segment.bytes"].n),
		SegmentMs:              v["segment.ms"].n,
		SegmentJitterMs:        v["segment.jitter.ms"].n,
		SegmentIndexBytes:      int32(v["segment.index.bytes"].n),
		IndexIntervalBytes:     int32(v["index.interval.bytes"].n),
		RetentionMs:            v["retention.ms"].n,
		RetentionBytes:         v["retention.bytes"].n,
		FileDeleteDelayMs:      v["file.delete.delay.ms"].n,
		FlushMessages:          v["flush.messages"].n,
		FlushMs:                v["flush.ms"].n,
		DeleteRetentionMs:      v["delete.retention.ms"].n,
		MinCompactionLagMs:     v["min.compaction.lag.ms"].n,
		MaxCompactionLagMs:     v["max.compaction.lag.ms"].n,
		MinCleanableDirtyRatio: v["min.cleanable.dirty.ratio"].f,
		MaxMessageBytes:        int32(v["max.message.bytes"].n),
		CompressionType:        v["compression.type"].text,
		GzipLevel:              int(v["compression.gzip.level"].n),
		Lz4Level:               int(v["compression.lz4.level"].n),
		ZstdLevel:              int(v["compression.zstd.level"].n),
		TimestampType:          v["message.timestamp.type"].text,
		TimestampBeforeMaxMs:   v["message.timestamp.before.max.ms"].n,
		TimestampAfterMaxMs:    v["message.timestamp.after.max.ms"].n,
		MinInsyncReplicas:      int32(v["min.insync.replicas"].n),
		UncleanElection:        v["unclean.leader.election.enable"].b,
	}
	for _, p := range v["cleanup.policy"].list {
		t.CleanupDelete = t.CleanupDelete || p == "delete"
		t.CleanupCompact = t.CleanupCompact || p == "compact"
	}
	if s := v["internal.segment.bytes"]; !s.null {
		t.SegmentBytes = int32(s.n)
	}
	return t
}

// ValidateTopic checks a topic's overrides against the built-in defaults of a broker. The error is an *Invalid with
// Kafka's text for the first bad key. (*Effective).ValidateTopic checks against one broker's real configuration.
func ValidateTopic(overrides map[string]string) error {
	return validateTopic(builtIn(), overrides)
}

// ValidateTopic checks a topic's overrides as the controller does before it stores them (LogConfig.validate). The
// error is an *Invalid.
func (e *Effective) ValidateTopic(overrides map[string]string) error {
	return validateTopic(e.resolved, overrides)
}

func validateTopic(r resolved, overrides map[string]string) error {
	v, err := r.topicValues(overrides)
	if err != nil {
		return err
	}
	if low, high := v["min.compaction.lag.ms"].n, v["max.compaction.lag.ms"].n; low > high {
		return &Invalid{Message: fmt.Sprintf("conflict topic config setting min.compaction.lag.ms (%d) > max.compaction.lag.ms (%d)", low, high)}
	}
	if v["remote.storage.enable"].b {
		return &Invalid{Message: "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."}
	}
	return nil
}
