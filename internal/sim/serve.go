package sim

import (
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/image"
	"weir/internal/isr"
	"weir/internal/kraft"
	"weir/internal/partition"
	"weir/internal/replication"
	"weir/internal/storage"
	"weir/internal/uuid"
	"weir/internal/vfs"
)

// bytesOf reads regions and lets go of them.
func (n *node) bytesOf(regions []vfs.Region) (raw []byte) {
	for _, r := range regions {
		var err error
		if raw, err = r.AppendTo(raw); err != nil && !n.faulty {
			n.w.fail("node %d: reading a region: %v", n.id, err)
		}
		r.Release()
	}
	return raw
}

func (n *node) serveQuorum(from int32, body kraft.RequestBody, reply func(any)) {
	n.log.Request(from, body, func(res kraft.ResponseBody, regions []vfs.Region) {
		if f, ok := res.(kraft.FetchResponse); ok {
			f.Records = n.bytesOf(regions)
			n.tempt(f.Records)
			n.hasten(f.Records)
			res = f
		}
		if n.doomed != n.run {
			reply(res)
		}
	})
}

func (n *node) serveController(req kmsg.Request, reply func(any)) {
	if !n.q.Active() {
		reply(nil)
		return
	}
	n.q.Submit(req, func(res kmsg.Response, err error) {
		if err != nil {
			reply(nil)
			return
		}
		reply(res)
	})
}

func (n *node) serveFollower(req kmsg.Request, reply func(any)) {
	switch q := req.(type) {
	case *kmsg.FetchRequest:
		begins, just := n.replicas.Starts(q.ReplicaState.ID)
		wait := time.Duration(q.MaxWaitMillis) * time.Millisecond
		if just {
			wait = min(wait, replication.StartWait)
		}
		h := &heldFetch{n: n, req: q, reply: reply, until: n.w.clock.Now().Add(wait), begins: begins}
		n.held = append(n.held, h)
		n.wakeAt(h.until)
	case *kmsg.ListOffsetsRequest:
		reply(n.listOffsets(q))
	}
}

func (n *node) listOffsets(q *kmsg.ListOffsetsRequest) *kmsg.ListOffsetsResponse {
	res := q.ResponseKind().(*kmsg.ListOffsetsResponse)
	for _, t := range q.Topics {
		rt := kmsg.NewListOffsetsResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewListOffsetsResponseTopicPartition()
			rp.Partition = p.Partition
			rp.ErrorCode = kerr.NotLeaderForPartition.Code
			if topic, ok := n.q.Images().Image().Topic(t.Topic); ok {
				if r, err := n.replicas.Replica(topic.ID, p.Partition); err == nil {
					if off, err := r.Latest(p.CurrentLeaderEpoch, partition.ReadLogEnd); err == nil {
						rp.ErrorCode, rp.Offset = 0, off
						if p.Timestamp == -2 {
							rp.Offset = r.Log().LogStart()
						}
					}
				}
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		res.Topics = append(res.Topics, rt)
	}
	return res
}

// heldFetch is a follower's fetch that waits for something to say.
type heldFetch struct {
	n     *node
	req   *kmsg.FetchRequest
	reply func(any)
	until time.Time
	// begins is closed when this node leads more that the follower copies: it has more to ask for.
	begins <-chan struct{}
	seen   []heldState // by partition, in the order of the request
}

// heldState is what a partition was like when it was read last; reading it again is of
// use when it has changed.
type heldState struct {
	end    int64
	status partition.Status
	known  bool
	early  bool
}

func (n *node) answerFetches() {
	n.held = slices.DeleteFunc(n.held, func(h *heldFetch) bool { return h.answer() })
}

// answer answers a fetch when there is something to say, or when its time is over.
func (h *heldFetch) answer() bool {
	n := h.n
	late := !n.w.clock.Now().Before(h.until)
	select {
	case <-h.begins:
		late = true
	default:
	}
	fresh := h.seen == nil
	if fresh {
		for _, t := range h.req.Topics {
			for range t.Partitions {
				h.seen = append(h.seen, heldState{})
			}
		}
	}
	if !late && !fresh && !h.changed() {
		return false
	}
	res := h.req.ResponseKind().(*kmsg.FetchResponse)
	some := false
	i := 0
	for _, t := range h.req.Topics {
		rt := kmsg.NewFetchResponseTopic()
		rt.TopicID = t.TopicID
		for j := range t.Partitions {
			rp := h.read(t.TopicID, &t.Partitions[j], &h.seen[i], late)
			some = some || rp.ErrorCode != 0 || len(rp.RecordBatches) > 0 || rp.DivergingEpoch.EndOffset >= 0
			rt.Partitions = append(rt.Partitions, rp)
			i++
		}
		res.Topics = append(res.Topics, rt)
	}
	if !some && !late {
		return false
	}
	h.reply(res)
	return true
}

func (h *heldFetch) changed() bool {
	i := 0
	for _, t := range h.req.Topics {
		for _, p := range t.Partitions {
			r, err := h.n.replicas.Replica(t.TopicID, p.Partition)
			known := err == nil
			s := &h.seen[i]
			i++
			if known != s.known || known && (r.Log().LogEnd() != s.end || r.Status() != s.status) {
				return true
			}
		}
	}
	return false
}

// read is a partition's row, as api/fetch.go makes it.
func (h *heldFetch) read(topic uuid.UUID, p *kmsg.FetchRequestTopicPartition, s *heldState, late bool) kmsg.FetchResponseTopicPartition {
	n := h.n
	rp := kmsg.NewFetchResponseTopicPartition()
	rp.Partition = p.Partition
	r, err := n.replicas.Replica(topic, p.Partition)
	*s = heldState{known: err == nil}
	if err != nil {
		rp.ErrorCode = kerr.UnknownTopicID.Code
		return rp
	}
	s.end, s.status = r.Log().LogEnd(), r.Status()
	got, err := r.Read(partition.ReadRequest{
		Offset: p.FetchOffset, MaxBytes: int(p.PartitionMaxBytes), MinOne: true, Isolation: partition.ReadLogEnd,
		CurrentLeaderEpoch: p.CurrentLeaderEpoch, LastFetchedEpoch: p.LastFetchedEpoch,
	})
	if err != nil {
		var epoch *partition.EpochError
		if errors.As(err, &epoch) && !epoch.Fenced() && !late {
			s.early = true // held until the metadata has come here too
			return rp
		}
		rp.ErrorCode = codeOf(err)
		return rp
	}
	if got.Diverging != nil {
		got.Release()
		rp.DivergingEpoch.Epoch, rp.DivergingEpoch.EndOffset = got.Diverging.Epoch, got.Diverging.EndOffset
		return rp
	}
	if !r.Fetched(isr.Fetch{Follower: h.req.ReplicaState.ID, LeaderEpoch: got.LeaderEpoch, BrokerEpoch: h.req.ReplicaState.Epoch, Offset: p.FetchOffset, LogStart: p.LogStartOffset, Now: n.w.clock.Now()}) {
		got.Release()
		rp.ErrorCode = kerr.UnknownLeaderEpoch.Code
		return rp
	}
	rp.HighWatermark, rp.LogStartOffset = got.HighWatermark, got.LogStart
	rp.RecordBatches = n.bytesOf(got.Regions)
	return rp
}

func codeOf(err error) int16 {
	var epoch *partition.EpochError
	var out *storage.OutOfRangeError
	switch {
	case errors.As(err, &epoch) && epoch.Fenced():
		return kerr.FencedLeaderEpoch.Code
	case errors.As(err, &epoch):
		return kerr.UnknownLeaderEpoch.Code
	case errors.As(err, &out):
		return kerr.OffsetOutOfRange.Code
	}
	return kerr.NotLeaderForPartition.Code
}

// produced is the answer to a produce.
type produced struct {
	first int64
	err   error
}

// heldProduce waits for its commit.
type heldProduce struct {
	r      *partition.Replica
	commit *partition.Commit
	first  int64
	until  time.Time
	reply  func(any)
}

var errTimedOut = errors.New("REQUEST_TIMED_OUT")

func (n *node) serveProduce(id image.PartitionID, raw []byte, acks partition.Acks, reply func(any)) {
	r, err := n.replicas.Replica(id.Topic, id.Partition)
	if err != nil {
		reply(produced{err: err})
		return
	}
	a, err := r.AppendAsLeader(partition.AppendRequest{Records: raw, Version: 9, Acks: acks})
	if err != nil || acks != partition.AcksAll {
		reply(produced{first: a.FirstOffset, err: err})
		return
	}
	c, err := r.WaitCommitted(a)
	if c == nil {
		reply(produced{first: a.FirstOffset, err: err})
		return
	}
	h := &heldProduce{r: r, commit: c, first: a.FirstOffset, until: n.w.clock.Now().Add(requestMs * 2 / 3 * time.Millisecond), reply: reply}
	n.commits = append(n.commits, h)
	n.wakeAt(h.until)
}

func (n *node) answerCommits() {
	n.commits = slices.DeleteFunc(n.commits, func(h *heldProduce) bool {
		select {
		case <-h.commit.Done():
			h.reply(produced{first: h.first, err: h.commit.Err()})
			return true
		default:
		}
		if n.w.clock.Now().Before(h.until) {
			return false
		}
		h.r.Forget(h.commit)
		h.reply(produced{err: errTimedOut})
		return true
	})
}

// consumed is the answer to a consumer.
type consumed struct {
	raw    []byte
	latest int64 // ListOffsets(latest); -1 not available
	err    error
}

func (n *node) serveConsumer(id image.PartitionID, offset int64, epoch int32, reply func(any)) {
	r, err := n.replicas.Replica(id.Topic, id.Partition)
	if err != nil {
		reply(consumed{latest: -1, err: err})
		return
	}
	out := consumed{latest: -1}
	if latest, err := r.Latest(epoch, partition.ReadUncommitted); err == nil {
		out.latest = latest
	}
	got, err := r.Read(partition.ReadRequest{
		Offset: offset, MaxBytes: 4096, MinOne: true, Isolation: partition.ReadUncommitted, CurrentLeaderEpoch: epoch, LastFetchedEpoch: partition.None,
	})
	if err != nil {
		out.err = err
	} else {
		out.raw = n.bytesOf(got.Regions)
	}
	reply(out)
}
