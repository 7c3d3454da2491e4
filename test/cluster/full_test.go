package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"
	"golang.org/x/sys/unix"

	"weir/test/testnode"
)

// smallDisk mounts a file system in memory of so many bytes, until the end of the test.
func smallDisk(t *testing.T, bytes int) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "disk")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", bytes)); err != nil {
		t.Skip("cannot mount a file system here, which takes root: ", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("umount %s: %v", dir, err)
		}
	})
	return dir
}

// fill takes what is left of the disk, and gives it back when called again.
func fill(t *testing.T, dir string) (giveBack func()) {
	t.Helper()
	name := filepath.Join(dir, "somebody-elses-file")
	f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	for size := 1 << 20; size > 0; {
		if _, err := f.Write(make([]byte, size)); errors.Is(err, syscall.ENOSPC) {
			size /= 2
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
}

// filler produces to one partition, record by record.
type filler struct {
	topic  string
	n      *testnode.Node
	c      *kgo.Client // of the present process of the node
	values []string    // acked, by offset
}

func newFiller(t *testing.T, n *testnode.Node, topic string) *filler {
	f := &filler{topic: topic, n: n}
	f.connect(t)
	return f
}

func (f *filler) connect(t *testing.T) {
	f.c = f.n.Client(t, kgo.RequestRetries(0), kgo.MaxVersions(kversion.V2_8_0()))
}

func (f *filler) produce(t *testing.T, size int) error {
	t.Helper()
	value := fmt.Sprintf("%d-%s", len(f.values), strings.Repeat("x", size))
	offset, err := produceOne(t.Context(), f.c, &kgo.Record{Topic: f.topic, Value: []byte(value)}, -1)
	if err != nil {
		return err
	}
	if offset != int64(len(f.values)) {
		t.Fatalf("record %d got offset %d", len(f.values), offset)
	}
	f.values = append(f.values, value)
	return nil
}

// untilFull produces until the node refuses, and returns how.
func (f *filler) untilFull(t *testing.T, size int) error {
	t.Helper()
	for range 5000 {
		if err := f.produce(t, size); err != nil {
			return err
		}
	}
	t.Fatal("the disk does not fill")
	return nil
}

// check reads everything from an offset on.
func (f *filler) check(t *testing.T, from int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c := f.n.Client(t, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{f.topic: {0: kgo.NewOffset().At(int64(from))}}))
	for at := from; at < len(f.values); {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("%s at offset %d of %d: %v", f.topic, at, len(f.values), err)
		}
		for _, r := range fetches.Records() {
			if r.Offset != int64(at) || string(r.Value) != f.values[at] {
				t.Fatalf("offset %d holds %.20q, want offset %d, %.20q", r.Offset, r.Value, at, f.values[at])
			}
			at++
		}
	}
}

// fillMetadata changes a configuration until that is refused, and returns how.
func fillMetadata(t *testing.T, n *testnode.Node) error {
	t.Helper()
	adm := n.Admin(t)
	for i := range 1000 {
		value := fmt.Sprint(1_000_000_000 + i)
		res, err := adm.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: "retention.ms", Value: &value}}, "other")
		if err != nil {
			return err
		}
		for _, r := range res {
			if r.Err != nil {
				return fmt.Errorf("%w: %s", r.Err, r.ErrMessage)
			}
		}
	}
	t.Fatal("the metadata log grows on a full disk")
	return nil
}

// TestFullDisk: on a full disk produce is refused with a storage error, reads and DeleteRecords go on, the node starts,
// and when there is room again it takes records as before.
func TestFullDisk(t *testing.T) {
	disk := smallDisk(t, 24<<20)
	props := map[string]string{
		"log.dirs": disk, "log.segment.bytes": "1048576", "log.segment.delete.delay.ms": "0", "log.retention.check.interval.ms": "1000", "log.initial.task.delay.ms": "100",
		"log.flush.offset.checkpoint.interval.ms": "200", "log.flush.start.offset.checkpoint.interval.ms": "200",
	}
	n := testnode.New(t, testnode.Options{Props: props})
	n.Start(t)
	createTopic(t, n, "full", 1, nil)
	createTopic(t, n, "other", 1, nil)
	f, other := newFiller(t, n, "full"), newFiller(t, n, "other")
	for range 2000 { // something for DeleteRecords to remove
		if err := f.produce(t, 4000); err != nil {
			t.Fatal(err)
		}
	}
	if err := other.produce(t, 10); err != nil {
		t.Fatal(err)
	}
	giveBack := fill(t, disk)
	for i, err := range []error{f.untilFull(t, 10000), f.untilFull(t, 100), f.untilFull(t, 1), other.untilFull(t, 100)} {
		if !errors.Is(err, kerr.KafkaStorageError) {
			t.Errorf("produce %d on a full disk: %v, want %v", i, err, kerr.KafkaStorageError)
		}
	}
	f.check(t, 0)

	t.Log("kill -9 and start on the full disk")
	n.Kill(t)
	n.Start(t)
	f.connect(t)
	other.connect(t)
	f.check(t, 0)
	other.check(t, 0)
	giveBack = fill(t, disk) // recovery may have given a little back
	if err := f.untilFull(t, 10000); !errors.Is(err, kerr.KafkaStorageError) {
		t.Errorf("produce after a start on a full disk: %v, want %v", err, kerr.KafkaStorageError)
	}

	t.Log("the metadata log cannot grow either")
	refusedConfig := fillMetadata(t, n)
	t.Log("configuration refused: ", refusedConfig)
	f.check(t, 0)
	if err := f.produce(t, 10000); !errors.Is(err, kerr.KafkaStorageError) {
		t.Errorf("produce while metadata cannot be written: %v, want %v", err, kerr.KafkaStorageError)
	}

	t.Log("SIGTERM and start on the full disk")
	n.Signal(t, syscall.SIGTERM)
	testnode.Until(t, 30*time.Second, "stop on a full disk", func() error {
		if n.Running() {
			return errors.New("still running")
		}
		return nil
	})
	n.Start(t)
	f.connect(t)
	other.connect(t)
	f.check(t, 0)

	t.Log("DeleteRecords makes room")
	offsets := kadm.Offsets{}
	offsets.AddOffset("full", 0, 1500, -1)
	deleted, err := n.Admin(t).DeleteRecords(t.Context(), offsets)
	if err := errors.Join(err, deleted.Error()); err != nil {
		t.Fatal(err)
	}
	f.check(t, 1500)
	testnode.Until(t, 20*time.Second, "room after DeleteRecords", func() error { return f.produce(t, 10000) })
	f.check(t, 1500)

	t.Log("somebody else makes room")
	giveBack()
	for range 20 {
		if err := f.produce(t, 10000); err != nil {
			t.Fatal(err)
		}
		testnode.Until(t, 20*time.Second, "the other topic takes records", func() error { return other.produce(t, 10) })
	}
	createTopic(t, n, "new", 1, nil)
	n.Restart(t)
	f.check(t, 1500)
	other.check(t, 0)
}
