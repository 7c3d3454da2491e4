package wire

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/batch"
)

func fetchCases() []testCase {
	return []testCase{
		{name: "fetch-versions", run: fetchVersions},
		{name: "fetch-errors", run: fetchErrors},
		{name: "fetch-isolation", run: fetchIsolation},
		{name: "fetch-many-partitions", run: fetchManyPartitions},
		{name: "fetch-long-poll", run: fetchLongPoll},
		{name: "fetch-leader-epochs", run: fetchLeaderEpochs},
		{name: "fetch-as-follower", run: fetchAsFollower},
		{name: "K9-first-batch-whole", run: firstBatchWhole},
		{name: "K10-cut-batches", run: cutBatches},
		{name: "K11-bounds", run: fetchBounds},
		{name: "K12-holes", run: holes, slow: true},
		{name: "K16-topic-ids", run: topicIDs},
	}
}

func fetchVersions(s *session) {
	t := s.topic("t")
	id := s.create(t, 2)
	s.ask(produce(-1, part{topic: t, records: plain(kv("a", "1"), kv("b", "2"))}), 9)
	s.ask(produce(-1, part{topic: t, records: packed(batch.Gzip, kv("c", "3"))}), 9)
	for v := int16(4); v <= 18; v++ {
		s.do("two partitions", fetch(0, 1, part{topic: t, id: id}, part{topic: t, id: id, n: 1}), v)
	}
	s.do("nothing asked", fetch(0, 1), 12)
}

func fetchErrors(s *session) {
	t := s.topic("t")
	id := s.create(t, 1)
	s.ask(produce(-1, part{topic: t, records: plain(kv("a", "1"))}), 9)
	for _, v := range []int16{4, 6, 7, 11, 12} {
		s.do("unknown topic, unknown partition, a good one", fetch(1000, 1, part{topic: "no-such-topic"}, part{topic: t, n: 9}, part{topic: t}), v)
	}
	for _, v := range []int16{13, 16, 18} {
		s.do("unknown id, unknown partition, a good one", fetch(1000, 1, part{id: [16]byte{9, 9}}, part{id: id, n: 9}, part{id: id}), v)
		s.do("zero id", fetch(1000, 1, part{}), v)
	}
	s.do("negative max bytes", func() *kmsg.FetchRequest { r := fetch(0, 1, part{topic: t}); r.MaxBytes = -1; return r }(), 12)
	s.do("negative partition max bytes", fetch(0, 1, part{topic: t, max: -1}), 12)
	s.do("negative wait", fetch(-5, 1, part{topic: t, offset: 1}), 12)
	s.do("negative offset", fetch(0, 1, part{topic: t, offset: -1}), 12)
	s.do("the same partition twice", fetch(0, 1, part{topic: t}, part{topic: t}), 12)
}

func fetchIsolation(s *session) {
	t := s.topic("t")
	s.create(t, 1)
	s.ask(produce(-1, part{topic: t, records: plain(kv("a", "1"))}), 9)
	for _, v := range []int16{4, 5, 11, 12} {
		for _, off := range []int64{0, 1} {
			req := fetch(0, 1, part{topic: t, offset: off})
			req.IsolationLevel = 1
			s.do(fmt.Sprintf("read committed at %d", off), req, v)
		}
	}
}

// fetchManyPartitions: which partitions get a share when the answer is full.
func fetchManyPartitions(s *session) {
	t := s.topic("t")
	s.create(t, 4)
	for p := range int32(4) {
		for i := range 3 {
			s.ask(produce(-1, part{topic: t, n: p, records: plain(rec{ts: 1000, key: []byte(fmt.Sprint(i)), value: make([]byte, 1000)})}), 9)
		}
	}
	for _, max := range []int32{1, 1000, 1100, 2500, 5000, 100_000} {
		req := fetch(0, 1, part{topic: t, n: 2}, part{topic: t, n: 0}, part{topic: t, n: 3}, part{topic: t, n: 1})
		req.MaxBytes = max
		s.sizes(fmt.Sprintf("max bytes %d", max), req, 12)
		req = fetch(0, 1, part{topic: t, n: 2, max: max}, part{topic: t, n: 0, max: max}, part{topic: t, n: 3, max: max}, part{topic: t, n: 1, max: max})
		s.sizes(fmt.Sprintf("partition max bytes %d", max), req, 12)
	}
}

// sizes notes how many bytes and whole batches each partition gets.
func (s *session) sizes(what string, req *kmsg.FetchRequest, v int16) {
	s.note("> %s · v%d", what, v)
	res := s.ask(req, v).(*kmsg.FetchResponse)
	for _, t := range res.Topics {
		for _, p := range t.Partitions {
			whole := 0
			for raw := p.RecordBatches; len(raw) > 0; whole++ {
				_, rest, err := batch.NextEntry(raw)
				if err != nil {
					break
				}
				raw = rest
			}
			s.note("  partition %d: %d bytes, %d whole, hw %d", p.Partition, len(p.RecordBatches), whole, p.HighWatermark)
		}
	}
}

// fetchLongPoll: a waiting fetch ends with the record, not with its time.
func fetchLongPoll(s *session) {
	t := s.topic("t")
	id := s.create(t, 2)
	waits := func(what string, req *kmsg.FetchRequest, v int16, while func()) {
		c := s.dial()
		req.SetVersion(v)
		start := time.Now()
		n, err := c.send(req)
		if err != nil {
			s.Fatal(err)
		}
		time.Sleep(150 * time.Millisecond) // the request must have begun to wait, which nothing tells
		began := time.Now()
		while()
		res, err := c.receive(req, n)
		if err != nil {
			s.Fatal(err)
		}
		s.show(what, res)
		s.note("  waited: %t, woken at once: %t", time.Since(start) > 140*time.Millisecond, time.Since(began) < 2*time.Second)
	}
	one := func() { s.ask(produce(1, part{topic: t, n: 1, records: plain(kv("a", "1"))}), 9) }
	waits("a record comes", fetch(10_000, 1, part{topic: t, id: id}, part{topic: t, id: id, n: 1}), 13, one)
	waits("one more record is too few for min bytes", fetch(700, 100_000, part{topic: t, id: id, n: 1, offset: 1}), 13, one)
	waits("without a session", fetch(5000, 1, part{topic: t, n: 1, offset: 2}), 4, one)
	waits("nothing comes", fetch(300, 1, part{topic: t}), 12, func() {})
	waits("there is enough", fetch(5000, 1, part{topic: t, n: 1}), 12, func() {})
	waits("an error does not wait", fetch(5000, 1, part{topic: t, n: 9}), 12, func() {})
	waits("the topic is deleted", fetch(5000, 1, part{topic: t}), 12, func() {
		req := kmsg.NewPtrDeleteTopicsRequest()
		req.TopicNames, req.TimeoutMillis = []string{t}, 5000
		s.ask(req, 5)
	})
}

func fetchLeaderEpochs(s *session) {
	t := s.topic("t")
	id := s.create(t, 1)
	s.ask(produce(-1, part{topic: t, records: plain(kv("a", "1"), kv("b", "2"))}), 9)
	for _, v := range []int16{9, 12, 16} {
		s.do("a future leader epoch", fetch(500, 1, part{topic: t, id: id, epoch: 9}), v)
		s.do("a stale one", fetch(500, 1, part{topic: t, id: id, epoch: -2}), v)
	}
	s.do("the last fetched epoch is unknown here", fetch(500, 1, part{topic: t, offset: 1, last: ptr[int32](7)}), 12)
	s.do("it is the present one, offset at the end", fetch(0, 1, part{topic: t, offset: 2, last: ptr[int32](0)}), 12)
	s.do("it is the present one, offset beyond", fetch(0, 1, part{topic: t, offset: 3, last: ptr[int32](0)}), 12)
}

// fetchAsFollower: requests of a replica that is none.
func fetchAsFollower(s *session) {
	t := s.topic("t")
	id := s.create(t, 1)
	s.ask(produce(-1, part{topic: t, records: plain(kv("a", "1"))}), 9)
	as := func(replica int32, v int16) *kmsg.FetchRequest {
		req := fetch(0, 1, part{topic: t, id: id})
		if req.ReplicaID = replica; v >= 15 { // the state is a tagged field that older versions refuse
			req.ReplicaState.ID, req.ReplicaState.Epoch = replica, 5
		}
		return req
	}
	for _, v := range []int16{4, 11, 12, 13, 15, 17} {
		s.do("no replica of this partition", as(7, v), v)
		s.do("this broker itself", as(1, v), v)
		s.do("a debugging consumer", as(-2, v), v)
	}
}

func firstBatchWhole(s *session) {
	t := s.topic("t")
	s.create(t, 4)
	big := rec{ts: 1000, value: make([]byte, 5000)}
	for _, p := range []int32{1, 2} {
		s.ask(produce(-1, part{topic: t, n: p, records: plain(big)}), 9)
		s.ask(produce(-1, part{topic: t, n: p, records: plain(big)}), 9)
	}
	for _, v := range []int16{4, 6, 7, 12} {
		req := fetch(0, 1, part{topic: t, n: 3, max: 1}, part{topic: t, n: 2, max: 1}, part{topic: t, n: 1, max: 1}, part{topic: t, n: 0, max: 1})
		req.MaxBytes = 1
		s.sizes("in request order, max bytes 1", req, v)
		req = fetch(0, 1, part{topic: t, n: 0}, part{topic: t, n: 1}, part{topic: t, n: 2})
		req.MaxBytes = 0
		s.sizes("max bytes 0", req, v)
	}
}

func cutBatches(s *session) {
	t := s.topic("t")
	s.create(t, 1)
	for range 3 {
		s.ask(produce(-1, part{topic: t, records: plain(rec{ts: 1000, value: make([]byte, 1000)})}), 9)
	}
	for _, max := range []int32{10, 1000, 1500, 2200} {
		res := s.ask(fetch(0, 1, part{topic: t, max: max}), 12).(*kmsg.FetchResponse)
		b, _, err := batch.NextEntry(res.Topics[0].Partitions[0].RecordBatches)
		s.note("%d bytes asked: the first batch is whole: %t %t", max, err == nil, err == nil && b.LastOffset() == 0)
	}
}

func fetchBounds(s *session) {
	t := s.topic("t")
	s.create(t, 1)
	for range 4 {
		s.ask(produce(-1, part{topic: t, records: plain(kv("a", "1"))}), 9)
	}
	del := kmsg.NewPtrDeleteRecordsRequest()
	dt := kmsg.NewDeleteRecordsRequestTopic()
	dt.Topic = t
	dp := kmsg.NewDeleteRecordsRequestTopicPartition()
	dp.Offset = 2
	dt.Partitions = append(dt.Partitions, dp)
	del.Topics, del.TimeoutMillis = append(del.Topics, dt), 5000
	s.ask(del, 2)
	for _, v := range []int16{4, 5, 11, 12} {
		for _, off := range []int64{0, 1, 2, 4, 5, 1 << 40} {
			s.do(fmt.Sprintf("at %d of 2–4", off), fetch(0, 1, part{topic: t, offset: off}), v)
		}
	}
}

// holes: offsets that compaction has removed still answer with what follows.
func holes(s *session) {
	t := s.topic("t")
	s.create(t, 1, "cleanup.policy", "compact", "segment.bytes", "1048576", "min.cleanable.dirty.ratio", "0.01", "segment.ms", "1000", "max.compaction.lag.ms", "1000", "delete.retention.ms", "0")
	now := time.Now().UnixMilli()
	for i := range 20 {
		s.ask(produce(-1, part{topic: t, records: plain(rec{ts: now, key: []byte("same"), value: []byte(fmt.Sprint(i))})}), 9)
	}
	s.ask(produce(-1, part{topic: t, records: plain(rec{ts: now + 2000, key: []byte("last")})}), 9) // rolls the segment
	first := func(at int64) string {
		res := s.ask(fetch(0, 1, part{topic: t, offset: at}), 12).(*kmsg.FetchResponse).Topics[0].Partitions[0]
		b, _, err := batch.Next(res.RecordBatches)
		if err != nil {
			return fmt.Sprintf("error %d, %d bytes", res.ErrorCode, len(res.RecordBatches))
		}
		return fmt.Sprintf("error %d, batch %d–%d", res.ErrorCode, b.BaseOffset(), b.LastOffset())
	}
	s.eventually("the log is compacted", func() bool { return first(0) == "error 0, batch 19–19" })
	for _, off := range []int64{0, 5, 18, 19, 20, 21} {
		s.note("at %d: %s", off, first(off))
	}
}

func topicIDs(s *session) {
	t := s.topic("t")
	id := s.create(t, 1)
	for _, v := range []int16{9, 10, 12, 13} {
		s.hiding("Brokers", "LeaderEpoch").do("metadata tells the id", metadata(t), v)
	}
	s.do("produce by id", produce(-1, part{id: id, records: plain(kv("a", "1"))}), 13)
	s.do("fetch by id", fetch(0, 1, part{id: id}), 13)
	del := kmsg.NewPtrDeleteTopicsRequest()
	dt := kmsg.NewDeleteTopicsRequestTopic()
	dt.TopicID = id
	del.Topics, del.TimeoutMillis = append(del.Topics, dt), 5000
	s.do("delete by id", del, 6)
	s.eventually("the topic is gone", func() bool {
		return s.ask(metadata(t), 9).(*kmsg.MetadataResponse).Topics[0].ErrorCode != 0 && s.listOffset(t, 0, -1).ErrorCode != 0
	})
	next := s.create(t, 1)
	s.note("another id: %t", next != id)
	s.do("produce by the old id", produce(-1, part{id: id, records: plain(kv("a", "1"))}), 13)
	s.do("fetch by the old id", fetch(500, 1, part{id: id}), 13)
	s.do("fetch by the new id", fetch(0, 1, part{id: next}), 13)
	byID := metadata()
	for _, x := range [][16]byte{id, next} {
		mt := kmsg.NewMetadataRequestTopic()
		mt.TopicID = x
		byID.Topics = append(byID.Topics, mt)
	}
	s.do("metadata by both", byID, 12)
}
