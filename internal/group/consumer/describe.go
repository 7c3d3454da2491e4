package consumer

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/group/assignor"
	"weir/internal/group/hashorder"
	"weir/internal/image"
	"weir/internal/uuid"
)

// Describe tells of the group. Topics that are no more are left out.
func (g *Group) Describe(img *image.Image, defaultAssignor string) kmsg.ConsumerGroupDescribeResponseGroup {
	d := kmsg.NewConsumerGroupDescribeResponseGroup()
	d.Group, d.State, d.Epoch, d.AssignmentEpoch = g.ID, g.State().String(), g.Epoch, g.AssignmentEpoch
	if d.AssignorName = g.preferred(); d.AssignorName == "" {
		d.AssignorName = defaultAssignor
	}
	d.Members = []kmsg.ConsumerGroupDescribeResponseGroupMember{}
	for _, id := range g.tableOrder() {
		d.Members = append(d.Members, g.Member(id).describe(img, g.Target(id)))
	}
	return d
}

func (m *Member) describe(img *image.Image, target assignor.Assignment) kmsg.ConsumerGroupDescribeResponseGroupMember {
	d := kmsg.NewConsumerGroupDescribeResponseGroupMember()
	d.MemberID, d.InstanceID, d.RackID, d.MemberEpoch = m.ID, m.InstanceID, m.RackID, m.Epoch
	d.ClientID, d.ClientHost, d.SubscribedTopicRegex = m.ClientID, m.ClientHost, m.Regex
	d.SubscribedTopics = hashorder.Copied(append([]string{}, m.Topics...), len(m.Topics), hashorder.String)
	if d.MemberType = 1; m.Classic != nil {
		d.MemberType = 0
	}
	d.Assignment.TopicPartitions = []kmsg.AssignmentTopicPartition{}
	at := map[uuid.UUID]int{}
	// What it has to give up is still its own.
	for _, owned := range []Owned{m.Assigned, m.Revoking} {
		for _, id := range owned.topics() {
			i, ok := at[id]
			if !ok {
				i = len(d.Assignment.TopicPartitions)
				row, known := describeTopic(img, id)
				if !known {
					continue
				}
				at[id] = i
				d.Assignment.TopicPartitions = append(d.Assignment.TopicPartitions, row)
			}
			row := &d.Assignment.TopicPartitions[i]
			row.Partitions = append(row.Partitions, owned.partitions(id)...)
		}
	}
	d.TargetAssignment.TopicPartitions = []kmsg.AssignmentTopicPartition{}
	for _, t := range target {
		if row, known := describeTopic(img, t.Topic); known {
			row.Partitions = t.Partitions
			d.TargetAssignment.TopicPartitions = append(d.TargetAssignment.TopicPartitions, row)
		}
	}
	return d
}

func describeTopic(img *image.Image, id uuid.UUID) (row kmsg.AssignmentTopicPartition, known bool) {
	t, ok := img.TopicByID(id)
	if !ok {
		return row, false
	}
	row = kmsg.NewAssignmentTopicPartition()
	row.TopicID, row.Topic, row.Partitions = id, t.Name, []int32{}
	return row, true
}
