package wire

import (
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func configCases() []testCase {
	return []testCase{
		{name: "K31-alter-configs", run: alterConfigsCase},
		{name: "alter-configs-errors", run: alterConfigsErrors},
		{name: "alter-configs-twice", run: alterResourceTwice, weirOnly: "Kafka 4.3.1 never answers this request"},
		{name: "incremental-errors", run: incrementalErrors},
		{name: "incremental-unknown-operation", run: incrementalUnknownOperation, differs: "Kafka answers UNKNOWN_SERVER_ERROR, which tells the client nothing"},
		{name: "K32-describe-topic", run: describeTopicConfigs},
		{name: "K32-describe-broker", run: describeBrokerConfigs},
		{name: "describe-configs-errors", run: describeConfigsErrors},
		{name: "loggers", run: loggerLevels},
	}
}

func describeConfigs(kind kmsg.ConfigResourceType, name string, keys ...string) *kmsg.DescribeConfigsRequest {
	req := kmsg.NewPtrDescribeConfigsRequest()
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName, r.ConfigNames = kind, name, keys
	req.Resources = append(req.Resources, r)
	return req
}

func alterConfigs(kind kmsg.ConfigResourceType, name string, kvs ...string) *kmsg.AlterConfigsRequest {
	req := kmsg.NewPtrAlterConfigsRequest()
	r := kmsg.NewAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kind, name
	for i := 0; i+1 < len(kvs); i += 2 {
		c := kmsg.NewAlterConfigsRequestResourceConfig()
		c.Name, c.Value = kvs[i], &kvs[i+1]
		r.Configs = append(r.Configs, c)
	}
	req.Resources = append(req.Resources, r)
	return req
}

// change is one operation of an IncrementalAlterConfigs.
type change struct {
	key string
	op  int8 // 0 set, 1 delete, 2 append, 3 subtract
	to  string
}

func incremental(kind kmsg.ConfigResourceType, name string, changes ...change) *kmsg.IncrementalAlterConfigsRequest {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kind, name
	for _, c := range changes {
		x := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		x.Name, x.Op = c.key, kmsg.IncrementalAlterConfigOp(c.op)
		if c.op != 1 {
			x.Value = &c.to
		}
		r.Configs = append(r.Configs, x)
	}
	req.Resources = append(req.Resources, r)
	return req
}

// ours shows the values of a topic that are not defaults.
func (s *session) ours(what, topic string) {
	s.Helper()
	shown := func() string {
		res := s.ask(describeConfigs(kmsg.ConfigResourceTypeTopic, topic), 4).(*kmsg.DescribeConfigsResponse)
		var out []string
		for _, c := range res.Resources[0].Configs {
			if c.Source == kmsg.ConfigSourceDynamicTopicConfig {
				out = append(out, c.Name+"="+str(c.Value))
			}
		}
		slices.Sort(out)
		return strings.Join(out, " ")
	}
	s.settle()
	s.note("%s: %s", what, shown())
}

// settle waits until the broker has applied what the controller has decided: a
// topic that is created afterwards comes later in the metadata log.
func (s *session) settle() {
	s.Helper()
	s.names.used["settle"]++
	s.create(s.topic("settle-"+string(rune('a'+s.names.used["settle"]))), 1)
}

func alterConfigsCase(s *session) {
	t := s.topic("t")
	s.create(t, 1)
	const topic = kmsg.ConfigResourceTypeTopic
	for v := int16(0); v <= 2; v++ {
		s.do("three keys", alterConfigs(topic, t, "retention.ms", "1000", "max.message.bytes", "5000", "cleanup.policy", "compact"), v)
		s.ours("after it", t)
		s.do("two of them", alterConfigs(topic, t, "retention.ms", "2000", "max.message.bytes", "5000"), v)
		s.ours("the third is gone", t)
		only := alterConfigs(topic, t, "retention.ms", "7")
		only.ValidateOnly = true
		s.do("validate only", only, v)
		s.ours("no change", t)
	}
	for v := int16(0); v <= 1; v++ {
		s.do("set to the default", incremental(topic, t, change{"retention.bytes", 0, "-1"}), v)
		s.ours("it is ours all the same", t)
		s.do("append to a list", incremental(topic, t, change{"cleanup.policy", 2, "compact"}), v)
		s.ours("after it", t)
		s.do("append it again", incremental(topic, t, change{"cleanup.policy", 2, "compact"}), v)
		s.do("subtract", incremental(topic, t, change{"cleanup.policy", 3, "delete"}), v)
		s.ours("after it", t)
		s.do("subtract what is not there", incremental(topic, t, change{"cleanup.policy", 3, "delete"}), v)
		s.do("append to what is no list", incremental(topic, t, change{"retention.ms", 2, "5"}), v)
		s.do("a key twice", incremental(topic, t, change{"retention.ms", 0, "5"}, change{"retention.ms", 1, ""}), v)
		only := incremental(topic, t, change{"retention.ms", 0, "7"})
		only.ValidateOnly = true
		s.do("validate only", only, v)
		s.do("delete", incremental(topic, t, change{"cleanup.policy", 1, ""}, change{"retention.bytes", 1, ""}, change{"segment.ms", 1, ""}), v)
		s.ours("after it", t)
	}
}

func alterConfigsErrors(s *session) {
	t := s.topic("t")
	s.create(t, 1)
	for v := int16(0); v <= 2; v++ {
		s.do("unknown topic", alterConfigs(kmsg.ConfigResourceTypeTopic, "no-such-topic", "retention.ms", "1"), v)
		s.do("bad value", alterConfigs(kmsg.ConfigResourceTypeTopic, t, "retention.ms", "x"), v)
		s.do("unknown key", alterConfigs(kmsg.ConfigResourceTypeTopic, t, "no.such.key", "x"), v)
		s.do("empty name", alterConfigs(kmsg.ConfigResourceTypeTopic, "", "retention.ms", "1"), v)
		s.do("bad name", alterConfigs(kmsg.ConfigResourceTypeTopic, "bad name!", "retention.ms", "1"), v)
		s.do("unknown broker", alterConfigs(kmsg.ConfigResourceTypeBroker, "99", "log.retention.ms", "1"), v)
		s.do("not a broker id", alterConfigs(kmsg.ConfigResourceTypeBroker, "x", "log.retention.ms", "1"), v)
		s.do("a broker's key that needs a restart", alterConfigs(kmsg.ConfigResourceTypeBroker, "1", "broker.id", "5"), v)
		s.do("unknown resource type", alterConfigs(5, "x", "a", "1"), v)
		null := alterConfigs(kmsg.ConfigResourceTypeTopic, t, "retention.ms", "1")
		null.Resources[0].Configs[0].Value = nil
		s.do("null", null, v)
		s.do("nothing", kmsg.NewPtrAlterConfigsRequest(), v)
	}
}

func alterResourceTwice(s *session) {
	t := s.topic("t")
	s.create(t, 1)
	for v := int16(0); v <= 2; v++ {
		twice := alterConfigs(kmsg.ConfigResourceTypeTopic, t, "retention.ms", "1")
		twice.Resources = append(twice.Resources, twice.Resources[0])
		s.do("a resource twice", twice, v)
	}
}

func incrementalErrors(s *session) {
	t := s.topic("t")
	s.create(t, 1)
	const topic, broker = kmsg.ConfigResourceTypeTopic, kmsg.ConfigResourceTypeBroker
	for v := int16(0); v <= 1; v++ {
		s.do("unknown topic", incremental(topic, "no-such-topic", change{"retention.ms", 0, "1"}), v)
		s.do("unknown key", incremental(topic, t, change{"no.such.key", 0, "1"}), v)
		s.do("bad value", incremental(topic, t, change{"retention.ms", 0, "x"}), v)
		s.do("empty topic name", incremental(topic, "", change{"retention.ms", 0, "1"}), v)
		s.do("unknown broker", incremental(broker, "99", change{"log.retention.ms", 0, "1"}), v)
		s.do("not a broker id", incremental(broker, "x", change{"log.retention.ms", 0, "1"}), v)
		s.do("read-only key", incremental(broker, "1", change{"node.id", 0, "5"}), v)
		s.do("per-broker key for all", incremental(broker, "", change{"ssl.keystore.location", 0, "/x"}), v)
		s.do("bad broker value", incremental(broker, "", change{"log.retention.ms", 0, "x"}), v)
		s.do("group", incremental(32, "g", change{"consumer.session.timeout.ms", 0, "1"}), v)
		s.do("group without a name", incremental(32, "", change{"consumer.session.timeout.ms", 0, "50000"}), v)
		s.do("unknown type", incremental(77, "g", change{"a", 0, "1"}), v)
		null := incremental(topic, t, change{"retention.ms", 0, "1"})
		null.Resources[0].Configs[0].Value = nil
		s.do("null", null, v)
		twice := incremental(topic, t, change{"retention.ms", 0, "1"})
		twice.Resources = append(twice.Resources, twice.Resources[0])
		s.do("a resource twice", twice, v)
		two := incremental(topic, t, change{"retention.ms", 0, "99"})
		two.Resources = append(two.Resources, incremental(topic, "no-such-topic", change{"retention.ms", 0, "1"}).Resources...)
		s.do("a good one and a bad one", two, v)
		s.do("no change", incremental(topic, t), v)
		s.do("nothing", kmsg.NewPtrIncrementalAlterConfigsRequest(), v)
	}
	s.ours("what came of it", t)
}

func incrementalUnknownOperation(s *session) {
	t := s.topic("t")
	s.create(t, 1)
	s.do("unknown operation", incremental(kmsg.ConfigResourceTypeTopic, t, change{"retention.ms", 9, "1"}), 1)
}

// sorted puts the keys of an answer in order: Kafka's is that of a hash table.
func sorted(res *kmsg.DescribeConfigsResponse) *kmsg.DescribeConfigsResponse {
	for i := range res.Resources {
		slices.SortFunc(res.Resources[i].Configs, func(a, b kmsg.DescribeConfigsResponseResourceConfig) int { return strings.Compare(a.Name, b.Name) })
	}
	return res
}

func describeTopicConfigs(s *session) {
	t := s.topic("t")
	s.create(t, 1, "retention.ms", "1000", "cleanup.policy", "delete")
	const topic = kmsg.ConfigResourceTypeTopic
	for v := int16(1); v <= 4; v++ {
		req := describeConfigs(topic, t)
		req.IncludeSynonyms, req.IncludeDocumentation = v%2 == 0, false
		s.show("every key", sorted(s.ask(req, v).(*kmsg.DescribeConfigsResponse)))
	}
	req := describeConfigs(topic, t, "retention.ms", "no.such.key", "segment.bytes")
	req.IncludeSynonyms = true // the documentation is in words of our own
	s.show("three keys", sorted(s.ask(req, 4).(*kmsg.DescribeConfigsResponse)))
	none := describeConfigs(topic, t)
	none.Resources[0].ConfigNames = []string{}
	s.do("no keys", none, 4)
}

func describeBrokerConfigs(s *session) {
	const broker = kmsg.ConfigResourceTypeBroker
	s.hiding("Documentation")
	res := sorted(s.ask(describeConfigs(broker, "1"), 4).(*kmsg.DescribeConfigsResponse))
	r := &res.Resources[0] // without what differs by node
	r.Configs = slices.DeleteFunc(r.Configs, func(c kmsg.DescribeConfigsResponseResourceConfig) bool {
		return strings.HasPrefix(c.Name, "weir.") || slices.Contains([]string{"listeners", "advertised.listeners", "controller.quorum.voters", "log.dirs"}, c.Name)
	})
	s.show("every key of the broker", res)
	req := describeConfigs(broker, "1", "log.retention.hours", "log.retention.ms", "num.partitions", "auto.create.topics.enable", "broker.rack", "message.max.bytes", "log.segment.bytes", "ssl.keystore.password", "listeners")
	req.IncludeSynonyms = true
	s.show("some, with synonyms", sorted(s.ask(req, 4).(*kmsg.DescribeConfigsResponse)))
	s.do("set for this broker", incremental(broker, "1", change{"log.segment.bytes", 0, "20000000"}), 1)
	s.do("set for all", incremental(broker, "", change{"log.segment.bytes", 0, "30000000"}, change{"log.retention.bytes", 0, "123456789"}), 1)
	s.settle()
	req = describeConfigs(broker, "1", "log.segment.bytes", "log.retention.bytes")
	req.IncludeSynonyms = true
	s.show("the broker", sorted(s.ask(req, 4).(*kmsg.DescribeConfigsResponse)))
	req = describeConfigs(broker, "")
	req.IncludeSynonyms = true
	s.show("all brokers", sorted(s.ask(req, 4).(*kmsg.DescribeConfigsResponse)))
	t := s.topic("t")
	s.create(t, 1)
	req = describeConfigs(kmsg.ConfigResourceTypeTopic, t, "retention.bytes", "segment.bytes")
	req.IncludeSynonyms = true
	s.do("a topic takes it over", req, 4)
	s.do("removed", incremental(broker, "1", change{"log.segment.bytes", 1, ""}), 1)
	s.do("removed", incremental(broker, "", change{"log.segment.bytes", 1, ""}, change{"log.retention.bytes", 1, ""}), 1)
	s.settle()
	s.show("default again", sorted(s.ask(describeConfigs(broker, "1", "log.segment.bytes", "log.retention.bytes"), 4).(*kmsg.DescribeConfigsResponse)))
}

func describeConfigsErrors(s *session) {
	for v := int16(1); v <= 4; v++ {
		s.do("unknown topic", describeConfigs(kmsg.ConfigResourceTypeTopic, "no-such-topic"), v)
		s.do("bad topic", describeConfigs(kmsg.ConfigResourceTypeTopic, "bad name!"), v)
		s.do("empty topic", describeConfigs(kmsg.ConfigResourceTypeTopic, ""), v)
		s.do("another broker", describeConfigs(kmsg.ConfigResourceTypeBroker, "7"), v)
		s.do("no broker id", describeConfigs(kmsg.ConfigResourceTypeBroker, "x"), v)
		s.do("unknown type", describeConfigs(9, "x"), v)
		s.do("group without a name", describeConfigs(32, ""), v)
		s.do("client metrics without a name", describeConfigs(16, ""), v)
		s.do("nothing", kmsg.NewPtrDescribeConfigsRequest(), v)
	}
	s.show("client metrics", sorted(s.ask(describeConfigs(16, "some-subscription"), 4).(*kmsg.DescribeConfigsResponse)))
	s.show("a group", sorted(s.ask(describeConfigs(32, "some-group"), 4).(*kmsg.DescribeConfigsResponse)))
}

// loggerLevels: the only logger that both systems have is the root.
func loggerLevels(s *session) {
	const logger = kmsg.ConfigResourceTypeBrokerLogger
	show := func(what string) { s.do(what, describeConfigs(logger, "1", "root"), 4) }
	set := func(what string, c change) { s.do(what, incremental(logger, "1", c), 1) }
	set("set", change{"root", 0, "WARN"})
	for _, v := range []int16{1, 4} {
		s.do("the root's level", describeConfigs(logger, "1", "root"), v)
	}
	for _, name := range []string{"", "x", "2"} {
		s.do("describe "+name, describeConfigs(logger, name), 4)
		s.do("change "+name, incremental(logger, name, change{"root", 0, "INFO"}), 1)
	}
	for _, level := range []string{"warn", "OFF", ""} {
		set("level "+level, change{"root", 0, level})
	}
	set("no such logger", change{"no.such", 0, "INFO"})
	set("remove no such logger", change{"no.such", 1, ""})
	set("remove the root's", change{"root", 1, ""})
	set("append", change{"root", 2, "INFO"})
	set("subtract", change{"root", 3, "INFO"})
	s.do("one of two is wrong", incremental(logger, "1", change{"root", 0, "ERROR"}, change{"no.such", 0, "INFO"}), 1)
	show("nothing has changed")
	only := incremental(logger, "1", change{"root", 0, "ERROR"})
	only.ValidateOnly = true
	s.do("validate only", only, 1)
	show("nothing has changed")
	s.do("a key twice", incremental(logger, "1", change{"root", 0, "ERROR"}, change{"root", 0, "WARN"}), 1)
	null := incremental(logger, "1", change{"root", 0, "ERROR"})
	null.Resources[0].Configs[0].Value = nil
	s.do("null", null, 1)
	twice := incremental(logger, "1", change{"root", 0, "ERROR"})
	twice.Resources = append(twice.Resources, twice.Resources[0])
	s.do("a resource twice", twice, 1)
	show("in the end")
	t := s.topic("t")
	s.create(t, 1)
	mixed := incremental(kmsg.ConfigResourceTypeTopic, t, change{"retention.ms", 0, "5"})
	mixed.Resources = append(mixed.Resources, incremental(logger, "1", change{"root", 0, "WARN"}).Resources...)
	s.do("beside a topic", mixed, 1)
	s.do("by the old request", alterConfigs(logger, "1", "root", "INFO"), 2)
}
