package controller

import (
	"bytes"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/batch"
	"weir/internal/image"
	"weir/internal/records"
	"weir/internal/uuid"
)

// readGolden returns the metadata records of a log by offset, and for each the last offset of its batch.
func readGolden(t *testing.T, name string) (golden map[int64]records.Versioned, ends map[int64]int64) {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	golden, ends = map[int64]records.Versioned{}, map[int64]int64{}
	var buf batch.Buffers
	for len(b) > 0 {
		var one batch.Batch
		if one, b, err = batch.Next(b); err != nil {
			t.Fatal(err)
		}
		if one.IsControl() {
			continue
		}
		for r, err := range one.Records(&buf) {
			if err != nil {
				t.Fatal(err)
			}
			v, err := records.ParseMetadata(r.Value)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(records.AppendMetadata(nil, v), r.Value) {
				t.Fatalf("offset %d: a record is not written as it was read", r.Offset)
			}
			golden[r.Offset], ends[r.Offset] = v, one.LastOffset()
		}
	}
	return golden, ends
}

// fixedID is dice that make one topic id.
type fixedID uuid.UUID

func (f fixedID) Read(p []byte) (int, error)  { return copy(p, f[:]), nil }
func (f fixedID) Shuffle(int, func(i, j int)) {}

// replayer drives our controller along a log of the real one.
type replayer struct {
	t      *testing.T
	golden map[int64]records.Versioned
	ends   map[int64]int64
	core   *Core
	img    *image.Image
	offset int64 // up to which, exclusive, the log has been replayed
	nowMs  int64
	id     uuid.UUID
}

// expect replays the log up to an offset, lets our controller act and compares what it writes with what stands there.
func (r *replayer) expect(what string, offset int64, act func(Step) Result) {
	r.t.Helper()
	d := image.NewDelta(r.img)
	for ; r.offset < offset; r.offset++ {
		if v, ok := r.golden[r.offset]; ok {
			if err := d.Replay(v); err != nil {
				r.t.Fatal(err)
			}
		}
	}
	r.img = d.Apply(image.Provenance{Offset: offset - 1})
	res := act(Step{NowMs: r.nowMs, Rand: fixedID(r.id), Image: r.img, NextOffset: offset})
	if res.Err != nil {
		r.t.Fatalf("%s: refused: %v", what, res.Err)
	}
	if len(res.Records) == 0 {
		r.t.Errorf("%s: nothing written", what)
	}
	show := (&env{img: r.img}).show
	for i, v := range res.Records {
		at := offset + int64(i)
		want, ok := r.golden[at]
		if !ok || !bytes.Equal(records.AppendMetadata(nil, v), records.AppendMetadata(nil, want)) {
			r.t.Errorf("%s, offset %d:\n  ours  %s\n  Kafka %s", what, at, show(v), show(want))
		}
	}
	end := offset + int64(len(res.Records)) - 1
	if _, idle := r.golden[end+1].Record.(*records.NoOpRecord); end != r.ends[offset] && !(idle && end+1 == r.ends[offset]) {
		r.t.Errorf("%s: ours ends at %d, Kafka's batch at %d", what, end, r.ends[offset])
	}
}

// TestLikeKafka goes through the log of a real node (golden/README.md).
func TestLikeKafka(t *testing.T) {
	golden, ends := readGolden(t, "golden/kafka-4.3.1-one-node.log")
	o := newEnv(30, true).o
	o.ClusterID, o.Bootstrap = "c", nil
	for offset := int64(2); offset <= 7; offset++ {
		o.Bootstrap = append(o.Bootstrap, golden[offset])
	}
	o.Config = anything{}
	r := &replayer{t: t, golden: golden, ends: ends, core: New(o), img: image.New(), nowMs: 1000}
	create := func(name string, partitions int32, kv ...string) func(Step) Result {
		return func(s Step) Result { return r.core.CreateTopics(s, createRequest(name, partitions, kv...)) }
	}
	topicID := func(offset int64) uuid.UUID { return golden[offset].Record.(*records.TopicRecord).TopicID }
	heartbeat := func(wantShutdown bool) func(Step) Result {
		return func(s Step) Result {
			b, _ := s.Image.Broker(1)
			req := kmsg.NewPtrBrokerHeartbeatRequest()
			req.Version, req.BrokerID, req.BrokerEpoch, req.CurrentMetadataOffset, req.WantShutdown = 2, 1, b.Epoch, s.NextOffset-1, wantShutdown
			return r.core.Heartbeat(s, req)
		}
	}
	register := func(offset int64, previous int64) func(Step) Result {
		return func(s Step) Result {
			return r.core.RegisterBroker(s, registerRequest(golden[offset].Record.(*records.RegisterBrokerRecord), previous))
		}
	}

	r.expect("activation", 1, r.core.Activate)
	r.expect("controller", 10, r.registerController(10))
	r.expect("broker", 11, register(11, -1))
	r.expect("unfencing", 13, heartbeat(false))
	r.id = topicID(17)
	r.expect("create t1", 17, create("t1", 2, "retention.ms", "100000", "cleanup.policy", "compact"))
	r.id = topicID(24)
	r.expect("create a.b", 24, create("a.b", 1))
	r.expect("a third partition", 43, func(s Step) Result {
		req := kmsg.NewPtrCreatePartitionsRequest()
		rt := kmsg.NewCreatePartitionsRequestTopic()
		rt.Topic, rt.Count = "t1", 3
		req.Topics = append(req.Topics, rt)
		return r.core.CreatePartitions(s, req)
	})
	r.expect("alter t1", 51, r.alter(kmsg.ConfigResourceTypeTopic, "t1", "segment.bytes", "2000000", "min.insync.replicas", "1"))
	r.expect("unset", 58, r.alter(kmsg.ConfigResourceTypeTopic, "t1", "segment.bytes", ""))
	r.expect("default", 64, r.alter(kmsg.ConfigResourceTypeBroker, "", "log.retention.ms", "1000000"))
	r.expect("default min.insync.replicas", 68, r.alter(kmsg.ConfigResourceTypeBroker, "", "min.insync.replicas", "2"))
	r.expect("delete a.b", 72, func(s Step) Result {
		req := kmsg.NewPtrDeleteTopicsRequest()
		req.Version, req.TopicNames = 5, []string{"a.b"}
		return r.core.DeleteTopics(s, req)
	})
	r.expect("controlled shutdown", 74, heartbeat(true))
	r.expect("shut down", 78, heartbeat(true))

	// It starts again after the clean stop, and names the epoch of the registration that it ended.
	r.core.Deactivate()
	r.img = r.advance(81)
	r.core.Activate(Step{NowMs: r.nowMs, Image: r.img, NextOffset: 81})
	r.expect("controller again", 81, r.registerController(81))
	r.expect("clean return", 82, register(82, 11))
	r.expect("clean unfencing", 84, heartbeat(false))

	// After the kill its old session has to run out first.
	r.core.Deactivate()
	r.img = r.advance(96)
	r.core.Activate(Step{NowMs: r.nowMs, Image: r.img, NextOffset: 96})
	r.nowMs += 9000
	r.expect("session timeout", 114, r.core.Tick)
	r.expect("unclean return", 121, register(124, -1))
	r.expect("unclean unfencing", 125, heartbeat(false))
}

// TestLikeKafkaThreeNodes goes through the log of three real nodes: one is killed, one leaves in good order.
func TestLikeKafkaThreeNodes(t *testing.T) {
	golden, ends := readGolden(t, "golden/kafka-4.3.1-three-nodes.log")
	o := newEnv(30, true).o
	o.Config = anything{}
	r := &replayer{t: t, golden: golden, ends: ends, core: New(o), img: image.New(), nowMs: 1000}
	heartbeat := func(id int32, wantShutdown bool) func(Step) Result {
		return func(s Step) Result {
			b, _ := s.Image.Broker(id)
			req := kmsg.NewPtrBrokerHeartbeatRequest()
			req.Version, req.BrokerID, req.BrokerEpoch, req.CurrentMetadataOffset, req.WantShutdown = 2, id, b.Epoch, s.NextOffset-1, wantShutdown
			return r.core.Heartbeat(s, req)
		}
	}
	quiet := func(offset int64, act func(Step) Result) {
		t.Helper()
		r.img = r.advance(offset)
		if res := act(Step{NowMs: r.nowMs, Image: r.img, NextOffset: offset}); len(res.Records) != 0 {
			t.Errorf("offset %d: %d records that Kafka does not write", offset, len(res.Records))
		}
	}
	quiet(28, r.core.Activate)
	r.id = golden[28].Record.(*records.TopicRecord).TopicID
	r.expect("create", 28, func(s Step) Result {
		req := createRequest("el", -1, "min.insync.replicas", "2")
		for i, replicas := range [][]int32{{1, 2, 3}, {2, 3, 1}, {3, 1, 2}} {
			a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
			a.Partition, a.Replicas = int32(i), replicas
			req.Topics[0].ReplicaAssignment = append(req.Topics[0].ReplicaAssignment, a)
		}
		return r.core.CreateTopics(s, req)
	})
	r.nowMs += 8000
	quiet(50, heartbeat(1, false))
	quiet(50, heartbeat(3, false))
	r.nowMs += 1000
	r.expect("node 2 is killed", 51, r.core.Tick)
	r.expect("node 3 wants to go", 68, heartbeat(3, true))
	quiet(72, heartbeat(3, true)) // node 1 has not reported the change yet
	quiet(76, heartbeat(1, false))
	r.expect("node 3 may go", 76, heartbeat(3, true))
}

func (r *replayer) advance(to int64) *image.Image {
	d := image.NewDelta(r.img)
	for ; r.offset < to; r.offset++ {
		if v, ok := r.golden[r.offset]; ok {
			if err := d.Replay(v); err != nil {
				r.t.Fatal(err)
			}
		}
	}
	return d.Apply(image.Provenance{Offset: to - 1})
}

func (r *replayer) registerController(offset int64) func(Step) Result {
	g := r.golden[offset].Record.(*records.RegisterControllerRecord)
	req := kmsg.NewPtrControllerRegistrationRequest()
	req.ControllerID, req.IncarnationID = g.ControllerID, g.IncarnationID
	for _, e := range g.EndPoints {
		l := kmsg.NewControllerRegistrationRequestListener()
		l.Name, l.Host, l.Port, l.SecurityProtocol = e.Name, e.Host, e.Port, e.SecurityProtocol
		req.Listeners = append(req.Listeners, l)
	}
	for _, f := range g.Features {
		x := kmsg.NewControllerRegistrationRequestFeature()
		x.Name, x.MinSupportedVersion, x.MaxSupportedVersion = f.Name, f.MinSupportedVersion, f.MaxSupportedVersion
		req.Features = append(req.Features, x)
	}
	return func(s Step) Result { return r.core.RegisterController(s, req) }
}

func registerRequest(g *records.RegisterBrokerRecord, previous int64) *kmsg.BrokerRegistrationRequest {
	req := kmsg.NewPtrBrokerRegistrationRequest()
	req.Version, req.BrokerID, req.ClusterID, req.IncarnationID, req.PreviousBrokerEpoch, req.Rack = 4, g.BrokerID, "c", g.IncarnationID, previous, g.Rack
	for _, e := range g.EndPoints {
		l := kmsg.NewBrokerRegistrationRequestListener()
		l.Name, l.Host, l.Port, l.SecurityProtocol = e.Name, e.Host, e.Port, e.SecurityProtocol
		req.Listeners = append(req.Listeners, l)
	}
	for _, f := range g.Features {
		x := kmsg.NewBrokerRegistrationRequestFeature()
		x.Name, x.MinSupportedVersion, x.MaxSupportedVersion = f.Name, f.MinSupportedVersion, f.MaxSupportedVersion
		req.Features = append(req.Features, x)
	}
	for _, d := range g.LogDirs {
		req.LogDirs = append(req.LogDirs, d)
	}
	return req
}

func createRequest(name string, partitions int32, kv ...string) *kmsg.CreateTopicsRequest {
	req := kmsg.NewPtrCreateTopicsRequest()
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = name, partitions, -1
	for i := 0; i < len(kv); i += 2 {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = kv[i], &kv[i+1]
		rt.Configs = append(rt.Configs, c)
	}
	req.Topics = append(req.Topics, rt)
	return req
}

// alter sets keys; an empty value removes.
func (r *replayer) alter(kind kmsg.ConfigResourceType, name string, kv ...string) func(Step) Result {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	rr := kmsg.NewIncrementalAlterConfigsRequestResource()
	rr.ResourceType, rr.ResourceName = kind, name
	for i := 0; i < len(kv); i += 2 {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Value = kv[i], &kv[i+1]
		if kv[i+1] == "" {
			c.Op, c.Value = kmsg.IncrementalAlterConfigOpDelete, nil
		}
		rr.Configs = append(rr.Configs, c)
	}
	req.Resources = append(req.Resources, rr)
	return func(s Step) Result { return r.core.IncrementalAlterConfigs(s, req) }
}

// anything is configuration rules that accept all.
type anything struct{ rules }

func (anything) Validate(image.Resource, map[string]string) error { return nil }

// TestGoldenSnapshot: the state of a real node survives a snapshot of ours.
func TestGoldenSnapshot(t *testing.T) {
	golden, _ := readGolden(t, "golden/kafka-4.3.1-one-node.log")
	r := &replayer{t: t, golden: golden, img: image.New()}
	img := r.advance(slices.Max(slices.Collect(maps.Keys(golden))) + 1)
	d := image.NewDelta(image.New())
	for v := range img.Records {
		if err := d.Replay(v); err != nil {
			t.Fatal(err)
		}
	}
	if !d.Apply(img.Provenance).Equal(img) {
		t.Error("the snapshot rebuilds another image")
	}
}
