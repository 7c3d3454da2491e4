package api

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/clock"
	"weir/internal/isr"
	"weir/internal/partition"
	"weir/internal/wire"
)

// DeleteRecords moves log start offsets (API key 21), versions 0–2; v2 flexible.
// It answers when the live replicas have followed.
type DeleteRecords struct {
	Images   Images
	Replicas Replicas
	Clock    clock.Clock
}

// Key is DeleteRecords.
func (*DeleteRecords) Key() kmsg.Key { return kmsg.DeleteRecords }

// deletion is a partition whose replicas have still to follow.
type deletion struct {
	replica *partition.Replica
	row     *kmsg.DeleteRecordsResponseTopicPartition
	to      int64
}

// Handle deletes at the leader, then waits.
func (h *DeleteRecords) Handle(ctx context.Context, _ *Call, r kmsg.Request) wire.Response {
	req := as[*kmsg.DeleteRecordsRequest](r)
	res := responseTo[*kmsg.DeleteRecordsResponse](r)
	res.Topics = make([]kmsg.DeleteRecordsResponseTopic, len(req.Topics))
	var waits []deletion
	for i := range req.Topics {
		t := &req.Topics[i]
		rt := &res.Topics[i]
		rt.Default()
		rt.Topic = t.Topic
		rt.Partitions = make([]kmsg.DeleteRecordsResponseTopicPartition, len(t.Partitions))
		for j := range t.Partitions {
			q, rp := &t.Partitions[j], &rt.Partitions[j]
			rp.Default()
			rp.Partition, rp.LowWatermark = q.Partition, -1
			replica, to, err := h.one(t.Topic, q)
			if err != nil {
				rp.ErrorCode = code(err)
				continue
			}
			rp.LowWatermark = to
			waits = append(waits, deletion{replica, rp, to})
		}
	}
	h.wait(ctx, time.Duration(req.TimeoutMillis)*time.Millisecond, waits)
	return reply(res)
}

func (h *DeleteRecords) one(topic string, q *kmsg.DeleteRecordsRequestTopicPartition) (*partition.Replica, int64, error) {
	img := h.Images.Image()
	t, ok := img.Topic(topic)
	if !ok {
		return nil, 0, errUnknownPartition
	}
	replica, err := find(img, h.Replicas, t, q.Partition)
	if err != nil {
		return nil, 0, err
	}
	if !replica.Log().Config().CleanupDelete {
		return nil, 0, kerr.PolicyViolation // compaction alone: records are deleted by key (K19)
	}
	to, err := replica.DeleteRecords(q.Offset)
	return replica, to, err
}

// wait ends when every live follower's log start offset has reached the
// leader's; those that do not in time are answered REQUEST_TIMED_OUT.
func (h *DeleteRecords) wait(ctx context.Context, timeout time.Duration, waits []deletion) {
	behind := func() (left []deletion) {
		img := h.Images.Image()
		brokers := func(id int32) (isr.Broker, bool) {
			b, ok := img.Broker(id)
			if !ok {
				return isr.Broker{}, false
			}
			return isr.Broker{Epoch: b.Epoch, Fenced: b.Fenced, ShuttingDown: b.InControlledShutdown}, true
		}
		for _, w := range waits {
			if low := w.replica.LowWatermark(brokers); low < w.to {
				left = append(left, w)
			} else {
				w.row.LowWatermark = low
			}
		}
		return left
	}
	left := behind()
	if len(left) == 0 {
		return
	}
	wake := make(signal, 1)
	for _, w := range left {
		w.replica.Watch(wake)
		defer w.replica.Unwatch(wake)
	}
	late, stop := clock.After(h.Clock, timeout)
	defer stop()
	for left = behind(); len(left) > 0; left = behind() {
		select {
		case <-wake:
			continue
		case <-late:
		case <-ctx.Done():
		}
		for _, w := range left {
			w.row.ErrorCode, w.row.LowWatermark = kerr.RequestTimedOut.Code, -1
		}
		return
	}
}

// signal is a Watcher that wakes one waiter.
type signal chan struct{}

// Changed wakes.
func (s signal) Changed(*partition.Replica, partition.News) {
	select {
	case s <- struct{}{}:
	default:
	}
}
