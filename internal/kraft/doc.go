// Package kraft is the consensus of KRaft (KIP-595, KIP-853, KIP-996) as a
// state machine that is stepped.
//
// A [Core] is one replica of the quorum's log: a voter or an observer. It owns
// no disk, clock, socket or dice. The driver (package metalog) hands it events
// and the time, and does what the returned [Ready] says:
//
//	ready := core.Step(nowMs, event)
//
// What a Ready asks for is done in the order of its fields. The one rule that
// safety rests on: QuorumState is durable before anything after it leaves the
// process. A vote, an epoch or a candidacy that others could learn of is never
// forgotten by a power cut, so no replica votes twice in an epoch.
//
// The core keeps an outline of the log (where it starts and ends, which leader
// epoch began where, how much is flushed) and never sees a record. The driver
// reports what it appends on its own account with [Appended], and what is on
// the disk for good with [Flushed].
//
// # Roles
//
//	unattached   knows the epoch but no leader; may have voted
//	follower     knows the leader and fetches from it
//	prospective  asks for pre-votes, without touching its epoch
//	candidate    has voted for itself in a new epoch and asks for votes
//	leader       appends; moves the high watermark
//	resigned     led this epoch and no longer does
//
// An observer is a replica outside the voter set: unattached or follower, never
// more. One voter alone is the same machine: its own vote is a majority, so it
// goes from start to leader in one step, with a new epoch at each start.
//
// # When a record is committed
//
// The high watermark is the largest offset that a majority of the voters has
// flushed, and it moves only once it passes the start of the leader's own
// epoch: the leader appends a LeaderChange record there for that purpose.
package kraft
