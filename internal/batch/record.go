package batch

// Record is one record of a batch. Key, Value and Headers alias the batch or, if compressed, a buffer that the
// next step of the iteration overwrites: copy what must stay.
type Record struct {
	OffsetDelta    int32
	TimestampDelta int64
	Offset         int64
	Timestamp      int64  // ms; the batch's MaxTimestamp with LogAppendTime
	Key, Value     []byte // nil is null, empty is empty
	Headers        []Header
	Attributes     int8 // unused by Kafka so far
}

// Header is one record header; Value nil is null.
type Header struct {
	Key   string
	Value []byte
}

// Records iterates the records. An error (a *CorruptError or *InvalidRecordError) is the last thing yielded. buf
// may be nil, at the price of fresh decompressor state; it must not be used elsewhere during the iteration.
func (b Batch) Records(buf *Buffers) func(yield func(Record, error) bool) { panic("not built yet") }
