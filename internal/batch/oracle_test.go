package batch

import (
	"encoding/binary"
	"io"
	"net"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// oracle asks a running Apache Kafka, named by WEIR_KAFKA=host:port; without it the tests are skipped. They show that the
// tables of this package say what the real broker answers.
type oracle struct {
	t    *testing.T
	conn net.Conn
	id   int32
}

func dialOracle(t *testing.T) *oracle {
	addr := os.Getenv("WEIR_KAFKA")
	if addr == "" {
		t.Skip("WEIR_KAFKA=host:port of an Apache Kafka is not set")
	}
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &oracle{t: t, conn: conn}
}

func (o *oracle) ask(req kmsg.Request) kmsg.Response {
	o.t.Helper()
	o.id++
	f := kmsg.NewRequestFormatter(kmsg.FormatterClientID("weir-test"))
	resp := req.ResponseKind()
	if _, err := o.conn.Write(f.AppendRequest(nil, req, o.id)); err != nil {
		o.t.Fatal(err)
	}
	o.conn.SetReadDeadline(time.Now().Add(3 * time.Second))
	var size [4]byte
	if _, err := io.ReadFull(o.conn, size[:]); err != nil {
		o.t.Fatalf("reading answer: %v", err)
	}
	body := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(o.conn, body); err != nil {
		o.t.Fatal(err)
	}
	body = body[4:]
	if resp.IsFlexible() && resp.Key() != 18 {
		body = body[1:]
	}
	if err := resp.ReadFrom(body); err != nil {
		o.t.Fatal(err)
	}
	return resp
}

func (o *oracle) createTopics() {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version = 5
	req.TimeoutMillis = 10000
	for name, kind := range topicKinds {
		rt := kmsg.NewCreateTopicsRequestTopic()
		rt.Topic, rt.NumPartitions, rt.ReplicationFactor = name, 1, 1
		for k, v := range kind.configs {
			rt.Configs = append(rt.Configs, kmsg.CreateTopicsRequestTopicConfig{Name: k, Value: kmsg.StringPtr(v)})
		}
		req.Topics = append(req.Topics, rt)
	}
	for _, rt := range o.ask(req).(*kmsg.CreateTopicsResponse).Topics {
		if rt.ErrorCode != 0 && rt.ErrorCode != 36 {
			o.t.Fatalf("create %s: %d", rt.Topic, rt.ErrorCode)
		}
	}
}

func (o *oracle) produce(version int16, topic string, records []byte) kmsg.ProduceResponseTopicPartition {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = version, 1, 10000
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Records = records
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic, rt.Partitions = topic, append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return o.ask(req).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
}

var digits = regexp.MustCompile(`\d{10,}`)

func TestOracleValidate(t *testing.T) {
	o := dialOracle(t)
	o.createTopics()
	time.Sleep(time.Second) // a real broker opens the new partitions meanwhile
	now := time.Now().UnixMilli()
	var buf Buffers
	for _, c := range produceCases() {
		t.Run(caseName(c), func(t *testing.T) {
			o := dialOracle(t) // a batch that upsets Kafka costs the connection
			got := o.produce(9, c.topic, c.records(now))
			text := ""
			if got.ErrorMessage != nil {
				text = *got.ErrorMessage
			}
			_, err := produce(c.records(now), policyOf(c.topic, now), &buf)
			code, ours, recs := verdict(err)
			same := code == got.ErrorCode && len(recs) == len(got.ErrorRecords)
			if !same && c.unlike == "" {
				t.Errorf("Kafka: %d %q %d records; ours: %d %q %d records", got.ErrorCode, text, len(got.ErrorRecords), code, ours, len(recs))
			} else if digits.ReplaceAllString(text, "N") != digits.ReplaceAllString(ours, "N") {
				t.Logf("texts differ:\n K %s\n W %s", text, ours)
			}
			for i := range min(len(recs), len(got.ErrorRecords)) {
				if recs[i].Index != got.ErrorRecords[i].RelativeOffset {
					t.Errorf("record error %d: index %d, Kafka %d", i, recs[i].Index, got.ErrorRecords[i].RelativeOffset)
				}
				if m := got.ErrorRecords[i].ErrorMessage; m == nil || digits.ReplaceAllString(*m, "N") != digits.ReplaceAllString(recs[i].Message, "N") {
					t.Logf("record texts differ:\n K %v\n W %s", deref(m), recs[i].Message)
				}
			}
		})
	}
}

func deref(s *string) string {
	if s == nil {
		return "<null>"
	}
	return *s
}
