package consumer

import (
	"fmt"
	"iter"
	"slices"

	"weir/internal/group/assignor"
	"weir/internal/group/hashorder"
	"weir/internal/image"
	"weir/internal/records"
	"weir/internal/uuid"
)

// Group is one consumer group. It is never changed.
//
// invariant: names, patterns, assignors, protocols and classic count what the
// members say; static and owned say where the members are. See Valid.
type Group struct {
	ID              string
	Epoch           int32
	MetadataHash    int64 // of the topics that are subscribed to; see hash.go
	AssignmentEpoch int32
	AssignmentMs    int64 // when the target was computed; 0 when that is not known
	// oldMetadata: there is a record of kind KindPartitionMetadata, to be removed.
	oldMetadata bool

	members *table[*Member]
	targets *table[assignor.Assignment]
	static  *table[string] // instance id → member id
	regexes *table[*Resolved]
	owned   *owners

	names     *table[subscribers] // of each topic
	patterns  *table[int]         // members with each regular expression
	assignors *table[int]         // members that prefer each assignor
	classic   int                 // members of the classic protocol
	protocols *table[int]         // classic members that support each protocol
}

// subscribers counts who subscribes to a topic: members that name it, and regular
// expressions that match it.
type subscribers struct{ byName, byRegex int }

// Resolved is the topics that a regular expression matched.
type Resolved struct {
	Topics      []string // by name
	Version     int64    // offset of the metadata image that was looked at
	TimestampMs int64
}

// State of a group, derived from it.
type State uint8

// The states.
const (
	Empty State = iota
	Assigning
	Reconciling
	StableGroup
)

var stateNames = [...]string{"Empty", "Assigning", "Reconciling", "Stable"}

// String is Kafka's name of the state.
func (s State) String() string { return stateNames[s] }

// New is a group without members, of which there is no record.
func New(id string) *Group { return &Group{ID: id, Epoch: 1, AssignmentEpoch: 1} }

// State is where the group stands. It looks at all members.
func (g *Group) State() State {
	switch {
	case g.Size() == 0:
		return Empty
	case g.Epoch > g.AssignmentEpoch:
		return Assigning
	}
	for _, m := range all(g.members) {
		if !m.reconciled(g.AssignmentEpoch) {
			return Reconciling
		}
	}
	return StableGroup
}

// Size is the number of members.
func (g *Group) Size() int { return size(g.members) }

// Member returns a member, nil when there is none of that id.
func (g *Group) Member(id string) *Member {
	m, _ := get(g.members, id)
	return m
}

// Members yields the members by id.
func (g *Group) Members() iter.Seq2[string, *Member] { return all(g.members) }

// Subscribed tells whether any member reads a topic.
func (g *Group) Subscribed(topic string) bool {
	_, ok := get(g.names, topic)
	return ok
}

// Target is what a member shall have.
func (g *Group) Target(id string) assignor.Assignment {
	a, _ := get(g.targets, id)
	return a
}

// targetOf is what whoever joins as a member shall have: a static member takes over
// from the one before it.
func (g *Group) targetOf(m *Member) assignor.Assignment {
	if m.InstanceID == nil {
		return g.Target(m.ID)
	}
	if id, ok := get(g.static, *m.InstanceID); ok {
		return g.Target(id)
	}
	return nil
}

// staticMember is the member of an instance id, nil for none.
func (g *Group) staticMember(instance *string) *Member {
	if instance == nil {
		return nil
	}
	id, ok := get(g.static, *instance)
	if !ok {
		return nil
	}
	return g.Member(id)
}

// owner is the epoch at which a partition is owned, -1 when it is free.
func (g *Group) owner(topic uuid.UUID, p int32) int32 {
	if epoch, ok := get(g.owned, image.PartitionID{Topic: topic, Partition: p}); ok {
		return epoch
	}
	return -1
}

func (g *Group) resolved(regex string) *Resolved {
	r, _ := get(g.regexes, regex)
	return r
}

// tableOrder lists the member ids as Kafka iterates its table of them.
func (g *Group) tableOrder() []string {
	ids := make([]string, 0, g.Size())
	for id := range all(g.members) {
		ids = append(ids, id)
	}
	return hashorder.Timeline(ids, hashorder.String)
}

// Apply returns the group after a record, nil when it is gone. g is nil when there
// was no such group; a tombstone then changes nothing. It keeps the record's value.
func Apply(g *Group, r *Record) *Group {
	if g == nil {
		if r.Value == nil {
			return nil
		}
		g = New(r.Group)
	}
	n := *g
	switch v := r.Value.(type) {
	case *records.ConsumerGroupMetadataValue:
		n.Epoch, n.MetadataHash = v.Epoch, v.MetadataHash
	case *records.ConsumerGroupPartitionMetadataValue:
		n.oldMetadata = true
	case *records.ConsumerGroupMemberMetadataValue:
		n.put(n.orNew(r.Of).withMetadata(v))
	case *records.ConsumerGroupTargetAssignmentMetadataValue:
		n.AssignmentEpoch, n.AssignmentMs = v.AssignmentEpoch, v.AssignmentTimestamp
	case *records.ConsumerGroupTargetAssignmentMemberValue:
		n.targets = set(n.targets, r.Of, targetFrom(v))
	case *records.ConsumerGroupCurrentMemberAssignmentValue:
		n.put(n.orNew(r.Of).withCurrent(v))
	case *records.ConsumerGroupRegularExpressionValue:
		n.resolve(r.Of, &Resolved{Topics: unique(v.Topics), Version: v.Version, TimestampMs: v.Timestamp})
	case nil:
		if r.Kind == KindGroup {
			return nil
		}
		n.bury(r)
	default:
		panic(fmt.Sprintf("BUG: no meaning of %T", v))
	}
	return &n
}

// bury applies a tombstone of a part of the group.
func (g *Group) bury(r *Record) {
	switch r.Kind {
	case KindPartitionMetadata:
		g.oldMetadata = false
	case KindMember:
		if m := g.Member(r.Of); m != nil {
			g.drop(m)
		}
	case KindTarget:
		g.AssignmentEpoch, g.AssignmentMs = -1, 0
	case KindTargetMember:
		g.targets = remove(g.targets, r.Of)
	case KindCurrent:
		if m := g.Member(r.Of); m != nil {
			left := *m
			left.Epoch, left.PreviousEpoch, left.Assigned, left.Revoking = LeaveEpoch, LeaveEpoch, nil, nil
			g.put(&left)
		}
	case KindRegex:
		g.resolve(r.Of, nil)
	}
}

func (g *Group) orNew(id string) *Member {
	if m := g.Member(id); m != nil {
		return m
	}
	return newMember(id)
}

func targetFrom(v *records.ConsumerGroupTargetAssignmentMemberValue) assignor.Assignment {
	a := make(assignor.Assignment, 0, len(v.TopicPartitions))
	for _, t := range v.TopicPartitions {
		a = append(a, assignor.Partitions{Topic: t.TopicID, Partitions: slices.Clone(t.Partitions)})
	}
	return assignor.Stored(a)
}

func targetRecord(group, member string, a assignor.Assignment) Record {
	v := records.NewConsumerGroupTargetAssignmentMemberValue()
	for _, t := range a {
		row := records.NewConsumerGroupTargetAssignmentMemberValueTopicPartition()
		row.TopicID, row.Partitions = t.Topic, t.Partitions
		v.TopicPartitions = append(v.TopicPartitions, row)
	}
	return Record{Kind: KindTargetMember, Group: group, Of: member, Value: &v}
}

// put makes a member part of the group, in the place of the one of its id. Only
// Apply may: g is its working copy.
func (g *Group) put(m *Member) {
	if old := g.Member(m.ID); old != nil {
		g.tally(old, -1)
		g.release(old)
		g.leaveInstance(old) // it may have another one now
	}
	g.members = set(g.members, m.ID, m)
	g.tally(m, 1)
	for _, owned := range []Owned{m.Assigned, m.Revoking} {
		for topic, ps := range owned {
			for p := range ps {
				id := image.PartitionID{Topic: topic, Partition: p}
				if was, ok := get(g.owned, id); !ok || was < m.Epoch {
					g.owned = setOwner(g.owned, id, m.Epoch)
				}
			}
		}
	}
	if m.InstanceID != nil {
		g.static = set(g.static, *m.InstanceID, m.ID)
	}
}

// drop takes a member out. Only Apply may.
func (g *Group) drop(m *Member) {
	g.tally(m, -1)
	g.release(m)
	g.members = remove(g.members, m.ID)
	g.leaveInstance(m)
}

// leaveInstance frees a member's instance id, unless another has it by now.
func (g *Group) leaveInstance(m *Member) {
	if m.InstanceID == nil {
		return
	}
	if id, ok := get(g.static, *m.InstanceID); ok && id == m.ID {
		g.static = remove(g.static, *m.InstanceID)
	}
}

// release frees what a member owns, unless another has it by now.
func (g *Group) release(m *Member) {
	for _, owned := range []Owned{m.Assigned, m.Revoking} {
		for topic, ps := range owned {
			for p := range ps {
				id := image.PartitionID{Topic: topic, Partition: p}
				if epoch, ok := get(g.owned, id); ok && epoch == m.Epoch {
					g.owned = remove(g.owned, id)
				}
			}
		}
	}
}

// tally counts what a member says, or takes it back.
func (g *Group) tally(m *Member, by int) {
	for _, t := range m.Topics {
		g.names = addSubscribers(g.names, t, subscribers{byName: by})
	}
	if r := m.regex(); r != "" {
		g.patterns = count(g.patterns, r, by)
	}
	if m.Assignor != nil {
		g.assignors = count(g.assignors, *m.Assignor, by)
	}
	if m.Classic != nil {
		g.classic += by
		for _, p := range m.Classic.SupportedProtocols {
			g.protocols = count(g.protocols, p.Name, by)
		}
	}
}

func addSubscribers(m *table[subscribers], topic string, by subscribers) *table[subscribers] {
	n, _ := get(m, topic)
	n.byName, n.byRegex = n.byName+by.byName, n.byRegex+by.byRegex
	if n.byName <= 0 && n.byRegex <= 0 {
		return remove(m, topic)
	}
	return set(m, topic, n)
}

// resolve replaces what a regular expression matches, nil for nothing known.
func (g *Group) resolve(regex string, r *Resolved) {
	if old := g.resolved(regex); old != nil {
		for _, t := range old.Topics {
			g.names = addSubscribers(g.names, t, subscribers{byRegex: -1})
		}
	}
	if r == nil {
		g.regexes = remove(g.regexes, regex)
		return
	}
	for _, t := range r.Topics {
		g.names = addSubscribers(g.names, t, subscribers{byRegex: 1})
	}
	g.regexes = set(g.regexes, regex, r)
}

// Tombstones are the records that remove the group.
func (g *Group) Tombstones() []Record {
	var out []Record
	ids := g.tableOrder()
	each := func(kind Kind) {
		for _, id := range ids {
			out = append(out, Record{Kind: kind, Group: g.ID, Of: id})
		}
	}
	each(KindCurrent)
	each(KindTargetMember)
	out = append(out, Record{Kind: KindTarget, Group: g.ID})
	each(KindMember)
	for regex := range all(g.regexes) {
		out = append(out, Record{Kind: KindRegex, Group: g.ID, Of: regex})
	}
	return append(out, Record{Kind: KindPartitionMetadata, Group: g.ID}, Record{Kind: KindGroup, Group: g.ID})
}

// Valid checks what Group says of its fields, by counting again. It is costly, for tests.
func (g *Group) Valid() error {
	n := New(g.ID)
	for _, m := range all(g.members) {
		n.put(m)
	}
	for regex, r := range all(g.regexes) {
		n.resolve(regex, r)
	}
	switch {
	case n.classic != g.classic:
		return fmt.Errorf("%d classic members, counted as %d", n.classic, g.classic)
	case !same(n.names, g.names), !same(n.patterns, g.patterns), !same(n.assignors, g.assignors), !same(n.protocols, g.protocols):
		return fmt.Errorf("what the members of %s say is counted wrongly", g.ID)
	case !same(n.static, g.static):
		return fmt.Errorf("the static members of %s are not what they say", g.ID)
	case !same(n.owned, g.owned):
		return fmt.Errorf("partitions of %s are owned by others than its members say", g.ID)
	}
	return nil
}
