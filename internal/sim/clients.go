package sim

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/batch"
	"weir/internal/image"
	"weir/internal/kraft"
	"weir/internal/partition"
	"weir/internal/storage"
	sequences "weir/internal/storage/producer"
)

// The topics: of one, nothing may be lost; of the other, leaders may be elected uncleanly.
const (
	safeTopic = "safe"
	wildTopic = "wild"
)

// part is a partition that clients use.
type part struct {
	id   image.PartitionID
	name string
	wild bool
}

// admin makes the topics, and then changes the metadata now and then.
type admin struct {
	w       *World
	ready   bool
	parts   []part
	waiting bool
	changes int
}

func (a *admin) step() {
	w := a.w
	defer func() { w.after(w.between(20, 80), a.step) }()
	n := w.newest()
	if n == nil || a.waiting || w.healed {
		return
	}
	img := n.q.Images().Image()
	if !a.ready {
		a.lookAt(img)
	}
	leader := n.q.Leader().ID
	if leader == kraft.None || a.ready && w.dice.IntN(2) == 0 {
		return
	}
	var req kmsg.Request
	switch active := activeBrokers(img); {
	case a.ready:
		req = a.change()
	case active < 3:
		return
	default:
		if _, ok := img.Topic(safeTopic); ok {
			return
		}
		req = createTopics(w.set.SegmentBytes)
	}
	a.waiting = true
	w.ask(laneKey{-1, leader, "admin"}, func(dst *node, reply func(any)) { dst.serveController(req, reply) }, func(any, error) { a.waiting = false })
}

func activeBrokers(img *image.Image) (n int) {
	for b := range img.Brokers() {
		if b.Active() {
			n++
		}
	}
	return n
}

// lookAt takes note of the topics once they are there.
func (a *admin) lookAt(img *image.Image) {
	var parts []part
	for _, name := range []string{safeTopic, wildTopic} {
		t, ok := img.Topic(name)
		if !ok {
			return
		}
		for p := range t.Partitions() {
			parts = append(parts, part{id: image.PartitionID{Topic: t.ID, Partition: p}, name: fmt.Sprintf("%s-%d", name, p), wild: name == wildTopic})
		}
	}
	a.parts, a.ready = parts, true
	a.w.check.follow(parts)
	for _, p := range a.w.producers {
		p.begin(parts)
	}
	for _, c := range a.w.consumers {
		c.begin(parts)
	}
}

func createTopics(segmentBytes int) *kmsg.CreateTopicsRequest {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version, req.TimeoutMillis = req.MaxVersion(), 1000
	for _, name := range []string{safeTopic, wildTopic} {
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = name, 2, 3
		set := func(key, value string) {
			c := kmsg.NewCreateTopicsRequestTopicConfig()
			c.Name, c.Value = key, &value
			t.Configs = append(t.Configs, c)
		}
		if segmentBytes < 1<<20 {
			set("internal.segment.bytes", fmt.Sprint(segmentBytes))
		}
		set("min.insync.replicas", fmt.Sprint(minISR))
		if name == wildTopic {
			t.NumPartitions = 1
			set("unclean.leader.election.enable", "true")
		}
		req.Topics = append(req.Topics, t)
	}
	return req
}

// change alters settings that mean nothing here, so that there is metadata.
func (a *admin) change() kmsg.Request {
	a.changes++
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Version = req.MaxVersion()
	for _, topic := range []string{safeTopic, wildTopic} {
		r := kmsg.NewIncrementalAlterConfigsRequestResource()
		r.ResourceType, r.ResourceName = 2, topic
		for i, key := range []string{"segment.jitter.ms", "retention.ms", "max.compaction.lag.ms", "delete.retention.ms"} {
			c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
			v := fmt.Sprint(600_000_000 + a.changes*10 + i)
			c.Name, c.Value = key, &v
			r.Configs = append(r.Configs, c)
		}
		req.Resources = append(req.Resources, r)
	}
	return req
}

// leaderOf is who leads a partition and in which epoch, as some node knows: clients
// ask any.
func (w *World) leaderOf(id image.PartitionID) (leader, epoch int32) {
	n := w.nodes[w.dice.IntN(len(w.nodes))]
	if !n.up {
		return -1, -1
	}
	p := n.q.Images().Image().Partition(id)
	if p == nil {
		return -1, -1
	}
	return p.Leader, p.LeaderEpoch
}

// A producer sends numbered batches to one partition, up to Settings.Window at once. With
// acks=all it is idempotent and goes on until each batch is acked; with acks=1 it tries
// each once.
type producer struct {
	w      *World
	index  int
	acks   partition.Acks
	part   part
	pid    int64
	seq    int32 // of the next batch
	open   []*sending
	to     int32 // the leader that it is connected to, -1
	try    int   // counts connections, so that answers of earlier ones are known
	resend bool
	begun  bool  // a batch of this pid was acked
	err    error // of the last attempt
	odd    int   // refusals for an unexpected sequence, in a row
}

// sending is one batch on its way.
type sending struct {
	seq, count int32
	sent       bool
}

func (w *World) startClients() {
	for i := range 3 * w.set.Producers {
		acks := partition.AcksAll
		if i >= 3 {
			acks = []partition.Acks{partition.AcksAll, partition.AcksLeader}[w.dice.IntN(2)]
		}
		w.producers = append(w.producers, &producer{w: w, index: i, acks: acks, pid: int64(1000 * (i + 1)), to: -1})
	}
	for i := range 2 {
		w.consumers = append(w.consumers, &consumer{w: w, index: i})
	}
}

func (p *producer) begin(parts []part) {
	p.part = parts[p.index%len(parts)]
	p.w.after(p.w.between(0, 30), p.tick)
}

// tick makes a new batch now and then, and sends what is to be sent.
func (p *producer) tick() {
	w := p.w
	if len(p.open) < w.set.Window && !w.healed {
		s := &sending{seq: p.seq, count: int32(1 + w.dice.IntN(3))}
		p.seq += s.count
		p.open = append(p.open, s)
	}
	p.send()
	pace := int(w.set.Pace.Milliseconds())
	w.after(w.between(pace/2, pace*2), p.tick)
}

func (p *producer) key() laneKey { return laneKey{-int32(10 + p.index), p.to, "produce"} }

// send sends every batch that is not under way, in order. After a failure all of them
// are sent again.
func (p *producer) send() {
	w := p.w
	if p.resend {
		p.resend = false
		p.try++
		for _, s := range p.open {
			s.sent = false
		}
		p.to = -1
	}
	if p.to < 0 {
		if p.to, _ = w.leaderOf(p.part.id); p.to < 0 {
			return
		}
	}
	for i, s := range p.open {
		if s.sent {
			continue
		}
		if i > 0 && !p.begun { // a log that does not know the producer takes any sequence as its first
			break
		}
		s.sent = true
		raw := p.batch(s)
		try, id := p.try, p.part.id
		w.ask(p.key(), func(dst *node, reply func(any)) { dst.serveProduce(id, raw, p.acks, reply) }, func(res any, err error) { p.answered(s, try, res, err) })
	}
}

func (p *producer) batch(s *sending) []byte {
	o := batch.NewOptions()
	if p.acks == partition.AcksAll {
		o.ProducerID, o.ProducerEpoch, o.BaseSequence = p.pid, 0, s.seq
	}
	b := batch.NewBuilder(o)
	for i := range s.count {
		b.Append(p.w.clock.Now().UnixMilli(), nil, fmt.Appendf(nil, "%d/%d", p.pid, s.seq+i), nil)
	}
	return b.Build()
}

func (p *producer) answered(s *sending, try int, res any, err error) {
	w := p.w
	a, ok := res.(produced)
	if !ok && err == nil {
		err = errCut
	}
	if err == nil {
		err = a.err
	}
	if p.acks != partition.AcksAll {
		p.remove(s)
		if err != nil {
			p.to = -1
		}
		return
	}
	if try != p.try || p.resend {
		return // of an attempt that was given up
	}
	if err == nil {
		w.count.Acked++
		p.begun = true
		w.check.acked(p, s, a.first)
		p.odd = 0
		p.remove(s)
		return
	}
	p.err = err
	if errors.Is(err, sequences.ErrOutOfOrderSequence) && len(p.open) > 0 && p.open[0] == s && w.check.present(p.part.id, p.to) {
		if p.odd++; p.odd > 8 {
			// What was acked before may be lost, after an unclean election. And a log that was
			// loaded from a producer snapshot knows the last batch of each producer alone, as the
			// format has it: a batch before that one, sent again, is then not known as a duplicate.
			if w.set.Window == 1 && !w.check.uncleanly(p.part.id) {
				w.fail("%s: producer %d is refused for ever: %v", p.part.name, p.pid, err)
			}
			p.pid, p.odd, p.begun = p.pid+1, 0, false
			first := p.open[0].seq
			for _, o := range p.open {
				o.seq -= first
			}
			p.seq -= first
		}
	}
	p.resend = true
	if err != errCut && err != errTimeout && err != errRefused {
		w.cut(p.key(), errCut)
	}
	w.after(w.between(5, 30), p.send)
}

func (p *producer) remove(s *sending) {
	for i, o := range p.open {
		if o == s {
			p.open = append(p.open[:i:i], p.open[i+1:]...)
			return
		}
	}
}

// consumer reads partitions from their leaders, from the beginning on.
type consumer struct {
	w      *World
	index  int
	parts  []part
	next   []int64 // by partition
	latest []int64
	epoch  []int32 // the highest leader epoch that it has heard of, as Kafka's consumers keep it
	turn   int
}

func (c *consumer) begin(parts []part) {
	c.parts = parts
	c.next, c.latest, c.epoch = make([]int64, len(parts)), make([]int64, len(parts)), make([]int32, len(parts))
	c.w.after(c.w.between(0, 30), c.tick)
}

func (c *consumer) tick() {
	w := c.w
	c.turn = (c.turn + 1) % len(c.parts)
	i := c.turn
	p := c.parts[i]
	again := func() { w.after(w.between(10, 60), c.tick) }
	to, epoch := w.leaderOf(p.id)
	if to < 0 || epoch < c.epoch[i] {
		again()
		return
	}
	c.epoch[i] = epoch
	offset := c.next[i]
	w.ask(laneKey{-int32(50 + c.index), to, "consume"}, func(dst *node, reply func(any)) { dst.serveConsumer(p.id, offset, epoch, reply) }, func(res any, err error) {
		if r, ok := res.(consumed); ok && err == nil {
			c.take(i, r)
		}
		again()
	})
}

func (c *consumer) take(i int, r consumed) {
	w, p := c.w, c.parts[i]
	if w.check.uncleanly(p.id) {
		var out *storage.OutOfRangeError
		if errors.As(r.err, &out) {
			c.next[i] = out.End
		}
		c.latest[i] = 0
	}
	switch {
	case r.latest < 0:
	case r.latest < c.latest[i]:
		w.fail("consumer %d: the latest offset of %s went back from %d to %d", c.index, p.name, c.latest[i], r.latest)
	default:
		c.latest[i] = r.latest
	}
	var out *storage.OutOfRangeError
	if errors.As(r.err, &out) && !w.check.uncleanly(p.id) {
		w.fail("consumer %d: %s: offset %d, below the high watermark before, is out of range %d to %d", c.index, p.name, out.Offset, out.Start, out.End)
		return
	}
	for raw := r.raw; len(raw) > 0; {
		b, rest, err := batch.Next(raw)
		if err != nil {
			return // the last one is cut
		}
		raw = rest
		if b.LastOffset() < c.next[i] {
			continue
		}
		w.check.consumed(c, p, b, c.next[i])
		c.next[i] = b.NextOffset()
		w.count.Read++
	}
}
