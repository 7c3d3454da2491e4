package quorum

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/clock"
	"weir/internal/config"
	"weir/internal/controller"
	"weir/internal/image"
	"weir/internal/kraft"
	"weir/internal/kraft/rpc"
	"weir/internal/metalog"
	"weir/internal/peer/peertest"
	"weir/internal/records"
	"weir/internal/rng"
	"weir/internal/uuid"
	"weir/internal/vfs/memfs"
	"weir/internal/wire"
)

// netw is the network between the members of a cluster in one synctest bubble:
// pipes, and refusals where nobody listens.
type netw struct {
	*peertest.Net
	t *testing.T
}

// member is one node of a cluster, with a server as package api has it.
type member struct {
	*Node
	id   int32
	addr string
	fs   *memfs.FS
	log  *metalog.Log
	tr   *Transport
	ctx  context.Context // ends with the member
	end  context.CancelFunc
	done chan error
	seen []kmsg.Request // the envelopes that came, opened
	from []Origin
}

// serve answers a request as package api does.
func (m *member) serve(h wire.Header, req kmsg.Request) []byte {
	if res := m.answer(m.ctx, req); res != nil {
		return wire.AppendResponse(nil, h, res)
	}
	return nil
}

func (m *member) answer(ctx context.Context, req kmsg.Request) kmsg.Response {
	switch q := req.(type) {
	case *kmsg.ApiVersionsRequest:
		res := q.ResponseKind().(*kmsg.ApiVersionsResponse)
		for api := range wire.APIs() {
			res.ApiKeys = append(res.ApiKeys, kmsg.ApiVersionsResponseApiKey{ApiKey: api.Key, MinVersion: api.Versions.Min, MaxVersion: api.Versions.Max})
		}
		return res
	case *kmsg.DescribeClusterRequest:
		res := q.ResponseKind().(*kmsg.DescribeClusterResponse)
		res.ClusterID = m.tr.o.ClusterID
		return res
	case *kmsg.EnvelopeRequest:
		return m.envelope(ctx, q)
	case *kmsg.VoteRequest, *kmsg.BeginQuorumEpochRequest, *kmsg.EndQuorumEpochRequest, *kmsg.FetchSnapshotRequest, *kmsg.FetchRequest:
		return m.raft(ctx, req)
	}
	return m.decide(ctx, req)
}

func (m *member) decide(ctx context.Context, req kmsg.Request) kmsg.Response {
	res, err := m.Here().Do(ctx, req)
	if err == nil {
		return res
	}
	res = req.ResponseKind()
	switch r := res.(type) {
	case *kmsg.BrokerRegistrationResponse:
		r.ErrorCode = kerr.NotController.Code
	case *kmsg.CreateTopicsResponse:
		r.Topics = []kmsg.CreateTopicsResponseTopic{{ErrorCode: kerr.NotController.Code}}
	default:
		return nil
	}
	return res
}

func (m *member) envelope(ctx context.Context, q *kmsg.EnvelopeRequest) kmsg.Response {
	res := q.ResponseKind().(*kmsg.EnvelopeResponse)
	h, req, from, refused := OpenEnvelope(q)
	if refused != nil {
		res.ErrorCode = refused.Code
		return res
	}
	m.seen, m.from = append(m.seen, req), append(m.from, from)
	inner := m.decide(ctx, req)
	if inner == nil {
		return nil
	}
	if notController(inner) {
		res.ErrorCode = kerr.NotController.Code
		return res
	}
	res.ResponseData = wire.AppendResponse(nil, h, inner)[4:]
	return res
}

func (m *member) raft(ctx context.Context, req kmsg.Request) kmsg.Response {
	body, code := rpc.DecodeRequest(req, m.tr.o.ClusterID)
	if code != kraft.OK {
		return rpc.Refuse(req, code)
	}
	res, regions := m.Answer(ctx, kraft.None, body)
	if res == nil {
		return nil
	}
	f, ok := res.(kraft.FetchResponse)
	if !ok {
		return rpc.EncodeResponse(req, res, nil)
	}
	p, topic, out := kmsg.NewFetchResponseTopicPartition(), kmsg.NewFetchResponseTopic(), req.ResponseKind().(*kmsg.FetchResponse)
	p.ErrorCode, p.HighWatermark, p.LogStartOffset = int16(f.Code), f.HighWatermark, f.LogStart
	p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch = f.Leader.ID, f.Leader.Epoch
	if f.Diverging != nil {
		p.DivergingEpoch.Epoch, p.DivergingEpoch.EndOffset = f.Diverging.Epoch, f.Diverging.Offset
	}
	for _, r := range regions {
		var err error
		if p.RecordBatches, err = r.AppendTo(p.RecordBatches); err != nil {
			return nil
		}
	}
	release(regions)
	topic.Topic, topic.TopicID, topic.Partitions = rpc.Topic, uuid.MetadataTopic, append(topic.Partitions, p)
	out.Topics = append(out.Topics, topic)
	if e, ok := m.Endpoint(f.Leader.ID, "CONTROLLER"); ok {
		b := kmsg.NewFetchResponseBroker()
		b.NodeID, b.Host, b.Port = f.Leader.ID, e.Host, int32(e.Port)
		out.Brokers = append(out.Brokers, b)
	}
	return out
}

func addrOf(id int32) string { return "10.0.0." + strconv.Itoa(int(id)) + ":9093" }

// start makes member id of a cluster whose voters are 1 to 3; others observe.
func (w *netw) start(id int32, clusterID string, fs *memfs.FS) *member {
	w.t.Helper()
	static, _, err := config.Load("test", []byte("process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=C\n"), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	var voters []kraft.Voter
	for v := range int32(3) {
		host, _, _ := net.SplitHostPort(addrOf(v + 1))
		voters = append(voters, kraft.Voter{Replica: kraft.Replica{ID: v + 1}, Endpoints: []kraft.Endpoint{{Name: "CONTROLLER", Host: host, Port: 9093}}})
	}
	m := &member{id: id, addr: addrOf(id), fs: fs, done: make(chan error, 1)}
	book := NewBook("CONTROLLER", voters)
	m.tr = NewTransport(TransportOptions{NodeID: id, ClusterID: clusterID, Book: book, Static: []int32{1, 2, 3}, RequestTimeout: 2 * time.Second,
		Dial: w.Dial, Clock: clock.System{}, Logger: quiet})
	m.log, err = metalog.Open(metalog.Options{
		FS: fs, Dir: "/meta", Self: kraft.Replica{ID: id, Dir: uuid.UUID{0: byte(id), 15: 7}}, Voters: voters, Transport: m.tr,
		Timeouts: kraft.Timeouts{ElectionMs: 1000, FetchMs: 2000, RetryMs: 20, MaxWaitMs: 500, MaxFetch: 1 << 20, BackoffMaxMs: 1000},
		Limits:   metalog.Limits{SegmentBytes: 8 << 20, SegmentMs: 1 << 40, RetentionBytes: -1, RetentionMs: -1, MaxBatchBytes: 8 << 20},
		Clock:    clock.System{}, Rand: rng.New(uint64(id)), Logger: quiet,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	m.tr.Bind(m.log)
	o := Options{NodeID: id, Log: m.log, Book: book, Transport: m.tr, Dial: w.Dial, RequestTimeout: 2 * time.Second,
		Rand: rng.New(uint64(id) + 100), Clock: clock.System{}, Logger: quiet, SnapshotBytes: 1 << 30}
	if id <= 3 {
		level := records.NewFeatureLevelRecord()
		level.Name, level.FeatureLevel = "metadata.version", image.MetadataLatest
		o.Core = controller.New(controller.Options{
			NodeID: id, ClusterID: clusterID, SessionTimeoutMs: 9000, NoOpIntervalMs: 500,
			DefaultPartitions: 1, DefaultReplicationFactor: 1,
			Supported: []image.FeatureRange{{Name: "metadata.version", Min: 7, Max: image.MetadataLatest}, {Name: image.FeatureKRaft, Max: 1}},
			Bootstrap: []records.Versioned{{Record: &level}}, Config: NewConfigRules(static),
		})
	}
	m.Node = New(o)
	m.ctx, m.end = context.WithCancel(context.Background())
	go func() { m.done <- m.Run(m.ctx) }()
	w.Set(m.addr, peertest.Serves(m.serve))
	return m
}

// stop ends a member: its connections close, and nobody listens any more.
func (w *netw) stop(m *member) {
	w.t.Helper()
	w.Unset(m.addr)
	m.end()
	w.HangUp(m.addr)
	if err := <-m.done; err != nil {
		w.t.Errorf("node %d: %v", m.id, err)
	}
	m.Node.Close()
	m.tr.Close()
	if err := m.log.Close(); err != nil {
		w.t.Errorf("node %d: %v", m.id, err)
	}
	synctest.Wait()
}

func newNet(t *testing.T) *netw {
	return &netw{peertest.New(t, peertest.Nobody()), t}
}

// leader waits until one of the members is the active controller.
func leader(t *testing.T, of ...*member) *member {
	t.Helper()
	for range 1000 {
		for _, m := range of {
			if m.Active() {
				return m
			}
		}
		time.Sleep(10 * time.Millisecond) // synctest's clock
	}
	t.Fatal("nobody leads after 10 s")
	return nil
}

func others(of []*member, not *member) []*member {
	var out []*member
	for _, m := range of {
		if m != not {
			out = append(out, m)
		}
	}
	return out
}

func registration(id int32) *kmsg.BrokerRegistrationRequest {
	req := kmsg.NewPtrBrokerRegistrationRequest()
	req.BrokerID, req.ClusterID, req.IncarnationID, req.LogDirs = id, cluster, uuid.UUID{0: byte(id), 15: 1}, [][16]byte{{0: byte(id), 15: 9}}
	l := kmsg.NewBrokerRegistrationRequestListener()
	l.Name, l.Host, l.Port = "PLAINTEXT", "h", uint16(9000+id)
	f := kmsg.NewBrokerRegistrationRequestFeature()
	f.Name, f.MinSupportedVersion, f.MaxSupportedVersion = "metadata.version", 7, image.MetadataLatest
	req.Listeners, req.Features = append(req.Listeners, l), append(req.Features, f)
	return req
}

// Three voters elect one of them; requests reach it from every node, observers
// too; when it is gone its successor is found, within the time of C3(d).
func TestRequestsFindTheActiveController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNet(t)
		var all []*member
		for id := range int32(4) {
			all = append(all, w.start(id+1, cluster, newDisk(t)))
		}
		voters, observer := all[:3], all[3]
		first := leader(t, voters...)
		for _, m := range all {
			res, err := m.Do(t.Context(), registration(10+m.id))
			if err != nil || res.(*kmsg.BrokerRegistrationResponse).ErrorCode != 0 {
				t.Fatalf("over node %d: %+v, %v", m.id, res, err)
			}
		}
		begun := time.Now()
		w.stop(first)
		res, err := observer.Do(t.Context(), registration(20))
		if err != nil || res.(*kmsg.BrokerRegistrationResponse).ErrorCode != 0 {
			t.Fatalf("after the leader's end: %+v, %v", res, err)
		}
		if took := time.Since(begun); took > 500*time.Millisecond {
			t.Errorf("the request took %v", took)
		}
		rest := others(voters, first)
		for _, m := range append(rest, observer) {
			img := m.Images().WaitFor(t.Context(), func(i *image.Image) bool { _, ok := i.Broker(20); return ok })
			for _, id := range []int32{11, 12, 13, 14, 20} {
				if _, ok := img.Broker(id); !ok {
					t.Errorf("node %d does not know broker %d", m.id, id)
				}
			}
		}
		for _, m := range append(rest, observer) {
			w.stop(m)
		}
	})
}

// A client's request goes into an Envelope that names the client; a node that is
// not active says which one is.
func TestEnvelopes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNet(t)
		var all []*member
		for id := range int32(3) {
			all = append(all, w.start(id+1, cluster, newDisk(t)))
		}
		active := leader(t, all...)
		other := others(all, active)[0]
		if _, err := other.Here().Do(t.Context(), registration(9)); err == nil || err.Error() != fmt.Sprintf("The active controller appears to be node %d.", active.id) {
			t.Errorf("a node that is not active: %v", err)
		}
		name := "cli"
		ctx := OnBehalf(t.Context(), Origin{Principal: "User:alice", Host: []byte{10, 1, 2, 3}, ClientID: &name})
		for _, version := range []int16{7, 2} {
			req := kmsg.NewPtrCreateTopicsRequest()
			req.Version = version
			topic := kmsg.NewCreateTopicsRequestTopic()
			topic.Topic, topic.NumPartitions, topic.ReplicationFactor = "t", 1, 9
			req.Topics = append(req.Topics, topic)
			r, err := other.Do(ctx, req)
			if err != nil {
				t.Fatal(err)
			}
			res := r.(*kmsg.CreateTopicsResponse)
			if len(res.Topics) != 1 || res.Topics[0].ErrorCode != kerr.InvalidReplicationFactor.Code || res.Version != version || req.Version != version {
				t.Errorf("v%d: answered %+v", version, res)
			}
		}
		if len(active.from) != 2 || active.from[0].Principal != "User:alice" || string(active.from[0].Host) != "\x0a\x01\x02\x03" || *active.from[0].ClientID != "cli" {
			t.Errorf("the envelopes name %+v", active.from)
		}
		own := kmsg.NewPtrCreateTopicsRequest() // the node's own, without a client
		own.Version = 7
		if _, err := other.Do(t.Context(), own); err != nil || len(active.from) != 2 {
			t.Errorf("a request of its own: %v, %d envelopes", err, len(active.from))
		}
		for _, m := range all {
			w.stop(m)
		}
	})
}

// A leader that hangs answers never: its requests go to the next one.
func TestHungControllerIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNet(t)
		var all []*member
		for id := range int32(3) {
			all = append(all, w.start(id+1, cluster, newDisk(t)))
		}
		old := leader(t, all...)
		w.Set(old.addr, peertest.Hangs()) // new connections hang; it still speaks to the others as their leader
		other := others(all, old)[0]
		done := make(chan error, 1)
		go func() {
			_, err := other.Do(t.Context(), registration(5))
			done <- err
		}()
		time.Sleep(200 * time.Millisecond) // synctest's clock
		old.log.Resign(old.Leader().Epoch)
		if next := leader(t, others(all, old)...); next == old {
			t.Fatal("the old leader leads again")
		}
		if err := <-done; err != nil {
			t.Errorf("the request: %v", err)
		}
		for _, m := range all {
			w.stop(m)
		}
	})
}

func TestResignHandsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNet(t)
		var all []*member
		for id := range int32(3) {
			all = append(all, w.start(id+1, cluster, newDisk(t)))
		}
		old := leader(t, all...)
		time.Sleep(time.Second)
		begun := time.Now()
		if err := old.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took > 200*time.Millisecond || old.Leader().ID == old.id || old.Leader().ID == kraft.None {
			t.Errorf("handed over to %d within %v", old.Leader().ID, took)
		}
		if err := others(all, leader(t, all...))[0].Resign(t.Context()); err != nil {
			t.Errorf("a follower resigns: %v", err)
		}
		for _, m := range all {
			w.stop(m)
		}
	})
}

// The odd one out finds that it belongs to another cluster, and says to which;
// the others go on.
func TestWrongClusterEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const foreign = "AAAAAAAAAAAAAAAAAAAABA"
		w := newNet(t)
		all := []*member{w.start(1, cluster, newDisk(t)), w.start(2, cluster, newDisk(t))}
		leader(t, all...)
		odd := w.start(3, foreign, newDisk(t))
		err := <-odd.done
		want := "this node belongs to cluster " + foreign
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), cluster) {
			t.Errorf("ended with %v", err)
		}
		odd.done <- nil // for stop
		w.stop(odd)
		for _, m := range all {
			if _, err := m.Do(t.Context(), registration(30+m.id)); err != nil {
				t.Errorf("node %d: %v", m.id, err)
			}
		}
		for _, m := range all {
			w.stop(m)
		}
	})
}

// Without a controller a request ends with its context.
func TestDoEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNet(t)
		m := w.start(4, cluster, newDisk(t))
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		begun := time.Now()
		_, err := m.Do(ctx, registration(4))
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != 3*time.Second {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
		w.stop(m)
	})
}

func TestEnvelopesThatAreRefused(t *testing.T) {
	good := func() *kmsg.EnvelopeRequest {
		req := kmsg.NewPtrCreateTopicsRequest()
		return wrap(Origin{Principal: "User:ANONYMOUS", Host: []byte{127, 0, 0, 1}}, req, 7)
	}
	if _, req, from, refused := OpenEnvelope(good()); refused != nil || req.GetVersion() != 7 || from.Principal != "User:ANONYMOUS" {
		t.Fatalf("%v %+v %v", req, from, refused)
	}
	for name, x := range map[string]struct {
		change func(*kmsg.EnvelopeRequest)
		want   *kerr.Error
	}{
		"no principal":    {func(e *kmsg.EnvelopeRequest) { e.RequestPrincipal = nil }, kerr.PrincipalDeserializationFailure},
		"cut principal":   {func(e *kmsg.EnvelopeRequest) { e.RequestPrincipal = e.RequestPrincipal[:4] }, kerr.PrincipalDeserializationFailure},
		"cut header":      {func(e *kmsg.EnvelopeRequest) { e.RequestData = e.RequestData[:5] }, kerr.InvalidRequest},
		"cut body":        {func(e *kmsg.EnvelopeRequest) { e.RequestData = e.RequestData[:len(e.RequestData)-3] }, kerr.InvalidRequest},
		"another API":     {func(e *kmsg.EnvelopeRequest) { e.RequestData[1] = byte(kmsg.Vote) }, kerr.InvalidRequest},
		"unknown version": {func(e *kmsg.EnvelopeRequest) { e.RequestData[3] = 99 }, kerr.UnsupportedVersion},
		"bad address":     {func(e *kmsg.EnvelopeRequest) { e.ClientHostAddress = []byte{1} }, kerr.InvalidRequest},
	} {
		e := good()
		x.change(e)
		if _, _, _, refused := OpenEnvelope(e); refused != x.want {
			t.Errorf("%s: %v, want %v", name, refused, x.want)
		}
	}
}
