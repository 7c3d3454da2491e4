package controller

import (
	"iter"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/image"
	"weir/internal/invariant"
	"weir/internal/records"
)

// nobody stands for "no broker" in a brokerChange.
const nobody int32 = -1

// brokerChange says how one broker's change of state touches partitions.
type brokerChange struct {
	remove  int32 // leaves ISRs and may not lead
	add     int32 // may lead although the image still has it fenced
	unclean int32 // leaves ISRs and ELRs
}

// leaderUpdates works out the change of each partition (Kafka's generateLeaderAndIsrUpdates).
func (c *Core) leaderUpdates(img *image.Image, u brokerChange, partitions []image.PartitionID) []records.Versioned {
	var recs []records.Versioned
	for _, id := range partitions {
		t, ok := img.TopicByID(id.Topic)
		invariant.Check(ok, "the index names topic %s, which does not exist", id.Topic)
		p, ok := t.Partition(id.Partition)
		invariant.Check(ok, "the index names partition %s-%d, which does not exist", t.Name, id.Partition)
		ch := c.newChange(img, t, id.Partition, p)
		ch.acceptable = func(b int32) bool {
			if b == u.remove || b == u.unclean {
				return false
			}
			if b == u.add {
				r, ok := img.Broker(b)
				return ok && r.HasOnlineDir(p.Directory(b))
			}
			return acceptable(img, p, b)
		}
		if c.uncleanEnabled(img, t.Name) {
			ch.election = electUnclean
		}
		if u.unclean != nobody {
			ch.unclean = []int32{u.unclean}
		}
		ch.isr = without(p.ISR, u.remove, u.unclean)
		if v, ok := ch.build(); ok {
			recs = append(recs, v)
		}
	}
	return recs
}

func inISR(img *image.Image, broker int32) []image.PartitionID {
	return matching(img.PartitionsOn(broker), func(p *image.Partition) bool { return slices.Contains(p.ISR, broker) })
}

func inELR(img *image.Image, broker int32) []image.PartitionID {
	return matching(img.PartitionsOn(broker), func(p *image.Partition) bool { return slices.Contains(p.ELR, broker) })
}

func matching(seq iter.Seq2[image.PartitionID, *image.Partition], want func(*image.Partition) bool) []image.PartitionID {
	var out []image.PartitionID
	for id, p := range seq {
		if want(p) {
			out = append(out, id)
		}
	}
	return out
}

func ids(seq iter.Seq2[image.PartitionID, *image.Partition]) []image.PartitionID {
	return matching(seq, func(*image.Partition) bool { return true })
}

// replay adds records to a list and shows them to a delta, for requests whose later parts must see what the earlier ones did.
func replay(d *image.Delta, recs, more []records.Versioned) []records.Versioned {
	for _, v := range more {
		err := d.Replay(v)
		invariant.Check(err == nil, "the controller made a record that cannot be replayed: %v", err)
	}
	return append(recs, more...)
}

// ElectLeaders handles the request of kafka-leader-election: preferred (type 0) or unclean (type 1), for some partitions or, with null
// topics, for all; in the latter case partitions that need no election are left out of the answer.
func (c *Core) ElectLeaders(s Step, req *kmsg.ElectLeadersRequest) Result {
	resp := kmsg.NewPtrElectLeadersResponse()
	resp.Version = req.Version
	if req.ElectionType != 0 && req.ElectionType != 1 {
		err := refuse(kerr.InvalidRequest, "Unknown election type %d", req.ElectionType)
		resp.ErrorCode = err.Code
		for _, t := range req.Topics {
			rt := kmsg.NewElectLeadersResponseTopic()
			rt.Topic = t.Topic
			for _, i := range t.Partitions {
				r := kmsg.NewElectLeadersResponseTopicPartition()
				r.Partition, r.ErrorCode, r.ErrorMessage = i, err.Code, err.text()
				rt.Partitions = append(rt.Partitions, r)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return Result{Response: resp, Err: err}
	}
	how := electPreferred
	if req.ElectionType == 1 {
		how = electUnclean
	}
	var recs []records.Versioned
	one := func(topic string, partition int32) (kmsg.ElectLeadersResponseTopicPartition, int16) {
		r := kmsg.NewElectLeadersResponseTopicPartition()
		r.Partition = partition
		v, err := c.electLeader(s.Image, topic, partition, how)
		if err != nil {
			r.ErrorCode, r.ErrorMessage = err.Code, err.text()
			return r, err.Code
		}
		recs = append(recs, v)
		return r, 0
	}
	if req.Topics == nil {
		for t := range s.Image.Topics() {
			rt := kmsg.NewElectLeadersResponseTopic()
			rt.Topic = t.Name
			for i := range t.Partitions() {
				if r, code := one(t.Name, i); code != kerr.ElectionNotNeeded.Code {
					rt.Partitions = append(rt.Partitions, r)
				}
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return Result{Records: recs, Response: resp}
	}
	for _, t := range req.Topics {
		rt := kmsg.NewElectLeadersResponseTopic()
		rt.Topic = t.Topic
		for _, i := range t.Partitions {
			r, _ := one(t.Topic, i)
			rt.Partitions = append(rt.Partitions, r)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return Result{Records: recs, Response: resp}
}

func (c *Core) electLeader(img *image.Image, topic string, partition int32, how election) (records.Versioned, *Error) {
	t, ok := img.Topic(topic)
	if !ok {
		return records.Versioned{}, refuse(kerr.UnknownTopicOrPartition, "No such topic as %s", topic)
	}
	p, ok := t.Partition(partition)
	if !ok {
		return records.Versioned{}, refuse(kerr.UnknownTopicOrPartition, "No such partition as %s-%d", topic, partition)
	}
	if how == electPreferred && p.HasPreferredLeader() || how == electUnclean && p.Leader != image.NoLeader {
		return records.Versioned{}, refuse(kerr.ElectionNotNeeded, textElectionNotDone)
	}
	ch := c.newChange(img, t, partition, p)
	ch.election = how
	v, ok := ch.build()
	if !ok {
		if how == electPreferred {
			return v, refuse(kerr.PreferredLeaderNotAvailable, textNoPreferred)
		}
		return v, refuse(kerr.EligibleLeadersNotAvailable, textNoEligible)
	}
	return v, nil
}

// electUncleanly gives leaders to partitions that have none and whose topics allow it.
func (c *Core) electUncleanly(img *image.Image) []records.Versioned {
	var recs []records.Versioned
	for id := range img.Leaderless() {
		t, _ := img.TopicByID(id.Topic)
		if !c.uncleanEnabled(img, t.Name) || len(recs) >= maxElectionsPerTick {
			continue
		}
		if v, err := c.electLeader(img, t.Name, id.Partition, electUnclean); err == nil {
			recs = append(recs, v)
		}
	}
	return recs
}

// balance moves leaderships back to preferred replicas; only those of one broker unless it is nobody.
func (c *Core) balance(img *image.Image, only int32) []records.Versioned {
	var recs []records.Versioned
	for id, p := range img.Imbalanced() {
		if only != nobody && p.Replicas[0] != only || len(recs) >= maxElectionsPerTick {
			continue
		}
		t, _ := img.TopicByID(id.Topic)
		ch := c.newChange(img, t, id.Partition, p)
		ch.election = electPreferred
		if !ch.valid(p.Replicas[0]) {
			continue
		}
		if v, ok := ch.build(); ok {
			recs = append(recs, v)
		}
	}
	return recs
}

// maxElectionsPerTick bounds one batch of elections, as in Kafka.
const maxElectionsPerTick = 1000
