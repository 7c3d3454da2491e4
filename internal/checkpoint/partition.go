package checkpoint

import (
	"errors"
	"fmt"
	"strings"

	"weir/internal/uuid"
	"weir/internal/vfs"
)

// PartitionMetadata is the file partition.metadata of a partition's directory:
//
//	version: 0
//	topic_id: 5fecXuo1R1WmZeHmANZy6Q
type PartitionMetadata struct {
	Version int // 0
	TopicID uuid.UUID
}

// ReadPartitionMetadata reads a partition.metadata. The topic id is never zero.
func ReadPartitionMetadata(fsys vfs.FS, path string) (PartitionMetadata, error) {
	lines, err := readLines(fsys, path)
	if err != nil {
		return PartitionMetadata{}, err
	}
	value := func(i int, key string) (string, error) {
		if i >= len(lines) {
			return "", &Error{path, i + 1, fmt.Errorf("the line %q is missing", key+": …")}
		}
		k, v, ok := strings.Cut(lines[i], ":")
		if !ok || k != key {
			return "", &Error{path, i + 1, fmt.Errorf("the line %q was expected, not %s", key+": …", excerpt(lines[i]))}
		}
		return strings.TrimSpace(v), nil
	}
	version, err := value(0, "version")
	if err != nil {
		return PartitionMetadata{}, err
	}
	if version != "0" {
		return PartitionMetadata{}, &Error{path, 1, fmt.Errorf("version %s, only 0 is known", excerpt(version))}
	}
	text, err := value(1, "topic_id")
	if err != nil {
		return PartitionMetadata{}, err
	}
	id, err := uuid.Parse(text)
	if err != nil {
		return PartitionMetadata{}, &Error{path, 2, err}
	}
	if id.IsZero() {
		return PartitionMetadata{}, &Error{path, 2, errors.New("the topic id is zero")}
	}
	return PartitionMetadata{TopicID: id}, nil
}

// WritePartitionMetadata replaces a partition.metadata.
func WritePartitionMetadata(fsys vfs.FS, path string, m PartitionMetadata) error {
	return vfs.WriteFileAtomic(fsys, path, m.encode())
}

// StagePartitionMetadata prepares a partition.metadata beside its place, see vfs.WriteStaged.
func StagePartitionMetadata(fsys vfs.FS, path string, m PartitionMetadata) error {
	return vfs.WriteStaged(fsys, path, m.encode())
}

func (m PartitionMetadata) encode() []byte {
	return fmt.Appendf(nil, "version: %d\ntopic_id: %s", m.Version, m.TopicID)
}
