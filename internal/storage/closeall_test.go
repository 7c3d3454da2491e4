package storage

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"syscall"
	"testing"

	"weir/internal/checkpoint"
	"weir/internal/vfs"
	"weir/internal/vfs/errfs"
	"weir/internal/vfs/memfs"
)

// crowd opens logs with records of several leader epochs: few enough for one sector of the epoch file, or more.
func crowd(t *testing.T, fsys vfs.FS, epochs ...int) []*Log {
	t.Helper()
	e := newEnv(t, nil)
	e.log.Abandon()
	if err := errors.Join(fsys.MkdirAll("/data", 0o755), fsys.SyncDir("/")); err != nil {
		t.Fatal(err)
	}
	var logs []*Log
	for i, n := range epochs {
		o := e.options()
		o.FS, o.Partition, o.Dir = fsys, int32(i), path.Join("/data", DirName("t", int32(i)))
		l, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		for epoch := range n {
			if _, err := l.Append(build(spec{n: 3, id: 1, seq: int32(3 * epoch)}), Append{Assign: true, LeaderEpoch: int32(epoch)}); err != nil {
				t.Fatal(err)
			}
			if epoch == 0 { // so that there is an epoch file to be replaced
				if err := l.Flush(-1); err != nil {
					t.Fatal(err)
				}
			}
		}
		logs = append(logs, l)
	}
	return logs
}

// checkClosed opens a log that CloseAll has closed, as after a power cut.
func checkClosed(t *testing.T, fsys vfs.FS, partition, epochs int) {
	t.Helper()
	e := newEnv(t, nil)
	e.log.Abandon()
	o := e.options()
	o.FS, o.Partition, o.Dir, o.HadCleanShutdown = fsys, int32(partition), path.Join("/data", DirName("t", int32(partition))), true
	entries, err := checkpoint.ReadEpochs(fsys, path.Join(o.Dir, checkpoint.LeaderEpochFile))
	if err != nil || len(entries) != epochs {
		t.Errorf("partition %d: the epoch file has %d entries of %d, error %v", partition, len(entries), epochs, err)
	}
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Abandon()
	if end := l.LogEnd(); end != int64(3*epochs) {
		t.Errorf("partition %d ends at %d, not %d", partition, end, 3*epochs)
	}
	if r, err := l.Append(build(spec{n: 3, id: 1, seq: int32(3 * (epochs - 1))}), Append{Assign: true, LeaderEpoch: 99}); err != nil || !r.Duplicate {
		t.Errorf("partition %d: the producer's last batch is taken for a new one: %+v, %v", partition, r, err)
	}
}

func TestCloseAllSurvivesPowerCut(t *testing.T) {
	epochs := []int{1, 2, 3, 200}
	for _, unsupported := range []bool{false, true} {
		t.Run(fmt.Sprintf("unsupported=%v", unsupported), func(t *testing.T) {
			mem := memfs.New()
			faulty := errfs.Wrap(mem)
			if unsupported {
				faulty.Set(errfs.Rule{Op: errfs.SyncAll, Err: errors.ErrUnsupported})
			}
			logs := crowd(t, faulty, epochs...)
			if err := (&closing{fs: faulty, dir: "/data", threads: 2}).together(logs); err != nil {
				t.Fatal(err)
			}
			left := mem.Crash(nil)
			for i, n := range epochs {
				if point, end := logs[i].RecoveryPoint(), int64(3*n); point != end {
					t.Errorf("partition %d: recovery point %d, not %d", i, point, end)
				}
				checkClosed(t, left, i, n)
			}
			if err := (&closing{fs: faulty, dir: "/data", threads: 2}).together(logs); err != nil {
				t.Errorf("closing again: %v", err)
			}
		})
	}
}

// TestCloseAllFails: a sync that fails leaves no recovery point that is not fsynced, and no open file.
func TestCloseAllFails(t *testing.T) {
	for skip := range 3 {
		faulty := errfs.Wrap(memfs.New())
		logs := crowd(t, faulty, 2, 200)
		before := []int64{logs[0].RecoveryPoint(), logs[1].RecoveryPoint()}
		faulty.Set(errfs.Rule{Op: errfs.SyncAll, Skip: skip, Err: syscall.EIO})
		err := (&closing{fs: faulty, dir: "/data", threads: 2}).together(logs)
		var disk *DiskError
		if !errors.As(err, &disk) {
			t.Fatalf("sync %d fails: error %v", skip, err)
		}
		if after := []int64{logs[0].RecoveryPoint(), logs[1].RecoveryPoint()}; !slices.Equal(after, before) {
			t.Errorf("sync %d fails: recovery points go from %d to %d", skip, before, after)
		}
		for i, l := range logs {
			if n := l.OpenFiles(); n != 0 {
				t.Errorf("sync %d fails: partition %d keeps %d files open", skip, i, n)
			}
		}
	}
}
