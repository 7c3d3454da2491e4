package api

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/isr"
	"weir/internal/wire"
)

// produceRequest writes one record to each of the partitions.
func produceRequest(acks int16, parts ...int32) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = 12, acks, 1000
	t := kmsg.NewProduceRequestTopic()
	t.Topic = "t"
	for _, p := range parts {
		q := kmsg.NewProduceRequestTopicPartition()
		q.Partition, q.Records = p, records1()
		t.Partitions = append(t.Partitions, q)
	}
	req.Topics = append(req.Topics, t)
	return req
}

func (r *rig) produce(ctx context.Context, req *kmsg.ProduceRequest) wire.Response {
	p := &Produce{Images: r.images, Replicas: r.replicas, Clock: r.clock}
	return p.Handle(ctx, r.call(), req)
}

// produced is the rows of an answer that is ready.
func (r *rig) rows(res wire.Response) []kmsg.ProduceResponseTopicPartition {
	r.Helper()
	m, ok := res.(wire.Message)
	if !ok {
		r.Fatalf("got a %T", res)
	}
	return m.Response.(*kmsg.ProduceResponse).Topics[0].Partitions
}

// pending is an answer that waits for the commit.
func (r *rig) pending(res wire.Response) wire.Pending {
	r.Helper()
	p, ok := res.(wire.Pending)
	if !ok {
		r.Fatalf("got a %T", res)
	}
	return p
}

func TestAcksNone(t *testing.T) {
	r := newRig(t, 1, 1)
	if res := r.produce(t.Context(), produceRequest(0, 0)); res != (wire.NoAnswer{}) {
		t.Errorf("got a %T", res)
	}
	if _, ok := r.produce(t.Context(), produceRequest(0, 0, 7)).(wire.Fail); !ok {
		t.Error("an unknown partition with acks=0 closes the connection")
	}
	if end := r.replica(0).Log().LogEnd(); end != 2 {
		t.Errorf("the other partition was written: log end %d", end)
	}
}

func TestAcksLeaderAndAllOfOne(t *testing.T) {
	r := newRig(t, 1, 1)
	for i, acks := range []int16{1, -1} {
		row := r.rows(r.produce(t.Context(), produceRequest(acks, 0)))[0]
		if row.ErrorCode != 0 || row.BaseOffset != int64(i) || row.LogStartOffset != 0 {
			t.Errorf("acks %d: %+v", acks, row)
		}
	}
}

func TestAcksAllWaitsForTheFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, 1, 2)
		p := r.pending(r.produce(t.Context(), produceRequest(-1, 0, 1)))
		r.follow(0, 1)
		synctest.Wait()
		select {
		case <-p.Done:
			t.Fatal("done with one of two partitions")
		default:
		}
		r.follow(1, 1)
		<-p.Done
		for _, row := range r.rows(p.Finish()) {
			if row.ErrorCode != 0 || row.BaseOffset != 0 {
				t.Errorf("got %+v", row)
			}
		}
	})
}

func TestAcksAllEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, 1, 2)
		start := time.Now()
		p := r.pending(r.produce(t.Context(), produceRequest(-1, 0)))
		<-p.Done
		if took := time.Since(start); took != time.Second {
			t.Errorf("took %v", took)
		}
		// The record is in the log all the same, and the row says where.
		if row := r.rows(p.Finish())[0]; row.ErrorCode != kerr.RequestTimedOut.Code || row.BaseOffset != 0 {
			t.Errorf("got %+v", row)
		}
		ctx, hangUp := context.WithCancel(t.Context())
		p = r.pending(r.produce(ctx, produceRequest(-1, 0)))
		hangUp()
		<-p.Done
	})
}

// Case K8: too small an ISR before the append, and one that shrinks after it.
func TestNotEnoughReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, 1)
		cfg := *r.replica(0).Log().Config()
		cfg.MinInsyncReplicas = 2
		r.replica(0).SetConfig(&cfg)
		if row := r.rows(r.produce(t.Context(), produceRequest(-1, 0)))[0]; row.ErrorCode != kerr.NotEnoughReplicas.Code || row.BaseOffset != -1 {
			t.Errorf("got %+v", row)
		}
		if end := r.replica(0).Log().LogEnd(); end != 0 {
			t.Errorf("appended all the same: log end %d", end)
		}
		lead := func(epoch int32, set ...int32) {
			r.replica(0).Lead(isr.Assignment{Replicas: []int32{1, 2}, ISR: set, LeaderEpoch: 4, PartitionEpoch: epoch}, r.clock.Now())
		}
		lead(5, 1, 2)
		p := r.pending(r.produce(t.Context(), produceRequest(-1, 0)))
		lead(6, 1)
		<-p.Done
		// Below min ISR the high watermark does not move: the producer's time runs out,
		// or it is told that the ISR has shrunk; it is never told that all is well.
		if row := r.rows(p.Finish())[0]; row.ErrorCode != kerr.NotEnoughReplicasAfterAppend.Code && row.ErrorCode != kerr.RequestTimedOut.Code {
			t.Errorf("got %+v", row)
		}
		if end := r.replica(0).Log().LogEnd(); end != 1 {
			t.Errorf("the record stays: log end %d", end)
		}
	})
}

func TestLostLeadershipIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, 1, 2)
		p := r.pending(r.produce(t.Context(), produceRequest(-1, 0)))
		r.replica(0).Follow(2, 5, 5)
		<-p.Done
		row := r.rows(p.Finish())[0]
		if row.ErrorCode != kerr.NotLeaderForPartition.Code || row.CurrentLeader.LeaderID != 2 || row.CurrentLeader.LeaderEpoch != 5 {
			t.Errorf("got %+v", row)
		}
	})
}

func TestPartitionNamedTwiceCountsOnce(t *testing.T) {
	r := newRig(t, 2, 1)
	rows := r.rows(r.produce(t.Context(), produceRequest(1, 0, 1, 0)))
	if len(rows) != 2 || rows[0].Partition != 1 || rows[1].Partition != 0 || rows[1].BaseOffset != 0 {
		t.Errorf("got %+v", rows)
	}
	if end := r.replica(0).Log().LogEnd(); end != 1 {
		t.Errorf("log end %d", end)
	}
}
