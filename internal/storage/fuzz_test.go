package storage

import (
	"log/slog"
	"testing"

	"weir/internal/storage/producer"
	"weir/internal/vfs/memfs"
)

// FuzzFollowerAppend: whatever a leader sends, the log refuses it whole or ends
// where its batches end, and opens again.
func FuzzFollowerAppend(f *testing.F) {
	f.Add(build(spec{}), int32(0))
	f.Add(append(build(spec{id: 1, n: 2}), build(spec{at: 2, id: 1, seq: 2, txn: true})...), int32(1))
	f.Add(marker(1, 0, true, 3), int32(0))
	f.Add(append(oldMessage(0, 0), oldMessage(1, 1)...), int32(0))
	f.Add(build(spec{})[:40], int32(0))
	f.Fuzz(func(t *testing.T, b []byte, leader int32) {
		o := Options{FS: memfs.New(), Dir: testDir, Topic: "t", Config: topicConfig(), Clock: fixedClock{}, Logger: slog.New(slog.DiscardHandler)}
		l, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		r, err := l.Append(b, Append{LeaderEpoch: leader, Origin: producer.OriginReplication})
		end := int64(0)
		if err == nil && r.LastOffset >= r.FirstOffset {
			end = r.LastOffset + 1
		}
		if l.LogEnd() != end {
			t.Fatalf("log end %d after %+v, %v", l.LogEnd(), r, err)
		}
		l.Abandon()
		if l, err = Open(o); err != nil {
			t.Fatal(err)
		}
		if l.LogEnd() != end {
			t.Fatalf("log end %d after opening again, was %d", l.LogEnd(), end)
		}
	})
}

func FuzzParseDirName(f *testing.F) {
	for _, s := range []string{"a-0", "a-b-7", "t-1.0123456789abcdef0123456789abcdef-delete", "t-1.0123456789abcdef0123456789abcdef-future", "-", "x-01"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		topic, p, kind, err := ParseDirName(name)
		if err == nil && kind == Current && DirName(topic, p) != name {
			t.Fatalf("%q was read as topic %q, partition %d", name, topic, p)
		}
	})
}
