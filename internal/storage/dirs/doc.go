// Package dirs keeps the log directories of one node (log.dirs): whose they are, which logs stand in them, and what is
// checkpointed about those logs. It is Kafka's LogManager and the broker's half of MetaPropertiesEnsemble.
//
//	LOGDIR/
//	  .lock                              held while the process runs; also excludes an Apache Kafka
//	  meta.properties                    cluster, node and directory id: checked by Open
//	  .kafka_cleanshutdown               written by Close, consumed by Load
//	  recovery-point-offset-checkpoint   written by WriteRecoveryPoints
//	  log-start-offset-checkpoint        written by WriteLogStarts
//	  replication-offset-checkpoint      written by WriteHighWatermarks
//	  cleaner-offset-checkpoint          written by SetCleaned
//	  .weir-session                      a hint of our own for a faster recovery, see hintFile
//	  .weir-holders                      in the metadata directory: which broker incarnations have held it, see holdersFile
//	  TOPIC-N/                           a partition's log: opened by Load, made by Create
//	  TOPIC-N.UUID-future/               a copy on its way from another directory: opened by Load
//	  TOPIC-N.UUID-delete/               removed after file.delete.delay.ms
//	  TOPIC-N.UUID-stray/                a log that no metadata knows: kept for the operator
//	  anything else                      left alone
//
// The life of a Set: Open takes the locks and checks identities, Load opens the logs, the owner calls the checkpoint
// writers and Tick from its own ticker, Close stops cleanly. A Set starts goroutines only inside Load and Close, and they
// are gone when those return.
//
// # What goes offline
//
// A corrupt log takes its partition offline and nothing else (Failures). A failed disk operation takes its directory
// offline: its logs leave the registry, the owner is told once (Options.Offline), the other directories go on. A full
// disk takes nothing offline.
package dirs
