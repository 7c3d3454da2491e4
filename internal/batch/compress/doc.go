// Package compress has the five compressions of record batches as pooled streams, in the framings that Kafka clients write.
package compress
