package replication

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"golang.org/x/sync/errgroup"

	"weir/internal/checkpoint"
	"weir/internal/config"
	"weir/internal/image"
	"weir/internal/isr"
	"weir/internal/partition"
	"weir/internal/storage"
	"weir/internal/storage/dirs"
	"weir/internal/uuid"
)

// Apply brings the replicas to the state of the image. It is called from one
// goroutine, with each delta in order.
func (m *Manager) Apply(img *image.Image, d *image.Delta) {
	m.image.Store(img)
	m.configure(img, d)
	defer m.fetchers.apply()
	if !m.joined {
		m.join(img)
		return
	}
	if len(d.ChangedBrokers()) > 0 {
		m.isrs.everyone() // one that was unfenced may join ISRs
	}
	for _, t := range d.DeletedTopics() {
		for p := range t.Partitions() {
			m.drop(key{t.ID, p}, "its topic was deleted")
		}
	}
	var changed []placement
	for _, id := range d.ChangedTopics() {
		if t, ok := img.TopicByID(id); ok {
			for _, p := range d.ChangedPartitions(id) {
				if part, ok := t.Partition(p); ok {
					changed = append(changed, placement{topic: t, id: p, part: part})
				}
			}
		}
	}
	m.placeAll(img, changed)
}

// join opens every replica that the image gives this broker, once it holds the
// broker's own registration. Images before that are the past, as it is read from
// the metadata log: by them, topics created since would seem unknown, and their
// logs be moved out of the way, or logs be made for topics deleted since.
func (m *Manager) join(img *image.Image) {
	if epoch := m.o.Epoch(); epoch < 0 || img.Provenance.Offset < epoch {
		return
	}
	err := m.o.Dirs.Settle(func(p checkpoint.TopicPartition) uuid.UUID {
		if t := m.mine(img, p); t != nil {
			return t.ID
		}
		return uuid.Zero
	})
	if err != nil {
		m.o.Logger.Error("logs of several topics of one name are left", "err", err)
	}
	m.strays(img)
	var mine []placement
	for id, part := range img.PartitionsOn(m.o.NodeID) {
		if t, ok := img.TopicByID(id.Topic); ok {
			mine = append(mine, placement{topic: t, id: id.Partition, part: part})
		}
	}
	m.placeAll(img, mine)
	m.joined = true
	poke(m.moves) // copies that an earlier run has begun go on
}

// poke wakes a goroutine that waits on c; one wake is enough for many.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// configure takes changed broker and topic configurations.
func (m *Manager) configure(img *image.Image, d *image.Delta) {
	node := strconv.Itoa(int(m.o.NodeID))
	all := false
	topics := map[string]bool{}
	for _, r := range d.ChangedConfigs() {
		switch {
		case r.Type == image.ResourceBroker && (r.Name == "" || r.Name == node):
			all = true
		case r.Type == image.ResourceTopic:
			topics[r.Name] = true
		}
	}
	if all {
		m.effective.Store(config.NewEffective(m.o.Static, img.Configs(image.ResourceBroker, ""), img.Configs(image.ResourceBroker, node)))
		m.limit()
		m.fetchers.resize(int(m.effective.Load().Int("num.replica.fetchers")))
	}
	if !all && len(topics) == 0 {
		return
	}
	resolved := map[string]*config.Topic{}
	for _, r := range m.list() {
		if !all && !topics[r.Topic()] {
			continue
		}
		c := resolved[r.Topic()]
		if c == nil {
			c = m.topicConfig(img, r.Topic())
			resolved[r.Topic()] = c
		}
		r.SetConfig(c)
		m.throttle(img, r)
	}
}

// mine is the topic of a partition of which this broker has a replica, nil when it has none.
func (m *Manager) mine(img *image.Image, p checkpoint.TopicPartition) *image.Topic {
	t, ok := img.Topic(p.Topic)
	if !ok {
		return nil
	}
	if part, ok := t.Partition(p.Partition); !ok || !slices.Contains(part.Replicas, m.o.NodeID) {
		return nil
	}
	return t
}

// strays moves logs that the image does not know out of the way. They
// are kept: the operator decides (pain P16).
func (m *Manager) strays(img *image.Image) {
	m.o.Dirs.Logs(func(p checkpoint.TopicPartition, l *storage.Log, _ *dirs.Dir, future bool) bool {
		if t := m.mine(img, p); t != nil && (l.TopicID() == uuid.Zero || l.TopicID() == t.ID) {
			return true
		}
		if err := m.o.Dirs.MarkStray(p, future); err != nil {
			m.o.Logger.Error("cannot move a stray log", "dir", l.Dir(), "err", err)
		}
		return true
	})
}

// placement is what the image says of one partition.
type placement struct {
	topic *image.Topic
	id    int32
	part  *image.Partition

	replica *partition.Replica // set by openAll, or err
	err     error
}

func (p *placement) key() key { return key{p.topic.ID, p.id} }

// placeAll makes this broker's parts of partitions what the image says. Those that are
// here already come first: a leader that is awaited does not wait for logs to be made.
func (m *Manager) placeAll(img *image.Image, list []placement) {
	var fresh []*placement
	for i := range list {
		p := &list[i]
		if !slices.Contains(p.part.Replicas, m.o.NodeID) {
			m.drop(p.key(), "the partition moved to other brokers")
			continue
		}
		m.mu.RLock()
		e := m.replicas[p.key()]
		m.mu.RUnlock()
		if e == nil || e.replica == nil {
			fresh = append(fresh, p)
			continue
		}
		m.cast(e.replica, p.part)
	}
	m.openAll(img, fresh)
	for _, p := range fresh {
		if p.err != nil {
			m.offline(p.key(), p.topic.Name, p.err)
			continue
		}
		m.cast(p.replica, p.part)
	}
	m.starts.tell(m.o.Clock.Now(), img)
}

// openers is how many logs are made at a time.
const openers = 4

// openAll makes the replicas, and their logs when needed.
func (m *Manager) openAll(img *image.Image, list []*placement) {
	configs := map[string]*config.Topic{}
	for _, p := range list {
		if configs[p.topic.Name] == nil {
			configs[p.topic.Name] = m.topicConfig(img, p.topic.Name)
		}
	}
	var g errgroup.Group
	g.SetLimit(openers)
	if m.o.Stepped {
		g.SetLimit(1)
	}
	for _, p := range list {
		g.Go(func() error {
			p.replica, p.err = m.open(img, p, configs[p.topic.Name])
			return nil
		})
	}
	_ = g.Wait() // errors stand in the placements
}

// cast gives a replica the role that the image says.
func (m *Manager) cast(r *partition.Replica, p *image.Partition) {
	if p.Leader != m.o.NodeID {
		r.Follow(p.Leader, p.LeaderEpoch, p.PartitionEpoch)
		m.leadsNot(r)
		m.fetchers.follow(r, p.Leader, p.LeaderEpoch)
		return
	}
	m.fetchers.stop(r)
	before := r.Status()
	if before.LeaderEpoch != p.LeaderEpoch {
		m.starts.note(p.Replicas)
	}
	if p.Recovering && len(p.Replicas) > 1 && before.LeaderEpoch != p.LeaderEpoch {
		m.o.Logger.Warn("this replica leads, elected uncleanly: records that were acknowledged may be lost from here on",
			"partition", r.String(), "leader epoch", p.LeaderEpoch, "log end", r.Log().LogEnd(), "high watermark", r.Log().HighWatermark())
	}
	r.Lead(isr.Assignment{
		Replicas: p.Replicas, ISR: p.ISR, LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch, Recovering: p.Recovering,
	}, m.o.Clock.Now())
	m.isrs.add(r)
	if m.o.Leaderships != nil {
		m.o.Leaderships.Leads(r, p.LeaderEpoch)
	}
}

// leadsNot tells that a replica does not lead.
func (m *Manager) leadsNot(r *partition.Replica) {
	if m.o.Leaderships != nil {
		m.o.Leaderships.LeadsNot(r)
	}
}

// open makes a replica, and its log when there is none.
func (m *Manager) open(img *image.Image, p *placement, c *config.Topic) (*partition.Replica, error) {
	k, t, id := p.key(), p.topic, p.id
	m.mu.RLock()
	_, wasHere := m.replicas[k]
	m.mu.RUnlock()
	name := checkpoint.TopicPartition{Topic: t.Name, Partition: id}
	known := p.part.Directory(m.o.NodeID)
	there := m.hasDir(known)
	want := known
	if !there { // its disk has been replaced
		want = uuid.Zero
	}
	if d, ok := m.preference(name); ok {
		want = d
	}
	log, dir := m.o.Dirs.Log(name)
	if log == nil {
		err := m.mayStandOffline(there, wasHere || !m.joined)
		if err != nil {
			return nil, err
		}
		if log, dir, err = m.o.Dirs.Create(name, t.ID, want, false); err != nil {
			return nil, err
		}
	} else if err := log.AssignTopicID(t.ID); err != nil {
		return nil, err
	}
	log.SetConfig(c)
	if known != dir.ID {
		m.assign(k, dir.ID)
	}
	r := partition.New(partition.Options{
		Topic: t.Name, TopicID: t.ID, ID: id, Self: m.o.NodeID, Log: log,
		Clock: m.o.Clock, Buffers: m.o.Buffers, Failed: m.report, Due: m.isrs.add,
	})
	m.throttle(img, r)
	m.mu.Lock()
	m.replicas[k] = &entry{replica: r}
	m.mu.Unlock()
	return r, nil
}

// mayStandOffline refuses to make an empty log for a partition that was here before, when the controller does not know
// its directory: it may stand in one that is offline now. Apache Kafka keeps such a replica offline too while it runs;
// we do so after a start as well, or its records would be replaced by nothing without a word.
func (m *Manager) mayStandOffline(known, wasHere bool) error {
	offline := m.o.Dirs.OfflineDirs()
	if len(offline) == 0 || !wasHere || known {
		return nil
	}
	return fmt.Errorf("its log directory is not known and may be %s, which is offline: bring that back, or take it out of log.dirs to begin with an empty log", offline[0].Path)
}

// hasDir tells whether id is that of a log directory of this broker, live or failed.
func (m *Manager) hasDir(id uuid.UUID) bool {
	is := func(d *dirs.Dir) bool { return d.ID == id }
	return id != uuid.Zero && !id.Reserved() && (slices.ContainsFunc(m.o.Dirs.Dirs(), is) || slices.ContainsFunc(m.o.Dirs.OfflineDirs(), is))
}

// offline records why there is no replica to use.
func (m *Manager) offline(k key, topic string, err error) {
	m.o.Logger.Error("replica is offline", "topic", topic, "partition", k.partition, "err", err)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.replicas[k] = &entry{offline: &OfflineError{Topic: topic, Partition: k.partition, Err: err}}
}

// fail takes a replica that cannot be used any more offline, unless it went meanwhile.
func (m *Manager) fail(r *partition.Replica, err error) {
	k := key{r.TopicID(), r.ID()}
	e := &OfflineError{Topic: r.Topic(), Partition: r.ID(), Err: err}
	m.mu.Lock()
	present := m.replicas[k] != nil && m.replicas[k].replica == r
	if present {
		m.replicas[k] = &entry{offline: e}
	}
	m.mu.Unlock()
	if present {
		m.o.Logger.Error("replica is offline", "topic", r.Topic(), "partition", r.ID(), "err", err)
		r.Retire(e)
		m.leadsNot(r)
		m.fetchers.stop(r)
	}
}

// drop ends a replica that this broker no longer has, and deletes its log, a
// copy that is being made of it included.
func (m *Manager) drop(k key, why string) {
	m.mu.Lock()
	e := m.replicas[k]
	delete(m.replicas, k)
	m.mu.Unlock()
	if e == nil {
		return
	}
	name := checkpoint.TopicPartition{Partition: k.partition}
	if e.replica != nil {
		name.Topic = e.replica.Topic()
		e.replica.Retire(&NotHostedError{k.topic, k.partition})
		m.leadsNot(e.replica)
		m.fetchers.stop(e.replica)
	} else {
		name.Topic = e.offline.Topic
		if log, _ := m.o.Dirs.Log(name); log != nil && log.TopicID() != k.topic {
			return // it is offline because the log there is another topic's
		}
	}
	err := errors.Join(m.o.Dirs.Delete(name, true), m.o.Dirs.Delete(name, false))
	if err != nil && !errors.Is(err, storage.ErrClosed) {
		m.o.Logger.Error("cannot delete a log", "partition", name.String(), "why", why, "err", err)
		return
	}
	m.o.Logger.Info("replica removed", "topic", name.Topic, "partition", k.partition, "because", why)
}
