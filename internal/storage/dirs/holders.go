package dirs

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"

	"weir/internal/uuid"
	"weir/internal/vfs"
)

// holdersFile names the broker incarnations whose processes have held the metadata directory, the newest first, below the
// session (vfs.FS.Session) in which they did. Its loss changes nothing: a broker that was killed then waits for the end of
// its old session with the controller, as Apache Kafka's always does.
const holdersFile = ".weir-holders"

// holdersKept bounds the file. More than one is there after processes that ended before they were registered.
const holdersKept = 8

// TakeOver notes that this process is a broker incarnation, and returns those that held the metadata directory before it.
// Their processes are gone for sure: each has held the lock until its end, and this one has it now. In a copy of the
// directory, on another machine, or after a restart of this one the session is another, and none is returned.
func (s *Set) TakeOver(incarnation uuid.UUID) []uuid.UUID {
	d := s.metadata
	session, err := s.o.FS.Session(d.Path)
	if err != nil || session == "" {
		s.log.Debug("not known who has held the metadata directory: no session", "dir", d.Path, "err", err)
		return nil
	}
	path := filepath.Join(d.Path, holdersFile)
	before, err := s.readHolders(path, session)
	if err != nil {
		s.log.Warn("not known who has held the metadata directory", "file", path, "err", err)
	}
	lines := []string{session, incarnation.String()}
	for _, id := range before {
		lines = append(lines, id.String())
	}
	lines = lines[:min(len(lines), 1+holdersKept)]
	err = vfs.WriteStaged(s.o.FS, path, []byte(strings.Join(lines, "\n")+"\n"))
	if err == nil {
		err = vfs.CommitStaged(s.o.FS, path)
	}
	if err != nil {
		s.log.Warn("a restart after a kill will have to wait for the end of the broker's session", "file", path, "err", err)
	}
	return before
}

// readHolders reads who has held the directory in this session; a missing file is none, and no error.
func (s *Set) readHolders(path, session string) ([]uuid.UUID, error) {
	text, err := vfs.ReadFile(s.o.FS, path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	if lines[0] != session {
		return nil, nil
	}
	var out []uuid.UUID
	for _, line := range lines[1:] {
		id, err := uuid.Parse(line)
		if err != nil {
			return nil, err
		}
		out = append(out, id)
	}
	return out, nil
}
