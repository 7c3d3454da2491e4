// Package coordinator runs a core over the partitions of an internal topic that
// this broker leads: groups over __consumer_offsets, later transactions and share
// state. Whoever leads a partition coordinates what falls on it.
//
//	leader ──▶ loading ──▶ active ──▶ gone
//	           (replay)      │ ▲       (another leads, or the topic is deleted)
//	                         └─┘ the log is not as expected: load again
//
// Each partition has a statemachine.Machine. It has no goroutine: whoever brings
// it something (a request, a moved high watermark, a deadline) also runs it, one
// at a time, and leaves when nothing is left to do. On a broker that waits for no
// other replica a request is therefore decided, appended, committed and answered
// in the goroutine that brought it. An idle partition costs its bare state.
//
// Loading replays the log up to its end as it was when the leadership began, in
// pieces of offsets.load.buffer.size, once all of that is committed. Meanwhile
// requests are refused with [ErrLoading].
//
// # Locks
//
// Runtime.mu guards the set of shards and is held for map work only. A shard is
// run under its own token (see shard.kick), which is no lock: who finds it taken
// leaves a note and goes. partition calls Changed with its locks held, so that
// only takes a note.
package coordinator
