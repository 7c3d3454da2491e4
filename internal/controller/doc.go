// Package controller decides for the whole cluster: who is registered and alive, who leads each partition, which topics and
// settings exist. It is the logic of Apache Kafka's QuorumController without its threads: each method takes a request and
// the present state and returns the records to append and the answer to give once they are committed.
//
//	request ─┐
//	         ├─ Core.Method(Step, request) ─→ Result{Records, Response}   the caller appends the records, applies them to
//	image  ──┘                                                          its image at once, and answers after the commit
//
// Nothing but a record changes the replicated state, so the methods only read the [image.Image] of the Step, which holds
// everything appended so far, committed or not. What Kafka does not persist either (broker sessions, metadata offsets reported in
// heartbeats, timers) lives in the struct soft and starts anew when a node becomes the active controller ([Core.Activate]).
//
// Where records go by the finalized metadata.version, Features of the image decides. Error codes and texts are Kafka's.
//
// Files: brokers.go and heartbeat.go (registration, sessions), change.go (the rules by which a partition changes),
// elections.go, alterpartition.go, topics.go, partitions.go, configs.go, features.go, directories.go, producerids.go, tick.go,
// activate.go.
package controller
