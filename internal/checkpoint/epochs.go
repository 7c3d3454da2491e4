package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
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
	return vfs.WriteFileAtomic(fsys, path, encodeEpochs(entries))
}

// sector is what a disk writes whole or not at all.
const sector = 512

// StageEpochs is WriteEpochs for many logs at once, which sync the volume afterwards. A table that fits a sector is
// written over the old one, which saves a new file: a power cut leaves the old table, the new one, or one whose number of
// entries is wrong, which is refused by ReadEpochs and then made anew from the log. A larger one (staged) waits for
// vfs.CommitStaged and another sync.
func StageEpochs(fsys vfs.FS, path string, entries []EpochEntry) (staged bool, err error) {
	data := encodeEpochs(entries)
	f, err := fsys.Open(path, os.O_RDWR, 0)
	if len(data) > sector || errors.Is(err, fs.ErrNotExist) {
		if err == nil {
			err = f.Close()
		}
		return true, errors.Join(notMissing(err), vfs.WriteStaged(fsys, path, data))
	}
	if err != nil {
		return false, err
	}
	info, err := f.Stat()
	if err == nil {
		_, err = f.WriteAt(data, 0)
	}
	if err == nil && info.Size() > int64(len(data)) {
		err = f.Truncate(int64(len(data)))
	}
	return false, errors.Join(err, f.Close())
}

func notMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func encodeEpochs(entries []EpochEntry) []byte {
	var b []byte
	for _, e := range entries {
		b = fmt.Appendf(b, "%d %d\n", e.Epoch, e.StartOffset)
	}
	return encodeTable(len(entries), b)
}
