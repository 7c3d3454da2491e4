package broker

import (
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/batch"
	"weir/internal/checkpoint"
	"weir/internal/clock"
	"weir/internal/config"
	"weir/internal/image"
	"weir/internal/loggers"
	"weir/internal/partition"
	"weir/internal/records"
	"weir/internal/replication"
	"weir/internal/uuid"
	"weir/internal/vfs/errfs"
	"weir/internal/vfs/memfs"
)

// effect is a dynamic key and how what it does is seen.
type effect struct {
	topic, broker string // the key's name for a topic and for a broker; "" where it cannot be set
	value         string
	// What look says without the key and with it. "" stands for whatever it says, but the two differ.
	without, with string
	look          func(n *node, r *partition.Replica) string

	base     map[string]string // the topic's other configuration
	cluster  map[string]string // other dynamic configuration of all brokers
	replicas []int32           // of the topic; only this broker is in sync. nil: this broker
	bubble   bool              // look starts goroutines and waits for them with synctest
	listens  bool              // look connects
}

// elsewhere names the file that proves the effect of a key which is not one of these parts.
func elsewhere() map[string]string {
	return map[string]string{
		"unclean.leader.election.enable":            "../controller/testdata/unclean_dynamic.txt",
		"follower.replication.throttled.rate":       "../replication/throttle_test.go",
		"num.replica.fetchers":                      "../replication/fetcher_test.go",
		"transaction.partition.verification.enable": "../../test/interop/testdata/tools-txn",
		"group.consumer.assignment.interval.ms":     "../config/groups_test.go",
		"listeners":                                 "listeners_test.go",
		"listener.security.protocol.map":            "listeners_test.go",
	}
}

// Every key that Kafka changes while it runs and Weir honours has a row in effects, stands in elsewhere, or is said to
// be read at start only.
func TestEveryDynamicKeyHasARow(t *testing.T) {
	brokers, topics := map[string]bool{}, map[string]bool{}
	for _, e := range effects() {
		brokers[e.broker], topics[e.topic] = true, true
	}
	for key, file := range elsewhere() {
		text, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(text), key) {
			t.Errorf("%s does not speak of %s (%v)", file, key, err)
		}
		brokers[key], topics[key] = true, true
	}
	missing := func(scope config.Scope, have map[string]bool) {
		for _, k := range config.Keys(scope) {
			if k.Honoured && k.Dynamic && !have[k.Name] && (scope == config.ScopeTopic || config.NotTaken(k.Name) == "") {
				t.Errorf("the %s key %s is honoured and dynamic, and nothing shows that it takes effect", scope, k.Name)
			}
		}
	}
	missing(config.ScopeBroker, brokers)
	missing(config.ScopeTopic, topics)
}

// A dynamic key takes effect on logs that are open and connections that wait, wherever it is set: on the topic, on the
// broker, for all brokers; and loses it when it is taken away.
func TestDynamicKeysTakeEffect(t *testing.T) {
	for _, e := range effects() {
		for _, level := range levels(&e) {
			name := e.topic
			if level.kind == image.ResourceBroker {
				name = e.broker
			}
			t.Run(name+"/"+level.called, func(t *testing.T) {
				if e.bubble {
					synctest.Test(t, func(t *testing.T) { e.run(t, level.kind, level.name, name) })
					return
				}
				e.run(t, level.kind, level.name, name)
			})
		}
	}
}

// The cleaner hears of a shorter backoff while it rests.
func TestCleanerIsWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, begin)
		n.topic("t", nil)
		backoff := func(ms string) { n.replay(setting(image.ResourceBroker, "1", "log.cleaner.backoff.ms", &ms)) }
		looked := func() bool {
			n.clock.Advance(time.Second)
			synctest.Wait()
			return n.cleaner.Stats.LastLookMs.Load() == n.clock.Now().UnixMilli()
		}
		backoff("3600000")
		stop := n.runsCleaner()
		defer stop()
		if looked() {
			t.Fatal("it does not rest for an hour")
		}
		backoff("1000")
		synctest.Wait()
		if !looked() {
			t.Fatal("it goes on resting for an hour")
		}
	})
}

// level is a resource that a key is set on.
type level struct {
	called string
	kind   int8
	name   string
}

func levels(e *effect) []level {
	var out []level
	if e.topic != "" {
		out = append(out, level{"topic", image.ResourceTopic, ""})
	}
	k, ok := config.Lookup(config.ScopeBroker, e.broker)
	if ok && k.Update != config.PerBroker {
		out = append(out, level{"cluster", image.ResourceBroker, ""})
	}
	if ok {
		out = append(out, level{"broker", image.ResourceBroker, "1"})
	}
	return out
}

// run looks before the key is set, when it is, and when it is taken away, at a topic of its own each time: all of them
// are there from the beginning.
func (e *effect) run(t *testing.T, kind int8, resource, key string) {
	from := begin
	if e.listens {
		from = time.Now() // deadlines of sockets are real
	}
	n := newNode(t, from)
	if e.listens {
		n.listens()
	}
	for k, v := range e.cluster {
		n.replay(setting(image.ResourceBroker, "", k, &v))
	}
	var probes [3]*partition.Replica
	for i := range probes {
		name := fmt.Sprintf("probe%d", i)
		probes[i] = n.topic(name, e.replicas)
		for k, v := range e.base {
			n.replay(setting(image.ResourceTopic, name, k, &v))
		}
	}
	var got [3]string
	for i, value := range []*string{nil, &e.value, nil} {
		on := resource
		if kind == image.ResourceTopic {
			on = probes[i].Topic()
		}
		if i > 0 {
			n.replay(setting(kind, on, key, &e.value)) // for the last probe too, or its topic would never have had it
			n.replay(setting(kind, on, key, value))
		}
		n.expects = [...]string{e.without, e.with, e.without}[i]
		got[i] = e.look(n, probes[i])
	}
	if e.without != "" && got[0] != e.without {
		t.Errorf("before: %s, want %s", got[0], e.without)
	}
	if e.with != "" && got[1] != e.with || got[1] == got[0] {
		t.Errorf("with %s=%s: %s, want %s and not %s", key, e.value, got[1], e.with, got[0])
	}
	if got[2] != got[0] {
		t.Errorf("after it was taken away: %s, before it was set: %s", got[2], got[0])
	}
}

const dynamicProperties = `
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:9093
log.dirs=/a,/b
`

var (
	begin = time.UnixMilli(1_700_000_000_000)
	dirA  = uuid.UUID{0: 1, 15: 0xaa}
	dirB  = uuid.UUID{0: 1, 15: 0xbb}
)

// node is a Broker without quorum: logs, replicas, cleaner and, when asked, listeners, wired as the real one. Its disk
// is in memory and its clock stands still.
type node struct {
	*Broker
	t       *testing.T
	clock   *clock.Manual
	disk    *memfs.FS
	img     *image.Image
	dyn     dynamic
	cleaned atomic.Int64 // writes to logs that the cleaner makes
	expects string       // what the look under way should say; it shortens the wait for what is not to come
}

func newNode(t *testing.T, from time.Time) *node {
	t.Helper()
	static, _, err := config.Load("server.properties", []byte(dynamicProperties), nil)
	if err != nil {
		t.Fatal(err)
	}
	described, err := static.Node()
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, clock: clock.NewManual(from), disk: memfs.New()}
	n.disk.SetNow(n.clock.Now)
	for path, id := range map[string]uuid.UUID{"/a": dirA, "/b": dirB} {
		meta := checkpoint.MetaProperties{Version: 1, ClusterID: "4L6g3nShT-eMCtK--X86sw", NodeID: 1, DirectoryID: id}
		if err := n.disk.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := checkpoint.WriteMetaProperties(n.disk, path+"/"+checkpoint.MetaFile, meta); err != nil {
			t.Fatal(err)
		}
	}
	quiet := slog.New(slog.DiscardHandler)
	fsys := errfs.Wrap(n.disk, errfs.Rule{Op: errfs.Write, Path: "*.log.cleaned", Before: func() { n.cleaned.Add(1) }})
	n.Broker = &Broker{
		o:     Options{Static: static, Node: described, FS: fsys, Clock: n.clock, Loggers: loggers.New(slog.DiscardHandler, slog.LevelInfo), OpenFiles: 100},
		clock: n.clock, logger: quiet, buffers: new(batch.Pool), failed: make(chan struct{}),
	}
	if _, err := n.openDirs(t.Context()); err != nil {
		t.Fatal(err)
	}
	d := image.NewDelta(image.New())
	level := records.NewFeatureLevelRecord()
	level.Name, level.FeatureLevel = "metadata.version", 30
	if err := d.Replay(records.Versioned{Record: &level}); err != nil {
		t.Fatal(err)
	}
	const registered = 9
	n.img = d.Apply(image.Provenance{Offset: registered})
	o := n.replicaOptions()
	o.Leaderships, o.Epoch = nil, func() int64 { return registered }
	n.replicas = replication.New(o)
	n.configs = n.replicas
	n.openCleaner()
	n.dyn = dynamic{n.Broker, map[string]string{}}
	return n
}

// replay applies records as one delta.
func (n *node) replay(recs ...records.Metadata) {
	n.t.Helper()
	d := image.NewDelta(n.img)
	for _, r := range recs {
		if err := d.Replay(records.Versioned{Record: r, Version: r.HighestVersion()}); err != nil {
			n.t.Fatal(err)
		}
	}
	n.img = d.Apply(image.Provenance{Offset: n.img.Provenance.Offset + int64(len(recs))})
	n.replicas.Apply(n.img, d)
	n.dyn.Apply(n.img, d)
}

func setting(kind int8, name, key string, value *string) records.Metadata {
	r := records.NewConfigRecord()
	r.ResourceType, r.ResourceName, r.Name, r.Value = kind, name, key, value
	return &r
}

// topic makes a topic of two partitions that this broker leads, and returns the first.
func (n *node) topic(name string, replicas []int32) *partition.Replica {
	n.t.Helper()
	id := uuid.UUID{0: 2}
	copy(id[1:], name)
	if replicas == nil {
		replicas = []int32{1}
	}
	n.replay(topicRecords(id, name, dirA, 2, replicas)...)
	return n.replica(id, 0)
}

func topicRecords(id uuid.UUID, name string, dir uuid.UUID, partitions int32, replicas []int32) []records.Metadata {
	t := records.NewTopicRecord()
	t.Name, t.TopicID = name, id
	out := []records.Metadata{&t}
	for p := range partitions {
		r := records.NewPartitionRecord()
		r.TopicID, r.PartitionID, r.Leader, r.LeaderEpoch, r.Replicas, r.ISR = id, p, 1, 0, replicas, []int32{1}
		r.Directories = slices.Repeat([]uuid.UUID{dir}, len(replicas))
		out = append(out, &r)
	}
	return out
}

func (n *node) replica(id uuid.UUID, p int32) *partition.Replica {
	n.t.Helper()
	r, err := n.replicas.Replica(id, p)
	if err != nil {
		n.t.Fatal(err)
	}
	return r
}

// message is one record. The zero value has no key and a value of one byte.
type message struct {
	key      string
	size     int           // of the value
	text     bool          // the value is words, else it does not compress
	null     bool          // there is no value
	at       time.Duration // against the clock
	producer bool
}

// send produces a batch of one record and returns the error.
func (n *node) send(r *partition.Replica, m message) error {
	o := batch.NewOptions()
	if m.producer {
		o.ProducerID, o.ProducerEpoch, o.BaseSequence = 7, 0, 0
	}
	b := batch.NewBuilder(o)
	var key, value []byte
	if m.key != "" {
		key = []byte(m.key)
	}
	if !m.null {
		value = filler(max(m.size, 1), m.text)
	}
	b.Append(n.clock.Now().Add(m.at).UnixMilli(), key, value, nil)
	_, err := r.AppendAsLeader(partition.AppendRequest{Records: b.Build(), Version: 9, Acks: partition.AcksAll})
	return err
}

// filler makes bytes, the same ones each time.
func filler(size int, words bool) []byte {
	out, seed := make([]byte, 0, size), uint32(1)
	for len(out) < size {
		seed = seed*1664525 + 1013904223
		if words {
			out = fmt.Appendf(out, "word%d ", seed>>24)
			continue
		}
		out = append(out, byte(seed>>24))
	}
	return out[:size]
}

// put is send that must succeed.
func (n *node) put(r *partition.Replica, list ...message) {
	n.t.Helper()
	for _, m := range list {
		if err := n.send(r, m); err != nil {
			n.t.Fatal(err)
		}
	}
}

// roll ends the active segment, and makes it durable, so that the cleaner may take it.
func (n *node) roll(r *partition.Replica) {
	n.t.Helper()
	if err := r.Log().Roll(); err != nil {
		n.t.Fatal(err)
	}
	if err := r.Log().Flush(-1); err != nil {
		n.t.Fatal(err)
	}
}

// clean compacts all that is due and says in how many runs.
func (n *node) clean() int {
	runs := 0
	for n.cleaner.Step(n.t.Context()) {
		runs++
	}
	if bad := n.cleaner.Uncleanable(); len(bad) > 0 {
		n.t.Fatal(bad)
	}
	return runs
}

// values counts the records of a log by key; tombstones count below the key and "=null".
func (n *node) values(r *partition.Replica) map[string]int {
	n.t.Helper()
	out := map[string]int{}
	for b := range n.batches(r) {
		for rec, err := range b.Records(nil) {
			if err != nil {
				n.t.Fatal(err)
			}
			name := string(rec.Key)
			if rec.Value == nil {
				name += "=null"
			}
			out[name]++
		}
	}
	return out
}

// batches walks over a log.
func (n *node) batches(r *partition.Replica) func(yield func(batch.Batch) bool) {
	return func(yield func(batch.Batch) bool) {
		for at := r.Log().LogStart(); at < r.Log().LogEnd(); {
			read, err := r.Log().Read(at, 1<<20, r.Log().LogEnd(), true)
			if err != nil {
				n.t.Fatal(err)
			}
			if read.Size == 0 {
				return
			}
			data, err := read.Regions[0].AppendTo(nil)
			read.Release()
			for err == nil && len(data) > 0 {
				var e batch.Entry
				if e, data, err = batch.NextEntry(data); err == nil {
					b, _ := e.Batch()
					if at = e.LastOffset() + 1; !yield(b) {
						return
					}
				}
			}
			if err != nil && err != batch.ErrShort {
				n.t.Fatal(err)
			}
		}
	}
}

// with joins configurations.
func with(list ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, m := range list {
		maps.Copy(out, m)
	}
	return out
}
