package dirs

import (
	"path/filepath"
	"strings"
	"testing"

	"weir/internal/checkpoint"
	"weir/internal/uuid"
	"weir/internal/vfs"
)

func TestCleanerCheckpoint(t *testing.T) {
	n := newNode(t)
	s := n.start()
	p := tp("t", 0)
	log, d := n.create(p, uuid.Zero)
	file := filepath.Join(d.Path, checkpoint.CleanerOffsetFile)
	if _, known := s.Cleaned(p); known {
		t.Error("a new log has a checkpoint")
	}
	n.append(log, "a", "b", "c", "d")
	log.SetHighWatermark(4)
	if err := log.Flush(-1); err != nil {
		t.Fatal(err)
	}
	if err := s.SetCleaned(p, log, 3); err != nil {
		t.Fatal(err)
	}
	if text := n.read(file); text != "0\n1\nt 0 3\n" {
		t.Errorf("the file says %q", text)
	}
	if err := s.SaveRecoveryPoint(p, 3); err != nil {
		t.Fatal(err)
	}
	if text := n.read(filepath.Join(d.Path, checkpoint.RecoveryPointFile)); !strings.Contains(text, "t 0 4\n") {
		t.Errorf("recovery points: %q", text)
	}
	// A truncation lowers it on disk before anything is appended.
	if _, err := log.Truncate(2); err != nil {
		t.Fatal(err)
	}
	if text := n.read(file); text != "0\n1\nt 0 2\n" {
		t.Errorf("after a truncation to 2 the file says %q", text)
	}
	if err := s.Crash(); err != nil {
		t.Fatal(err)
	}
	s = n.start()
	if at, known := s.Cleaned(p); !known || at != 2 {
		t.Errorf("after a restart: %d, %v", at, known)
	}
	// Another log of the same name starts anew, also after a crash.
	old, _ := s.Log(p)
	if err := s.Delete(p, false); err != nil {
		t.Fatal(err)
	}
	n.create(p, uuid.Zero)
	if err := s.SetCleaned(p, old, 9); err != nil { // a run over the deleted log ends
		t.Fatal(err)
	}
	if err := s.Crash(); err != nil {
		t.Fatal(err)
	}
	s = n.start()
	if at, known := s.Cleaned(p); known {
		t.Errorf("the new log was given the checkpoint %d", at)
	}
	if text := n.read(file); text != "0\n0\n" {
		t.Errorf("the file says %q", text)
	}
}

// No directory keeps the checkpoint of a log that is deleted or was never there.
func TestCleanerCheckpointGoesWithTheLog(t *testing.T) {
	n := newNode(t)
	s := n.start()
	p := tp("t", 0)
	log, d := n.create(p, uuid.Zero)
	file := filepath.Join(d.Path, checkpoint.CleanerOffsetFile)
	n.append(log, "a", "b")
	if err := s.SetCleaned(p, log, 1); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(p, false); err != nil {
		t.Fatal(err)
	}
	if text := n.read(file); text != "0\n0\n" {
		t.Errorf("after the deletion: %q", text)
	}
	log, d = n.create(p, uuid.Zero)
	n.append(log, "a", "b")
	file = filepath.Join(d.Path, checkpoint.CleanerOffsetFile)
	if err := s.SetCleaned(p, log, 1); err != nil {
		t.Fatal(err)
	}
	if err := s.Crash(); err != nil {
		t.Fatal(err)
	}
	if err := vfs.WriteFileAtomic(n.fs, file, []byte("0\n2\nelsewhere 0 7\nt 0 1\n")); err != nil {
		t.Fatal(err)
	}
	n.start()
	if text := n.read(file); text != "0\n1\nt 0 1\n" {
		t.Errorf("after a start: %q", text)
	}
}
