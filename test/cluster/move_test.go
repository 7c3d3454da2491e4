package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/batch"
	"weir/test/testnode"
)

// rawReader reads one partition with requests of its own, so that no client hides an error or a hole.
type rawReader struct {
	c         *kgo.Client
	topic     string
	id        [16]byte
	partition int32
	session   bool // incremental fetches
	sessionID int32
	epoch     int32
}

// pass reads from the start to the end that the node tells first, and returns how many records there were.
func (r *rawReader) pass(ctx context.Context) (int64, error) {
	ends, err := kadm.NewClient(r.c).ListEndOffsets(ctx, r.topic)
	if err != nil {
		return 0, err
	}
	end, _ := ends.Lookup(r.topic, r.partition)
	if end.Err != nil {
		return 0, end.Err
	}
	r.sessionID, r.epoch = 0, 0
	at, silent := int64(0), 0
	for at < end.Offset {
		next, err := r.fetch(ctx, at)
		if err != nil {
			return at, fmt.Errorf("%s-%d at offset %d of %d: %w", r.topic, r.partition, at, end.Offset, err)
		}
		if silent++; next > at {
			silent = 0
		}
		if silent > 3 { // each waited for half a second
			return at, fmt.Errorf("%s-%d: nothing comes at offset %d of %d", r.topic, r.partition, at, end.Offset)
		}
		at = next
	}
	return at, nil
}

func (r *rawReader) fetch(ctx context.Context, at int64) (int64, error) {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = 500, 1, 1<<20
	req.SessionID, req.SessionEpoch = r.sessionID, r.epoch
	if !r.session {
		req.SessionEpoch = -1
	}
	t, p := kmsg.NewFetchRequestTopic(), kmsg.NewFetchRequestTopicPartition()
	t.Topic, t.TopicID = r.topic, r.id
	p.Partition, p.FetchOffset, p.PartitionMaxBytes, p.CurrentLeaderEpoch = r.partition, at, 200_000, -1
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	raw, err := r.c.Broker(1).Request(ctx, req)
	if err != nil {
		return at, err
	}
	res := raw.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(res.ErrorCode); err != nil {
		return at, err
	}
	if r.session {
		r.sessionID, r.epoch = res.SessionID, r.epoch+1
	}
	for _, t := range res.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return at, err
			}
			if at, err = r.records(p.RecordBatches, at); err != nil {
				return at, err
			}
		}
	}
	return at, nil
}

// records checks that offsets follow one another and that values are those of the partition.
func (r *rawReader) records(b []byte, at int64) (int64, error) {
	for len(b) > 0 {
		e, rest, err := batch.NextEntry(b)
		if errors.Is(err, batch.ErrShort) {
			return at, nil
		}
		if err != nil {
			return at, err
		}
		b = rest
		for rec, err := range e.Records(nil) {
			if err != nil {
				return at, err
			}
			if rec.Offset < at {
				continue // the batch begins below
			}
			if rec.Offset != at || !strings.HasPrefix(string(rec.Value), fmt.Sprintf("%d/", r.partition)) {
				return at, fmt.Errorf("offset %d (%.20q) where %d should be", rec.Offset, rec.Value, at)
			}
			at++
		}
	}
	return at, nil
}

// moveTo moves a whole topic to a log directory and waits until it is there.
func moveTo(t *testing.T, n *testnode.Node, topic string, partitions int32, dir string) {
	t.Helper()
	adm, all := n.Admin(t), kadm.TopicsSet{}
	for p := range partitions {
		all.Add(topic, p)
	}
	res, err := adm.AlterBrokerReplicaLogDirs(t.Context(), n.ID, kadm.AlterReplicaLogDirsReq{dir: all})
	if err != nil {
		t.Fatal(err)
	}
	for _, ps := range res {
		for _, p := range ps {
			if p.Err != nil {
				t.Fatal(p.Err)
			}
		}
	}
	testnode.Until(t, 60*time.Second, "the move to "+dir, func() error {
		dirs, err := adm.DescribeBrokerLogDirs(t.Context(), n.ID, all)
		if err != nil {
			return err
		}
		for path, d := range dirs {
			if d.Err != nil {
				t.Fatalf("%s is offline: %v", path, d.Err)
			}
			for p := range partitions {
				if x, ok := d.Topics.Lookup(topic, p); ok && (path != dir || x.IsFuture) {
					return fmt.Errorf("%s-%d is in %s (future %v)", topic, p, path, x.IsFuture)
				}
			}
		}
		return nil
	})
}

// TestMovesUnderLoad moves a topic between log directories under a producer, while consumers read it from its start,
// again and again, with fetch sessions and without. None of them misses a record or is told of an error.
func TestMovesUnderLoad(t *testing.T) {
	n := testnode.New(t, testnode.Options{LogDirs: 2, Props: map[string]string{
		"log.segment.bytes": "1048576", "log.segment.delete.delay.ms": "0", "log.index.interval.bytes": "1024", "log.flush.interval.messages": "5000",
	}})
	n.Start(t)
	began, duration := time.Now(), time.Duration(testnode.Rounds(5, 180))*time.Second
	const partitions = 3
	l := newLedger("moved", partitions, true)
	createTopic(t, n, l.topic, partitions, nil)
	ctx, cancel := context.WithTimeout(t.Context(), duration+90*time.Second)
	defer cancel()
	stop, err := l.idempotent(ctx, n.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	details, err := n.Admin(t).ListTopics(ctx, l.topic)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	over := make(chan struct{})
	passes := make([]int64, partitions)
	for p := range int32(partitions) {
		r := &rawReader{c: n.Client(t, kgo.RequestRetries(0)), topic: l.topic, id: details[l.topic].ID, partition: p, session: p != 0}
		wg.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				if _, err := r.pass(ctx); err != nil {
					t.Error(err)
					return
				}
				passes[p]++
			}
		})
	}
	moves := 0
	for !t.Failed() && (moves < 4 || time.Since(began) < duration) {
		moves++
		moveTo(t, n, l.topic, partitions, n.LogDirs[moves%2])
	}
	close(over)
	wg.Wait()
	stop()
	if err := l.check(ctx, n, l.promised()); err != nil {
		t.Fatal(err)
	}
	n.Stop(t)
	n.Start(t)
	if err := l.check(ctx, n, l.promised()); err != nil {
		t.Fatal(err)
	}
	report(t, "moves under load", map[string]any{"moves": moves, "acked": l.numAcked(), "passes": passes, "seconds": int(time.Since(began).Seconds())})
}
