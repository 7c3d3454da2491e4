package config

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

func load(t *testing.T, file string) *Static {
	t.Helper()
	text, err := os.ReadFile("testdata/describe/" + file)
	if err != nil {
		t.Fatal(err)
	}
	s, _, err := Load(file, text, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The dynamic configs that the node of testdata/describe/dynamic-*.txt had.
func dynamicNode(t *testing.T) *Effective {
	return NewEffective(load(t, "dynamic.properties"), map[string]string{
		"message.max.bytes": "2000000", "log.retention.ms": "5000000", "max.connections": "7", "min.insync.replicas": "1",
		"no.such.key": "7", "weird.metrics.listener": "7", "leader.replication.throttled.rate": "7",
	}, map[string]string{
		"log.segment.bytes": "20000000", "message.max.bytes": "3000000", "log.retention.ms": "6000000", "max.connections": "7",
		"no.such.key": "7", "weird.metrics.listener": "7", "leader.replication.throttled.rate": "7",
		"listener.name.plaintext.ssl.keystore.password": "7", "log.cleanup.policy": "delete,delete",
	})
}

// DescribeConfigs rows equal those of Apache Kafka: values, sources, types, flags, and synonyms in order (K32).
func TestDescribeAsKafka(t *testing.T) {
	dynamic, static := dynamicNode(t), NewEffective(load(t, "static.properties"), map[string]string{"min.insync.replicas": "1"}, nil)
	topic := map[string]string{
		"cleanup.policy": "", "retention.ms": "1234567", "min.insync.replicas": "1", "local.retention.ms": "99999999999",
		"internal.segment.bytes": "100000",
	}
	group := map[string]string{"consumer.session.timeout.ms": "46000", "consumer.heartbeat.interval.ms": "15000"}
	for _, c := range []struct {
		file     string
		entries  []Entry
		complete bool // the file lists all rows
	}{
		{"dynamic-broker.txt", dynamic.DescribeBroker(), true},
		{"dynamic-cluster.txt", dynamic.DescribeClusterDefault(), true},
		{"dynamic-topic.txt", dynamic.DescribeTopic(topic), true},
		{"dynamic-group.txt", dynamic.DescribeGroup(group), true},
		{"static-broker.txt", static.DescribeBroker(), false},
		{"static-topic.txt", static.DescribeTopic(nil), true},
	} {
		t.Run(c.file, func(t *testing.T) { compareEntries(t, c.file, c.entries, c.complete) })
	}
}

func compareEntries(t *testing.T, file string, entries []Entry, complete bool) {
	text, err := os.ReadFile("testdata/describe/" + file)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for _, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
		name, _, _ := strings.Cut(line, "\t")
		want[name] = line
	}
	seen := map[string]bool{}
	last := ""
	for _, e := range entries {
		if e.Name <= last {
			t.Errorf("%s after %s: not in order, or twice", e.Name, last)
		}
		last = e.Name
		seen[e.Name] = true
		w, ok := want[e.Name]
		switch {
		case !ok && complete:
			t.Errorf("%s: Kafka has no such row", e.Name)
		case ok && entryLine(e) != w:
			t.Errorf("%s:\n have  %s\n Kafka %s", e.Name, entryLine(e), w)
		}
	}
	for name := range want {
		if !seen[name] {
			t.Errorf("%s: row missing", name)
		}
	}
}

func entryLine(e Entry) string {
	show := func(s *string) string {
		if s == nil {
			return "<null>"
		}
		return *s
	}
	var syn []string
	for _, s := range e.Synonyms {
		syn = append(syn, fmt.Sprintf("%s=%s@%d", s.Name, show(s.Value), s.Source))
	}
	// The default flag is only on the wire in v0, which the node that was asked no longer serves.
	return fmt.Sprintf("%s\t%s\tsource=%d type=%d readonly=%v sensitive=%v default=false\t%s",
		e.Name, show(e.Value), e.Source, e.Type, e.ReadOnly, e.Sensitive, strings.Join(syn, " ; "))
}

func TestTopicView(t *testing.T) {
	e := dynamicNode(t)
	got, err := e.Topic(map[string]string{"retention.ms": "-1", "cleanup.policy": "compact,delete"})
	if err != nil {
		t.Fatal(err)
	}
	if got.RetentionMs != -1 || !got.CleanupCompact || !got.CleanupDelete || got.SegmentBytes != 20000000 ||
		got.MaxMessageBytes != 3000000 || got.SegmentMs != 3600000 || got.FlushMs != 1000 || got.FlushMessages != 100000 ||
		got.CompressionType != "lz4" || got.MinCleanableDirtyRatio != 0.5 || got.FileDeleteDelayMs != 60000 {
		t.Errorf("topic: %+v", got)
	}
	s := NewEffective(load(t, "static.properties"), nil, nil)
	got, err = s.Topic(nil)
	if err != nil {
		t.Fatal(err)
	}
	if got.RetentionMs != 3600000 || got.SegmentMs != 24*3600000 || got.SegmentJitterMs != 3600000 || got.FlushMs != 5000 {
		t.Errorf("minutes and hours: %+v", got)
	}
}

// A static retention in hours no longer counts once log.retention.ms is set while running.
func TestOverlayReplacesSynonyms(t *testing.T) {
	e := dynamicNode(t)
	if v, _ := e.Value("log.retention.hours"); v != "168" {
		t.Errorf("log.retention.hours is %s, Kafka returns the default 168", v)
	}
	if len(e.Ignored()) != 0 {
		t.Errorf("ignored: %v", e.Ignored())
	}
	e = NewEffective(e.static, map[string]string{"log.retention.ms": "abc", "num.partitions": "9"}, nil)
	if v, _ := e.Value("log.retention.hours"); v != "72" || len(e.Ignored()) != 2 || e.Int("num.partitions") != 3 {
		t.Errorf("hours %s, ignored %v", v, e.Ignored())
	}
}

// The texts are those that a node of Apache Kafka 4.3.1 answered.
func TestDynamicValidation(t *testing.T) {
	e := NewEffective(load(t, "static.properties"), nil, nil)
	topic := func(kv map[string]string) error { return e.ValidateTopic(kv) }
	group := func(kv map[string]string) error { return e.ValidateGroup(kv) }
	broker := func(kv map[string]string) error { return e.ValidateOwn(kv, true) }
	cluster := func(kv map[string]string) error { return e.ValidateOwn(kv, false) }
	// The node whose log.dirs are elsewhere, and whose threads and listeners are others, sees less.
	foreign := func(kv map[string]string) error { return e.ValidateBroker(kv, true) }
	for _, c := range []struct {
		check func(map[string]string) error
		set   string
		want  string
	}{
		{topic, "retention.ms=abc", "Invalid value abc for configuration retention.ms: Not a number of type LONG"},
		{topic, "segment.bytes=5", "Invalid value 5 for configuration segment.bytes: Value must be at least 1048576"},
		{topic, "no.such=5", "Unknown topic config name: no.such"},
		{topic, "message.format.version=3.0", "Unknown topic config name: message.format.version"},
		{topic, "cleanup.policy=foo", "Invalid value foo for configuration cleanup.policy: String must be one of: compact, delete"},
		{topic, "cleanup.policy=", ""},
		{topic, "retention.ms=0", ""},
		{topic, "min.compaction.lag.ms=10 max.compaction.lag.ms=5", "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)"},
		{topic, "remote.storage.enable=true", "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."},
		{topic, "follower.replication.throttled.replicas=a:b", "Invalid value [a:b] for configuration follower.replication.throttled.replicas: follower.replication.throttled.replicas must be the literal '*' or a list of replicas in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],..."},
		{topic, "preallocate=yes", "Invalid value yes for configuration preallocate: Expected value to be either true or false"},
		{group, "no.such=5", "Unknown group config name: no.such"},
		{group, "consumer.session.timeout.ms=5", "consumer.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms"},
		{group, "consumer.session.timeout.ms=100000", "consumer.session.timeout.ms must be less than or equal to group.consumer.max.session.timeout.ms"},
		{group, "consumer.session.timeout.ms=abc", "Invalid value abc for configuration consumer.session.timeout.ms: Not a number of type INT"},
		{group, "consumer.heartbeat.interval.ms=15000 consumer.session.timeout.ms=46000", ""},
		{group, "share.record.lock.duration.ms=500000000", "share.record.lock.duration.ms must be less than or equal to group.share.max.record.lock.duration.ms"},
		{group, "streams.num.standby.replicas=50", "streams.num.standby.replicas must be less than or equal to group.streams.max.standby.replicas"},
		{group, "share.delivery.count.limit=11", "share.delivery.count.limit must be less than or equal to group.share.max.delivery.count.limit"},
		{group, "consumer.assignment.interval.ms=99999", "consumer.assignment.interval.ms must be less than or equal to group.consumer.max.assignment.interval.ms"},
		{broker, "num.partitions=7", "Cannot update these configs dynamically: [num.partitions]"},
		{cluster, "num.partitions=7", "Cannot update these configs dynamically: [num.partitions]"},
		{cluster, "listeners=7", "Cannot update these configs at default cluster level, broker id must be specified: [listeners]"},
		{broker, "ssl.keystore.password=7", "These security configs can be dynamically updated only per-listener using the listener prefix: [ssl.keystore.password]"},
		{cluster, "listener.name.plaintext.ssl.keystore.password=7", "Cannot update these configs at default cluster level, broker id must be specified: [listener.name.plaintext.ssl.keystore.password]"},
		{broker, "listener.name.plaintext.ssl.keystore.password=7", ""},
		{broker, "no.such.key=7", ""},
		{cluster, "log.segment.bytes=abc", "Invalid value abc for configuration log.segment.bytes: Not a number of type INT"},
		{broker, "log.segment.bytes=1", "Invalid value 1 for configuration log.segment.bytes: Value must be at least 1048576"},
		{broker, "log.retention.ms=0", "requirement failed: log.retention.ms must be unlimited (-1) or, greater than or equal to 1"},
		{broker, "log.roll.jitter.ms=-1", "requirement failed: log.roll.jitter.ms must be greater than or equal to 0"},
		{broker, "num.io.threads=100", "Invalid value org.apache.kafka.common.config.ConfigException: Dynamic thread count update validation failed for num.io.threads=100, value should not be greater than double the current value 8 for configuration Invalid dynamic configuration"},
		{foreign, "num.io.threads=100", ""},
		{broker, "log.cleaner.threads=3", "Invalid value org.apache.kafka.common.config.ConfigException: Log cleaner threads cannot be increased to more than double the current value 1 for configuration Invalid dynamic configuration"},
		{broker, "log.cleaner.threads=0", "Invalid value org.apache.kafka.common.config.ConfigException: Log cleaner threads should be at least 1 for configuration Invalid dynamic configuration"},
		{broker, "log.cleaner.threads=2", ""},
		{foreign, "log.cleaner.threads=3", ""},
		{broker, "cordoned.log.dirs=/data/1", ""},
		{broker, "cordoned.log.dirs=*", ""},
		{broker, "cordoned.log.dirs=/data/1,*", "requirement failed: When cordoned.log.dirs is set to *, it must not contain other values"},
		{broker, "cordoned.log.dirs=/data/1,/a,/b", "requirement failed: All entries in cordoned.log.dirs must be present in log.dirs or log.dir. Missing entries : /a, /b"},
		{foreign, "cordoned.log.dirs=/a", ""},
		{broker, "listener.name.plaintext.max.connections=0", "Invalid value org.apache.kafka.common.config.ConfigException: Invalid max.connections 0 for configuration Invalid dynamic configuration"},
		{broker, "max.connection.creation.rate=0", "Invalid value org.apache.kafka.common.config.ConfigException: Invalid max.connection.creation.rate 0 for configuration Invalid dynamic configuration"},
		{broker, "listener.name.nowhere.max.connections=0", ""},
		{foreign, "listener.name.plaintext.max.connections=0", ""},
		{broker, "max.connections.per.ip.overrides=nonsense", "Error parsing configuration property 'max.connections.per.ip.overrides': begin 0, end -1, length 8"},
		{broker, "max.connections.per.ip.overrides=a:b", `For input string: "b"`},
		{broker, "group.consumer.assignment.interval.ms=100000", "group.consumer.assignment.interval.ms must be less than or equal to group.consumer.max.assignment.interval.ms"},
		{broker, "num.io.threads=16", ""},
		{broker, "leader.replication.throttled.rate=7", ""},
	} {
		set := map[string]string{}
		for kv := range strings.FieldsSeq(c.set) {
			k, v, _ := strings.Cut(kv, "=")
			set[k] = v
		}
		got := ""
		if err := c.check(set); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s:\n have  %q\n Kafka %q", c.set, got, c.want)
		}
	}
}

// The package function checks against the built-in defaults alone.
func TestValidateTopicAlone(t *testing.T) {
	if err := ValidateTopic(map[string]string{"retention.ms": "5"}); err != nil {
		t.Error(err)
	}
	if err := ValidateTopic(map[string]string{"max.message.bytes": "-1"}); err == nil ||
		err.Error() != "Invalid value -1 for configuration max.message.bytes: Value must be at least 0" {
		t.Error(err)
	}
}

// Names that this version does not know are shown without their value, as Kafka does.
func TestDescribeUnknown(t *testing.T) {
	rows := NewEffective(load(t, "static.properties"), nil, nil).DescribeTopic(map[string]string{"later.key": "x"})
	last := rows[len(rows)-1]
	if last.Name != "later.key" || last.Value != nil || !last.Sensitive || last.Source != SourceTopic {
		t.Errorf("%+v", last)
	}
}

func BenchmarkTopic(b *testing.B) {
	s, _, err := Load("b", []byte("node.id=1"), nil)
	if err != nil {
		b.Fatal(err)
	}
	e := NewEffective(s, nil, nil)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := e.Topic(map[string]string{"retention.ms": "1"}); err != nil {
			b.Fatal(err)
		}
	}
}

// A listener has the limits of the broker until it has its own.
func TestListenerLimits(t *testing.T) {
	s := load(t, "static.properties")
	e := NewEffective(s, map[string]string{"max.connections": "100", "listener.name.plaintext.max.connection.creation.rate": "7"},
		map[string]string{"listener.name.plaintext.max.connections": "50"})
	if got, want := e.Listener("PLAINTEXT"), (ListenerLimits{50, 7}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got, want := e.Listener("OTHER"), (ListenerLimits{100, 2147483647}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
