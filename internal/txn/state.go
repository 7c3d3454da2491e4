package txn

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"strings"

	"github.com/benbjohnson/immutable"
)

// Status is where a transactional id stands; the numbers are those of the records.
type Status int8

// The states that are stored.
const (
	Empty          Status = 0
	Ongoing        Status = 1
	PrepareCommit  Status = 2
	PrepareAbort   Status = 3
	CompleteCommit Status = 4
	CompleteAbort  Status = 5
)

// names are Kafka's, by number. Dead and PrepareEpochFence are never stored:
// Kafka names a transition so that is under way.
var names = [...]string{"Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence"}

func (s Status) String() string {
	if s < 0 || int(s) >= len(names) {
		return "Unknown"
	}
	return names[s]
}

// ending tells that the outcome stands and markers are being written.
func (s Status) ending() bool { return s == PrepareCommit || s == PrepareAbort }

// complete tells that no transaction is open: the next may begin.
func (s Status) complete() bool { return s == Empty || s == CompleteCommit || s == CompleteAbort }

// Values for "none".
const (
	NoProducerID int64 = -1
	NoEpoch      int16 = -1
	noTime       int64 = -1
)

// TopicPartition is a partition by name.
type TopicPartition struct {
	Topic     string
	Partition int32
}

func compare(a, b TopicPartition) int {
	return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
}

// Txn is the stored state of one transactional id. It is never changed.
type Txn struct {
	ID string
	// ProducerID and Epoch are what the producer writes with. Previous is the
	// producer id before the last change of this state, Next the one that the
	// producer was given when its transaction ended with its epochs used up.
	ProducerID, Previous, Next int64
	Epoch                      int16
	// LastEpoch is the epoch before the last bump, by which a repeated request is
	// told from that of a fenced producer; -1 for none. It is not in the records:
	// as in Kafka a new leader does not know it.
	LastEpoch int16
	TimeoutMs int32
	Status    Status
	// Partitions of the transaction, in order.
	Partitions []TopicPartition
	// StartMs is when the transaction got its first partition, -1 for never;
	// UpdateMs when this state was made.
	StartMs, UpdateMs int64
	// Version is the transaction.version of the client, as far as it can be told
	// from its requests: 2 or 0.
	Version int16
}

// exhausted tells that the last epoch but one is in use: the last one is kept for
// fencing.
func exhausted(epoch int16) bool { return epoch >= math.MaxInt16-1 }

func (t *Txn) has(p TopicPartition) bool {
	_, ok := slices.BinarySearchFunc(t.Partitions, p, compare)
	return ok
}

// with returns the partitions with more of them.
func (t *Txn) with(more []TopicPartition) []TopicPartition {
	out := append(slices.Clone(t.Partitions), more...)
	slices.SortFunc(out, compare)
	return slices.Compact(out)
}

// State is the transactional ids of one partition of __transaction_state. It
// never changes.
type State struct {
	// invariant: open holds those of ids that are Ongoing or ending.
	ids, open *immutable.SortedMap[string, *Txn]
}

// NewState is the state before the first record.
func NewState() *State {
	return &State{ids: immutable.NewSortedMap[string, *Txn](stringOrder{}), open: immutable.NewSortedMap[string, *Txn](stringOrder{})}
}

// Txn returns a transactional id's state, nil when there is none.
func (s *State) Txn(id string) *Txn {
	t, _ := s.ids.Get(id)
	return t
}

// All yields all transactional ids in order.
func (s *State) All() iter.Seq[*Txn] { return values(s.ids) }

// Open yields those whose transaction has not come to its end.
func (s *State) Open() iter.Seq[*Txn] { return values(s.open) }

// Len counts the transactional ids, NumOpen those with an open transaction.
func (s *State) Len() int { return s.ids.Len() }

// NumOpen counts the open transactions.
func (s *State) NumOpen() int { return s.open.Len() }

// Apply returns the state after some records.
func (s *State) Apply(recs []Record) *State {
	n := *s
	for i := range recs {
		r := &recs[i]
		if r.Txn == nil {
			n.ids, n.open = n.ids.Delete(r.ID), n.open.Delete(r.ID)
			continue
		}
		n.ids = n.ids.Set(r.ID, r.Txn)
		if r.Txn.Status.complete() {
			n.open = n.open.Delete(r.ID)
		} else {
			n.open = n.open.Set(r.ID, r.Txn)
		}
	}
	return &n
}

func values(m *immutable.SortedMap[string, *Txn]) iter.Seq[*Txn] {
	return func(yield func(*Txn) bool) {
		for it := m.Iterator(); !it.Done(); {
			if _, t, ok := it.Next(); !ok || !yield(t) {
				return
			}
		}
	}
}

type stringOrder struct{}

func (stringOrder) Compare(a, b string) int { return strings.Compare(a, b) }
