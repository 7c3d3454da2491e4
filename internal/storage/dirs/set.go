package dirs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"weir/internal/checkpoint"
	"weir/internal/clock"
	"weir/internal/storage"
	"weir/internal/uuid"
	"weir/internal/vfs"
)

// Options opens a Set.
type Options struct {
	FS          vfs.FS
	LogDirs     []string // log.dirs, in their order
	MetadataDir string   // metadata.log.dir; "" is the first of LogDirs. It is locked and checked like the others
	ClusterID   string   // "" takes what the directories say
	NodeID      int32
	// RecoveryThreads is num.recovery.threads.per.data.dir; less than 1 is 1.
	RecoveryThreads int
	Cordoned        []string // cordoned.log.dirs
	Clock           clock.Clock
	Rand            io.Reader // for ids and unique names; the Set calls it from one goroutine at a time
	Logger          *slog.Logger
	// Log gives the options that a partition's log is opened with. The Set itself fills in FS, Dir, Topic, Partition,
	// RecoveryPoint, LogStart, HadCleanShutdown, Clock, Logger, Lowered and Progress.
	Log func(p checkpoint.TopicPartition) storage.Options
	// Offline is told once for each directory that fails, from the goroutine that met the error and with no lock held.
	// logs are those that were open in it; they are closed when it returns. It may be nil.
	Offline func(d *Dir, logs []*storage.Log, err error)
}

// Dir is one log directory.
type Dir struct {
	Path string
	ID   uuid.UUID // directory.id; zero when the directory was offline from the start

	// failed is why the directory is offline; nil while it is live. Guarded by Set.mu.
	failed error
	// renamed says that logs were renamed since the last Secure. Guarded by Set.mu.
	renamed bool
	// unsure says that the last Secure met a full disk. Guarded by Set.mu.
	unsure bool
	lock   io.Closer // nil when offline from the start
	data   bool      // one of log.dirs; false for a metadata directory of its own
	// kept holds checkpoint entries of partitions that failed to load, so that a repair finds them. Guarded by Set.mu
	// once Load has returned.
	kept map[string]checkpoint.Offsets // by file name
	// onDisk is what the checkpoint files say, by file name. Guarded by Set.writeMu once Load has returned.
	onDisk map[string]checkpoint.Offsets
	// cleaned is what cleaner-offset-checkpoint says. Guarded by Set.mu once Load has returned.
	cleaned checkpoint.Offsets
}

// Set is the log directories of this node. Its methods may be used concurrently.
type Set struct {
	o         Options
	log       *slog.Logger
	clusterID string
	dirs      []*Dir // log.dirs in their order, then a metadata directory of its own; fixed after Open
	metadata  *Dir

	// writeMu serializes the writers of checkpoint files and is held over their writes. Order: the locks of a log (a
	// truncation lowers the recovery point), writeMu, mu. With writeMu or mu held only lock-free methods of logs are used.
	writeMu sync.Mutex

	// mu guards what follows; it is held for memory work only.
	mu       sync.Mutex
	current  map[checkpoint.TopicPartition]*entry
	future   map[checkpoint.TopicPartition]*entry
	creating map[slot]*Dir // taken by a Create that is at work, with where it tries first
	fresh    []fresh       // made since the last Secure
	created  sync.Cond     // on mu: creating has lost an element
	failures []Failure
	doomed   []doomed
	cordoned []string
	closed   bool
}

// oneAtATime lets goroutines share a reader.
type oneAtATime struct {
	mu sync.Mutex
	r  io.Reader
}

func (o *oneAtATime) Read(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.r.Read(p)
}

type entry struct {
	log *storage.Log
	dir *Dir
}

// Open locks the directories and checks their meta.properties. A directory whose disk fails is offline from the start;
// the error is for what must stop the node: a directory in use, of another cluster or node, not formatted, or a
// metadata directory that cannot be read.
func Open(o Options) (*Set, error) {
	o.Rand = &oneAtATime{r: o.Rand}
	s := &Set{
		o: o, log: o.Logger, clusterID: o.ClusterID, cordoned: o.Cordoned,
		current: map[checkpoint.TopicPartition]*entry{}, future: map[checkpoint.TopicPartition]*entry{},
		creating: map[slot]*Dir{},
	}
	s.created.L = &s.mu
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if len(o.LogDirs) == 0 {
		return nil, errors.New("no log directory is configured")
	}
	if err := s.nameDirs(); err != nil {
		return nil, err
	}
	if err := s.takeAll(); err != nil {
		return nil, errors.Join(err, s.unlock())
	}
	return s, nil
}

// nameDirs builds s.dirs from the configuration.
func (s *Set) nameDirs() error {
	for _, path := range s.o.LogDirs {
		path = filepath.Clean(path)
		if s.byPath(path) != nil {
			return fmt.Errorf("log directory %s is configured twice", path)
		}
		s.dirs = append(s.dirs, &Dir{Path: path, data: true, kept: map[string]checkpoint.Offsets{}, onDisk: map[string]checkpoint.Offsets{}})
	}
	s.metadata = s.dirs[0]
	if s.o.MetadataDir != "" {
		path := filepath.Clean(s.o.MetadataDir)
		if s.metadata = s.byPath(path); s.metadata == nil {
			s.metadata = &Dir{Path: path}
			s.dirs = append(s.dirs, s.metadata)
		}
	}
	return nil
}

func (s *Set) takeAll() error {
	var missing []string
	for _, d := range s.dirs {
		err := s.take(d)
		var identity *IdentityError
		var locked *LockedError
		var damaged *checkpoint.Error
		switch {
		case err == nil:
		case errors.Is(err, fs.ErrNotExist):
			missing = append(missing, d.Path)
		case errors.As(err, &identity), errors.As(err, &locked), errors.As(err, &damaged):
			return err
		case d == s.metadata:
			return fmt.Errorf("metadata directory %s cannot be used: %w", d.Path, err)
		default:
			s.log.Error("log directory is offline from the start", "dir", d.Path, "err", err)
			d.failed = err
		}
	}
	if len(missing) > 0 {
		return &NotFormattedError{missing}
	}
	return s.checkMetadataPlace()
}

// take locks d and reads its meta.properties. A missing directory or file is fs.ErrNotExist.
func (s *Set) take(d *Dir) error {
	fsys, file := s.o.FS, filepath.Join(d.Path, checkpoint.MetaFile)
	if _, err := fsys.Stat(file); err != nil {
		return err
	}
	lock, err := fsys.Lock(filepath.Join(d.Path, ".lock"))
	if err != nil {
		return lockError(d.Path, err)
	}
	d.lock = lock
	meta, err := checkpoint.ReadMetaProperties(fsys, file)
	if err != nil {
		return err
	}
	if s.clusterID == "" {
		s.clusterID = meta.ClusterID
	}
	if meta.ClusterID != s.clusterID {
		return &IdentityError{file, "cluster.id", s.clusterID, meta.ClusterID}
	}
	if meta.NodeID != s.o.NodeID {
		return &IdentityError{file, "node.id", strconv.Itoa(int(s.o.NodeID)), strconv.Itoa(int(meta.NodeID))}
	}
	if meta.DirectoryID.IsZero() { // formatted before 3.7
		meta.DirectoryID = uuid.Random(s.o.Rand)
		if err := checkpoint.WriteMetaProperties(fsys, file, meta); err != nil {
			return err
		}
		s.log.Info("log directory got its id", "dir", d.Path, "id", meta.DirectoryID)
	}
	if meta.DirectoryID.Reserved() {
		return &IdentityError{file, "directory.id", "an id that is not reserved", meta.DirectoryID.String()}
	}
	for _, other := range s.dirs {
		if other != d && other.ID == meta.DirectoryID {
			return &IdentityError{file, "directory.id", meta.DirectoryID.String() + " in " + other.Path + " already", meta.DirectoryID.String()}
		}
	}
	d.ID = meta.DirectoryID
	return nil
}

// metadataLogDir is the directory of the metadata log in the metadata directory.
const metadataLogDir = "__cluster_metadata-0"

// checkMetadataPlace refuses a metadata log outside of the metadata directory: a changed metadata.log.dir would
// otherwise start an empty cluster beside the old one.
func (s *Set) checkMetadataPlace() error {
	for _, d := range s.dirs {
		if d == s.metadata || d.failed != nil {
			continue
		}
		place := filepath.Join(d.Path, metadataLogDir)
		if there, err := vfs.Exists(s.o.FS, place); err == nil && there {
			return fmt.Errorf("found unexpected metadata location in data directory %s (the configured metadata directory is %s)", place, s.metadata.Path)
		}
	}
	return nil
}

// ClusterID is the id of the cluster that the directories belong to.
func (s *Set) ClusterID() string { return s.clusterID }

// MetadataDir is the directory of the metadata log.
func (s *Set) MetadataDir() *Dir { return s.metadata }

// Dirs returns the directories of log.dirs that are live, in their order.
func (s *Set) Dirs() []*Dir {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.liveLocked()
}

func (s *Set) liveLocked() []*Dir {
	var live []*Dir
	for _, d := range s.dirs {
		if d.data && d.failed == nil {
			live = append(live, d)
		}
	}
	return live
}

// OfflineDirs returns the directories of log.dirs that are offline. Those that were so from the start have no id.
func (s *Set) OfflineDirs() []*Dir {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*Dir
	for _, d := range s.dirs {
		if d.data && d.failed != nil {
			out = append(out, d)
		}
	}
	return out
}

// ByID returns the live directory with the id, or nil.
func (s *Set) ByID(id uuid.UUID) *Dir {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.dirs {
		if d.ID == id && d.failed == nil {
			return d
		}
	}
	return nil
}

// ByPath returns the directory configured as path, live or not, or nil.
func (s *Set) ByPath(path string) *Dir { return s.byPath(filepath.Clean(path)) }

func (s *Set) byPath(path string) *Dir {
	for _, d := range s.dirs {
		if d.Path == path {
			return d
		}
	}
	return nil
}

// SetCordoned replaces the directories that Create avoids (cordoned.log.dirs).
func (s *Set) SetCordoned(paths []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cordoned = slices.Clone(paths)
}

// Cordoned returns the ids of the live directories that are cordoned.
func (s *Set) Cordoned() []uuid.UUID {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []uuid.UUID
	for _, d := range s.liveLocked() {
		if s.cordonedLocked(d) {
			ids = append(ids, d.ID)
		}
	}
	return ids
}

func (s *Set) cordonedLocked(d *Dir) bool {
	return slices.ContainsFunc(s.cordoned, func(p string) bool { return p == "*" || filepath.Clean(p) == d.Path })
}

// PreviousBrokerEpoch is the broker epoch of the last run when it stopped cleanly in every directory; -1 otherwise. It
// is asked before Load, which consumes the markers, and goes into the registration (previousBrokerEpoch).
func (s *Set) PreviousBrokerEpoch() int64 {
	epoch := int64(-1)
	for _, d := range s.dirs {
		if !d.data {
			continue
		}
		if d.failed != nil {
			return -1
		}
		c, err := checkpoint.ReadCleanShutdown(s.o.FS, filepath.Join(d.Path, checkpoint.CleanShutdownFile))
		if err != nil || c.BrokerEpoch < 0 || epoch >= 0 && epoch != c.BrokerEpoch {
			return -1
		}
		epoch = c.BrokerEpoch
	}
	return epoch
}

func (s *Set) unlock() error {
	var errs []error
	for _, d := range s.dirs {
		if d.lock != nil {
			errs = append(errs, d.lock.Close())
			d.lock = nil
		}
	}
	return errors.Join(errs...)
}
