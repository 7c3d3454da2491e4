package batch

// Options are the header fields of a batch to build. NewOptions gives the values of a batch without a producer.
type Options struct {
	Codec         Codec
	Level         int
	BaseOffset    int64
	LeaderEpoch   int32
	ProducerID    int64
	ProducerEpoch int16
	BaseSequence  int32
	TimestampType TimestampType
	LogAppendMs   int64 // MaxTimestamp when TimestampType is LogAppendTime
	Transactional bool
	Control       bool
}

// NewOptions are the options of a plain batch at offset 0: no producer, no leader epoch, no compression.
func NewOptions() Options {
	return Options{Level: LevelDefault, LeaderEpoch: NoLeaderEpoch, ProducerID: NoProducerID, ProducerEpoch: NoProducerEpoch, BaseSequence: NoSequence}
}

// Builder writes one batch record by record. It is not safe for concurrent use. Compressed output is produced as records
// arrive, so that only the result is held in memory.
type Builder struct {
	opts Options
}

// NewBuilder starts a batch.
func NewBuilder(o Options) *Builder { return &Builder{opts: o} }

// Append adds a record at the next offset.
func (b *Builder) Append(ts int64, key, value []byte, headers []Header) { panic("not built yet") }

// AppendAt adds a record with an offset delta larger than the last one's (compaction leaves holes).
func (b *Builder) AppendAt(delta int32, ts int64, key, value []byte, headers []Header) {
	panic("not built yet")
}

// Len is the length of the batch in bytes so far; with compression an estimate from below.
func (b *Builder) Len() int { panic("not built yet") }

// Count is the number of records so far.
func (b *Builder) Count() int { panic("not built yet") }

// Build completes the batch. The result is owned by the caller. The builder may only be Reset afterwards.
func (b *Builder) Build() Batch { panic("not built yet") }

// Reset starts another batch.
func (b *Builder) Reset(o Options) { panic("not built yet") }
