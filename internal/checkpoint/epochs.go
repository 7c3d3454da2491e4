package checkpoint

import (
	"errors"
	"fmt"
	"strconv"

	"weir/internal/vfs"
)

// EpochEntry says that the records of leader epoch Epoch start at StartOffset (Kafka's EpochEntry).
type EpochEntry struct {
	Epoch       int32
	StartOffset int64
}

// ReadEpochs reads a leader-epoch-checkpoint, entries in the order of the file. Whether they make sense together is
// for the log to judge.
func ReadEpochs(fsys vfs.FS, path string) ([]EpochEntry, error) {
	var out []EpochEntry
	err := readTable(fsys, path, 2, func(f []string) error {
		epoch, err := strconv.ParseInt(f[0], 10, 32)
		if err != nil {
			return errors.New("no valid leader epoch")
		}
		start, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil {
			return errors.New("no valid offset")
		}
		out = append(out, EpochEntry{int32(epoch), start})
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// WriteEpochs replaces a leader-epoch-checkpoint.
func WriteEpochs(fsys vfs.FS, path string, entries []EpochEntry) error {
	var b []byte
	for _, e := range entries {
		b = fmt.Appendf(b, "%d %d\n", e.Epoch, e.StartOffset)
	}
	return writeTable(fsys, path, len(entries), b)
}
