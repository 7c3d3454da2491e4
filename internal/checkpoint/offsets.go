package checkpoint

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"weir/internal/vfs"
)

// TopicPartition names a partition.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// String is Kafka's form, which is also the name of the partition's directory.
func (p TopicPartition) String() string { return fmt.Sprintf("%s-%d", p.Topic, p.Partition) }

// Compare orders by topic, then by number.
func (p TopicPartition) Compare(q TopicPartition) int {
	return cmp.Or(cmp.Compare(p.Topic, q.Topic), cmp.Compare(p.Partition, q.Partition))
}

// Offsets is one offset for each partition of a directory (Kafka's OffsetCheckpointFile).
type Offsets map[TopicPartition]int64

// ReadOffsets reads one of the offset tables.
func ReadOffsets(fsys vfs.FS, path string) (Offsets, error) {
	out := Offsets{}
	err := readTable(fsys, path, 3, func(f []string) error {
		partition, err := strconv.ParseInt(f[1], 10, 32)
		if err != nil || partition < 0 {
			return errors.New("no valid partition")
		}
		offset, err := strconv.ParseInt(f[2], 10, 64)
		if err != nil {
			return errors.New("no valid offset")
		}
		out[TopicPartition{f[0], int32(partition)}] = offset
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// WriteOffsets replaces one of the offset tables; entries stand in order.
func WriteOffsets(fsys vfs.FS, path string, o Offsets) error {
	keys := make([]TopicPartition, 0, len(o))
	for p := range o {
		keys = append(keys, p)
	}
	slices.SortFunc(keys, TopicPartition.Compare)
	var b []byte
	for _, p := range keys {
		b = fmt.Appendf(b, "%s %d %d\n", p.Topic, p.Partition, o[p])
	}
	return vfs.WriteFileAtomic(fsys, path, encodeTable(len(o), b))
}
