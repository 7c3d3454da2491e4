package batch

// Origin says who appends (Kafka's AppendOrigin). Clients are trusted least.
type Origin uint8

// The origins. Replication is not validated here: a follower only checks CRCs and offsets.
const (
	Client Origin = iota
	Coordinator
	RaftLeader
)

// Policy is what a topic and the moment allow. It is not changed by Validate and may be shared.
type Policy struct {
	Topic     string // for error texts
	Partition int32
	Origin    Origin
	Now       int64 // ms; LogAppendTime's timestamp
	// TimestampType, BeforeMaxMs, AfterMaxMs: message.timestamp.type and its bounds, in ms; negative means no bound.
	TimestampType TimestampType
	BeforeMaxMs   int64
	AfterMaxMs    int64
	Compacted     bool // keyless records are refused
	Target        Target
	// MaxBatch is max.message.bytes: it limits the batch as sent and as stored. 0 means no limit.
	MaxBatch int32
}

// Target is compression.type: keep the producer's, or recompress.
type Target struct {
	Recompress bool // false: "producer"
	Codec      Codec
	Level      int // in the codec's own scale; LevelDefault for Kafka's default
}

// Checked is what Validate found.
type Checked struct {
	Batch Batch // what to append: the given batch (perhaps with a new header), or fresh bytes when Recompressed
	Count int
	// MaxTimestamp in ms; OffsetOfMaxTimestamp is the delta, from the base offset, of the record that ListOffsets(MAX_TIMESTAMP) shall find.
	MaxTimestamp              int64
	OffsetDeltaOfMaxTimestamp int32
	Recompressed              bool
}

// Validate checks one produced batch as Kafka's UnifiedLog.analyzeAndValidateRecords and LogValidator do, sets the
// timestamp type and maximum of the topic in the header (LogAppendTime changes only the header), and recompresses if the
// topic demands another codec. Base offset and leader epoch remain to be patched by the append.
// Errors: *InvalidRecordError with code and record errors; *CorruptError (CORRUPT_MESSAGE).
func Validate(b Batch, p *Policy, buf *Buffers) (Checked, error) { panic("not built yet") }
