package consumer

import (
	"strings"
	"testing"

	"weir/internal/records"
	"weir/internal/uuid"
)

// Records that nothing here writes are not read.
func TestParseRefuses(t *testing.T) {
	a, b := uuid.UUID{15: 1}, uuid.UUID{15: 2}
	target := func(rows ...records.ConsumerGroupTargetAssignmentMemberValueTopicPartition) records.Message {
		return &records.ConsumerGroupTargetAssignmentMemberValue{TopicPartitions: rows}
	}
	current := func(rows ...records.ConsumerGroupCurrentMemberAssignmentValueTopicPartitions) records.Message {
		return &records.ConsumerGroupCurrentMemberAssignmentValue{MemberEpoch: 2, AssignedPartitions: rows[:1], PartitionsPendingRevocation: rows[1:]}
	}
	classic := func(protocols ...string) records.Message {
		v := records.NewConsumerGroupMemberMetadataValue()
		v.ClassicMemberMetadata = &records.ConsumerGroupMemberMetadataValueClassicMemberMetadata{}
		for _, name := range protocols {
			v.ClassicMemberMetadata.SupportedProtocols = append(v.ClassicMemberMetadata.SupportedProtocols,
				records.ConsumerGroupMemberMetadataValueClassicMemberMetadataSupportedProtocol{Name: name})
		}
		return &v
	}
	type (
		trow = records.ConsumerGroupTargetAssignmentMemberValueTopicPartition
		crow = records.ConsumerGroupCurrentMemberAssignmentValueTopicPartitions
	)
	for _, c := range []struct {
		name string
		kind Kind
		v    records.Message
		want string // part of the error, "" for none
	}{
		{"a target", KindTargetMember, target(trow{TopicID: a, Partitions: []int32{1, 0}}, trow{TopicID: b, Partitions: []int32{0}}), ""},
		{"a topic twice", KindTargetMember, target(trow{TopicID: a, Partitions: []int32{0}}, trow{TopicID: a, Partitions: []int32{1}}), "twice"},
		{"a partition twice", KindTargetMember, target(trow{TopicID: a, Partitions: []int32{1, 1}}), "twice"},
		{"no partition", KindTargetMember, target(trow{TopicID: a, Partitions: []int32{-1}}), "none"},
		{"an assignment", KindCurrent, current(crow{TopicID: a, Partitions: []int32{0}}, crow{TopicID: a, Partitions: []int32{1}}), ""},
		{"a partition assigned twice", KindCurrent, current(crow{TopicID: a, Partitions: []int32{0, 0}}), "twice"},
		{"a topic revoked twice", KindCurrent, current(crow{TopicID: b}, crow{TopicID: a, Partitions: []int32{1}}, crow{TopicID: a}), "twice"},
		{"a classic member", KindMember, classic("range"), ""},
		{"a classic member without a protocol", KindMember, classic(), "no protocol"},
	} {
		r := Record{Kind: c.kind, Group: "g", Of: "m", Value: c.v}
		key, value := r.Append(nil)
		_, err := Parse(c.kind, key[2:], value[2:], valueVersion)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}
