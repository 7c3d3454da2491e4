package interop

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/batch"
	"weir/test/testnode"
)

// emptied finds the control batch without records in what a topic holds on disk.
func emptied(dir string) (at batch.Batch, err error) {
	logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil || len(logs) == 0 {
		return nil, fmt.Errorf("segments of %s: %w", dir, err)
	}
	slices.Sort(logs)
	for _, name := range logs {
		raw, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		for len(raw) > 0 {
			b, rest, err := batch.Next(raw)
			if err != nil {
				return nil, err
			}
			if b.IsControl() && b.Count() == 0 {
				return b, nil
			}
			raw = rest
		}
	}
	return nil, errors.New("no control batch is empty")
}

// fetchFrom fetches the partition 0 of a topic.
func (s *scene) fetchFrom(topic string, offset int64, isolation int8) kmsg.FetchResponseTopicPartition {
	s.Helper()
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID, req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.IsolationLevel = -1, 1000, 1, 1<<20, isolation
	t, p := kmsg.NewFetchRequestTopic(), kmsg.NewFetchRequestTopicPartition()
	topics, err := s.admin().ListTopics(s.Context(), topic)
	s.must(err, "list topics")
	t.Topic, t.TopicID = topic, topics[topic].ID
	p.FetchOffset, p.PartitionMaxBytes, p.CurrentLeaderEpoch = offset, 1<<20, -1
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	res := ask(s.T, s.n, s.client(), req, func(r *kmsg.FetchResponse) int16 {
		if r.ErrorCode != 0 {
			return r.ErrorCode
		}
		return r.Topics[0].Partitions[0].ErrorCode
	})
	got := res.Topics[0].Partitions[0]
	s.answered(got.ErrorCode, "fetch")
	return got
}

// serves checks that a node gives an empty control batch to consumers as it is, and all that lies around it.
func (s *scene) serves(topic string, want batch.Batch) {
	s.Helper()
	_, end := s.offsets(topic, 0)
	for isolation := range int8(2) {
		got := s.fetchFrom(topic, want.BaseOffset(), isolation)
		b, _, err := batch.Next(got.RecordBatches)
		if err != nil || string(b) != string(want) {
			s.Errorf("%s: at %d (isolation %d): %x, %v, want %x", s.n.System(), want.BaseOffset(), isolation, b, err, want)
		}
		if got.HighWatermark != end || got.LastStableOffset != end {
			s.Errorf("%s: high watermark %d, last stable offset %d, want %d", s.n.System(), got.HighWatermark, got.LastStableOffset, end)
		}
		level := []kgo.IsolationLevel{kgo.ReadUncommitted(), kgo.ReadCommitted()}[isolation]
		client := s.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(0)}}), kgo.FetchIsolationLevel(level))
		for last := int64(-1); last < end-1; {
			fs := client.PollFetches(s.Context())
			s.must(fs.Err(), "fetch")
			for r := range fs.RecordsAll() {
				last = r.Offset
			}
		}
		client.Close()
	}
}

// TestEmptyControlBatch is case K13: Apache Kafka's cleaner empties the marker of a transaction, and keeps the batch for it
// is the last of its producer. It is served as a control batch with no records, survives Weir's cleaner, a recovery and the
// copy to another directory, and goes back. (A producer of whom nothing but this batch tells is unknown after a recovery or
// a copy, in both systems; their cleaners drop the batch then. So nothing is cleaned any more from there on.)
func TestEmptyControlBatch(t *testing.T) {
	testnode.Oracle(t)
	t.Parallel()
	const topic = "emptied"
	n := testnode.New(t, testnode.Options{System: testnode.Apache, LogDirs: 2, Props: map[string]string{"log.cleaner.backoff.ms": "200"}})
	s := newScene(t, n)
	n.Start(t)
	s.ensure(topic, 1, map[string]string{"cleanup.policy": "compact", "delete.retention.ms": "0", "segment.ms": "1", "min.cleanable.dirty.ratio": "0"})
	client := s.client(kgo.TransactionalID("once"))
	s.must(client.BeginTransaction(), "begin")
	s.must(client.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Key: []byte("key"), Value: []byte("first")}).FirstErr(), "produce")
	s.must(client.EndTransaction(t.Context(), kgo.TryCommit), "end")
	client.Close()
	put := func(value string) {
		t.Helper()
		s.must(s.client(kgo.DisableIdempotentWrite()).ProduceSync(t.Context(), &kgo.Record{Topic: topic, Key: []byte("key"), Value: []byte(value)}).FirstErr(), "produce")
	}
	var want batch.Batch
	s.until("an empty control batch", func() error {
		put("rolls")
		var err error
		want, err = emptied(s.dirOf(topic))
		return err
	})
	s.serves(topic, want)

	n.Stop(t)
	n.Become(t, testnode.Ours)
	n.Start(t)
	s.serves(topic, want)
	_, end := s.offsets(topic, 0)
	put("by weir")
	put("rolls, and the one before is cleaned")
	s.until("compaction by Weir", func() error {
		b, _, err := batch.Next(s.fetchFrom(topic, end-1, 0).RecordBatches)
		if err == nil && b.LastOffset() < end {
			err = fmt.Errorf("offset %d is still there", b.LastOffset())
		}
		return err
	})
	s.serves(topic, want)

	never := "1"
	res, err := s.admin().AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: "min.cleanable.dirty.ratio", Value: &never}}, topic)
	s.must(err, "alter topic configs")
	s.must(res[0].Err, "alter topic configs")
	n.Kill(t)
	n.Start(t)
	s.serves(topic, want)
	other := n.LogDirs[0]
	if filepath.Dir(s.dirOf(topic)) == other {
		other = n.LogDirs[1]
	}
	s.move(topic, other)
	s.serves(topic, want)

	n.Stop(t)
	n.Become(t, testnode.Apache)
	n.Start(t)
	s.serves(topic, want)
	if log := n.LogText(t); strings.Contains(log, "kafka-log-cleaner-thread-0]: Error") {
		t.Error("Apache Kafka's cleaner has ended")
	}
	figures.add("empty_control_batches", 1)
}

// dirOf is the directory of partition 0 of a topic.
func (s *scene) dirOf(topic string) string {
	s.Helper()
	for _, dir := range s.n.LogDirs {
		if _, err := os.Stat(filepath.Join(dir, topic+"-0")); err == nil {
			return filepath.Join(dir, topic+"-0")
		}
	}
	s.Fatalf("%s-0 is nowhere", topic)
	return ""
}
