// Package checkpoint reads and writes the small files of a log directory, byte for byte as Apache Kafka does:
//
//	LOGDIR/
//	  meta.properties                    MetaProperties: whose directory this is (cluster, node, directory id)
//	  .kafka_cleanshutdown               CleanShutdown: the last stop was clean, at this broker epoch
//	  recovery-point-offset-checkpoint   Offsets: below it a partition's log is known to be on disk
//	  log-start-offset-checkpoint        Offsets: log start offsets that are not simply the first segment
//	  replication-offset-checkpoint      Offsets: high watermarks
//	  cleaner-offset-checkpoint          Offsets: where compaction goes on
//	  TOPIC-N/
//	    partition.metadata               PartitionMetadata: the topic id
//	    leader-epoch-checkpoint          []EpochEntry: where each leader epoch starts
//	  __cluster_metadata-0/
//	    quorum-state                     QuorumState: vote and leader of the metadata quorum
//
// Every Write… goes through a temporary file (NAME.tmp), is synced and renamed, so that a reader sees the old or the new
// content. Every Read… returns an error that wraps fs.ErrNotExist for a missing file, and an *Error that names file and
// line for a damaged one; it never allocates more than a small multiple of the file's size.
package checkpoint

import (
	"fmt"
	"strings"

	"weir/internal/vfs"
)

// Names of the files, as Kafka spells them.
const (
	RecoveryPointFile = "recovery-point-offset-checkpoint"
	LogStartFile      = "log-start-offset-checkpoint"
	HighWatermarkFile = "replication-offset-checkpoint"
	CleanerOffsetFile = "cleaner-offset-checkpoint"
	LeaderEpochFile   = "leader-epoch-checkpoint"
	MetaFile          = "meta.properties"
	PartitionFile     = "partition.metadata"
	CleanShutdownFile = ".kafka_cleanshutdown"
	QuorumStateFile   = "quorum-state"
)

// Error is a damaged file. The caller decides whether it is rebuilt (offsets, epochs) or stops the directory
// (meta.properties, quorum-state).
type Error struct {
	Path string
	Line int // from 1; 0 when the fault is in no single line
	Err  error
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %v", e.Path, e.Err)
	}
	return fmt.Sprintf("%s:%d: %v", e.Path, e.Line, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// excerpt quotes a part of a damaged line that is short enough for a log.
func excerpt(line string) string {
	const most = 80
	if len(line) > most {
		return fmt.Sprintf("%q…", line[:most])
	}
	return fmt.Sprintf("%q", line)
}

// readLines returns the lines of a file without their line ends; a last line may lack its own.
func readLines(fsys vfs.FS, path string) ([]string, error) {
	data, err := vfs.ReadFile(fsys, path)
	if err != nil {
		return nil, err
	}
	if len(data) == 0 {
		return nil, nil
	}
	text := strings.TrimSuffix(string(data), "\n")
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		lines[i] = strings.TrimSuffix(l, "\r")
	}
	return lines, nil
}
