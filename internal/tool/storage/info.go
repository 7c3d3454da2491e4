package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"weir/internal/checkpoint"
)

// info lists the directories of the node, what their meta.properties say, and what is wrong with them. It fails when
// anything is wrong.
func (e *Env) info(p parsed) error {
	node, err := e.node(p)
	if err != nil {
		return err
	}
	dirs := slices.Clone(node.LogDirs)
	if node.MetadataDir != "" {
		dirs = append(dirs, node.MetadataDir)
	}
	slices.Sort(dirs)
	dirs = slices.Compact(dirs)
	var found, problems []string
	var first *checkpoint.MetaProperties
	for _, dir := range dirs {
		st, err := e.FS.Stat(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			problems = append(problems, dir+" does not exist")
			continue
		case err != nil:
			problems = append(problems, err.Error())
			continue
		case !st.IsDir():
			problems = append(problems, dir+" is not a directory")
			continue
		}
		found = append(found, dir)
		file := filepath.Join(dir, checkpoint.MetaFile)
		m, err := checkpoint.ReadMetaProperties(e.FS, file)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			problems = append(problems, dir+" is not formatted.")
		case err != nil:
			problems = append(problems, fmt.Sprintf("Error loading %s: %v", file, err))
		case first == nil:
			first = &m
		case m.ClusterID != first.ClusterID:
			problems = append(problems, "Mismatched cluster IDs between storage directories.")
		case m.NodeID != first.NodeID:
			problems = append(problems, "Mismatched node IDs between storage directories.")
		}
	}
	if first != nil && first.Version == 0 {
		problems = append(problems, "The kafka configuration file appears to be for a cluster in KRaft mode, but the directories are formatted for legacy mode.")
	}
	e.section(found, "Found log directory:", "Found log directories:")
	if first != nil {
		e.printf("Found metadata: %s\n\n", describe(*first))
	}
	e.section(problems, "Found problem:", "Found problems:")
	if len(problems) > 0 {
		return errFailed
	}
	return nil
}

func (e *Env) section(lines []string, one, many string) {
	switch len(lines) {
	case 0:
		return
	case 1:
		e.printf("%s\n", one)
	default:
		e.printf("%s\n", many)
	}
	for _, l := range lines {
		e.printf("  %s\n", l)
	}
	e.printf("\n")
}

// describe writes the properties in the order of their names.
func describe(m checkpoint.MetaProperties) string {
	var parts []string
	idKey := "node.id"
	if m.Version == 0 {
		idKey = "broker.id"
		if m.NodeID >= 0 {
			parts = append(parts, fmt.Sprintf("%s=%d", idKey, m.NodeID))
		}
	}
	if m.ClusterID != "" {
		parts = append(parts, "cluster.id="+m.ClusterID)
	}
	if !m.DirectoryID.IsZero() {
		parts = append(parts, "directory.id="+m.DirectoryID.String())
	}
	if m.Version > 0 && m.NodeID >= 0 {
		parts = append(parts, fmt.Sprintf("%s=%d", idKey, m.NodeID))
	}
	return "{" + strings.Join(append(parts, fmt.Sprintf("version=%d", m.Version)), ", ") + "}"
}
