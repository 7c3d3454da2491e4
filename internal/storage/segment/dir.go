package segment

import (
	"sync"

	"weir/internal/vfs"
)

// Dir is the directory of a log. All segments of the log share it, since it may be renamed while readers open files
// in it: whoever goes by a path holds the name meanwhile, so that nobody takes a renamed file for a missing one.
type Dir struct {
	mu   sync.RWMutex // held for file operations by name; the last lock taken
	path string
}

// NewDir names a directory.
func NewDir(path string) *Dir { return &Dir{path: path} }

// Path is the present path; by the time it is used it may be another one.
func (d *Dir) Path() string {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.path
}

// Rename renames the directory. Open files and regions stay valid. After an error its name is the old one.
func (d *Dir) Rename(fsys vfs.FS, to string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := fsys.Rename(d.path, to); err != nil {
		return err
	}
	d.path = to
	return nil
}
