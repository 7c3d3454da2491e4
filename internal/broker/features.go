package broker

import "weir/internal/image"

// Supported are the feature levels that this version of Weir serves in full.
// What is finalized beyond them is kept and said at start.
func Supported() []image.FeatureRange {
	return []image.FeatureRange{
		{Name: "metadata.version", Min: 7, Max: 30},
		{Name: "kraft.version", Min: 0, Max: 1},
		{Name: "eligible.leader.replicas.version", Min: 0, Max: 1},
	}
}
