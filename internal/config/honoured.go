package config

import (
	"slices"
	"strings"
)

type scopedName struct {
	scope Scope
	name  string
}

// honouredBroker lists the server.properties keys that Weir acts on, separated by white space. Whoever makes Weir act
// on another key adds it here; a key that is set but stands in neither list is answered with a warning at start.
const honouredBroker = `
node.id broker.id process.roles broker.rack
listeners advertised.listeners listener.security.protocol.map inter.broker.listener.name security.inter.broker.protocol
controller.listener.names controller.quorum.voters controller.quorum.bootstrap.servers
controller.quorum.election.timeout.ms controller.quorum.election.backoff.max.ms controller.quorum.fetch.timeout.ms
controller.quorum.retry.backoff.ms controller.quorum.fetch.max.bytes controller.quorum.request.timeout.ms
controller.quorum.auto.join.enable
broker.heartbeat.interval.ms broker.session.timeout.ms controlled.shutdown.enable
auto.leader.rebalance.enable leader.imbalance.check.interval.seconds
log.dir log.dirs metadata.log.dir
metadata.log.max.record.bytes.between.snapshots metadata.log.max.snapshot.interval.ms
metadata.log.segment.bytes metadata.log.segment.ms internal.metadata.log.segment.bytes
metadata.max.idle.interval.ms metadata.max.retention.bytes metadata.max.retention.ms
num.partitions default.replication.factor auto.create.topics.enable delete.topic.enable
log.cleanup.policy log.segment.bytes log.roll.ms log.roll.hours log.roll.jitter.ms log.roll.jitter.hours
log.retention.ms log.retention.minutes log.retention.hours log.retention.bytes log.retention.check.interval.ms
log.index.interval.bytes log.index.size.max.bytes log.initial.task.delay.ms
log.flush.interval.messages log.flush.interval.ms
log.flush.offset.checkpoint.interval.ms log.flush.start.offset.checkpoint.interval.ms
log.message.timestamp.type log.message.timestamp.before.max.ms log.message.timestamp.after.max.ms
log.cleaner.enable log.cleaner.threads log.cleaner.dedupe.buffer.size log.cleaner.io.buffer.load.factor
log.cleaner.io.buffer.size log.cleaner.io.max.bytes.per.second log.cleaner.backoff.ms
log.cleaner.min.cleanable.ratio log.cleaner.delete.retention.ms
log.cleaner.min.compaction.lag.ms log.cleaner.max.compaction.lag.ms
log.segment.delete.delay.ms
message.max.bytes min.insync.replicas
compression.type compression.gzip.level compression.lz4.level compression.zstd.level
unclean.leader.election.enable unclean.leader.election.interval.ms
num.recovery.threads.per.data.dir
socket.request.max.bytes socket.receive.buffer.bytes socket.send.buffer.bytes
queued.max.request.bytes max.connections max.connections.per.ip max.connections.per.ip.overrides
max.connection.creation.rate connections.max.idle.ms cordoned.log.dirs
fetch.max.bytes max.incremental.fetch.session.cache.slots max.request.partition.size.limit
producer.id.expiration.ms producer.id.expiration.check.interval.ms
replica.lag.time.max.ms replica.high.watermark.checkpoint.interval.ms
replica.fetch.wait.max.ms replica.fetch.min.bytes replica.fetch.max.bytes replica.fetch.response.max.bytes
leader.replication.throttled.rate follower.replication.throttled.rate replication.quota.window.num replication.quota.window.size.seconds
replica.selector.class replica.fetch.backoff.ms replica.socket.timeout.ms num.replica.fetchers
unstable.feature.versions.enable
group.initial.rebalance.delay.ms group.max.size group.min.session.timeout.ms group.max.session.timeout.ms
group.coordinator.rebalance.protocols group.consumer.max.size group.consumer.assignors group.consumer.migration.policy
group.consumer.session.timeout.ms group.consumer.min.session.timeout.ms group.consumer.max.session.timeout.ms
group.consumer.heartbeat.interval.ms group.consumer.min.heartbeat.interval.ms group.consumer.max.heartbeat.interval.ms
group.consumer.assignment.interval.ms group.consumer.min.assignment.interval.ms group.consumer.max.assignment.interval.ms
group.consumer.regex.refresh.interval.ms
offsets.retention.minutes offsets.retention.check.interval.ms offset.metadata.max.bytes offsets.commit.timeout.ms
offsets.load.buffer.size offsets.topic.compression.codec offsets.topic.num.partitions
transaction.max.timeout.ms transactional.id.expiration.ms transaction.abort.timed.out.transaction.cleanup.interval.ms
transaction.remove.expired.transaction.cleanup.interval.ms transaction.state.log.load.buffer.size transaction.state.log.min.isr
transaction.state.log.num.partitions transaction.state.log.segment.bytes transaction.partition.verification.enable
add.partitions.to.txn.retry.backoff.ms add.partitions.to.txn.retry.backoff.max.ms request.timeout.ms
offsets.topic.replication.factor transaction.state.log.replication.factor share.coordinator.state.topic.replication.factor offsets.topic.segment.bytes
weir.internal.topics.auto.raise weir.metrics.listener
`

// honouredTopic lists the topic keys that Weir acts on.
const honouredTopic = `
cleanup.policy segment.bytes segment.ms segment.jitter.ms retention.ms retention.bytes
index.interval.bytes segment.index.bytes internal.segment.bytes
flush.messages flush.ms file.delete.delay.ms max.message.bytes min.insync.replicas
compression.type compression.gzip.level compression.lz4.level compression.zstd.level
message.timestamp.type message.timestamp.before.max.ms message.timestamp.after.max.ms
unclean.leader.election.enable
leader.replication.throttled.replicas follower.replication.throttled.replicas
min.cleanable.dirty.ratio delete.retention.ms min.compaction.lag.ms max.compaction.lag.ms
`

// honouredListener lists the keys that Weir acts on behind listener.name.NAME.
const honouredListener = "max.connections max.connection.creation.rate"

// atStartOnly lists the honoured keys that Kafka changes while it runs and Weir reads at start only.
const atStartOnly = `
num.recovery.threads.per.data.dir
`

// NotTaken says why a change of a broker key takes no effect while the node runs; "" when it does, or when the key
// is unknown. It is for the log: the value is stored and described all the same, as in Kafka.
func NotTaken(name string) string {
	k, listener, ok := BaseKey(name)
	switch {
	case !ok:
		return ""
	case listener != "" && honouredForListener(k):
		return ""
	case listener != "":
		return "Weir does not honour this setting of a single listener yet"
	case k.ByDesign != "":
		return k.ByDesign
	case !k.Honoured:
		return "Weir does not honour this key yet"
	case slices.Contains(strings.Fields(atStartOnly), name):
		return "it is read at start only, from the configuration file"
	}
	return ""
}

// honouredForListener tells whether Weir acts on the key when it is set for a single listener.
func honouredForListener(k *Key) bool {
	return slices.Contains(strings.Fields(honouredListener), k.Name)
}

func honouredKeys() map[scopedName]bool {
	m := map[scopedName]bool{}
	for _, name := range strings.Fields(honouredBroker) {
		m[scopedName{ScopeBroker, name}] = true
	}
	for _, name := range strings.Fields(honouredTopic) {
		m[scopedName{ScopeTopic, name}] = true
	}
	return m
}

// noEffectKeys lists the broker keys, and topic keys of other names, that are accepted and have nothing to act on, each
// with the reason. They are no reason for a warning.
func noEffectKeys() map[string]string {
	const (
		threads   = "work runs on goroutines, not on thread pools of a set size"
		purgatory = "waiting requests are woken one by one, there is no purgatory to purge"
		jvm       = "it configures classes of the JVM"
		// Zeros ahead of the records would only have to be told from them after a crash.
		preallocate = "segments grow as they are written"
	)
	return map[string]string{
		"num.network.threads":                  threads,
		"num.io.threads":                       threads,
		"background.threads":                   threads,
		"num.replica.alter.log.dirs.threads":   threads,
		"group.coordinator.threads":            threads,
		"group.coordinator.background.threads": threads,
		"share.coordinator.threads":            threads,
		"queued.max.requests":                  "requests wait in their connections; queued.max.request.bytes bounds their memory",

		"fetch.purgatory.purge.interval.requests":          purgatory,
		"producer.purgatory.purge.interval.requests":       purgatory,
		"delete.records.purgatory.purge.interval.requests": purgatory,
		"share.fetch.purgatory.purge.interval.requests":    purgatory,

		"log.preallocate":                 preallocate,
		"preallocate":                     preallocate,
		"log.flush.scheduler.interval.ms": "each log is asked twice a second whether flush.ms has passed",
		"socket.listen.backlog.size":      "the backlog is as long as the kernel allows: set net.core.somaxconn",

		"metric.reporters":                    jvm,
		"kafka.metrics.reporters":             jvm,
		"kafka.metrics.polling.interval.secs": jvm,
		"security.providers":                  jvm,
		"metrics.num.samples":                 "rates are computed by the metrics system that scrapes the node",
		"metrics.sample.window.ms":            "rates are computed by the metrics system that scrapes the node",
		"metrics.recording.level":             "every metric is cheap enough to be always on",

		"controller.performance.sample.period.ms":        "the metrics tell how long controller events take",
		"controller.performance.always.log.threshold.ms": "the metrics tell how long controller events take",
	}
}
