package consumer

import (
	"encoding/binary"
	"slices"
	"unicode/utf16"

	"github.com/zeebo/xxh3"

	"weir/internal/image"
)

// metadataHash is the hash of all topics that a group subscribes to and that exist
// (Kafka's Utils.computeGroupHash): it changes when one of them comes, goes, or
// changes its partitions or their racks. topics are the names, ascending.
//
//	8 bytes for each topic by name: its hash          XXH3, 64 bits, seed 0
//
// All numbers are little-endian.
func metadataHash(img *image.Image, topics []string) int64 {
	var buf []byte
	for _, name := range topics {
		if t, ok := img.Topic(name); ok {
			buf = binary.LittleEndian.AppendUint64(buf, topicHash(img, t))
		}
	}
	if len(buf) == 0 {
		return 0
	}
	return int64(xxh3.Hash(buf))
}

// topicHash is the hash of one topic (Kafka's Utils.computeTopicHash):
//
//	magic  int8 0 │ topic id, two int64 │ name │ partitions int32
//	then for each partition: its number int32 │ for each rack of its replicas,
//	sorted: length int32 │ rack
//
// A text is its UTF-16 units, and then their number, int32.
func topicHash(img *image.Image, t *image.Topic) uint64 {
	b := []byte{0}
	b = binary.LittleEndian.AppendUint64(b, binary.BigEndian.Uint64(t.ID[:8]))
	b = binary.LittleEndian.AppendUint64(b, binary.BigEndian.Uint64(t.ID[8:]))
	b, _ = appendText(b, t.Name)
	b = binary.LittleEndian.AppendUint32(b, uint32(t.NumPartitions()))
	for i, p := range t.Partitions() {
		b = binary.LittleEndian.AppendUint32(b, uint32(i))
		var racks []string
		for _, id := range p.Replicas {
			if broker, ok := img.Broker(id); ok && broker.Rack != nil {
				racks = append(racks, *broker.Rack)
			}
		}
		slices.Sort(racks)
		for _, r := range racks {
			text, units := appendText(nil, r)
			b = binary.LittleEndian.AppendUint32(b, uint32(units))
			b = append(b, text...)
		}
	}
	return xxh3.Hash(b)
}

func appendText(b []byte, s string) (text []byte, units int) {
	for _, u := range utf16.Encode([]rune(s)) {
		b = binary.LittleEndian.AppendUint16(b, u)
		units++
	}
	return binary.LittleEndian.AppendUint32(b, uint32(units)), units
}
