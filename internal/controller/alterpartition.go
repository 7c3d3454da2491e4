package controller

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/image"
	"weir/internal/invariant"
	"weir/internal/records"
)

// AlterPartition handles a leader's wish to change its ISR (KIP-497), v2 and v3: topics by id; from v3 on with the epoch of each
// member, so that a broker that came back with an empty disk is not taken for its former self (KIP-903).
func (c *Core) AlterPartition(s Step, req *kmsg.AlterPartitionRequest) Result {
	resp := kmsg.NewPtrAlterPartitionResponse()
	resp.Version = req.Version
	if err := checkEpoch(s.Image, req.BrokerID, req.BrokerEpoch); err != nil {
		resp.ErrorCode = err.Code
		return Result{Response: resp, Err: err}
	}
	var recs []records.Versioned
	for _, rt := range req.Topics {
		out := kmsg.NewAlterPartitionResponseTopic()
		out.TopidID = rt.TopicID
		t, known := s.Image.TopicByID(rt.TopicID)
		for i := range rt.Partitions {
			if !known {
				out.Partitions = append(out.Partitions, refusedISR(rt.Partitions[i].Partition, kerr.UnknownTopicID.Code))
				continue
			}
			answer, v := c.alterOne(s.Image, t, req.BrokerID, &rt.Partitions[i])
			out.Partitions = append(out.Partitions, answer)
			recs = append(recs, v...)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return Result{Records: recs, Response: resp}
}

func refusedISR(partition int32, code int16) kmsg.AlterPartitionResponseTopicPartition {
	r := kmsg.NewAlterPartitionResponseTopicPartition()
	r.Partition, r.ErrorCode = partition, code
	return r
}

// isrMember is one wanted member of the ISR; epoch -1 when the request does not tell.
type isrMember struct {
	id    int32
	epoch int64
}

func isrMembers(rp *kmsg.AlterPartitionRequestTopicPartition) []isrMember {
	var out []isrMember
	for _, m := range rp.NewEpochISR {
		out = append(out, isrMember{m.BrokerID, m.BrokerEpoch})
	}
	if out == nil {
		for _, id := range rp.NewISR {
			out = append(out, isrMember{id, -1})
		}
	}
	return out
}

func (c *Core) alterOne(img *image.Image, t *image.Topic, broker int32, rp *kmsg.AlterPartitionRequestTopicPartition) (kmsg.AlterPartitionResponseTopicPartition, []records.Versioned) {
	p, ok := t.Partition(rp.Partition)
	if !ok {
		return refusedISR(rp.Partition, kerr.UnknownTopicOrPartition.Code), nil
	}
	members := isrMembers(rp)
	if code := checkISR(img, p, broker, rp, members); code != 0 {
		return refusedISR(rp.Partition, code), nil
	}
	ch := c.newChange(img, t, rp.Partition, p)
	if c.uncleanEnabled(img, t.Name) {
		ch.election = electUnclean
	}
	ch.isr = nil
	for _, m := range members {
		ch.isr = append(ch.isr, m.id)
	}
	ch.recovering = rp.LeaderRecoveryState == 1
	var recs []records.Versioned
	if v, ok := ch.build(); ok {
		change := v.Record.(*records.PartitionChangeRecord)
		merged, err := p.Merge(change)
		invariant.Check(err == nil, "a change made here does not apply: %v", err)
		recs, p = append(recs, v), merged
		if change.Leader != broker && change.Leader != image.NoLeaderChange {
			// The change ended a reassignment that removes the leader itself, which must read new metadata first.
			return refusedISR(rp.Partition, kerr.NewLeaderElected.Code), recs
		}
	}
	r := kmsg.NewAlterPartitionResponseTopicPartition()
	r.Partition, r.LeaderID, r.LeaderEpoch, r.PartitionEpoch, r.ISR = rp.Partition, p.Leader, p.LeaderEpoch, p.PartitionEpoch, list(p.ISR)
	if p.Recovering {
		r.LeaderRecoveryState = 1
	}
	return r, recs
}

// checkISR returns the error code for a wish that cannot be granted, 0 otherwise. A leader with higher epochs than ours has seen a
// newer controller, hence NOT_CONTROLLER.
func checkISR(img *image.Image, p *image.Partition, broker int32, rp *kmsg.AlterPartitionRequestTopicPartition, members []isrMember) int16 {
	switch {
	case rp.LeaderEpoch > p.LeaderEpoch || rp.PartitionEpoch > p.PartitionEpoch:
		return kerr.NotController.Code
	case rp.LeaderEpoch < p.LeaderEpoch:
		return kerr.FencedLeaderEpoch.Code
	case broker != p.Leader:
		return kerr.InvalidRequest.Code
	case rp.PartitionEpoch < p.PartitionEpoch:
		return kerr.InvalidUpdateVersion.Code
	}
	var isr []int32
	for _, m := range members {
		if !slices.Contains(p.Replicas, m.id) || slices.Contains(isr, m.id) {
			return kerr.InvalidRequest.Code
		}
		isr = append(isr, m.id)
	}
	recovering := rp.LeaderRecoveryState == 1
	switch {
	case !slices.Contains(isr, p.Leader),
		recovering && len(isr) > 1,
		recovering && !p.Recovering,
		rp.LeaderRecoveryState < 0 || rp.LeaderRecoveryState > 1:
		return kerr.InvalidRequest.Code
	}
	for _, m := range members {
		b, ok := img.Broker(m.id)
		if !ok || !b.Active() || m.epoch != -1 && m.epoch != b.Epoch {
			return kerr.IneligibleReplica.Code
		}
	}
	return 0
}
