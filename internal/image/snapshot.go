package image

import "weir/internal/records"

// Records yields the records that rebuild this image from nothing, in the order in which Apache Kafka writes a snapshot: features
// with metadata.version first (it decides how to read the rest), brokers, controllers, topics with their partitions,
// configurations, quotas, producer ids, ACLs, SCRAM credentials, delegation tokens, and last what is unknown. Versions follow
// the finalized metadata.version. Inside an open metadata transaction it yields the state before it. The records share memory
// with the image: do not write to them.
func (i *Image) Records(yield func(records.Versioned) bool) {
	i = i.Visible()
	_ = i.writeFeatures(yield) && i.writeCluster(yield) && i.writeTopics(yield) && i.writeConfigs(yield) &&
		i.kept.write(keptQuota, keptQuota, yield) && i.writeProducerIDs(yield) && i.kept.write(keptACL, keptUnknown, yield)
}

func (i *Image) writeFeatures(sink recordSink) bool {
	write := func(name string, level int16) bool {
		r := records.NewFeatureLevelRecord()
		r.Name, r.FeatureLevel = name, level
		return sink(records.Versioned{Record: &r})
	}
	if i.features.Metadata != 0 && !write(FeatureMetadata, i.features.Metadata) {
		return false
	}
	for name, level := range i.features.All() {
		if !write(name, level) {
			return false
		}
	}
	return true
}

func (i *Image) writeCluster(sink recordSink) bool {
	for b := range i.Brokers() {
		if !sink(b.Record(i.features)) {
			return false
		}
	}
	if !i.features.ControllerRegistrations() {
		return true
	}
	for c := range i.Controllers() {
		if !sink(c.Record()) {
			return false
		}
	}
	return true
}

func (i *Image) writeTopics(sink recordSink) bool {
	for t := range i.Topics() {
		r := records.NewTopicRecord()
		r.Name, r.TopicID = t.Name, t.ID
		if !sink(records.Versioned{Record: &r}) {
			return false
		}
		for n, p := range t.Partitions() {
			if !sink(p.Record(PartitionID{t.ID, n}, i.features)) {
				return false
			}
		}
	}
	return true
}

func (i *Image) writeConfigs(sink recordSink) bool {
	for res, m := range i.ConfigResources() {
		for _, key := range sortedKeys(m) {
			if !sink(ConfigRecord(res, key, ptr(m[key]))) {
				return false
			}
		}
	}
	return true
}

// ConfigRecord makes the record that sets a value, or removes it when value is nil.
func ConfigRecord(res Resource, key string, value *string) records.Versioned {
	r := records.NewConfigRecord()
	r.ResourceType, r.ResourceName, r.Name, r.Value = res.Type, res.Name, key, value
	return records.Versioned{Record: &r}
}

func (i *Image) writeProducerIDs(sink recordSink) bool {
	if i.nextProducerID < 0 {
		return true
	}
	r := records.NewProducerIdsRecord()
	r.BrokerID, r.BrokerEpoch, r.NextProducerID = -1, -1, i.nextProducerID
	return sink(records.Versioned{Record: &r})
}

func ptr[T any](v T) *T { return &v }
