package interop

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"weir/test/testnode"
)

// scene is one directory on its way between the systems, and what is known of it.
type scene struct {
	*testing.T
	n   *testnode.Node
	leg int // counts the starts, from 0

	acked map[tp]map[int64]string  // what was acked, by offset
	table map[tp]map[string]string // of compacted topics the newest record by key
	clubs map[string]*club         // groups whose members this test plays
	ids   map[tp]int64             // the one producer id of a partition that only one producer has written
	// steady lives through all legs: its producer id and sequences go on where they were.
	steady  *kgo.Client
	replays []replay
	issued  map[int64]bool // producer ids that were handed out
	topicID map[string]string
	dice    *rand.Rand
}

func newScene(t *testing.T, n *testnode.Node) *scene {
	return &scene{
		T: t, n: n, acked: map[tp]map[int64]string{}, table: map[tp]map[string]string{}, clubs: map[string]*club{}, ids: map[tp]int64{}, issued: map[int64]bool{}, topicID: map[string]string{},
		dice:   rand.New(rand.NewPCG(1, 2)),
		steady: n.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.StopProducerOnDataLossDetected(), kgo.AllowAutoTopicCreation()),
	}
}

// client is a producer of its own; it is closed at the end of the test.
func (s *scene) client(opts ...kgo.Opt) *kgo.Client {
	return s.n.Client(s.T, append([]kgo.Opt{kgo.RecordPartitioner(kgo.ManualPartitioner())}, opts...)...)
}

func (s *scene) admin() *kadm.Client {
	adm := s.n.Admin(s.T)
	adm.SetTimeoutMillis(20_000)
	return adm
}

func (s *scene) must(err error, what string) {
	s.Helper()
	if err != nil {
		s.Fatalf("leg %d (%s): %s: %v", s.leg, s.n.System(), what, err)
	}
}

// ensure creates a topic unless it is there.
func (s *scene) ensure(topic string, partitions int32, configs map[string]string) {
	s.Helper()
	adm := s.admin()
	there, err := adm.ListTopics(s.Context(), topic)
	s.must(err, "list topics")
	if there.Has(topic) {
		return
	}
	values := map[string]*string{}
	for k, v := range configs {
		values[k] = &v
	}
	_, err = adm.CreateTopic(s.Context(), partitions, 1, values, topic)
	s.must(err, "create "+topic)
	s.present(topic, partitions)
}

// present waits until the broker knows a topic with so many partitions, each with a leader: it hears of them a little
// later than the controller answers.
func (s *scene) present(topic string, partitions int32) {
	s.Helper()
	adm := s.admin()
	s.until(fmt.Sprintf("%s with %d partitions", topic, partitions), func() error {
		topics, err := adm.ListTopics(s.Context(), topic)
		if err != nil {
			return err
		}
		d := topics[topic]
		if d.Err != nil || int32(len(d.Partitions)) != partitions {
			return fmt.Errorf("%d partitions, %w", len(d.Partitions), d.Err)
		}
		for _, p := range d.Partitions {
			if p.Err != nil || p.Leader < 0 {
				return fmt.Errorf("partition %d: leader %d, %w", p.Partition, p.Leader, p.Err)
			}
		}
		return nil
	})
}

// produce sends records, waits for the acks and keeps what was acked.
func (s *scene) produce(client *kgo.Client, records ...*kgo.Record) {
	s.Helper()
	for _, r := range client.ProduceSync(s.Context(), records...) {
		s.must(r.Err, fmt.Sprintf("produce to %s-%d", r.Record.Topic, r.Record.Partition))
		s.ack(tp{r.Record.Topic, r.Record.Partition}, r.Record.Offset, content(r.Record))
	}
}

func (s *scene) ack(at tp, offset int64, content string) {
	if s.acked[at] == nil {
		s.acked[at] = map[int64]string{}
	}
	if had, ok := s.acked[at][offset]; ok {
		s.Errorf("leg %d: %v: offset %d was acked twice: %s, %s", s.leg, at, offset, had, content)
	}
	s.acked[at][offset] = content
}

// shapes are records of every shape: null and empty keys, values and headers, repeated header names, text that is no
// UTF-8, small and larger than a page.
func (s *scene) shapes(topic string, partition int32, n int) []*kgo.Record {
	var out []*kgo.Record
	for i := range n {
		r := &kgo.Record{Topic: topic, Partition: partition, Key: fmt.Appendf(nil, "key-%d-%d", s.leg, i), Value: fmt.Appendf(nil, "value %d of leg %d", i, s.leg)}
		switch i % 8 {
		case 1:
			r.Key = nil
		case 2:
			r.Value = nil
		case 3:
			r.Key, r.Value = []byte{}, []byte{}
		case 4:
			r.Headers = []kgo.RecordHeader{{Key: "a", Value: []byte("1")}, {Key: "a", Value: nil}, {Key: "", Value: []byte{}}}
		case 5:
			r.Value = []byte{0xff, 0xfe, 0, '\n', 0xc3, 0x28}
		case 6:
			r.Value = make([]byte, 5000)
			for j := range r.Value {
				r.Value[j] = byte(s.dice.Uint32())
			}
		case 7:
			r.Value = bytes.Repeat([]byte("weir "), 2000)
		}
		out = append(out, r)
	}
	return out
}

// check holds what a node shows against what it has acked.
func (s *scene) check(w *world) {
	s.Helper()
	for at, acked := range s.acked {
		topic, ok := w.Topics[at.topic]
		if !ok || int(at.partition) >= len(topic.Partitions) {
			s.Errorf("leg %d (%s): %v is not there", s.leg, s.n.System(), at)
			continue
		}
		p := topic.Partitions[at.partition]
		if int64(len(p.Records)) != p.End-p.Start {
			s.Errorf("leg %d (%s): %v holds %d records from %d to %d", s.leg, s.n.System(), at, len(p.Records), p.Start, p.End)
		}
		for offset, want := range acked {
			switch i := offset - p.Start; {
			case i < 0:
				delete(acked, offset) // below the start: deleted on purpose, the changes look after how far
			case i >= int64(len(p.Records)):
				s.Errorf("leg %d (%s): %v: acked offset %d is lost, the log ends at %d", s.leg, s.n.System(), at, offset, p.End)
			case !strings.HasSuffix(p.Records[i].Text, want):
				s.Errorf("leg %d (%s): %v: offset %d was acked as %s, is %s", s.leg, s.n.System(), at, offset, want, p.Records[i].Text)
			}
		}
	}
	s.checkTables(w)
	for name, id := range s.topicID {
		if got := w.Topics[name].ID; got != id {
			s.Errorf("leg %d (%s): topic %s has id %s, had %s", s.leg, s.n.System(), name, got, id)
		}
	}
}

// offsets are the start and end of a partition.
func (s *scene) offsets(topic string, partition int32) (start, end int64) {
	s.Helper()
	adm := s.admin()
	var starts, ends kadm.ListedOffsets
	s.until("offsets of "+topic, func() error { // a leader just elected may not answer yet (KIP-207)
		var err error
		if starts, err = adm.ListStartOffsets(s.Context(), topic); firstError(err, starts) != nil {
			return firstError(err, starts)
		}
		ends, err = adm.ListEndOffsets(s.Context(), topic)
		return firstError(err, ends)
	})
	from, _ := starts.Lookup(topic, partition)
	to, _ := ends.Lookup(topic, partition)
	return from.Offset, to.Offset
}

// forget drops what was acked for a topic that is deleted.
func (s *scene) forget(topic string) {
	for at := range s.acked {
		if at.topic == topic {
			delete(s.acked, at)
		}
	}
	delete(s.topicID, topic)
}

// until is testnode.Until with the usual patience.
func (s *scene) until(what string, ready func() error) {
	s.Helper()
	testnode.Until(s.T, testnode.Patience, fmt.Sprintf("leg %d (%s): %s", s.leg, s.n.System(), what), ready)
}

// keys sorts the keys of a set.
func keys(m map[int64]bool) []int64 {
	var out []int64
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
