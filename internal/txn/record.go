package txn

import (
	"encoding/binary"
	"fmt"
	"slices"

	"weir/internal/records"
)

// keyType is the first two bytes of a key.
const keyType int16 = 0

// Record is one record of the partition.
type Record struct {
	ID  string
	Txn *Txn // nil: there is no such transactional id any more
	// Version is that of the value: 1, or 0 while transaction.version is 0.
	Version int16
}

// Append adds the record's key to k and gives its value, nil for a tombstone.
func (r *Record) Append(k []byte) (key, value []byte) {
	m := records.TransactionLogKey{TransactionalID: r.ID}
	key = m.AppendTo(binary.BigEndian.AppendUint16(k, uint16(keyType)), 0)
	if r.Txn == nil {
		return key, nil
	}
	v := r.Txn.message(r.Version)
	return key, v.AppendTo(binary.BigEndian.AppendUint16(nil, uint16(r.Version)), r.Version)
}

func (t *Txn) message(version int16) *records.TransactionLogValue {
	m := records.NewTransactionLogValue()
	m.ProducerID, m.ProducerEpoch = t.ProducerID, t.Epoch
	m.TransactionTimeoutMs, m.TransactionStatus = t.TimeoutMs, int8(t.Status)
	m.TransactionLastUpdateTimestampMs, m.TransactionStartTimestampMs = t.UpdateMs, t.StartMs
	if version >= 1 {
		m.PreviousProducerID, m.NextProducerID, m.ClientTransactionVersion = t.Previous, t.Next, t.Version
	}
	if t.Status == Empty {
		return &m // null partitions
	}
	m.TransactionPartitions = []records.TransactionLogValueTransactionPartition{}
	for _, p := range t.Partitions {
		if n := len(m.TransactionPartitions); n == 0 || m.TransactionPartitions[n-1].Topic != p.Topic {
			m.TransactionPartitions = append(m.TransactionPartitions, records.TransactionLogValueTransactionPartition{Topic: p.Topic})
		}
		last := &m.TransactionPartitions[len(m.TransactionPartitions)-1]
		last.PartitionIDs = append(last.PartitionIDs, p.Partition)
	}
	return &m
}

// ParseRecord reads a record. It keeps no reference to its arguments. ok is false
// for a key of a type that Kafka 4.3.1 does not know, which it passes over.
func ParseRecord(key, value []byte) (r Record, ok bool, err error) {
	if len(key) < 2 {
		return r, false, fmt.Errorf("record key of %d bytes", len(key))
	}
	if int16(binary.BigEndian.Uint16(key)) != keyType {
		return r, false, nil
	}
	k := records.NewTransactionLogKey()
	if err := k.ReadFrom(key[2:], 0); err != nil {
		return r, false, err
	}
	r.ID = k.TransactionalID
	if value == nil {
		return r, true, nil
	}
	if len(value) < 2 {
		return r, false, fmt.Errorf("value of %d bytes", len(value))
	}
	r.Version = int16(binary.BigEndian.Uint16(value))
	v := records.NewTransactionLogValue()
	if err := v.ReadFrom(value[2:], r.Version); err != nil {
		return r, false, fmt.Errorf("transactional id %q: %w", r.ID, err)
	}
	r.Txn, err = parse(r.ID, &v)
	return r, err == nil, err
}

func parse(id string, v *records.TransactionLogValue) (*Txn, error) {
	t := &Txn{
		ID: id, ProducerID: v.ProducerID, Previous: v.PreviousProducerID, Next: v.NextProducerID, Epoch: v.ProducerEpoch, LastEpoch: NoEpoch,
		TimeoutMs: v.TransactionTimeoutMs, Status: Status(v.TransactionStatus),
		StartMs: v.TransactionStartTimestampMs, UpdateMs: v.TransactionLastUpdateTimestampMs, Version: v.ClientTransactionVersion,
	}
	if t.Status < Empty || t.Status > CompleteAbort {
		return nil, fmt.Errorf("transactional id %q: there is no state %d", id, t.Status)
	}
	if t.Status == Empty {
		return t, nil
	}
	for _, tp := range v.TransactionPartitions {
		for _, p := range tp.PartitionIDs {
			t.Partitions = append(t.Partitions, TopicPartition{tp.Topic, p})
		}
	}
	slices.SortFunc(t.Partitions, compare)
	t.Partitions = slices.Compact(t.Partitions)
	return t, nil
}
