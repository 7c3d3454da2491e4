package broker

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"weir/internal/vfs"
)

// A node must be able to start on a full disk: its clients want to read, and its
// operator to delete. But a start writes a little, an election and a registration
// at the least. So a running node keeps some room in a file of its own beside the
// metadata log, and the next start gives it up. The file holds nothing; when it is
// missing, a start on a full disk ends with an error that says so.
const (
	reserveFile  = ".weir-reserve"
	reserveBytes = 1 << 20
)

func (b *Broker) reservePath() string {
	return filepath.Join(b.dirs.MetadataDir().Path, reserveFile)
}

// useReserve gives the room to what the start has to write.
func (b *Broker) useReserve() error {
	if err := b.o.FS.Remove(b.reservePath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// keepReserve takes as much of the room again as there is, before clients can
// use it.
func (b *Broker) keepReserve() {
	if err := writeReserve(b.o.FS, b.reservePath()); err != nil {
		b.logger.Warn("cannot keep room for a start on a full disk", "err", err)
	}
}

func writeReserve(fsys vfs.FS, path string) (err error) {
	f, err := fsys.Open(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	zeros := make([]byte, 64<<10)
	for at := 0; at < reserveBytes; at += len(zeros) {
		if _, err := f.WriteAt(zeros, int64(at)); err != nil {
			return err
		}
	}
	return nil
}
