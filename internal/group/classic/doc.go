// Package classic is the rules of one classic group (the rebalance protocol of
// JoinGroup and SyncGroup): who is a member, when a rebalance begins and ends,
// who leads, and what is written down.
//
//	          first member joins                  all have joined, or the time is up
//	Empty ──────────────────────▶ PreparingRebalance ──────────▶ CompletingRebalance
//	  ▲                             │    ▲                          │ the leader has sent the
//	  │ nobody joined               │    │ somebody comes or goes   ▼ assignment, and it is committed
//	  └─────────────────────────────┘    └──────────────────────── Stable
//
// A Group is soft state: what survives is [records.GroupMetadataValue], written
// when a rebalance has been completed (and when a group is made). A group is
// made again from that with [Load]; members that were about to join are lost, as
// in Kafka, and join again.
//
// Methods are steps: they get the time and the dice in a [Step], and what must be
// answered, written or logged is put there too. A request whose answer has to
// wait (JoinGroup and SyncGroup) is kept as its [Waiting] and answered by a
// later step. Nothing here blocks, starts anything, or knows a clock.
package classic
