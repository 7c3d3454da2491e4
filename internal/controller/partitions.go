package controller

import (
	"math"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/controller/placement"
	"weir/internal/image"
	"weir/internal/records"
)

// CreatePartitions raises the number of partitions of topics. New partitions have the replication factor of partition 0.
func (c *Core) CreatePartitions(s Step, req *kmsg.CreatePartitionsRequest) Result {
	resp := kmsg.NewPtrCreatePartitionsResponse()
	resp.Version = req.Version
	count := map[string]int{}
	for i := range req.Topics {
		count[req.Topics[i].Topic]++
	}
	d := image.NewDelta(s.Image)
	var recs []records.Versioned
	for i := range req.Topics {
		rt := &req.Topics[i]
		answer := kmsg.NewCreatePartitionsResponseTopic()
		answer.Topic = rt.Topic
		n := count[rt.Topic]
		if n == 0 {
			continue // a repetition that was answered already
		}
		var added []records.Versioned
		var err *Error
		if n > 1 {
			err = refuse(kerr.InvalidRequest, "Duplicate topic name.")
			count[rt.Topic] = 0
		} else if added, err = c.addPartitions(s, d.Image(), rt); err == nil && len(recs)+len(added) > maxRecordsPerRequest {
			err = refuse(kerr.PolicyViolation, textTooManyRecords)
		}
		if err != nil {
			answer.ErrorCode, answer.ErrorMessage = err.Code, err.text()
		} else {
			recs = replay(d, recs, added)
		}
		resp.Topics = append(resp.Topics, answer)
	}
	if req.ValidateOnly {
		recs = nil
	}
	return Result{Records: recs, Response: resp, Atomic: true}
}

func (c *Core) addPartitions(s Step, img *image.Image, rt *kmsg.CreatePartitionsRequestTopic) ([]records.Versioned, *Error) {
	t, ok := img.Topic(rt.Topic)
	if !ok {
		return nil, refuseCode(kerr.UnknownTopicOrPartition)
	}
	have := int32(t.NumPartitions())
	additional := rt.Count - have
	switch {
	case additional == 0:
		return nil, refuse(kerr.InvalidPartitions, "Topic already has %d partition(s).", have)
	case additional < 0:
		return nil, refuse(kerr.InvalidPartitions, "The topic %s currently has %d partition(s); %d would not be an increase.", rt.Topic, have, rt.Count)
	case additional > maxRecordsPerRequest:
		return nil, refuse(kerr.PolicyViolation, textTooManyRecords)
	case rt.Assignment != nil && int(additional) != len(rt.Assignment):
		return nil, refuse(kerr.InvalidReplicaAssignment, "Attempted to add %d additional partition(s), but only %d assignment(s) were specified.", additional, len(rt.Assignment))
	}
	parts, err := c.morePartitions(s, img, t, rt, int(additional))
	if err != nil {
		return nil, err
	}
	var recs []records.Versioned
	for i, p := range parts {
		recs = append(recs, p.Record(image.PartitionID{Topic: t.ID, Partition: have + int32(i)}, img.Features()))
	}
	return recs, nil
}

func (c *Core) morePartitions(s Step, img *image.Image, t *image.Topic, rt *kmsg.CreatePartitionsRequestTopic, additional int) ([]*image.Partition, *Error) {
	first, ok := t.Partition(0)
	if !ok {
		return nil, refuse(kerr.UnknownServerError, "Invalid state: topic %s appears to have no partitions.", t.Name)
	}
	factor := len(first.Replicas)
	if factor > math.MaxInt16 {
		return nil, refuse(kerr.UnknownServerError, "Invalid replication factor %d: expected a number equal to less than %d", factor, math.MaxInt16)
	}
	if rt.Assignment == nil {
		req := placement.Request{Partitions: additional, ReplicationFactor: factor}
		for _, p := range t.Partitions() {
			req.Existing = append(req.Existing, p.Replicas)
		}
		return placed(s, img, req)
	}
	var out []*image.Partition
	for i, a := range rt.Assignment {
		if err := checkAssignment(img, a.Replicas, factor); err != nil {
			return nil, err
		}
		p := newPartition(img, a.Replicas)
		if p == nil {
			return nil, refuse(kerr.InvalidReplicaAssignment, "All brokers specified in the manual partition assignment for partition %d are fenced or in controlled shutdown.", t.NumPartitions()+i)
		}
		out = append(out, p)
	}
	return out, nil
}
