//go:build !faults

package main

import "weir/internal/vfs"

// openDisk is the file system that a node keeps its data on.
func openDisk() vfs.FS { return vfs.OS() }
