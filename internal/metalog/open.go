package metalog

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"slices"

	"weir/internal/checkpoint"
	"weir/internal/config"
	"weir/internal/kraft"
	"weir/internal/records"
	"weir/internal/storage"
	"weir/internal/uuid"
	"weir/internal/vfs"
)

// Open loads the log, repairs it after a crash and takes up the role that
// quorum-state allows. It starts no goroutine.
func Open(o Options) (*Log, error) {
	if o.Limits.CleanIntervalMs == 0 {
		o.Limits.CleanIntervalMs = 60_000
	}
	l := &Log{o: o, dir: filepath.Join(o.Dir, PartitionDir), wake: make(chan struct{}, 1),
		requests: map[uint64]func(kraft.ResponseBody, []vfs.Region){}, cleanAt: o.Clock.Now()}
	if err := o.FS.MkdirAll(l.dir, 0o755); err != nil {
		return nil, err
	}
	if err := o.FS.SyncDir(o.Dir); err != nil {
		return nil, err
	}
	var err error
	if l.snapshots, err = l.listSnapshots(); err != nil {
		return nil, err
	}
	if err := l.openStore(); err != nil {
		return nil, err
	}
	if err := l.openCore(); err != nil {
		return nil, errors.Join(err, l.store.Close())
	}
	return l, nil
}

func (l *Log) openStore() (err error) {
	lim := l.o.Limits
	l.store, err = storage.Open(storage.Options{
		FS: l.o.FS, Dir: l.dir, Topic: "__cluster_metadata", TopicID: uuid.MetadataTopic,
		// As Kafka does, all of it is recovered each time: there is no checkpoint of
		// the metadata partition, and all of it is read at start anyway.
		Config: &config.Topic{
			SegmentBytes: lim.SegmentBytes, SegmentMs: lim.SegmentMs, SegmentIndexBytes: 10 << 20, IndexIntervalBytes: 4096,
			RetentionMs: -1, RetentionBytes: -1, FileDeleteDelayMs: lim.DeleteDelayMs,
			FlushMessages: math.MaxInt64, FlushMs: math.MaxInt64, MaxMessageBytes: lim.MaxBatchBytes,
			CompressionType: "producer", TimestampType: "CreateTime", TimestampBeforeMaxMs: math.MaxInt64, TimestampAfterMaxMs: math.MaxInt64,
			MinInsyncReplicas: 1,
		},
		Clock: l.o.Clock, Logger: l.o.Logger,
	})
	if err != nil {
		return err
	}
	if err := l.fitStore(); err != nil {
		return errors.Join(err, l.store.Close())
	}
	// Whatever the last process left in the page cache counts as flushed from now on.
	if err := l.store.Flush(l.store.LogEnd()); err != nil {
		return errors.Join(err, l.store.Close())
	}
	return nil
}

// latest is the newest snapshot that holds state, nil when there is none.
func (l *Log) latest() *kraft.Position {
	if n := len(l.snapshots); n > 0 && l.snapshots[n-1].Offset > 0 {
		id := l.snapshots[n-1]
		return &id
	}
	return nil
}

// fitStore makes log and snapshots continue each other: the log must not begin
// above every snapshot, nor end below the newest.
func (l *Log) fitStore() error {
	start, end := l.store.LogStart(), l.store.LogEnd()
	latest := l.latest()
	if latest == nil {
		if start > 0 {
			return &storage.CorruptError{Dir: l.dir, File: "OFFSET-EPOCH.checkpoint", Offset: start,
				Err: fmt.Errorf("the log begins at offset %d and there is no snapshot of what came before", start)}
		}
		return nil
	}
	if last, _ := l.store.LatestEpoch(); end < latest.Offset || last < latest.Epoch && (start < latest.Offset || end > latest.Offset) {
		l.o.Logger.Warn("metadata log ends before the newest snapshot: starting it there", "dir", l.dir, "log end", end, "snapshot", fileName(*latest))
		if err := l.store.TruncateFullyAndStartAt(latest.Offset); err != nil {
			return err
		}
	} else if start > latest.Offset {
		return &storage.CorruptError{Dir: l.dir, File: fileName(*latest), Offset: start,
			Err: fmt.Errorf("the log begins at offset %d, above the newest snapshot", start)}
	}
	l.store.SetHighWatermark(latest.Offset)
	if start := l.start(); start.Offset > l.store.LogStart() {
		if _, err := l.store.SetLogStart(start.Offset); err != nil {
			return err
		}
	}
	return nil
}

// start is the snapshot at which readers may begin: the oldest within the log.
func (l *Log) start() kraft.Position {
	from := l.store.LogStart()
	if from == 0 {
		return kraft.Position{}
	}
	i := slices.IndexFunc(l.snapshots, func(id kraft.Position) bool { return id.Offset >= from })
	return l.snapshots[i]
}

func (l *Log) openCore() error {
	set, err := kraft.NewVoterSet(slices.Clone(l.o.Voters))
	if err != nil {
		return err
	}
	members := kraft.Members{Static: set}
	if n := len(l.snapshots); n > 0 {
		id := l.snapshots[n-1]
		head, err := readFile(l.o.FS, l.path(id), id.Offset-1, nil)
		if err != nil {
			return fmt.Errorf("%w (put a copy of the file back; without one move it away: then the node starts if its log still holds all that led to it, and refuses otherwise)", err)
		}
		members.Log = head.control
	}
	outline := kraft.Outline{Start: l.start(), End: l.store.LogEnd(), Flushed: l.store.LogEnd(), Snapshot: l.latest()}
	for _, e := range l.store.Epochs() {
		outline.Epochs = append(outline.Epochs, kraft.EpochStart{Epoch: e.Epoch, Start: max(e.StartOffset, outline.Start.Offset)})
	}
	if outline.Snapshot != nil {
		l.delivered, l.load = outline.Snapshot.Offset, outline.Snapshot
	}
	if err := l.scan(l.delivered, &members); err != nil {
		return err
	}
	state, err := l.readState()
	if err != nil {
		return err
	}
	l.core = kraft.New(kraft.Options{Self: l.o.Self, Endpoints: l.o.Endpoints, Timeouts: l.o.Timeouts, State: state,
		Log: outline, Members: members, Rand: l.o.Rand, NowMs: l.nowMs()})
	l.publish()
	return nil
}

// scan reads what the log from offset on says about membership.
func (l *Log) scan(from int64, members *kraft.Members) error {
	end := l.store.LogEnd()
	for from < end {
		raw, err := l.read(from, end)
		if err != nil {
			return err
		}
		for b, err := range split(raw) {
			if err != nil {
				return &storage.CorruptError{Dir: l.dir, File: "log", Offset: from, Err: err}
			}
			if b.IsControl() && b.LastOffset() >= from {
				cs, err := membership(b)
				if err != nil {
					return &storage.CorruptError{Dir: l.dir, File: "log", Offset: from, Err: err}
				}
				members.Log = append(members.Log, cs...)
			}
			from = max(from, b.NextOffset())
		}
	}
	return nil
}

func (l *Log) statePath() string { return filepath.Join(l.dir, "quorum-state") }

func (l *Log) readState() (*kraft.QuorumState, error) {
	s, _, err := checkpoint.ReadQuorumState(l.o.FS, l.statePath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &kraft.QuorumState{Epoch: s.LeaderEpoch, Leader: s.LeaderID, Voted: kraft.Replica{ID: s.VotedID, Dir: s.VotedDirectoryID}}, nil
}

// writeState makes epoch, leader and vote durable.
func (l *Log) writeState(q kraft.QuorumState) error {
	set, version := l.core.Voters()
	s := records.NewQuorumStateData()
	s.LeaderEpoch, s.LeaderID, s.VotedID, s.VotedDirectoryID = q.Epoch, q.Leader, q.Voted.ID, q.Voted.Dir
	if version == 0 {
		s.CurrentVoters = []records.QuorumStateDataCurrentVoter{}
		for _, v := range set.Voters() {
			s.CurrentVoters = append(s.CurrentVoters, records.QuorumStateDataCurrentVoter{VoterID: v.ID})
		}
	}
	return checkpoint.WriteQuorumState(l.o.FS, l.statePath(), &s, min(version, 1))
}

// ReadBootstrap returns the records of a metadata directory's
// bootstrap.checkpoint, nil when there is none.
func ReadBootstrap(fsys vfs.FS, dir string) ([]records.Versioned, error) {
	var out []records.Versioned
	_, err := readFile(fsys, filepath.Join(dir, BootstrapName), 0, func(r records.Versioned) bool {
		out = append(out, r)
		return true
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return out, err
}
