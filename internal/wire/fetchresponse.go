package wire

import (
	"encoding/binary"
	"math"

	"weir/internal/vfs"
)

// FetchResponse is the answer to Fetch v0–v18. Records are given as regions of segment files (or, where the edge had to
// convert them, as bytes), and go from the page cache to the socket without passing through this process's heap.
//
// It owns one reference of each region's file: whoever takes the response calls Release exactly once. Handlers that
// return one hand that duty over to network.
type FetchResponse struct {
	Version        int16
	ThrottleMillis int32 // v1+
	ErrorCode      int16 // v7+: the session's error
	SessionID      int32 // v7+
	Topics         []FetchTopic
	Nodes          []NodeEndpoint // v16+, tagged: where the leaders named in CurrentLeader are
}

// FetchTopic is the partitions of one topic: named up to v12, by id from v13.
type FetchTopic struct {
	Topic      string   // v0–v12
	TopicID    [16]byte // v13+
	Partitions []FetchPartition
}

// FetchPartition is one partition's part of a fetch answer. NewFetchPartition gives Kafka's defaults.
type FetchPartition struct {
	Partition        int32
	ErrorCode        int16
	HighWatermark    int64
	LastStableOffset int64 // v4+
	LogStartOffset   int64 // v5+
	// DivergingEpoch, CurrentLeader and SnapshotID are tagged fields (v12+), left out while they hold their defaults.
	DivergingEpoch EpochEndOffset
	CurrentLeader  LeaderAndEpoch
	SnapshotID     SnapshotID
	// AbortedTransactions (v4+) is null on the wire when nil, as Kafka sends it to READ_UNCOMMITTED readers.
	AbortedTransactions  []AbortedTransaction
	PreferredReadReplica int32 // v11+
	// Regions come first, then Bytes; both empty is an empty, not a null, field.
	Regions []vfs.Region
	Bytes   []byte
}

// EpochEndOffset is the largest epoch, and its end, up to which leader and fetcher agree.
type EpochEndOffset struct {
	Epoch     int32
	EndOffset int64
}

// LeaderAndEpoch is who leads a partition.
type LeaderAndEpoch struct{ LeaderID, LeaderEpoch int32 }

// SnapshotID is the snapshot to fetch instead, when the log no longer holds the asked offset.
type SnapshotID struct {
	EndOffset int64
	Epoch     int32
}

// AbortedTransaction names a producer whose records from FirstOffset to its next abort marker are to be skipped.
type AbortedTransaction struct{ ProducerID, FirstOffset int64 }

// NodeEndpoint is where a broker listens.
type NodeEndpoint struct {
	NodeID int32
	Host   string
	Port   int32
	Rack   *string
}

// NewFetchPartition returns a partition with Kafka's defaults in all fields that have one.
func NewFetchPartition(partition int32) FetchPartition {
	return FetchPartition{
		Partition:            partition,
		LastStableOffset:     -1,
		LogStartOffset:       -1,
		DivergingEpoch:       EpochEndOffset{-1, -1},
		CurrentLeader:        LeaderAndEpoch{-1, -1},
		SnapshotID:           SnapshotID{-1, -1},
		PreferredReadReplica: -1,
	}
}

// Size is how many bytes of records the partition carries.
func (p *FetchPartition) Size() int64 {
	n := int64(len(p.Bytes))
	for i := range p.Regions {
		n += p.Regions[i].N
	}
	return n
}

// Size is how many bytes of records the answer carries.
func (r *FetchResponse) Size() int64 {
	var n int64
	for i := range r.Topics {
		for j := range r.Topics[i].Partitions {
			n += r.Topics[i].Partitions[j].Size()
		}
	}
	return n
}

// Release gives back the files of all regions. A second call does nothing.
func (r *FetchResponse) Release() {
	for i := range r.Topics {
		for j := range r.Topics[i].Partitions {
			p := &r.Topics[i].Partitions[j]
			for k := range p.Regions {
				p.Regions[k].Release()
			}
			p.Regions = nil
		}
	}
}

// Gather is an encoded frame in pieces: Part.Meta bytes of Buf, then what the part holds, and so on; the rest of Buf
// ends it. It is reused from answer to answer by its owner.
type Gather struct {
	Buf   []byte
	Parts []Part
	// Size is that of the whole frame, size prefix included.
	Size int64
}

// Part is one run of records inside a frame: a region of a file, or bytes when Region is empty.
type Part struct {
	Meta   int // end of the bytes of Gather.Buf that stand before this part
	Region vfs.Region
	Bytes  []byte
}

// Len is the part's size without the bytes before it.
func (p *Part) Len() int64 { return p.Region.N + int64(len(p.Bytes)) }

// Reset empties the frame and keeps its memory. It releases nothing: the regions belong to the FetchResponse.
func (g *Gather) Reset() {
	g.Buf, g.Size = g.Buf[:0], 0
	clear(g.Parts)
	g.Parts = g.Parts[:0]
}

// Encode writes the frame that answers h into g, which is reset first. The parts alias r.
func (r *FetchResponse) Encode(g *Gather, h Header) error {
	g.Reset()
	e := fetchEncoder{g: g, version: r.Version, flexible: FlexibleRequest(h.Key, r.Version)}
	g.Buf = appendResponseHeader(g.Buf, h.CorrelationID, h.Key, r.Version)
	e.response(r)
	g.Size += int64(len(g.Buf))
	if g.Size-4 > math.MaxInt32 {
		return ErrTooLarge
	}
	binary.BigEndian.PutUint32(g.Buf, uint32(g.Size-4))
	return nil
}

// fetchEncoder appends the body of one answer. Kafka's FetchResponse.json is the schema: versions are marked where they
// matter.
type fetchEncoder struct {
	g        *Gather
	version  int16
	flexible bool
}

func (e *fetchEncoder) response(r *FetchResponse) {
	if e.version >= 1 {
		e.int32(r.ThrottleMillis)
	}
	if e.version >= 7 {
		e.int16(r.ErrorCode)
		e.int32(r.SessionID)
	}
	e.length(len(r.Topics))
	for i := range r.Topics {
		t := &r.Topics[i]
		if e.version <= 12 {
			e.string(t.Topic)
		} else {
			e.g.Buf = append(e.g.Buf, t.TopicID[:]...)
		}
		e.length(len(t.Partitions))
		for j := range t.Partitions {
			e.partition(&t.Partitions[j])
		}
		e.noTags()
	}
	if !e.flexible {
		return
	}
	if e.version < 16 || len(r.Nodes) == 0 {
		e.noTags()
		return
	}
	e.uvarint(1)
	e.tag(0, nodesLen(r.Nodes))
	e.length(len(r.Nodes))
	for i := range r.Nodes {
		n := &r.Nodes[i]
		e.int32(n.NodeID)
		e.string(n.Host)
		e.int32(n.Port)
		if n.Rack == nil {
			e.uvarint(0)
		} else {
			e.string(*n.Rack)
		}
		e.noTags()
	}
}

// nodesLen is the encoded size of the node endpoints, which stands before them as it does before every tagged field.
func nodesLen(nodes []NodeEndpoint) int {
	size := uvarintLen(uint64(len(nodes)) + 1)
	for i := range nodes {
		n := &nodes[i]
		size += 4 + compactLen(n.Host) + 4 + 1
		if n.Rack == nil {
			size++
		} else {
			size += compactLen(*n.Rack)
		}
	}
	return size
}

func (e *fetchEncoder) partition(p *FetchPartition) {
	e.int32(p.Partition)
	e.int16(p.ErrorCode)
	e.int64(p.HighWatermark)
	if e.version >= 4 {
		e.int64(p.LastStableOffset)
		if e.version >= 5 {
			e.int64(p.LogStartOffset)
		}
		e.aborted(p.AbortedTransactions)
	}
	if e.version >= 11 {
		e.int32(p.PreferredReadReplica)
	}
	e.records(p)
	if e.flexible {
		e.partitionTags(p)
	}
}

func (e *fetchEncoder) aborted(txns []AbortedTransaction) {
	switch {
	case txns != nil:
		e.length(len(txns))
	case e.flexible:
		e.uvarint(0)
	default:
		e.int32(-1)
	}
	for i := range txns {
		e.int64(txns[i].ProducerID)
		e.int64(txns[i].FirstOffset)
		e.noTags()
	}
}

func (e *fetchEncoder) records(p *FetchPartition) {
	size := p.Size()
	if e.flexible {
		e.uvarint(uint64(size) + 1)
	} else {
		// A size beyond int32 makes the whole frame too large, which Encode reports.
		e.int32(int32(size))
	}
	g := e.g
	for i := range p.Regions {
		if p.Regions[i].N > 0 {
			g.Parts = append(g.Parts, Part{Meta: len(g.Buf), Region: p.Regions[i]})
		}
	}
	if len(p.Bytes) > 0 {
		g.Parts = append(g.Parts, Part{Meta: len(g.Buf), Bytes: p.Bytes})
	}
	g.Size += size
}

func (e *fetchEncoder) partitionTags(p *FetchPartition) {
	diverging := p.DivergingEpoch != EpochEndOffset{-1, -1}
	leader := p.CurrentLeader != LeaderAndEpoch{-1, -1}
	snapshot := p.SnapshotID != SnapshotID{-1, -1}
	count := 0
	for _, present := range [...]bool{diverging, leader, snapshot} {
		if present {
			count++
		}
	}
	e.uvarint(uint64(count))
	// Each struct ends with its own, empty, tagged fields.
	if diverging {
		e.tag(0, 4+8+1)
		e.int32(p.DivergingEpoch.Epoch)
		e.int64(p.DivergingEpoch.EndOffset)
		e.noTags()
	}
	if leader {
		e.tag(1, 4+4+1)
		e.int32(p.CurrentLeader.LeaderID)
		e.int32(p.CurrentLeader.LeaderEpoch)
		e.noTags()
	}
	if snapshot {
		e.tag(2, 8+4+1)
		e.int64(p.SnapshotID.EndOffset)
		e.int32(p.SnapshotID.Epoch)
		e.noTags()
	}
}

func (e *fetchEncoder) int16(v int16) {
	e.g.Buf = binary.BigEndian.AppendUint16(e.g.Buf, uint16(v))
}

func (e *fetchEncoder) int32(v int32) {
	e.g.Buf = binary.BigEndian.AppendUint32(e.g.Buf, uint32(v))
}

func (e *fetchEncoder) int64(v int64) {
	e.g.Buf = binary.BigEndian.AppendUint64(e.g.Buf, uint64(v))
}

func (e *fetchEncoder) uvarint(v uint64) { e.g.Buf = binary.AppendUvarint(e.g.Buf, v) }

// length appends the size of an array.
func (e *fetchEncoder) length(n int) {
	if e.flexible {
		e.uvarint(uint64(n) + 1)
	} else {
		e.int32(int32(n))
	}
}

func (e *fetchEncoder) string(s string) {
	if e.flexible {
		e.uvarint(uint64(len(s)) + 1)
	} else {
		e.int16(int16(len(s)))
	}
	e.g.Buf = append(e.g.Buf, s...)
}

// tag appends the number and size of a tagged field.
func (e *fetchEncoder) tag(tag, size int) {
	e.uvarint(uint64(tag))
	e.uvarint(uint64(size))
}

// noTags ends a struct of a flexible version.
func (e *fetchEncoder) noTags() {
	if e.flexible {
		e.g.Buf = append(e.g.Buf, 0)
	}
}

func uvarintLen(v uint64) int {
	n := 1
	for ; v >= 0x80; v >>= 7 {
		n++
	}
	return n
}

func compactLen(s string) int { return uvarintLen(uint64(len(s))+1) + len(s) }
