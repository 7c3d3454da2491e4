package batch

// UpConvert validates a produced message set of magic 0 or 1 (plain messages, or compressed wrappers) and makes one v2 batch of it,
// as Kafka does for Produce v0–v2. The result is fresh bytes, validated by p (timestamps, keys, size) and compressed as p.Target says.
// Errors as Validate.
func UpConvert(messageSet []byte, p *Policy, buf *Buffers) (Checked, error) { panic("not built yet") }

// DownConvert appends b as messages of the given magic (0 for Fetch v0–v1, 1 for v2–v3) to dst. Control batches append nothing;
// a compressed batch becomes one compressed wrapper; headers are lost. A zstd batch cannot be: *InvalidRecordError with
// UNSUPPORTED_COMPRESSION_TYPE.
func DownConvert(dst []byte, b Batch, magic int8, buf *Buffers) ([]byte, error) {
	panic("not built yet")
}
