package wire

import (
	"bytes"
	"encoding/binary"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/batch"
)

func produceCases() []testCase {
	return []testCase{
		{name: "produce-versions", run: produceVersions},
		{name: "produce-errors", run: produceErrors},
		{name: "produce-log-append-time", run: produceLogAppendTime},
		{name: "produce-timestamps", run: produceTimestamps},
		{name: "produce-codecs", run: produceCodecs},
		{name: "produce-topic-compression", run: produceTopicCompression},
		{name: "produce-transactional", run: produceTransactional},
		{name: "produce-pipelined", run: producePipelined},
		{name: "K1-duplicates", run: duplicates},
		{name: "K1-producer-epochs", run: producerEpochs},
		{name: "K2-batches-per-partition", run: batchesPerPartition},
		{name: "K3-lying-headers", run: lyingHeaders},
		{name: "K4-keyless-compacted", run: keylessCompacted},
		{name: "K5-max-message-bytes", run: maxMessageBytes},
		{name: "K6-zstd-by-version", run: zstdByVersion},
		{name: "K7-acks-0", run: acksNone},
		{name: "K36-nulls-and-bytes", run: nullsAndBytes},
	}
}

func produceVersions(s *session) {
	t := s.topic("t")
	id := s.create(t, 2)
	for v := int16(3); v <= 13; v++ {
		s.do("one batch each to two partitions", produce(1,
			part{topic: t, id: id, n: 0, records: plain(kv("k", "v"), kv("k", "w"))}, part{topic: t, id: id, n: 1, records: plain(kv("k", "v"))}), v)
	}
	s.do("acks all", produce(-1, part{topic: t, id: id, records: plain(kv("k", "v"))}), 13)
	s.do("what is in it", fetch(0, 1, part{topic: t, id: id}), 13)
}

func produceErrors(s *session) {
	t := s.topic("t")
	id := s.create(t, 1)
	b := plain(kv("k", "v"))
	for _, v := range []int16{3, 7, 8, 9, 10, 12} {
		s.do("unknown topic", produce(1, part{topic: "no-such-topic", records: b}), v)
		s.do("unknown partition, then a good one", produce(1, part{topic: t, n: 7, records: b}, part{topic: t, records: b}), v)
		s.do("acks 2", produce(2, part{topic: t, records: b}), v)
		s.do("no topics", produce(1), v)
	}
	s.do("unknown id", produce(1, part{id: [16]byte{9, 9, 9}, records: b}), 13)
	s.do("zero id", produce(1, part{records: b}), 13)
	s.do("unknown partition by id", produce(1, part{id: id, n: 7, records: b}), 13)
	s.do("empty records", produce(1, part{topic: t, records: []byte{}}), 9)
	s.do("topic twice", produce(1, part{topic: t, records: plain(kv("k", "v"))}, part{topic: "no-such-topic", records: b}, part{topic: t, records: plain(kv("k", "v"))}), 9)
	s.do("partition twice", produce(1, part{topic: t, records: plain(kv("k", "v"))}, part{topic: t, records: plain(kv("k", "w"))}), 9)
	s.do("internal topic", produce(1, part{topic: "__consumer_offsets", records: b}), 9)
	control := batch.NewOptions()
	control.Control = true
	s.do("a control batch", produce(1, part{topic: t, records: batchOf(control, kv("k", "v"))}), 9)
	magic := plain(kv("k", "v"))
	magic[atMagic] = 1
	s.do("magic 1", produce(1, part{topic: t, records: magic}), 9)
	magic = plain(kv("k", "v"))
	magic[atMagic] = 3
	s.do("magic 3", produce(1, part{topic: t, records: magic}), 9)
	s.do("a message set", produce(1, part{topic: t, records: messageSet(1, kv("k", "v"))}), 3)
	s.note("log end %d", s.logEnd(t, 0))
}

func produceLogAppendTime(s *session) {
	t := s.topic("t")
	s.create(t, 1, "message.timestamp.type", "LogAppendTime")
	s.do("create time is replaced", produce(1, part{topic: t, records: plain(kv("k", "v"), kv("k", "w"))}), 9)
	s.do("compressed", produce(-1, part{topic: t, records: packed(batch.Gzip, kv("k", "v"))}), 3)
	o := batch.NewOptions()
	o.TimestampType, o.LogAppendMs = batch.LogAppendTime, 5
	s.do("the client sets it", produce(1, part{topic: t, records: batchOf(o, kv("k", "v"))}), 9)
	s.do("read back", fetch(0, 1, part{topic: t}), 11)
}

func produceTimestamps(s *session) {
	t := s.topic("t")
	s.create(t, 1, "message.timestamp.before.max.ms", "3600000", "message.timestamp.after.max.ms", "3600000")
	now := time.Now().UnixMilli()
	at := func(ts int64) []byte { return plain(rec{ts: now, value: []byte("v")}, rec{ts: ts, value: []byte("v")}) }
	s.do("in time", produce(1, part{topic: t, records: at(now)}), 9)
	s.hiding("ErrorRecords", "ErrorMessage") // they hold times
	s.do("too old", produce(1, part{topic: t, records: at(now - 7200_000)}), 9)
	s.do("too new", produce(1, part{topic: t, records: at(now + 7200_000)}), 9)
	s.do("none", produce(1, part{topic: t, records: at(-1)}), 9)
	s.note("log end %d", s.logEnd(t, 0))
}

// produceTransactional: a transaction that no coordinator knows of.
func produceTransactional(s *session) {
	t := s.topic("t")
	s.create(t, 1)
	o := batch.NewOptions()
	o.ProducerID, o.ProducerEpoch, o.BaseSequence, o.Transactional = s.producerID(), 0, 0, true
	for _, v := range []int16{8, 11, 12} {
		req := produce(-1, part{topic: t, records: batchOf(o, kv("k", "v"))})
		s.do("without a transactional id", req, v)
	}
	s.note("log end %d", s.logEnd(t, 0))
}

func produceCodecs(s *session) {
	t := s.topic("t")
	s.create(t, 1)
	for _, c := range []batch.Codec{batch.Gzip, batch.Snappy, batch.Lz4, batch.Zstd} {
		s.do(c.String(), produce(1, part{topic: t, records: packed(c, kv("k", "v"), kv("k", "w"))}), 9)
	}
	res := s.ask(fetch(0, 1, part{topic: t}), 12).(*kmsg.FetchResponse)
	raw := res.Topics[0].Partitions[0].RecordBatches
	for len(raw) > 0 {
		b, rest, err := batch.Next(raw)
		if err != nil {
			s.Fatal(err)
		}
		raw = rest
		sent := batch.Batch(packed(b.Codec(), kv("k", "v"), kv("k", "w")))
		s.note("%s is stored as it was sent: %t", b.Codec(), bytes.Equal(b[atMagic+5:], sent[atMagic+5:]))
	}
}

func produceTopicCompression(s *session) {
	for _, c := range []string{"uncompressed", "gzip", "snappy", "lz4", "zstd"} {
		t := s.topic(c)
		s.create(t, 1, "compression.type", c)
		s.do("plain", produce(1, part{topic: t, records: plain(kv("k", "v"))}), 9)
		s.do("snappy", produce(1, part{topic: t, records: packed(batch.Snappy, kv("k", "v"))}), 9)
		res := s.ask(fetch(0, 1, part{topic: t}), 12).(*kmsg.FetchResponse)
		for raw := res.Topics[0].Partitions[0].RecordBatches; len(raw) > 0; {
			b, rest, err := batch.Next(raw)
			if err != nil {
				s.Fatal(err)
			}
			raw = rest
			s.note("%d: %s, %d records", b.BaseOffset(), b.Codec(), b.Count())
		}
	}
}

// producePipelined sends many requests before it reads the first answer.
func producePipelined(s *session) {
	t := s.topic("t")
	s.create(t, 1)
	c := s.dial()
	var reqs []kmsg.Request
	for i := range 20 {
		var req kmsg.Request = produce([]int16{-1, 1}[i%2], part{topic: t, records: plain(kv("k", "v"))})
		if i%7 == 6 {
			req = listOffsets(t, 0, -1)
			req.SetVersion(7)
		} else {
			req.SetVersion(9)
		}
		reqs = append(reqs, req)
	}
	var all []byte
	for _, r := range reqs {
		all = append(all, c.frame(r)...)
	}
	if _, err := c.Write(all); err != nil {
		s.Fatal(err)
	}
	for i, r := range reqs {
		res, err := c.receive(r, int32(i+1))
		if err != nil {
			s.Fatal(err)
		}
		s.show("answer in order", res)
	}
}

func (s *session) producerID() int64 {
	s.Helper()
	req := kmsg.NewPtrInitProducerIDRequest()
	req.ProducerID, req.ProducerEpoch = -1, -1
	var res *kmsg.InitProducerIDResponse
	s.eventually("there are producer ids", func() bool {
		res = s.ask(req, 4).(*kmsg.InitProducerIDResponse)
		return res.ErrorCode == 0
	})
	return res.ProducerID
}

func duplicates(s *session) {
	t := s.topic("t")
	s.create(t, 1)
	id := s.producerID()
	send := func(what string, seq int32, n int) {
		recs := make([]rec, n)
		for i := range recs {
			recs[i] = kv("k", "v")
		}
		s.do(what, produce(-1, part{topic: t, records: sequenced(id, 0, seq, recs...)}), 9)
	}
	for i := range int32(7) {
		send("batch of two", 2*i, 2)
	}
	s.note("log end %d", s.logEnd(t, 0))
	for i := range int32(7) {
		send("the same again", 2*i, 2)
	}
	send("a part of one", 12, 1)
	send("a gap", 20, 1)
	send("the next", 14, 1)
	s.note("log end %d", s.logEnd(t, 0))
	other := s.producerID()
	s.do("an unknown producer in the middle", produce(-1, part{topic: t, records: sequenced(other, 0, 5, kv("k", "v"))}), 9)
	s.do("then from the start", produce(-1, part{topic: t, records: sequenced(other, 0, 0, kv("k", "v"))}), 9)
	s.note("log end %d", s.logEnd(t, 0))
}

func producerEpochs(s *session) {
	t := s.topic("t")
	s.create(t, 1)
	id := s.producerID()
	send := func(what string, epoch int16, seq int32) {
		s.do(what, produce(-1, part{topic: t, records: sequenced(id, epoch, seq, kv("k", "v"))}), 9)
	}
	send("epoch 0", 0, 0)
	send("epoch 0", 0, 1)
	send("a new epoch does not begin at 0", 1, 2)
	send("a new epoch", 1, 0)
	send("the old epoch", 0, 2)
	send("the old epoch, a duplicate", 0, 1)
	send("the new epoch goes on", 1, 1)
	send("negative epoch", -1, 2)
	send("negative sequence", 1, -1)
	s.note("log end %d", s.logEnd(t, 0))
	wrap := s.producerID()
	s.do("the last sequence number, first of its producer", produce(-1, part{topic: t, records: sequenced(wrap, 0, 2147483646, kv("k", "v"))}), 9)
	req := kmsg.NewPtrDescribeProducersRequest()
	dt := kmsg.NewDescribeProducersRequestTopic()
	dt.Topic, dt.Partitions = t, []int32{0, 5}
	req.Topics = append(req.Topics, dt)
	s.do("its producers", req, 0)
}

func batchesPerPartition(s *session) {
	t := s.topic("t")
	s.create(t, 3)
	two := append(plain(kv("a", "1")), plain(kv("b", "2"))...)
	for _, v := range []int16{3, 8, 12} {
		s.do("two batches, none, one", produce(-1, part{topic: t, n: 0, records: two}, part{topic: t, n: 1, records: []byte{}}, part{topic: t, n: 2, records: plain(kv("c", "3"))}), v)
	}
	s.note("log ends %d %d %d", s.logEnd(t, 0), s.logEnd(t, 1), s.logEnd(t, 2))
}

func lyingHeaders(s *session) {
	t := s.topic("t")
	s.create(t, 1)
	lie := func(what string, b []byte, fix bool, change func(b []byte)) {
		b = clone(b)
		change(b)
		if fix {
			fixCRC(b)
		}
		s.do(what, produce(-1, part{topic: t, records: b}), 9)
	}
	three := plain(kv("a", "1"), kv("b", "2"), kv("c", "3"))
	put := func(at int, v uint32) func([]byte) { return func(b []byte) { binary.BigEndian.PutUint32(b[at:], v) } }
	lie("wrong CRC", three, false, func(b []byte) { b[17] ^= 1 })
	lie("flipped bit in a record", three, false, func(b []byte) { b[70] ^= 1 })
	lie("last offset delta too large", three, true, put(atLastOffsetDelta, 7))
	lie("last offset delta negative", three, true, put(atLastOffsetDelta, 0xffffffff))
	lie("count too small", three, true, put(atCount, 2))
	lie("count and delta too small", three, true, func(b []byte) { put(atCount, 2)(b); put(atLastOffsetDelta, 1)(b) })
	lie("count and delta too large", three, true, func(b []byte) { put(atCount, 4)(b); put(atLastOffsetDelta, 3)(b) })
	lie("count negative", three, true, put(atCount, 0xffffffff))
	lie("count 0", three, true, put(atCount, 0))
	lie("length too large", three, true, put(atLength, uint32(len(three))))
	lie("length too small", three, true, put(atLength, uint32(len(three)-13)))
	lie("length negative", three, false, put(atLength, 0xffffffff))
	lie("an unknown codec", three, true, func(b []byte) { b[atAttributes+1] = 7 })
	lie("not gzip", three, true, func(b []byte) { b[atAttributes+1] = 1 })
	lie("not zstd", three, true, func(b []byte) { b[atAttributes+1] = 4 })
	s.do("cut", produce(-1, part{topic: t, records: three[:len(three)-5]}), 9)
	s.do("cut in the header", produce(-1, part{topic: t, records: three[:30]}), 9)
	s.do("the connection still works", produce(-1, part{topic: t, records: three}), 9)
	s.note("log end %d", s.logEnd(t, 0))
}

func keylessCompacted(s *session) {
	t := s.topic("t")
	s.create(t, 1, "cleanup.policy", "compact")
	b := plain(kv("a", "1"), rec{ts: 1000, value: []byte("2")}, kv("c", "3"))
	for _, v := range []int16{3, 7, 8, 9} {
		s.do("the middle one has no key", produce(-1, part{topic: t, records: clone(b)}), v)
	}
	s.do("compressed", produce(-1, part{topic: t, records: packed(batch.Gzip, kv("a", "1"), rec{ts: 1000, value: []byte("2")}, rec{ts: 1000, value: []byte("3")})}), 9)
	s.do("an empty key is a key", produce(-1, part{topic: t, records: plain(rec{ts: 1000, key: []byte{}, value: []byte("1")})}), 9)
	s.do("null value", produce(-1, part{topic: t, records: plain(rec{ts: 1000, key: []byte("k")})}), 9)
	s.note("log end %d", s.logEnd(t, 0))
}

func maxMessageBytes(s *session) {
	t := s.topic("t")
	s.create(t, 1, "max.message.bytes", "51200")
	zeros := make([]byte, 10<<20)
	s.do("10 MiB", produce(-1, part{topic: t, records: plain(rec{ts: 1000, value: zeros})}), 9)
	s.do("10 MiB of zeros in gzip", produce(-1, part{topic: t, records: packed(batch.Gzip, rec{ts: 1000, value: zeros})}), 9)
	exact := func(n int) []byte {
		b := plain(rec{ts: 1000, value: make([]byte, n)})
		return plain(rec{ts: 1000, value: make([]byte, n-(len(b)-n))})
	}
	s.note("%d bytes", len(exact(51200)))
	s.do("exactly the limit", produce(-1, part{topic: t, records: exact(51200)}), 9)
	s.note("%d bytes", len(exact(51201)))
	s.do("one more", produce(-1, part{topic: t, records: exact(51201)}), 9)
	u := s.topic("small-segments")
	s.create(u, 1, "segment.bytes", "1048576", "max.message.bytes", "5000000")
	s.do("larger than a segment", produce(-1, part{topic: u, records: plain(rec{ts: 1000, value: zeros[:2<<20]})}), 9)
	s.note("log ends %d %d", s.logEnd(t, 0), s.logEnd(u, 0))
}

func zstdByVersion(s *session) {
	t := s.topic("t")
	s.create(t, 1)
	for _, v := range []int16{3, 6, 7} {
		s.do("zstd", produce(-1, part{topic: t, records: packed(batch.Zstd, kv("k", "v"))}), v)
	}
	u := s.topic("zstd")
	s.create(u, 1, "compression.type", "zstd")
	s.do("recompressed", produce(-1, part{topic: u, records: plain(kv("k", "v"))}), 3)
	s.hiding("RecordBatches")
	for _, v := range []int16{4, 9, 10} {
		s.do("a topic of zstd and one that holds a zstd batch", fetch(0, 1, part{topic: u}, part{topic: t}), v)
	}
}

func acksNone(s *session) {
	t := s.topic("t")
	s.create(t, 1)
	c := s.dial()
	var all []byte
	none := produce(0, part{topic: t, records: plain(kv("k", "v"))})
	none.SetVersion(9)
	offsets := listOffsets(t, 0, -1)
	offsets.SetVersion(7)
	all = append(c.frame(none), c.frame(offsets)...)
	if _, err := c.Write(all); err != nil {
		s.Fatal(err)
	}
	res, err := c.receive(offsets, 2)
	if err != nil {
		s.Fatal(err)
	}
	s.show("no answer to acks=0, the next one is not shifted", res)
	bad := produce(0, part{topic: "no-such-topic", records: plain(kv("k", "v"))})
	bad.SetVersion(9)
	if _, err := c.Write(append(c.frame(bad), c.frame(offsets)...)); err != nil {
		s.Fatal(err)
	}
	closed, err := c.closedByPeer(5 * time.Second)
	s.note("acks=0 to an unknown topic: closed=%t err=%v", closed, err)
	c = s.dial()
	dup := produce(0, part{topic: t, records: append(plain(kv("a", "1")), plain(kv("b", "2"))...)})
	dup.SetVersion(9)
	if _, err := c.send(dup); err != nil {
		s.Fatal(err)
	}
	closed, err = c.closedByPeer(5 * time.Second)
	s.note("acks=0 with two batches: closed=%t err=%v", closed, err)
	s.note("log end %d", s.logEnd(t, 0))
}

func nullsAndBytes(s *session) {
	t := s.topic("t")
	s.create(t, 1)
	odd := rec{ts: 1000, key: []byte{0xff, 0xfe, 0}, value: []byte{0xc3, 0x28}, headers: []batch.Header{
		{Key: []byte("h"), Value: nil}, {Key: []byte("h"), Value: []byte{}}, {Key: []byte(""), Value: []byte("x")}, {Key: []byte("h"), Value: []byte("again")},
	}}
	recs := []rec{{ts: 1000}, {ts: 1000, key: []byte{}}, {ts: 1000, value: []byte{}}, {ts: 1000, key: []byte{}, value: []byte{}}, odd}
	for _, c := range []batch.Codec{batch.None, batch.Gzip, batch.Snappy, batch.Lz4, batch.Zstd} {
		s.ask(produce(-1, part{topic: t, records: packed(c, recs...)}), 9)
	}
	u := s.topic("recompressed")
	s.create(u, 1, "compression.type", "lz4")
	s.ask(produce(-1, part{topic: u, records: plain(recs...)}), 9)
	res := s.ask(fetch(0, 1, part{topic: t}, part{topic: u}), 12).(*kmsg.FetchResponse)
	p := printer{out: &s.out, names: s.names, since: s.since}
	for _, ft := range res.Topics {
		for raw := ft.Partitions[0].RecordBatches; len(raw) > 0; {
			b, rest, err := batch.Next(raw)
			if err != nil {
				s.Fatal(err)
			}
			raw = rest
			s.note("%s", b.Codec())
			for r, err := range b.Records(new(batch.Buffers)) {
				if err != nil {
					s.Fatal(err)
				}
				s.note("  %s %s", p.value(r.Key), p.value(r.Value))
				for _, h := range r.Headers {
					s.note("    %q=%s", h.Key, p.value(h.Value))
				}
			}
		}
	}
}
