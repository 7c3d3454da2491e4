// Package assignor distributes partitions over the members of a consumer group as
// Apache Kafka's server-side assignors do (KIP-848): for the same input the result
// is the same, member by member. That needs the orders in which Kafka iterates its
// hash tables (package hashorder).
//
// Both give each partition of a topic to exactly one of its subscribers.
//
// uniform looks at how many partitions a member has of all topics:
//   - If all subscribe to the same topics, these numbers differ by at most 1. A member
//     loses a partition only when it has more than its part (uniform.go).
//   - Otherwise no owner of a partition has more than one partition more than another
//     who could have that one, unless 16 visits of each topic do not suffice for that.
//     Partitions that have no owner are dealt first, and then as many are moved as it
//     takes (mixed.go).
//
// range looks at each topic by itself: its subscribers get one range of partitions
// each, whose lengths differ by at most 1 and the longer of which come first. The
// order of members is the same for every topic, so that partitions with the same
// number come together at one member if the topics are equally large and have the
// same subscribers. What members had before does not matter (ranges.go).
package assignor
