package segment

import (
	"errors"
	"syscall"
	"testing"

	"weir/internal/vfs/errfs"
)

// Batches appended last are found without a read, older ones and those that were cut off are not.
func TestRecentBatchesAreFoundUnread(t *testing.T) {
	f := errfs.Wrap(newFS(t))
	s := create(t, options(f, 0))
	all := fill(t, s, 20)
	f.Set(errfs.Rule{Op: errfs.Read, Path: "*.log", Err: syscall.EIO})
	var places []Position
	for i, at := 0, int64(0); i < len(all); i++ {
		places = append(places, Position{Pos: at, Size: int64(len(all[i])), BaseOffset: int64(3 * i), LastOffset: int64(3*i + 2)})
		at += int64(len(all[i]))
	}
	for _, offset := range []int64{57, 58, 59, 36} {
		p, ok, err := s.Position(offset)
		want := places[offset/3]
		if err != nil || !ok || p != want {
			t.Errorf("offset %d: %+v %t %v, want %+v", offset, p, ok, err, want)
		}
	}
	if _, _, err := s.Position(35); !errors.Is(err, syscall.EIO) {
		t.Errorf("an older batch: %v", err)
	}
	f.Set()
	if _, err := s.TruncateTo(57); err != nil {
		t.Fatal(err)
	}
	if p, ok, err := s.Position(57); ok || err != nil {
		t.Errorf("cut off, but found: %+v %v", p, err)
	}
	put(t, s, records(57, 1, 2, 3, 4))
	f.Set(errfs.Rule{Op: errfs.Read, Path: "*.log", Err: syscall.EIO})
	if p, ok, err := s.Position(60); err != nil || !ok || p.BaseOffset != 57 {
		t.Errorf("what came in its place: %+v %t %v", p, ok, err)
	}
}
