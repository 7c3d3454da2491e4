// Package cluster tests Weir's own binary as a real process: kill -9 under load, stops, full disks, damaged files, wrong
// configurations, hostile peers, compaction under load. The nodes are those of package testnode.
//
// WEIR_FULL=1 runs all rounds and the race detector's, and writes test/results/soak.json, soak-groups.json
// and soak-compaction.json.
package cluster
