package interop

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"weir/internal/checkpoint"
	"weir/internal/vfs"
	"weir/test/testnode"
)

const offsetsTopic = "__consumer_offsets"

// ask sends a request to the node until it is answered without an error that passes; code finds the error in an answer.
func ask[A kmsg.Response](t testing.TB, n *testnode.Node, client *kgo.Client, req kmsg.Request, code func(A) int16) A {
	t.Helper()
	var res A
	testnode.Until(t, testnode.Patience, fmt.Sprintf("answer of %s to %T", n.System(), req), func() error {
		raw, err := client.Broker(int(n.ID)).RetriableRequest(t.Context(), req)
		if err != nil {
			return err
		}
		res = raw.(A)
		if err := kerr.ErrorForCode(code(res)); kerr.IsRetriable(err) || errors.Is(err, kerr.ConcurrentTransactions) {
			return err // the coordinator is not there yet, or loads, or is at something else
		}
		return nil
	})
	return res
}

// answered fails the test for an error code.
func (s *scene) answered(code int16, what string) {
	s.Helper()
	s.must(kerr.ErrorForCode(code), what)
}

// commit commits offsets of a group that has no members.
func (s *scene) commit(group string, offsets ...kadm.Offset) {
	s.Helper()
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation = group, -1
	s.commitWith(s.client(), req, offsets)
}

func (s *scene) commitWith(client *kgo.Client, req *kmsg.OffsetCommitRequest, offsets []kadm.Offset) {
	s.Helper()
	topics, err := s.admin().ListTopics(s.Context())
	s.must(err, "list topics")
	for _, o := range offsets {
		t, p := kmsg.NewOffsetCommitRequestTopic(), kmsg.NewOffsetCommitRequestTopicPartition()
		t.Topic, t.TopicID = o.Topic, topics[o.Topic].ID
		p.Partition, p.Offset, p.LeaderEpoch = o.Partition, o.At, o.LeaderEpoch
		if o.Metadata != "" {
			p.Metadata = &o.Metadata
		}
		t.Partitions = append(t.Partitions, p)
		req.Topics = append(req.Topics, t)
	}
	res := ask(s.T, s.n, client, req, func(r *kmsg.OffsetCommitResponse) int16 { return r.Topics[0].Partitions[0].ErrorCode })
	for _, t := range res.Topics {
		for _, p := range t.Partitions {
			s.answered(p.ErrorCode, fmt.Sprintf("commit of %s for %s-%d", req.Group, t.Topic, p.Partition))
		}
	}
}

// offsetsOf lists what a group has committed.
func (s *scene) offsetsOf(group string) map[tp]kadm.Offset {
	s.Helper()
	out := map[tp]kadm.Offset{}
	s.until("offsets of "+group, func() error {
		got, err := s.admin().FetchOffsets(s.Context(), group)
		if err != nil {
			return err
		}
		clear(out)
		var failed error
		got.Each(func(o kadm.OffsetResponse) {
			out[tp{o.Topic, o.Partition}] = o.Offset
			failed = errors.Join(failed, o.Err)
		})
		return failed
	})
	return out
}

// coordinators has the node create the topics of its coordinators, as clients do when they look for one.
func coordinators(s *scene) {
	client := s.client()
	for _, kind := range []int8{0, 1} {
		if kind == 1 && s.n.System() != testnode.Apache {
			continue // Weir coordinates no transactions yet
		}
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.CoordinatorType, req.CoordinatorKeys = kind, []string{"simple"}
		res := ask(s.T, s.n, client, req, func(r *kmsg.FindCoordinatorResponse) int16 { return r.Coordinators[0].ErrorCode })
		s.answered(res.Coordinators[0].ErrorCode, "FindCoordinator")
	}
}

// simpleCommits are those of consumers that are in no group: with and without metadata and epoch, some of them deleted.
func simpleCommits(s *scene) {
	s.ensure("read", 3, nil)
	leg := int64(s.leg)
	s.commit("simple", kadm.Offset{Topic: "read", Partition: 0, At: 100 + leg, LeaderEpoch: 0, Metadata: fmt.Sprint("of leg ", leg)},
		kadm.Offset{Topic: "read", Partition: 1, At: leg, LeaderEpoch: -1}, kadm.Offset{Topic: "read", Partition: 2, At: 7, LeaderEpoch: -1})
	s.commit(fmt.Sprint("only of leg ", leg), kadm.Offset{Topic: "read", At: leg, LeaderEpoch: -1})
	s.commit("", kadm.Offset{Topic: "read", At: leg, LeaderEpoch: -1, Metadata: "the empty group"})

	set := kadm.TopicsSet{}
	set.Add("read", 2)
	res, err := s.admin().DeleteOffsets(s.Context(), "simple", set)
	s.must(errors.Join(err, res.Error()), "delete offsets")
	if got := s.offsetsOf("simple"); len(got) != 2 || got[tp{"read", 0}].At != 100+leg || got[tp{"read", 0}].Metadata != fmt.Sprint("of leg ", leg) || got[tp{"read", 1}].At != leg {
		s.Errorf("leg %d (%s): offsets of the group simple: %v", s.leg, s.n.System(), got)
	}
	if s.leg > 1 { // a group that the other system has written, and one of its own
		for _, group := range []string{fmt.Sprint("only of leg ", leg-1), fmt.Sprint("only of leg ", leg-2)} {
			if _, err := s.admin().DeleteGroup(s.Context(), group); err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
				s.must(err, "delete group "+group)
			}
		}
	}
}

// expiring commits an offset that expires at once, as clients before 2.1 can ask for, and one for a topic that goes.
func expiring(s *scene) {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation, req.RetentionTimeMillis = "expiring", -1, 1
	s.commitWith(s.client(kgo.MaxVersions(kversion.V2_0_0())), req, []kadm.Offset{{Topic: "read", At: 1, LeaderEpoch: -1}})
	req = kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation, req.RetentionTimeMillis = "lasting", -1, 1_000_000_000
	s.commitWith(s.client(kgo.MaxVersions(kversion.V2_0_0())), req, []kadm.Offset{{Topic: "read", At: int64(s.leg), LeaderEpoch: -1}})

	topic := fmt.Sprint("lost-", s.leg)
	s.ensure(topic, 1, nil)
	s.commit("of lost topics", kadm.Offset{Topic: topic, At: 1, LeaderEpoch: -1}, kadm.Offset{Topic: "read", At: int64(s.leg), LeaderEpoch: -1})
	_, err := s.admin().DeleteTopic(s.Context(), topic)
	s.must(err, "delete "+topic)
	s.gone(topic)
	s.until("offsets that go", func() error {
		if got := s.offsetsOf("expiring"); len(got) > 0 {
			return fmt.Errorf("expiring has %v", got)
		}
		if got := s.offsetsOf("of lost topics"); len(got) != 1 {
			return fmt.Errorf("of lost topics has %v", got)
		}
		return nil
	})
}

// inTransactions commits offsets in transactions, one that is committed and one that is aborted. Only Apache Kafka serves
// them so far; Weir has to read what they leave.
func inTransactions(s *scene) {
	if s.n.System() != testnode.Apache {
		return
	}
	id := "offsets"
	client := s.client(kgo.MaxVersions(kversion.V3_8_0())) // EndTxn that leaves the epoch alone
	for i, commit := range []bool{true, false} {
		init := kmsg.NewPtrInitProducerIDRequest()
		init.TransactionalID, init.TransactionTimeoutMillis, init.ProducerID, init.ProducerEpoch = &id, 60_000, -1, -1
		p := ask(s.T, s.n, client, init, func(r *kmsg.InitProducerIDResponse) int16 { return r.ErrorCode })
		s.answered(p.ErrorCode, "InitProducerId")
		add := kmsg.NewPtrAddOffsetsToTxnRequest()
		add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = id, p.ProducerID, p.ProducerEpoch, "transactional"
		s.answered(ask(s.T, s.n, client, add, func(r *kmsg.AddOffsetsToTxnResponse) int16 { return r.ErrorCode }).ErrorCode, "AddOffsetsToTxn")
		req := kmsg.NewPtrTxnOffsetCommitRequest()
		req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group, req.Generation = id, p.ProducerID, p.ProducerEpoch, "transactional", -1
		t, part := kmsg.NewTxnOffsetCommitRequestTopic(), kmsg.NewTxnOffsetCommitRequestTopicPartition()
		t.Topic, part.Partition, part.Offset = "read", int32(s.leg%3), int64(1000*(i+1)+s.leg)
		t.Partitions = append(t.Partitions, part)
		req.Topics = append(req.Topics, t)
		res := ask(s.T, s.n, client, req, func(r *kmsg.TxnOffsetCommitResponse) int16 { return r.Topics[0].Partitions[0].ErrorCode })
		s.answered(res.Topics[0].Partitions[0].ErrorCode, "TxnOffsetCommit")
		end := kmsg.NewPtrEndTxnRequest()
		end.TransactionalID, end.ProducerID, end.ProducerEpoch, end.Commit = id, p.ProducerID, p.ProducerEpoch, commit
		s.answered(ask(s.T, s.n, client, end, func(r *kmsg.EndTxnResponse) int16 { return r.ErrorCode }).ErrorCode, "EndTxn")
	}
	s.until("the transaction's offset", func() error {
		if got := s.offsetsOf("transactional")[tp{"read", int32(s.leg % 3)}].At; got != int64(1000+s.leg) {
			return fmt.Errorf("it is %d", got)
		}
		return nil
	})
}

// tables writes a compacted topic of many keys, some of which are deleted.
func tables(s *scene) {
	s.ensure("table", 2, map[string]string{"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0", "delete.retention.ms": strconv.Itoa(s.leg % 2)})
	for round := range 3 {
		client := s.client(kgo.ProducerBatchCompression([]kgo.CompressionCodec{kgo.NoCompression(), kgo.ZstdCompression(), kgo.GzipCompression()}[(round+s.leg)%3]))
		for p := range int32(2) {
			var records []*kgo.Record
			for i := range 20 {
				r := &kgo.Record{Topic: "table", Partition: p, Key: fmt.Appendf(nil, "key %d", s.dice.IntN(30)), Value: fmt.Appendf(nil, "leg %d round %d record %d", s.leg, round, i)}
				if i%9 == 4 {
					r.Value = nil
				}
				records = append(records, r)
			}
			for _, r := range client.ProduceSync(s.Context(), records...) {
				s.must(r.Err, "produce to table")
				s.newest(tp{"table", p})[text(r.Record.Key)] = content(r.Record)
			}
		}
		client.Close()
	}
}

// newest has the last record of each key of a compacted partition.
func (s *scene) newest(at tp) map[string]string {
	if s.table[at] == nil {
		s.table[at] = map[string]string{}
	}
	return s.table[at]
}

// checkTables holds what a node shows of compacted topics against what it has acked.
func (s *scene) checkTables(w *world) {
	s.Helper()
	for at, newest := range s.table {
		got := map[string]string{}
		for _, r := range w.Topics[at.topic].Partitions[at.partition].Records {
			got[r.Key] = r.Text
		}
		for key, want := range newest {
			if text, ok := got[key]; !strings.HasSuffix(text, want) && (ok || !strings.HasSuffix(want, " = null")) {
				s.Errorf("leg %d (%s): %v: key %s is %s, was acked as %s", s.leg, s.n.System(), at, key, text, want)
			}
		}
	}
}

// settled waits until both cleaners have nothing to do: every log that is compacted is clean up to its active segment. What
// is loaded in the next leg has gone through the cleaner of this one.
func settled(s *scene) {
	short, zero := "100", "0"
	res, err := s.admin().AlterTopicConfigs(s.Context(), []kadm.AlterConfig{{Name: "segment.ms", Value: &short}, {Name: "min.cleanable.dirty.ratio", Value: &zero}}, offsetsTopic)
	s.must(err, "alter "+offsetsTopic)
	s.must(res[0].Err, "alter "+offsetsTopic)
	s.until("compaction", func() error {
		for _, dir := range s.n.LogDirs {
			if err := cleanIn(dir); err != nil {
				return err
			}
		}
		return nil
	})
}

// cleanIn says what a log directory holds that is still to be compacted.
func cleanIn(dir string) error {
	done, err := checkpoint.ReadOffsets(vfs.OS(), filepath.Join(dir, "cleaner-offset-checkpoint"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, topic := range []string{"table", offsetsTopic} {
		for p := range int32(50) {
			logs, err := filepath.Glob(filepath.Join(dir, fmt.Sprintf("%s-%d", topic, p), "*.log"))
			if err != nil || len(logs) == 0 {
				continue
			}
			active, err := strconv.ParseInt(strings.TrimSuffix(filepath.Base(slices.Max(logs)), ".log"), 10, 64)
			if err != nil {
				return err
			}
			if at := done[checkpoint.TopicPartition{Topic: topic, Partition: p}]; len(logs) > 1 && at != active {
				return fmt.Errorf("%s-%d is clean up to %d, not %d", topic, p, at, active)
			}
		}
	}
	return nil
}
