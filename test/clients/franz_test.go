package clients

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"weir/test/testnode"
)

func codecOf(name string) kgo.CompressionCodec {
	switch name {
	case "gzip":
		return kgo.GzipCompression()
	case "snappy":
		return kgo.SnappyCompression()
	case "lz4":
		return kgo.Lz4Compression()
	case "zstd":
		return kgo.ZstdCompression()
	}
	return kgo.NoCompression()
}

func topic(t *testing.T, n *testnode.Node, name string, partitions int32, configs map[string]string) {
	t.Helper()
	c := map[string]*string{}
	for k, v := range configs {
		c[k] = &v
	}
	if _, err := n.Admin(t).CreateTopic(t.Context(), partitions, 1, c, name); err != nil {
		t.Fatal(err)
	}
}

// consume reads partitions by hand until there are so many records.
func consume(ctx context.Context, t *testing.T, n *testnode.Node, name string, partitions int32, want int, opts ...kgo.Opt) map[int32][]*kgo.Record {
	t.Helper()
	assign := map[int32]kgo.Offset{}
	for p := range partitions {
		assign[p] = kgo.NewOffset().AtStart()
	}
	c := n.Client(t, append([]kgo.Opt{kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{name: assign})}, opts...)...)
	out := map[int32][]*kgo.Record{}
	for got := 0; got < want; {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("%d of %d records: %v", got, want, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Offset != int64(len(out[r.Partition])) {
				t.Fatalf("%s-%d: offset %d after %d records", name, r.Partition, r.Offset, len(out[r.Partition]))
			}
			out[r.Partition] = append(out[r.Partition], r)
			got++
		})
	}
	return out
}

// TestFranz: the default, idempotent producer and a consumer of partitions, for every codec.
func TestFranz(t *testing.T) {
	n := start(t)
	each := testnode.Rounds(5_000, 200_000)
	for _, codec := range codecs() {
		t.Run(codec, func(t *testing.T) {
			const partitions = 5
			name := "franz-" + codec
			topic(t, n, name, partitions, nil)
			p := n.Client(t, kgo.ProducerBatchCompression(codecOf(codec)), kgo.RecordPartitioner(kgo.ManualPartitioner()))
			var failed error
			for i := range each {
				r := &kgo.Record{Topic: name, Partition: int32(i % partitions), Key: fmt.Append(nil, i), Value: fmt.Appendf(nil, "value %d", i),
					Headers: []kgo.RecordHeader{{Key: "n", Value: fmt.Append(nil, i)}, {Key: "null"}, {Key: "empty", Value: []byte{}}}}
				p.Produce(t.Context(), r, func(_ *kgo.Record, err error) {
					if err != nil {
						failed = err
					}
				})
			}
			if err := p.Flush(t.Context()); err != nil || failed != nil {
				t.Fatal(err, failed)
			}
			for p, records := range consume(t.Context(), t, n, name, partitions, each) {
				for k, r := range records {
					i := k*partitions + int(p)
					h := r.Headers
					if string(r.Key) != fmt.Sprint(i) || string(r.Value) != fmt.Sprintf("value %d", i) || len(h) != 3 ||
						string(h[0].Value) != fmt.Sprint(i) || h[1].Value != nil || h[2].Value == nil || len(h[2].Value) != 0 {
						t.Fatalf("partition %d record %d: %q %q %v", p, k, r.Key, r.Value, r.Headers)
					}
				}
			}
		})
	}
}

// TestFranzBigRecords: records of many megabytes, when the topic allows them.
func TestFranzBigRecords(t *testing.T) {
	n := start(t)
	const limit = 20 << 20
	topic(t, n, "big", 1, map[string]string{"max.message.bytes": fmt.Sprint(limit)})
	var sums [][32]byte
	for _, codec := range codecs() {
		p := n.Client(t, kgo.ProducerBatchCompression(codecOf(codec)), kgo.ProducerBatchMaxBytes(limit), kgo.BrokerMaxWriteBytes(4*limit), kgo.DefaultProduceTopic("big"))
		for i, size := range []int{1 << 20, 9 << 20, 15<<20 + 7} {
			value := bytes.Repeat(fmt.Appendf(nil, "%s %d ", codec, i), size/8)
			sums = append(sums, sha256.Sum256(value))
			if err := p.ProduceSync(t.Context(), kgo.SliceRecord(value)).FirstErr(); err != nil {
				t.Fatalf("%s, %d bytes: %v", codec, len(value), err)
			}
		}
	}
	got := consume(t.Context(), t, n, "big", 1, len(sums), kgo.FetchMaxPartitionBytes(1<<10), kgo.FetchMaxBytes(1<<10), kgo.BrokerMaxReadBytes(8*limit))
	for i, r := range got[0] {
		if sha256.Sum256(r.Value) != sums[i] {
			t.Errorf("record %d of %d bytes is not what was sent", i, len(r.Value))
		}
	}
}

// TestFranzRecompression: a topic with a codec of its own stores that, whatever the producer sends.
func TestFranzRecompression(t *testing.T) {
	n := start(t)
	for _, target := range []string{"uncompressed", "gzip", "snappy", "lz4", "zstd"} {
		name := "target-" + target
		topic(t, n, name, 1, map[string]string{"compression.type": target})
		want := 0
		for _, codec := range codecs() {
			p := n.Client(t, kgo.ProducerBatchCompression(codecOf(codec)), kgo.DefaultProduceTopic(name))
			for i := range 20 {
				if err := p.ProduceSync(t.Context(), kgo.StringRecord(fmt.Sprintf("%s %d", codec, i))).FirstErr(); err != nil {
					t.Fatal(err)
				}
				want++
			}
		}
		for i, r := range consume(t.Context(), t, n, name, 1, want)[0] {
			if string(r.Value) != fmt.Sprintf("%s %d", codecs()[i/20], i%20) {
				t.Fatalf("%s, record %d: %q", target, i, r.Value)
			}
			if got := r.Attrs.CompressionType(); got != map[string]uint8{"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}[target] {
				t.Fatalf("%s, record %d is stored with codec %d", target, i, got)
			}
		}
	}
	ends, err := n.Admin(t).ListEndOffsets(t.Context(), "target-zstd")
	if err != nil {
		t.Fatal(err)
	}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset != 100 {
			t.Errorf("%s-%d ends at %d", o.Topic, o.Partition, o.Offset)
		}
	})
}
