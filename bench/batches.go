package bench

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/batch"
)

// load is what is sent: a topic's partitions get batches of equal records.
type load struct {
	valueBytes int // of a record, which has no key
	batchBytes int // of values in a batch, before compression
	codec      batch.Codec
	acks       int16
}

// javaBatch is batch.size of a Java producer.
const javaBatch = 16 << 10

func (l load) records() int { return max(1, l.batchBytes/l.valueBytes) }

// String names the load in the table.
func (l load) String() string {
	size := fmt.Sprintf("%d B", l.valueBytes)
	if l.valueBytes%1024 == 0 {
		size = fmt.Sprintf("%d KiB", l.valueBytes/1024)
	}
	acks := "all"
	if l.acks >= 0 {
		acks = fmt.Sprint(l.acks)
	}
	codec := "plain"
	if l.codec == batch.Lz4 {
		codec = "lz4"
	}
	return fmt.Sprintf("%s acks=%s %s", size, acks, codec)
}

// variants is how many different requests a producer takes turns with.
const variants = 4

// buildBatch makes one batch of an idempotent producer. The values look like log lines: lz4 makes about a third of them.
func (l load) buildBatch(dice *rand.Rand, producerID int64, epoch int16) []byte {
	o := batch.NewOptions()
	o.Codec, o.ProducerID, o.ProducerEpoch, o.BaseSequence = l.codec, producerID, epoch, 0
	b := batch.NewBuilder(o)
	now := time.Now().UnixMilli()
	value := make([]byte, 0, l.valueBytes+128)
	for range l.records() {
		value = value[:0]
		for len(value) < l.valueBytes {
			value = fmt.Appendf(value, `{"time":%d,"user":"%016x","path":"/shop/item/%d","status":200,"bytes":%d} `,
				now, dice.Uint64(), dice.IntN(100000), dice.IntN(1<<20))
		}
		b.Append(now, nil, value[:l.valueBytes], nil)
	}
	return bytes.Clone(b.Build())
}

// Offsets in a batch of what is patched before each send.
const (
	atCRC        = 17
	atAttributes = 21
	atSequence   = 53
)

// request is one encoded Produce request, to be sent many times.
type request struct {
	frame   []byte
	batches []placed
}

// placed is a batch within a request's frame.
type placed struct {
	partition int32
	bytes     []byte
}

// buildRequest encodes a request with one batch for each partition.
func (l load) buildRequest(f *kmsg.RequestFormatter, tp topic, partitions []int32, dice *rand.Rand, producerID int64, epoch int16) (*request, error) {
	req := kmsg.NewProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = produceVersion, l.acks, int32(patience/time.Millisecond)
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic = tp.name
	for _, p := range partitions {
		rp := kmsg.NewProduceRequestTopicPartition()
		rp.Partition, rp.Records = p, l.buildBatch(dice, producerID, epoch)
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	out := &request{frame: f.AppendRequest(nil, &req, 0)}
	at := 0
	for _, rp := range rt.Partitions {
		i := bytes.Index(out.frame[at:], rp.Records)
		if i < 0 {
			return nil, fmt.Errorf("the records of partition %d are not in the encoded request", rp.Partition)
		}
		out.batches = append(out.batches, placed{rp.Partition, out.frame[at+i : at+i+len(rp.Records)]})
		at += i + len(rp.Records)
	}
	return out, nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// patch writes the sequence number of the batch's first record.
func (p placed) patch(sequence int32) {
	binary.BigEndian.PutUint32(p.bytes[atSequence:], uint32(sequence))
	binary.BigEndian.PutUint32(p.bytes[atCRC:], crc32.Checksum(p.bytes[atAttributes:], castagnoli))
}
