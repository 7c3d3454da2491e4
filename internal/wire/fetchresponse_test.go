package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/vfs"
)

func sharedFile(t testing.TB, content []byte) *vfs.Shared {
	t.Helper()
	name := filepath.Join(t.TempDir(), "00000000000000000000.log")
	f, err := vfs.OS().Open(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(content, 0); err != nil {
		t.Fatal(err)
	}
	return vfs.NewShared(f)
}

// flatten reads a gathered frame as network would write it.
func flatten(t testing.TB, g *Gather) []byte {
	t.Helper()
	var out []byte
	meta := 0
	for _, p := range g.Parts {
		out = append(out, g.Buf[meta:p.Meta]...)
		meta = p.Meta
		var err error
		if out, err = p.Region.AppendTo(out); err != nil {
			t.Fatal(err)
		}
		out = append(out, p.Bytes...)
	}
	out = append(out, g.Buf[meta:]...)
	if int64(len(out)) != g.Size {
		t.Fatalf("Size says %d, frame has %d", g.Size, len(out))
	}
	return out
}

// fetchPair makes one answer in both forms: ours, around regions of file, and the codec's, with the bytes inside.
func fetchPair(t *testing.T, version int16, file *vfs.Shared, content []byte) (*FetchResponse, *kmsg.FetchResponse) {
	region := func(off, n int64) vfs.Region {
		if !file.Acquire() {
			t.Fatal("file is closed")
		}
		return vfs.Region{File: file, Off: off, N: n}
	}
	rack := "rack-1"
	long := strings.Repeat("long-host-name.", 20)
	full := NewFetchPartition(3)
	full.ErrorCode, full.HighWatermark, full.LastStableOffset, full.LogStartOffset = 6, 1<<40, 1<<39, 12
	full.DivergingEpoch = EpochEndOffset{4, 99}
	full.CurrentLeader = LeaderAndEpoch{2, 8}
	full.SnapshotID = SnapshotID{1000, 3}
	full.AbortedTransactions = []AbortedTransaction{{7, 100}, {8, 200}}
	full.PreferredReadReplica = 5
	full.Regions = []vfs.Region{region(10, 300), region(400, 0), region(500, 17)}
	full.Bytes = []byte("converted at the edge")
	plain := NewFetchPartition(0)
	plain.HighWatermark = 5
	plain.AbortedTransactions = []AbortedTransaction{}
	plain.Regions = []vfs.Region{region(0, int64(len(content)))}
	empty := NewFetchPartition(1)
	empty.ErrorCode = 1
	empty.HighWatermark = -1
	empty.CurrentLeader = LeaderAndEpoch{-1, 3}
	ours := &FetchResponse{
		Version: version, ThrottleMillis: 250, ErrorCode: 71, SessionID: 424242,
		Topics: []FetchTopic{
			{Topic: "orders", TopicID: [16]byte{1, 2, 3}, Partitions: []FetchPartition{plain, empty}},
			{Topic: strings.Repeat("t", 249), TopicID: [16]byte{9}, Partitions: []FetchPartition{full}},
			{Topic: "none"},
		},
		Nodes: []NodeEndpoint{{2, "host-2", 9092, &rack}, {3, long, 9093, nil}},
	}
	theirs := kmsg.NewPtrFetchResponse()
	theirs.Version, theirs.ThrottleMillis, theirs.ErrorCode, theirs.SessionID = version, 250, 71, 424242
	for i := range ours.Topics {
		ot := &ours.Topics[i]
		kt := kmsg.NewFetchResponseTopic()
		kt.Topic, kt.TopicID = ot.Topic, ot.TopicID
		for j := range ot.Partitions {
			kt.Partitions = append(kt.Partitions, kmsgPartition(t, &ot.Partitions[j]))
		}
		theirs.Topics = append(theirs.Topics, kt)
	}
	if version >= 16 { // the schema has the node endpoints from v16, the codec writes them from v12
		for _, n := range ours.Nodes {
			b := kmsg.NewFetchResponseBroker()
			b.NodeID, b.Host, b.Port, b.Rack = n.NodeID, n.Host, n.Port, n.Rack
			theirs.Brokers = append(theirs.Brokers, b)
		}
	}
	return ours, theirs
}

func kmsgPartition(t *testing.T, p *FetchPartition) kmsg.FetchResponseTopicPartition {
	k := kmsg.NewFetchResponseTopicPartition()
	k.Partition, k.ErrorCode, k.HighWatermark = p.Partition, p.ErrorCode, p.HighWatermark
	k.LastStableOffset, k.LogStartOffset, k.PreferredReadReplica = p.LastStableOffset, p.LogStartOffset, p.PreferredReadReplica
	k.DivergingEpoch.Epoch, k.DivergingEpoch.EndOffset = p.DivergingEpoch.Epoch, p.DivergingEpoch.EndOffset
	k.CurrentLeader.LeaderID, k.CurrentLeader.LeaderEpoch = p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch
	k.SnapshotID.EndOffset, k.SnapshotID.Epoch = p.SnapshotID.EndOffset, p.SnapshotID.Epoch
	if p.AbortedTransactions != nil {
		k.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{}
	}
	for _, a := range p.AbortedTransactions {
		k.AbortedTransactions = append(k.AbortedTransactions, kmsg.FetchResponseTopicPartitionAbortedTransaction{ProducerID: a.ProducerID, FirstOffset: a.FirstOffset})
	}
	k.RecordBatches = []byte{}
	for _, r := range p.Regions {
		var err error
		if k.RecordBatches, err = r.AppendTo(k.RecordBatches); err != nil {
			t.Fatal(err)
		}
	}
	k.RecordBatches = append(k.RecordBatches, p.Bytes...)
	return k
}

func TestFetchResponseEveryVersion(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789abcdef"), 64)
	file := sharedFile(t, content)
	var g Gather
	for version := int16(0); version <= 18; version++ {
		ours, theirs := fetchPair(t, version, file, content)
		h := Header{Key: 1, Version: version, CorrelationID: 99}
		if err := ours.Encode(&g, h); err != nil {
			t.Fatal(err)
		}
		got, want := flatten(t, &g), AppendResponse(nil, h, theirs)
		if !bytes.Equal(got, want) {
			t.Fatalf("v%d:\n got %x\nwant %x", version, got, want)
		}
		body := got[8:]
		if version >= 12 {
			body = body[1:]
		}
		read := kmsg.NewPtrFetchResponse()
		read.Version = version
		if err := read.ReadFrom(body); err != nil {
			t.Fatalf("v%d: %v", version, err)
		}
		checkFetchRead(t, read, theirs)
		ours.Release()
		ours.Release()
	}
	if err := file.Release(); err != nil {
		t.Fatal(err)
	}
	if file.Acquire() {
		t.Error("a reference of the file was leaked")
	}
}

// checkFetchRead compares what a client reads with what was meant; fields that the version does not carry keep defaults.
func checkFetchRead(t *testing.T, got, want *kmsg.FetchResponse) {
	t.Helper()
	v := got.Version
	if v >= 1 && got.ThrottleMillis != 250 || v >= 7 && (got.SessionID != 424242 || got.ErrorCode != 71) {
		t.Errorf("v%d: head %+v", v, got)
	}
	for i := range want.Topics {
		for j := range want.Topics[i].Partitions {
			g, w := got.Topics[i].Partitions[j], want.Topics[i].Partitions[j]
			if !bytes.Equal(g.RecordBatches, w.RecordBatches) || g.HighWatermark != w.HighWatermark || g.ErrorCode != w.ErrorCode {
				t.Errorf("v%d: partition %d: %+v", v, w.Partition, g)
			}
			if v >= 4 && (len(g.AbortedTransactions) != len(w.AbortedTransactions) || g.LastStableOffset != w.LastStableOffset) {
				t.Errorf("v%d: transactions of partition %d", v, w.Partition)
			}
			if v >= 12 && (g.CurrentLeader.LeaderEpoch != w.CurrentLeader.LeaderEpoch || g.SnapshotID.Epoch != w.SnapshotID.Epoch || g.DivergingEpoch.EndOffset != w.DivergingEpoch.EndOffset) {
				t.Errorf("v%d: tags of partition %d", v, w.Partition)
			}
		}
	}
	if v >= 16 {
		if d := cmp.Diff(want.Brokers, got.Brokers, cmp.Comparer(func(a, b kmsg.Tags) bool { return a.Len() == b.Len() })); d != "" {
			t.Errorf("v%d: node endpoints %s", v, d)
		}
	}
}

func TestFetchResponseTooLarge(t *testing.T) {
	p := NewFetchPartition(0)
	p.Regions = []vfs.Region{{N: math.MaxInt32}}
	r := &FetchResponse{Version: 12, Topics: []FetchTopic{{Topic: "t", Partitions: []FetchPartition{p}}}}
	var g Gather
	if err := r.Encode(&g, Header{Key: 1, Version: 12}); !errors.Is(err, ErrTooLarge) {
		t.Fatalf("got %v", err)
	}
}

func TestGatherReuseDoesNotAllocate(t *testing.T) {
	p := NewFetchPartition(0)
	p.Bytes = []byte("x")
	r := &FetchResponse{Version: 18, Topics: []FetchTopic{{Topic: "t", Partitions: []FetchPartition{p, p, p}}}}
	var g Gather
	if n := testing.AllocsPerRun(50, func() { _ = r.Encode(&g, Header{Key: 1, Version: 18}) }); n > 0 {
		t.Errorf("%v allocations per answer", n)
	}
	if n := binary.BigEndian.Uint32(g.Buf); int64(n) != g.Size-4 {
		t.Errorf("size prefix %d of %d", n, g.Size)
	}
}

func BenchmarkFetchResponseEncode(b *testing.B) {
	r := &FetchResponse{Version: 17, Topics: make([]FetchTopic, 10)}
	for i := range r.Topics {
		for j := range 10 {
			p := NewFetchPartition(int32(j))
			p.Bytes = make([]byte, 100)
			r.Topics[i].Partitions = append(r.Topics[i].Partitions, p)
		}
	}
	var g Gather
	b.ReportAllocs()
	for b.Loop() {
		if err := r.Encode(&g, Header{Key: 1, Version: 17}); err != nil {
			b.Fatal(err)
		}
	}
}
