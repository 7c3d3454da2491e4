//go:build faults

package main

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"time"

	"weir/internal/vfs"
	"weir/internal/vfs/errfs"
)

// faultsEvery is how often the file of faults is looked at.
const faultsEvery = 50 * time.Millisecond

// openDisk is the file system of a build for tests (-tags faults): the file that
// WEIR_FAULTS names lists what goes wrong, one fault a line, and may change while
// the node runs:
//
//	write *.log EIO       every write to a log file fails
//	sync * 200ms          every sync takes 200 ms longer
//
// The file beside it that ends in .seen says what has been taken up. Operations and patterns are those of package errfs. Without the variable, or
// the file, nothing goes wrong.
func openDisk() vfs.FS {
	disk := errfs.Wrap(vfs.OS())
	if path := os.Getenv("WEIR_FAULTS"); path != "" {
		go followFaults(disk, path, setFaults(disk, path, "nothing yet"))
	}
	return disk
}

func followFaults(disk *errfs.FS, path, said string) {
	for range time.Tick(faultsEvery) {
		said = setFaults(disk, path, said)
	}
}

// setFaults takes the file's rules up unless it says what it said before.
func setFaults(disk *errfs.FS, path, said string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		text = nil // no file, no faults
	}
	if string(text) == said {
		return said
	}
	rules, err := parseFaults(string(text))
	if err != nil {
		slog.Error("faults of the disk are not understood", "file", path, "err", err)
	}
	disk.Set(rules...)
	if err := os.WriteFile(path+".seen", text, 0o644); err != nil {
		slog.Error("cannot say which faults of the disk there are", "err", err)
	}
	return string(text)
}

func parseFaults(text string) ([]errfs.Rule, error) {
	var out []errfs.Rule
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) != 3 {
			return nil, fmt.Errorf("%q is not OPERATION PATTERN EFFECT", line)
		}
		r := errfs.Rule{Op: errfs.Op(f[0]), Path: f[1]}
		switch f[2] {
		case "EIO":
			r.Err = syscall.EIO
		case "ENOSPC":
			r.Err = syscall.ENOSPC
		default:
			pause, err := time.ParseDuration(f[2])
			if err != nil {
				return nil, err
			}
			r.Before = func() { time.Sleep(pause) }
		}
		out = append(out, r)
	}
	return out, nil
}
