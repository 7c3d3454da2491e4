package consumer

import (
	"maps"
	"slices"

	"weir/internal/group/hashorder"
	"weir/internal/records"
	"weir/internal/uuid"
)

// MemberState is where a member stands between what it has and what it shall have.
type MemberState int8

// The states, as records have them.
const (
	Stable MemberState = iota
	// Unrevoked: it has to give up partitions first.
	Unrevoked
	// Unreleased: it waits for partitions that others have.
	Unreleased
	// Unknown: a newer version has written a state that this one does not know.
	Unknown MemberState = 127
)

// Epochs that a member sends to leave, and that a static member has while it is away.
const (
	LeaveEpoch       int32 = -1
	StaticLeaveEpoch int32 = -2
)

// Owned is partitions with the member epoch at which each was assigned.
type Owned map[uuid.UUID]map[int32]int32

// Member is one member of a group. It is never changed.
type Member struct {
	ID                   string
	InstanceID, RackID   *string
	ClientID, ClientHost string
	Topics               []string // that it names, each once, in the order of its record
	Regex                *string  // null and empty: none
	RebalanceTimeout     int32    // ms, -1 when not told
	Assignor             *string  // that it prefers
	// Classic is what only a member of the classic protocol has.
	Classic *records.ConsumerGroupMemberMetadataValueClassicMemberMetadata

	Epoch, PreviousEpoch int32
	State                MemberState
	Assigned             Owned
	Revoking             Owned // what it has to give up
}

func newMember(id string) *Member {
	none := ""
	return &Member{ID: id, Regex: &none, RebalanceTimeout: -1, PreviousEpoch: -1}
}

// regex is the member's regular expression, "" for none.
func (m *Member) regex() string {
	if m == nil || m.Regex == nil {
		return ""
	}
	return *m.Regex
}

// reconciled tells whether the member has all that was assigned at an epoch.
func (m *Member) reconciled(epoch int32) bool { return m.State == Stable && m.Epoch == epoch }

// sameMetadata tells whether a member record of both would be equal.
func (m *Member) sameMetadata(o *Member) bool {
	return equal(m.InstanceID, o.InstanceID) && equal(m.RackID, o.RackID) && m.ClientID == o.ClientID && m.ClientHost == o.ClientHost &&
		sameNames(m.Topics, o.Topics) && equal(m.Regex, o.Regex) && m.RebalanceTimeout == o.RebalanceTimeout &&
		equal(m.Assignor, o.Assignor) && sameClassic(m.Classic, o.Classic)
}

// sameAssignment tells whether a current assignment record of both would be equal.
func (m *Member) sameAssignment(o *Member) bool {
	return m.Epoch == o.Epoch && m.PreviousEpoch == o.PreviousEpoch && m.State == o.State &&
		sameOwned(m.Assigned, o.Assigned) && sameOwned(m.Revoking, o.Revoking)
}

func equal(a, b *string) bool {
	return a == b || a != nil && b != nil && *a == *b
}

func sameNames(a, b []string) bool {
	if len(a) != len(b) {
		return false
	}
	if slices.Equal(a, b) {
		return true
	}
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

func sameClassic(a, b *records.ConsumerGroupMemberMetadataValueClassicMemberMetadata) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.SessionTimeoutMs == b.SessionTimeoutMs && slices.EqualFunc(a.SupportedProtocols, b.SupportedProtocols,
		func(x, y records.ConsumerGroupMemberMetadataValueClassicMemberMetadataSupportedProtocol) bool {
			return x.Name == y.Name && string(x.Metadata) == string(y.Metadata)
		})
}

func sameOwned(a, b Owned) bool { return maps.EqualFunc(a, b, maps.Equal[map[int32]int32]) }

// topics lists the topics as Kafka iterates them.
func (o Owned) topics() []uuid.UUID {
	ids := slices.SortedFunc(maps.Keys(o), uuid.UUID.Compare)
	return hashorder.Map(ids, 0, hashorder.UUID)
}

// partitions lists the partitions of a topic as Kafka iterates them.
func (o Owned) partitions(id uuid.UUID) []int32 {
	ps := slices.Sorted(maps.Keys(o[id]))
	return hashorder.Map(ps, 0, hashorder.Int)
}

func (o Owned) has(id uuid.UUID, p int32) bool {
	_, ok := o[id][p]
	return ok
}

// metadataRecord is the record of a member but for its assignment.
func (m *Member) metadataRecord(group string) Record {
	v := records.NewConsumerGroupMemberMetadataValue()
	v.InstanceID, v.RackID, v.ClientID, v.ClientHost = m.InstanceID, m.RackID, m.ClientID, m.ClientHost
	v.SubscribedTopicNames, v.SubscribedTopicRegex = slices.Sorted(slices.Values(m.Topics)), m.Regex
	v.RebalanceTimeoutMs, v.ServerAssignor, v.ClassicMemberMetadata = m.RebalanceTimeout, m.Assignor, m.Classic
	return Record{Kind: KindMember, Group: group, Of: m.ID, Value: &v}
}

// currentRecord is the record of a member's assignment.
func (m *Member) currentRecord(group string) Record {
	v := records.NewConsumerGroupCurrentMemberAssignmentValue()
	v.MemberEpoch, v.PreviousMemberEpoch, v.State = m.Epoch, m.PreviousEpoch, int8(m.State)
	v.AssignedPartitions, v.PartitionsPendingRevocation = m.Assigned.rows(), m.Revoking.rows()
	return Record{Kind: KindCurrent, Group: group, Of: m.ID, Value: &v}
}

func (o Owned) rows() []records.ConsumerGroupCurrentMemberAssignmentValueTopicPartitions {
	out := make([]records.ConsumerGroupCurrentMemberAssignmentValueTopicPartitions, 0, len(o))
	for _, id := range o.topics() {
		t := records.NewConsumerGroupCurrentMemberAssignmentValueTopicPartitions()
		t.TopicID, t.Partitions = id, o.partitions(id)
		for _, p := range t.Partitions {
			t.AssignmentEpochs = append(t.AssignmentEpochs, o[id][p])
		}
		out = append(out, t)
	}
	return out
}

// withMetadata is the member with what a record says of it.
func (m *Member) withMetadata(v *records.ConsumerGroupMemberMetadataValue) *Member {
	n := *m
	n.InstanceID, n.RackID, n.ClientID, n.ClientHost = v.InstanceID, v.RackID, v.ClientID, v.ClientHost
	n.Topics, n.Regex, n.RebalanceTimeout = unique(v.SubscribedTopicNames), v.SubscribedTopicRegex, v.RebalanceTimeoutMs
	n.Assignor, n.Classic = v.ServerAssignor, v.ClassicMemberMetadata
	return &n
}

// withCurrent is the member with the assignment of a record.
func (m *Member) withCurrent(v *records.ConsumerGroupCurrentMemberAssignmentValue) *Member {
	n := *m
	n.Epoch, n.PreviousEpoch, n.State = v.MemberEpoch, v.PreviousMemberEpoch, MemberState(v.State)
	if n.State < Stable || n.State > Unreleased {
		n.State = Unknown
	}
	n.Assigned, n.Revoking = ownedOf(v.AssignedPartitions, v.MemberEpoch), ownedOf(v.PartitionsPendingRevocation, v.MemberEpoch)
	return &n
}

// ownedOf reads partitions. Records before 4.3 have no assignment epochs: the
// member's is taken, as far as it is none of a member that has left.
func ownedOf(rows []records.ConsumerGroupCurrentMemberAssignmentValueTopicPartitions, epoch int32) Owned {
	out := make(Owned, len(rows))
	for _, t := range rows {
		ps := make(map[int32]int32, len(t.Partitions))
		for i, p := range t.Partitions {
			ps[p] = max(epoch, 0)
			if len(t.AssignmentEpochs) == len(t.Partitions) {
				ps[p] = t.AssignmentEpochs[i]
			}
		}
		out[t.TopicID] = ps
	}
	return out
}

// unique drops names that come again.
func unique(names []string) []string {
	out := make([]string, 0, len(names))
	seen := make(map[string]bool, len(names))
	for _, n := range names {
		if !seen[n] {
			seen[n] = true
			out = append(out, n)
		}
	}
	return out
}
