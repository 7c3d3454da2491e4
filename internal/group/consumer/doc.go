// Package consumer is the rules of one consumer group (the rebalance protocol of
// KIP-848): the broker assigns the partitions, and brings each member step by step
// from what it has to what it shall have.
//
// A [Group] is replicated state: a value that is never changed, made anew by
// [Group.Apply] from records. A request looks at it and puts into a [Step] the
// records to append, timers to set, and lines for the log.
//
// # Epochs
//
//	group epoch       bumped when members, subscriptions or their topics change
//	assignment epoch  the group epoch for which the target assignment was computed
//	member epoch      the assignment epoch to which a member has been brought
//
// So a group is Assigning while its assignment epoch is behind its group epoch, and
// Reconciling while a member is behind the assignment epoch (or has not got all):
//
//	Stable ──target has changed, something is to be given up──▶ UnrevokedPartitions
//	  ▲  │                                                         │ the member does not own it any more
//	  │  └──nothing is to be given up──┐                           │
//	  │                                ▼                           ▼
//	  └──all partitions are free── UnreleasedPartitions ◀──others still have some of the new ones
//
// A partition comes to its new owner only when the old one does not name it any more
// in its heartbeats; [Group] knows the epoch at which each partition is owned.
//
// # Records
//
//	key                                        value, null: gone
//	3   ConsumerGroupMetadata                  group epoch, hash of the subscribed topics
//	4   ConsumerGroupPartitionMetadata         of versions before 4.1: replaced by that hash
//	5   ConsumerGroupMemberMetadata            a member, and what it subscribes to
//	6   ConsumerGroupTargetAssignmentMetadata  assignment epoch
//	7   ConsumerGroupTargetAssignmentMember    what a member shall have
//	8   ConsumerGroupCurrentMemberAssignment   what a member has, and its epoch
//	16  ConsumerGroupRegularExpression         the topics behind a regular expression
//
// # Members of the classic protocol
//
// While a group is migrated it has members that still use JoinGroup, SyncGroup and
// Heartbeat (classicmember.go): their generation is their member epoch, they are
// told to rejoin when they are to give up or to get partitions, and the broker
// assigns to them as to all others. Converting groups is package group's.
package consumer
