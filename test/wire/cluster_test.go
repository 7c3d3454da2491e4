package wire

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func clusterCases() []testCase {
	return []testCase{
		{name: "api-versions", run: apiVersions},
		{name: "api-versions-controller", run: apiVersionsController},
		{name: "api-versions-errors", run: apiVersionsErrors},
		{name: "describe-cluster", run: describeCluster},
		{name: "describe-log-dirs", run: describeLogDirs},
		{name: "alter-replica-log-dirs", run: alterReplicaLogDirs},
		{name: "describe-producers", run: describeProducers},
		{name: "describe-quorum", run: describeQuorum},
		{name: "update-features", run: updateFeatures},
		{name: "update-features-not-served", run: updateFeaturesNotServed},
		{name: "acls", run: aclsCase},
		{name: "controller-listener", run: controllerListener},
		{name: "K33-null-texts", run: nullTexts},
	}
}

func apiVersionsRequest() *kmsg.ApiVersionsRequest {
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "wire", "1.0"
	return req
}

// servedVersions keeps what both servers serve, now and later, and the highest
// versions of that: Weir serves older versions too, and lists an API when it
// serves it. Features are put in order: Kafka's order is that of a hash table.
func (s *session) servedVersions(res kmsg.Response, apis ...int16) kmsg.Response {
	s.hiding("MinVersion")
	r := res.(*kmsg.ApiVersionsResponse)
	for _, k := range r.ApiKeys {
		if k.MinVersion > k.MaxVersion || k.MinVersion < 0 || !s.node.kafka && k.MinVersion != 0 && k.ApiKey != int16(kmsg.AlterPartition) && k.ApiKey < 76 {
			s.Errorf("API %d is listed from v%d to v%d", k.ApiKey, k.MinVersion, k.MaxVersion)
		}
	}
	r.ApiKeys = slices.DeleteFunc(r.ApiKeys, func(k kmsg.ApiVersionsResponseApiKey) bool { return !slices.Contains(apis, k.ApiKey) })
	first := []string{"metadata.version", "kraft.version", "eligible.leader.replicas.version"}
	r.SupportedFeatures = slices.DeleteFunc(r.SupportedFeatures, func(f kmsg.ApiVersionsResponseSupportedFeature) bool { return !slices.Contains(first, f.Name) })
	r.FinalizedFeatures = slices.DeleteFunc(r.FinalizedFeatures, func(f kmsg.ApiVersionsResponseFinalizedFeature) bool { return !slices.Contains(first, f.Name) })
	slices.SortFunc(r.SupportedFeatures, func(a, b kmsg.ApiVersionsResponseSupportedFeature) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(r.FinalizedFeatures, func(a, b kmsg.ApiVersionsResponseFinalizedFeature) int { return strings.Compare(a.Name, b.Name) })
	return r
}

func apiVersions(s *session) {
	for v := int16(0); v <= 4; v++ {
		s.show("on a listener for clients", s.servedVersions(s.ask(apiVersionsRequest(), v),
			0, 1, 2, 3, 18, 19, 20, 21, 22, 23, 29, 30, 31, 32, 33, 34, 35, 37, 43, 44, 55, 57, 60, 61, 75))
	}
}

func apiVersionsController(s *session) {
	c := s.dialTo(s.node.ctl)
	for v := int16(0); v <= 4; v++ {
		res, err := c.do(apiVersionsRequest(), v)
		if err != nil {
			s.Fatal(err)
		}
		s.show("on a listener for controllers", s.servedVersions(res, 18, 19, 20, 29, 30, 31, 32, 33, 37, 43, 44, 55, 57, 60))
	}
}

func apiVersionsErrors(s *session) {
	bad := func(name, version string) *kmsg.ApiVersionsRequest {
		req := apiVersionsRequest()
		req.ClientSoftwareName, req.ClientSoftwareVersion = name, version
		return req
	}
	for _, v := range []int16{3, 4} {
		for _, nv := range [][2]string{{"", "1"}, {"a", ""}, {"-a", "1"}, {"a b", "1"}, {"a", "1 "}, {"a.b-c", "1.0-x"}, {"a_b", "1"}} {
			res := s.ask(bad(nv[0], nv[1]), v).(*kmsg.ApiVersionsResponse)
			s.note("%q %q v%d: error %d, APIs listed: %t", nv[0], nv[1], v, res.ErrorCode, len(res.ApiKeys) > 0)
		}
	}
	// An unknown version is answered in the v0 shape (KIP-511), on a connection that goes on.
	for _, v := range []int16{5, 99, 32767, -1} {
		req := apiVersionsRequest()
		req.SetVersion(4)
		b := s.c.frame(req)
		b[6], b[7] = byte(uint16(v)>>8), byte(v)
		if _, err := s.c.Write(b); err != nil {
			s.Fatal(err)
		}
		raw, err := s.c.readFrame(answerWithin)
		if err != nil {
			s.note("v%d: the connection is closed", v)
			s.c = s.dial()
			continue
		}
		res := kmsg.NewPtrApiVersionsResponse()
		if err := readWhole(res, raw[4:]); err != nil {
			s.Fatal(err)
		}
		s.note("asked at v%d", v)
		s.show("answered in the v0 shape", res)
	}
	s.note("the connection goes on: %t", len(s.ask(apiVersionsRequest(), 3).(*kmsg.ApiVersionsResponse).ApiKeys) > 0)
}

func describeCluster(s *session) {
	for v := int16(0); v <= 2; v++ {
		for _, kind := range []int8{1, 2, 3} {
			req := kmsg.NewPtrDescribeClusterRequest()
			req.EndpointType, req.IncludeClusterAuthorizedOperations = kind, kind == 1
			s.do(fmt.Sprintf("endpoint type %d", kind), req, v)
		}
	}
	fenced := kmsg.NewPtrDescribeClusterRequest()
	fenced.IncludeFencedBrokers = true
	s.do("fenced ones too", fenced, 2)
	c := s.dialTo(s.node.ctl)
	for _, kind := range []int8{1, 2} {
		req := kmsg.NewPtrDescribeClusterRequest()
		req.EndpointType = kind
		res, err := c.do(req, 1)
		if err != nil {
			s.Fatal(err)
		}
		s.show(fmt.Sprintf("endpoint type %d, asked on the controllers' listener", kind), res)
	}
}

// sortedDirs puts directories and topics in order; which directory holds what is
// the broker's choice.
func sortedDirs(res kmsg.Response) kmsg.Response {
	r := res.(*kmsg.DescribeLogDirsResponse)
	slices.SortFunc(r.Dirs, func(a, b kmsg.DescribeLogDirsResponseDir) int { return strings.Compare(a.Dir, b.Dir) })
	for i := range r.Dirs {
		slices.SortFunc(r.Dirs[i].Topics, func(a, b kmsg.DescribeLogDirsResponseDirTopic) int { return strings.Compare(a.Topic, b.Topic) })
	}
	return r
}

func (s *session) logDir(name string) string { return filepath.Join(s.node.dir, name) }

// moveReplica asks for a partition in a directory.
func moveReplica(dir, topic string, parts ...int32) *kmsg.AlterReplicaLogDirsRequest {
	req := kmsg.NewPtrAlterReplicaLogDirsRequest()
	d := kmsg.NewAlterReplicaLogDirsRequestDir()
	d.Dir = dir
	t := kmsg.NewAlterReplicaLogDirsRequestDirTopic()
	t.Topic, t.Partitions = topic, parts
	d.Topics = append(d.Topics, t)
	req.Dirs = append(req.Dirs, d)
	return req
}

// logDirs asks for partitions of a topic.
func logDirs(topic string, parts ...int32) *kmsg.DescribeLogDirsRequest {
	req := kmsg.NewPtrDescribeLogDirsRequest()
	t := kmsg.NewDescribeLogDirsRequestTopic()
	t.Topic, t.Partitions = topic, parts
	req.Topics = append(req.Topics, t)
	return req
}

// inDir moves a partition and waits until it has arrived.
func (s *session) inDir(dir, topic string) {
	s.Helper()
	s.ask(moveReplica(dir, topic, 0), 2)
	s.eventually("the replica is in "+dir, func() bool {
		for _, d := range s.ask(logDirs(topic, 0), 4).(*kmsg.DescribeLogDirsResponse).Dirs {
			for _, t := range d.Topics {
				if d.Dir != dir || t.Partitions[0].IsFuture {
					return false
				}
			}
		}
		return true
	})
}

func describeLogDirs(s *session) {
	t := s.topic("t")
	s.create(t, 1)
	s.inDir(s.logDir("data-a"), t)
	s.ask(produce(-1, part{topic: t, records: plain(kv("a", "1"))}), 9)
	for v := int16(1); v <= 5; v++ {
		s.show("one partition", sortedDirs(s.ask(logDirs(t, 0), v)))
		s.show("an unknown one", sortedDirs(s.ask(logDirs(t, 9), v)))
		s.show("an unknown topic", sortedDirs(s.ask(logDirs("no-such-topic", 0), v)))
		none := kmsg.NewPtrDescribeLogDirsRequest()
		none.Topics = []kmsg.DescribeLogDirsRequestTopic{}
		s.show("none", sortedDirs(s.ask(none, v)))
		all := s.ask(kmsg.NewPtrDescribeLogDirsRequest(), v).(*kmsg.DescribeLogDirsResponse)
		s.note("null is all: %t", slices.ContainsFunc(all.Dirs, func(d kmsg.DescribeLogDirsResponseDir) bool { return len(d.Topics) > 1 }))
	}
}

func alterReplicaLogDirs(s *session) {
	a, b := s.logDir("data-a"), s.logDir("data-b")
	for v := int16(1); v <= 2; v++ {
		t := s.topic(fmt.Sprint("t", v))
		s.create(t, 1)
		s.inDir(a, t)
		for range 50 {
			s.ask(produce(-1, part{topic: t, records: plain(rec{ts: 1000, key: []byte("k"), value: make([]byte, 10000)})}), 9)
		}
		s.do("where it is", moveReplica(a, t, 0), v)
		s.do("an unknown directory", moveReplica("/no/such/dir", t, 0), v)
		s.do("an unknown partition", moveReplica(a, t, 9), v)
		s.do("an unknown topic", moveReplica(a, "no-such-topic", 0), v)
		s.do("a relative directory", moveReplica("data-a", t, 0), v)
		s.do("nothing", kmsg.NewPtrAlterReplicaLogDirsRequest(), v)
		s.do("to the other", moveReplica(b, t, 0), v)
		s.inDir(b, t)
		s.show("there", sortedDirs(s.ask(logDirs(t, 0), 2)))
		s.note("log end %d", s.logEnd(t, 0))
		s.do("and it is written on", produce(-1, part{topic: t, records: plain(kv("a", "1"))}), 9)
	}
}

func describeProducers(s *session) {
	t := s.topic("t")
	s.create(t, 2)
	id := s.producerID()
	s.ask(produce(-1, part{topic: t, records: sequenced(id, 0, 0, kv("a", "1"), kv("b", "2"))}), 9)
	req := kmsg.NewPtrDescribeProducersRequest()
	for _, x := range []struct {
		topic string
		parts []int32
	}{{t, []int32{0, 1, 7}}, {"no-such-topic", []int32{0}}, {"bad name!", []int32{0}}} {
		dt := kmsg.NewDescribeProducersRequestTopic()
		dt.Topic, dt.Partitions = x.topic, x.parts
		req.Topics = append(req.Topics, dt)
	}
	s.do("one producer, none, unknown ones", req, 0)
}

func describeQuorum(s *session) {
	req := func(topic string, p int32) *kmsg.DescribeQuorumRequest {
		r := kmsg.NewPtrDescribeQuorumRequest()
		t := kmsg.NewDescribeQuorumRequestTopic()
		t.Topic = topic
		q := kmsg.NewDescribeQuorumRequestTopicPartition()
		q.Partition = p
		t.Partitions = append(t.Partitions, q)
		r.Topics = append(r.Topics, t)
		return r
	}
	s.hiding("HighWatermark", "LogEndOffset", "LeaderEpoch")
	for v := int16(0); v <= 2; v++ {
		s.do("the metadata log", req("__cluster_metadata", 0), v)
		s.do("another partition", req("__cluster_metadata", 1), v)
		s.do("another topic", req("other", 0), v)
		s.do("nothing", kmsg.NewPtrDescribeQuorumRequest(), v)
	}
	c := s.dialTo(s.node.ctl)
	res, err := c.do(req("__cluster_metadata", 0), 2)
	if err != nil {
		s.Fatal(err)
	}
	s.show("on the controllers' listener", res)
}

// features asks for levels, without effect: name, level, upgrade type, and so on.
func features(kvs ...any) *kmsg.UpdateFeaturesRequest {
	r := kmsg.NewPtrUpdateFeaturesRequest()
	r.TimeoutMillis, r.ValidateOnly = 10_000, true
	for i := 0; i+2 < len(kvs); i += 3 {
		f := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
		f.Feature, f.MaxVersionLevel, f.UpgradeType = kvs[i].(string), int16(kvs[i+1].(int)), int8(kvs[i+2].(int))
		r.FeatureUpdates = append(r.FeatureUpdates, f)
	}
	return r
}

func updateFeaturesNotServed(s *session) {
	s.do("transactions", features("transaction.version", 2, 1), 2)
}

func updateFeatures(s *session) {
	req := features
	for v := int16(0); v <= 2; v++ {
		s.do("unknown feature", req("no.such.feature", 1, 1), v)
		s.do("level too high", req("metadata.version", 99, 1), v)
		s.do("the present level", req("metadata.version", 30, 1), v)
		s.do("downgrade without saying so", req("metadata.version", 29, 1), v)
		s.do("safe downgrade that loses something", req("metadata.version", 22, 2), v)
		s.do("unsafe downgrade", req("metadata.version", 22, 3), v)
		s.do("unknown upgrade type", req("metadata.version", 30, 9), v)
		s.do("negative level", req("metadata.version", -1, 1), v)
		s.do("ELR off", req("eligible.leader.replicas.version", 0, 2), v)
		s.do("a feature twice", req("metadata.version", 30, 1, "metadata.version", 29, 1), v)
		s.do("none", req(), v)
		s.do("one good, one bad", req("metadata.version", 30, 1, "no.such.feature", 1, 1), v)
	}
}

func aclsCase(s *session) {
	for v := int16(1); v <= 3; v++ {
		d := kmsg.NewPtrDescribeACLsRequest()
		d.ResourceType, d.ResourcePatternType, d.Operation, d.PermissionType = 1, 1, 1, 1
		s.do("describe", d, v)
		c := kmsg.NewPtrCreateACLsRequest()
		x := kmsg.NewCreateACLsRequestCreation()
		x.ResourceType, x.ResourceName, x.ResourcePatternType, x.Principal, x.Host, x.Operation, x.PermissionType = 2, "t", 3, "User:a", "*", 3, 3
		c.Creations = append(c.Creations, x, x)
		s.do("create two", c, v)
		s.do("create none", kmsg.NewPtrCreateACLsRequest(), v)
		r := kmsg.NewPtrDeleteACLsRequest()
		f := kmsg.NewDeleteACLsRequestFilter()
		f.ResourceType, f.ResourcePatternType, f.Operation, f.PermissionType = 1, 1, 1, 1
		r.Filters = append(r.Filters, f, f)
		s.do("delete two", r, v)
		s.do("delete none", kmsg.NewPtrDeleteACLsRequest(), v)
	}
}

// controllerListener: what a tool with --bootstrap-controller sends.
func controllerListener(s *session) {
	s.c.Close()
	s.c = s.dialTo(s.node.ctl)
	t := s.topic("t")
	s.hiding("Configs").do("create", createTopics(newTopic(t, 1, 1)), 7)
	s.hide["Configs"] = false
	more := morePartitions(t, 2)
	s.do("more partitions", more, 3)
	s.do("set", incremental(kmsg.ConfigResourceTypeTopic, t, change{"retention.ms", 0, "5"}), 1)
	s.do("another broker", incremental(kmsg.ConfigResourceTypeBroker, "99", change{"log.retention.ms", 0, "1"}), 1)
	s.do("not a broker id", incremental(kmsg.ConfigResourceTypeBroker, "x", change{"log.retention.ms", 0, "1"}), 1)
	s.do("another broker", alterConfigs(kmsg.ConfigResourceTypeBroker, "99", "log.retention.ms", "1"), 2)
	s.do("describe this node", describeConfigs(kmsg.ConfigResourceTypeBroker, "1", "num.partitions", "message.max.bytes"), 4)
	s.do("describe another", describeConfigs(kmsg.ConfigResourceTypeBroker, "2"), 4)
	s.do("features", features("no.such.feature", 1, 1), 2)
	d := kmsg.NewPtrDescribeACLsRequest()
	d.ResourceType, d.ResourcePatternType, d.Operation, d.PermissionType = 1, 1, 1, 1
	s.do("acls", d, 3)
	e := kmsg.NewPtrElectLeadersRequest()
	et := kmsg.NewElectLeadersRequestTopic()
	et.Topic, et.Partitions = t, []int32{0}
	e.Topics, e.TimeoutMillis = append(e.Topics, et), 5000
	s.do("elect", e, 2)
	del := kmsg.NewPtrDeleteTopicsRequest()
	dt := kmsg.NewDeleteTopicsRequestTopic()
	dt.Topic = &t
	del.Topics, del.TimeoutMillis = append(del.Topics, dt), 5000
	s.do("delete", del, 6)
}

// nullTexts: success has a null text, not an empty one.
func nullTexts(s *session) {
	t := s.topic("t")
	create := createTopics(newTopic(t, 1, 1))
	s.hiding("Configs").do("create", create, 7)
	s.do("alter", alterConfigs(kmsg.ConfigResourceTypeTopic, t, "retention.ms", "1"), 2)
	s.do("incremental", incremental(kmsg.ConfigResourceTypeTopic, t, change{"retention.ms", 0, "2"}), 1)
	s.do("describe", describeConfigs(kmsg.ConfigResourceTypeTopic, t, "retention.ms"), 4)
	s.eventually("the topic leads", func() bool { return s.leads(t, 1) })
	s.do("produce", produce(-1, part{topic: t, records: plain(kv("a", "1"))}), 9)
	del := kmsg.NewPtrDeleteTopicsRequest()
	dt := kmsg.NewDeleteTopicsRequestTopic()
	dt.Topic = &t
	del.Topics, del.TimeoutMillis = append(del.Topics, dt), 5000
	s.do("delete", del, 6)
}
