package group

import (
	"encoding/binary"
	"fmt"

	"weir/internal/group/consumer"
	"weir/internal/records"
	"weir/internal/uuid"
)

// Record types: the first two bytes of a key.
const (
	typeOldOffset int16 = 0
	typeOffset    int16 = 1
	typeGroup     int16 = 2
)

// Versions in which values are written (Apache Kafka 4.3.1 with any feature level).
const (
	groupVersion         = 3
	offsetVersion        = 4
	offsetVersionExpires = 1
)

// noProducer is the producer id of batches without one.
const noProducer int64 = -1

// Record is one record of the partition, or the marker that ends a transaction.
// Exactly one of Group, Consumer, Offset, Foreign and Marker says which.
type Record struct {
	// Producer is the producer id of the batch: an offset then belongs to its
	// open transaction. -1 for none.
	Producer int64
	Epoch    int16  // of that producer
	Guard    uint64 // of a transaction's first batch here: what its verification gave
	// Unverified: transactions need no guard here.
	Unverified bool
	// Delta is the record's place in its batch: compaction leaves holes.
	Delta int32

	Group    *GroupRecord
	Consumer *consumer.Record
	Offset   *OffsetRecord
	Marker   *Marker
	Foreign  *Foreign
}

// GroupRecord is a classic group's stored state.
type GroupRecord struct {
	ID    string
	Value *records.GroupMetadataValue // nil: the group is gone
}

// OffsetRecord is a committed offset.
type OffsetRecord struct {
	Key   OffsetKey
	Value *Offset // nil: there is none any more
}

// Marker ends a transaction. CoordinatorEpoch and Version, of the transaction
// coordinator that sent it, are for the log alone.
type Marker struct {
	Commit           bool
	CoordinatorEpoch int32
	Version          int16
}

// Foreign is a record that this version does not act on.
type Foreign struct{ Type int16 }

// OffsetKey says whose offset of what.
type OffsetKey struct {
	Group string
	TopicPartition
}

// TopicPartition is a partition by name.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// Offset is a committed offset; immutable once it is in a State.
type Offset struct {
	Offset      int64
	LeaderEpoch int32 // -1 when not told
	Metadata    string
	CommitMs    int64
	ExpireMs    int64 // -1: by offsets.retention.minutes
	TopicID     uuid.UUID
	at          int64 // offset of the record; set when it is applied
}

// Append adds the record's key and value to two buffers; value is nil for a
// tombstone. Only groups and offsets are ever written.
func (r *Record) Append(k []byte) (key, value []byte) {
	if r.Consumer != nil {
		return r.Consumer.Append(k)
	}
	if g := r.Group; g != nil {
		m := records.NewGroupMetadataKey()
		m.Group = g.ID
		key = m.AppendTo(binary.BigEndian.AppendUint16(k, uint16(typeGroup)), 0)
		if g.Value != nil {
			value = g.Value.AppendTo(binary.BigEndian.AppendUint16(nil, groupVersion), groupVersion)
		}
		return key, value
	}
	o := r.Offset
	m := records.NewOffsetCommitKey()
	m.Group, m.Topic, m.Partition = o.Key.Group, o.Key.Topic, o.Key.Partition
	key = m.AppendTo(binary.BigEndian.AppendUint16(k, uint16(typeOffset)), 0)
	if v := o.Value; v != nil {
		version := int16(offsetVersion)
		if v.ExpireMs >= 0 {
			version = offsetVersionExpires
		}
		value = v.message(version).AppendTo(binary.BigEndian.AppendUint16(nil, uint16(version)), version)
	}
	return key, value
}

func (o *Offset) message(version int16) *records.OffsetCommitValue {
	m := records.NewOffsetCommitValue()
	m.Offset, m.Metadata, m.CommitTimestamp = o.Offset, o.Metadata, o.CommitMs
	if version == offsetVersionExpires {
		m.ExpireTimestamp = o.ExpireMs // v1 has neither of the others
		return &m
	}
	m.LeaderEpoch, m.TopicID = o.LeaderEpoch, o.TopicID
	return &m
}

// ParseRecord reads a record. It keeps no reference to its arguments. Types that
// this version does not know come back as Foreign.
func ParseRecord(producer int64, key, value []byte) (Record, error) {
	if len(key) < 2 {
		return Record{}, fmt.Errorf("record key of %d bytes", len(key))
	}
	r := Record{Producer: producer}
	kind := int16(binary.BigEndian.Uint16(key))
	var err error
	switch kind {
	case typeOldOffset, typeOffset:
		r.Offset, err = parseOffset(key[2:], value)
	case typeGroup:
		r.Group, err = parseGroup(key[2:], value)
	default:
		if !consumer.IsKind(kind) {
			r.Foreign = &Foreign{Type: kind}
			break
		}
		var body []byte
		var version int16
		if body, version, err = split(value); err == nil {
			r.Consumer, err = consumer.Parse(consumer.Kind(kind), key[2:], body, version)
		}
	}
	if err != nil {
		return Record{}, fmt.Errorf("record of type %d: %w", kind, err)
	}
	return r, nil
}

func parseOffset(key, value []byte) (*OffsetRecord, error) {
	k := records.NewOffsetCommitKey()
	if err := k.ReadFrom(key, 0); err != nil {
		return nil, err
	}
	r := &OffsetRecord{Key: OffsetKey{Group: k.Group, TopicPartition: TopicPartition{k.Topic, k.Partition}}}
	body, version, err := split(value)
	if body == nil || err != nil {
		return r, err
	}
	v := records.NewOffsetCommitValue()
	if err := v.ReadFrom(body, version); err != nil {
		return nil, err
	}
	r.Value = &Offset{
		Offset: v.Offset, LeaderEpoch: v.LeaderEpoch, Metadata: v.Metadata, CommitMs: v.CommitTimestamp,
		ExpireMs: v.ExpireTimestamp, TopicID: v.TopicID,
	}
	return r, nil
}

func parseGroup(key, value []byte) (*GroupRecord, error) {
	k := records.NewGroupMetadataKey()
	if err := k.ReadFrom(key, 0); err != nil {
		return nil, err
	}
	r := &GroupRecord{ID: k.Group}
	body, version, err := split(value)
	if body == nil || err != nil {
		return r, err
	}
	v := records.NewGroupMetadataValue()
	if err := v.ReadFrom(body, version); err != nil {
		return nil, err
	}
	r.Value = &v
	return r, nil
}

// split takes the version off a value; body is nil for a tombstone.
func split(value []byte) (body []byte, version int16, err error) {
	if value == nil {
		return nil, 0, nil
	}
	if len(value) < 2 {
		return nil, 0, fmt.Errorf("value of %d bytes", len(value))
	}
	return value[2:], int16(binary.BigEndian.Uint16(value)), nil
}
