// Package format makes log directories ready for a node, as kafka-storage format does, and holds the one table of
// features: what Apache Kafka 4.3.1 knows, what a new cluster starts with, what Weir serves (features.go).
//
// Each directory of log.dirs, and the metadata directory, gets
//
//	meta.properties        cluster, node and directory id; written last, so that a directory that has it is complete
//	bootstrap.checkpoint   the records with which the first controller starts the cluster
//
// and the metadata directory of a cluster with dynamic voters, besides,
//
//	__cluster_metadata-0/00000000000000000000-0000000000.checkpoint   kraft.version 1 and the first voters
//
// The command line is in tool/storage; weir server calls Format for a data directory of its own.
package format

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"weir/internal/checkpoint"
	"weir/internal/image"
	"weir/internal/metalog"
	"weir/internal/records"
	"weir/internal/uuid"
	"weir/internal/vfs"
)

// Quorum says how the metadata quorum of the cluster is known.
type Quorum struct {
	// Static: controller.quorum.voters is set, kraft.version is 0.
	Static bool
	// Dynamic: the voters stand in the log, kraft.version is 1. Then at most one of these is given; none means that this
	// node starts without voters and is told of them by others (--no-initial-controllers).
	Dynamic    bool
	Standalone *Address            // this node alone is the quorum, at this address
	Initial    []InitialController // the same list on every node
	// Listener is the first name in controller.listener.names.
	Listener string
}

// Address is where a controller listens.
type Address struct {
	Host string
	Port uint16
}

// Options is one run of Format.
type Options struct {
	FS          vfs.FS
	NowMs       int64
	Rand        io.Reader
	ClusterID   string
	NodeID      int32
	LogDirs     []string
	MetadataDir string // "" is the first of LogDirs
	// IgnoreFormatted passes over directories that are formatted; without it they are an error.
	IgnoreFormatted bool
	Release         *Release         // nil: LatestStable
	Features        map[string]int16 // levels asked for; metadata.version only when Release is nil
	Quorum          Quorum
	Scram           []records.UserScramCredentialRecord
	// Print is told each line that kafka-storage prints to its standard output; Warn is told lines for standard error.
	// Either may be nil.
	Print, Warn func(line string)
}

// Refusal is a request that cannot be followed. Its text is that of Apache Kafka.
type Refusal string

func (r Refusal) Error() string { return string(r) }

func refuse(format string, args ...any) error { return Refusal(fmt.Sprintf(format, args...)) }

// Format formats the directories. Nothing is written when it returns a Refusal.
func Format(o Options) error {
	if o.Print == nil {
		o.Print = func(string) {}
	}
	if o.Warn == nil {
		o.Warn = func(string) {}
	}
	if o.MetadataDir == "" && len(o.LogDirs) > 0 {
		o.MetadataDir = o.LogDirs[0]
	}
	release, levels, err := o.levels()
	if err != nil {
		return err
	}
	dirs, err := o.inspect()
	if err != nil {
		return err
	}
	var todo []*directory
	for _, d := range dirs {
		if !d.formatted {
			todo = append(todo, d)
		} else if !o.IgnoreFormatted {
			return refuse("Log directory %s is already formatted. Use --ignore-formatted to ignore this directory and format the others.", d.path)
		}
	}
	if len(dirs) == 0 {
		return refuse("No available log directories to format.")
	}
	if len(todo) == 0 {
		o.Print("All of the log directories are already formatted.")
		return nil
	}
	recs := o.bootstrap(release, levels)
	o.Print(describe(recs, release))
	o.assignIDs(dirs)
	for _, d := range todo {
		if err := o.write(d, release, recs); err != nil {
			return fmt.Errorf("formatting %s: %w", d.path, err)
		}
	}
	return nil
}

// levels checks what was asked for and returns the levels of all features but metadata.version.
func (o *Options) levels() (Release, map[string]int16, error) {
	release := LatestStable()
	asked, given := o.Features[image.FeatureMetadata]
	switch {
	case o.Release != nil && given:
		return release, nil, refuse("Use --release-version instead of --feature metadata.version=X to avoid ambiguity.")
	case o.Release != nil:
		release = *o.Release
	case given:
		r, ok := ReleaseOf(asked)
		if !ok {
			all := releases()
			return release, nil, refuse("No MetadataVersion with feature level %d. Valid feature levels are from %d to %d.", asked, all[0].Level, all[len(all)-1].Level)
		}
		release = r
	}
	if !release.stable() {
		return release, nil, refuse("metadata.version %s is not yet stable.", release.Name)
	}
	levels := map[string]int16{}
	for _, f := range Features() {
		if f.Name != image.FeatureKRaft {
			levels[f.Name] = min(f.Default(release), f.Served)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.Features)) {
		if name == image.FeatureMetadata {
			continue
		}
		if err := o.checkFeature(name, release); err != nil {
			return release, nil, err
		}
		if name != image.FeatureKRaft {
			levels[name] = o.Features[name]
		}
	}
	if len(o.Scram) > 0 && release.Level < scramSince {
		r, _ := ReleaseOf(scramSince)
		return release, nil, refuse("SCRAM is only supported in metadata.version %s or later.", r.Name)
	}
	return release, levels, nil
}

// scramSince is the level of metadata.version that has UserScramCredentialRecord.
const scramSince = 11

func (o *Options) checkFeature(name string, release Release) error {
	level := o.Features[name]
	f, ok := FeatureNamed(name)
	if !ok {
		var names []string
		for _, f := range Features() {
			names = append(names, f.Name)
		}
		slices.Sort(names)
		return refuse("Unsupported feature: %s. Supported features are: %s", name, strings.Join(names, ", "))
	}
	if level < 0 || level > f.Max {
		return refuse("No feature:%s with feature level %d", name, level)
	}
	if needs := f.Needs(level); release.Level < needs {
		return refuse("%s could not be set to %d because it depends on %s level %d", name, level, image.FeatureMetadata, needs)
	}
	switch {
	case name != image.FeatureKRaft:
		if level > f.Served {
			o.Warn(fmt.Sprintf("Weir does not serve %s=%d yet: its records are kept, and Apache Kafka nodes of the cluster may use it.", name, level))
		}
	case level == 0 && o.Quorum.Dynamic:
		return refuse("Cannot set kraft.version to 0 if controller.quorum.voters is empty and one of the flags --standalone, --initial-controllers, or --no-initial-controllers is used. For dynamic controllers support, try removing the --feature flag for kraft.version.")
	case level > 0 && !o.Quorum.Dynamic:
		return refuse("Cannot set kraft.version to %d unless controller.quorum.voters is empty and one of the flags --standalone, --initial-controllers, or --no-initial-controllers is used. For dynamic controllers support, try using one of --standalone, --initial-controllers, or --no-initial-controllers and removing controller.quorum.voters.", level)
	}
	return nil
}

// directory is one directory to format, or already formatted.
type directory struct {
	path      string
	formatted bool
	meta      checkpoint.MetaProperties // when formatted; else what will be written
}

// inspect reads what stands in the directories. A directory that cannot be read is left out, as Kafka does.
func (o *Options) inspect() ([]*directory, error) {
	var dirs []*directory
	paths := append([]string{o.MetadataDir}, o.LogDirs...)
	for i, p := range paths {
		p = filepath.Clean(p)
		if paths[i] = p; slices.Contains(paths[:i], p) {
			continue
		}
		file := filepath.Join(p, checkpoint.MetaFile)
		meta, err := checkpoint.ReadMetaProperties(o.FS, file)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			dirs = append(dirs, &directory{path: p})
			continue
		case err != nil:
			o.Print(fmt.Sprintf("I/O error trying to read log directory %s. Ignoring...", p))
			o.Warn(err.Error())
			continue
		case meta.ClusterID != o.ClusterID:
			return nil, refuse("Invalid cluster.id in: %s. Expected %s, but read %s", file, o.ClusterID, meta.ClusterID)
		case meta.NodeID != o.NodeID:
			return nil, refuse("Stored node id %d doesn't match previous node id %d in %s. If you moved your data, make sure your configured node id matches. If you intend to create a new node, you should remove all data in your data directories.", meta.NodeID, o.NodeID, file)
		}
		for _, other := range dirs {
			if other.formatted && other.meta.DirectoryID == meta.DirectoryID && !meta.DirectoryID.IsZero() {
				return nil, refuse("Duplicate directory ID %s found. It was the ID of %s, but also of %s", meta.DirectoryID, other.path, p)
			}
		}
		dirs = append(dirs, &directory{path: p, formatted: true, meta: meta})
	}
	return dirs, nil
}

// assignIDs gives every new directory an id of its own; the metadata directory the one that --initial-controllers says.
func (o *Options) assignIDs(dirs []*directory) {
	for _, d := range dirs {
		if d.formatted {
			continue
		}
		d.meta = checkpoint.MetaProperties{Version: 1, ClusterID: o.ClusterID, NodeID: o.NodeID, DirectoryID: uuid.Random(o.Rand)}
		if i := slices.IndexFunc(o.Quorum.Initial, func(c InitialController) bool { return c.ID == o.NodeID }); i >= 0 && o.isMetadata(d) {
			d.meta.DirectoryID = o.Quorum.Initial[i].Directory
		}
	}
}

func (o *Options) isMetadata(d *directory) bool { return d.path == filepath.Clean(o.MetadataDir) }

// bootstrap makes the records of bootstrap.checkpoint in Kafka's order.
func (o *Options) bootstrap(release Release, levels map[string]int16) []records.Versioned {
	feature := func(name string, level int16) records.Versioned {
		return records.Versioned{Record: &records.FeatureLevelRecord{Name: name, FeatureLevel: level}}
	}
	recs := []records.Versioned{feature(image.FeatureMetadata, release.Level)}
	for _, name := range slices.Sorted(maps.Keys(levels)) {
		if levels[name] > 0 {
			recs = append(recs, feature(name, levels[name]))
		}
	}
	for i := range o.Scram {
		recs = append(recs, records.Versioned{Record: &o.Scram[i]})
	}
	return recs
}

// describe is the line that kafka-storage prints about the bootstrap records, without secrets.
func describe(recs []records.Versioned, release Release) string {
	var parts []string
	for _, r := range recs {
		text := ""
		switch m := r.Record.(type) {
		case *records.FeatureLevelRecord:
			text = fmt.Sprintf("FeatureLevelRecord(name='%s', featureLevel=%d)", m.Name, m.FeatureLevel)
		case *records.UserScramCredentialRecord:
			text = fmt.Sprintf("UserScramCredentialRecord(name='%s', mechanism=%d, iterations=%d)", m.Name, m.Mechanism, m.Iterations)
		}
		parts = append(parts, fmt.Sprintf("ApiMessageAndVersion(%s at version %d)", text, r.Version))
	}
	return fmt.Sprintf("Bootstrap metadata: BootstrapMetadata(records=[%s], metadataVersionLevel=%d, source=format command)", strings.Join(parts, ", "), release.Level)
}

// write formats one directory; meta.properties comes last.
func (o *Options) write(d *directory, release Release, recs []records.Versioned) error {
	kind := "data directory"
	voters := o.isMetadata(d) && (o.Quorum.Standalone != nil || len(o.Quorum.Initial) > 0)
	switch {
	case voters && (o.Quorum.Standalone != nil || slices.ContainsFunc(o.Quorum.Initial, func(c InitialController) bool { return c.ID == o.NodeID })):
		kind = "dynamic metadata voter directory"
	case voters:
		kind = "dynamic metadata directory"
	case o.isMetadata(d):
		kind = "metadata directory"
	}
	o.Print(fmt.Sprintf("Formatting %s %s with metadata.version %s.", kind, d.path, release.Name))
	if err := makeDir(o.FS, d.path); err != nil {
		return err
	}
	if err := metalog.WriteBootstrap(o.FS, d.path, recs, o.NowMs); err != nil {
		return err
	}
	if voters {
		cs := o.Quorum.Initial
		if a := o.Quorum.Standalone; a != nil {
			cs = []InitialController{{ID: o.NodeID, Host: a.Host, Port: a.Port, Directory: d.meta.DirectoryID}}
		}
		set, err := voterSet(cs, o.Quorum.Listener)
		if err != nil {
			return err
		}
		if err := metalog.WriteVoters(o.FS, d.path, set, o.NowMs); err != nil {
			return err
		}
	}
	return checkpoint.WriteMetaProperties(o.FS, filepath.Join(d.path, checkpoint.MetaFile), d.meta)
}

// makeDir makes a directory and its parents and syncs the names of those that are new.
func makeDir(fsys vfs.FS, path string) error {
	there, err := vfs.Exists(fsys, path)
	if err != nil || there {
		return err
	}
	parent := filepath.Dir(path)
	if parent != path {
		if err := makeDir(fsys, parent); err != nil {
			return err
		}
	}
	if err := fsys.MkdirAll(path, 0o755); err != nil {
		return err
	}
	return fsys.SyncDir(parent)
}
