package api

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/batch"
	"weir/internal/clock"
	"weir/internal/image"
	"weir/internal/isr"
	"weir/internal/partition"
	"weir/internal/replication"
	"weir/internal/storage"
	"weir/internal/wire"
)

// Fetch reads record batches (API key 1), versions 0–18.
//
//	v0–v3   batches are converted down to message sets v0 (v0–v1) and v1 (v2–v3)
//	v3      max bytes of the whole answer; the first batch comes whole (KIP-74)
//	v4      read committed, aborted transactions
//	v7      sessions (KIP-227), see fetchsession.go
//	v9      current leader epoch (KIP-320)
//	v10     zstd
//	v11     rack of the consumer, which may be sent to a follower near it (KIP-392), see fetchnear.go
//	v12     flexible; last fetched epoch, diverging epoch (KIP-595)
//	v13     topics by id (KIP-516)
//	v15     replica state instead of replica id (KIP-903)
//	v16     addresses of new leaders (KIP-951)
//	v18     follower's high watermark (KIP-1166)
type Fetch struct {
	Images   Images
	Replicas Replicas
	Sessions *Sessions
	Clock    clock.Clock
	Buffers  *batch.Pool
	MaxBytes int // fetch.max.bytes: bounds what a consumer or a follower may ask for
	// NearRacks sends consumers to followers of their rack (replica.selector.class).
	NearRacks bool
	// Throttle bounds what followers of throttled partitions get that are not in
	// sync (KIP-73); nil: nothing does.
	Throttle Throttle
	// Starts lets go of followers' fetches when they have more to ask for; nil: nobody does.
	Starts Starts
}

// Starts tells when this broker begins to lead partitions of which a follower has a
// replica, a registered broker: next is closed then, and just says that it began to moments ago, so that a
// fetch should wait no longer than replication.StartWait.
type Starts interface {
	Starts(follower int32) (next <-chan struct{}, just bool)
}

// Throttle is a limit on replication.
type Throttle interface {
	Exceeded() bool
	Record(bytes int64)
}

// Key is Fetch.
func (*Fetch) Key() kmsg.Key { return kmsg.Fetch }

// fetching is the state of one request.
type fetching struct {
	f   *Fetch
	c   *Call
	req *kmsg.FetchRequest
	s   *fetchSession
	// full answers list every partition of the request; incremental ones only news.
	full     bool
	follower int32 // node id, -1 for a consumer
	epoch    int64 // the follower's broker epoch
	img      *image.Image

	left    int // bytes that may still be read
	need    int // bytes that are worth an answer: min bytes, as far as max bytes allows
	size    int64
	spent   bool // there is more than may be read: waiting brings nothing
	urgent  bool // an error or a divergence: answer now
	waited  bool
	held    map[*fetchPart]error // see early
	results map[*fetchPart]*wire.FetchPartition
	order   []*fetchPart
	leaders map[int32]struct{}
}

// Handle reads what there is, and waits for min bytes or max wait.
func (f *Fetch) Handle(ctx context.Context, c *Call, r kmsg.Request) wire.Response {
	req := as[*kmsg.FetchRequest](r)
	s, full, err := f.Sessions.begin(req)
	if err != nil {
		return &wire.FetchResponse{Version: req.Version, ErrorCode: code(err)}
	}
	defer f.Sessions.end(s)
	d := &fetching{f: f, c: c, req: req, s: s, full: full, follower: -1, epoch: -1, img: f.Images.Image(), results: map[*fetchPart]*wire.FetchPartition{}}
	d.follower = req.ReplicaID
	if req.Version >= 15 {
		d.follower, d.epoch = req.ReplicaState.ID, req.ReplicaState.Epoch
	}
	d.left = max(int(req.MaxBytes), 0)
	if req.Version < 3 {
		d.left = f.MaxBytes
	}
	d.left = min(d.left, f.MaxBytes)
	d.need = min(int(req.MinBytes), d.left)
	s.update(req)
	if !full && len(s.parts) == 0 {
		f.Sessions.remove(s.id) // as Kafka: a session that has become empty ends
		return &wire.FetchResponse{Version: req.Version}
	}
	d.readNews()
	d.wait(ctx)
	return d.answer()
}

// wait reads again what changes until there is enough to answer.
func (d *fetching) wait(ctx context.Context) {
	if d.enough() || d.req.MaxWaitMillis <= 0 || len(d.s.parts) == 0 {
		return
	}
	limit := time.Duration(d.req.MaxWaitMillis) * time.Millisecond
	var begins <-chan struct{}
	// The id is what a client says: only those of brokers are noted.
	if _, registered := d.img.Broker(d.follower); registered && d.f.Starts != nil {
		var just bool
		if begins, just = d.f.Starts.Starts(d.follower); just && len(d.held) == 0 {
			limit = min(limit, replication.StartWait)
		}
	}
	late, stop := clock.After(d.f.Clock, limit)
	defer stop()
	for !d.enough() {
		select {
		case <-begins:
			if begins = nil; len(d.held) == 0 {
				d.readNews()
				return
			}
		case <-d.s.wake:
			d.img, d.waited = d.settled(ctx), true
			d.readNews()
		case <-late:
			d.readNews() // a high watermark that did not wake
			return
		case <-ctx.Done():
			return
		}
	}
}

// settled is the image to read by after a change. A replica is retired just
// before the image without it is published: then it waits for that image, so that
// the answer says that the topic is gone.
func (d *fetching) settled(ctx context.Context) *image.Image {
	img := d.f.Images.Image()
	for _, p := range d.s.pending() {
		if p.replica == nil {
			continue
		}
		var retired *replication.NotHostedError
		if _, err := d.f.Replicas.Replica(p.topicID, p.key.partition); !errors.As(err, &retired) {
			continue
		}
		old := partitionOf(img, p)
		wait, cancel := context.WithTimeout(ctx, settleWait)
		img = d.f.Images.WaitFor(wait, func(i *image.Image) bool {
			now := partitionOf(i, p)
			return now == nil || now != old
		})
		cancel()
	}
	return img
}

func partitionOf(img *image.Image, p *fetchPart) *image.Partition {
	t, ok := img.TopicByID(p.topicID)
	if !ok {
		return nil
	}
	q, _ := t.Partition(p.key.partition)
	return q
}

func (d *fetching) enough() bool {
	return d.urgent || d.spent || d.size >= int64(d.need)
}

// readNews reads every partition that has news, as far as the budget goes.
// Those it did not reach stay on the list.
func (d *fetching) readNews() {
	news := d.s.take()
	var rest, more []*fetchPart
	for _, p := range news {
		switch d.read(p) {
		case readEnd:
		case readMore:
			more = append(more, p)
		case readNoBudget:
			rest = append(rest, p)
		}
	}
	// Fairness as in Kafka: what was served goes behind what was not.
	d.s.requeue(append(rest, more...))
}

type readOutcome uint8

const (
	readEnd      readOutcome = iota // the client has everything: wait for a change
	readMore                        // to be read again at the next fetch
	readNoBudget                    // not read
)

func (d *fetching) read(p *fetchPart) readOutcome {
	old := d.results[p]
	if old != nil {
		if old.ErrorCode != 0 {
			return readMore
		}
		d.undo(old) // more has come while we waited for min bytes: read all of it at once
	}
	if err := p.resolve(d.img, d.f.Replicas); err != nil {
		d.fail(p, err)
		if p.missing = missing(err); p.missing != 0 && !d.waited {
			d.results[p].AbortedTransactions = []wire.AbortedTransaction{} // as Kafka, not null
		}
		return readMore
	}
	p.missing = 0
	delete(d.held, p)
	if err := d.refuse(p); err != nil {
		if d.early(p, err) {
			return readEnd
		}
		d.fail(p, err)
		return readMore
	}
	if old == nil {
		p.replica.Stats().FetchRequests.Add(1)
	}
	limit := min(p.maxBytes, d.left)
	if (p.maxBytes < 0 || d.req.MaxBytes < 0 && d.req.Version >= 3) && p.offset < p.replica.Log().HighWatermark() {
		d.fail(p, kerr.UnknownServerError) // Kafka's read throws
		return readMore
	}
	if limit <= 0 && d.size > 0 {
		d.spent = true
		d.note(p, old)
		return readNoBudget
	}
	throttled := d.follower >= 0 && d.f.Throttle != nil && p.replica.ThrottledFor(d.follower)
	if throttled && d.f.Throttle.Exceeded() {
		d.note(p, old)
		return readMore // with the next fetch
	}
	if id, ok := d.nearer(p); ok {
		d.send(p, id)
		return readMore
	}
	got, err := p.replica.Read(partition.ReadRequest{
		Offset: p.offset, MaxBytes: limit, MinOne: d.size == 0, Isolation: d.isolation(),
		CurrentLeaderEpoch: p.leaderEpoch, LastFetchedEpoch: p.epochFor, AnyReplica: d.follower < 0 && d.req.Version >= 11,
	})
	if err != nil {
		if d.early(p, err) {
			return readEnd
		}
		d.fail(p, err)
		return readMore
	}
	d.spent = d.spent || got.FirstBatchCut && limit == d.left
	outcome := d.take(p, got)
	if d.follower >= 0 {
		n := d.results[p].Size()
		p.replica.Stats().ReplicationBytesOut.Add(n)
		if throttled {
			d.f.Throttle.Record(n)
		}
	}
	return outcome
}

// undo takes what was read before out of the answer.
func (d *fetching) undo(fp *wire.FetchPartition) {
	n := fp.Size()
	for i := range fp.Regions {
		fp.Regions[i].Release()
	}
	fp.Regions, fp.Bytes = nil, nil
	d.size -= n
	d.left += int(n)
}

// refuse tells what a client is not given: zstd where batches are converted down
// (KIP-110; from v4 on Kafka 4.3.1 sends what is stored, case K6), and partitions
// to brokers that hold no replica.
func (d *fetching) refuse(p *fetchPart) error {
	if d.req.Version < 4 && p.replica.Log().Config().CompressionType == "zstd" {
		return kerr.UnsupportedCompressionType
	}
	if d.follower >= 0 {
		return d.refuseFollower(p)
	}
	return nil
}

// refuseFollower refuses a broker that is no follower of the partition.
func (d *fetching) refuseFollower(p *fetchPart) error {
	if err := p.replica.CheckEpoch(p.leaderEpoch); err != nil {
		return err
	}
	s := p.replica.Status()
	if t, ok := d.img.TopicByID(p.topicID); ok && s.Leading && d.follower != s.Leader {
		if q, ok := t.Partition(p.key.partition); ok && slices.Contains(q.Replicas, d.follower) {
			return nil
		}
	}
	return &partition.NotLeaderError{Topic: p.topic, Partition: p.key.partition, Leader: s.Leader, LeaderEpoch: s.LeaderEpoch}
}

// early tells that a follower has heard of a leader epoch before this broker has,
// which happens whenever a leader changes: the fetch is held until the metadata
// has come here too, rather than refused (availability C3(f)). In a session the
// partition stays on watch; a full answer needs a row for it in the end.
func (d *fetching) early(p *fetchPart, err error) bool {
	var epoch *partition.EpochError
	if d.follower < 0 || !errors.As(err, &epoch) || epoch.Fenced() {
		return false
	}
	if d.held == nil {
		d.held = map[*fetchPart]error{}
	}
	d.held[p] = err
	return true
}

func (d *fetching) isolation() partition.Isolation {
	switch {
	case d.follower >= 0:
		return partition.ReadLogEnd
	case d.req.IsolationLevel == 1:
		return partition.ReadCommitted
	}
	return partition.ReadUncommitted
}

// missing is 0 for what exists, else the rank of its row among those of missing
// partitions: Kafka puts unknown ids before unknown partitions.
func missing(err error) int8 {
	switch kind(err) {
	case kerr.UnknownTopicID:
		return 1
	case kerr.UnknownTopicOrPartition:
		return 2
	}
	return 0
}

// take puts what was read into the answer.
func (d *fetching) take(p *fetchPart, got partition.Read) readOutcome {
	fp := d.result(p)
	fp.HighWatermark, fp.LastStableOffset, fp.LogStartOffset = got.HighWatermark, got.LastStable, got.LogStart
	if got.Diverging != nil {
		fp.DivergingEpoch = wire.EpochEndOffset{Epoch: got.Diverging.Epoch, EndOffset: got.Diverging.EndOffset}
		d.urgent = true
		return readMore
	}
	if d.follower >= 0 && !p.replica.Fetched(isr.Fetch{
		Follower: d.follower, LeaderEpoch: got.LeaderEpoch, BrokerEpoch: d.epoch, Offset: p.offset, LogStart: p.logStart, Now: d.f.Clock.Now(),
	}) {
		got.Release()
		d.fail(p, cmp.Or(p.replica.CheckEpoch(p.leaderEpoch), error(kerr.UnknownLeaderEpoch)))
		return readMore
	}
	if d.req.IsolationLevel == 1 {
		fp.AbortedTransactions = make([]wire.AbortedTransaction, 0, len(got.Aborted))
		for _, a := range got.Aborted {
			fp.AbortedTransactions = append(fp.AbortedTransactions, wire.AbortedTransaction{ProducerID: a.ProducerID, FirstOffset: a.FirstOffset})
		}
	}
	if got.FirstBatchCut && d.req.Version >= 3 {
		got.Release() // a cut first batch would look corrupt (KIP-74, case K10)
	}
	fp.Regions = got.Regions
	if d.req.Version < 4 && got.Size > 0 {
		if err := d.convertDown(p, fp, got); err != nil {
			d.fail(p, err)
			return readMore
		}
	}
	n := fp.Size()
	d.size += n
	d.left -= int(n)
	if n > 0 || got.FirstBatchCut {
		return readMore
	}
	return readEnd
}

// result is the partition's row of the answer, reset when it is read again.
func (d *fetching) result(p *fetchPart) *wire.FetchPartition {
	fp := d.results[p]
	if fp == nil {
		fp = new(wire.FetchPartition)
		d.results[p] = fp
		d.order = append(d.order, p)
	}
	*fp = wire.NewFetchPartition(p.key.partition)
	return fp
}

// note gives a full answer its row for a partition that was not read.
func (d *fetching) note(p *fetchPart, old *wire.FetchPartition) {
	if old != nil || !d.full {
		return
	}
	fp := d.result(p)
	o := p.replica.Log().Offsets()
	fp.HighWatermark, fp.LastStableOffset, fp.LogStartOffset = o.HighWatermark, o.LastStable, o.LogStart
}

// fail makes the partition's row an error; offsets in it are -1 (K11).
func (d *fetching) fail(p *fetchPart, err error) {
	if p.replica != nil {
		p.replica.Stats().FailedFetch.Add(1)
	}
	fp := d.result(p)
	fp.ErrorCode, fp.HighWatermark = code(err), -1
	d.urgent = true
	p.sentHW, p.sentLogStart = -1, -1
	if d.req.Version < 16 {
		return
	}
	var moved *partition.NotLeaderError
	var epoch *partition.EpochError
	switch {
	case errors.As(err, &moved):
		fp.CurrentLeader = wire.LeaderAndEpoch{LeaderID: moved.Leader, LeaderEpoch: moved.LeaderEpoch}
	case errors.As(err, &epoch) && epoch.Fenced() && p.replica != nil:
		s := p.replica.Status()
		fp.CurrentLeader = wire.LeaderAndEpoch{LeaderID: s.Leader, LeaderEpoch: s.LeaderEpoch}
	default:
		return
	}
	if d.follower >= 0 {
		return // brokers know each other's addresses
	}
	if d.leaders == nil {
		d.leaders = map[int32]struct{}{}
	}
	d.leaders[fp.CurrentLeader.LeaderID] = struct{}{}
}

// convertDown replaces regions of batches v2 by message sets for old clients.
func (d *fetching) convertDown(p *fetchPart, fp *wire.FetchPartition, got partition.Read) error {
	defer func() { got.Release(); fp.Regions = nil }()
	var raw []byte
	var err error
	for _, g := range got.Regions {
		if raw, err = g.AppendTo(raw); err != nil {
			return &storage.DiskError{Dir: p.replica.Log().Dir(), Op: "read for down-conversion", Err: err}
		}
	}
	magic := int8(0)
	if d.req.Version >= 2 {
		magic = 1
	}
	p.replica.Stats().FetchConversions.Add(1)
	buf := d.f.Buffers.Get()
	defer d.f.Buffers.Put(buf)
	fp.Bytes, err = downConvert(nil, raw, magic, p.offset, buf)
	return err
}

// downConvert converts whole entries and drops a cut one at the end.
func downConvert(dst, raw []byte, magic int8, from int64, buf *batch.Buffers) ([]byte, error) {
	for len(raw) > 0 {
		e, rest, err := batch.NextEntry(raw)
		if errors.Is(err, batch.ErrShort) {
			break
		}
		if err != nil {
			return nil, err
		}
		raw = rest
		if e.LastOffset() < from {
			continue
		}
		if dst, err = batch.DownConvertEntry(dst, e, magic, buf); err != nil {
			return nil, err
		}
	}
	return dst, nil
}

// answer lays the rows out: those of partitions that exist in the order in which
// they were read, then the others. Neighbours of one topic share an entry. An
// incremental answer leaves out partitions without news (K14).
func (d *fetching) answer() wire.Response {
	if d.full {
		for p, err := range d.held {
			d.fail(p, err)
		}
	}
	r := &wire.FetchResponse{Version: d.req.Version, SessionID: d.s.id}
	if d.full && d.req.Version >= 7 && d.req.SessionEpoch == sessionEpochNew {
		r.SessionID = d.f.Sessions.keep(d.s)
	}
	for rank := range int8(3) {
		for _, p := range d.order {
			fp := d.results[p]
			if p.missing != rank || (!d.full && !p.news(fp)) {
				continue
			}
			p.sentHW, p.sentLogStart = fp.HighWatermark, fp.LogStartOffset
			if n := len(r.Topics); n == 0 || r.Topics[n-1].Topic != p.key.topic || r.Topics[n-1].TopicID != p.key.id {
				r.Topics = append(r.Topics, wire.FetchTopic{Topic: p.key.topic, TopicID: p.key.id})
			}
			t := &r.Topics[len(r.Topics)-1]
			t.Partitions = append(t.Partitions, *fp)
		}
	}
	endpoints(d.img, d.c.Conn.Listener(), d.leaders, func(b *image.Broker, e image.Endpoint) {
		r.Nodes = append(r.Nodes, wire.NodeEndpoint{NodeID: b.ID, Host: e.Host, Port: int32(e.Port), Rack: b.Rack})
	})
	return r
}

// news tells whether a row says anything the client does not know.
func (p *fetchPart) news(fp *wire.FetchPartition) bool {
	return fp.ErrorCode != 0 || fp.Size() > 0 || fp.HighWatermark != p.sentHW || fp.LogStartOffset != p.sentLogStart ||
		fp.DivergingEpoch.Epoch >= 0 || fp.PreferredReadReplica >= 0
}
