package wire

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func offsetCases() []testCase {
	return []testCase{
		{name: "list-offsets-versions", run: listOffsetsVersions},
		{name: "list-offsets-errors", run: listOffsetsErrors},
		{name: "K17-times", run: timeLookups},
		{name: "K18-negative-specials", run: negativeSpecials},
		{name: "K19-delete-records", run: deleteRecordsCase},
		{name: "K20-leader-epochs", run: leaderEpochs},
		{name: "init-producer-id", run: initProducerID},
	}
}

func listOffsetsVersions(s *session) {
	t := s.topic("t")
	s.create(t, 2)
	s.ask(produce(-1, part{topic: t, records: plain(kv("a", "1"), rec{ts: 5000}, rec{ts: 3000})}), 9)
	for v := int16(1); v <= 11; v++ {
		for _, ts := range []int64{-1, -2, -3, 0, 2000, 6000} {
			s.do(fmt.Sprintf("time %d", ts), listOffsets(t, 0, ts), v)
		}
		committed := listOffsets(t, 0, -1)
		committed.IsolationLevel = 1
		s.do("latest, read committed", committed, v)
		s.do("max timestamp of an empty partition", listOffsets(t, 1, -3), v)
		s.do("time in an empty partition", listOffsets(t, 1, 0), v)
	}
}

func listOffsetsErrors(s *session) {
	t := s.topic("t")
	s.create(t, 1)
	for _, v := range []int16{1, 4, 5, 7, 11} {
		s.do("unknown topic", listOffsets("no-such-topic", 0, -1), v)
		s.do("unknown partition", listOffsets(t, 9, -1), v)
		s.do("unknown partition, by time", listOffsets(t, 9, 5), v)
	}
	for _, e := range []int32{0, 1, -1, -2, 50} {
		req := listOffsets(t, 0, -1)
		req.Topics[0].Partitions[0].CurrentLeaderEpoch = e
		s.do(fmt.Sprintf("current leader epoch %d", e), req, 7)
	}
	debug := listOffsets(t, 0, -1)
	debug.ReplicaID = -2
	s.do("a debugging replica", debug, 7)
	replica := listOffsets(t, 0, -1)
	replica.ReplicaID = 9
	s.do("a replica", replica, 7)
	s.do("no topics", kmsg.NewPtrListOffsetsRequest(), 7)
}

func timeLookups(s *session) {
	for _, c := range []string{"producer", "gzip"} {
		t := s.topic(c)
		s.create(t, 1, "compression.type", c)
		s.ask(produce(-1, part{topic: t, records: plain(rec{ts: 2}, rec{ts: 4})}), 9)
		s.ask(produce(-1, part{topic: t, records: plain(rec{ts: 6}, rec{ts: 8})}), 9)
		for ts := int64(0); ts <= 9; ts++ {
			r := s.listOffset(t, 0, ts)
			s.note("%s time %d: offset %d timestamp %d epoch %d error %d", c, ts, r.Offset, r.Timestamp, r.LeaderEpoch, r.ErrorCode)
		}
		r := s.listOffset(t, 0, -3)
		s.note("%s max timestamp: offset %d timestamp %d epoch %d error %d", c, r.Offset, r.Timestamp, r.LeaderEpoch, r.ErrorCode)
	}
}

func negativeSpecials(s *session) {
	t := s.topic("t")
	s.create(t, 1)
	s.ask(produce(-1, part{topic: t, records: plain(kv("a", "1"), kv("a", "2"))}), 9)
	for v := int16(1); v <= 11; v++ {
		for _, ts := range []int64{-3, -4, -5, -6, -7, -99} {
			s.do(fmt.Sprintf("time %d", ts), listOffsets(t, 0, ts), v)
		}
	}
	for _, v := range []int16{1, 7, 11} {
		req := listOffsets(t, 0, -1)
		q := req.Topics[0].Partitions[0]
		q.Timestamp = -2
		req.Topics[0].Partitions = append(req.Topics[0].Partitions, q)
		s.do("a partition twice in one topic", req, v)
		req = listOffsets(t, 0, -1)
		req.Topics = append(req.Topics, req.Topics[0])
		s.do("a topic twice", req, v)
	}
}

// deleteRecords asks for one partition.
func deleteRecords(topic string, p int32, offset int64) *kmsg.DeleteRecordsRequest {
	req := kmsg.NewPtrDeleteRecordsRequest()
	t := kmsg.NewDeleteRecordsRequestTopic()
	t.Topic = topic
	q := kmsg.NewDeleteRecordsRequestTopicPartition()
	q.Partition, q.Offset = p, offset
	t.Partitions = append(t.Partitions, q)
	req.Topics, req.TimeoutMillis = append(req.Topics, t), 5000
	return req
}

func deleteRecordsCase(s *session) {
	for v := int16(0); v <= 2; v++ {
		t, u, w := s.topic(fmt.Sprint("t", v)), s.topic(fmt.Sprint("compacted", v)), s.topic(fmt.Sprint("both", v))
		s.create(t, 1)
		s.create(u, 1, "cleanup.policy", "compact")
		s.create(w, 1, "cleanup.policy", "compact,delete")
		for range 5 {
			s.ask(produce(-1, part{topic: t, records: plain(kv("a", "1"))}), 9)
		}
		s.ask(produce(-1, part{topic: u, records: plain(kv("a", "1"))}, part{topic: w, records: plain(kv("a", "1"))}), 9)
		s.do("up to 2", deleteRecords(t, 0, 2), v)
		s.do("up to 1, below the start", deleteRecords(t, 0, 1), v)
		s.do("beyond the high watermark", deleteRecords(t, 0, 6), v)
		s.do("-7", deleteRecords(t, 0, -7), v)
		s.do("compact only", deleteRecords(u, 0, 1), v)
		s.do("compact and delete", deleteRecords(w, 0, 1), v)
		s.do("unknown topic", deleteRecords("no-such-topic", 0, 1), v)
		s.do("unknown partition", deleteRecords(t, 9, 1), v)
		s.do("up to the high watermark", deleteRecords(t, 0, -1), v)
		s.do("again", deleteRecords(t, 0, -1), v)
		s.do("produce goes on at the end", produce(-1, part{topic: t, records: plain(kv("a", "1"))}), 9)
		s.do("earliest", listOffsets(t, 0, -2), 7)
	}
	internal := deleteRecords("__cluster_metadata", 0, 1)
	s.do("the metadata log", internal, 2)
	s.do("nothing", kmsg.NewPtrDeleteRecordsRequest(), 2)
}

func leaderEpochs(s *session) {
	t := s.topic("t")
	s.create(t, 1)
	s.ask(produce(-1, part{topic: t, records: plain(kv("a", "1"), kv("a", "2"))}), 9)
	ask := func(topic string, p, current, epoch int32) *kmsg.OffsetForLeaderEpochRequest {
		req := kmsg.NewPtrOffsetForLeaderEpochRequest()
		req.ReplicaID = -1
		rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
		rt.Topic = topic
		q := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
		q.Partition, q.CurrentLeaderEpoch, q.LeaderEpoch = p, current, epoch
		rt.Partitions = append(rt.Partitions, q)
		req.Topics = append(req.Topics, rt)
		return req
	}
	for v := int16(2); v <= 4; v++ {
		s.do("the present epoch", ask(t, 0, -1, 0), v)
		s.do("one never used", ask(t, 0, -1, 9), v)
		s.do("epoch -1", ask(t, 0, -1, -1), v)
		s.do("current epoch right", ask(t, 0, 0, 0), v)
		s.do("current epoch stale", ask(t, 0, -2, 0), v)
		s.do("current epoch in the future", ask(t, 0, 9, 0), v)
		s.do("unknown topic", ask("no-such-topic", 0, -1, 0), v)
		s.do("unknown partition", ask(t, 9, -1, 0), v)
	}
}

func initProducerID(s *session) {
	ask := func(id int64, epoch int16) *kmsg.InitProducerIDRequest {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.TransactionTimeoutMillis, req.ProducerID, req.ProducerEpoch = 60_000, id, epoch
		return req
	}
	s.producerID() // the first one of a node has to wait for a block of ids
	for v := int16(0); v <= 5; v++ {
		s.do("idempotent", ask(-1, -1), v)
	}
	for v := int16(3); v <= 5; v++ {
		s.do("with an id of before", ask(77, 3), v)
		s.do("id without epoch", ask(77, -1), v)
		s.do("epoch without id", ask(-1, 3), v)
	}
	empty := ask(-1, -1)
	empty.TransactionalID = ptr("")
	s.do("empty transactional id", empty, 4)
}
