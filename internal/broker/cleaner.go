package broker

import (
	"context"
	"time"

	"weir/internal/checkpoint"
	"weir/internal/loggers"
	"weir/internal/metrics"
	"weir/internal/partition"
	"weir/internal/storage"
	"weir/internal/storage/cleaner"
)

// openCleaner makes the log cleaner. It cleans the logs of replicas: their topics' configurations are known.
func (b *Broker) openCleaner() {
	b.cleaner = cleaner.New(cleaner.Options{
		Clock: b.clock, Logger: b.log(loggers.Storage), Checkpoints: b.dirs,
		Config: func() cleaner.Config { return cleaner.ConfigOf(b.replicas.Effective()) },
		Each: func(visit func(checkpoint.TopicPartition, *storage.Log)) {
			b.replicas.Each(func(r *partition.Replica) {
				visit(checkpoint.TopicPartition{Topic: r.Topic(), Partition: r.ID()}, r.Log())
			})
		},
		Failed: func(_ checkpoint.TopicPartition, _ *storage.Log, err error) { b.dirs.Report(err) },
	})
}

// runCleaner compacts logs until ctx ends.
func (b *Broker) runCleaner(ctx context.Context) error {
	if !b.o.Static.Bool("log.cleaner.enable") {
		b.logger.Warn("log.cleaner.enable is false: compacted topics are not compacted and only grow")
		return nil
	}
	return b.cleaner.Run(ctx)
}

// cleanerMetrics are named as Kafka's LogCleaner and LogCleanerManager.
func (b *Broker) cleanerMetrics(r *metrics.Registry) {
	const manager, runs = "kafka_log_logcleanermanager_", "kafka_log_logcleaner_"
	s := &b.cleaner.Stats
	r.Gauge(manager+"max_dirty_percent", "The largest dirty share of a compacted log.", func() float64 { return 100 * s.MaxDirtyRatio() })
	r.Gauge(manager+"uncleanable_partitions_count", "Logs that the cleaner has given up.", func() float64 { return float64(s.UncleanablePartitions.Load()) })
	r.Gauge(manager+"uncleanable_bytes", "What could be cleaned of those.", func() float64 { return float64(s.UncleanableBytes.Load()) })
	r.Gauge(manager+"time_since_last_run_ms", "Since the cleaner last looked for work.", func() float64 {
		return float64(b.clock.Now().UnixMilli() - s.LastLookMs.Load())
	})
	r.Gauge(runs+"max_compaction_delay_secs", "By how much max.compaction.lag.ms is exceeded.", func() float64 {
		return float64(s.MaxDelayMs.Load()) / 1000
	})
	r.Gauge(runs+"max_clean_time_secs", "How long the last run took.", func() float64 { return s.LastRun().Round(time.Millisecond).Seconds() })
	r.Gauge(runs+"max_buffer_utilization_percent", "Share of the offset map that the last run used.", func() float64 { return 100 * s.BufferUtilization() })
	r.Gauge(runs+"cleaner_recopy_percent", "Bytes written per bytes read in the last run.", func() float64 { return 100 * s.RecopyRatio() })
	r.Counter("weir_log_cleaner_runs_total", "Logs compacted.", func() float64 { return float64(s.Runs.Load()) })
	r.Counter("weir_log_cleaner_failures_total", "Compactions that ended in an error.", func() float64 { return float64(s.Failures.Load()) })
	r.Counter("weir_log_cleaner_read_bytes_total", "Bytes read, offset maps included.", func() float64 {
		return float64(s.BytesRead.Load() + s.IndexBytesRead.Load())
	})
	r.Counter("weir_log_cleaner_written_bytes_total", "Bytes of compacted segments.", func() float64 { return float64(s.BytesWritten.Load()) })
}
