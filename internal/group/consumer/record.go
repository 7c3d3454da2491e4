package consumer

import (
	"encoding/binary"
	"fmt"

	"weir/internal/records"
	"weir/internal/uuid"
)

// Kind is the type of a record: the first two bytes of its key.
type Kind int16

// The kinds.
const (
	KindGroup             Kind = 3
	KindPartitionMetadata Kind = 4
	KindMember            Kind = 5
	KindTarget            Kind = 6
	KindTargetMember      Kind = 7
	KindCurrent           Kind = 8
	KindRegex             Kind = 16
)

// IsKind tells whether records of a type belong to consumer groups.
func IsKind(kind int16) bool {
	return kind >= int16(KindGroup) && kind <= int16(KindCurrent) || kind == int16(KindRegex)
}

// Record is one record of a consumer group.
type Record struct {
	Kind  Kind
	Group string
	// Of is the member id (KindMember, KindTargetMember, KindCurrent) or the regular
	// expression (KindRegex).
	Of string
	// Value is a pointer to the kind's value of package records; nil for a tombstone.
	Value records.Message
}

// valueVersion is the version in which all values are written.
const valueVersion = 0

// Append adds the record's key to k and returns it with the value, which is nil for
// a tombstone.
func (r *Record) Append(k []byte) (key, value []byte) {
	key = r.key().AppendTo(binary.BigEndian.AppendUint16(k, uint16(r.Kind)), 0)
	if r.Value != nil {
		value = r.Value.AppendTo(binary.BigEndian.AppendUint16(nil, valueVersion), valueVersion)
	}
	return key, value
}

func (r *Record) key() records.Message {
	switch r.Kind {
	case KindGroup:
		return &records.ConsumerGroupMetadataKey{GroupID: r.Group}
	case KindPartitionMetadata:
		return &records.ConsumerGroupPartitionMetadataKey{GroupID: r.Group}
	case KindMember:
		return &records.ConsumerGroupMemberMetadataKey{GroupID: r.Group, MemberID: r.Of}
	case KindTarget:
		return &records.ConsumerGroupTargetAssignmentMetadataKey{GroupID: r.Group}
	case KindTargetMember:
		return &records.ConsumerGroupTargetAssignmentMemberKey{GroupID: r.Group, MemberID: r.Of}
	case KindCurrent:
		return &records.ConsumerGroupCurrentMemberAssignmentKey{GroupID: r.Group, MemberID: r.Of}
	case KindRegex:
		return &records.ConsumerGroupRegularExpressionKey{GroupID: r.Group, RegularExpression: r.Of}
	}
	panic(fmt.Sprintf("BUG: no key of kind %d", r.Kind))
}

// Parse reads a record: key without its type, body without its version, nil for a
// tombstone. It keeps no reference to either.
func Parse(kind Kind, key, body []byte, version int16) (*Record, error) {
	r := &Record{Kind: kind}
	m := r.key()
	if err := m.ReadFrom(key, 0); err != nil {
		return nil, err
	}
	switch k := m.(type) {
	case *records.ConsumerGroupMetadataKey:
		r.Group, r.Value = k.GroupID, &records.ConsumerGroupMetadataValue{}
	case *records.ConsumerGroupPartitionMetadataKey:
		r.Group, r.Value = k.GroupID, &records.ConsumerGroupPartitionMetadataValue{}
	case *records.ConsumerGroupMemberMetadataKey:
		r.Group, r.Of, r.Value = k.GroupID, k.MemberID, &records.ConsumerGroupMemberMetadataValue{}
	case *records.ConsumerGroupTargetAssignmentMetadataKey:
		r.Group, r.Value = k.GroupID, &records.ConsumerGroupTargetAssignmentMetadataValue{}
	case *records.ConsumerGroupTargetAssignmentMemberKey:
		r.Group, r.Of, r.Value = k.GroupID, k.MemberID, &records.ConsumerGroupTargetAssignmentMemberValue{}
	case *records.ConsumerGroupCurrentMemberAssignmentKey:
		r.Group, r.Of, r.Value = k.GroupID, k.MemberID, &records.ConsumerGroupCurrentMemberAssignmentValue{}
	case *records.ConsumerGroupRegularExpressionKey:
		r.Group, r.Of, r.Value = k.GroupID, k.RegularExpression, &records.ConsumerGroupRegularExpressionValue{}
	}
	if body == nil {
		r.Value = nil
		return r, nil
	}
	if err := r.Value.ReadFrom(body, version); err != nil {
		return r, err
	}
	return r, r.check()
}

// check refuses values that nothing here writes and the group's rules could not bear.
func (r *Record) check() error {
	switch v := r.Value.(type) {
	case *records.ConsumerGroupMemberMetadataValue:
		if c := v.ClassicMemberMetadata; c != nil && len(c.SupportedProtocols) == 0 {
			return fmt.Errorf("member %s of the classic protocol supports no protocol", r.Of)
		}
	case *records.ConsumerGroupTargetAssignmentMemberValue:
		seen := partitionSet{}
		for _, t := range v.TopicPartitions {
			if err := seen.add(t.TopicID, t.Partitions); err != nil {
				return fmt.Errorf("target of member %s: %w", r.Of, err)
			}
		}
	case *records.ConsumerGroupCurrentMemberAssignmentValue:
		for _, rows := range [][]records.ConsumerGroupCurrentMemberAssignmentValueTopicPartitions{v.AssignedPartitions, v.PartitionsPendingRevocation} {
			seen := partitionSet{}
			for _, t := range rows {
				if err := seen.add(t.TopicID, t.Partitions); err != nil {
					return fmt.Errorf("assignment of member %s: %w", r.Of, err)
				}
			}
		}
	}
	return nil
}

// partitionSet is the partitions of a record, by topic.
type partitionSet map[uuid.UUID]map[int32]bool

// add refuses a topic or partition that is there already, and what is no partition.
func (s partitionSet) add(topic uuid.UUID, partitions []int32) error {
	if s[topic] != nil {
		return fmt.Errorf("topic %s comes twice", topic)
	}
	s[topic] = make(map[int32]bool, len(partitions))
	for _, p := range partitions {
		if p < 0 || s[topic][p] {
			return fmt.Errorf("partition %d of topic %s comes twice or is none", p, topic)
		}
		s[topic][p] = true
	}
	return nil
}
