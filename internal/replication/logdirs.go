package replication

import (
	"cmp"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"

	"weir/internal/checkpoint"
	"weir/internal/storage"
	"weir/internal/storage/dirs"
)

// LogDir is one log directory, as DescribeLogDirs shows it.
type LogDir struct {
	Path        string
	Err         error // why it is offline, nil when it is not
	Total, Free int64 // bytes of the volume, -1 when unknown
	Cordoned    bool
	Logs        []DirLog
}

// DirLog is one log in a directory.
type DirLog struct {
	Topic     string
	Partition int32
	Size      int64 // bytes
	// Lag is how many records the log is behind: the high watermark for a
	// current log, the current log's end for a future one.
	Lag    int64
	Future bool
}

// DescribeDirs lists the log directories and the logs in them.
func (m *Manager) DescribeDirs() []LogDir {
	index := map[*dirs.Dir]int{}
	var out []LogDir
	cordoned := m.o.Dirs.Cordoned()
	for _, d := range m.o.Dirs.Dirs() {
		ld := LogDir{Path: d.Path, Total: -1, Free: -1, Cordoned: slices.Contains(cordoned, d.ID)}
		if free, total, err := m.o.FS.Free(d.Path); err == nil {
			ld.Total, ld.Free = int64(total), int64(free)
		}
		index[d] = len(out)
		out = append(out, ld)
	}
	for _, d := range m.o.Dirs.OfflineDirs() {
		out = append(out, LogDir{Path: d.Path, Err: kerr.KafkaStorageError, Total: -1, Free: -1})
	}
	m.o.Dirs.Logs(func(p checkpoint.TopicPartition, l *storage.Log, d *dirs.Dir, future bool) bool {
		if i, ok := index[d]; ok {
			lag := max(l.HighWatermark()-l.LogEnd(), 0)
			if current, _ := m.o.Dirs.Log(p); future && current != nil {
				lag = current.LogEnd() - l.LogEnd()
			}
			out[i].Logs = append(out[i].Logs, DirLog{Topic: p.Topic, Partition: p.Partition, Size: l.Size(), Lag: lag, Future: future})
		}
		return true
	})
	for _, d := range out {
		slices.SortFunc(d.Logs, func(a, b DirLog) int {
			return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
		})
	}
	return out
}
