package storage

import (
	"encoding/hex"
	"fmt"
	"io"
	"strconv"
	"strings"

	"weir/internal/uuid"
)

// Kind is what the suffix of a log's directory says.
type Kind uint8

// The kinds of directories.
const (
	Current Kind = iota // TOPIC-PARTITION
	Future              // TOPIC-PARTITION.UUID-future: being copied from another log directory
	Deleted             // TOPIC-PARTITION.UUID-delete: to be removed
	Stray               // TOPIC-PARTITION.UUID-stray: known to no cluster metadata, kept for the operator
)

var suffixes = [...]string{Current: "", Future: "-future", Deleted: "-delete", Stray: "-stray"}

func (k Kind) String() string {
	return [...]string{Current: "current", Future: "future", Deleted: "deleted", Stray: "stray"}[k]
}

// maxDirName is the limit of file systems on a name.
const maxDirName = 255

// DirName is the directory name of a partition.
func DirName(topic string, partition int32) string {
	return topic + "-" + strconv.Itoa(int(partition))
}

// RenamedDirName is the directory name of a partition's log of another kind,
// with a fresh UUID from rand. As in Kafka, deleted ones shorten the topic so
// that the name fits 255 bytes; the others are refused by the file system.
func RenamedDirName(topic string, partition int32, kind Kind, rand io.Reader) string {
	u := uuid.Random(rand)
	unique := "." + hex.EncodeToString(u[:]) + suffixes[kind]
	name := "-" + strconv.Itoa(int(partition)) + unique
	if kind == Deleted || kind == Stray {
		if room := maxDirName - len(name); len(topic) > room {
			topic = topic[:room]
		}
	}
	return topic + name
}

// ParseDirName splits a directory name. It fails on names that no log has; a
// directory with such a name is left alone.
func ParseDirName(name string) (topic string, partition int32, kind Kind, err error) {
	base := name
	for k := Future; k <= Stray; k++ {
		if rest, ok := strings.CutSuffix(name, suffixes[k]); ok {
			dot := strings.LastIndexByte(rest, '.')
			if dot < 0 || len(rest)-dot-1 != 2*len(uuid.UUID{}) {
				break
			}
			if _, err := hex.DecodeString(rest[dot+1:]); err != nil {
				break
			}
			kind, base = k, rest[:dot]
			break
		}
	}
	dash := strings.LastIndexByte(base, '-')
	if dash <= 0 {
		return "", 0, 0, fmt.Errorf("directory %q is not named TOPIC-PARTITION", name)
	}
	p, err := strconv.ParseInt(base[dash+1:], 10, 32)
	if err != nil || p < 0 || strconv.FormatInt(p, 10) != base[dash+1:] {
		return "", 0, 0, fmt.Errorf("directory %q does not end in a partition number", name)
	}
	return base[:dash], int32(p), kind, nil
}
