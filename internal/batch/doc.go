// Package batch reads, checks, builds and converts the units in which Kafka stores and sends records.
//
// Since 0.11 that unit is the record batch v2 (magic 2):
//
//	offset  size  field
//	     0     8  base offset             patched by the leader's append, outside the CRC
//	     8     4  length                  of all that follows
//	    12     4  partition leader epoch  patched by the leader's append, outside the CRC
//	    16     1  magic                   2
//	    17     4  CRC-32C                 of all that follows
//	    21     2  attributes              bits 0-2 codec, 3 LogAppendTime, 4 transactional, 5 control, 6 delete horizon
//	    23     4  last offset delta
//	    27     8  base timestamp          ms; the delete horizon when bit 6 is set
//	    35     8  max timestamp           ms
//	    43     8  producer id             -1 none
//	    51     2  producer epoch          -1 none
//	    53     4  base sequence           -1 none
//	    57     4  record count
//	    61     …  records, compressed together by the codec
//
// A record is a zigzag varint length, then attributes (int8), timestamp delta (varlong), offset delta (varint), key length and key,
// value length and value (-1 is null), header count, and headers of key length, key, value length, value.
//
// Before that, logs and requests held message sets of messages of magic 0 or 1, where a compressed set is the value of a wrapper
// message:
//
//	offset 8, size 4, CRC-32 4, magic 1, attributes 1, (magic 1: timestamp 8), key length 4, key, value length 4, value
//
// Files by subject: batch.go the v2 view; record.go its records; builder.go; validate.go what a leader checks on produce;
// entry.go one view over all three magics, for logs that hold old entries; message.go magic 0 and 1; upconvert.go and
// downconvert.go for old clients; filter.go what compaction leaves; buffers.go pooled scratch memory. Package compress has the codecs.
//
// All input is foreign: nothing panics on it, and nothing is allocated by a length that was not first compared with bytes that
// are really there. Compressed data is read as a stream, so that a small batch that inflates hugely costs no memory.
package batch
