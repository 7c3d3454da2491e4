package api

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/batch"
	"weir/internal/clock"
	"weir/internal/coordinator"
	"weir/internal/group"
	"weir/internal/image"
	"weir/internal/partition"
	"weir/internal/records"
	"weir/internal/storage/producer"
	"weir/internal/wire"
)

// WriteTxnMarkers ends transactions in partitions that this broker leads (API key
// 27), versions 0–2. It is how a coordinator tells of an outcome, and how a hanging
// transaction is aborted by hand (KIP-664).
//
//	v1  flexible
//	v2  the transaction.version under which the marker is written
type WriteTxnMarkers struct {
	Markers *Markers
}

// Key is WriteTxnMarkers.
func (*WriteTxnMarkers) Key() kmsg.Key { return kmsg.WriteTxnMarkers }

// Handle writes the markers.
func (h *WriteTxnMarkers) Handle(ctx context.Context, _ *Call, r kmsg.Request) wire.Response {
	return reply(h.Markers.Write(ctx, as[*kmsg.WriteTxnMarkersRequest](r)))
}

// Markers writes transaction markers into the partitions that this broker leads.
type Markers struct {
	Images   Images
	Replicas Replicas
	Groups   interface {
		EndTxn(partition int32, producerID int64, epoch int16, m group.Marker, done func(err error))
	}
	Timeout time.Duration // request.timeout.ms: of the commit
	Clock   clock.Clock
}

// markerWait is one partition whose marker is not known to be committed.
type markerWait struct {
	code    *int16
	done    <-chan error       // of a group's partition
	replica *partition.Replica // of another one
	commit  *partition.Commit
}

// Write appends all markers and waits until they are committed. A partition that a
// marker names twice gets one, and one row in the answer.
func (w *Markers) Write(ctx context.Context, req *kmsg.WriteTxnMarkersRequest) *kmsg.WriteTxnMarkersResponse {
	res := req.ResponseKind().(*kmsg.WriteTxnMarkersResponse)
	img := w.Images.Image()
	var waits []markerWait
	for i := range req.Markers {
		m := &req.Markers[i]
		rm := kmsg.NewWriteTxnMarkersResponseMarker()
		rm.ProducerID = m.ProducerID
		once := once{}
		for k := range m.Topics {
			t := &m.Topics[k]
			t.Partitions = once.of(t.Topic, t.Partitions)
			rt := kmsg.NewWriteTxnMarkersResponseMarkerTopic()
			rt.Topic = t.Topic
			rt.Partitions = make([]kmsg.WriteTxnMarkersResponseMarkerTopicPartition, len(t.Partitions))
			for j, p := range t.Partitions {
				rp := &rt.Partitions[j]
				rp.Default()
				rp.Partition = p
				if wait := w.one(img, m, t.Topic, p, &rp.ErrorCode); wait != nil {
					waits = append(waits, *wait)
				}
			}
			rm.Topics = append(rm.Topics, rt)
		}
		res.Markers = append(res.Markers, rm)
	}
	w.wait(ctx, waits)
	return res
}

// one appends one marker. An error is put into code; else what to wait for is
// returned, nil for nothing.
func (w *Markers) one(img *image.Image, m *kmsg.WriteTxnMarkersRequestMarker, topic string, p int32, code *int16) *markerWait {
	t, ok := img.Topic(topic)
	if !ok {
		*code = kerr.UnknownTopicOrPartition.Code
		return nil
	}
	replica, err := find(img, w.Replicas, t, p)
	if err != nil {
		*code = kerr.UnknownTopicOrPartition.Code // as Kafka tells of what is not online here
		return nil
	}
	version := int16(m.TransactionVersion)
	if topic == coordinator.OffsetsTopic {
		done := make(chan error, 1)
		w.Groups.EndTxn(p, m.ProducerID, m.ProducerEpoch, group.Marker{Commit: m.Committed, CoordinatorEpoch: m.CoordinatorEpoch, Version: version}, func(err error) { done <- err })
		return &markerWait{code: code, done: done}
	}
	a, err := replica.AppendAsLeader(partition.AppendRequest{
		Records: markerBatch(m, w.Clock.Now().UnixMilli()), Version: markerProduce, Acks: partition.AcksAll,
		Origin: producer.OriginCoordinator, TxnVersion: version,
	})
	if err != nil {
		*code = kind(err).Code
		return nil
	}
	commit, err := replica.WaitCommitted(a)
	if err != nil {
		*code = kind(err).Code
		return nil
	}
	if commit == nil {
		return nil
	}
	return &markerWait{code: code, replica: replica, commit: commit}
}

// markerProduce is the version of Produce by whose rules markers are checked.
const markerProduce = 12

// markerBatch is the control batch of a marker.
func markerBatch(m *kmsg.WriteTxnMarkersRequestMarker, nowMs int64) []byte {
	o := batch.NewOptions()
	o.ProducerID, o.ProducerEpoch, o.Transactional, o.Control = m.ProducerID, m.ProducerEpoch, true, true
	b := batch.NewBuilder(o)
	e := records.EndTxn{Commit: m.Committed, CoordinatorEpoch: m.CoordinatorEpoch}
	b.Append(nowMs, e.ControlKey(), e.ControlValue(), nil)
	return b.Build()
}

// wait fills in the codes of what is not committed in time, or not at all.
func (w *Markers) wait(ctx context.Context, waits []markerWait) {
	if len(waits) == 0 {
		return
	}
	late, stop := clock.After(w.Clock, w.Timeout)
	defer stop()
	for _, x := range waits {
		var done <-chan struct{}
		if x.commit != nil {
			done = x.commit.Done()
		}
		select {
		case err := <-x.done: // nil for others: never ready
			if k := coordinator.Refused(err); k != nil {
				*x.code = k.Code
			}
		case <-done:
			if err := x.commit.Err(); err != nil {
				*x.code = kind(err).Code
			}
		case <-late:
			*x.code = kerr.RequestTimedOut.Code
			x.forget()
		case <-ctx.Done():
			*x.code = kerr.RequestTimedOut.Code
			x.forget()
		}
	}
}

func (x *markerWait) forget() {
	if x.commit != nil {
		x.replica.Forget(x.commit)
	}
}
