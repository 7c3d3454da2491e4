package wire

import (
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func topicCases() []testCase {
	return []testCase{
		{name: "create-topics-versions", run: createTopicsVersions},
		{name: "K30-create-topics", run: createTopicsCase},
		{name: "create-topics-assignments", run: createAssignments},
		{name: "create-topics-configs", run: createConfigs},
		{name: "delete-topics", run: deleteTopics},
		{name: "create-partitions", run: createPartitions},
		{name: "create-partitions-too-many", run: createTooManyPartitions, weirOnly: "Kafka 4.3.1 answers UNKNOWN_SERVER_ERROR, and its controller resigns"},
		{name: "elect-leaders", run: electLeaders},
	}
}

// newTopic is one topic of a CreateTopics.
func newTopic(name string, partitions int32, factor int16, configs ...string) kmsg.CreateTopicsRequestTopic {
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, partitions, factor
	for i := 0; i+1 < len(configs); i += 2 {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = configs[i], &configs[i+1]
		t.Configs = append(t.Configs, c)
	}
	return t
}

func createTopics(topics ...kmsg.CreateTopicsRequestTopic) *kmsg.CreateTopicsRequest {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Topics, req.TimeoutMillis = topics, 10_000
	return req
}

func createTopicsVersions(s *session) {
	for v := int16(2); v <= 7; v++ {
		t := s.topic(fmt.Sprint("v", v))
		if v > 5 {
			s.hiding("Configs")
		}
		s.do("new and existing", createTopics(newTopic(t, 2, 1, "retention.ms", "1000"), newTopic("create-topics-versions-v2", 1, 1)), v)
		s.do("again", createTopics(newTopic(t, 2, 1)), v)
	}
}

func createTopicsCase(s *session) {
	t := s.topic("t")
	s.create(t, 1)
	s.hiding("Configs")
	only := createTopics(newTopic(t, 1, 1))
	only.ValidateOnly = true
	s.do("validate an existing name", only, 7)
	only = createTopics(newTopic(s.topic("new"), 1, 1))
	only.ValidateOnly = true
	s.do("validate a new name", only, 7)
	s.do("nothing was made", metadata(s.topic("new")), 9)
	s.create("k30_a_b", 1)
	s.do("collides", createTopics(newTopic("k30.a_b", 1, 1)), 7)
	s.do("defaults", createTopics(newTopic(s.topic("defaults"), -1, -1)), 7)
	s.do("defaults before v4", createTopics(newTopic(s.topic("defaults-v3"), -1, -1)), 3)
	for _, name := range []string{strings.Repeat("n", 250), "..", ".", "", "a b", "ümlaut", "a/b", "__cluster_metadata"} {
		s.do("a bad name", createTopics(newTopic(name, 1, 1)), 7)
	}
	s.do("249 characters", createTopics(newTopic("k30"+strings.Repeat("n", 246), 1, 1)), 5)
	s.do("numbers that are wrong", createTopics(newTopic(s.topic("p0"), 0, 1), newTopic(s.topic("p-2"), -2, 1), newTopic(s.topic("r0"), 1, 0), newTopic(s.topic("r-2"), 1, -2), newTopic(s.topic("r2"), 1, 2)), 7)
	s.do("too many partitions", createTopics(newTopic(s.topic("many"), 10_001, 1)), 7)
	s.do("a name twice, and another", createTopics(newTopic(s.topic("twice"), 1, 1), newTopic(s.topic("once"), 1, 1), newTopic(s.topic("twice"), 1, 1)), 7)
	s.do("none", createTopics(), 7)
	zero := createTopics(newTopic(s.topic("timeout"), 1, 1))
	zero.TimeoutMillis = 30000
	s.do("no name of ours is internal", zero, 2)
}

func createAssignments(s *session) {
	assign := func(name string, parts ...[]int32) kmsg.CreateTopicsRequestTopic {
		t := newTopic(name, -1, -1)
		for i, r := range parts {
			a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
			a.Partition, a.Replicas = int32(i), r
			t.ReplicaAssignment = append(t.ReplicaAssignment, a)
		}
		return t
	}
	s.hiding("Configs")
	s.do("good", createTopics(assign(s.topic("good"), []int32{1}, []int32{1})), 7)
	s.do("unknown broker", createTopics(assign(s.topic("unknown"), []int32{9})), 7)
	s.do("a broker twice", createTopics(assign(s.topic("twice"), []int32{1, 1})), 7)
	s.do("empty", createTopics(assign(s.topic("empty"), []int32{})), 7)
	s.do("uneven", createTopics(assign(s.topic("uneven"), []int32{1}, []int32{1, 9})), 7)
	gap := assign(s.topic("gap"), []int32{1}, []int32{1})
	gap.ReplicaAssignment[1].Partition = 5
	s.do("a gap", createTopics(gap), 7)
	same := assign(s.topic("same"), []int32{1}, []int32{1})
	same.ReplicaAssignment[1].Partition = 0
	s.do("a partition twice", createTopics(same), 7)
	both := assign(s.topic("both"), []int32{1})
	both.NumPartitions = 1
	s.do("with a number of partitions", createTopics(both), 7)
	both = assign(s.topic("both"), []int32{1})
	both.ReplicationFactor = 1
	s.do("with a replication factor", createTopics(both), 7)
}

func createConfigs(s *session) {
	for i, c := range [][]string{
		{"no.such.key", "1"}, {"retention.ms", "abc"}, {"retention.ms", "-2"}, {"cleanup.policy", "nonsense"}, {"cleanup.policy", "compact,delete"}, {"cleanup.policy", ""},
		{"compression.type", "lzma"}, {"min.insync.replicas", "0"}, {"segment.bytes", "10"}, {"max.message.bytes", "-1"}, {"retention.ms", "1", "retention.ms", "2"},
		{"preallocate", "maybe"}, {"min.cleanable.dirty.ratio", "2"}, {"message.timestamp.type", "Never"}, {"message.format.version", "2.0"}, {"leader.replication.throttled.replicas", "0:1"},
		{"leader.replication.throttled.replicas", "x"}, {"remote.storage.enable", "true"}, {"compression.gzip.level", "99"}, {"", "x"},
	} {
		s.do(fmt.Sprintf("%q", c), createTopics(newTopic(s.topic(fmt.Sprint(i)), 1, 1, c...)), 4)
	}
	null := newTopic(s.topic("null"), 1, 1, "retention.ms", "1")
	null.Configs[0].Value = nil
	s.do("null", createTopics(null), 7)
}

func deleteTopics(s *session) {
	byName := func(names ...string) *kmsg.DeleteTopicsRequest {
		req := kmsg.NewPtrDeleteTopicsRequest()
		req.TopicNames, req.TimeoutMillis = names, 10_000
		for _, n := range names {
			t := kmsg.NewDeleteTopicsRequestTopic()
			t.Topic = ptr(n)
			req.Topics = append(req.Topics, t)
		}
		return req
	}
	for v := int16(1); v <= 6; v++ {
		t := s.topic(fmt.Sprint("t", v))
		s.create(t, 1)
		s.do("one and an unknown one", byName(t, "no-such-topic"), v)
		s.do("none", byName(), v)
	}
	t := s.topic("twice")
	id := s.create(t, 1)
	s.do("a name twice", byName(t, t), 6)
	req := byName(t)
	req.Topics[0].TopicID = id
	s.do("name and id", req, 6)
	req.Topics[0].Topic, req.Topics[0].TopicID = nil, [16]byte{}
	s.do("neither", req, 6)
	req.Topics[0].TopicID = [16]byte{8, 8}
	s.do("unknown id", req, 6)
	req = byName(t, t)
	req.Topics[1].Topic, req.Topics[1].TopicID = nil, id
	s.do("by name and by id", req, 6)
	s.create(s.topic("t1"), 1)
	s.do("a name can be used again", byName(s.topic("t1")), 5)
}

// morePartitions asks for n partitions of one topic.
func morePartitions(topic string, n int32, assign ...[]int32) *kmsg.CreatePartitionsRequest {
	r := kmsg.NewPtrCreatePartitionsRequest()
	t := kmsg.NewCreatePartitionsRequestTopic()
	t.Topic, t.Count = topic, n
	for _, a := range assign {
		x := kmsg.NewCreatePartitionsRequestTopicAssignment()
		x.Replicas = a
		t.Assignment = append(t.Assignment, x)
	}
	r.Topics, r.TimeoutMillis = append(r.Topics, t), 10_000
	return r
}

func createTooManyPartitions(s *session) {
	t := s.topic("t")
	s.create(t, 1)
	s.do("more than one request may", morePartitions(t, 20_000), 3)
	s.do("the controller goes on", morePartitions(t, 2), 3)
}

func createPartitions(s *session) {
	req := morePartitions
	for v := int16(0); v <= 3; v++ {
		t := s.topic(fmt.Sprint("t", v))
		s.create(t, 2)
		only := req(t, 3)
		only.ValidateOnly = true
		s.do("validate", only, v)
		s.do("3", req(t, 3), v)
		s.do("3 again", req(t, 3), v)
		s.do("fewer", req(t, 1), v)
		s.do("0", req(t, 0), v)
		s.do("-1", req(t, -1), v)
		s.do("unknown topic", req("no-such-topic", 3), v)
		s.do("assigned", req(t, 4, []int32{1}), v)
		s.do("too few assigned", req(t, 6, []int32{1}), v)
		s.do("an unknown broker", req(t, 5, []int32{9}), v)
		s.do("uneven", req(t, 5, []int32{1, 1}), v)
		s.do("empty assignment", req(t, 5, []int32{}), v)
		s.do("none", kmsg.NewPtrCreatePartitionsRequest(), v)
		twice := req(t, 5)
		twice.Topics = append(twice.Topics, req(t, 6).Topics...)
		s.do("twice", twice, v)
	}
	s.settle()
	s.hiding("Brokers").do("what came of it", metadata(s.topic("t3")), 12)
}

func electLeaders(s *session) {
	t := s.topic("t")
	s.create(t, 2)
	req := func(kind int8, topic string, parts ...int32) *kmsg.ElectLeadersRequest {
		r := kmsg.NewPtrElectLeadersRequest()
		r.ElectionType, r.TimeoutMillis = kind, 10_000
		et := kmsg.NewElectLeadersRequestTopic()
		et.Topic, et.Partitions = topic, parts
		r.Topics = append(r.Topics, et)
		return r
	}
	for v := int16(0); v <= 2; v++ {
		s.do("preferred, not needed", req(0, t, 0, 1), v)
		s.do("unknown", req(0, "no-such-topic", 0), v)
		s.do("unknown partition", req(0, t, 9), v)
		if v > 0 {
			s.do("unclean, not needed", req(1, t, 0), v)
		}
		all := req(0, t)
		all.Topics = nil
		res := s.ask(all, v).(*kmsg.ElectLeadersResponse)
		res.Topics = slices.DeleteFunc(res.Topics, func(x kmsg.ElectLeadersResponseTopic) bool { return x.Topic != t })
		s.show("all that need it", res)
		none := req(0, t)
		none.Topics = []kmsg.ElectLeadersRequestTopic{}
		s.do("of no topic", none, v)
	}
}
