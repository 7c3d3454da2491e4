package storage

import (
	"errors"
	"path"
	"testing"

	"weir/internal/checkpoint"
	"weir/internal/rng"
	"weir/internal/uuid"
	"weir/internal/vfs"
	"weir/internal/vfs/errfs"
	"weir/internal/vfs/memfs"
)

// fresh makes new logs of one topic, and counts the syncs that it takes.
func fresh(t *testing.T, n int) (mem *memfs.FS, logs []*Log, id uuid.UUID, syncs *int) {
	t.Helper()
	mem, id, syncs = memfs.New(), uuid.Random(rng.New(3)), new(int)
	if err := errors.Join(mem.MkdirAll("/data", 0o755), mem.SyncDir("/")); err != nil {
		t.Fatal(err)
	}
	count := func() { *syncs++ }
	disk := errfs.Wrap(mem, errfs.Rule{Op: errfs.Sync, Before: count}, errfs.Rule{Op: errfs.SyncDir, Before: count}, errfs.Rule{Op: errfs.SyncAll, Before: count})
	for i := range n {
		logs = append(logs, openFresh(t, disk, i, id))
	}
	return mem, logs, id, syncs
}

func openFresh(t *testing.T, fsys vfs.FS, partition int, id uuid.UUID) *Log {
	t.Helper()
	e := newEnv(t, nil)
	e.log.Abandon()
	o := e.options()
	o.FS, o.Partition, o.Dir, o.TopicID, o.HadCleanShutdown = fsys, int32(partition), path.Join("/data", DirName("t", int32(partition))), id, true
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// New logs wait for no sync; SecureAll takes few for many, and then nothing of them is lost with the power.
func TestSecureAll(t *testing.T) {
	for n, most := range map[int]int{3: 3*2 + 1, 200: 2} {
		mem, logs, id, syncs := fresh(t, n)
		if *syncs != 0 {
			t.Errorf("making %d logs took %d syncs", n, *syncs)
		}
		if err := SecureAll(logs[0].fs, "/data", logs); err != nil {
			t.Fatal(err)
		}
		if *syncs > most {
			t.Errorf("securing %d logs took %d syncs, %d are enough", n, *syncs, most)
		}
		after := mem.Crash(nil)
		for i, l := range logs {
			if l.Unsecured() {
				t.Fatalf("log %d is not secured", i)
			}
			m, err := checkpoint.ReadPartitionMetadata(after, path.Join("/data", DirName("t", int32(i)), checkpoint.PartitionFile))
			if err != nil || m.TopicID != id {
				t.Fatalf("log %d of %d after a power cut: topic id %s, %v", i, n, m.TopicID, err)
			}
		}
	}
}

// At whatever call the power fails while logs are secured, each can be made or completed afterwards.
func TestPowerCutWhileSecuring(t *testing.T) {
	for at := range 120 {
		mem, logs, id, _ := fresh(t, manyFresh+at%2) // an odd one has no room for its id at first
		if at%2 == 1 {
			if err := mem.Remove(vfs.StagedName(path.Join(logs[manyFresh].Dir(), checkpoint.PartitionFile))); err != nil {
				t.Fatal(err)
			}
		}
		cut := mem
		disk := logs[0].fs.(*errfs.FS)
		disk.Set(errfs.Rule{Skip: at, Count: 1, Before: func() { cut = mem.Crash(rng.New(uint64(at))) }})
		if err := SecureAll(disk, "/data", logs); err != nil {
			t.Fatal(err)
		}
		if cut == mem {
			cut = mem.Crash(nil)
		}
		for i := range logs {
			l := openFresh(t, cut, i, id)
			if l.TopicID() != id || l.LogEnd() != 0 {
				t.Fatalf("cut at %d: log %d has topic id %s and ends at %d", at, i, l.TopicID(), l.LogEnd())
			}
		}
	}
}

// A process that dies before it has secured a log leaves its topic's id behind.
func TestKilledBeforeSecuring(t *testing.T) {
	mem, logs, id, _ := fresh(t, 1)
	logs[0].Abandon()
	l := openFresh(t, mem, 0, uuid.Zero)
	if l.TopicID() != id || !l.Unsecured() {
		t.Fatalf("topic id %s, unsecured %t", l.TopicID(), l.Unsecured())
	}
	if err := l.AssignTopicID(uuid.Random(rng.New(4))); !errors.As(err, new(*TopicIDError)) {
		t.Fatalf("another topic's id: %v", err)
	}
	if err := SecureAll(mem, "/data", []*Log{l}); err != nil || l.Unsecured() {
		t.Fatalf("%v, unsecured %t", err, l.Unsecured())
	}
}

// What a flush has confirmed is found again, although nobody has secured the log.
func TestFlushSecures(t *testing.T) {
	mem, logs, id, _ := fresh(t, 1)
	if _, err := logs[0].Append(build(spec{n: 2}), Append{Assign: true}); err != nil {
		t.Fatal(err)
	}
	if err := logs[0].Flush(-1); err != nil {
		t.Fatal(err)
	}
	if logs[0].Unsecured() {
		t.Error("the flush did not secure the log")
	}
	l := openFresh(t, mem.Crash(nil), 0, uuid.Zero)
	if l.TopicID() != id || l.LogEnd() != 2 {
		t.Fatalf("after a power cut: topic id %s, log end %d", l.TopicID(), l.LogEnd())
	}
}

// A clean stop of many logs that were just made leaves all of them whole.
func TestCloseAllOfNewLogs(t *testing.T) {
	mem, logs, id, _ := fresh(t, manyLogs)
	if err := CloseAll(logs[0].fs, "/data", logs, 4); err != nil {
		t.Fatal(err)
	}
	after := mem.Crash(nil)
	for i := range logs {
		if l := openFresh(t, after, i, uuid.Zero); l.TopicID() != id {
			t.Fatalf("log %d has topic id %s", i, l.TopicID())
		}
	}
}

// A full disk has no room for the id: the log is used, and gets its file when there is.
func TestSecureOnFullDisk(t *testing.T) {
	mem, logs, id, _ := fresh(t, 1)
	logs[0].Abandon()
	mem.SetCapacity(1)
	l := openFresh(t, mem, 1, id)
	if err := SecureAll(mem, "/data", []*Log{l}); !errors.Is(err, ErrNoSpace) {
		t.Fatalf("on a full disk: %v", err)
	}
	mem.SetCapacity(1 << 20)
	if err := SecureAll(mem, "/data", []*Log{l}); err != nil || l.Unsecured() {
		t.Fatalf("with room: %v, unsecured %t", err, l.Unsecured())
	}
}
