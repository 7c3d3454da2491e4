package wire

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"hash/crc32"

	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/batch"
)

// rec is one record to produce; nil key and value are null.
type rec struct {
	ts         int64
	key, value []byte
	headers    []batch.Header
}

// kv is a record at a fixed old time, so that transcripts do not change.
func kv(key, value string) rec { return rec{ts: 1_000, key: []byte(key), value: []byte(value)} }

// batchOf makes one record batch v2.
func batchOf(o batch.Options, recs ...rec) []byte {
	b := batch.NewBuilder(o)
	for _, r := range recs {
		b.Append(r.ts, r.key, r.value, r.headers)
	}
	return b.Build()
}

// plain is a batch without producer and compression.
func plain(recs ...rec) []byte { return batchOf(batch.NewOptions(), recs...) }

// packed is plain, compressed.
func packed(c batch.Codec, recs ...rec) []byte {
	o := batch.NewOptions()
	o.Codec = c
	return batchOf(o, recs...)
}

// sequenced is a batch of an idempotent producer.
func sequenced(id int64, epoch int16, seq int32, recs ...rec) []byte {
	o := batch.NewOptions()
	o.ProducerID, o.ProducerEpoch, o.BaseSequence = id, epoch, seq
	return batchOf(o, recs...)
}

// fixCRC makes the checksum of a batch right again after it was tampered with.
func fixCRC(b []byte) []byte {
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

// Places in a batch's header.
const (
	atLength          = 8
	atMagic           = 16
	atAttributes      = 21
	atLastOffsetDelta = 23
	atCount           = 57
)

// message is one message of magic 0 or 1.
func message(magic int8, offset int64, codec byte, r rec) []byte {
	body := []byte{byte(magic), codec}
	if magic == 1 {
		body = binary.BigEndian.AppendUint64(body, uint64(r.ts))
	}
	for _, f := range [][]byte{r.key, r.value} {
		if f == nil {
			body = binary.BigEndian.AppendUint32(body, 0xffffffff)
			continue
		}
		body = binary.BigEndian.AppendUint32(body, uint32(len(f)))
		body = append(body, f...)
	}
	out := binary.BigEndian.AppendUint64(nil, uint64(offset))
	out = binary.BigEndian.AppendUint32(out, uint32(len(body)+4))
	out = binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(body))
	return append(out, body...)
}

// messageSet joins messages, with offsets from 0.
func messageSet(magic int8, recs ...rec) []byte {
	var out []byte
	for i, r := range recs {
		out = append(out, message(magic, int64(i), 0, r)...)
	}
	return out
}

// wrapped is a message set inside a gzip wrapper.
func wrapped(magic int8, recs ...rec) []byte {
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	if _, err := w.Write(messageSet(magic, recs...)); err != nil {
		panic(err)
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return message(magic, int64(len(recs)-1), 1, rec{ts: recs[len(recs)-1].ts, value: z.Bytes()})
}

// part names a partition in a request, by name and, for versions that want it, by id.
type part struct {
	topic   string
	id      [16]byte
	n       int32
	records []byte // Produce
	offset  int64  // Fetch
	max     int32  // Fetch: partition max bytes, 0 for 1 MiB
	epoch   int32  // current leader epoch, 0 for none
	last    *int32 // last fetched epoch
}

// produce writes to partitions; neighbours of one topic share an entry.
func produce(acks int16, parts ...part) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = acks, 10_000
	for _, p := range parts {
		if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != p.topic || req.Topics[n-1].TopicID != p.id {
			t := kmsg.NewProduceRequestTopic()
			t.Topic, t.TopicID = p.topic, p.id
			req.Topics = append(req.Topics, t)
		}
		q := kmsg.NewProduceRequestTopicPartition()
		q.Partition, q.Records = p.n, p.records
		t := &req.Topics[len(req.Topics)-1]
		t.Partitions = append(t.Partitions, q)
	}
	return req
}

// fetch reads partitions without a session; wait is in ms.
func fetch(wait, minBytes int32, parts ...part) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = wait, minBytes, 50<<20, -1
	for _, p := range parts {
		if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != p.topic || req.Topics[n-1].TopicID != p.id {
			t := kmsg.NewFetchRequestTopic()
			t.Topic, t.TopicID = p.topic, p.id
			req.Topics = append(req.Topics, t)
		}
		q := kmsg.NewFetchRequestTopicPartition()
		q.Partition, q.FetchOffset, q.PartitionMaxBytes, q.LogStartOffset = p.n, p.offset, 1<<20, -1
		q.CurrentLeaderEpoch, q.LastFetchedEpoch = -1, -1
		if p.max != 0 {
			q.PartitionMaxBytes = p.max
		}
		if p.epoch != 0 {
			q.CurrentLeaderEpoch = p.epoch
		}
		if p.last != nil {
			q.LastFetchedEpoch = *p.last
		}
		t := &req.Topics[len(req.Topics)-1]
		t.Partitions = append(t.Partitions, q)
	}
	return req
}

// session gives a fetch a place in a session.
func inSession(req *kmsg.FetchRequest, id, epoch int32) *kmsg.FetchRequest {
	req.SessionID, req.SessionEpoch = id, epoch
	return req
}

// forget takes partitions out of a session.
func forget(req *kmsg.FetchRequest, p part) *kmsg.FetchRequest {
	f := kmsg.NewFetchRequestForgottenTopic()
	f.Topic, f.TopicID, f.Partitions = p.topic, p.id, []int32{p.n}
	req.ForgottenTopics = append(req.ForgottenTopics, f)
	return req
}

// listOffsets asks for one partition.
func listOffsets(topic string, p int32, ts int64) *kmsg.ListOffsetsRequest {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID, req.TimeoutMillis = -1, 5000
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = topic
	q := kmsg.NewListOffsetsRequestTopicPartition()
	q.Partition, q.Timestamp, q.CurrentLeaderEpoch, q.MaxNumOffsets = p, ts, -1, 10
	t.Partitions = append(t.Partitions, q)
	req.Topics = append(req.Topics, t)
	return req
}

// metadata asks for topics by name; none is none, not all.
func metadata(topics ...string) *kmsg.MetadataRequest {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	for _, name := range topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = &name
		req.Topics = append(req.Topics, t)
	}
	return req
}

// clone copies bytes that are going to be changed.
func clone(b []byte) []byte { return append([]byte(nil), b...) }

func ptr[T any](v T) *T { return &v }
