package producer

import (
	"cmp"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"slices"

	"weir/internal/invariant"
	"weir/internal/vfs"
)

// Origin says who wrote a batch; it decides what is checked (AppendOrigin).
type Origin uint8

// The origins of a batch.
const (
	OriginClient      Origin = iota // a producer: epoch and sequence are checked, duplicates found
	OriginCoordinator               // transaction markers and coordinators' records: epochs are checked
	OriginReplication               // copied from a leader, or read back: believed
	OriginRaftLeader                // the metadata log: no producer ids
)

// Config holds the broker's settings of producer state.
type Config struct {
	ExpirationMs    int64 // producer.id.expiration.ms; 0 means Kafka's default of one day
	MaxTxnTimeoutMs int64 // transaction.max.timeout.ms; 0 means Kafka's default of 15 minutes
	SyncSnapshots   bool  // fsync a snapshot when it is written rather than when the log is flushed
	LateTxnBufferMs int64 // how long after MaxTxnTimeoutMs an open transaction counts as hanging; 0 is 5 minutes
}

// WithDefaults returns c with Kafka's defaults in place of zeros.
func (c Config) WithDefaults() Config {
	if c.ExpirationMs == 0 {
		c.ExpirationMs = 86_400_000
	}
	if c.MaxTxnTimeoutMs == 0 {
		c.MaxTxnTimeoutMs = 900_000
	}
	if c.LateTxnBufferMs == 0 {
		c.LateTxnBufferMs = 300_000
	}
	return c
}

// txn is one transaction. Invariant: lastOffset is NoOffset while it is open,
// else the offset of its marker.
type txn struct {
	producerID  int64
	firstOffset int64
	lastOffset  int64
}

// CompletedTxn is a transaction that a marker has ended.
type CompletedTxn struct {
	ProducerID  int64
	FirstOffset int64
	LastOffset  int64 // of the marker
	Aborted     bool
}

// State is the producer state of one log. Not safe for concurrent use: the
// log's append lock guards it.
type State struct {
	fs     vfs.FS
	dir    string // of the log; changes by SetDir
	name   string // topic-partition, for messages
	cfg    Config
	logger *slog.Logger

	producers map[int64]*Entry
	verifying map[int64]*verification
	guards    uint64 // last guard handed out

	// Both sorted by firstOffset. ongoing: open transactions. unreplicated:
	// ended ones whose marker is not below the high watermark, which still
	// hold back the last stable offset.
	ongoing      []txn
	unreplicated []txn

	snapshots []int64 // offsets of the snapshot files, ascending

	// lastMapOffset: the state covers every record below it.
	// lastSnapOffset: of the newest snapshot (or log start).
	lastMapOffset  int64
	lastSnapOffset int64

	stage stage // of the append under way
}

// New lists the snapshots of dir and returns an empty state; Reload fills it.
func New(fs vfs.FS, dir, name string, cfg Config, logger *slog.Logger) (*State, error) {
	s := &State{
		fs: fs, dir: dir, name: name, cfg: cfg.WithDefaults(), logger: logger,
		producers: map[int64]*Entry{}, verifying: map[int64]*verification{},
	}
	if err := s.listSnapshots(); err != nil {
		return nil, err
	}
	return s, nil
}

// SetDir tells the state that its log's directory was renamed.
func (s *State) SetDir(dir string) { s.dir = dir }

// MapEnd is the offset up to which (exclusive) records are reflected.
func (s *State) MapEnd() int64 { return s.lastMapOffset }

// SetMapEnd records that every record below offset is reflected, also those
// without a producer id.
func (s *State) SetMapEnd(offset int64) { s.lastMapOffset = offset }

// Len is the number of known producer ids.
func (s *State) Len() int { return len(s.producers) }

// IsEmpty reports that nothing is known: no producer and no transaction.
func (s *State) IsEmpty() bool { return len(s.producers) == 0 && len(s.unreplicated) == 0 }

// Lookup returns what is known of a producer id. The entry must not be kept
// past the lock, nor changed.
func (s *State) Lookup(id int64) (*Entry, bool) {
	e, ok := s.producers[id]
	return e, ok
}

// All yields the known producers in no order, under Lookup's terms.
func (s *State) All() iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		for _, e := range s.producers {
			if !yield(e) {
				return
			}
		}
	}
}

// FirstUnstable is the first offset of the oldest transaction that is open or
// whose marker is not yet committed.
func (s *State) FirstUnstable() (int64, bool) {
	switch {
	case len(s.unreplicated) == 0 && len(s.ongoing) == 0:
		return NoOffset, false
	case len(s.unreplicated) == 0:
		return s.ongoing[0].firstOffset, true
	case len(s.ongoing) == 0:
		return s.unreplicated[0].firstOffset, true
	}
	return min(s.unreplicated[0].firstOffset, s.ongoing[0].firstOffset), true
}

// FirstUndecided is the first offset of the oldest open transaction.
func (s *State) FirstUndecided() (int64, bool) {
	if len(s.ongoing) == 0 {
		return NoOffset, false
	}
	return s.ongoing[0].firstOffset, true
}

// OnHighWatermark releases transactions whose marker lies below hw.
func (s *State) OnHighWatermark(hw int64) {
	s.unreplicated = slices.DeleteFunc(s.unreplicated, func(t txn) bool { return t.lastOffset < hw })
}

// LastStable is the last stable offset as it stands just before t ends: the
// start of the oldest other open transaction, or the end of t. It is what an
// aborted transaction's index entry stores.
func (s *State) LastStable(t CompletedTxn) int64 {
	for _, o := range s.ongoing {
		if o.producerID != t.ProducerID {
			return o.firstOffset
		}
	}
	return t.LastOffset + 1
}

// Complete moves an ended transaction from open to waiting for the high
// watermark.
func (s *State) Complete(t CompletedTxn) {
	i, ok := findTxn(s.ongoing, t.FirstOffset)
	invariant.Check(ok, "%s: completed transaction %+v was not open", s.name, t)
	done := s.ongoing[i]
	s.ongoing = slices.Delete(s.ongoing, i, i+1)
	done.lastOffset = t.LastOffset
	s.unreplicated = putTxn(s.unreplicated, done)
}

// HasLateTransaction reports that the oldest open transaction is older than
// any transaction timeout allows: it hangs.
func (s *State) HasLateTransaction(nowMs int64) bool {
	if len(s.ongoing) == 0 {
		return false
	}
	e, ok := s.producers[s.ongoing[0].producerID]
	return ok && e.LastTimestamp > 0 && nowMs-e.LastTimestamp > s.cfg.MaxTxnTimeoutMs+s.cfg.LateTxnBufferMs
}

// SetExpiration changes producer.id.expiration.ms.
func (s *State) SetExpiration(ms int64) { s.cfg.ExpirationMs = ms }

// Expire forgets producers without open transaction and pending verifications
// that are older than the expiration time; it returns how many producers went.
func (s *State) Expire(nowMs int64) int {
	before := len(s.producers)
	for id, e := range s.producers {
		if s.expired(nowMs, e) {
			delete(s.producers, id)
		}
	}
	for id, v := range s.verifying {
		if nowMs-v.timestamp >= s.cfg.ExpirationMs {
			delete(s.verifying, id)
		}
	}
	return before - len(s.producers)
}

func (s *State) expired(nowMs int64, e *Entry) bool {
	return e.TxnFirstOffset == NoOffset && nowMs-e.LastTimestamp >= s.cfg.ExpirationMs
}

// OnLogStart tells that records below logStart are gone. Producers stay: their
// sequences must survive the deletion of their records.
func (s *State) OnLogStart(logStart int64) {
	s.OnHighWatermark(logStart)
	if s.lastMapOffset < logStart {
		s.lastMapOffset = logStart
	}
	s.lastSnapOffset = s.latestSnapshot(logStart)
}

// Reload brings the state back to offset `end`: snapshots outside
// (logStart, end] are removed, and, unless the state already ends there, it is
// read from the newest snapshot that is whole. The caller replays the log from
// MapEnd.
func (s *State) Reload(logStart, end, nowMs int64) error {
	for _, o := range slices.Clone(s.snapshots) {
		if o > end || o <= logStart {
			if err := s.removeSnapshot(o); err != nil {
				return err
			}
		}
	}
	if end == s.lastMapOffset {
		s.OnLogStart(logStart)
		return nil
	}
	s.clear()
	return s.loadNewestSnapshot(logStart, nowMs)
}

// Reset forgets everything and removes every snapshot: the log restarts at
// offset.
func (s *State) Reset(offset int64) error {
	s.clear()
	for _, o := range slices.Clone(s.snapshots) {
		if err := s.removeSnapshot(o); err != nil {
			return err
		}
	}
	s.lastSnapOffset, s.lastMapOffset = 0, offset
	return nil
}

// clear forgets everything but keeps the snapshot files.
func (s *State) clear() {
	clear(s.producers)
	s.ongoing, s.unreplicated = nil, nil
}

// load takes an entry of a snapshot.
func (s *State) load(e Entry) {
	s.producers[e.ProducerID] = &e
	if e.TxnFirstOffset != NoOffset {
		s.ongoing = putTxn(s.ongoing, txn{e.ProducerID, e.TxnFirstOffset, NoOffset})
	}
}

func findTxn(txns []txn, firstOffset int64) (int, bool) {
	return slices.BinarySearchFunc(txns, firstOffset, func(t txn, o int64) int { return cmp.Compare(t.firstOffset, o) })
}

func putTxn(txns []txn, t txn) []txn {
	i, ok := findTxn(txns, t.firstOffset)
	if ok {
		txns[i] = t
		return txns
	}
	return slices.Insert(txns, i, t)
}

func (s *State) String() string {
	return fmt.Sprintf("producers of %s: %d ids, %d open transactions, up to offset %d", s.name, len(s.producers), len(s.ongoing), s.lastMapOffset)
}

// inSequence: next follows last, also over the wrap.
func inSequence(last, next int32) bool {
	return int64(next) == int64(last)+1 || next == 0 && last == math.MaxInt32
}
