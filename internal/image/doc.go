// Package image is the one model of the cluster: what the records of __cluster_metadata, replayed in order, say.
//
// An [Image] is immutable. Readers keep a pointer to one and never lock. A [Delta] starts from an image, takes records
// with [Delta.Replay] and ends in the next image with [Delta.Apply]; both share everything that did not change, so that one
// changed partition costs O(log n) in time and memory, however many partitions the cluster has. The delta also remembers what
// changed, which is what a broker acts on.
//
// The controller holds the newest appended image, brokers hold committed ones: the type is the same. A [Loader] turns
// committed batches into published images and keeps a metadata transaction (BeginTransactionRecord … EndTransactionRecord,
// KIP-868) invisible until it has ended.
//
// [Image.Records] writes the whole state as a snapshot, in the order in which Apache Kafka writes its own. Records that
// Weir does not serve yet (ACLs, quotas, SCRAM credentials, delegation tokens, record types it has never heard of) are kept
// as they came and are written back, so that no snapshot loses anything.
//
// The package is pure: no clock, no lock, no I/O.
package image
