package image

import (
	"fmt"
	"maps"

	"github.com/benbjohnson/immutable"

	"weir/internal/records"
)

// ReplayError says that a record cannot follow the state before it: the log is damaged, or a rule here differs from the writer's.
// The node that meets one cannot go on, because its state would be wrong from here on.
type ReplayError struct {
	Record string // the record's type
	Reason string
}

// Error names the record and the reason.
func (e *ReplayError) Error() string { return "metadata: " + e.Record + ": " + e.Reason }

// Replay applies one record. On an error (always a *ReplayError) the delta is unchanged by this record and should be dropped.
func (d *Delta) Replay(v records.Versioned) error {
	if err := d.replay(v); err != nil {
		return &ReplayError{Record: fmt.Sprintf("%T", v.Record), Reason: err.Error()}
	}
	return nil
}

func (d *Delta) replay(v records.Versioned) error {
	switch r := v.Record.(type) {
	case *records.PartitionChangeRecord:
		return d.partitionChange(r)
	case *records.PartitionRecord:
		return d.partition(r)
	case *records.TopicRecord:
		return d.topic(r)
	case *records.RemoveTopicRecord:
		return d.removeTopic(r)
	case *records.ClearElrRecord:
		return d.clearELR(r)
	case *records.ConfigRecord:
		d.config(r)
	case *records.FeatureLevelRecord:
		d.next.features = d.next.features.with(r.Name, r.FeatureLevel)
		d.changed.features = true
	case *records.ProducerIdsRecord:
		d.next.nextProducerID = r.NextProducerID
		d.changed.producerIDs = true
	case *records.NoOpRecord, *records.ZkMigrationStateRecord:
		// Neither is state: a NoOp moves the high watermark, and the migration from ZooKeeper ended with 4.0.
	case *records.BeginTransactionRecord, *records.EndTransactionRecord, *records.AbortTransactionRecord:
		return d.transaction(v.Record)
	case *records.RegisterBrokerRecord, *records.BrokerRegistrationChangeRecord, *records.FenceBrokerRecord,
		*records.UnfenceBrokerRecord, *records.UnregisterBrokerRecord, *records.RegisterControllerRecord:
		return d.registration(v.Record)
	default:
		d.keep(v)
	}
	return nil
}

func (d *Delta) transaction(rec records.Metadata) error {
	_, begins := rec.(*records.BeginTransactionRecord)
	if begins == d.next.InTransaction() {
		if begins {
			return fmt.Errorf("a metadata transaction is open already")
		}
		return fmt.Errorf("no metadata transaction is open")
	}
	switch rec.(type) {
	case *records.BeginTransactionRecord:
		d.begin()
	case *records.EndTransactionRecord:
		d.end()
	default:
		d.abort()
	}
	return nil
}

func (d *Delta) registration(rec records.Metadata) error {
	switch r := rec.(type) {
	case *records.RegisterBrokerRecord:
		d.setBroker(brokerFromRecord(r))
	case *records.BrokerRegistrationChangeRecord:
		return d.brokerChange(r)
	case *records.FenceBrokerRecord:
		return d.changeBroker(r.ID, r.Epoch, func(b *Broker) { b.Fenced = true })
	case *records.UnfenceBrokerRecord:
		return d.changeBroker(r.ID, r.Epoch, func(b *Broker) { b.Fenced = false })
	case *records.UnregisterBrokerRecord:
		if err := d.changeBroker(r.BrokerID, r.BrokerEpoch, func(*Broker) {}); err != nil {
			return err
		}
		d.next.brokers = d.next.brokers.Delete(r.BrokerID)
	case *records.RegisterControllerRecord:
		d.next.controllers = d.next.controllers.Set(r.ControllerID, controllerFromRecord(r))
		d.changed.controllers[r.ControllerID] = struct{}{}
	}
	return nil
}

func (d *Delta) setBroker(b *Broker) {
	d.next.brokers = d.next.brokers.Set(b.ID, b)
	d.changed.brokers[b.ID] = struct{}{}
}

// changeBroker applies a change to a copy of a registration, whose epoch the record must name.
func (d *Delta) changeBroker(id int32, epoch int64, change func(*Broker)) error {
	old, ok := d.next.Broker(id)
	if !ok {
		return fmt.Errorf("broker %d is not registered", id)
	}
	if old.Epoch != epoch {
		return fmt.Errorf("broker %d has epoch %d, the record says %d", id, old.Epoch, epoch)
	}
	b := *old
	change(&b)
	d.setBroker(&b)
	return nil
}

func (d *Delta) brokerChange(r *records.BrokerRegistrationChangeRecord) error {
	if r.Fenced < -1 || r.Fenced > 1 || r.InControlledShutdown < 0 || r.InControlledShutdown > 1 {
		return fmt.Errorf("broker %d: fenced %d, in controlled shutdown %d", r.BrokerID, r.Fenced, r.InControlledShutdown)
	}
	return d.changeBroker(r.BrokerID, r.BrokerEpoch, func(b *Broker) {
		switch r.Fenced {
		case 1:
			b.Fenced = true
		case -1:
			b.Fenced = false
		}
		if r.InControlledShutdown == 1 {
			b.InControlledShutdown = true
		}
		if len(r.LogDirs) > 0 {
			b.Dirs = sortedDirs(r.LogDirs)
		}
		if r.CordonedLogDirs != nil {
			b.CordonedDirs = sortedDirs(r.CordonedLogDirs)
		}
	})
}

func (d *Delta) topic(r *records.TopicRecord) error {
	if _, ok := d.next.TopicByID(r.TopicID); ok {
		return fmt.Errorf("topic id %s exists", r.TopicID)
	}
	if old, ok := d.next.Topic(r.Name); ok {
		return fmt.Errorf("topic %s exists with id %s, the record says %s", r.Name, old.ID, r.TopicID)
	}
	t := &Topic{Name: r.Name, ID: r.TopicID, partitions: immutable.NewSortedMap[int32, *Partition](int32Order{})}
	d.next.topics = d.next.topics.Set(t.Name, t)
	d.next.topicNames = d.next.topicNames.Set(t.ID, t.Name)
	d.changed.touchTopic(t.ID)
	return nil
}

func (d *Delta) removeTopic(r *records.RemoveTopicRecord) error {
	t, ok := d.next.TopicByID(r.TopicID)
	if !ok {
		return fmt.Errorf("topic id %s does not exist", r.TopicID)
	}
	for i, p := range t.Partitions() {
		d.next.reindex(PartitionID{t.ID, i}, p, nil)
	}
	d.next.partitions -= t.NumPartitions()
	d.next.topics = d.next.topics.Delete(t.Name)
	d.next.topicNames = d.next.topicNames.Delete(t.ID)
	delete(d.changed.topics, t.ID)
	if old, existed := d.base.TopicByID(t.ID); existed {
		d.changed.deleted[t.ID] = old
	}
	if res := (Resource{ResourceTopic, t.Name}); d.next.Configs(res.Type, res.Name) != nil {
		d.next.configs = d.next.configs.Delete(res)
		d.changed.configs[res] = struct{}{}
	}
	return nil
}

func (d *Delta) partition(r *records.PartitionRecord) error {
	t, ok := d.next.TopicByID(r.TopicID)
	if !ok {
		return fmt.Errorf("topic id %s does not exist", r.TopicID)
	}
	if r.PartitionID < 0 {
		return fmt.Errorf("topic %s: partition %d", t.Name, r.PartitionID)
	}
	p, err := partitionFromRecord(r)
	if err != nil {
		return err
	}
	d.setPartition(t, r.PartitionID, p)
	return nil
}

func (d *Delta) partitionChange(r *records.PartitionChangeRecord) error {
	t, ok := d.next.TopicByID(r.TopicID)
	if !ok {
		return fmt.Errorf("topic id %s does not exist", r.TopicID)
	}
	old, ok := t.Partition(r.PartitionID)
	if !ok {
		return fmt.Errorf("topic %s has no partition %d", t.Name, r.PartitionID)
	}
	p, err := old.Merge(r)
	if err != nil {
		return err
	}
	d.setPartition(t, r.PartitionID, p)
	return nil
}

// clearELR forgets the eligible and last known leaders of a topic, or of all topics when the name is empty. Only partitions that
// have some change, by one partition epoch, as a change record would do.
func (d *Delta) clearELR(r *records.ClearElrRecord) error {
	var topics []*Topic
	if r.TopicName != "" {
		t, ok := d.next.Topic(r.TopicName)
		if !ok {
			return fmt.Errorf("topic %s does not exist", r.TopicName)
		}
		topics = append(topics, t)
	} else {
		for t := range d.next.Topics() {
			topics = append(topics, t)
		}
	}
	for _, t := range topics {
		for i, p := range t.Partitions() {
			if len(p.ELR)+len(p.LastKnownELR) == 0 {
				continue
			}
			n := *p
			n.ELR, n.LastKnownELR = nil, nil
			n.PartitionEpoch++
			now, _ := d.next.TopicByID(t.ID)
			d.setPartition(now, i, &n)
		}
	}
	return nil
}

func (d *Delta) config(r *records.ConfigRecord) {
	res := Resource{r.ResourceType, r.ResourceName}
	m := maps.Clone(d.next.Configs(res.Type, res.Name))
	if r.Value == nil {
		delete(m, r.Name)
	} else {
		if m == nil {
			m = map[string]string{}
		}
		m[r.Name] = *r.Value
	}
	if len(m) == 0 {
		d.next.configs = d.next.configs.Delete(res)
	} else {
		d.next.configs = d.next.configs.Set(res, m)
	}
	d.changed.configs[res] = struct{}{}
}

// keep stores a record that is not interpreted, so that snapshots carry it on.
func (d *Delta) keep(v records.Versioned) {
	k := &d.next.kept
	switch r := v.Record.(type) {
	case *records.AccessControlEntryRecord:
		k.set(aclKey(r.ID), v)
	case *records.RemoveAccessControlEntryRecord:
		k.remove(aclKey(r.ID))
	case *records.ClientQuotaRecord:
		if r.Remove {
			k.remove(quotaKey(r))
		} else {
			k.set(quotaKey(r), v)
		}
	case *records.UserScramCredentialRecord:
		k.set(scramKey(r.Mechanism, r.Name), v)
	case *records.RemoveUserScramCredentialRecord:
		k.remove(scramKey(r.Mechanism, r.Name))
	case *records.DelegationTokenRecord:
		k.set(tokenKey(r.TokenID), v)
	case *records.RemoveDelegationTokenRecord:
		k.remove(tokenKey(r.TokenID))
	default:
		k.append(v)
	}
	d.changed.kept = true
}
