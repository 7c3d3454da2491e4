package broker_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"weir/internal/broker"
	"weir/internal/vfs/errfs"
	"weir/internal/vfs/memfs"
)

// produceTo sends one record to a partition, at most for a moment.
func produceTo(t *testing.T, c *kgo.Client, topic string, p int32) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	return c.ProduceSync(ctx, &kgo.Record{Topic: topic, Partition: p, Value: []byte("x")}).FirstErr()
}

// plain is a client whose producer tells every error.
func plain(t *testing.T, b *broker.Broker) *kgo.Client {
	return newClient(t, b, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck()), kgo.RecordRetries(0))
}

func createIn(t *testing.T, c *kgo.Client, topic string, partitions int32) {
	t.Helper()
	if _, err := kadm.NewClient(c).CreateTopic(t.Context(), partitions, 1, nil, topic); err != nil {
		t.Fatal(err)
	}
}

// TestFailedDirectory: when one of two log directories fails, its partitions are offline and those of the other go on.
// After a repair and a start everything is there.
func TestFailedDirectory(t *testing.T) {
	disk := formatted(t, nodeProperties)
	faults := errfs.Wrap(disk)
	var logs strings.Builder
	b, err := startNode(t, nodeProperties, faults, &logs)
	if err != nil {
		t.Fatal(err)
	}
	c := plain(t, b)
	createIn(t, c, "t", cutPartitions)
	for p := range int32(cutPartitions) {
		if err := produceTo(t, c, "t", p); err != nil {
			t.Fatal(err)
		}
	}
	faults.Set(errfs.Rule{Op: errfs.Any, Path: "/data/b/*", Err: syscall.EIO}, errfs.Rule{Op: errfs.Any, Path: "/data/b/*/*", Err: syscall.EIO})
	failed := 0
	for p := range int32(cutPartitions) {
		there := hosts(t, disk, "/data/b", p)
		if there {
			failed++
		}
		for range 2 {
			err := produceTo(t, c, "t", p)
			if offline := errors.Is(err, kerr.KafkaStorageError) || errors.Is(err, kerr.NotLeaderForPartition) || errors.Is(err, kerr.LeaderNotAvailable); there != offline || !there && err != nil {
				t.Errorf("partition %d, in the failed directory: %v; produce: %v", p, there, err)
			}
		}
	}
	if failed == 0 || failed == cutPartitions {
		t.Fatalf("%d of %d partitions are in the directory that fails", failed, cutPartitions)
	}
	if !strings.Contains(logs.String(), "/data/b") || !strings.Contains(logs.String(), "input/output error") {
		t.Error("the log does not name the directory and the error")
	}
	createIn(t, c, "new", 3) // all in the good directory
	for p := range int32(3) {
		if err := produceTo(t, c, "new", p); err != nil {
			t.Errorf("a new topic, partition %d: %v", p, err)
		}
	}
	c.Close()
	stopNode(t, b)

	faults.Set()
	if b, err = startNode(t, nodeProperties, faults, &logs); err != nil {
		t.Fatal(err)
	}
	defer stopNode(t, b)
	c = plain(t, b)
	defer c.Close()
	for p := range int32(cutPartitions) {
		if err := produceTo(t, c, "t", p); err != nil {
			t.Errorf("partition %d after the repair: %v", p, err)
		}
	}
}

func hosts(t *testing.T, disk *memfs.FS, dir string, p int32) bool {
	t.Helper()
	_, err := disk.Stat(fmt.Sprintf("%s/t-%d", dir, p))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

// TestStartOnAFullDisk: not a byte is free, and the node starts, serves what it has and stops, more than once.
func TestStartOnAFullDisk(t *testing.T) {
	disk := formatted(t, nodeProperties)
	var logs strings.Builder
	b, err := startNode(t, nodeProperties, disk, &logs)
	if err != nil {
		t.Fatal(err)
	}
	c := plain(t, b)
	createIn(t, c, "t", 1)
	if err := produceTo(t, c, "t", 0); err != nil {
		t.Fatal(err)
	}
	c.Close()
	stopNode(t, b)
	free, total, err := disk.Free("/")
	if err != nil {
		t.Fatal(err)
	}
	used := total - free
	for range 5 {
		disk.SetCapacity(used)
		if b, err = startNode(t, nodeProperties, disk, &logs); err != nil {
			t.Fatal(err)
		}
		c := plain(t, b)
		if err := produceTo(t, c, "t", 0); !errors.Is(err, kerr.KafkaStorageError) && err != nil {
			t.Errorf("produce on a full disk: %v", err)
		}
		ends, err := kadm.NewClient(c).ListEndOffsets(t.Context(), "t")
		if err := errors.Join(err, ends.Error()); err != nil {
			t.Fatal(err)
		}
		if o, _ := ends.Lookup("t", 0); o.Offset < 1 {
			t.Errorf("the partition ends at %d", o.Offset)
		}
		c.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		if err := b.Shutdown(ctx); err != nil {
			t.Log("the stop tells: ", err)
		}
		cancel()
	}
}
