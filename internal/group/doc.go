// Package group is the group coordinator's core for one partition of
// __consumer_offsets: the groups and committed offsets whose group ids fall on
// that partition.
//
// [State] is what is replicated: a value that is never changed, made anew by
// [State.Apply] from the partition's records, live and at restart alike. [Core]
// has the requests: each method looks at the state and at what is not replicated
// (soft: groups with their members' sessions, see packages group/classic and group/consumer) and
// returns a [Result]: records to append, and answers to give once they are
// committed. It changes nothing of the state itself.
//
// # Records
//
// Keys start with their type, values with their version, both int16:
//
//	key                      value
//	0, 1  OffsetCommitKey    OffsetCommitValue v4, or v1 with an expiry of its own; null: no offset any more
//	2     GroupMetadataKey   GroupMetadataValue v3; null: no such group any more
//	3–8, 16  consumer groups of KIP-848: see package group/consumer
//	9 …   share and streams groups, which are not served yet: their records stay as they are
//
// A group is of one kind at a time: it becomes the other one by tombstones of what
// it was, and records of what it is now, in one step.
//
// Offsets committed in a transaction stand in batches with a producer id, and
// count when the transaction's marker says commit.
package group
