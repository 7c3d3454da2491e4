package wire

import (
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func metadataCases() []testCase {
	return []testCase{
		{name: "metadata-versions", run: metadataVersions},
		{name: "metadata-auto-create", run: metadataAutoCreate, differs: "the answer waits for the leaders of topics it has created, Kafka answers UNKNOWN_TOPIC_OR_PARTITION and lets the client ask again"},
		{name: "K29-null-and-empty", run: nullAndEmpty},
		{name: "K29-unknown-tags", run: unknownTags},
		{name: "K34-two-listeners", run: twoListeners},
		{name: "describe-topic-partitions", run: describeTopicPartitions},
	}
}

func metadataVersions(s *session) {
	t := s.topic("t")
	id := s.create(t, 2)
	for v := int16(0); v <= 13; v++ {
		req := metadata(t, "no-such-topic", "bad name!")
		req.AllowAutoTopicCreation = false
		req.IncludeClusterAuthorizedOperations, req.IncludeTopicAuthorizedOperations = true, true
		if v < 4 {
			req = metadata(t) // it would create the others
		}
		s.do("topics", req, v)
	}
	for v := int16(10); v <= 13; v++ {
		req := metadata()
		for _, x := range [][16]byte{id, {7}, {}} {
			mt := kmsg.NewMetadataRequestTopic()
			mt.TopicID = x
			if x == [16]byte{} {
				mt.Topic = ptr(t)
			}
			req.Topics = append(req.Topics, mt)
		}
		if v < 12 {
			req.Topics = req.Topics[2:]
		}
		s.do("by id, by an unknown id, by name", req, v)
	}
	ops := metadata()
	mt := kmsg.NewMetadataRequestTopic()
	mt.TopicID = [16]byte{7}
	ops.Topics, ops.IncludeTopicAuthorizedOperations = append(ops.Topics, mt), true
	s.do("operations of an unknown id", ops, 12)
	twice := metadata(t, t)
	s.do("a topic twice", twice, 12)
	both := metadata(t)
	both.Topics[0].TopicID = id
	s.do("name and id", both, 12)
}

func metadataAutoCreate(s *session) {
	t := s.topic("t")
	req := metadata(t)
	req.AllowAutoTopicCreation = true
	s.do("created", req, 12)
	s.eventually("it is there", func() bool {
		r := s.ask(metadata(t), 12).(*kmsg.MetadataResponse).Topics[0]
		return r.ErrorCode == 0 && len(r.Partitions) == 2 && r.Partitions[0].ErrorCode == 0
	})
	bad := metadata("bad name!", strings.Repeat("x", 250), "..", "")
	bad.AllowAutoTopicCreation = true
	s.do("not to be created", bad, 12)
}

// only keeps the topics of this case.
func (s *session) only(res *kmsg.MetadataResponse) *kmsg.MetadataResponse {
	res.Topics = slices.DeleteFunc(res.Topics, func(t kmsg.MetadataResponseTopic) bool {
		return !strings.HasPrefix(str(t.Topic), strings.ToLower(s.name))
	})
	slices.SortFunc(res.Topics, func(a, b kmsg.MetadataResponseTopic) int { return strings.Compare(str(a.Topic), str(b.Topic)) })
	return res
}

func nullAndEmpty(s *session) {
	s.create(s.topic("a"), 1)
	s.create(s.topic("b"), 1)
	s.hiding("Brokers")
	for v := int16(0); v <= 13; v++ {
		all := metadata()
		all.Topics = nil
		if v > 0 {
			s.show("null is all", s.only(s.ask(all, v).(*kmsg.MetadataResponse)))
		}
		s.show("empty is none, in v0 all", s.only(s.ask(metadata(), v).(*kmsg.MetadataResponse)))
	}
}

// unknownTags: fields of a later version are passed over at every level.
func unknownTags(s *session) {
	t := s.topic("t")
	id := s.create(t, 1)
	tag := func(tags *kmsg.Tags) { tags.Set(97, []byte("later")); tags.Set(9999, nil) }
	m := metadata(t)
	tag(&m.UnknownTags)
	tag(&m.Topics[0].UnknownTags)
	s.do("metadata", m, 12)
	p := produce(-1, part{topic: t, id: id, records: plain(kv("a", "1"))})
	tag(&p.UnknownTags)
	tag(&p.Topics[0].UnknownTags)
	tag(&p.Topics[0].Partitions[0].UnknownTags)
	s.do("produce", p, 13)
	f := fetch(0, 1, part{topic: t, id: id})
	tag(&f.UnknownTags)
	tag(&f.Topics[0].UnknownTags)
	tag(&f.Topics[0].Partitions[0].UnknownTags)
	s.do("fetch", f, 13)
	l := listOffsets(t, 0, -1)
	tag(&l.UnknownTags)
	tag(&l.Topics[0].UnknownTags)
	tag(&l.Topics[0].Partitions[0].UnknownTags)
	s.do("list offsets", l, 7)
	e := kmsg.NewPtrElectLeadersRequest()
	e.TimeoutMillis = 5000
	et := kmsg.NewElectLeadersRequestTopic()
	et.Topic, et.Partitions = t, []int32{0}
	e.Topics = append(e.Topics, et)
	s.do("ElectLeaders is flexible from v2 on", e, 1)
	s.do("ElectLeaders is flexible from v2 on", e, 2)
}

func twoListeners(s *session) {
	t := s.topic("t")
	s.create(t, 1)
	for _, addr := range []string{s.node.main, s.node.second} {
		c := s.dialTo(addr)
		for _, v := range []int16{0, 1, 5, 12} {
			res, err := c.do(metadata(t), v)
			if err != nil {
				s.Fatal(err)
			}
			s.show("each listener tells its own address", res)
		}
		res, err := c.do(kmsg.NewPtrDescribeClusterRequest(), 1)
		if err != nil {
			s.Fatal(err)
		}
		s.show("so does DescribeCluster", res)
	}
}

func describeTopicPartitions(s *session) {
	a, b := s.topic("a"), s.topic("b")
	s.create(a, 3)
	s.create(b, 2)
	ask := func(limit int32, cursor *kmsg.DescribeTopicPartitionsRequestCursor, topics ...string) *kmsg.DescribeTopicPartitionsRequest {
		req := kmsg.NewPtrDescribeTopicPartitionsRequest()
		req.ResponsePartitionLimit, req.Cursor = limit, cursor
		for _, name := range topics {
			t := kmsg.NewDescribeTopicPartitionsRequestTopic()
			t.Topic = name
			req.Topics = append(req.Topics, t)
		}
		return req
	}
	at := func(topic string, p int32) *kmsg.DescribeTopicPartitionsRequestCursor {
		c := kmsg.NewDescribeTopicPartitionsRequestCursor()
		c.Topic, c.Partition = topic, p
		return &c
	}
	s.do("both, unsorted and one twice", ask(2000, nil, b, a, a), 0)
	s.do("unknown and bad names", ask(2000, nil, "no-such-topic", "bad name!", a), 0)
	s.do("pages of 2", ask(2, nil, a, b), 0)
	s.do("the next", ask(2, at(a, 2), a, b), 0)
	s.do("exactly all", ask(5, nil, a, b), 0)
	s.do("exactly one topic", ask(3, nil, a, b), 0)
	s.do("a cursor between", ask(10, at(a+"z", 0), a, b), 0)
	s.do("a cursor beyond the partitions", ask(10, at(a, 7), a, b), 0)
	s.do("limit 0", ask(0, nil, a), 0)
	s.do("negative limit", ask(-1, nil, a), 0)
	neg, err := s.c.do(ask(10, at(a, -1), a), 0)
	if err != nil {
		s.Fatal(err)
	}
	s.show("negative partition in the cursor", neg)
	all := s.ask(ask(2000, at(a, 1)), 0).(*kmsg.DescribeTopicPartitionsResponse)
	n := 0
	for _, t := range all.Topics {
		if str(t.Topic) == a || str(t.Topic) == b {
			n += len(t.Partitions)
		}
	}
	s.note("no topics named is all of them, from the cursor on: %d of ours", n)
}
