package api

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/batch"
	"weir/internal/clock"
	"weir/internal/image"
	"weir/internal/partition"
	"weir/internal/storage/producer"
	"weir/internal/uuid"
	"weir/internal/wire"
)

// Produce appends record batches (API key 0), versions 0–13.
//
//	v0–v2   message sets v0/v1, converted to batches v2; v1 throttle, v2 log append time
//	v3      batches v2, exactly one per partition; transactional id, verified before the append (KIP-890)
//	v5      log start offset in the answer
//	v7      zstd (KIP-110)
//	v8      record errors and a message (KIP-467)
//	v9      flexible
//	v10     current leader and its address in the answer (KIP-951)
//	v11     TRANSACTION_ABORTABLE
//	v12     the request itself makes its partitions part of the transaction
//	v13     topics by id (KIP-516)
type Produce struct {
	Images       Images
	Replicas     Replicas
	Clock        clock.Clock
	Verification Verification
}

// Key is Produce.
func (*Produce) Key() kmsg.Key { return kmsg.Produce }

// produced is the state of one request.
type produced struct {
	p    *Produce
	c    *Call
	req  *kmsg.ProduceRequest
	res  *kmsg.ProduceResponse
	img  *image.Image
	acks partition.Acks

	// Of a transactional request: what its partitions' verification gave, and
	// whether that is waived.
	verified   map[*kmsg.ProduceRequestTopicPartition]*verified
	unverified bool

	quiet   bool // see several
	failed  bool // some partition has an error
	leaders map[int32]struct{}
	waits   []produceWait
	untold  []*partition.Replica // whose watchers are told when all is appended
}

// produceWait is a partition whose answer waits for the commit.
type produceWait struct {
	replica *partition.Replica
	commit  *partition.Commit
	row     *kmsg.ProduceResponseTopicPartition // in the answer
}

// Handle appends each partition's batch in turn.
func (p *Produce) Handle(ctx context.Context, c *Call, r kmsg.Request) wire.Response {
	req := as[*kmsg.ProduceRequest](r)
	d := &produced{p: p, c: c, req: req, res: responseTo[*kmsg.ProduceResponse](r), img: p.Images.Image(), acks: partition.Acks(req.Acks), quiet: several(req)}
	var whole error
	switch {
	case req.TransactionID != nil:
		whole = d.verify(ctx) // it waits before the append: nothing of this connection overtakes it
	case transactional(req):
		whole = kerr.TransactionalIDAuthorizationFailed
	}
	d.appendAll(whole)
	switch {
	case req.Acks == 0 && d.failed:
		// There is no answer to put the error in: closing makes the client look (KafkaApis.handleProduceRequest).
		return wire.Fail{Err: errors.New("produce with acks=0 failed: " + d.firstError())}
	case req.Acks == 0:
		return wire.NoAnswer{}
	case len(d.waits) == 0:
		return d.answer()
	}
	done := make(chan struct{})
	go d.wait(ctx, done)
	return wire.Pending{Done: done, Finish: d.answer}
}

// appendAll appends every partition's batch, or refuses them all when whole is an
// error. A partition that the request names twice counts once, with its last batch,
// as in Kafka.
func (d *produced) appendAll(whole error) {
	last := lastNamed(d.req)
	d.res.Topics = make([]kmsg.ProduceResponseTopic, 0, len(d.req.Topics))
	for i := range d.req.Topics {
		t := &d.req.Topics[i]
		rt := kmsg.NewProduceResponseTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		rt.Partitions = make([]kmsg.ProduceResponseTopicPartition, 0, len(t.Partitions))
		topic, err := d.lookup(t)
		if whole != nil {
			err = whole
		}
		for j := range t.Partitions {
			q := &t.Partitions[j]
			if last != nil && last[partKey{uuid.UUID(t.TopicID), t.Topic, q.Partition}] != q {
				continue
			}
			rp := kmsg.NewProduceResponseTopicPartition()
			rp.Partition, rp.BaseOffset, rp.LogStartOffset = q.Partition, -1, -1
			rt.Partitions = append(rt.Partitions, rp)
			row := &rt.Partitions[len(rt.Partitions)-1]
			if err == nil {
				d.appendOne(topic, q, row)
			} else {
				d.fail(row, err)
			}
		}
		if len(rt.Partitions) > 0 {
			d.res.Topics = append(d.res.Topics, rt)
		}
	}
	d.tell()
}

// tell wakes those who wait for what was appended quietly.
func (d *produced) tell() {
	for _, r := range d.untold {
		r.Tell()
	}
}

// several tells whether the request has more than one batch: then those who wait for
// records are woken after the last.
func several(req *kmsg.ProduceRequest) bool {
	return len(req.Topics) > 1 || len(req.Topics) == 1 && len(req.Topics[0].Partitions) > 1
}

// transactional tells whether some batch belongs to a transaction.
func transactional(req *kmsg.ProduceRequest) bool {
	for i := range req.Topics {
		for j := range req.Topics[i].Partitions {
			if e, _, err := batch.NextEntry(req.Topics[i].Partitions[j].Records); err == nil {
				if b, v2 := e.Batch(); v2 && b.IsTransactional() {
					return true
				}
			}
		}
	}
	return false
}

// lastNamed finds the last part of each partition; nil when the request names
// none twice, as clients do.
func lastNamed(req *kmsg.ProduceRequest) map[partKey]*kmsg.ProduceRequestTopicPartition {
	n := 0
	for i := range req.Topics {
		n += len(req.Topics[i].Partitions)
	}
	if n <= fewPartitions && !namesTwice(req) {
		return nil
	}
	last := make(map[partKey]*kmsg.ProduceRequestTopicPartition, n)
	for i := range req.Topics {
		t := &req.Topics[i]
		for j := range t.Partitions {
			last[partKey{uuid.UUID(t.TopicID), t.Topic, t.Partitions[j].Partition}] = &t.Partitions[j]
		}
	}
	if len(last) == n {
		return nil
	}
	return last
}

// fewPartitions is how many are compared with each other, which allocates nothing.
const fewPartitions = 32

func namesTwice(req *kmsg.ProduceRequest) bool {
	for i := range req.Topics {
		for j := range req.Topics[i].Partitions {
			for k := range i + 1 {
				others := req.Topics[k].Partitions
				if k == i {
					others = others[:j]
				} else if req.Topics[k].Topic != req.Topics[i].Topic || req.Topics[k].TopicID != req.Topics[i].TopicID {
					continue
				}
				for o := range others {
					if others[o].Partition == req.Topics[i].Partitions[j].Partition {
						return true
					}
				}
			}
		}
	}
	return false
}

func (d *produced) lookup(t *kmsg.ProduceRequestTopic) (*image.Topic, error) {
	var ok bool
	var topic *image.Topic
	if d.req.Version >= 13 {
		if topic, ok = d.img.TopicByID(uuid.UUID(t.TopicID)); !ok {
			return nil, kerr.UnknownTopicID
		}
	} else if topic, ok = d.img.Topic(t.Topic); !ok {
		return nil, errUnknownPartition
	}
	if d.req.Acks < -1 || d.req.Acks > 1 {
		return nil, kerr.InvalidRequiredAcks
	}
	return topic, nil
}

func (d *produced) appendOne(t *image.Topic, q *kmsg.ProduceRequestTopicPartition, rp *kmsg.ProduceResponseTopicPartition) {
	replica, err := find(d.img, d.p.Replicas, t, q.Partition)
	if err != nil {
		d.fail(rp, err)
		return
	}
	replica.Stats().ProduceRequests.Add(1)
	if d.req.Version >= 3 {
		if _, err := batch.Single(q.Records, d.req.Version); err != nil {
			d.fail(rp, err)
			rp.ErrorMessage = unreadable(err)
			return
		}
	}
	guard := producer.NoGuard
	if v := d.verified[q]; v != nil {
		if v.err != nil {
			d.fail(rp, v.err)
			if v.text != "" {
				rp.ErrorMessage = &v.text
			}
			return
		}
		guard = v.guard
	}
	a, err := replica.AppendAsLeader(partition.AppendRequest{
		Records: q.Records, Version: d.req.Version, Acks: d.acks, Quiet: d.quiet, Guard: guard, Unverified: d.unverified,
	})
	if err != nil {
		replica.Stats().FailedProduce.Add(1)
		d.fail(rp, err)
		if tellsLogStart(err) {
			rp.LogStartOffset = replica.Log().LogStart()
		}
		return
	}
	if d.quiet && !a.Duplicate {
		d.untold = append(d.untold, replica)
	}
	rp.BaseOffset, rp.LogAppendTime, rp.LogStartOffset = a.FirstOffset, a.LogAppendTimeMs, a.LogStart
	if a.FirstOffset > a.LastOffset {
		rp.BaseOffset = -1 // a message set without a whole message
		return
	}
	if d.acks != partition.AcksAll {
		return
	}
	commit, err := replica.WaitCommitted(a)
	if err != nil {
		d.fail(rp, err)
		return
	}
	if commit != nil {
		d.waits = append(d.waits, produceWait{replica: replica, commit: commit, row: rp})
	}
}

// tellsLogStart tells whether an error's row names the log start offset: Kafka
// leaves it out of a few (ReplicaManager.appendToLocalLog).
func tellsLogStart(err error) bool {
	switch k := kind(err); k {
	case kerr.UnknownTopicOrPartition, kerr.NotLeaderForPartition, kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.CorruptMessage, kerr.KafkaStorageError:
		return false
	}
	return true
}

// unreadable is the text for records whose first bytes are no batch; Kafka gives
// none for a batch that is only not allowed.
func unreadable(err error) *string {
	var corrupt *batch.CorruptError
	if !errors.As(err, &corrupt) {
		return nil
	}
	text := strings.ToUpper(corrupt.Reason[:1]) + corrupt.Reason[1:]
	return &text
}

// fail puts an error into a partition's row. What the row tells of an append
// that happened stays: the records are in the log. Kafka sends a text only with
// record errors.
func (d *produced) fail(rp *kmsg.ProduceResponseTopicPartition, err error) {
	d.failed = true
	rp.ErrorCode = code(err)
	var invalid *batch.InvalidRecordError
	if errors.As(err, &invalid) && len(invalid.RecordErrors) > 0 {
		rp.ErrorMessage = &invalid.Message
		rp.ErrorRecords = make([]kmsg.ProduceResponseTopicPartitionErrorRecord, 0, len(invalid.RecordErrors))
		for _, e := range invalid.RecordErrors {
			er := kmsg.NewProduceResponseTopicPartitionErrorRecord()
			er.RelativeOffset, er.ErrorMessage = e.Index, &e.Message
			rp.ErrorRecords = append(rp.ErrorRecords, er)
		}
	}
	var moved *partition.NotLeaderError
	if errors.As(err, &moved) {
		rp.CurrentLeader.LeaderID, rp.CurrentLeader.LeaderEpoch = moved.Leader, moved.LeaderEpoch
		if d.leaders == nil {
			d.leaders = map[int32]struct{}{}
		}
		d.leaders[moved.Leader] = struct{}{}
	}
}

func (d *produced) firstError() string {
	for _, t := range d.res.Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode != 0 {
				return kerr.ErrorForCode(p.ErrorCode).Error()
			}
		}
	}
	return "unknown"
}

// wait ends when every partition is decided, the request's timeout has passed,
// or the connection has gone; then it closes done.
func (d *produced) wait(ctx context.Context, done chan<- struct{}) {
	defer close(done)
	late, stop := clock.After(d.p.Clock, time.Duration(d.req.TimeoutMillis)*time.Millisecond)
	defer stop()
	for i := range d.waits {
		select {
		case <-d.waits[i].commit.Done():
		case <-late:
			return
		case <-ctx.Done():
			return
		}
	}
}

// answer completes the partitions that waited. Those not decided in time get
// REQUEST_TIMED_OUT: their records are in the log all the same.
func (d *produced) answer() wire.Response {
	for _, w := range d.waits {
		select {
		case <-w.commit.Done():
			if err := w.commit.Err(); err != nil {
				d.fail(w.row, err)
			}
		default:
			w.replica.Forget(w.commit)
			d.fail(w.row, kerr.RequestTimedOut)
		}
	}
	endpoints(d.img, d.c.Conn.Listener(), d.leaders, func(b *image.Broker, e image.Endpoint) {
		n := kmsg.NewProduceResponseBroker()
		n.NodeID, n.Host, n.Port, n.Rack = b.ID, e.Host, int32(e.Port), b.Rack
		d.res.Brokers = append(d.res.Brokers, n)
	})
	return reply(d.res)
}
