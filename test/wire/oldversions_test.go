package wire

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/batch"
)

const notServed = "Apache Kafka 4.x does not serve these versions; the expectation is what Kafka 3.x documents"

func oldVersionCases() []testCase {
	return []testCase{
		{name: "old-produce", run: oldProduce, weirOnly: notServed},
		{name: "old-produce-errors", run: oldProduceErrors, weirOnly: notServed},
		{name: "old-fetch", run: oldFetch, weirOnly: notServed},
		{name: "old-fetch-limits", run: oldFetchLimits, weirOnly: notServed},
		{name: "K17-list-offsets-v0", run: oldListOffsets, weirOnly: notServed},
		{name: "old-admin", run: oldAdmin, weirOnly: notServed},
	}
}

func oldProduce(s *session) {
	t := s.topic("t")
	s.create(t, 1)
	two := []rec{kv("a", "1"), {ts: 2000, value: []byte("no key")}}
	for v := int16(0); v <= 2; v++ {
		for magic := int8(0); magic <= 1; magic++ {
			s.do(fmt.Sprintf("a message set of magic %d", magic), produce(-1, part{topic: t, records: messageSet(magic, two...)}), v)
			s.do(fmt.Sprintf("a gzip wrapper of magic %d", magic), produce(-1, part{topic: t, records: wrapped(magic, two...)}), v)
		}
		s.do("a record batch", produce(-1, part{topic: t, records: plain(two...)}), v)
		s.do("two record batches", produce(-1, part{topic: t, records: append(plain(two...), plain(two...)...)}), v)
		s.do("nothing in it", produce(-1, part{topic: t, records: []byte{}}), v)
	}
	s.do("how it is stored", fetch(0, 1, part{topic: t}), 4)
	u := s.topic("append-time")
	s.create(u, 1, "message.timestamp.type", "LogAppendTime")
	s.do("append time is told from v2 on", produce(-1, part{topic: u, records: messageSet(1, two...)}), 1)
	s.do("append time is told from v2 on", produce(-1, part{topic: u, records: messageSet(1, two...)}), 2)
	w := s.topic("gzip")
	s.create(w, 1, "compression.type", "gzip")
	s.do("into a compressed topic", produce(-1, part{topic: w, records: messageSet(1, two...)}), 2)
	s.do("how it is stored", fetch(0, 1, part{topic: w}), 4)
}

func oldProduceErrors(s *session) {
	t, c := s.topic("t"), s.topic("compacted")
	s.create(t, 1)
	s.create(c, 1, "cleanup.policy", "compact", "max.message.bytes", "200")
	for v := int16(0); v <= 2; v++ {
		bad := messageSet(1, kv("a", "1"))
		bad[12] ^= 1
		s.do("wrong CRC", produce(-1, part{topic: t, records: bad}), v)
		s.do("cut", produce(-1, part{topic: t, records: messageSet(1, kv("a", "1"))[:20]}), v)
		s.do("keyless to a compacted topic", produce(-1, part{topic: c, records: messageSet(1, rec{value: []byte("x")})}), v)
		s.do("too large", produce(-1, part{topic: c, records: messageSet(1, rec{key: []byte("k"), value: make([]byte, 300)})}), v)
		s.do("unknown topic and partition", produce(-1, part{topic: "no-such-topic", records: bad}, part{topic: t, n: 9, records: bad}), v)
		s.do("rubbish", produce(-1, part{topic: t, records: []byte("this is no message set at all, not even nearly")}), v)
	}
	s.note("log ends %d %d", s.logEnd(t, 0), s.logEnd(c, 0))
}

func oldFetch(s *session) {
	t := s.topic("t")
	s.create(t, 2)
	s.ask(produce(-1, part{topic: t, records: plain(rec{ts: 1000, key: []byte("a"), value: []byte("1"), headers: []batch.Header{{Key: []byte("h"), Value: []byte("v")}}}, rec{ts: 2000, value: []byte("2")})}), 9)
	for _, c := range []batch.Codec{batch.Gzip, batch.Snappy, batch.Lz4} {
		s.ask(produce(-1, part{topic: t, records: packed(c, kv("b", "3"), kv("c", "4"))}), 9)
	}
	for v := int16(0); v <= 3; v++ {
		s.do("two partitions, one of them empty", fetch(0, 1, part{topic: t}, part{topic: t, n: 1}), v)
		s.do("from inside a batch", fetch(0, 1, part{topic: t, offset: 3}), v)
		s.do("at the end, beyond, unknown", fetch(0, 1, part{topic: t, offset: 8}, part{topic: t, n: 1, offset: 5}, part{topic: t, n: 9}), v)
	}
	u := s.topic("zstd")
	s.create(u, 1)
	s.ask(produce(-1, part{topic: u, records: packed(batch.Zstd, kv("b", "3"))}), 9)
	for v := int16(0); v <= 3; v++ {
		s.do("a zstd batch", fetch(0, 1, part{topic: u}), v)
	}
}

// oldFetchLimits: before v3 a fetch may cut the first message (KIP-74).
func oldFetchLimits(s *session) {
	t := s.topic("t")
	s.create(t, 2)
	for p := range int32(2) {
		for range 3 {
			s.ask(produce(-1, part{topic: t, n: p, records: plain(rec{ts: 1000, value: make([]byte, 1000)})}), 9)
		}
	}
	for v := int16(0); v <= 3; v++ {
		for _, max := range []int32{1, 500, 1500, 2500} {
			s.sizes(fmt.Sprintf("partition max bytes %d", max), fetch(0, 1, part{topic: t, max: max}, part{topic: t, n: 1, max: max}), v)
		}
	}
}

func oldListOffsets(s *session) {
	t := s.topic("t")
	s.create(t, 1)
	s.do("an empty log, latest", listOffsets(t, 0, -1), 0)
	s.do("an empty log, earliest", listOffsets(t, 0, -2), 0)
	s.ask(produce(-1, part{topic: t, records: plain(kv("a", "1"), kv("a", "2"))}), 9)
	for _, ts := range []int64{-1, -2, 0, 4102444800000, -3, -99} {
		s.do(fmt.Sprintf("time %d", ts), listOffsets(t, 0, ts), 0)
	}
	one := listOffsets(t, 0, -1)
	one.Topics[0].Partitions[0].MaxNumOffsets = 1
	s.do("at most one", one, 0)
	one.Topics[0].Partitions[0].MaxNumOffsets = 0
	s.do("at most none", one, 0)
	s.do("unknown", listOffsets("no-such-topic", 0, -1), 0)
	s.do("unknown partition", listOffsets(t, 9, -1), 0)
}

func oldAdmin(s *session) {
	t := s.topic("t")
	for v := int16(0); v <= 1; v++ {
		s.do("create", createTopics(newTopic(fmt.Sprint(t, v), 1, 1), newTopic("bad name!", 1, 1)), v)
		s.do("create again", createTopics(newTopic(fmt.Sprint(t, v), 1, 1)), v)
	}
	del := kmsg.NewPtrDeleteTopicsRequest()
	del.TopicNames, del.TimeoutMillis = []string{t + "0", "no-such-topic"}, 5000
	s.do("delete", del, 0)
	name := t + "1"
	s.eventually("the topic leads", func() bool { return s.leads(name, 1) })
	s.do("describe", describeConfigs(kmsg.ConfigResourceTypeTopic, name, "retention.ms", "cleanup.policy"), 0)
	for v := int16(0); v <= 1; v++ {
		req := kmsg.NewPtrOffsetForLeaderEpochRequest()
		rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
		rt.Topic = name
		q := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
		q.CurrentLeaderEpoch = -1
		rt.Partitions = append(rt.Partitions, q)
		req.Topics = append(req.Topics, rt)
		s.do("epoch 0", req, v)
	}
	s.inDir(s.logDir("data-b"), name)
	s.show("log dirs", sortedDirs(s.ask(logDirs(name, 0), 0)))
	s.do("move", moveReplica(s.logDir("data-b"), name, 0), 0)
	d := kmsg.NewPtrDescribeACLsRequest()
	d.ResourceType, d.Operation, d.PermissionType = 1, 1, 1
	s.do("acls", d, 0)
	c := kmsg.NewPtrCreateACLsRequest()
	c.Creations = append(c.Creations, kmsg.NewCreateACLsRequestCreation())
	s.do("acls", c, 0)
	r := kmsg.NewPtrDeleteACLsRequest()
	r.Filters = append(r.Filters, kmsg.NewDeleteACLsRequestFilter())
	s.do("acls", r, 0)
}
