package cluster

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/test/testnode"
)

// TestHangUps: hundreds of clients that close, or reset, their connections while a large answer is being written to them, or
// while it is still read or waited for, leave nothing behind: no goroutine, no socket, no file that was deleted meanwhile.
func TestHangUps(t *testing.T) {
	at := "127.0.0.1:" + strconv.Itoa(testnode.FreePort(t))
	s := &cast{metrics: map[int32]string{1: at}}
	n := testnode.New(t, testnode.Options{Props: map[string]string{"weir.metrics.listener": at, "log.segment.bytes": "4194304", "log.segment.delete.delay.ms": "0"}})
	n.Start(t)
	const partitions = 4
	createTopic(t, n, "large", partitions, map[string]string{"max.message.bytes": "2000000"})
	c := n.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerBatchMaxBytes(2_000_000))
	for i := range 8 * partitions { // 8 MiB each
		if err := c.ProduceSync(t.Context(), &kgo.Record{Topic: "large", Partition: int32(i % partitions), Value: make([]byte, 1<<20)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	id := topicID(t, n, "large")
	hangUp(t, n, fetchAll(id, partitions, 0, 0), 64<<20, false) // files are open from now on
	quiet := func() (goroutines, files int) {
		return int(s.metric(t, 1, "go_goroutines")), openFiles(t, n)
	}
	goroutines, files := quiet()
	for round := range testnode.Rounds(2, 10) {
		var wg sync.WaitGroup
		for i := range 300 {
			wg.Go(func() {
				// The whole answer is 32 MiB; a fetch at the end of the log waits a minute.
				req := fetchAll(id, partitions, 0, 0)
				if i%10 == 9 {
					req = fetchAll(id, partitions, 8, time.Minute)
				}
				hangUp(t, n, req, int64([]int{0, 1, 10_000, 300_000, 5_000_000}[i%5]), i%2 == 0)
			})
		}
		wg.Wait()
		testnode.Until(t, 30*time.Second, fmt.Sprintf("quiet after round %d", round), func() error {
			if g, f := quiet(); g > goroutines || f > files {
				return fmt.Errorf("%d goroutines and %d files, before %d and %d", g, f, goroutines, files)
			}
			return nil
		})
	}
	t.Logf("%d goroutines, %d files", goroutines, files)
	if _, err := n.Admin(t).DeleteTopics(t.Context(), "large"); err != nil {
		t.Fatal(err)
	}
	testnode.Until(t, 30*time.Second, "files of the deleted topic closed", func() error { return deletedFiles(n) })
}

func topicID(t *testing.T, n *testnode.Node, topic string) [16]byte {
	t.Helper()
	list, err := n.Admin(t).ListTopics(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	return list[topic].ID
}

// fetchAll is the frame of a fetch of everything in a topic from an offset on.
func fetchAll(id [16]byte, partitions int32, offset int64, wait time.Duration) []byte {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.ReplicaID, req.MaxWaitMillis, req.MinBytes, req.MaxBytes = 13, -1, int32(wait/time.Millisecond), 1, 50<<20
	req.SessionEpoch = -1
	topic := kmsg.NewFetchRequestTopic()
	topic.TopicID = id
	for p := range partitions {
		row := kmsg.NewFetchRequestTopicPartition()
		row.Partition, row.FetchOffset, row.PartitionMaxBytes, row.CurrentLeaderEpoch, row.LastFetchedEpoch = p, offset, 50<<20, -1, -1
		topic.Partitions = append(topic.Partitions, row)
	}
	req.Topics = append(req.Topics, topic)
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("hangup")).AppendRequest(nil, req, 1)
}

// hangUp sends a frame, reads so many bytes of the answer, if it is that long, and closes the connection; with reset the
// other side gets a reset instead of an end.
func hangUp(t *testing.T, n *testnode.Node, frame []byte, read int64, reset bool) {
	nc, err := net.Dial("tcp", n.Addr)
	if err != nil {
		t.Error(err)
		return
	}
	defer nc.Close()
	if reset {
		if err := nc.(*net.TCPConn).SetLinger(0); err != nil {
			t.Error(err)
			return
		}
	}
	if _, err := nc.Write(frame); err != nil {
		t.Error(err)
		return
	}
	if err := nc.SetReadDeadline(time.Now().Add(2 * time.Second)); err != nil {
		t.Error(err)
		return
	}
	if _, err := io.CopyN(io.Discard, nc, read); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
}

func openFiles(t *testing.T, n *testnode.Node) int {
	t.Helper()
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", n.PID()))
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// deletedFiles names files that the node holds open although they were deleted.
func deletedFiles(n *testnode.Node) error {
	dir := fmt.Sprintf("/proc/%d/fd", n.PID())
	list, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range list {
		to, err := os.Readlink(filepath.Join(dir, e.Name()))
		if err == nil && (strings.HasSuffix(to, "(deleted)") || strings.Contains(to, "/large-")) {
			return fmt.Errorf("still open: %s", to)
		}
	}
	return nil
}
