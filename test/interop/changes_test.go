package interop

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/batch"
	"weir/internal/checkpoint"
	"weir/internal/vfs"
	"weir/test/testnode"
)

// change is one thing that somebody does to a node in every leg. It leaves the node at rest: nothing that it started may
// still be going on, so that the state before a stop can be compared with the state after the next start.
type change struct {
	name string
	do   func(s *scene)
}

// changes are done in this order in every leg, by both systems.
func changes() []change {
	return []change{
		{"every codec and shape of record", codecs},
		{"a producer that lives through all legs", steady},
		{"batches repeated after the flip", repeated},
		{"producer ids", producerIDs},
		{"log append time", logAppendTime},
		{"a topic deleted", deleted},
		{"a topic deleted and made anew", reborn},
		{"records deleted", trimmed},
		{"partitions added", grown},
		{"topic configs", topicConfigs},
		{"broker configs", brokerConfigs},
		{"retention by size", retainedBySize},
		{"retention by time", retainedByTime},
		{"a replica moved between log directories", moved},
		{"features", features},
		{"coordinators", coordinators},
		{"simple commits", simpleCommits},
		{"offsets that go", expiring},
		{"offsets in transactions", inTransactions},
		{"members of groups", clubs},
		{"tables", tables},
		{"compaction", settled},
	}
}

func codecs(s *scene) {
	for _, c := range []struct {
		name  string
		codec kgo.CompressionCodec
	}{
		{"none", kgo.NoCompression()}, {"gzip", kgo.GzipCompression()}, {"snappy", kgo.SnappyCompression()}, {"lz4", kgo.Lz4Compression()}, {"zstd", kgo.ZstdCompression()},
	} {
		topic := "codec-" + c.name
		s.ensure(topic, 2, nil)
		client := s.client(kgo.ProducerBatchCompression(c.codec))
		for p := range int32(2) {
			s.produce(client, s.shapes(topic, p, testnode.Rounds(40, 400))...)
		}
		client.Close()
	}
}

func steady(s *scene) {
	s.ensure("steady", 2, nil)
	for range 3 { // more than one batch
		for p := range int32(2) {
			s.produce(s.steady, s.shapes("steady", p, 8)...)
		}
	}
	id, epoch, err := s.steady.ProducerID(s.Context())
	s.must(err, "producer id")
	for p := range int32(2) {
		at := tp{"steady", p}
		if had, ok := s.ids[at]; ok && had != id || epoch != 0 {
			s.Errorf("leg %d (%s): the producer began anew: id %d, then %d epoch %d", s.leg, s.n.System(), had, id, epoch)
		}
		s.ids[at] = id
	}
}

// replay is a batch that was acked, ready to be sent again.
type replay struct {
	id       int64
	sequence int32
	batch    []byte
	offset   int64
}

const perBatch = 3

// repeated sends the last batch of the leg before again, the one that a snapshot of the producer state remembers: it must
// be told apart from a new one, and the sequence goes on.
func repeated(s *scene) {
	const topic = "repeated"
	s.ensure(topic, 1, nil)
	if len(s.replays) == 0 {
		s.replays = append(s.replays, replay{id: s.newProducerID()})
	}
	last := s.replays[len(s.replays)-1]
	if r := last; r.batch != nil {
		_, end := s.offsets(topic, 0)
		if offset, err := s.send(topic, r.batch); err != nil || offset != r.offset {
			s.Errorf("leg %d (%s): batch of producer %d with sequence %d again: offset %d, %v; it had %d", s.leg, s.n.System(), r.id, r.sequence, offset, err, r.offset)
		}
		if _, now := s.offsets(topic, 0); now != end {
			s.Errorf("leg %d (%s): a repeated batch was appended: end %d, then %d", s.leg, s.n.System(), end, now)
		}
	}
	next := int32(perBatch * (len(s.replays) - 1))
	// A producer that the partition does not know may begin anywhere.
	if next > 0 {
		if _, err := s.send(topic, s.build(last.id, next+1)); !errors.Is(err, kerr.OutOfOrderSequenceNumber) {
			s.Errorf("leg %d (%s): a gap in the sequence: %v", s.leg, s.n.System(), err)
		}
	}
	for range 2 {
		b := s.build(last.id, next)
		offset, err := s.send(topic, b)
		s.must(err, "batch of "+topic)
		for i := range int64(perBatch) {
			s.ack(tp{topic, 0}, offset+i, fmt.Sprintf("null = %q", fmt.Sprintf("sequence %d", int64(next)+i)))
		}
		s.replays = append(s.replays, replay{last.id, next, b, offset})
		next += perBatch
	}
}

func (s *scene) build(id int64, sequence int32) []byte {
	o := batch.NewOptions()
	o.ProducerID, o.ProducerEpoch, o.BaseSequence = id, 0, sequence
	b := batch.NewBuilder(o)
	for i := range int32(perBatch) {
		b.Append(time.Now().UnixMilli(), nil, fmt.Appendf(nil, "sequence %d", sequence+i), nil)
	}
	return b.Build()
}

// send produces one batch as it is.
func (s *scene) send(topic string, b []byte) (int64, error) {
	s.Helper()
	client := s.client()
	defer client.Close()
	topics, err := kadm.NewClient(client).ListTopics(s.Context(), topic)
	s.must(err, "list topics")
	p := kmsg.NewProduceRequestTopicPartition()
	p.Records = b
	t := kmsg.NewProduceRequestTopic()
	t.Topic, t.TopicID, t.Partitions = topic, topics[topic].ID, []kmsg.ProduceRequestTopicPartition{p}
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis, req.Topics = -1, 20_000, []kmsg.ProduceRequestTopic{t}
	res, err := req.RequestWith(s.Context(), client.Broker(int(s.n.ID)))
	s.must(err, "produce")
	got := res.Topics[0].Partitions[0]
	return got.BaseOffset, kerr.ErrorForCode(got.ErrorCode)
}

func (s *scene) newProducerID() int64 {
	s.Helper()
	client := s.client()
	defer client.Close()
	req := kmsg.NewPtrInitProducerIDRequest()
	req.ProducerID, req.ProducerEpoch = -1, -1
	res, err := req.RequestWith(s.Context(), client)
	s.must(err, "InitProducerId")
	s.must(kerr.ErrorForCode(res.ErrorCode), "InitProducerId")
	if s.issued[res.ProducerID] {
		s.Errorf("leg %d (%s): producer id %d was given before: %v", s.leg, s.n.System(), res.ProducerID, keys(s.issued))
	}
	s.issued[res.ProducerID] = true
	return res.ProducerID
}

func producerIDs(s *scene) {
	for range 3 {
		s.newProducerID()
	}
}

func logAppendTime(s *scene) {
	s.ensure("stamped", 1, map[string]string{"message.timestamp.type": "LogAppendTime", "compression.type": "gzip"})
	s.produce(s.client(), s.shapes("stamped", 0, 16)...)
}

func deleted(s *scene) {
	topic := "doomed-" + strconv.Itoa(s.leg)
	s.ensure(topic, 3, nil)
	s.produce(s.client(), s.shapes(topic, 2, 8)...)
	_, err := s.admin().DeleteTopic(s.Context(), topic)
	s.must(err, "delete "+topic)
	s.forget(topic)
	s.gone(topic)
}

// gone waits until the broker has heard that a topic was deleted.
func (s *scene) gone(topic string) {
	s.Helper()
	adm := s.admin()
	s.until("deletion of "+topic, func() error {
		topics, err := adm.ListTopics(s.Context(), topic)
		if err == nil && topics.Has(topic) {
			return errors.New("it is still there")
		}
		return err
	})
}

func reborn(s *scene) {
	const topic = "reborn"
	adm := s.admin()
	if s.leg > 0 {
		_, err := adm.DeleteTopic(s.Context(), topic)
		s.must(err, "delete "+topic)
		s.forget(topic)
		s.gone(topic)
	}
	s.until("creation of "+topic, func() error {
		_, err := adm.CreateTopic(s.Context(), 2, 1, nil, topic)
		return err
	})
	s.present(topic, 2)
	topics, err := adm.ListTopics(s.Context(), topic)
	s.must(err, "list topics")
	s.topicID[topic] = topics[topic].ID.String()
	client := s.client()
	s.produce(client, s.shapes(topic, 0, 8+s.leg)...)
	s.produce(client, s.shapes(topic, 1, 8)...)
}

func trimmed(s *scene) {
	const topic = "trimmed"
	s.ensure(topic, 1, nil)
	s.produce(s.client(kgo.ProducerBatchMaxBytes(20_000)), s.shapes(topic, 0, 40)...)
	_, end := s.offsets(topic, 0)
	offsets := kadm.Offsets{}
	offsets.AddOffset(topic, 0, end-13, -1) // in the middle of a batch, as a rule
	res, err := s.admin().DeleteRecords(s.Context(), offsets)
	s.must(errors.Join(err, res.Error()), "delete records")
	if start, _ := s.offsets(topic, 0); start != end-13 {
		s.Errorf("leg %d (%s): records deleted before %d, the log starts at %d", s.leg, s.n.System(), end-13, start)
	}
	// Both systems forget the new start in a kill -9 that comes before the checkpoint.
	s.until("checkpoint of the log start", func() error {
		for _, dir := range s.n.LogDirs {
			starts, err := checkpoint.ReadOffsets(vfs.OS(), filepath.Join(dir, "log-start-offset-checkpoint"))
			if err == nil && starts[checkpoint.TopicPartition{Topic: topic}] == end-13 {
				return nil
			}
		}
		return errors.New("not yet")
	})
}

func grown(s *scene) {
	const topic = "grown"
	s.ensure(topic, 1, nil)
	res, err := s.admin().CreatePartitions(s.Context(), 2, topic)
	s.must(errors.Join(err, res.Error()), "create partitions")
	partitions := int32(1 + 2*(s.leg+1))
	s.present(topic, partitions)
	client := s.client()
	for p := range partitions {
		s.produce(client, s.shapes(topic, p, 4)...)
	}
}

func topicConfigs(s *scene) {
	const topic = "configured"
	s.ensure(topic, 1, map[string]string{"cleanup.policy": "compact,delete", "max.message.bytes": "2000000"})
	set := func(k, v string) kadm.AlterConfig { return kadm.AlterConfig{Op: kadm.SetConfig, Name: k, Value: &v} }
	alter := []kadm.AlterConfig{
		set("retention.ms", strconv.Itoa(1_000_000_000+s.leg)), set(fmt.Sprintf("%s.ms", []string{"segment", "flush"}[s.leg%2]), "123456789"),
		{Op: kadm.DeleteConfig, Name: fmt.Sprintf("%s.ms", []string{"segment", "flush"}[(s.leg+1)%2])},
		set("compression.type", []string{"zstd", "producer", "lz4"}[s.leg%3]),
	}
	res, err := s.admin().AlterTopicConfigs(s.Context(), alter, topic)
	s.must(err, "alter topic configs")
	s.must(res[0].Err, "alter topic configs")
	want := strconv.Itoa(1_000_000_000 + s.leg)
	s.configured(kmsg.ConfigResourceTypeTopic, topic, "retention.ms", want)
}

func brokerConfigs(s *scene) {
	set := func(k, v string) []kadm.AlterConfig {
		return []kadm.AlterConfig{{Op: kadm.SetConfig, Name: k, Value: &v}}
	}
	all, one := strconv.Itoa(1_500_000+s.leg), strconv.Itoa(2_000_000_000+s.leg)
	adm := s.admin()
	res, err := adm.AlterBrokerConfigs(s.Context(), set("message.max.bytes", all))
	s.must(err, "alter cluster-wide broker configs")
	s.must(res[0].Err, "alter cluster-wide broker configs")
	res, err = adm.AlterBrokerConfigs(s.Context(), set("log.retention.ms", one), s.n.ID)
	s.must(err, "alter broker configs")
	s.must(res[0].Err, "alter broker configs")
	s.configured(kmsg.ConfigResourceTypeBroker, strconv.Itoa(int(s.n.ID)), "message.max.bytes", all)
	s.configured(kmsg.ConfigResourceTypeBroker, strconv.Itoa(int(s.n.ID)), "log.retention.ms", one)
}

// configured waits until a config is seen: brokers hear of changes a little later than the controller answers.
func (s *scene) configured(kind kmsg.ConfigResourceType, name, key, want string) {
	s.Helper()
	adm := s.admin()
	s.until(fmt.Sprintf("%s = %s of %q", key, want, name), func() error {
		var rs kadm.ResourceConfigs
		var err error
		if kind == kmsg.ConfigResourceTypeTopic {
			rs, err = adm.DescribeTopicConfigs(s.Context(), name)
		} else {
			rs, err = adm.DescribeBrokerConfigs(s.Context(), s.n.ID)
		}
		if err != nil {
			return err
		}
		for _, c := range rs[0].Configs {
			if c.Key == key && c.MaybeValue() == want {
				return nil
			}
		}
		return fmt.Errorf("not so: %v", rs[0].Err)
	})
}

// The records of the retained topic: sixteen of their batches fill a segment of 1 MiB, the smallest that Kafka 4 allows.
const (
	mebibyte   = 1 << 20
	bigValue   = 65_000
	perSegment = 16
)

// notIdempotent is for topics whose first segments go: when Apache Kafka starts it removes producer snapshots at the log
// start, so it may forget producers that have no record left. (Weir does not.)
func notIdempotent() kgo.Opt { return kgo.DisableIdempotentWrite() }

// retainedBySize writes four segments and waits until just as many are left as retention.bytes allows.
func retainedBySize(s *scene) {
	const topic = "retained"
	s.ensure(topic, 1, map[string]string{"segment.bytes": strconv.Itoa(mebibyte), "retention.bytes": strconv.Itoa(mebibyte), "retention.ms": "-1"})
	client := s.client(kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerBatchMaxBytes(bigValue+200), notIdempotent())
	for range 4 * perSegment {
		value := make([]byte, bigValue)
		value[s.dice.IntN(len(value))] = 1
		s.produce(client, &kgo.Record{Topic: topic, Value: value})
	}
	oneBatch := int64(bigValue + 90)
	s.until("retention of "+topic, func() error {
		dirs, err := s.admin().DescribeBrokerLogDirs(s.Context(), s.n.ID, kadm.TopicsSet{topic: {0: {}}})
		if err != nil {
			return err
		}
		for _, d := range dirs {
			if p, ok := d.Topics.Lookup(topic, 0); ok {
				// A segment goes when what is more than retention.bytes is at least as large.
				if p.Size-mebibyte >= perSegment*(oneBatch-50) {
					return fmt.Errorf("%d bytes are left", p.Size)
				}
				return nil
			}
		}
		return errors.New("it is in no log directory")
	})
}

func retainedByTime(s *scene) {
	const topic = "aged"
	s.ensure(topic, 1, map[string]string{"retention.ms": "3600000"})
	records := s.shapes(topic, 0, 10)
	for _, r := range records {
		r.Timestamp = time.Now().Add(-2 * time.Hour)
	}
	s.produce(s.client(notIdempotent()), records...)
	s.until("retention of "+topic, func() error {
		if start, end := s.offsets(topic, 0); start != end {
			return fmt.Errorf("it holds %d to %d", start, end)
		}
		return nil
	})
}

// moved sends a replica to the next log directory and back in the next leg.
func moved(s *scene) {
	if len(s.n.LogDirs) == 1 {
		return
	}
	const topic = "moved"
	s.ensure(topic, 2, nil)
	client := s.client()
	s.produce(client, s.shapes(topic, 0, 24)...)
	s.move(topic, s.n.LogDirs[(s.leg+1)%len(s.n.LogDirs)])
	s.produce(client, s.shapes(topic, 0, 8)...)
}

// move sends partition 0 of a topic to a log directory and waits until it is there.
func (s *scene) move(topic, to string) {
	s.Helper()
	res, err := s.admin().AlterBrokerReplicaLogDirs(s.Context(), s.n.ID, kadm.AlterReplicaLogDirsReq{to: kadm.TopicsSet{topic: {0: {}}}})
	s.must(err, "alter replica log dirs")
	for _, ps := range res {
		for _, p := range ps {
			s.must(p.Err, "alter replica log dirs")
		}
	}
	s.until("the move of "+topic, func() error {
		dirs, err := s.admin().DescribeBrokerLogDirs(s.Context(), s.n.ID, kadm.TopicsSet{topic: {0: {}}})
		if err != nil {
			return err
		}
		for path, d := range dirs {
			if p, ok := d.Topics.Lookup(topic, 0); ok && (path != to || p.IsFuture) {
				return fmt.Errorf("it is in %s (future %v)", path, p.IsFuture)
			}
		}
		return nil
	})
}

// features raises a level that Weir may not serve: it has to keep the record.
func features(s *scene) {
	if s.n.System() != testnode.Apache {
		return
	}
	adm := s.admin()
	res, err := adm.UpdateFeatures(s.Context(), false, kadm.FeatureUpdate{Feature: "group.version", MaxVersionLevel: 1, UpgradeType: 1})
	s.must(err, "update features")
	for _, r := range res {
		s.must(r.Err, "group.version")
	}
	// The controller has committed it; what the broker tells follows a moment later.
	client := s.client()
	s.until("the broker tells the new level", func() error {
		res, err := kmsg.NewPtrApiVersionsRequest().RequestWith(s.Context(), client)
		if err != nil {
			return err
		}
		for _, f := range res.FinalizedFeatures {
			if f.Name == "group.version" && f.MaxVersionLevel == 1 {
				return nil
			}
		}
		return errors.New("group.version is not 1 yet")
	})
}
