package controller

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// reassign TOPIC-N to=(ID,…) [keep-factor] | reassign TOPIC-N cancel
func reassignCommand(e *env, t *testing.T, d *datadriven.TestData) {
	a := args{t, d}
	topic, n := a.partition()
	r := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	r.Version, r.AllowReplicationFactorChange = 1, !a.has("keep-factor")
	rt := kmsg.NewAlterPartitionAssignmentsRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
	rp.Partition = n
	if !a.has("cancel") {
		rp.Replicas = a.ints("to")
		if rp.Replicas == nil {
			rp.Replicas = []int32{}
		}
	}
	rt.Partitions = append(rt.Partitions, rp)
	r.Topics = append(r.Topics, rt)
	res := e.core.AlterPartitionReassignments(e.step(), r)
	e.apply(res)
	x := res.Response.(*kmsg.AlterPartitionAssignmentsResponse).Topics[0].Partitions[0]
	e.answer(fmt.Sprintf("%s-%d", topic, n), x.ErrorCode, x.ErrorMessage)
}

// moving [topics=(NAME,…)]: which partitions are being moved
func movingCommand(e *env, t *testing.T, d *datadriven.TestData) {
	a := args{t, d}
	r := kmsg.NewPtrListPartitionReassignmentsRequest()
	for _, name := range a.list("topics") {
		rt := kmsg.NewListPartitionReassignmentsRequestTopic()
		rt.Topic, rt.Partitions = name, []int32{0, 1, 2}
		r.Topics = append(r.Topics, rt)
	}
	res := e.core.ListPartitionReassignments(e.step(), r)
	for _, x := range res.Response.(*kmsg.ListPartitionReassignmentsResponse).Topics {
		for _, p := range x.Partitions {
			fmt.Fprintf(&e.out, "%s-%d: %v, adding %v, removing %v\n", x.Topic, p.Partition, p.Replicas, p.AddingReplicas, p.RemovingReplicas)
		}
	}
}
