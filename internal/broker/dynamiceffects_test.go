package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/batch"
	"weir/internal/network"
	"weir/internal/partition"
	"weir/internal/records"
	"weir/internal/uuid"
	"weir/internal/wire"
)

// effects are all rows, those of the logs first.
func effects() []effect {
	return append(append(logEffects(), cleanerEffects()...), append(produceEffects(), brokerEffects()...)...)
}

func logEffects() []effect {
	return []effect{
		{topic: "retention.ms", broker: "log.retention.ms", value: "60000", without: "start 0", with: "start 1", look: aged},
		{topic: "retention.bytes", broker: "log.retention.bytes", value: "1000", without: "start 0", with: "start 1", look: grown},
		{topic: "segment.ms", broker: "log.roll.ms", value: "60000", without: "1 segments", with: "2 segments", look: late},
		{topic: "segment.jitter.ms", broker: "log.roll.jitter.ms", value: "604800000", without: "none early", with: "some early", look: jittered},
		{topic: "segment.bytes", broker: "log.segment.bytes", value: "1048576", without: "1 segments", with: "3 segments", look: segmentsOf(600_000)},
		{topic: "internal.segment.bytes", value: "1000", without: "1 segments", with: "3 segments", look: segmentsOf(600)},
		{topic: "index.interval.bytes", broker: "log.index.interval.bytes", value: "100", without: "no entry", with: "entries", look: indexed},
		{topic: "segment.index.bytes", broker: "log.index.size.max.bytes", value: "16", without: "1 segments", with: "", look: fullIndex},
		{topic: "flush.messages", broker: "log.flush.interval.messages", value: "1", without: "durable: false", with: "durable: true", look: flushed(0)},
		{topic: "flush.ms", broker: "log.flush.interval.ms", value: "1000", without: "durable: false", with: "durable: true", look: flushed(2 * time.Second)},
		{topic: "file.delete.delay.ms", broker: "log.segment.delete.delay.ms", value: "1000", without: "1 waiting", with: "0 waiting", look: segmentGoes},
		{broker: "log.segment.delete.delay.ms", value: "1000", without: "still there", with: "gone", look: topicGoes},
	}
}

func cleanerEffects() []effect {
	compact := map[string]string{"cleanup.policy": "compact"}
	always := with(compact, map[string]string{"min.cleanable.dirty.ratio": "0"})
	tiny := map[string]string{"log.cleaner.dedupe.buffer.size": "2400"} // a hundred keys
	slow := map[string]string{"log.cleaner.io.max.bytes.per.second": "1"}
	return []effect{
		{topic: "cleanup.policy", broker: "log.cleanup.policy", value: "compact", without: "2 of the key", with: "1 of the key", look: compacted},
		{topic: "delete.retention.ms", broker: "log.cleaner.delete.retention.ms", value: "1000", without: "tombstone kept", with: "tombstone gone", look: buried, base: always},
		{topic: "min.compaction.lag.ms", broker: "log.cleaner.min.compaction.lag.ms", value: "3600000", without: "1 of the key", with: "2 of the key", look: compacted, base: compact},
		{
			topic: "max.compaction.lag.ms", broker: "log.cleaner.max.compaction.lag.ms", value: "1000", without: "2 of the key", with: "1 of the key", look: hardlyDirty,
			base: with(compact, map[string]string{"min.cleanable.dirty.ratio": "0.9"}),
		},
		{topic: "min.cleanable.dirty.ratio", broker: "log.cleaner.min.cleanable.ratio", value: "0.01", without: "2 of the key", with: "1 of the key", look: hardlyDirty, base: compact},
		{broker: "log.cleaner.dedupe.buffer.size", value: "1000", without: "1 runs", with: "3 runs", look: runs, base: always},
		{broker: "log.cleaner.io.buffer.load.factor", value: "0.2", without: "1 runs", with: "4 runs", look: runs, base: always, cluster: tiny},
		{broker: "log.cleaner.io.buffer.size", value: "8000", without: "1 writes", with: "", look: writes, base: always},
		{broker: "log.cleaner.io.max.bytes.per.second", value: "1", without: "done: true", with: "done: false", look: throttled, base: always, bubble: true},
		{broker: "log.cleaner.threads", value: "2", without: "1 at once", with: "2 at once", look: atOnce, base: always, cluster: slow, bubble: true},
		{broker: "log.cleaner.backoff.ms", value: "1000", without: "rests", with: "looks again", look: rests, base: compact, bubble: true},
	}
}

func produceEffects() []effect {
	const tooLarge, invalid, tooFew = "*batch.InvalidRecordError", "*batch.InvalidRecordError", "*partition.NotEnoughReplicasError"
	codec := func(name string) map[string]string { return map[string]string{"compression.type": name} }
	three := []int32{1, 2, 3}
	return []effect{
		{topic: "max.message.bytes", broker: "message.max.bytes", value: "500", without: "ok", with: tooLarge, look: sending(message{size: 2000})},
		{topic: "message.timestamp.before.max.ms", broker: "log.message.timestamp.before.max.ms", value: "60000", without: "ok", with: invalid, look: sending(message{at: -time.Hour})},
		{topic: "message.timestamp.after.max.ms", broker: "log.message.timestamp.after.max.ms", value: "1000", without: "ok", with: invalid, look: sending(message{at: 10 * time.Minute})},
		{topic: "message.timestamp.type", broker: "log.message.timestamp.type", value: "LogAppendTime", without: "type 0", with: "type 1", look: stored(func(b batch.Batch) string {
			return fmt.Sprintf("type %d", b.TimestampType())
		})},
		{topic: "compression.type", broker: "compression.type", value: "lz4", without: "codec 0", with: "codec 3", look: stored(func(b batch.Batch) string { return fmt.Sprintf("codec %d", b.Codec()) })},
		{topic: "compression.gzip.level", broker: "compression.gzip.level", value: "1", look: stored(size), base: codec("gzip")},
		{topic: "compression.lz4.level", broker: "compression.lz4.level", value: "1", look: stored(size), base: codec("lz4")},
		{topic: "compression.zstd.level", broker: "compression.zstd.level", value: "19", look: stored(size), base: codec("zstd")},
		{topic: "min.insync.replicas", broker: "min.insync.replicas", value: "2", without: "ok", with: tooFew, look: sending(message{}), replicas: three},
		{topic: "leader.replication.throttled.replicas", value: "*", without: "throttled: false", with: "throttled: true", replicas: three, look: func(_ *node, r *partition.Replica) string {
			return fmt.Sprintf("throttled: %t", r.ThrottledFor(2))
		}},
		{topic: "follower.replication.throttled.replicas", value: "0:1", without: "throttled: false", with: "throttled: true", look: func(_ *node, r *partition.Replica) string {
			return fmt.Sprintf("throttled: %t", r.ThrottledFollower())
		}},
	}
}

func brokerEffects() []effect {
	return []effect{
		{broker: "producer.id.expiration.ms", value: "60000", without: "1 producers", with: "0 producers", look: silent},
		{broker: "leader.replication.throttled.rate", value: "1000", without: "exceeded: false", with: "exceeded: true", look: func(n *node, _ *partition.Replica) string {
			n.replicas.LeaderThrottle().Record(1 << 20)
			return fmt.Sprintf("exceeded: %t", n.replicas.LeaderThrottle().Exceeded())
		}},
		{broker: "cordoned.log.dirs", value: "/a", without: "/a used: true", with: "/a used: false", look: placed},
		{broker: "max.connections", value: "1", without: "served, served", with: "served, waits", look: connects, listens: true},
		{broker: "max.connections.per.ip", value: "1", without: "served, served", with: "served, closed", look: connects, listens: true},
		{broker: "max.connections.per.ip.overrides", value: "127.0.0.1:1", without: "served, served", with: "served, closed", look: connects, listens: true},
		{broker: "max.connection.creation.rate", value: "1", without: "served, served", with: "served, waits", look: connects, listens: true},
	}
}

func aged(n *node, r *partition.Replica) string {
	n.put(r, message{at: -10 * time.Minute})
	n.roll(r)
	n.put(r, message{})
	return n.retained(r)
}

func grown(n *node, r *partition.Replica) string {
	n.put(r, message{size: 2000})
	n.roll(r)
	n.put(r, message{size: 2000})
	return n.retained(r)
}

func (n *node) retained(r *partition.Replica) string {
	n.replicas.Retain(n.clock.Now())
	return fmt.Sprintf("start %d", r.Log().LogStart())
}

func numSegments(r *partition.Replica) string {
	return fmt.Sprintf("%d segments", r.Log().NumSegments())
}

func late(n *node, r *partition.Replica) string {
	n.put(r, message{}, message{at: 2 * time.Minute})
	return numSegments(r)
}

// jittered: of many segments some end before half of segment.ms has passed, when the jitter may be all of it.
func jittered(n *node, r *partition.Replica) string {
	for range 40 {
		n.put(r, message{})
		n.roll(r) // draws anew
		before := r.Log().NumSegments()
		n.put(r, message{})
		n.clock.Advance(84 * time.Hour)
		n.put(r, message{})
		if r.Log().NumSegments() > before {
			return "some early"
		}
	}
	return "none early"
}

func segmentsOf(size int) func(*node, *partition.Replica) string {
	return func(n *node, r *partition.Replica) string {
		n.put(r, message{size: size}, message{size: size}, message{size: size})
		return numSegments(r)
	}
}

func indexed(n *node, r *partition.Replica) string {
	for range 10 {
		n.put(r, message{size: 200})
	}
	s := r.Log().Segments()
	entries, _, err := s[len(s)-1].IndexSizes()
	if err != nil {
		n.t.Fatal(err)
	}
	if entries > 0 {
		return "entries"
	}
	return "no entry"
}

// fullIndex: each of these batches has an entry in the index.
func fullIndex(n *node, r *partition.Replica) string {
	for range 6 {
		n.put(r, message{size: 5000})
	}
	return numSegments(r)
}

func flushed(after time.Duration) func(*node, *partition.Replica) string {
	return func(n *node, r *partition.Replica) string {
		n.put(r, message{})
		n.clock.Advance(after)
		n.replicas.Tick(n.clock.Now())
		return fmt.Sprintf("durable: %t", r.Log().RecoveryPoint() == r.Log().LogEnd())
	}
}

func segmentGoes(n *node, r *partition.Replica) string {
	n.put(r, message{})
	n.roll(r)
	n.put(r, message{})
	if _, err := r.DeleteRecords(1); err != nil {
		n.t.Fatal(err)
	}
	n.replicas.Retain(n.clock.Now())
	n.clock.Advance(2 * time.Second)
	n.replicas.Tick(n.clock.Now())
	return fmt.Sprintf("%d waiting", len(r.Log().PendingDeletes()))
}

// topicGoes: a deleted topic's directories are removed after the delay of the broker.
func topicGoes(n *node, r *partition.Replica) string {
	gone := records.NewRemoveTopicRecord()
	gone.TopicID = r.TopicID()
	n.replay(&gone)
	n.clock.Advance(2 * time.Second)
	n.replicas.Tick(n.clock.Now())
	list, err := n.disk.ReadDir("/a")
	if err != nil {
		n.t.Fatal(err)
	}
	for _, d := range list {
		if strings.HasPrefix(d.Name(), r.Topic()) {
			return "still there"
		}
	}
	return "gone"
}

func (n *node) ofKey(r *partition.Replica) string {
	return fmt.Sprintf("%d of the key", n.values(r)["k"])
}

func compacted(n *node, r *partition.Replica) string {
	n.put(r, message{key: "k"}, message{key: "k"})
	n.roll(r)
	n.clean()
	return n.ofKey(r)
}

// hardlyDirty: a small part of the log was not compacted yet.
func hardlyDirty(n *node, r *partition.Replica) string {
	for i := range 40 {
		n.put(r, message{key: fmt.Sprintf("other%d", i), size: 100})
	}
	n.roll(r)
	n.clean()
	n.put(r, message{key: "k"}, message{key: "k"})
	n.roll(r)
	n.clock.Advance(2 * time.Second)
	n.clean()
	return n.ofKey(r)
}

func buried(n *node, r *partition.Replica) string {
	n.put(r, message{key: "k"}, message{key: "k", null: true}, message{key: "other"})
	n.roll(r)
	n.clean() // from now on delete.retention.ms counts
	n.clock.Advance(time.Hour)
	n.put(r, message{key: "other"}, message{key: "other"})
	n.roll(r)
	n.clean()
	if n.values(r)["k=null"] > 0 {
		return "tombstone kept"
	}
	return "tombstone gone"
}

// runs: eighty keys are compacted in as many runs as the map of their offsets demands.
func runs(n *node, r *partition.Replica) string {
	for i := range 80 {
		n.put(r, message{key: fmt.Sprint(i)})
	}
	n.roll(r)
	return fmt.Sprintf("%d runs", n.clean())
}

func writes(n *node, r *partition.Replica) string {
	for i := range 40 {
		n.put(r, message{key: fmt.Sprint(i), size: 1000})
	}
	n.roll(r)
	before := n.cleaned.Load()
	n.clean()
	return fmt.Sprintf("%d writes", n.cleaned.Load()-before)
}

// throttled: at a byte a second a run has not ended while the clock stands still.
func throttled(n *node, r *partition.Replica) string {
	n.put(r, message{key: "k", size: 1000}, message{key: "k", size: 1000})
	n.roll(r)
	ctx, cancel := context.WithCancel(n.t.Context())
	ended := make(chan bool, 1)
	go func() { ended <- n.cleaner.Step(ctx) }()
	synctest.Wait()
	cancel()
	return fmt.Sprintf("done: %t", <-ended)
}

// atOnce: of two logs that are due, runs that are throttled are seen together.
func atOnce(n *node, r *partition.Replica) string {
	for _, log := range []*partition.Replica{r, n.replica(r.TopicID(), 1)} {
		n.put(log, message{key: "k", size: 1000}, message{key: "k", size: 1000})
		n.roll(log)
	}
	stop := n.runsCleaner()
	defer stop()
	return fmt.Sprintf("%d at once", n.cleaner.Stats.Running.Load())
}

func rests(n *node, _ *partition.Replica) string {
	stop := n.runsCleaner()
	defer stop()
	n.clock.Advance(2 * time.Second)
	synctest.Wait()
	if n.cleaner.Stats.LastLookMs.Load() == n.clock.Now().UnixMilli() {
		return "looks again"
	}
	return "rests"
}

// runsCleaner lets the cleaner run until it waits for time.
func (n *node) runsCleaner() (stop func()) {
	ctx, cancel := context.WithCancel(n.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- n.cleaner.Run(ctx) }()
	synctest.Wait()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			n.t.Error(err)
		}
	}
}

func sending(m message) func(*node, *partition.Replica) string {
	return func(n *node, r *partition.Replica) string {
		if err := n.send(r, m); err != nil {
			return fmt.Sprintf("%T", err)
		}
		return "ok"
	}
}

func stored(show func(batch.Batch) string) func(*node, *partition.Replica) string {
	return func(n *node, r *partition.Replica) string {
		n.put(r, message{size: 50_000, text: true})
		for b := range n.batches(r) {
			return show(b)
		}
		return "nothing"
	}
}

func size(b batch.Batch) string { return fmt.Sprintf("%d bytes", b.Len()) }

func silent(n *node, r *partition.Replica) string {
	n.put(r, message{producer: true})
	n.clock.Advance(2 * time.Minute)
	n.replicas.ExpireProducers(n.clock.Now())
	return fmt.Sprintf("%d producers", r.Log().ProducerCount())
}

// placed: where the logs of a new topic are made.
func placed(n *node, r *partition.Replica) string {
	id := r.TopicID()
	id[15] = 0xff
	n.replay(topicRecords(id, "new-"+r.Topic(), uuid.DirUnassigned, 16, []int32{1})...)
	for p := range int32(16) {
		if strings.HasPrefix(n.replica(id, p).Log().Dir(), "/a/") {
			return "/a used: true"
		}
	}
	return "/a used: false"
}

// empty answers every request with an empty message.
type empty struct{}

func (empty) Handle(_ context.Context, _ *network.Conn, h wire.Header, _ []byte) wire.Response {
	r := kmsg.ResponseForKey(h.Key)
	r.SetVersion(h.Version)
	return wire.Message{Response: r}
}

func (n *node) listens() {
	s, err := n.listen(n.o.Node.DataListeners(), n.o.Node.InterBroker, empty{})
	if err != nil {
		n.t.Fatal(err)
	}
	s.Start()
	n.clients = s
	n.t.Cleanup(func() {
		if err := s.Shutdown(context.Background()); err != nil {
			n.t.Error(err)
		}
	})
}

// connects tells what becomes of two connections.
func connects(n *node, _ *partition.Replica) string {
	const listener = "PLAINTEXT"
	var out []string
	var conns []net.Conn
	patience := 20 * time.Second
	for i := range 2 {
		if i == 1 && strings.Contains(n.expects, "waits") {
			patience = 500 * time.Millisecond
		}
		c, err := net.Dial("tcp", n.clients.Addr(listener).String())
		if err != nil {
			n.t.Fatal(err)
		}
		conns = append(conns, c)
		out = append(out, n.asks(c, patience))
	}
	for _, c := range conns {
		c.Close()
	}
	deadline := time.Now().Add(20 * time.Second)
	for n.clients.Connections(listener) > 0 || n.clients.Stats().Accepted.Load() > n.clients.Stats().Closed.Load() {
		if time.Now().After(deadline) {
			n.t.Fatal("closed connections are not let go")
		}
		n.clock.Advance(time.Second) // for one that waits for its turn
	}
	return strings.Join(out, ", ")
}

// asks sends ApiVersions v0: size, key 18, version 0, correlation id, null client id.
func (n *node) asks(c net.Conn, patience time.Duration) string {
	if _, err := c.Write([]byte{0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 0xff, 0xff}); err != nil {
		return "closed"
	}
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		n.t.Fatal(err)
	}
	var size [4]byte
	_, err := io.ReadFull(c, size[:])
	switch {
	case err == nil:
		return "served"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "waits"
	}
	return "closed"
}
