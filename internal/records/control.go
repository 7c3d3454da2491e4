package records

import (
	"encoding/binary"
	"fmt"
)

// Types of control records, the number in their key (Kafka's ControlRecordType).
const (
	ControlAbort          int16 = 0 // EndTxnMarker behind its version
	ControlCommit         int16 = 1 // EndTxnMarker behind its version
	ControlLeaderChange   int16 = 2 // LeaderChangeMessage
	ControlSnapshotHeader int16 = 3 // SnapshotHeaderRecord
	ControlSnapshotFooter int16 = 4 // SnapshotFooterRecord
	ControlKRaftVersion   int16 = 5 // KRaftVersionRecord
	ControlKRaftVoters    int16 = 6 // VotersRecord
)

// EndTxn is a parsed abort or commit marker.
type EndTxn struct {
	Commit           bool
	CoordinatorEpoch int32
}

// UnknownControl is a control record of a type that this program does not know; Kafka passes over those.
type UnknownControl struct {
	Type  int16
	Value []byte // a copy
}

// ControlKey returns the key of a control record of type t:
//
//	int16 version (0) │ int16 type
func ControlKey(t int16) []byte {
	return appendInt16(appendInt16(make([]byte, 0, 4), 0), t)
}

// ControlType returns the type in the key of a control record. A newer version of the key is read as version 0.
func ControlType(key []byte) (int16, error) {
	if len(key) < 4 {
		return 0, fmt.Errorf("control record: a key of %d bytes, at least 4 are needed", len(key))
	}
	if v := int16(binary.BigEndian.Uint16(key)); v < 0 {
		return 0, fmt.Errorf("control record: key version %d", v)
	}
	return int16(binary.BigEndian.Uint16(key[2:])), nil
}

// ControlValue returns the value of an abort or commit marker:
//
//	int16 version (0) │ int32 coordinator epoch
func (e EndTxn) ControlValue() []byte {
	m := EndTxnMarker{CoordinatorEpoch: e.CoordinatorEpoch}
	return m.AppendTo(appendInt16(make([]byte, 0, 6), 0), 0)
}

// ControlKey returns the key that goes with ControlValue.
func (e EndTxn) ControlKey() []byte {
	if e.Commit {
		return ControlKey(ControlCommit)
	}
	return ControlKey(ControlAbort)
}

// ParseControl reads a control record. The result is one of EndTxn, *LeaderChangeMessage, *SnapshotHeaderRecord,
// *SnapshotFooterRecord, *KRaftVersionRecord, *VotersRecord, *UnknownControl. As Kafka does, it reads values as their
// version 0 (their own version field may say more) and passes over what stands behind.
func ParseControl(key, value []byte) (any, error) {
	t, err := ControlType(key)
	if err != nil {
		return nil, err
	}
	var m Message
	switch t {
	case ControlAbort, ControlCommit:
		return parseEndTxn(t, value)
	case ControlLeaderChange:
		m = new(LeaderChangeMessage)
	case ControlSnapshotHeader:
		m = new(SnapshotHeaderRecord)
	case ControlSnapshotFooter:
		m = new(SnapshotFooterRecord)
	case ControlKRaftVersion:
		m = new(KRaftVersionRecord)
	case ControlKRaftVoters:
		m = new(VotersRecord)
	default:
		return &UnknownControl{Type: t, Value: append([]byte(nil), value...)}, nil
	}
	if _, err := m.ReadPrefix(value, 0); err != nil {
		return nil, fmt.Errorf("control record: %w", err)
	}
	return m, nil
}

func parseEndTxn(t int16, value []byte) (any, error) {
	if len(value) < 2 {
		return nil, fmt.Errorf("control record: a transaction marker of %d bytes", len(value))
	}
	if v := int16(binary.BigEndian.Uint16(value)); v < 0 {
		return nil, fmt.Errorf("control record: transaction marker version %d", v)
	}
	var m EndTxnMarker
	if _, err := m.ReadPrefix(value[2:], 0); err != nil {
		return nil, fmt.Errorf("control record: %w", err)
	}
	return EndTxn{Commit: t == ControlCommit, CoordinatorEpoch: m.CoordinatorEpoch}, nil
}
