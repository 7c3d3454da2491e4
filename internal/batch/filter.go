package batch

// Filter says what compaction is to leave of an entry (Kafka's MemoryRecords.filterTo for one batch).
type Filter struct {
	// Keep says whether a record stays. It is asked once for each record, in order; the record lives during the call.
	Keep func(r *Record) bool
	// Empty: a v2 batch of which no record stays becomes an empty batch, which keeps its offsets, producer and sequence.
	// Else nothing is left of it.
	Empty bool
	// Marker: the batch is the marker of a transaction of which nothing else is left, so that it gets a horizon too.
	Marker bool
	// HorizonMs is the delete horizon (KIP-534) that a v2 batch with tombstones, or a Marker, gets when it has none; 0 sets none.
	HorizonMs int64
}

// Filtered is what Filter.Apply has made.
type Filtered struct {
	// Bytes are the new entry: the old bytes when nothing changed, nil when nothing is left, else fresh bytes.
	Bytes      Entry
	Read, Kept int // records
}

// Apply filters an entry. A v2 batch keeps its base offset, last offset, producer, sequence, epoch, codec and timestamp type;
// records keep their offsets. A compressed message of magic 0 or 1 becomes a smaller one of that magic. Errors are those of
// Entry.Records. buf may be nil.
func (f *Filter) Apply(e Entry, buf *Buffers) (Filtered, error) {
	if buf == nil {
		buf = new(Buffers)
	}
	var out Filtered
	keep := buf.keep[:0] // by record; a second pass over the records costs less than holding all of them
	tombstone := false
	for r, err := range e.Records(buf) {
		if err != nil {
			return Filtered{}, err
		}
		k := f.Keep(&r)
		keep = append(keep, k)
		if k {
			out.Kept++
			tombstone = tombstone || r.Value == nil
		}
	}
	out.Read, buf.keep = len(keep), keep
	b, v2 := e.Batch()
	horizon := int64(0)
	if v2 && b.HasDeleteHorizon() {
		horizon = b.BaseTimestamp()
	} else if v2 && (tombstone || f.Marker) && out.Kept > 0 {
		horizon = f.HorizonMs
	}
	switch {
	case out.Kept == 0 && !(v2 && f.Empty):
		return out, nil
	case out.Kept == 0:
		out.Bytes = Entry(b.emptied())
		return out, nil
	case out.Kept == out.Read && (!v2 || b.HasDeleteHorizon() || horizon <= 0):
		out.Bytes = e
		return out, nil
	}
	var err error
	if v2 {
		out.Bytes, err = b.keeping(keep, horizon, buf)
	} else {
		d := down{magic: e.Magic(), kind: e.TimestampType(), codec: e.Codec(), keep: keep}
		err = d.wrapped(e, buf)
		out.Bytes = d.dst
	}
	return out, err
}

// emptied is the batch without records, as Kafka's DefaultRecordBatch.writeEmptyHeader leaves it.
func (b Batch) emptied() Batch {
	o := b.options()
	o.Codec, o.DeleteHorizonMs = None, 0
	out := NewBuilder(o).BuildUpTo(b.LastOffsetDelta())
	out.SetMaxTimestamp(b.TimestampType(), b.MaxTimestamp())
	return out
}

// keeping rebuilds the batch with the records that keep names.
func (b Batch) keeping(keep []bool, horizon int64, buf *Buffers) (Entry, error) {
	o := b.options()
	o.DeleteHorizonMs = max(horizon, 0)
	w := buf.builder(o)
	i, last := 0, int32(-1)
	for r, err := range b.Records(buf) {
		if err != nil {
			return nil, err
		}
		if keep[i] {
			if r.OffsetDelta <= last || r.OffsetDelta > b.LastOffsetDelta() {
				return nil, &CorruptError{Offset: b.BaseOffset(), Reason: "offset deltas of the records do not rise within the batch"}
			}
			last = r.OffsetDelta
			w.AppendAt(r.OffsetDelta, r.Timestamp, r.Key, r.Value, r.Headers)
		}
		i++
	}
	return Entry(w.BuildUpTo(b.LastOffsetDelta())), nil
}

// options are the header fields of a batch, for building another one like it.
func (b Batch) options() Options {
	return Options{
		Codec: b.Codec(), Level: LevelDefault, BaseOffset: b.BaseOffset(), LeaderEpoch: b.LeaderEpoch(),
		ProducerID: b.ProducerID(), ProducerEpoch: b.ProducerEpoch(), BaseSequence: b.BaseSequence(),
		TimestampType: b.TimestampType(), LogAppendMs: b.MaxTimestamp(),
		Transactional: b.IsTransactional(), Control: b.IsControl(),
	}
}
