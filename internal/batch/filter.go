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
	// HorizonMs is the delete horizon (KIP-534) that a batch with tombstones, or a Marker, gets when it has none; 0 sets none.
	HorizonMs int64
}

// Filtered is what Filter.Apply has made.
type Filtered struct {
	// Bytes are the new entry: the old bytes when nothing changed, nil when nothing is left, else fresh bytes.
	Bytes      Entry
	Read, Kept int // records
}

// Apply filters an entry. A v2 batch keeps its base offset, last offset, producer, sequence, epoch, codec and timestamp type;
// records keep their offsets. What stays of a message of magic 0 or 1 becomes a v2 batch of the same codec, from the first
// to the last of its records. Errors are those of Entry.Records, and *CorruptError for offsets that do not rise. buf may be
// nil.
func (f *Filter) Apply(e Entry, buf *Buffers) (Filtered, error) {
	if buf == nil {
		buf = new(Buffers)
	}
	var out Filtered
	keep := buf.keep[:0]                // by record; a second pass over the records costs less than holding all of them
	tombstone, first := false, int64(0) // of those that stay
	for r, err := range e.Records(buf) {
		if err != nil {
			return Filtered{}, err
		}
		k := f.Keep(&r)
		keep = append(keep, k)
		if k {
			if out.Kept++; out.Kept == 1 {
				first = r.Offset
			}
			tombstone = tombstone || r.Value == nil
		}
	}
	out.Read, buf.keep = len(keep), keep
	b, v2 := e.Batch()
	had := v2 && b.HasDeleteHorizon()
	horizon := int64(0)
	if had {
		horizon = b.BaseTimestamp()
	} else if tombstone || f.Marker {
		horizon = max(f.HorizonMs, 0)
	}
	switch {
	case out.Kept == 0 && v2 && f.Empty:
		out.Bytes = Entry(b.emptied())
		return out, nil
	case out.Kept == 0:
		return out, nil
	case v2 && out.Kept == out.Read && (had || horizon == 0):
		out.Bytes = e
		return out, nil
	}
	o := NewOptions()
	if v2 {
		o = b.options()
	} else {
		o.Codec, o.TimestampType, o.LogAppendMs = e.Codec(), e.TimestampType(), e.MaxTimestamp()
		if o.TimestampType == NoTimestampType {
			o.TimestampType = CreateTime
		}
		o.BaseOffset = first
	}
	o.DeleteHorizonMs = horizon
	var err error
	out.Bytes, err = e.keeping(keep, o, buf)
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

// keeping builds a batch of the records that keep names.
func (e Entry) keeping(keep []bool, o Options, buf *Buffers) (Entry, error) {
	w := buf.builder(o)
	i, last := 0, o.BaseOffset-1
	for r, err := range e.Records(buf) {
		if err != nil {
			return nil, err
		}
		if keep[i] {
			if r.Offset <= last || r.Offset > e.LastOffset() {
				return nil, &CorruptError{Offset: o.BaseOffset, Reason: "offsets of the records do not rise within the batch"}
			}
			last = r.Offset
			w.AppendAt(int32(r.Offset-o.BaseOffset), r.Timestamp, r.Key, r.Value, r.Headers)
		}
		i++
	}
	if b, v2 := e.Batch(); v2 {
		return Entry(w.BuildUpTo(b.LastOffsetDelta())), nil
	}
	return Entry(w.Build()), nil
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
