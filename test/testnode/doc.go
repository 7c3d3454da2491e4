// Package testnode runs nodes as real processes for the tests under test/: Weir's own binary, or the real Apache Kafka
// (the oracle), on free loopback ports in a temporary directory.
//
// A Node is a directory, a server.properties and two ports that stay the same for its life. It is formatted once, then
// started, stopped and killed at will, by either system: Become switches what the next Start runs, which is how the
// tests move one directory between Weir and Apache Kafka. Nothing sleeps: Start returns when the node answers as an
// unfenced broker, Stop and Kill when the process has gone.
//
// Environment: WEIR_BIN (the binary to test; built from this checkout otherwise), WEIR_ORACLE (the script that runs
// Apache Kafka and its tools; ../shared/oracle/kafka from the repository root otherwise; tests that need it are skipped
// when it is not there), WEIR_FULL=1 (long runs), WEIR_KEEP=1 (keep the directories of the nodes).
package testnode
