package storage

import (
	"path/filepath"

	"weir/internal/storage/segment"
	"weir/internal/vfs"
)

// RecoverySize is how many bytes Open has to read of a log's directory after an unclean stop: those of the segments from the
// one that holds the recovery point on. It is an estimate, to tell how long that takes; what is not to be understood counts
// for nothing.
func RecoverySize(fsys vfs.FS, dir string, recoveryPoint int64) (int64, error) {
	files, err := fsys.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	first := int64(-1)
	bases := map[string]int64{}
	for _, f := range files {
		base, ext, suffix, ok := segment.ParseName(f.Name())
		if !ok || ext != segment.ExtLog || suffix != "" {
			continue
		}
		bases[f.Name()] = base
		if base <= recoveryPoint {
			first = max(first, base)
		}
	}
	var sum int64
	for name, base := range bases {
		if base < first {
			continue
		}
		info, err := fsys.Stat(filepath.Join(dir, name))
		if err != nil {
			return 0, err
		}
		sum += info.Size()
	}
	return sum, nil
}
