package rpc

import (
	"bytes"
	"encoding/hex"
	"math"
	"reflect"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/kraft"
	"weir/internal/uuid"
	"weir/internal/wire"
)

const cluster = "4L6g3nShT-eMCtK--X86sw"

var (
	dirA = uuid.UUID{0: 0xa, 15: 1}
	dirB = uuid.UUID{0: 0xb, 15: 2}
	here = []kraft.Endpoint{{Name: "CONTROLLER", Host: "10.0.0.1", Port: 9093}}
)

// bodies are one of each, with every field set.
func bodies() []kraft.RequestBody {
	return []kraft.RequestBody{
		kraft.VoteRequest{Epoch: 7, Candidate: kraft.Replica{ID: 1, Dir: dirA}, Voter: kraft.Replica{ID: 2, Dir: dirB}, Last: kraft.Position{Offset: 100, Epoch: 6}, PreVote: true},
		kraft.VoteRequest{Epoch: 7, Candidate: kraft.Replica{ID: 1, Dir: dirA}, Voter: kraft.Replica{ID: 2, Dir: dirB}, Last: kraft.Position{Offset: 100, Epoch: 6}},
		kraft.BeginRequest{Leader: kraft.LeaderAndEpoch{ID: 1, Epoch: 7}, Voter: kraft.Replica{ID: 2, Dir: dirB}, LeaderEndpoints: here},
		kraft.EndRequest{Leader: kraft.LeaderAndEpoch{ID: 1, Epoch: 7}, Successors: []kraft.Replica{{ID: 3, Dir: dirA}, {ID: 2, Dir: dirB}}, LeaderEndpoints: here},
		kraft.FetchRequest{Replica: kraft.Replica{ID: 2, Dir: dirB}, Epoch: 7, Offset: 100, LastEpoch: 6, HighWatermark: 99, MaxWaitMs: 500, MaxBytes: 8 << 20},
		kraft.SnapshotRequest{Replica: kraft.Replica{ID: 2, Dir: dirB}, Epoch: 7, ID: kraft.Position{Offset: 50, Epoch: 3}, Offset: 4096, MaxBytes: 8 << 20},
	}
}

// at is what is left of a body in an older version.
func at(body kraft.RequestBody, v int16) kraft.RequestBody {
	switch q := body.(type) {
	case kraft.VoteRequest:
		if v < 1 {
			q.Candidate.Dir, q.Voter = uuid.Zero, kraft.Replica{ID: kraft.None}
		}
		return q
	case kraft.BeginRequest:
		if v < 1 {
			q.Voter, q.LeaderEndpoints = kraft.Replica{ID: kraft.None}, nil
		}
		return q
	case kraft.EndRequest:
		if v < 1 {
			q.Successors, q.LeaderEndpoints = []kraft.Replica{{ID: 3}, {ID: 2}}, nil
		}
		return q
	case kraft.FetchRequest:
		if v < fetchHighWatermark {
			q.HighWatermark = -1
		}
		if v < fetchDirectory {
			q.Replica.Dir = uuid.Zero
		}
		return q
	case kraft.SnapshotRequest:
		if v < 1 {
			q.Replica.Dir = uuid.Zero
		}
		return q
	}
	panic("unknown body")
}

// Every body survives the wire in every version, as far as the version has room for it.
func TestRequestsRoundTrip(t *testing.T) {
	for _, body := range bodies() {
		key := KeyOf(body)
		r, _ := wire.Supported(int16(key))
		low := r.Min
		if key == kmsg.Fetch {
			low = 12 // the first with epochs of the last record fetched
		}
		for v := low; v <= r.Max; v++ {
			req, ok := EncodeRequest(body, cluster, v)
			if q, vote := body.(kraft.VoteRequest); vote && q.PreVote && v < 2 {
				if ok {
					t.Errorf("a pre-vote in Vote v%d", v)
				}
				continue
			}
			read := kmsg.RequestForKey(int16(key))
			read.SetVersion(v)
			if err := read.ReadFrom(req.AppendTo(nil)); err != nil {
				t.Fatalf("%s v%d: %v", key.Name(), v, err)
			}
			got, code := DecodeRequest(read, cluster)
			if want := at(body, v); code != kraft.OK || !reflect.DeepEqual(got, want) {
				t.Errorf("%s v%d: code %d\nhave %+v\nwant %+v", key.Name(), v, code, got, want)
			}
			if _, code := DecodeRequest(read, "another"); code != kraft.InconsistentCluster {
				t.Errorf("%s v%d of another cluster: code %d", key.Name(), v, code)
			}
		}
	}
}

// The bytes are written out field by field from the schemas VoteRequest.json and
// FetchRequest.json.
func TestBytes(t *testing.T) {
	for name, x := range map[string]struct {
		body kraft.RequestBody
		v    int16
		want string
	}{
		"Vote v2": {bodies()[0], 2, "17" + hex.EncodeToString([]byte(cluster)) + "00000002" + // cluster, voter
			"02" + "13" + hex.EncodeToString([]byte(Topic)) + "02" + "00000000" + "00000007" + "00000001" + // partition, epoch, candidate
			hex.EncodeToString(dirA[:]) + hex.EncodeToString(dirB[:]) + "00000006" + "0000000000000064" + "01" + "00" + "00" + "00"},
		"Fetch v18": {bodies()[4], 18, "000001f4" + "00000000" + "00800000" + "00" + "00000000" + "ffffffff" + // wait, min, max, isolation, session
			"02" + hex.EncodeToString(uuid.MetadataTopic[:]) + "02" + "00000000" + "00000007" + "0000000000000064" + "00000006" + "ffffffffffffffff" + "00800000" +
			"02" + "0010" + hex.EncodeToString(dirB[:]) + "0108" + "0000000000000063" + // directory, high watermark
			"00" + "01" + "01" + "02" + "0017" + "17" + hex.EncodeToString([]byte(cluster)) + "010d" + "00000002" + "ffffffffffffffff" + "00"},
		"Fetch v16": {bodies()[4], 16, "000001f4" + "00000000" + "00800000" + "00" + "00000000" + "ffffffff" +
			"02" + hex.EncodeToString(uuid.MetadataTopic[:]) + "02" + "00000000" + "00000007" + "0000000000000064" + "00000006" + "ffffffffffffffff" + "00800000" +
			"00" + "00" + "01" + "01" + "02" + "0017" + "17" + hex.EncodeToString([]byte(cluster)) + "010d" + "00000002" + "ffffffffffffffff" + "00"},
	} {
		req, ok := EncodeRequest(x.body, cluster, x.v)
		if !ok {
			t.Fatal(name)
		}
		if got := hex.EncodeToString(req.AppendTo(nil)); got != x.want {
			t.Errorf("%s\nhave %s\nwant %s", name, got, x.want)
		}
	}
}

func TestForeignPartitionsAreRefused(t *testing.T) {
	for _, body := range bodies() {
		for _, change := range []func(kmsg.Request){
			func(r kmsg.Request) { reflect.ValueOf(r).Elem().FieldByName("Topics").SetLen(0) },
			func(r kmsg.Request) {
				reflect.ValueOf(r).Elem().FieldByName("Topics").Index(0).FieldByName("Partitions").Index(0).FieldByName("Partition").SetInt(1)
			},
			func(r kmsg.Request) {
				topic := reflect.ValueOf(r).Elem().FieldByName("Topics").Index(0)
				topic.FieldByName("Topic").SetString("other")
				if id := topic.FieldByName("TopicID"); id.IsValid() {
					id.Index(15).SetUint(9)
				}
			},
		} {
			r, _ := wire.Supported(int16(KeyOf(body)))
			req, _ := EncodeRequest(body, cluster, r.Max)
			change(req)
			if got, code := DecodeRequest(req, cluster); code != kraft.InvalidRequest {
				t.Errorf("%T about another partition was taken: %+v", req, got)
			}
			res := Refuse(req, kraft.InvalidRequest)
			if _, _, err := DecodeResponse(res); err == nil || err.(*ResponseError).Code != int16(kraft.InvalidRequest) {
				t.Errorf("%T: %v", res, err)
			}
		}
	}
}

func TestResponsesRoundTrip(t *testing.T) {
	h := kraft.Head{Code: kraft.FencedLeaderEpoch, Leader: kraft.LeaderAndEpoch{ID: 3, Epoch: 9}}
	answers := map[kmsg.Key]kraft.ResponseBody{
		kmsg.Vote:             kraft.VoteResponse{Head: h, Granted: true},
		kmsg.BeginQuorumEpoch: kraft.BeginResponse{Head: h},
		kmsg.EndQuorumEpoch:   kraft.EndResponse{Head: h},
		kmsg.FetchSnapshot:    kraft.SnapshotResponse{Head: h, ID: kraft.Position{Offset: 50, Epoch: 3}, Size: 9000, Offset: 4096, Bytes: []byte("piece")},
	}
	leader := &Node{ID: 3, Host: "10.0.0.3", Port: 9093}
	for _, body := range bodies() {
		key := KeyOf(body)
		want, ok := answers[key]
		if !ok {
			continue
		}
		r, _ := wire.Supported(int16(key))
		for v := r.Min; v <= r.Max; v++ {
			req := kmsg.RequestForKey(int16(key))
			req.SetVersion(v)
			raw := EncodeResponse(req, want, leader).AppendTo(nil)
			res := req.ResponseKind()
			if err := res.ReadFrom(raw); err != nil {
				t.Fatalf("%s v%d: %v", key.Name(), v, err)
			}
			got, nodes, err := DecodeResponse(res)
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%s v%d: %v\nhave %+v\nwant %+v", key.Name(), v, err, got, want)
			}
			if told := len(nodes) == 1 && nodes[0] == *leader; told != (v >= 1) {
				t.Errorf("%s v%d: nodes %+v", key.Name(), v, nodes)
			}
		}
	}
}

func TestFetchAnswers(t *testing.T) {
	read := func(change func(p *kmsg.FetchResponseTopicPartition)) kraft.FetchResponse {
		p, topic, res := kmsg.NewFetchResponseTopicPartition(), kmsg.NewFetchResponseTopic(), kmsg.NewPtrFetchResponse()
		p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch, p.HighWatermark, p.LogStartOffset = 3, 9, 10, 2
		change(&p)
		topic.Partitions = append(topic.Partitions, p)
		res.Topics = append(res.Topics, topic)
		b := kmsg.NewFetchResponseBroker()
		b.NodeID, b.Host, b.Port = 3, "h", 9
		res.Brokers = append(res.Brokers, b)
		body, nodes, err := DecodeResponse(res)
		if err != nil || len(nodes) != 1 || nodes[0] != (Node{3, "h", 9}) {
			t.Fatalf("%v %v", nodes, err)
		}
		return body.(kraft.FetchResponse)
	}
	plain := read(func(p *kmsg.FetchResponseTopicPartition) { p.RecordBatches = []byte("x") })
	if plain.Diverging != nil || plain.Snapshot != nil || !bytes.Equal(plain.Records, []byte("x")) || plain.HighWatermark != 10 || plain.LogStart != 2 || plain.Leader.Epoch != 9 {
		t.Errorf("%+v", plain)
	}
	diverging := read(func(p *kmsg.FetchResponseTopicPartition) {
		p.DivergingEpoch.Epoch, p.DivergingEpoch.EndOffset = 2, 5
	})
	if diverging.Diverging == nil || *diverging.Diverging != (kraft.Position{Offset: 5, Epoch: 2}) || diverging.Snapshot != nil {
		t.Errorf("%+v", diverging)
	}
	snapshot := read(func(p *kmsg.FetchResponseTopicPartition) { p.SnapshotID.Epoch, p.SnapshotID.EndOffset = 2, 5 })
	if snapshot.Snapshot == nil || *snapshot.Snapshot != (kraft.Position{Offset: 5, Epoch: 2}) || snapshot.Diverging != nil {
		t.Errorf("%+v", snapshot)
	}
}

// A follower from before KIP-1166 says nothing about its high watermark.
func TestAbsentHighWatermark(t *testing.T) {
	req, _ := EncodeRequest(bodies()[4], cluster, 17)
	p := &req.(*kmsg.FetchRequest).Topics[0].Partitions[0]
	if p.HighWatermark != math.MaxInt64 {
		t.Fatalf("v17 carries a high watermark of %d", p.HighWatermark)
	}
	body, _ := DecodeRequest(req, cluster)
	if got := body.(kraft.FetchRequest).HighWatermark; got != -1 {
		t.Errorf("read as %d", got)
	}
}

func TestDescribeQuorum(t *testing.T) {
	set, err := kraft.NewVoterSet([]kraft.Voter{{Replica: kraft.Replica{ID: 1, Dir: dirA}, Endpoints: here}})
	if err != nil {
		t.Fatal(err)
	}
	q := kraft.Quorum{Leader: kraft.LeaderAndEpoch{ID: 1, Epoch: 4}, HighWatermark: 20, Members: set,
		Voters:    []kraft.ReplicaState{{Replica: kraft.Replica{ID: 1}, LogEnd: 21, LastFetch: 5, LastCaughtUp: 5}},
		Observers: []kraft.ReplicaState{{Replica: kraft.Replica{ID: 7, Dir: dirB}, LogEnd: 3, LastFetch: 4, LastCaughtUp: -1}}}
	req := kmsg.NewPtrDescribeQuorumRequest()
	req.Version = 2
	for _, name := range []string{Topic, "other"} {
		topic := kmsg.NewDescribeQuorumRequestTopic()
		topic.Topic, topic.Partitions = name, []kmsg.DescribeQuorumRequestTopicPartition{{}}
		req.Topics = append(req.Topics, topic)
	}
	res := DescribeQuorum(req, q, true)
	p := res.Topics[0].Partitions[0]
	if p.ErrorCode != 0 || p.LeaderID != 1 || p.LeaderEpoch != 4 || p.HighWatermark != 20 || p.CurrentVoters[0].ReplicaDirectoryID != dirA ||
		p.Observers[0].ReplicaID != 7 || p.Observers[0].ReplicaDirectoryID != dirB || len(res.Nodes) != 1 || res.Nodes[0].Listeners[0].Port != 9093 {
		t.Errorf("%+v", res)
	}
	if code := res.Topics[1].Partitions[0].ErrorCode; code != 3 {
		t.Errorf("another topic: %d", code)
	}
	if res := DescribeQuorum(req, q, false); res.Topics[0].Partitions[0].ErrorCode != int16(kraft.NotLeader) || len(res.Nodes) != 0 {
		t.Errorf("elsewhere: %+v", res)
	}
}
