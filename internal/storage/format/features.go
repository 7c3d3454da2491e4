package format

import (
	"slices"
	"strings"

	"weir/internal/image"
)

// Release is a level of metadata.version with Kafka's name for it.
type Release struct {
	Level int16
	Name  string // 4.3-IV0
}

// releases lists every level that Apache Kafka 4.3.1 knows. The last one is not stable and cannot be formatted with.
func releases() []Release {
	return []Release{
		{7, "3.3-IV3"}, {8, "3.4-IV0"}, {9, "3.5-IV0"}, {10, "3.5-IV1"}, {11, "3.5-IV2"}, {12, "3.6-IV0"}, {13, "3.6-IV1"}, {14, "3.6-IV2"},
		{15, "3.7-IV0"}, {16, "3.7-IV1"}, {17, "3.7-IV2"}, {18, "3.7-IV3"}, {19, "3.7-IV4"}, {20, "3.8-IV0"}, {21, "3.9-IV0"},
		{22, "4.0-IV0"}, {23, "4.0-IV1"}, {24, "4.0-IV2"}, {25, "4.0-IV3"}, {26, "4.1-IV0"}, {27, "4.1-IV1"}, {28, "4.2-IV0"}, {29, "4.2-IV1"},
		{30, "4.3-IV0"}, {31, "4.4-IV0"},
	}
}

// LatestStable is the release that a new cluster starts with.
func LatestStable() Release { r, _ := ReleaseOf(image.MetadataLatest); return r }

// ReleaseOf finds a level; false when Kafka 4.3.1 does not know it.
func ReleaseOf(level int16) (Release, bool) {
	all := releases()
	i := slices.IndexFunc(all, func(r Release) bool { return r.Level == level })
	if i < 0 {
		return Release{}, false
	}
	return all[i], true
}

// stable tells the levels that may be finalized without unstable.feature.versions.enable.
func (r Release) stable() bool { return r.Level <= image.MetadataLatest }

// ParseRelease understands 4.3-IV0, and 4.3 or 4.3.1 as the newest level of that release. With unstable it also knows
// the levels that are not stable, by their full name.
func ParseRelease(text string, unstable bool) (Release, error) {
	parts := strings.Split(text, ".")
	short := ""
	if len(parts) >= 2 && !strings.Contains(text, "-") {
		short = parts[0] + "." + parts[1] + "-"
	}
	var names []string
	found := Release{}
	for _, r := range releases() {
		if !r.stable() && !unstable {
			continue
		}
		names = append(names, r.Name)
		if r.Name == text || short != "" && r.stable() && strings.HasPrefix(r.Name, short) {
			found = r
		}
	}
	if found.Level == 0 {
		return Release{}, refuse("Unknown metadata.version '%s'. Supported metadata.version are: %s", text, strings.Join(names, ", "))
	}
	return found, nil
}

// Feature is a feature besides metadata.version: what Kafka 4.3.1 knows of it, and what Weir serves.
type Feature struct {
	Name string
	// Max is the highest level that Kafka 4.3.1 knows.
	Max int16
	// Served is the highest level that Weir serves in full. A new cluster is never given more unless asked; what a
	// directory has beyond it is kept and said at start.
	Served int16
	// since: from this level of metadata.version on, Kafka starts a new cluster with Max.
	since int16
	// needs: levels above 0 need this level of metadata.version; 0 when they need nothing.
	needs int16
}

// Features is the one table of features, in the order in which version-mapping lists them.
func Features() []Feature {
	return []Feature{
		{Name: image.FeatureKRaft, Max: 1, Served: 1, since: 21},
		{Name: image.FeatureTransaction, Max: 2, Served: 2, since: 24},
		{Name: image.FeatureGroup, Max: 1, Served: 1, since: 22},
		{Name: image.FeatureELR, Max: 1, Served: 1, since: 26, needs: image.MetadataELR},
		{Name: image.FeatureShare, Max: 1, Served: 0, since: 28},
		{Name: image.FeatureStreams, Max: 1, Served: 0, since: 29},
	}
}

// FeatureNamed finds a feature.
func FeatureNamed(name string) (Feature, bool) {
	all := Features()
	i := slices.IndexFunc(all, func(f Feature) bool { return f.Name == name })
	if i < 0 {
		return Feature{}, false
	}
	return all[i], true
}

// Default is the level with which Kafka starts a new cluster at the release.
func (f Feature) Default(r Release) int16 {
	if r.Level >= f.since {
		return f.Max
	}
	return 0
}

// Needs is the level of metadata.version that a level of the feature depends on; 0 for none.
func (f Feature) Needs(level int16) int16 {
	if level == 0 {
		return 0
	}
	return f.needs
}

// Served lists the features that Weir serves, metadata.version included, for registrations, ApiVersions and the
// controller's checks. Under unstable.feature.versions.enable that is one level of metadata.version more.
func Served(unstable bool) []image.FeatureRange {
	out := []image.FeatureRange{{Name: image.FeatureMetadata, Min: image.MetadataMinimum, Max: image.MetadataLatest}}
	if unstable {
		out[0].Max = image.MetadataUnstable
	}
	for _, f := range Features() {
		if f.Served > 0 {
			out = append(out, image.FeatureRange{Name: f.Name, Min: 0, Max: f.Served})
		}
	}
	return out
}
