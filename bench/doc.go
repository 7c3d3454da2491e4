// Package bench puts the same load on Weir and on the real Apache Kafka, one after the other on one machine, and compares
// what it costs them. `make bench` runs it; bench_test.go holds its flags, and the small form that keeps it from rotting.
//
//	run.go         the scenarios of a run, system by system
//	report.go      rows, ratios, goals; the table and test/results/bench.json
//	system.go      a System under test: start, stop, kill, where it listens, its processes
//	trio.go        three nodes that form a cluster;  probe.go  how long writing stands still when one goes
//	proc.go        CPU time and resident memory of those processes, from /proc
//	conn.go        one connection that speaks the protocol; topics, leaders, offsets
//	batches.go     the record batches that are sent, made once
//	produce.go     producers;  fetch.go  consumers
//	warm.go        rounds of one load until it costs the same twice
//	scenario_*.go  what is measured, one file a scenario
//
// The load generator is lean: batches are made (and compressed) before the clock runs, and a connection only patches
// sequence numbers and CRCs into them, so that on a small machine the client does not take the CPU that is to be measured.
// It behaves as clients do: idempotent producers with five requests in flight, consumers with fetch sessions.
//
// What a broker costs is user and system CPU time of its processes per GB (1e9 bytes of keys and values as the
// application sees them, before compression). It hardly depends on how fast the client or the disk is.
//
// Both systems run with the same server.properties (see Properties) and their own defaults otherwise; neither fsyncs what
// it appends. Apache Kafka runs with the oracle's heap (three nodes: with that of its start script), the C2 compiler and no
// class data archive.
//
// Another scenario is a file with a Scenario in it, entered in Scenarios. It gets its System from Bench.Start, or from
// startTrio when it wants three nodes.
package bench
