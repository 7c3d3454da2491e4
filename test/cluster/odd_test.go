package cluster

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"weir/internal/batch"
	"weir/test/testnode"
)

// snapshots are the metadata snapshots of a node, oldest first.
func snapshots(t *testing.T, n *testnode.Node) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(n.LogDirs[0], "__cluster_metadata-0", "*-*.checkpoint"))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return all
}

// TestDamagedMetadata damages the newest metadata snapshot: a node that cannot know the whole cluster says which file is to
// blame and does not start. It never serves an older cluster in silence. When the file is back, all is there.
func TestDamagedMetadata(t *testing.T) {
	t.Parallel()
	props := small()
	props["metadata.max.retention.bytes"], props["metadata.log.segment.bytes"] = "1", "8388608"
	n := testnode.New(t, testnode.Options{Props: props})
	n.Start(t)
	var want []string
	for i := range 30 {
		want = append(want, fmt.Sprintf("t-%02d", i))
		createTopic(t, n, want[i], 3, map[string]string{"retention.ms": strconv.Itoa(1_000_000 + i)})
	}
	testnode.Until(t, 30*time.Second, "a snapshot", func() error {
		if all := snapshots(t, n); len(all) < 2 {
			return fmt.Errorf("there are %v", all)
		}
		return nil
	})
	n.Stop(t)
	all := snapshots(t, n)
	newest := all[len(all)-1]
	good := read(t, newest)
	flip := func(at int) string {
		b := []byte(good)
		b[at] ^= 0x40
		return string(b)
	}
	complete := func() {
		t.Helper()
		topics, err := n.Admin(t).ListTopics(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := topics.Names(); !slices.Equal(got, want) {
			t.Fatalf("the node serves %v", got)
		}
	}
	for name, bad := range map[string]string{
		"a byte in the middle": flip(len(good) / 2), "a byte of the header": flip(20), "a byte at the end": flip(len(good) - 3),
		"cut in a batch": good[:len(good)-7], "cut to half": good[:len(good)/2], "empty": "", "zeros": strings.Repeat("\x00", len(good)),
	} {
		write(t, newest, bad)
		n.Launch(t)
		err := errors.New("it runs")
		for deadline := time.Now().Add(60 * time.Second); n.Running() && time.Now().Before(deadline) && err != nil; {
			var c *kgo.Client
			if c, err = kgo.NewClient(kgo.SeedBrokers(n.Addr), kgo.RequestRetries(0)); err == nil {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				_, err = kadm.NewClient(c).ListBrokers(ctx)
				cancel()
				c.Close()
			}
		}
		if n.Running() {
			t.Logf("%s: starts all the same", name)
			complete()
			n.Stop(t)
			if after := snapshots(t, n); !slices.Contains(after, newest) {
				all = after
			}
		} else if text := n.LogTail(5); !strings.Contains(text, filepath.Base(newest)) || !strings.Contains(text, "move it away") {
			t.Errorf("%s: the message does not name the file:\n%s", name, text)
		} else {
			t.Logf("%s: %s", name, n.LogTail(2))
		}
	}
	if err := os.Rename(newest, newest+".away"); err != nil { // as the message says
		t.Fatal(err)
	}
	n.Launch(t)
	testnode.Until(t, 60*time.Second, "a start without the snapshot, or its end", func() error {
		if !n.Running() {
			return nil
		}
		topics, err := n.Admin(t).ListTopics(t.Context())
		if err == nil && !slices.Equal(topics.Names(), want) {
			t.Fatalf("the node serves %v", topics.Names())
		}
		return err
	})
	if n.Running() {
		n.Stop(t)
	} else if text := n.LogTail(3); !strings.Contains(text, "snapshot") {
		t.Errorf("it does not start, and says %s", text)
	}
	write(t, newest, good)
	n.Start(t)
	complete()
	n.Stop(t)
}

// TestPausedProcess stops the process for 20 s under load, as a debugger or a suspended machine does: nothing acked is
// lost, nobody is told of an error that cannot be tried again, and the node goes on by itself.
func TestPausedProcess(t *testing.T) {
	n := testnode.New(t, testnode.Options{Props: small()})
	n.Start(t)
	l := newLedger("paused", 3, true)
	createTopic(t, n, l.topic, l.partitions, nil)
	stop, err := l.idempotent(t.Context(), n.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	acked := func(more int) {
		t.Helper()
		want := l.numAcked() + more
		testnode.Until(t, 60*time.Second, "records acked", func() error {
			if got := l.numAcked(); got < want {
				return fmt.Errorf("%d of %d", got, want)
			}
			return nil
		})
	}
	for range testnode.Rounds(1, 3) {
		acked(100)
		n.Signal(t, syscall.SIGSTOP)
		select {
		case <-time.After(20 * time.Second): // longer than a broker's session
		case <-n.Gone():
		}
		n.Signal(t, syscall.SIGCONT)
		acked(100)
	}
	stop()
	if err := l.check(t.Context(), n, l.promised()); err != nil {
		t.Fatal(err)
	}
	n.Stop(t)
}

// residentMiB is the memory of a process.
func residentMiB(t *testing.T, n *testnode.Node) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.PID()))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return kib >> 10
}

// bomb is a batch that inflates to so many records, of so many zeros each.
func bomb(t *testing.T, codec batch.Codec, count, size int) []byte {
	t.Helper()
	b := batch.NewBuilder(batch.NewOptions())
	b.Append(time.Now().UnixMilli(), nil, make([]byte, 10), nil)
	out := batch.Batch(b.Build()[:batch.HeaderLen])
	var packed bytes.Buffer
	var w io.WriteCloser = gzip.NewWriter(&packed)
	if codec == batch.Zstd {
		z, err := zstd.NewWriter(&packed)
		if err != nil {
			t.Fatal(err)
		}
		w = z
	}
	zeros := make([]byte, size+1) // the value, and that there are no headers
	for i := range count {
		head := binary.AppendVarint([]byte{0, 0}, int64(i)) // attributes, time, offset
		head = binary.AppendVarint(append(head, 1), int64(size))
		_, err := w.Write(append(binary.AppendVarint(nil, int64(len(head)+len(zeros))), head...))
		if err == nil {
			_, err = w.Write(zeros)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	out = append(out, packed.Bytes()...)
	binary.BigEndian.PutUint32(out[8:], uint32(len(out)-12))
	out[22] = byte(codec)
	binary.BigEndian.PutUint32(out[23:], uint32(count-1))
	binary.BigEndian.PutUint32(out[57:], uint32(count))
	binary.BigEndian.PutUint32(out[17:], out.ComputeCRC())
	return out
}

// TestCompressionBombs sends small batches that inflate to much, to topics that make the broker look inside or compress
// anew. Each is refused or taken as the limits say, memory stays bounded, and the node goes on.
func TestCompressionBombs(t *testing.T) {
	n := testnode.New(t, testnode.Options{Props: map[string]string{"message.max.bytes": "10485760"}})
	n.Start(t)
	for _, c := range []string{"producer", "lz4", "zstd", "uncompressed"} {
		createTopic(t, n, c, 1, map[string]string{"compression.type": c})
	}
	cl := n.Client(t, kgo.RequestRetries(0), kgo.MaxVersions(kversion.V2_8_0()))
	idle := residentMiB(t, n)
	big := testnode.Rounds(64, 600)
	large := bomb(t, batch.Zstd, 1, 64<<20)
	for name, c := range map[string]struct {
		raw          []byte
		want, stored *kerr.Error // compressed, and not
	}{
		"gzip, one huge record": {bomb(t, batch.Gzip, 1, batch.MaxRecord+1), kerr.InvalidRecord, kerr.InvalidRecord},
		"zstd, one huge record": {bomb(t, batch.Zstd, 1, batch.MaxRecord+1), kerr.InvalidRecord, kerr.InvalidRecord},
		"gzip, many records":    {bomb(t, batch.Gzip, big, 1<<20), nil, kerr.MessageTooLarge},
		"zstd, many records":    {bomb(t, batch.Zstd, big, 1<<20), nil, kerr.MessageTooLarge},
		"zstd, without an end":  {bomb(t, batch.Zstd, 1100, 1<<20), kerr.MessageTooLarge, kerr.MessageTooLarge},
		"gzip, a few records":   {bomb(t, batch.Gzip, 3, 1<<20), nil, nil},
		"gzip, a large record":  {bomb(t, batch.Gzip, 1, 64<<20), nil, kerr.MessageTooLarge},
		"zstd, a large record":  {large, nil, kerr.MessageTooLarge},
	} {
		for _, topic := range []string{"producer", "lz4", "zstd", "uncompressed"} {
			began := time.Now()
			want := c.want
			if topic == "uncompressed" {
				want = c.stored
			}
			if got := produceRaw(t, cl, topic, c.raw); got != want {
				t.Errorf("%s (%d bytes) to %s: %v, want %v", name, len(c.raw), topic, got, want)
			}
			t.Logf("%s (%d bytes) to %s: %v, %d MiB", name, len(c.raw), topic, time.Since(began).Round(time.Millisecond), residentMiB(t, n))
		}
	}
	var all sync.WaitGroup // of many at a time, too
	for range 8 {
		all.Go(func() {
			own := n.Client(t, kgo.RequestRetries(0), kgo.MaxVersions(kversion.V2_8_0()))
			for _, topic := range []string{"lz4", "zstd", "uncompressed", "lz4"} {
				produceRaw(t, own, topic, large)
			}
		})
	}
	all.Wait()
	mib := residentMiB(t, n)
	t.Logf("after all: %d MiB", mib)
	if mib > idle+400 { // a tenth of what they inflate to at a time; the heap may double before it is collected
		t.Errorf("the node took %d MiB, %d at the beginning", mib, idle)
	}
	if _, err := produceOne(t.Context(), cl, &kgo.Record{Topic: "lz4", Value: []byte("still here")}, -1); err != nil {
		t.Error(err)
	}
	n.Stop(t)
}

// produceRaw sends a batch as it is and returns what came of it.
func produceRaw(t *testing.T, cl *kgo.Client, topic string, raw []byte) *kerr.Error {
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 60000
	rt, rp := kmsg.NewProduceRequestTopic(), kmsg.NewProduceRequestTopicPartition()
	rt.Topic, rp.Records = topic, slices.Clone(raw)
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	res, err := cl.Broker(1).Request(t.Context(), req)
	if err != nil {
		t.Errorf("%d bytes to %s: %v", len(raw), topic, err)
		return nil
	}
	return kerr.TypedErrorForCode(res.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode)
}

// TestIdentityFilesGo: somebody removes .lock and meta.properties while the node runs. It goes on; the next start says
// what is missing.
func TestIdentityFilesGo(t *testing.T) {
	t.Parallel()
	n := testnode.New(t, testnode.Options{})
	n.Start(t)
	createTopic(t, n, "a", 1, nil)
	f := newFiller(t, n, "a")
	if err := f.produce(t, 10); err != nil {
		t.Fatal(err)
	}
	meta := filepath.Join(n.LogDirs[0], "meta.properties")
	good := read(t, meta)
	for _, file := range []string{meta, filepath.Join(n.LogDirs[0], ".lock")} {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.produce(t, 10); err != nil {
		t.Fatal(err)
	}
	createTopic(t, n, "b", 1, nil)
	n.Stop(t)
	refused(t, serve(t, n.Properties()), n.LogDirs[0], "meta.properties")
	write(t, meta, good)
	n.Start(t)
	f.connect(t)
	f.check(t, 0)
	n.Stop(t)
}
