package dirs

import (
	"errors"
	"io/fs"
	"path/filepath"

	"weir/internal/vfs"
)

// hintFile holds the session (vfs.FS.Session) in which all logs of the directory were loaded and since when every write to
// them was made. When a start finds the same session and no clean-shutdown marker, the process before has died but the
// page cache has everything that it wrote: logs are resumed, which is faster than to recover them. Without the file, or
// with another session in it, they are recovered, as always.
//
// It is written when a directory's logs are all loaded, and goes before a clean stop, when a log cannot be opened, and
// when the disk fails, since a failed write may leave pages that are not what was written.
const hintFile = ".weir-session"

// intact tells whether nothing that the last process wrote has been lost.
func (l *loading) intact() bool {
	if l.session == "" {
		return false
	}
	text, err := vfs.ReadFile(l.set.o.FS, filepath.Join(l.dir.Path, hintFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.set.log.Warn("the hint of a running machine cannot be read; logs are recovered in full", "dir", l.dir.Path, "err", err)
	}
	return err == nil && string(text) == l.session
}

// readSession asks for the present session; none is no error.
func (l *loading) readSession() {
	session, err := l.set.o.FS.Session(l.dir.Path)
	if err != nil {
		l.set.log.Warn("no hint for a faster recovery: the session is not known", "dir", l.dir.Path, "err", err)
		return
	}
	l.session = session
}

// leaveHint writes the hint when every log is loaded, or removes it when one is not.
func (l *loading) leaveHint() error {
	l.set.mu.Lock()
	failed := false
	for _, f := range l.set.failures {
		failed = failed || f.Dir == l.dir
	}
	l.set.mu.Unlock()
	if failed || l.session == "" {
		return l.set.removeHint(l.dir)
	}
	path := filepath.Join(l.dir.Path, hintFile)
	err := vfs.WriteStaged(l.set.o.FS, path, []byte(l.session))
	if err == nil {
		err = vfs.CommitStaged(l.set.o.FS, path)
	}
	if noSpace(err) {
		l.set.log.Warn("no room for the hint of a faster recovery", "dir", l.dir.Path, "err", err)
		return l.set.removeHint(l.dir)
	}
	return err
}

// removeHint makes the next start recover the directory in full, unless it is closed cleanly.
func (s *Set) removeHint(d *Dir) error {
	err := s.o.FS.Remove(filepath.Join(d.Path, hintFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
