package cluster

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"weir/test/testnode"
)

// effect is what a topic key does, as a client or the disk shows it. look makes a little traffic and says what came of it.
type effect struct {
	key, broker string // the topic's name of the key and the broker's
	value       string
	without     string // what look says before the key is set and after it is taken away
	with        string
	look        func(d *dynamics, topic string) string
}

type dynamics struct {
	t      *testing.T
	n      *testnode.Node
	client *kgo.Client
	adm    *kadm.Client
}

// A dynamic key takes effect while the node runs, wherever it is set: on the topic, on the broker, for all brokers; and
// loses it when it is taken away.
func TestDynamicKeysTakeEffect(t *testing.T) {
	n := testnode.New(t, testnode.Options{})
	n.Start(t)
	client := n.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.RecordRetries(0), kgo.ProducerLinger(0), kgo.AllowAutoTopicCreation())
	d := &dynamics{t: t, n: n, client: client, adm: kadm.NewClient(client)}
	for _, e := range []effect{
		{key: "max.message.bytes", broker: "message.max.bytes", value: "500", without: "ok", with: "MESSAGE_TOO_LARGE", look: large},
		{key: "compression.type", broker: "compression.type", value: "lz4", without: "codec 0", with: "codec 3", look: codec},
		{key: "message.timestamp.type", broker: "log.message.timestamp.type", value: "LogAppendTime", without: "type 0", with: "type 1", look: stamp},
		{key: "message.timestamp.before.max.ms", broker: "log.message.timestamp.before.max.ms", value: "60000", without: "ok", with: "INVALID_TIMESTAMP", look: old},
		{key: "message.timestamp.after.max.ms", broker: "log.message.timestamp.after.max.ms", value: "1000", without: "ok", with: "INVALID_TIMESTAMP", look: early},
		{key: "segment.bytes", broker: "log.segment.bytes", value: "1048576", without: "1 segments", with: "3 segments", look: segments},
	} {
		t.Run(e.key, func(t *testing.T) {
			d.t = t
			d.level("topic", e, func(topic string, op kadm.AlterConfig) error {
				op.Name = e.key
				return first(d.adm.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{op}, topic))
			})
			op := func(brokers ...int32) func(string, kadm.AlterConfig) error {
				return func(_ string, op kadm.AlterConfig) error {
					op.Name = e.broker
					return first(d.adm.AlterBrokerConfigs(t.Context(), []kadm.AlterConfig{op}, brokers...))
				}
			}
			d.level("cluster", e, op())
			d.level("broker", e, op(n.ID))
		})
	}
}

func first(rs kadm.AlterConfigsResponses, err error) error {
	for _, r := range rs {
		err = errors.Join(err, r.Err)
	}
	return err
}

// level sets and takes away a key at one place, and looks at a topic of its own each time.
func (d *dynamics) level(where string, e effect, alter func(topic string, op kadm.AlterConfig) error) {
	d.t.Helper()
	topic := strings.ReplaceAll(e.key, ".", "-") + "-" + where
	for i, step := range []struct {
		op   kadm.IncrementalOp
		want string
	}{{kadm.DeleteConfig, e.without}, {kadm.SetConfig, e.with}, {kadm.DeleteConfig, e.without}} {
		probe := fmt.Sprintf("%s-%d", topic, i)
		if _, err := d.adm.CreateTopic(d.t.Context(), 1, 1, nil, probe); err != nil {
			d.t.Fatal(err)
		}
		if err := alter(probe, kadm.AlterConfig{Op: step.op, Value: &e.value}); err != nil {
			d.t.Fatalf("%s: %v", where, err)
		}
		// The broker hears of it a little later than the controller answers.
		tries := 0
		testnode.Until(d.t, testnode.Patience, fmt.Sprintf("%s at %s, step %d", e.key, where, i), func() error {
			if tries++; tries > 1 { // on a topic without the traffic of before
				probe = fmt.Sprintf("%s-%d-%d", topic, i, tries)
				if _, err := d.adm.CreateTopic(d.t.Context(), 1, 1, nil, probe); err != nil {
					return err
				}
				if err := alter(probe, kadm.AlterConfig{Op: step.op, Value: &e.value}); err != nil {
					return err
				}
			}
			if got := e.look(d, probe); got != step.want {
				return fmt.Errorf("%s, want %s", got, step.want)
			}
			return nil
		})
	}
}

func (d *dynamics) produce(topic string, size int, at time.Time) string {
	value := make([]byte, size)
	for i := range value {
		value[i] = byte(rand.Uint32())
	}
	r := &kgo.Record{Topic: topic, Value: value, Timestamp: at}
	err := d.client.ProduceSync(d.t.Context(), r).FirstErr()
	var known *kerr.Error
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &known):
		return known.Message
	}
	return err.Error()
}

func large(d *dynamics, topic string) string { return d.produce(topic, 2000, time.Now()) }
func old(d *dynamics, topic string) string   { return d.produce(topic, 10, time.Now().Add(-time.Hour)) }
func early(d *dynamics, topic string) string {
	return d.produce(topic, 10, time.Now().Add(10*time.Minute))
}

// segments is how many segments three batches of 600 kB make.
func segments(d *dynamics, topic string) string {
	for range 3 {
		if got := d.produce(topic, 600_000, time.Now()); got != "ok" {
			return got
		}
	}
	files, err := filepath.Glob(filepath.Join(d.n.LogDirs[0], topic+"-0", "*.log"))
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d segments", len(files))
}

func codec(d *dynamics, topic string) string {
	return d.stored(topic, func(a kgo.RecordAttrs) string { return fmt.Sprintf("codec %d", a.CompressionType()) })
}

func stamp(d *dynamics, topic string) string {
	return d.stored(topic, func(a kgo.RecordAttrs) string { return fmt.Sprintf("type %d", a.TimestampType()) })
}

// stored produces a record and shows its batch's attributes as they are read.
func (d *dynamics) stored(topic string, show func(kgo.RecordAttrs) string) string {
	r := &kgo.Record{Topic: topic, Value: []byte(strings.Repeat("x", 1000))}
	if err := d.client.ProduceSync(d.t.Context(), r).FirstErr(); err != nil {
		return err.Error()
	}
	reader, err := kgo.NewClient(kgo.SeedBrokers(d.n.Addr), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(r.Offset)}}))
	if err != nil {
		return err.Error()
	}
	defer reader.Close()
	ctx, cancel := context.WithTimeout(d.t.Context(), testnode.Patience)
	defer cancel()
	fs := reader.PollFetches(ctx)
	if err := fs.Err(); err != nil {
		return err.Error()
	}
	return show(fs.Records()[0].Attrs)
}

// The limits of a single listener hold from when they are set to when they are taken away, for the connections that wait
// too.
func TestDynamicListenerLimits(t *testing.T) {
	n := testnode.New(t, testnode.Options{})
	n.Start(t)
	adm := n.Admin(t)
	const key = "listener.name.plaintext.max.connections"
	alter := func(op kadm.AlterConfig) {
		t.Helper()
		op.Name = key
		if err := first(adm.AlterBrokerConfigs(t.Context(), []kadm.AlterConfig{op}, n.ID)); err != nil {
			t.Fatal(err)
		}
	}
	served := func(patience time.Duration) (net.Conn, error) {
		conn, err := net.Dial("tcp", n.Addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		// ApiVersions v0: size, key 18, version 0, correlation id, null client id.
		if _, err := conn.Write([]byte{0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 0xff, 0xff}); err != nil {
			t.Fatal(err)
		}
		return conn, answered(conn, patience)
	}
	if _, err := served(testnode.Patience); err != nil {
		t.Fatal(err)
	}
	alter(kadm.AlterConfig{Op: kadm.SetConfig, Value: kadm.StringPtr("1")})
	var waiting net.Conn
	testnode.Until(t, testnode.Patience, "a connection that has to wait", func() error {
		conn, err := served(300 * time.Millisecond)
		waiting = conn
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("served: %v", err)
		}
		return nil
	})
	alter(kadm.AlterConfig{Op: kadm.DeleteConfig})
	if err := answered(waiting, testnode.Patience); err != nil {
		t.Errorf("the limit is gone, but: %v", err)
	}
}

// answered waits for the size of an answer.
func answered(conn net.Conn, patience time.Duration) error {
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	var size [4]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return err
	}
	if binary.BigEndian.Uint32(size[:]) == 0 {
		return errors.New("an empty answer")
	}
	return nil
}
