// Package sim runs a whole Weir cluster in one goroutine, by seed: the same seed is the
// same run, to the byte. It is proof, not product: nothing imports it.
//
//	seed ─▶ Settings, dice
//	World: one clock, one queue of events
//	  node.go     a node: metalog, quorum, controller core, replication, logs — the real
//	              ones, stepped — on a memfs that can lose power, behind an errfs
//	  network.go  connections: what is sent on one arrives in order or not at all; a
//	              connection can be cut at any point, so an answer may be lost and its
//	              request be asked again; pairs of nodes can be parted
//	  serve.go    what a node does with a request
//	  member.go   registration and heartbeats
//	  clients.go  producers, and consumers that read below the high watermark
//	  faults.go   crashes, power cuts, partings, pauses, failing disks
//	  check.go    what must hold after every step; meta.go: of the metadata log
//
// # What stands in for the product
//
// Three things are this package's own, because theirs block a goroutine each: the answering
// of Fetch and Produce (package api; here without sessions, the reads and appends of
// package partition are the same), registration and heartbeats (package lifecycle; the
// requests and the controller's side are the same), and the connections (packages peer
// and network).
//
// # Running
//
//	go test ./internal/sim                          fixed seeds and a few fresh ones
//	make sim                                        2,000 seeds and how often what happened
//	go test ./internal/sim -run TestSeed -seed 77 -v   one seed again, with its log
//	make sim-mutations                              plants the bugs of mutations.txt and finds them
package sim
