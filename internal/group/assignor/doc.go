// Package assignor distributes partitions over the members of a consumer group as
// Apache Kafka's server-side assignors do (KIP-848): for the same input the result
// is the same, member by member. That needs the orders in which Kafka iterates its
// hash tables (package hashorder).
//
//	uniform  balanced, and as few partitions as possible change hands; if all
//	         members subscribe to the same topics, see uniform.go, else mixed.go
//	range    each topic by itself, in ranges, so that equal partitions of several
//	         topics come to one member
package assignor
