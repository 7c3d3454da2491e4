package main

import (
	"errors"
	"log/slog"

	"weir/internal/config"
	"weir/internal/vfs"
)

func formatFresh(fsys vfs.FS, static *config.Static, node *config.Node, logger *slog.Logger) error {
	return errors.New("not yet")
}
