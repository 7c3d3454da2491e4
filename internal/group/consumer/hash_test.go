package consumer

import (
	"encoding/binary"
	"testing"

	"weir/internal/image"
	"weir/internal/records"
	"weir/internal/uuid"
)

// topicOf is a topic, with the replicas of its partitions.
type topicOf struct {
	name       string
	high, low  uint64
	partitions [][]int32
}

func imageOf(t *testing.T, racks []string, topics ...topicOf) *image.Image {
	t.Helper()
	d := image.NewDelta(image.New())
	add := func(r records.Metadata) {
		t.Helper()
		if err := d.Replay(records.Versioned{Record: r, Version: 0}); err != nil {
			t.Fatal(err)
		}
	}
	for i, r := range racks {
		b := records.NewRegisterBrokerRecord()
		b.BrokerID, b.Rack = int32(i+1), &r
		add(&b)
	}
	for _, x := range topics {
		var id uuid.UUID
		binary.BigEndian.PutUint64(id[:8], x.high)
		binary.BigEndian.PutUint64(id[8:], x.low)
		add(&records.TopicRecord{Name: x.name, TopicID: id})
		for i, replicas := range x.partitions {
			p := records.NewPartitionRecord()
			p.TopicID, p.PartitionID, p.Replicas, p.ISR, p.Leader = id, int32(i), replicas, replicas, replicas[0]
			add(&p)
		}
	}
	return d.Apply(image.Provenance{Offset: 1})
}

// The hashes are those that Apache Kafka 4.3.1's Utils.computeTopicHash and
// computeGroupHash give.
func TestMetadataHash(t *testing.T) {
	many := make([][]int32, 300)
	for i := range many {
		many[i] = []int32{9} // of which nothing is known
	}
	many[3] = []int32{4}
	img := imageOf(t, []string{"r1", "r2", "rack😀", "a"},
		topicOf{"foo", 0x0102030405060708, 0x1112131415161718, [][]int32{{9}}},
		topicOf{"bär", 0xfffffffffffffffb, 7, [][]int32{{2, 1}, {3}}},
		topicOf{"big", 1, 2, many})
	for name, want := range map[string]int64{"foo": 8963112548072796245, "bär": -7002147250347038417, "big": 4375071428512036174} {
		topic, _ := img.Topic(name)
		if got := int64(topicHash(img, topic)); got != want {
			t.Errorf("%s: %d, Apache Kafka %d", name, got, want)
		}
	}
	if got := metadataHash(img, []string{"big", "bär", "foo", "gone"}); got != -6315536634754973307 {
		t.Errorf("of all: %d", got)
	}
	if got := metadataHash(img, []string{"gone"}); got != 0 {
		t.Errorf("of none: %d", got)
	}
}
