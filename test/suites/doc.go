// Package suites runs test suites that others wrote against Weir: franz-go's own tests, and Apache Kafka's integration
// tests of requests, of its Java clients and of partition reassignment. Their scripts are not part of this repository;
// the tests are skipped where those are not found.
//
// For each suite a list NAME.pass is kept of what passes on Weir. It only grows: a listed test that fails is a failure
// here, and a test that passes and is not listed is reported. WEIR_SUITES_ADD=1 writes such names into the list (after
// a look: only what passes reliably belongs there, and only what passes on Apache Kafka is ever added).
//
// The short run is a part of franz-go's suite (half a minute, and only if it was built by a full run before);
// WEIR_FULL=1 runs everything (half an hour) and writes test/results/suites-NAME.json.
//
// Environment: WEIR_SUITES (the folder of the scripts; ../shared/suites from the repository root otherwise),
// WEIR_SUITES_LOGS (a folder that keeps logs and results), SUITES_HOME (where the scripts keep what they download;
// ~/.cache/suites otherwise), WEIR_BIN and WEIR_FULL as in package testnode.
package suites
