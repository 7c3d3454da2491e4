// Package clients lets the client libraries that people use talk to Weir: today's, and old ones that Apache Kafka 4 turns
// away. What goes in must come out byte for byte, and consumer groups must live through whatever happens to them.
//
// Each library is led through the life of a group (live, in group_test.go) by a program of its own in testdata: two members,
// a third that joins, one that leaves, kill -9 of the node, one that resumes. The long form runs the same script on Apache
// Kafka: 4.3.1 where that serves the client, 3.9.2 otherwise.
//
// kcat, Node.js, Maven, a C compiler and Python come with the system's packages; the libraries are installed by the tests,
// pinned to a version, below SUITES_HOME or the user's cache folder. A test whose client is missing is skipped and says how
// to get it; in CI it fails. WEIR_FULL=1 runs all forms of all clients with more records and writes
// test/results/clients.json and clients-groups.json.
package clients
