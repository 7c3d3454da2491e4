package producer

import "math"

// Values that Kafka writes for "none".
const (
	NoID       int64 = -1
	NoEpoch    int16 = -1
	NoSequence int32 = -1
	NoOffset   int64 = -1
)

// window is how many batches of each producer are remembered
// (ProducerStateEntry.NUM_BATCHES_TO_RETAIN), which is also why a producer may
// have at most five requests in flight.
const window = 5

// BatchMeta is one remembered batch of a producer.
type BatchMeta struct {
	LastSequence int32
	OffsetDelta  int32 // last offset - first offset
	LastOffset   int64
	Timestamp    int64 // max timestamp of the batch, ms
}

// FirstSequence is the sequence of the batch's first record; sequences wrap
// from 2^31-1 to 0.
func (m BatchMeta) FirstSequence() int32 { return decrementSequence(m.LastSequence, m.OffsetDelta) }

// FirstOffset is the offset of the batch's first record.
func (m BatchMeta) FirstOffset() int64 { return m.LastOffset - int64(m.OffsetDelta) }

func decrementSequence(seq, by int32) int32 {
	if seq < by {
		return math.MaxInt32 - (by - seq) + 1
	}
	return seq - by
}

// Entry is the state of one producer id (Kafka's ProducerStateEntry). It is a
// plain value: copying it copies the batches.
type Entry struct {
	ProducerID       int64
	LastTimestamp    int64 // ms, of the last batch or marker; decides expiry
	TxnFirstOffset   int64 // first offset of the open transaction, NoOffset when none
	CoordinatorEpoch int32 // of the last transaction marker, -1 when none
	Epoch            int16

	// Invariant: 0 <= count <= window; batches[:count] are oldest first and
	// all of Epoch.
	count   uint8
	batches [window]BatchMeta
}

// newEntry is a producer of which nothing is known.
func newEntry(id int64) Entry {
	return Entry{ProducerID: id, LastTimestamp: -1, TxnFirstOffset: NoOffset, CoordinatorEpoch: -1, Epoch: NoEpoch}
}

// Batches returns the remembered batches, oldest first. The slice shares the
// entry's memory.
func (e *Entry) Batches() []BatchMeta { return e.batches[:e.count] }

// Empty reports that no batch is remembered (only markers were seen).
func (e *Entry) Empty() bool { return e.count == 0 }

// LastSequence is the sequence of the last record, NoSequence when none.
func (e *Entry) LastSequence() int32 {
	if e.count == 0 {
		return NoSequence
	}
	return e.batches[e.count-1].LastSequence
}

// LastOffset is the offset of the last record, NoOffset when none.
func (e *Entry) LastOffset() int64 {
	if e.count == 0 {
		return NoOffset
	}
	return e.batches[e.count-1].LastOffset
}

// LastOffsetDelta is the offset delta of the last batch, 0 when none.
func (e *Entry) LastOffsetDelta() int32 {
	if e.count == 0 {
		return 0
	}
	return e.batches[e.count-1].OffsetDelta
}

// duplicate finds the remembered batch with exactly these sequences.
func (e *Entry) duplicate(epoch int16, firstSeq, lastSeq int32) (BatchMeta, bool) {
	if epoch != e.Epoch {
		return BatchMeta{}, false
	}
	for _, m := range e.Batches() {
		if m.LastSequence == lastSeq && m.FirstSequence() == firstSeq {
			return m, true
		}
	}
	return BatchMeta{}, false
}

// setEpoch forgets the batches of an older epoch.
func (e *Entry) setEpoch(epoch int16) {
	if e.Epoch != epoch {
		e.count = 0
		e.Epoch = epoch
	}
}

func (e *Entry) addBatch(epoch int16, m BatchMeta) {
	e.setEpoch(epoch)
	if e.count == window {
		copy(e.batches[:], e.batches[1:])
		e.count--
	}
	e.batches[e.count] = m
	e.count++
	e.LastTimestamp = m.Timestamp
}

// merge takes over what an append has staged: the staged entry holds only the
// batches of this append, the others are kept.
func (e *Entry) merge(staged *Entry) {
	e.setEpoch(staged.Epoch)
	for _, m := range staged.Batches() {
		e.addBatch(staged.Epoch, m)
	}
	e.CoordinatorEpoch = staged.CoordinatorEpoch
	e.TxnFirstOffset = staged.TxnFirstOffset
	e.LastTimestamp = staged.LastTimestamp
}
