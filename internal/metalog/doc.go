// Package metalog is the cluster's metadata log: the quorum of package kraft
// over the storage log of __cluster_metadata-0, its quorum-state file and its
// snapshots.
//
// Users append records while this node leads and are told of committed records
// through a [Listener], on whichever node they run. Nothing is committed before
// it is on the disks of a majority of the voters: a voter acknowledges only what
// it has flushed.
//
// # On disk
//
//	<dir>/bootstrap.checkpoint                     records for the very first start
//	<dir>/__cluster_metadata-0/
//	    partition.metadata                         topic id 00…01
//	    quorum-state                               epoch, leader, vote; fsynced before use
//	    00000000000000000000.log .index .timeindex segments, as of any Kafka log
//	    leader-epoch-checkpoint
//	    00000000000000000000-0000000000.checkpoint the first voters (kraft.version 1)
//	    OFFSET-EPOCH.checkpoint                    snapshots: 20 and 10 digits
//	    OFFSET-EPOCH.checkpoint*.part, .deleted    being written, being removed
//
// A snapshot OFFSET-EPOCH holds the state that all records below OFFSET made,
// Epoch being that of the last of them: record batches numbered from 0, first a
// control batch with SnapshotHeader (and KRaftVersion and KRaftVoters at
// kraft.version 1), then the records, last a control batch with SnapshotFooter.
//
// # Running
//
// [Log.Poll] does whatever is due and says when it wants to be called again;
// [Log.Run] is the loop around it. While one flush runs, appends pile up in the
// page cache and the next flush takes them all: group commit without a delay.
package metalog
