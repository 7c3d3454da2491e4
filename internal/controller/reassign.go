package controller

import (
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/image"
	"weir/internal/records"
)

// AlterPartitionReassignments begins to move partitions to other brokers (KIP-455), or, with null replicas, returns them to where
// they were; v1 may refuse another replication factor (KIP-860). The move itself is done by the replicas: those being added copy the
// partition, and the change by which the last of them joins the ISR drops those being removed.
func (c *Core) AlterPartitionReassignments(s Step, req *kmsg.AlterPartitionAssignmentsRequest) Result {
	resp := kmsg.NewPtrAlterPartitionAssignmentsResponse()
	resp.Version, resp.AllowReplicationFactorChange = req.Version, req.AllowReplicationFactorChange
	var res Result
	done, all := 0, 0
	for _, rt := range req.Topics {
		out := kmsg.NewAlterPartitionAssignmentsResponseTopic()
		out.Topic = rt.Topic
		for _, rp := range rt.Partitions {
			row := kmsg.NewAlterPartitionAssignmentsResponseTopicPartition()
			row.Partition = rp.Partition
			all++
			if v, ok, err := c.reassign(s.Image, rt.Topic, rp, req.AllowReplicationFactorChange); err != nil {
				row.ErrorCode, row.ErrorMessage = err.Code, err.text()
			} else {
				done++
				if ok {
					res.Records = append(res.Records, v)
				}
			}
			out.Partitions = append(out.Partitions, row)
		}
		resp.Topics = append(resp.Topics, out)
	}
	res.Notes = append(res.Notes, fmt.Sprintf("altered %d of %d partition reassignments", done, all))
	res.Response, res.Atomic = resp, true
	return res
}

// reassign works out the change of one partition; ok is false when there is nothing to change.
func (c *Core) reassign(img *image.Image, topic string, rp kmsg.AlterPartitionAssignmentsRequestTopicPartition, factorMayChange bool) (v records.Versioned, ok bool, err *Error) {
	t, known := img.Topic(topic)
	if !known {
		return v, false, refuse(kerr.UnknownTopicOrPartition, "Unable to find a topic named %s.", topic)
	}
	p, known := t.Partition(rp.Partition)
	if !known {
		return v, false, refuse(kerr.UnknownTopicOrPartition, "Unable to find partition %s:%d.", topic, rp.Partition)
	}
	ch := c.newChange(img, t, rp.Partition, p)
	if rp.Replicas == nil {
		err = c.revert(img, t, rp.Partition, p, ch)
	} else {
		err = moveTo(img, p, ch, rp.Replicas, factorMayChange)
	}
	if err != nil {
		return v, false, err
	}
	v, ok = ch.build()
	return v, ok, nil
}

// moveTo makes target the replicas, followed by those to be removed until the target is in sync (PartitionReassignmentReplicas).
func moveTo(img *image.Image, p *image.Partition, ch *change, target []int32, factorMayChange bool) *Error {
	if err := checkAssignment(img, target, 0); err != nil {
		return err
	}
	if now := len(without(union(p.Replicas, p.Adding), p.Removing...)); !factorMayChange && now != len(target) {
		return refuse(kerr.InvalidReplicationFactor, "The replication factor is changed from %d to %d", now, len(target))
	}
	removing, adding := without(p.Replicas, target...), without(target, p.Replicas...)
	slices.Sort(removing)
	slices.Sort(adding)
	ch.replicas = append(slices.Clone(target), removing...)
	if len(removing) > 0 {
		ch.removing = removing
	}
	if len(adding) > 0 {
		ch.adding = adding
	}
	return nil
}

// revert takes out what a reassignment was adding (PartitionReassignmentRevert). When only those are in sync, somebody who is not
// has to lead, which an unclean election must be allowed for.
func (c *Core) revert(img *image.Image, t *image.Topic, partition int32, p *image.Partition, ch *change) *Error {
	if len(p.Adding)+len(p.Removing) == 0 {
		return refuse(kerr.NoReassignmentInProgress, "No partition reassignment is in progress.")
	}
	ch.replicas, ch.isr = without(p.Replicas, p.Adding...), without(p.ISR, p.Adding...)
	ch.adding, ch.removing = nil, nil
	if len(ch.isr) > 0 {
		return nil
	}
	if len(ch.replicas) == 0 {
		return refuse(kerr.InvalidReplicaAssignment, "Invalid replica assignment: addingReplicas contains all replicas.")
	}
	if !c.uncleanEnabled(img, t.Name) {
		return refuse(kerr.InvalidReplicaAssignment, "Unable to revert partition assignment for %s:%d because it would require an unclean leader election.", t.Name, partition)
	}
	ch.isr, ch.election = ch.replicas[:1:1], electUnclean
	return nil
}

// ListPartitionReassignments answers which partitions are being moved; with null topics all of them.
func (c *Core) ListPartitionReassignments(s Step, req *kmsg.ListPartitionReassignmentsRequest) Result {
	resp := kmsg.NewPtrListPartitionReassignmentsResponse()
	resp.Version = req.Version
	add := func(t *image.Topic, wanted func(func(int32) bool)) {
		out := kmsg.NewListPartitionReassignmentsResponseTopic()
		out.Topic = t.Name
		for i := range wanted {
			p, ok := t.Partition(i)
			if !ok || len(p.Adding)+len(p.Removing) == 0 {
				continue
			}
			row := kmsg.NewListPartitionReassignmentsResponseTopicPartition()
			row.Partition, row.Replicas, row.AddingReplicas, row.RemovingReplicas = i, list(p.Replicas), list(p.Adding), list(p.Removing)
			out.Partitions = append(out.Partitions, row)
		}
		if len(out.Partitions) > 0 {
			resp.Topics = append(resp.Topics, out)
		}
	}
	if req.Topics == nil {
		for t := range s.Image.Topics() {
			add(t, func(yield func(int32) bool) {
				for i := range t.Partitions() {
					if !yield(i) {
						return
					}
				}
			})
		}
	}
	for _, rt := range req.Topics {
		if t, ok := s.Image.Topic(rt.Topic); ok {
			add(t, slices.Values(rt.Partitions))
		}
	}
	return Result{Response: resp}
}
