package producer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"weir/internal/vfs"
)

// Suffixes of snapshot files; a snapshot marked for deletion keeps its name
// and gets DeletedSuffix until the file delete delay has passed.
const (
	SnapshotSuffix = ".snapshot"
	DeletedSuffix  = ".deleted"
)

const (
	snapshotVersion = 1
	headerLen       = 2 + 4 + 4
	crcFrom         = 6
	entryLen        = 8 + 2 + 4 + 8 + 4 + 8 + 4 + 8
)

// CorruptSnapshotError is a snapshot file whose bytes cannot be believed. It is
// never fatal: an older snapshot or the log itself is read instead.
type CorruptSnapshotError struct {
	Reason string
}

func (e *CorruptSnapshotError) Error() string { return "corrupt producer snapshot: " + e.Reason }

// SnapshotName is the file name of the snapshot at offset.
func SnapshotName(offset int64) string { return fmt.Sprintf("%020d%s", offset, SnapshotSuffix) }

// SnapshotOffset parses a file name; false when it is not a snapshot's.
func SnapshotOffset(name string) (int64, bool) {
	digits, ok := strings.CutSuffix(name, SnapshotSuffix)
	if !ok {
		return 0, false
	}
	offset, err := strconv.ParseInt(digits, 10, 64)
	return offset, err == nil && offset >= 0
}

// Encode is the content of a snapshot file with these entries, in producer id
// order so that equal states give equal bytes.
func Encode(entries []Entry) []byte {
	slices.SortFunc(entries, func(a, b Entry) int {
		if a.ProducerID < b.ProducerID {
			return -1
		}
		return 1
	})
	be := binary.BigEndian
	b := make([]byte, headerLen, headerLen+len(entries)*entryLen)
	be.PutUint16(b, snapshotVersion)
	be.PutUint32(b[crcFrom:], uint32(len(entries)))
	for i := range entries {
		e := &entries[i]
		b = be.AppendUint64(b, uint64(e.ProducerID))
		b = be.AppendUint16(b, uint16(e.Epoch))
		b = be.AppendUint32(b, uint32(e.LastSequence()))
		b = be.AppendUint64(b, uint64(e.LastOffset()))
		b = be.AppendUint32(b, uint32(e.LastOffsetDelta()))
		b = be.AppendUint64(b, uint64(e.LastTimestamp))
		b = be.AppendUint32(b, uint32(e.CoordinatorEpoch))
		b = be.AppendUint64(b, uint64(e.TxnFirstOffset))
	}
	be.PutUint32(b[2:], crc32.Checksum(b[crcFrom:], castagnoli()))
	return b
}

// castagnoli returns the shared table of crc32 for CRC-32C.
func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// Decode reads a snapshot file's content. Errors are *CorruptSnapshotError.
func Decode(b []byte) ([]Entry, error) {
	be := binary.BigEndian
	if len(b) < headerLen {
		return nil, &CorruptSnapshotError{fmt.Sprintf("%d bytes are too few", len(b))}
	}
	if v := be.Uint16(b); v != snapshotVersion {
		return nil, &CorruptSnapshotError{fmt.Sprintf("version %d is unknown", v)}
	}
	if stored, sum := be.Uint32(b[2:]), crc32.Checksum(b[crcFrom:], castagnoli()); stored != sum {
		return nil, &CorruptSnapshotError{fmt.Sprintf("stored CRC %d, computed %d", stored, sum)}
	}
	n, body := be.Uint32(b[crcFrom:]), b[headerLen:]
	if uint64(n)*entryLen != uint64(len(body)) {
		return nil, &CorruptSnapshotError{fmt.Sprintf("%d entries do not fill %d bytes", n, len(body))}
	}
	entries := make([]Entry, 0, n)
	for ; len(body) > 0; body = body[entryLen:] {
		e := newEntry(int64(be.Uint64(body)))
		e.Epoch = int16(be.Uint16(body[8:]))
		m := BatchMeta{
			LastSequence: int32(be.Uint32(body[10:])),
			LastOffset:   int64(be.Uint64(body[14:])),
			OffsetDelta:  int32(be.Uint32(body[22:])),
			Timestamp:    int64(be.Uint64(body[26:])),
		}
		if m.LastOffset >= 0 {
			e.addBatch(e.Epoch, m)
		}
		e.LastTimestamp = m.Timestamp
		e.CoordinatorEpoch = int32(be.Uint32(body[34:]))
		e.TxnFirstOffset = int64(be.Uint64(body[38:]))
		if e.TxnFirstOffset < 0 {
			e.TxnFirstOffset = NoOffset
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// Snapshot writes the state to its file if it has grown since the last one. It
// returns whether a file was written; it is not fsynced unless the
// configuration says so (SyncSnapshot does).
func (s *State) Snapshot() (bool, error) {
	if s.lastMapOffset <= s.lastSnapOffset {
		return false, nil
	}
	entries := make([]Entry, 0, len(s.producers))
	for _, e := range s.producers {
		entries = append(entries, *e)
	}
	offset := s.lastMapOffset
	if err := writeFile(s.fs, s.path(offset), Encode(entries), s.cfg.SyncSnapshots); err != nil {
		return false, err
	}
	s.addSnapshot(offset)
	s.lastSnapOffset = offset
	s.logger.Debug("wrote producer snapshot", "partition", s.name, "offset", offset, "producers", len(entries))
	return true, nil
}

// writeFile leaves no half of a file behind when it fails.
func writeFile(fsys vfs.FS, path string, data []byte, sync bool) error {
	f, err := fsys.Open(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, 0)
	if err == nil && sync {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, fsys.Remove(path))
	}
	return nil
}

// SyncSnapshot makes the snapshot at offset durable, if there is one. It
// touches no state and may run outside the log's lock.
func SyncSnapshot(fsys vfs.FS, dir string, offset int64) error {
	f, err := fsys.Open(filepath.Join(dir, SnapshotName(offset)), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Snapshots returns the offsets of the snapshot files, ascending.
func (s *State) Snapshots() []int64 { return slices.Clone(s.snapshots) }

// NewestSnapshot is the offset of the newest snapshot file.
func (s *State) NewestSnapshot() (int64, bool) {
	if len(s.snapshots) == 0 {
		return 0, false
	}
	return s.snapshots[len(s.snapshots)-1], true
}

func (s *State) latestSnapshot(otherwise int64) int64 {
	if o, ok := s.NewestSnapshot(); ok {
		return o
	}
	return otherwise
}

// RemoveStray removes, before a log is loaded, the snapshots that belong to no
// segment: only those at a segment's base offset, and the newest of all when
// it lies past the last segment's (it was written by a clean close), stay.
func (s *State) RemoveStray(segmentBases []int64) error {
	newestBase := int64(-1)
	if len(segmentBases) > 0 {
		newestBase = slices.Max(segmentBases)
	}
	var stray []int64
	newestStray := int64(-1)
	for _, o := range s.snapshots {
		if slices.Contains(segmentBases, o) {
			continue
		}
		if newestStray >= 0 {
			stray = append(stray, newestStray)
		}
		newestStray = o // ascending: the last one is the newest
	}
	if newestStray >= 0 && newestStray <= newestBase {
		stray = append(stray, newestStray)
	}
	for _, o := range stray {
		if err := s.removeSnapshot(o); err != nil {
			return err
		}
	}
	return nil
}

// RemoveSnapshotsBefore removes the snapshots below offset.
func (s *State) RemoveSnapshotsBefore(offset int64) error {
	for len(s.snapshots) > 0 && s.snapshots[0] < offset {
		if err := s.removeSnapshot(s.snapshots[0]); err != nil {
			return err
		}
	}
	return nil
}

// DropSnapshot forgets the snapshot at offset and removes its file.
func (s *State) DropSnapshot(offset int64) error {
	if _, ok := slices.BinarySearch(s.snapshots, offset); !ok {
		return nil
	}
	return s.removeSnapshot(offset)
}

// MarkSnapshotDeleted forgets the snapshot at offset and renames its file to
// end in DeletedSuffix; false when there is none.
func (s *State) MarkSnapshotDeleted(offset int64) (bool, error) {
	i, ok := slices.BinarySearch(s.snapshots, offset)
	if !ok {
		return false, nil
	}
	s.snapshots = slices.Delete(s.snapshots, i, i+1)
	path := s.path(offset)
	err := s.fs.Rename(path, path+DeletedSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func (s *State) path(offset int64) string { return filepath.Join(s.dir, SnapshotName(offset)) }

func (s *State) addSnapshot(offset int64) {
	if i, ok := slices.BinarySearch(s.snapshots, offset); !ok {
		s.snapshots = slices.Insert(s.snapshots, i, offset)
	}
}

func (s *State) removeSnapshot(offset int64) error {
	if i, ok := slices.BinarySearch(s.snapshots, offset); ok {
		s.snapshots = slices.Delete(s.snapshots, i, i+1)
	}
	err := s.fs.Remove(s.path(offset))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (s *State) listSnapshots() error {
	files, err := s.fs.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	s.snapshots = s.snapshots[:0]
	for _, f := range files {
		if o, ok := SnapshotOffset(f.Name()); ok && f.Type().IsRegular() {
			s.addSnapshot(o)
		}
	}
	return nil
}

// loadNewestSnapshot reads the newest snapshot that is whole; corrupt ones are
// removed. Without any the state starts, empty, at logStart.
func (s *State) loadNewestSnapshot(logStart, nowMs int64) error {
	for {
		offset, ok := s.NewestSnapshot()
		if !ok {
			s.lastSnapOffset, s.lastMapOffset = logStart, logStart
			return nil
		}
		entries, err := ReadSnapshot(s.fs, s.path(offset))
		var corrupt *CorruptSnapshotError
		if errors.As(err, &corrupt) {
			s.logger.Warn("ignoring a producer snapshot", "partition", s.name, "file", s.path(offset), "err", err)
			if err := s.removeSnapshot(offset); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		for i := range entries {
			if !s.expired(nowMs, &entries[i]) {
				s.load(entries[i])
			}
		}
		s.lastSnapOffset, s.lastMapOffset = offset, offset
		return nil
	}
}

// ReadSnapshot reads a snapshot file.
func ReadSnapshot(fsys vfs.FS, path string) ([]Entry, error) {
	b, err := vfs.ReadFile(fsys, path)
	if err != nil {
		return nil, err
	}
	return Decode(b)
}
