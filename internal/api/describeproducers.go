package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/wire"
)

// DescribeProducers lists the producers that a replica knows, be it leader or
// follower (API key 61), version 0 (KIP-664).
type DescribeProducers struct {
	Images   Images
	Replicas Replicas
}

// Key is DescribeProducers.
func (*DescribeProducers) Key() kmsg.Key { return kmsg.DescribeProducers }

// Handle answers each partition on its own.
func (h *DescribeProducers) Handle(_ context.Context, _ *Call, r kmsg.Request) wire.Response {
	req := as[*kmsg.DescribeProducersRequest](r)
	res := responseTo[*kmsg.DescribeProducersResponse](r)
	for _, t := range req.Topics {
		rt := kmsg.NewDescribeProducersResponseTopic()
		rt.Topic = t.Topic
		for _, id := range t.Partitions {
			rp := kmsg.NewDescribeProducersResponseTopicPartition()
			rp.Partition = id
			err := h.one(t.Topic, id, &rp)
			rp.ErrorCode, rp.ErrorMessage = code(err), ownText(err)
			rt.Partitions = append(rt.Partitions, rp)
		}
		res.Topics = append(res.Topics, rt)
	}
	return reply(res)
}

func (h *DescribeProducers) one(topic string, id int32, rp *kmsg.DescribeProducersResponseTopicPartition) error {
	img := h.Images.Image()
	if reason := invalidTopicName(topic); reason != "" {
		return refuse(kerr.InvalidTopicException, reason)
	}
	t, ok := img.Topic(topic)
	if !ok {
		return errUnknownPartition
	}
	if !hasPartition(t, id) {
		return kerr.UnknownTopicOrPartition // Kafka has no text for this one
	}
	replica, err := find(img, h.Replicas, t, id)
	if err != nil {
		return err
	}
	for _, p := range replica.Log().ActiveProducers() {
		n := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
		n.ProducerID, n.ProducerEpoch, n.LastSequence, n.LastTimestamp = p.ProducerID, p.ProducerEpoch, p.LastSequence, p.LastTimestamp
		n.CoordinatorEpoch, n.CurrentTxnStartOffset = p.CoordinatorEpoch, p.TxnStartOffset
		rp.ActiveProducers = append(rp.ActiveProducers, n)
	}
	return nil
}
