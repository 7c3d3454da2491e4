package assignor

import (
	"fmt"
	"slices"

	"weir/internal/group/hashorder"
	"weir/internal/uuid"
)

// Names of the assignors, as in group.consumer.assignors.
const (
	Uniform = "uniform"
	Range   = "range"
)

// Assignment is partitions by topic, in the order in which Kafka's table of it is
// iterated; each topic once, none without partitions. It is shared, and not
// written to once it has been handed out.
type Assignment []Partitions

// Partitions are partitions of a topic, in the order in which Kafka's set of them is
// iterated.
type Partitions struct {
	Topic      uuid.UUID
	Partitions []int32
}

// Of lists the partitions of a topic.
func (a Assignment) Of(topic uuid.UUID) []int32 {
	for i := range a {
		if a[i].Topic == topic {
			return a[i].Partitions
		}
	}
	return nil
}

// ByTopic is the assignment as a map.
func (a Assignment) ByTopic() map[uuid.UUID][]int32 {
	m := make(map[uuid.UUID][]int32, len(a))
	for _, t := range a {
		m[t.Topic] = t.Partitions
	}
	return m
}

// Equal tells whether two assignments have the same partitions, in whatever order.
func (a Assignment) Equal(b Assignment) bool {
	if len(a) != len(b) {
		return false
	}
	m := b.ByTopic()
	for _, t := range a {
		if !sameSet(t.Partitions, m[t.Topic]) {
			return false
		}
	}
	return true
}

func sameSet(a, b []int32) bool {
	if len(a) != len(b) || slices.Equal(a, b) {
		return len(a) == len(b)
	}
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}

// Stored sorts an assignment that was read from a record, whose order it keeps where
// the tables leave it open. It sorts in place.
func Stored(a Assignment) Assignment {
	for _, t := range a {
		hashorder.Copied(t.Partitions, len(t.Partitions), hashorder.Int)
	}
	return hashorder.Map(a, 0, func(t Partitions) int32 { return hashorder.UUID(t.Topic) })
}

// Member is a member for whom partitions are sought.
type Member struct {
	ID         string
	InstanceID *string
	// Topics are those to which it subscribes and that exist, sorted as [Topics] does.
	Topics []uuid.UUID
	// Had is what it was assigned before.
	Had Assignment
}

// Group is what an assignor looks at.
type Group struct {
	// Members, in the order of [Members].
	Members []Member
	// Homogeneous: all members subscribe to the same topics.
	Homogeneous bool
	// Taken tells whether a partition was assigned to anybody before: it is one that
	// some member Had. If it is taken and yet nobody Had it, uniform leaves it with
	// nobody as long as all subscribe to the same topics.
	Taken func(topic uuid.UUID, partition int32) bool
	// Partitions is how many partitions a topic has; every topic of Members exists.
	Partitions func(topic uuid.UUID) int32
}

// Members sorts members as Kafka looks at them. They are given by ascending id; the
// one that has just joined, if it is new, stands at the end. removed counts those
// that were taken out, as a static member that another one replaces.
func Members(ms []Member, joined bool, removed int) []Member {
	hash := func(m Member) int32 { return hashorder.String(m.ID) }
	old := ms
	if joined {
		old = ms[:len(ms)-1]
	}
	hashorder.Timeline(old, hash)
	return hashorder.Map(ms, removed, hash)
}

// Names sorts the names of topics, which are given in the order in which a record
// or request lists them, as Kafka looks at them.
func Names(names []string) []string {
	return hashorder.Copied(names, len(names), hashorder.String)
}

// Topics sorts the ids of subscribed topics as Kafka looks at them. They are given
// in the order of Names; names counts these, with those that do not exist.
func Topics(ids []uuid.UUID, names int) []uuid.UUID {
	return hashorder.Copied(ids, names, hashorder.UUID)
}

// Assign computes what each member gets; one that gets nothing may be missing.
// What members claim to have had may be wrong: see claim. It fails for an unknown
// name, and when Taken denies what members Had.
func Assign(name string, g *Group) (map[string]Assignment, error) {
	switch {
	case len(g.Members) == 0:
		return nil, nil
	case name == Range:
		return assignRanges(g), nil
	case name == Uniform && g.Homogeneous:
		return assignUniform(g)
	case name == Uniform:
		return assignMixed(g), nil
	}
	return nil, fmt.Errorf("there is no assignor %q", name)
}
