package image

import (
	"fmt"
	"iter"
	"slices"

	"github.com/benbjohnson/immutable"

	"weir/internal/records"
	"weir/internal/uuid"
)

// PartitionID names a partition by its topic's id.
type PartitionID struct {
	Topic     uuid.UUID
	Partition int32
}

// Topic is one topic. Immutable.
type Topic struct {
	Name       string
	ID         uuid.UUID
	partitions *immutable.SortedMap[int32, *Partition]
}

// Partition returns a partition by number.
func (t *Topic) Partition(i int32) (*Partition, bool) { return t.partitions.Get(i) }

// NumPartitions counts the partitions; they are numbered 0 … NumPartitions-1.
func (t *Topic) NumPartitions() int { return t.partitions.Len() }

// Partitions yields the partitions by ascending number.
func (t *Topic) Partitions() iter.Seq2[int32, *Partition] {
	return func(yield func(int32, *Partition) bool) {
		for it := t.partitions.Iterator(); !it.Done(); {
			i, p, ok := it.Next()
			if !ok || !yield(i, p) {
				return
			}
		}
	}
}

func (t *Topic) with(i int32, p *Partition) *Topic {
	return &Topic{Name: t.Name, ID: t.ID, partitions: t.partitions.Set(i, p)}
}

// Partition is the state of one partition (Kafka's PartitionRegistration). Immutable once in an image: neither the struct nor its slices are written to.
type Partition struct {
	Replicas       []int32     // never empty; the first is the preferred leader
	Directories    []uuid.UUID // log directory of each replica; always as long as Replicas
	ISR            []int32     // replicas in sync
	ELR            []int32     // not in sync, but known to hold everything committed (KIP-966)
	LastKnownELR   []int32     // once eligible; with one entry, the last leader of a partition that lost everyone
	Adding         []int32     // replicas that a reassignment adds
	Removing       []int32     // replicas that a reassignment removes
	Leader         int32       // NoLeader when there is none
	LeaderEpoch    int32       // one more with each change of leader
	PartitionEpoch int32       // one more with each change at all
	Recovering     bool        // the leader was elected uncleanly and has not finished recovering (leaderRecoveryState 1)
}

// Directory returns the log directory of a replica, DirUnassigned for a broker that is not a replica.
func (p *Partition) Directory(broker int32) uuid.UUID {
	if i := slices.Index(p.Replicas, broker); i >= 0 && i < len(p.Directories) {
		return p.Directories[i]
	}
	return uuid.DirUnassigned
}

// IsReassigning reports whether replicas are being added or removed.
func (p *Partition) IsReassigning() bool { return len(p.Adding) > 0 || len(p.Removing) > 0 }

// HasPreferredLeader reports whether the first replica leads.
func (p *Partition) HasPreferredLeader() bool {
	return len(p.Replicas) > 0 && p.Leader == p.Replicas[0]
}

// Record returns the partition as a snapshot or a creation writes it at the given feature levels.
func (p *Partition) Record(id PartitionID, f Features) records.Versioned {
	r := records.NewPartitionRecord()
	r.PartitionID, r.TopicID = id.Partition, id.Topic
	r.Replicas, r.ISR, r.RemovingReplicas, r.AddingReplicas = p.Replicas, p.ISR, p.Removing, p.Adding
	r.Leader, r.LeaderEpoch, r.PartitionEpoch, r.LeaderRecoveryState = p.Leader, p.LeaderEpoch, p.PartitionEpoch, p.recoveryState()
	v := f.PartitionVersion()
	if v >= 1 {
		r.Directories = p.Directories
	}
	if v >= 2 {
		// Kafka leaves these tags away when empty: "null" and "empty" read back as the same.
		if len(p.ELR) > 0 {
			r.EligibleLeaderReplicas = p.ELR
		}
		if len(p.LastKnownELR) > 0 {
			r.LastKnownELR = p.LastKnownELR
		}
	}
	return records.Versioned{Record: &r, Version: v}
}

func (p *Partition) recoveryState() int8 {
	if p.Recovering {
		return 1
	}
	return 0
}

func partitionFromRecord(r *records.PartitionRecord) (*Partition, error) {
	if len(r.Directories) > 0 && len(r.Directories) != len(r.Replicas) {
		return nil, fmt.Errorf("partition %s-%d: %d directories for %d replicas", r.TopicID, r.PartitionID, len(r.Directories), len(r.Replicas))
	}
	if err := checkReplicas(r.Replicas); err != nil {
		return nil, fmt.Errorf("partition %s-%d: %w", r.TopicID, r.PartitionID, err)
	}
	if r.LeaderRecoveryState < 0 || r.LeaderRecoveryState > 1 {
		return nil, fmt.Errorf("partition %s-%d: leader recovery state %d", r.TopicID, r.PartitionID, r.LeaderRecoveryState)
	}
	return &Partition{
		Replicas: own(r.Replicas), Directories: migratingUnlessSet(r.Directories, len(r.Replicas)), ISR: own(r.ISR),
		ELR: own(r.EligibleLeaderReplicas), LastKnownELR: own(r.LastKnownELR), Adding: own(r.AddingReplicas), Removing: own(r.RemovingReplicas),
		Leader: r.Leader, LeaderEpoch: r.LeaderEpoch, PartitionEpoch: r.PartitionEpoch, Recovering: r.LeaderRecoveryState == 1,
	}, nil
}

// Merge returns the partition after a PartitionChangeRecord. Absent fields stay; the partition epoch always rises by one, the leader
// epoch exactly when the record names a leader, even the present one (Kafka's PartitionRegistration.merge).
func (p *Partition) Merge(r *records.PartitionChangeRecord) (*Partition, error) {
	if r.Replicas != nil && len(r.Directories) > 0 && len(r.Directories) != len(r.Replicas) {
		return nil, fmt.Errorf("partition %s-%d: change with %d directories for %d replicas", r.TopicID, r.PartitionID, len(r.Directories), len(r.Replicas))
	}
	n := *p
	set := func(dst *[]int32, v []int32) {
		if v != nil {
			*dst = own(v)
		}
	}
	set(&n.Replicas, r.Replicas)
	set(&n.ISR, r.ISR)
	set(&n.ELR, r.EligibleLeaderReplicas)
	set(&n.LastKnownELR, r.LastKnownELR)
	set(&n.Adding, r.AddingReplicas)
	set(&n.Removing, r.RemovingReplicas)
	if r.Directories != nil {
		n.Directories = r.Directories
	}
	n.Directories = migratingUnlessSet(n.Directories, len(n.Replicas))
	if len(n.Directories) != len(n.Replicas) {
		return nil, fmt.Errorf("partition %s-%d: a change leaves %d directories for %d replicas", r.TopicID, r.PartitionID, len(n.Directories), len(n.Replicas))
	}
	if err := checkReplicas(n.Replicas); err != nil {
		return nil, fmt.Errorf("partition %s-%d: %w", r.TopicID, r.PartitionID, err)
	}
	if r.Leader != NoLeaderChange {
		n.Leader = r.Leader
		n.LeaderEpoch++
	}
	switch r.LeaderRecoveryState {
	case -1:
	case 0, 1:
		n.Recovering = r.LeaderRecoveryState == 1
	default:
		return nil, fmt.Errorf("partition %s-%d: leader recovery state %d", r.TopicID, r.PartitionID, r.LeaderRecoveryState)
	}
	n.PartitionEpoch++
	return &n, nil
}

// checkReplicas refuses what no writer means: the index counts on broker ids that are not negative.
func checkReplicas(replicas []int32) error {
	if len(replicas) == 0 {
		return fmt.Errorf("no replicas")
	}
	if low := slices.Min(replicas); low < 0 {
		return fmt.Errorf("replica %d", low)
	}
	return nil
}

// NoLeaderChange is the leader in a PartitionChangeRecord that leaves leader and leader epoch alone.
const NoLeaderChange int32 = -2

// migratingUnlessSet returns directories of the right length: those given, or DirMigrating for each replica when none was ever assigned.
func migratingUnlessSet(dirs []uuid.UUID, replicas int) []uuid.UUID {
	for _, d := range dirs {
		if d != uuid.DirMigrating {
			return slices.Clip(slices.Clone(dirs))
		}
	}
	out := make([]uuid.UUID, replicas)
	for i := range out {
		out[i] = uuid.DirMigrating
	}
	return out
}

// own copies a slice out of a record; empty becomes nil, so that equal states compare equal.
func own(v []int32) []int32 {
	if len(v) == 0 {
		return nil
	}
	return slices.Clone(v)
}
