package main

import (
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"time"

	"weir/internal/checkpoint"
	"weir/internal/config"
	"weir/internal/rng"
	"weir/internal/storage/format"
	"weir/internal/uuid"
	"weir/internal/vfs"
)

// formatFresh formats the data directories of a node that runs on defaults, the
// first time. Directories that are in use already stay as they are.
func formatFresh(fsys vfs.FS, node *config.Node, logger *slog.Logger) error {
	for _, dir := range node.LogDirs {
		if _, err := fsys.Stat(filepath.Join(dir, checkpoint.MetaFile)); err == nil {
			return nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	quorum, err := format.QuorumFor(node, format.Choice{Standalone: len(node.QuorumVoters) == 0})
	if err != nil {
		return err
	}
	rand := rng.System()
	cluster := uuid.Random(rand).String()
	logger.Info("formatting a new data directory", "dirs", node.LogDirs, "cluster", cluster)
	return format.Format(format.Options{
		FS: fsys, NowMs: time.Now().UnixMilli(), Rand: rand, ClusterID: cluster, NodeID: node.NodeID,
		LogDirs: node.LogDirs, MetadataDir: node.MetadataDir, Quorum: quorum,
	})
}
