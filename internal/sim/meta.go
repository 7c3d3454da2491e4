package sim

import (
	"hash/fnv"
	"slices"

	"weir/internal/image"
	"weir/internal/kraft"
	"weir/internal/metalog"
	"weir/internal/records"
)

// metaTruth is what is known of the metadata log and the images it makes. It follows
// the log itself, record by record, as the node does that is told first.
type metaTruth struct {
	batches map[int64]metaBatch // by base offset
	next    int64
	image   *image.Image           // after all records below next, those of an open transaction included
	images  map[int64]*image.Image // by offset, where no transaction is open
	steps   []metaStep             // of an open transaction, or of a batch
	arrived []int32                // brokers that registered in it
}

// metaStep is one record about a partition.
type metaStep struct {
	t      *truth
	offset int64
	p      *image.Partition
}

type metaBatch struct {
	last  int64
	epoch int32
	hash  uint64
	node  int32
}

func newMetaTruth() metaTruth {
	return metaTruth{batches: map[int64]metaBatch{}, image: image.New(), images: map[int64]*image.Image{}}
}

// metaCheck is told by one node's metadata log what is committed.
type metaCheck struct {
	n       *node
	next    int64
	started bool // has been polled once
}

// Committed compares a batch with what others were told.
func (m *metaCheck) Committed(b metalog.Batch) error {
	c := m.n.w.check
	if b.Base != m.next {
		m.n.w.fail("node %d: the metadata log told offset %d after %d", m.n.id, b.Base, m.next-1)
	}
	m.next = b.Last + 1
	h := fnv.New64a()
	var buf []byte
	for _, r := range b.Records {
		buf = records.AppendMetadata(buf[:0], r)
		if _, err := h.Write(buf); err != nil {
			return err
		}
	}
	got := metaBatch{last: b.Last, epoch: b.Epoch, hash: h.Sum64(), node: m.n.id}
	old, ok := c.meta.batches[b.Base]
	if !ok {
		c.meta.batches[b.Base] = got
		return c.metaBatch(b)
	}
	if old.last != got.last || old.epoch != got.epoch || old.hash != got.hash {
		m.n.w.fail("metadata at offset %d: node %d was told batch to %d of epoch %d, node %d to %d of epoch %d, with other content or not", b.Base, old.node, old.last, old.epoch, got.node, got.last, got.epoch)
	}
	return nil
}

// LoadSnapshot counts the snapshots that came from other nodes.
func (m *metaCheck) LoadSnapshot(s metalog.Snapshot) error {
	if m.started {
		m.n.w.count.Snapshots++
	}
	m.next = s.ID.Offset
	return nil
}

// LeaderChanged is of no interest.
func (m *metaCheck) LeaderChanged(kraft.LeaderAndEpoch) error { return nil }

// metaBatch applies a batch that is committed now.
func (c *checker) metaBatch(b metalog.Batch) error {
	m := &c.meta
	if b.Base != m.next {
		c.w.fail("metadata at offset %d is committed after %d", b.Base, m.next-1)
		return nil
	}
	m.next = b.Last + 1
	for i, r := range b.Records {
		at := b.Base + int64(i)
		d := image.NewDelta(m.image)
		if err := d.Replay(r); err != nil {
			return err
		}
		m.image = d.Apply(image.Provenance{Offset: at, Epoch: b.Epoch, TimestampMs: b.TimestampMs})
		switch r := r.Record.(type) {
		case *records.AbortTransactionRecord:
			c.w.count.Transactions++
			m.steps, m.arrived = nil, nil
		case *records.RegisterBrokerRecord:
			m.arrived = append(m.arrived, r.BrokerID)
		case *records.PartitionChangeRecord:
			id := image.PartitionID{Topic: r.TopicID, Partition: r.PartitionID}
			if t := c.byID[id]; t != nil {
				m.steps = append(m.steps, metaStep{t, at, m.image.Partition(id)})
			}
		}
	}
	if m.image.InTransaction() {
		return nil
	}
	m.images[b.Last] = m.image
	for _, s := range m.steps {
		c.partition(s.t, s.p, s.offset)
	}
	m.steps, m.arrived = nil, nil
	c.members(m.image, b.Last)
	return nil
}

// watcher sees every image of a node before its replicas do.
type watcher struct{ n *node }

// Apply implements quorum.Subscriber. Images of one offset are equal, wherever they were
// made and from whatever snapshot.
func (x watcher) Apply(img *image.Image, d *image.Delta) {
	n, c := x.n, x.n.w.check
	at := img.Provenance.Offset
	if truth := c.meta.images[at]; truth == nil {
		n.w.fail("node %d has an image of offset %d, which is within a transaction or not committed", n.id, at)
	} else if !truth.Equal(img) {
		n.w.fail("node %d: its image of offset %d is not what the records below make", n.id, at)
	}
	a := n.altering
	if a == nil {
		return
	}
	for id := range a.of {
		was, now := d.Base().Partition(id), img.Partition(id)
		if was == nil || now == nil || was.Leader != n.id || now.Leader != n.id {
			continue
		}
		if len(now.ISR) < len(was.ISR) {
			n.w.count.Shrinks++
		} else if len(now.ISR) > len(was.ISR) {
			n.w.count.Expands++
		}
	}
}

// members: who may be in an ISR.
func (c *checker) members(img *image.Image, at int64) {
	for _, t := range c.parts {
		p := img.Partition(t.id)
		for i, id := range p.ISR {
			if !slices.Contains(p.Replicas, id) || slices.Contains(p.ISR[i+1:], id) {
				c.w.fail("%s: the ISR %v is not within the replicas %v", t.name, p.ISR, p.Replicas)
			}
			if b, ok := img.Broker(id); !ok || b.Fenced {
				c.w.fail("%s: at offset %d broker %d is fenced and in the ISR %v", t.name, at, id, p.ISR)
			}
		}
		if p.Leader >= 0 && !slices.Contains(p.ISR, p.Leader) {
			c.w.fail("%s: at offset %d the leader %d is not in the ISR %v", t.name, at, p.Leader, p.ISR)
		}
	}
}

// partition: what the controller may decide about a partition, and what follows from it.
func (c *checker) partition(t *truth, p *image.Partition, at int64) {
	c.w.logger.Info("- partition", "name", t.name, "offset", at, "leader", p.Leader, "epoch", p.LeaderEpoch, "ISR", p.ISR, "ELR", p.ELR,
		"last", p.LastKnownELR, "partition epoch", p.PartitionEpoch, "recovering", p.Recovering)
	was := t.newest
	t.newest = p
	if p.Leader >= 0 {
		if old, ok := t.leaders[p.LeaderEpoch]; ok && old != p.Leader {
			c.w.fail("%s: at offset %d %d is to lead in epoch %d; that was %d", t.name, at, p.Leader, p.LeaderEpoch, old)
		}
		t.leaders[p.LeaderEpoch] = p.Leader
	}
	if p.LeaderEpoch < was.LeaderEpoch || p.PartitionEpoch != was.PartitionEpoch+1 {
		c.w.fail("%s: at offset %d the epochs go from %d/%d to %d/%d", t.name, at, was.LeaderEpoch, was.PartitionEpoch, p.LeaderEpoch, p.PartitionEpoch)
	}
	if p.Leader != was.Leader && p.LeaderEpoch == was.LeaderEpoch {
		c.w.fail("%s: at offset %d %d leads instead of %d in the same epoch %d", t.name, at, p.Leader, was.Leader, p.LeaderEpoch)
	}
	if p.LeaderEpoch == was.LeaderEpoch {
		c.joined(t, was, p, at)
	}
	stays := func(id int32) bool { return slices.Contains(p.ISR, id) }
	eligible := slices.Contains(was.ELR, p.Leader) && !slices.ContainsFunc(was.ISR, stays)
	if p.Leader < 0 || p.Leader == was.Leader || slices.Contains(was.ISR, p.Leader) || eligible {
		return
	}
	others := slices.Concat(was.ISR, was.ELR) // whoever comes back from an unclean stop is out of both in the same moment
	others = slices.DeleteFunc(others, func(id int32) bool { return slices.Contains(c.meta.arrived, id) })
	if !p.Recovering || !t.wild && (len(others) > 0 || !slices.Contains(was.LastKnownELR, p.Leader)) {
		c.w.fail("%s: at offset %d %d was elected, recovering %t, although ISR %v, ELR %v and last leader %v are others", t.name, at, p.Leader, p.Recovering, was.ISR, was.ELR, was.LastKnownELR)
	}
	t.unclean = p.LeaderEpoch
	c.w.count.Unclean++
}

// joined: whoever has joined the ISR holds everything that is committed, unless it has
// restarted meanwhile.
func (c *checker) joined(t *truth, was, p *image.Partition, at int64) {
	if t.unclean >= 0 && t.cut < t.unclean {
		return
	}
	for _, id := range p.ISR {
		n := c.w.node(id)
		b, ok := c.meta.image.Broker(id)
		if slices.Contains(was.ISR, id) || !n.up || !ok || n.member.epoch != b.Epoch {
			continue
		}
		if r, err := n.replicas.Replica(t.id.Topic, t.id.Partition); err == nil && r.Log().LogEnd() < t.end() {
			c.w.fail("%s: at offset %d broker %d joins the ISR %v with a log that ends at %d; committed is all below %d", t.name, at, id, p.ISR, r.Log().LogEnd(), t.end())
		}
	}
}
