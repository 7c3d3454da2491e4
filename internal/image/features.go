package image

import (
	"iter"
	"maps"
	"slices"
)

// Names of the features whose levels are in metadata. kraft.version is not: it lives in control records of the log.
const (
	FeatureMetadata    = "metadata.version"
	FeatureKRaft       = "kraft.version"
	FeatureELR         = "eligible.leader.replicas.version"
	FeatureGroup       = "group.version"
	FeatureShare       = "share.version"
	FeatureStreams     = "streams.version"
	FeatureTransaction = "transaction.version"
)

// Levels of metadata.version that decide what is written. Kafka's names: 3.3-IV3 is 7, 4.3-IV0 is 30.
const (
	MetadataMinimum         int16 = 7  // 3.3-IV3, the oldest that 4.x knows
	MetadataMigration       int16 = 8  // 3.4-IV0: RegisterBrokerRecord v2
	metadataNoShrinkBump    int16 = 12 // 3.6-IV0: shrinking an ISR no longer raises the leader epoch
	MetadataTransactions    int16 = 13 // 3.6-IV1: BeginTransactionRecord and its kin
	MetadataControllers     int16 = 15 // 3.7-IV0: RegisterControllerRecord
	MetadataDirectories     int16 = 17 // 3.7-IV2: log directories of replicas (KIP-858)
	MetadataELR             int16 = 23 // 4.0-IV1: eligible leader replicas (KIP-966)
	MetadataCordonedDirs    int16 = 30 // 4.3-IV0: cordoned log directories (KIP-1066)
	MetadataLatest          int16 = 30 // 4.3-IV0, the newest production level of 4.3.1
	MetadataUnstable        int16 = 31 // 4.4-IV0, for tests with unstable.feature.versions.enable; it changes no record yet
	metadataUnsetButWritten int16 = MetadataMinimum
)

// Features holds the finalized feature levels (FeatureLevelRecord). The zero value has none.
type Features struct {
	Metadata int16            // level of metadata.version; 0 when not finalized
	levels   map[string]int16 // every other feature; never written to once in an image
}

// NewFeatures makes features of a metadata.version level and other levels, for tests and tools. It copies the map.
func NewFeatures(metadata int16, levels map[string]int16) Features {
	return Features{Metadata: metadata, levels: maps.Clone(levels)}
}

// Level returns the finalized level of a feature, 0 when it is not finalized.
func (f Features) Level(name string) int16 {
	if name == FeatureMetadata {
		return f.Metadata
	}
	return f.levels[name]
}

// All yields the finalized features except metadata.version, by name.
func (f Features) All() iter.Seq2[string, int16] {
	return func(yield func(string, int16) bool) {
		for _, name := range slices.Sorted(maps.Keys(f.levels)) {
			if !yield(name, f.levels[name]) {
				return
			}
		}
	}
}

func (f Features) with(name string, level int16) Features {
	if name == FeatureMetadata {
		f.Metadata = level
		return f
	}
	m := maps.Clone(f.levels)
	if m == nil {
		m = map[string]int16{}
	}
	if level == 0 {
		delete(m, name)
	} else {
		m[name] = level
	}
	f.levels = m
	return f
}

// atLeast compares with the finalized metadata.version. Before one is finalized Kafka acts as at the minimum.
func (f Features) atLeast(level int16) bool { return max(f.Metadata, metadataUnsetButWritten) >= level }

// ELR reports whether eligible leader replicas (KIP-966) are on.
func (f Features) ELR() bool { return f.levels[FeatureELR] >= 1 }

// Directories reports whether partitions know the log directory of each replica (KIP-858).
func (f Features) Directories() bool { return f.atLeast(MetadataDirectories) }

// CordonedDirs reports whether brokers tell which log directories take no new replica (KIP-1066).
func (f Features) CordonedDirs() bool { return f.atLeast(MetadataCordonedDirs) }

// Transactions reports whether metadata transactions may be written.
func (f Features) Transactions() bool { return f.atLeast(MetadataTransactions) }

// ControllerRegistrations reports whether controllers register themselves.
func (f Features) ControllerRegistrations() bool { return f.atLeast(MetadataControllers) }

// EpochBumpOnISRShrink reports whether a shrinking ISR raises the leader epoch (KAFKA-15021).
func (f Features) EpochBumpOnISRShrink() bool { return !f.atLeast(metadataNoShrinkBump) }

// RegisterBrokerVersion is the version in which RegisterBrokerRecord is written.
func (f Features) RegisterBrokerVersion() int16 {
	switch {
	case f.atLeast(MetadataCordonedDirs):
		return 4
	case f.atLeast(MetadataDirectories):
		return 3
	case f.atLeast(MetadataMigration):
		return 2
	}
	return 1
}

// PartitionVersion is the version in which PartitionRecord and PartitionChangeRecord are written.
func (f Features) PartitionVersion() int16 {
	switch {
	case f.atLeast(MetadataELR):
		return 2
	case f.atLeast(MetadataDirectories):
		return 1
	}
	return 0
}

// FetchVersion is the version of Fetch by which followers replicate.
func (f Features) FetchVersion() int16 {
	for _, v := range []struct{ level, version int16 }{{27, 18}, {21, 17}, {19, 16}, {10, 15}, {9, 14}} {
		if f.atLeast(v.level) {
			return v.version
		}
	}
	return 13
}

// ListOffsetsVersion is the version of ListOffsets that brokers use among themselves.
func (f Features) ListOffsetsVersion() int16 {
	for _, v := range []struct{ level, version int16 }{{29, 11}, {25, 10}, {21, 9}, {9, 8}} {
		if f.atLeast(v.level) {
			return v.version
		}
	}
	return 7
}
